//! The OpenAPI document, made from the code: `GET /openapi.json`.
//!
//! A new endpoint is a line in `paths` here and a route in [`v1`](super::v1); a test holds the two against each other.

use std::sync::LazyLock;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use utoipa::openapi::path::{Operation, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{Object, Type};
use utoipa::openapi::security::{ApiKey, ApiKeyValue, Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{
    ContentBuilder, HeaderBuilder, OpenApi as Document, Ref, RefOr, Required, Response, ResponseBuilder,
};
use utoipa::{Modify, OpenApi};

use super::AppState;
use super::extract::json_bytes;
use super::problem::ProblemBody;
use super::v1::{accounts, breaks, events, journals, payments, payouts, trial_balance};
use super::{health, hooks, metrics};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Tallystick",
        description = "Takes money in and sends money out, each exactly once in effect, and proves it.\n\nErrors are `application/problem+json` with a stable `code`. Money is given in both forms: a decimal of major units and an integer of minor units. Times are RFC 3339 in UTC. Lists are newest first; the feed of events is oldest first."
    ),
    paths(
        payments::create::create,
        payments::list::list,
        payments::get::get,
        payouts::create::create,
        payouts::list::list,
        payouts::get::get,
        accounts::open::open,
        accounts::list::list,
        accounts::get::get,
        accounts::entries::entries,
        accounts::balance::balance,
        journals::post::post,
        journals::get::get,
        journals::reverse::reverse,
        trial_balance::trial_balance,
        events::events,
        breaks::list,
        hooks::receive,
        health::live,
        health::ready,
        metrics::metrics,
    ),
    components(schemas(ProblemBody, events::EventPage)),
    security(("api_key" = []), ("bearer" = [])),
    modifiers(&Common),
    tags(
        (name = "payments", description = "Money in."),
        (name = "payouts", description = "Money out: debited first, sent once."),
        (name = "ledger", description = "Accounts, journals and balances."),
        (name = "events", description = "The pull feed: every move, once, in order per object."),
        (name = "breaks", description = "Differences that a person works to zero. Operator scope."),
        (name = "webhooks in", description = "What gateways tell us."),
        (name = "operation", description = "For supervisors and monitoring. No key."),
    )
)]
struct Api;

/// What every operation has: the request id, and problems that do not depend on it.
struct Common;

impl Modify for Common {
    fn modify(&self, document: &mut Document) {
        if let Some(components) = &mut document.components {
            let key = ApiKeyValue::with_description("X-API-Key", "The key itself.");
            components.add_security_scheme("api_key", SecurityScheme::ApiKey(ApiKey::Header(key)));
            components.add_security_scheme("bearer", SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
        }
        for (path, item) in &mut document.paths.paths {
            let limited = path.starts_with("/api/") || path.starts_with("/webhooks/");
            for (method, operation) in [("get", &mut item.get), ("post", &mut item.post)] {
                let Some(operation) = operation else { continue };
                if limited {
                    add_problems(operation, path.starts_with("/api/"), method == "post");
                }
                give_bodies(operation);
                add_request_id(operation);
            }
        }
    }
}

/// Statuses that any operation may answer with, where the operation does not say more about them.
fn add_problems(operation: &mut Operation, api: bool, post: bool) {
    let mut common = vec![("500", "`internal`"), ("503", "`overloaded` or `unavailable`; see `Retry-After`")];
    if api {
        common.push(("401", "`unauthenticated`"));
        common.push(("422", "`validation`"));
        common.push(("429", "`rate_limited`; see `Retry-After`"));
    }
    if api && post {
        common.push(("400", "`malformed_json`"));
        common.push(("413", "`body_too_large`"));
        common.push(("415", "`unsupported_media_type`"));
        common.push((
            "422",
            "`validation`, `missing_idempotency_key`, `card_number_refused` or `minimum_balance`",
        ));
    }
    let responses = &mut operation.responses.responses;
    for (status, description) in common.into_iter().rev() {
        if !responses.contains_key(status) {
            responses
                .insert(status.to_owned(), ResponseBuilder::new().description(description).build().into());
        }
    }
}

/// Every status from 400 on has a problem body, unless it has another one; every answer has a description.
fn give_bodies(operation: &mut Operation) {
    for (status, response) in &mut operation.responses.responses {
        let RefOr::T(response) = response else { continue };
        if response.description.is_empty() {
            response.description = "Success".to_owned();
        }
        if status.starts_with(['4', '5']) && response.content.is_empty() {
            let schema = Ref::from_schema_name("Problem");
            let content = ContentBuilder::new().schema(Some(schema)).build();
            response.content.insert("application/problem+json".to_owned(), content);
        }
    }
}

fn add_request_id(operation: &mut Operation) {
    let text = || Object::with_type(Type::String);
    let taken = ParameterBuilder::new()
        .name("X-Request-Id")
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some("1 to 128 of `A-Z a-z 0-9 . _ -`; made when absent"))
        .schema(Some(text()));
    operation.parameters.get_or_insert_default().push(taken.build());
    for response in operation.responses.responses.values_mut() {
        if let RefOr::T(Response { headers, .. }) = response {
            let header = HeaderBuilder::new().schema(text()).description(Some("The request's id")).build();
            headers.insert("X-Request-Id".to_owned(), header);
        }
    }
}

