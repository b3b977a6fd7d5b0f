//! Generated documentation is what the code says. `UPDATE_DOCS=1` writes it.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tallystick::http::openapi;
use tallystick::http::problem::Code;

use crate::support::server::Server;

const BEGIN: &str = "<!-- problems: generated from the code -->";
const END: &str = "<!-- problems: end -->";

fn docs(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)
}

/// Fails when the file is another one; writes it first when asked to.
fn compare(name: &str, expected: &str) {
    let path = docs(name);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::create_dir_all(docs("")).unwrap();
        fs::write(&path, expected).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(found == expected, "docs/{name} is not what the code says: run this test with UPDATE_DOCS=1");
}

#[test]
fn the_openapi_document_is_up_to_date() {
    compare("openapi.json", openapi::json());
}

#[test]
fn the_list_of_problems_is_up_to_date() {
    let found = fs::read_to_string(docs("http-api.md")).unwrap_or_default();
    let (before, rest) = found.split_once(BEGIN).expect("docs/http-api.md has the marker of the list");
    let (_, after) = rest.split_once(END).expect("docs/http-api.md has the end marker of the list");
    let rows: String = Code::ALL
        .iter()
        .map(|code| format!("| {} | `{}` | {} |\n", code.status().as_u16(), code.as_str(), code.advice()))
        .collect();
    let table = format!("{BEGIN}\n\n| status | code | what to do |\n| --- | --- | --- |\n{rows}\n{END}");
    compare("http-api.md", &format!("{before}{table}{after}"));
}

/// Every operation of the document exists, and asks for a key exactly where the document says so.
#[tokio::test]
async fn the_document_and_the_routes_agree() {
    let s = Server::start().await;
    let document: Value = serde_json::from_str(openapi::json()).unwrap();
    let mut operations = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            operations += 1;
            let open = operation.get("security").is_some();
            let concrete =
                path.replace("{id}", "0198f2c5-6f3a-7c1e-8000-000000000000").replace("{gateway}", "test");
            let call = s.client.call(&method.to_uppercase(), &concrete).without("X-API-Key");
            let status = call.send().await.status;
            match open {
                true => assert!(status == 200 || !path.starts_with("/api/"), "{method} {path}: {status}"),
                false => assert_eq!(status, 401, "{method} {path}"),
            }
            // The other method is there only if the document has it.
            let other = if method == "get" { "POST" } else { "GET" };
            let wrong = s.client.call(other, &concrete).send().await.status;
            assert_eq!(wrong == 405, item.get(other.to_lowercase()).is_none(), "{other} {path}: {wrong}");
        }
    }
    assert_eq!(operations, 21, "a new endpoint is a line here too");
}
