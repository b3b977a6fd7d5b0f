//! Starting, what is there then, stopping.

use nix::sys::signal::Signal;
use serde_json::json;

use super::{Dev, alive, folder, said};

const PIDS: [&str; 4] = ["dev", "server", "sandbox", "postgres"];

#[tokio::test]
async fn dev_starts_four_processes_says_where_they_are_and_stops_them() {
    let mut dev = Dev::start(&[]);
    let info = dev.info();
    assert_eq!(info["schema"], 1);
    let texts =
        ["api_url", "api_key", "operator_key", "sandbox_url", "receiver_url", "database_url", "metrics_url"];
    for member in texts.iter().chain(&["admin_database_url"]) {
        assert!(info[member].as_str().is_some_and(|text| !text.is_empty()), "{member}: {info}");
    }
    assert_eq!(info["other_tenant"]["tenant"], "other");
    assert!(info["serve_env"]["TALLYSTICK_DATABASE_URL"].is_string(), "{info}");
    assert!(info["serve_env"].get("TALLYSTICK_LISTEN").is_none(), "{info}");
    let pids = PIDS.map(|name| dev.pid(name));
    assert!(pids.iter().all(|pid| alive(*pid)), "{pids:?}");

    let api = dev.api();
    let request = json!({"amount": "100.00", "currency": "EUR", "description": "Order #1"});
    let reply = api.pay(&request).key("changeme").send().await;
    reply.is(202);
    let id = reply.text("payment_id");
    api.payment_in(&id, "succeeded").await;
    assert_eq!(dev.effects(&id).await.len(), 1);
    let other = info["other_tenant"]["api_key"].as_str().expect("a key");
    api.get(&format!("/api/v1/payments/{id}")).key(other).send().await.refused(404, "not_found");
    api.get("/api/v1/breaks").send().await.refused(403, "forbidden");
    api.get("/api/v1/breaks").key(&dev.text("operator_key")).send().await.is(200);
    api.get("/metrics").send().await.is(200);

    dev.signal(Signal::SIGTERM);
    assert_eq!(dev.ended().code(), Some(0), "{}", dev.log());
    assert!(!dev.data.join("dev.json").exists(), "dev.json is removed at a clean stop");
    assert!(pids.iter().all(|pid| !alive(*pid)), "{pids:?}");
}

#[tokio::test]
async fn what_was_there_is_there_after_a_restart_and_gone_after_fresh() {
    let folder = folder();
    let data = folder.path().join("data");
    let mut dev = Dev::start_in(&data, &[], &[]);
    let reply = dev.api().pay(&json!({"amount_minor": 1, "currency": "JPY"})).send().await;
    let id = reply.is(202).text("payment_id");
    dev.api().payment_in(&id, "succeeded").await;
    let key = dev.text("api_key");
    dev.signal(Signal::SIGINT);
    assert_eq!(dev.ended().code(), Some(0), "{}", dev.log());

    let mut dev = Dev::start_in(&data, &[], &[]);
    assert_eq!(dev.text("api_key"), key, "keys stay the same");
    assert_eq!(dev.api().payment(&id).await["status"], "succeeded");
    assert_eq!(dev.effects(&id).await.len(), 1);
    let keys: serde_json::Value =
        serde_json::from_slice(&dev.command(&["keys", "list", "--json"]).stdout).expect("JSON");
    let ours = keys["keys"].as_array().expect("a list").iter().filter(|k| k["prefix"] == "changeme").count();
    assert_eq!(ours, 1, "a known key is stored once: {keys}");
    dev.signal(Signal::SIGTERM);
    dev.ended();

    let dev = Dev::start_in(&data, &["--fresh"], &[]);
    assert_ne!(dev.text("api_key"), key);
    dev.api().get(&format!("/api/v1/payments/{id}")).send().await.refused(404, "not_found");
    assert_eq!(dev.effects(&id).await.len(), 0);
}

#[tokio::test]
async fn a_second_signal_stops_at_once() {
    let mut dev = Dev::start(&[]);
    dev.sandbox()
        .call("PUT", "/_settings")
        .body(r#"{"latency": "1500ms", "spread": 0}"#)
        .header("Content-Type", "application/json")
        .send()
        .await;
    let reply = dev.api().pay(&json!({"amount_minor": 1, "currency": "EUR"})).send().await;
    let id = reply.is(202).text("payment_id");
    crate::support::until("the call is under way", async || {
        (!dev.sandbox().get(&format!("/_requests?key={id}")).send().await.json()["requests"]
            .as_array()?
            .is_empty())
        .then_some(())
    })
    .await;
    let pids = PIDS.map(|name| dev.pid(name));
    dev.signal(Signal::SIGTERM);
    crate::support::until("dev has begun to stop", async || {
        (!dev.data.join("dev.json").exists()).then_some(())
    })
    .await;
    dev.signal(Signal::SIGTERM);
    assert_eq!(dev.ended().code(), Some(1), "{}", dev.log());
    assert!(pids.iter().all(|pid| !alive(*pid)), "{pids:?}");
}

#[tokio::test]
async fn commands_find_the_database_of_a_running_dev() {
    let dev = Dev::start(&[]);
    let made = dev.command(&["tenants", "create", "shop", "--json"]);
    assert!(made.status.success(), "{}", said(&made));
    let made: serde_json::Value = serde_json::from_slice(&made.stdout).expect("JSON");
    assert_eq!(made["tenant"], "shop");
    let key = made["api_key"].as_str().expect("a key");
    dev.api().pay(&json!({"amount_minor": 5, "currency": "EUR"})).key(key).send().await.is(202);

    let taken = dev.command(&["tenants", "create", "shop"]);
    assert_eq!(taken.status.code(), Some(2), "{}", said(&taken));
    for (settings, code) in [("two_people=on", 0), ("two_people=maybe", 2), ("three_people=on", 2)] {
        let set = dev.command(&["tenants", "set", "shop", settings]);
        assert_eq!(set.status.code(), Some(code), "{settings}: {}", said(&set));
    }
    let listed = dev.command(&["tenants", "list", "--json"]);
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).expect("JSON");
    let shop = listed["tenants"]
        .as_array()
        .expect("a list")
        .iter()
        .find(|t| t["name"] == "shop")
        .expect("it was made");
    assert_eq!((&shop["two_people"], &shop["strict_order"]), (&json!(true), &json!(false)));

    let operator = dev.command(&["keys", "create", "--tenant", "shop", "--scope", "operator", "--json"]);
    let operator: serde_json::Value = serde_json::from_slice(&operator.stdout).expect("JSON");
    assert_eq!(operator["scope"], "operator");
    let key = operator["api_key"].as_str().expect("a key");
    dev.api().get("/api/v1/breaks").key(key).send().await.is(200);
    let revoked = dev.command(&["keys", "revoke", operator["key_id"].as_str().expect("an id")]);
    assert!(revoked.status.success(), "{}", said(&revoked));
    crate::support::until("the key is refused", async || {
        (dev.api().get("/api/v1/breaks").key(key).send().await.status == 401).then_some(())
    })
    .await;
    let unknown = dev.command(&["keys", "revoke", "01890000-0000-7000-8000-000000000000"]);
    assert_eq!(unknown.status.code(), Some(2), "{}", said(&unknown));
    let again = dev.command(&["migrate"]);
    assert!(again.status.success(), "{}", said(&again));
}