static DOCUMENT: LazyLock<Document> = LazyLock::new(Api::openapi);
static JSON: LazyLock<String> = LazyLock::new(|| {
    let mut json = DOCUMENT.to_pretty_json().expect("the document always serializes");
    json.push('\n');
    json
});

/// The document as JSON text.
#[must_use]
pub fn json() -> &'static str {
    &JSON
}

/// The document.
#[must_use]
pub fn document() -> &'static Document {
    &DOCUMENT
}

pub(super) fn routes() -> Router<AppState> {
    Router::new().route("/openapi.json", get(async || json_bytes(StatusCode::OK, json())))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    fn document() -> Value {
        serde_json::from_str(json()).unwrap()
    }

    /// The names that a body's reader takes are those that its schema shows.
    #[test]
    fn schemas_show_the_fields_that_are_read() {
        let document = document();
        for (schema, fields) in [
            ("NewPayment", payments::create::FIELDS),
            ("NewPayout", payouts::create::FIELDS),
            ("NewAccount", accounts::open::FIELDS),
            ("NewJournal", journals::post::FIELDS),
            ("NewEntry", journals::post::ENTRY_FIELDS),
            ("Reversal", journals::reverse::FIELDS),
        ] {
            let schema = &document["components"]["schemas"][schema];
            let shown: Vec<&str> =
                schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
            assert_eq!(shown, fields);
            assert_eq!(schema["additionalProperties"], false);
        }
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let document = document();
        let names: BTreeSet<&str> =
            document["components"]["schemas"].as_object().unwrap().keys().map(String::as_str).collect();
        for reference in
            json().split("\"#/components/schemas/").skip(1).filter_map(|rest| rest.split('"').next())
        {
            assert!(names.contains(reference), "{reference}");
        }
        assert_eq!(document["openapi"].as_str().unwrap().split('.').take(2).collect::<Vec<_>>(), ["3", "1"]);
    }

    #[test]
    fn operations_have_names_of_their_own() {
        let document = document();
        let items = document["paths"].as_object().unwrap().values();
        let operations = items.flat_map(|item| item.as_object().unwrap().values());
        let mut names: Vec<&str> = operations.map(|o| o["operationId"].as_str().unwrap()).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn every_problem_has_a_body() {
        let document = document();
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                for (status, response) in operation["responses"].as_object().unwrap() {
                    let body = status.starts_with(['4', '5']).then(|| &response["content"]);
                    assert!(body.is_none_or(Value::is_object), "{method} {path} {status}");
                    assert!(response["description"] != "", "{method} {path} {status}");
                }
            }
        }
    }
}
