//! `GET /docs`: the OpenAPI document as one static page. It needs no script, no font and no other host.

use std::sync::LazyLock;

use askama::Template;
use axum::Router;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::Value;

use super::problem::Code;
use super::{AppState, openapi};

/// Nothing but the page itself and its own style sheet.
const POLICY: &str =
    "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const STYLE: &str = include_str!("../../templates/docs.css");

#[derive(Template)]
#[template(path = "docs.html")]
struct Page {
    title: String,
    version: String,
    description: String,
    groups: Vec<Group>,
    schemas: Vec<Schema>,
    problems: Vec<Code>,
}

struct Group {
    name: String,
    description: String,
    operations: Vec<Operation>,
}

struct Operation {
    method: String,
    path: String,
    summary: String,
    description: String,
    open: bool,
    parameters: Vec<Parameter>,
    body: Option<Type>,
    answers: Vec<Answer>,
}

struct Parameter {
    name: String,
    place: String,
    required: bool,
    description: String,
}

struct Answer {
    status: String,
    description: String,
    body: Option<Type>,
}

struct Schema {
    name: String,
    description: String,
    example: Option<String>,
    fields: Vec<Field>,
    words: Vec<String>,
}

struct Field {
    name: String,
    kind: Type,
    required: bool,
    description: String,
}

/// A type in words, and the schema on this page that it names.
struct Type {
    text: String,
    link: Option<String>,
}

static PAGE: LazyLock<String> = LazyLock::new(|| {
    let document = serde_json::to_value(openapi::document()).expect("the document always serializes");
    page(&document).render().expect("the template writes to memory only")
});

pub(super) fn routes() -> Router<AppState> {
    Router::new().route("/docs", get(docs)).route("/docs/style.css", get(style))
}

async fn docs() -> Response {
    let headers =
        [(header::CONTENT_TYPE, "text/html; charset=utf-8"), (header::CONTENT_SECURITY_POLICY, POLICY)];
    (headers, PAGE.as_str()).into_response()
}

async fn style() -> Response {
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], STYLE).into_response()
}

fn text(value: &Value, pointer: &str) -> String {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn items<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    value.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

fn members<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    value.pointer(pointer).and_then(Value::as_object).into_iter().flatten()
}

fn page(document: &Value) -> Page {
    let groups = items(document, "/tags").map(|tag| group(document, tag)).collect();
    let schemas =
        members(document, "/components/schemas").map(|(name, schema)| self::schema(name, schema)).collect();
    Page {
        title: text(document, "/info/title"),
        version: text(document, "/info/version"),
        description: text(document, "/info/description"),
        groups,
        schemas,
        problems: Code::ALL.to_vec(),
    }
}

fn group(document: &Value, tag: &Value) -> Group {
    let name = text(tag, "/name");
    let operations = members(document, "/paths")
        .flat_map(|(path, item)| members(item, "").map(move |(method, operation)| (path, method, operation)))
        .filter(|(_, _, operation)| items(operation, "/tags").any(|t| t.as_str() == Some(&name)))
        .map(|(path, method, operation)| self::operation(path, method, operation))
        .collect();
    Group { name, description: text(tag, "/description"), operations }
}

fn operation(path: &str, method: &str, value: &Value) -> Operation {
    let parameters = items(value, "/parameters").map(|p| Parameter {
        name: text(p, "/name"),
        place: text(p, "/in"),
        required: p["required"] == true,
        description: text(p, "/description"),
    });
    let answers = members(value, "/responses").map(|(status, answer)| Answer {
        status: status.clone(),
        description: text(answer, "/description"),
        body: content(answer),
    });
    Operation {
        method: method.to_uppercase(),
        path: path.to_owned(),
        summary: text(value, "/summary"),
        description: text(value, "/description"),
        open: value.get("security").is_some(),
        parameters: parameters.collect(),
        body: value.get("requestBody").and_then(content),
        answers: answers.collect(),
    }
}

/// The type of a body, whatever its media type.
fn content(value: &Value) -> Option<Type> {
    members(value, "/content").find_map(|(_, content)| content.get("schema")).map(kind)
}

/// A type in words.
fn kind(schema: &Value) -> Type {
    if let Some(name) = schema["$ref"].as_str().and_then(|r| r.rsplit('/').next()) {
        return Type { text: name.to_owned(), link: Some(name.to_owned()) };
    }
    if schema.get("items").is_some() {
        let of = kind(&schema["items"]);
        return Type { text: format!("array of {}", of.text), link: of.link };
    }
    // One of something and null: what a field that may be absent looks like.
    let mut others = items(schema, "/oneOf").filter(|s| s["type"] != "null");
    if let Some(other) = others.next() {
        let of = kind(other);
        return Type { text: format!("{} or null", of.text), link: of.link };
    }
    let text = match &schema["type"] {
        Value::String(one) => one.clone(),
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or "),
        _ => "any".to_owned(),
    };
    match schema["format"].as_str() {
        Some(format) => Type { text: format!("{text} ({format})"), link: None },
        None => Type { text, link: None },
    }
}

fn schema(name: &str, value: &Value) -> Schema {
    // A schema made of several shows the fields of all of them.
    let parts: Vec<&Value> = std::iter::once(value).chain(items(value, "/allOf")).collect();
    let fields = parts.iter().flat_map(|part| {
        members(part, "/properties").map(move |(name, field)| Field {
            name: name.clone(),
            kind: kind(field),
            required: items(part, "/required").any(|r| r.as_str() == Some(name)),
            description: text(field, "/description"),
        })
    });
    let words = items(value, "/enum").filter_map(Value::as_str).map(str::to_owned);
    let example = value.get("example").and_then(|example| serde_json::to_string_pretty(example).ok());
    Schema {
        name: name.to_owned(),
        description: text(value, "/description"),
        example,
        fields: fields.collect(),
        words: words.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_shows_every_operation_and_needs_nothing_else() {
        let document = serde_json::to_value(openapi::document()).unwrap();
        for (path, item) in members(&document, "/paths") {
            for (method, _) in members(item, "") {
                let id = format!("id=\"{}-{path}\"", method.to_uppercase());
                assert!(PAGE.contains(&id), "{id}");
            }
        }
        for other in ["<script", "style=", "http://", "https://", "@import", "url("] {
            assert!(!PAGE.contains(other) && !STYLE.contains(other), "{other}");
        }
    }

    #[test]
    fn every_link_leads_somewhere() {
        for link in PAGE.split("href=\"#").skip(1).filter_map(|rest| rest.split('"').next()) {
            assert!(PAGE.contains(&format!("id=\"{link}\"")), "{link}");
        }
    }
}
