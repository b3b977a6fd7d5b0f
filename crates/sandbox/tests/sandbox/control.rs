//! Control routes: settings, paging, clock, health.

use crate::common::Sandbox;
use serde_json::{Value, json};

#[test]
fn settings_change_by_name_and_refuse_what_they_do_not_know() {
    let sandbox = Sandbox::new();
    let put = |body: Value| sandbox.call("PUT", "/_settings", Some(body));
    let set = put(json!({"latency": "20ms", "spread": 0.25, "seed": 7})).json();
    assert_eq!(
        (&set["latency"], &set["spread"], &set["key_retention"]),
        (&json!("20ms"), &json!(0.25), &json!("1day"))
    );
    assert_eq!(put(json!({"latency": null})).json()["latency"], "5ms");
    assert_eq!(sandbox.get("/_settings")["seed"], 7);
    for (wrong, field) in [(json!({"latencies": 1}), "/latencies"), (json!({"seed": -1}), "/seed")] {
        let answer = put(wrong);
        assert_eq!((answer.status, &answer.json()["field"]), (422, &json!(field)));
    }
    let answer = sandbox.call("PUT", "/_settings", None);
    assert_eq!(answer.status, 200, "nothing named, nothing changed");
    let broken = crate::common::http(
        sandbox.address,
        "PUT",
        "/_settings",
        &[],
        "{",
        std::time::Duration::from_secs(5),
    )
    .unwrap();
    assert_eq!((broken.status, &broken.json()["error"]), (400, &json!("malformed_json")));
}

#[test]
fn lists_have_pages() {
    let sandbox = Sandbox::new();
    for n in 0..5 {
        sandbox.charge(&format!("k{n}"), "tok_ok");
    }
    for (path, name) in [("/_book", "effects"), ("/_requests", "requests"), ("/_events", "events")] {
        let (mut after, mut seen) = (json!(0), Vec::new());
        loop {
            let page = sandbox.get(&format!("{path}?after={after}&limit=2"));
            let items = page[name].as_array().unwrap();
            if items.is_empty() {
                assert_eq!(page["next"], Value::Null);
                break;
            }
            seen.extend(items.iter().map(|item| item["key"].as_str().unwrap().to_owned()));
            after = page["next"].clone();
        }
        assert_eq!(seen, ["k0", "k1", "k2", "k3", "k4"], "{path}");
        assert_eq!(sandbox.get(&format!("{path}?key=k3"))[name].as_array().unwrap().len(), 1);
        assert_eq!(sandbox.call("GET", &format!("{path}?limit=x"), None).status, 422);
    }
}

#[test]
fn health_index_clock_and_unknown_routes() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.get("/_health")["status"], "ok");
    assert!(sandbox.call("GET", "/", None).body.contains("/_book"));
    assert_eq!(sandbox.call("GET", "/nowhere", None).status, 404);
    let before = sandbox.get("/_clock")["now"].as_str().unwrap().to_owned();
    let after = sandbox.post("/_clock", json!({"advance": "48h"}))["now"].as_str().unwrap().to_owned();
    assert!(after[..10] > before[..10]);
    assert_eq!(sandbox.call("POST", "/_clock", Some(json!({"advance": "300years"}))).status, 422);
    assert_eq!(sandbox.get("/_balance?currency=EUR")["balance_minor"], 0);
    assert_eq!(sandbox.get("/_balance"), json!({"balances": []}));
    let bearer = format!("Bearer {}", crate::common::SECRET);
    let path = "/gateways/sandbox/balance?currency=EUR";
    let with = |headers: &[(&str, &str)]| {
        crate::common::http(sandbox.address, "GET", path, headers, "", std::time::Duration::from_secs(5))
            .unwrap()
    };
    assert_eq!(with(&[("authorization", &bearer)]).json()["currency"], "EUR");
    assert_eq!(with(&[]).status, 401);
}
