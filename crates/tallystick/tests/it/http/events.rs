//! The pull feed over HTTP.

use serde_json::{Value, json};

use super::{order, with};
use crate::support::client::Client;
use crate::support::server::Server;
use crate::support::until;

/// Everything behind `after`, in pages of `limit`; and the position at the end.
async fn read(client: &Client, after: &str, limit: u8) -> (Vec<Value>, String) {
    let (mut seen, mut after) = (Vec::new(), after.to_owned());
    loop {
        let position = if after.is_empty() { String::new() } else { format!("&after={after}") };
        let page = client.get(&format!("/api/v1/events?limit={limit}{position}")).send().await.is(200).json();
        let data = page["data"].as_array().unwrap().clone();
        assert!(data.len() <= usize::from(limit));
        after = page["next_cursor"].as_str().expect("always a position").to_owned();
        if data.is_empty() {
            return (seen, after);
        }
        seen.extend(data);
    }
}

#[tokio::test]
async fn every_move_is_in_the_feed_once_and_in_order() {
    let s = Server::start().await;
    let mut ids = Vec::new();
    for method in ["approve", "decline", "lose"] {
        ids.push(
            s.client
                .pay(&with(order(9899), json!({"payment_method": method})))
                .send()
                .await
                .text("payment_id"),
        );
    }
    s.client.payment_in(&ids[0], "succeeded").await;
    s.client.payment_in(&ids[1], "failed").await;
    s.client.payment_in(&ids[2], "succeeded").await;
    let (events, end) = until("seven events", async || {
        let read = read(&s.client, "", 200).await;
        (read.0.len() == 7).then_some(read)
    })
    .await;
    for id in &ids {
        let own: Vec<&Value> = events.iter().filter(|e| e["payment_id"] == json!(id)).collect();
        let sequences: Vec<u64> = own.iter().map(|e| e["sequence"].as_u64().unwrap()).collect();
        assert_eq!(sequences, (1..=own.len() as u64).collect::<Vec<_>>());
        let shown = s.client.get(&format!("/api/v1/payments/{id}?expand=events")).send().await.json();
        assert_eq!(json!(own), shown["events"]);
    }
    let names: Vec<&String> = events[0].as_object().unwrap().keys().collect();
    assert_eq!(
        names,
        [
            "type",
            "event_id",
            "payment_id",
            "status",
            "amount",
            "amount_minor",
            "currency",
            "sequence",
            "occurred_at"
        ]
    );

    for limit in [1, 3] {
        assert_eq!(read(&s.client, "", limit).await.0, events, "pages of any size tell the same");
    }
    let later = s.client.pay(&order(1)).send().await.text("payment_id");
    let new = until("the next event", async || {
        let (new, _) = read(&s.client, &end, 200).await;
        (!new.is_empty()).then_some(new)
    })
    .await;
    assert!(new.iter().all(|e| e["payment_id"] == json!(later)));
    assert_eq!(read(&s.other, "", 200).await.0, Vec::<Value>::new(), "each tenant reads its own");
}

#[tokio::test]
async fn bad_positions_and_limits_are_named() {
    let s = Server::start().await;
    let long = format!("after={}", "x".repeat(500));
    for query in [
        "after=nonsense",
        long.as_str(),
        "after=",
        "limit=0",
        "limit=201",
        "limit=x",
        "cursor=x",
        "after=a&after=a",
    ] {
        let name = query.split('=').next().unwrap();
        s.client.get(&format!("/api/v1/events?{query}")).send().await.invalid(&format!("query:{name}"));
    }
    // A position of the future, which would pass over everything until then.
    let ahead = tallystick_outbox::Cursor { window: 1_000_000, seq: 1, epoch: 0 };
    s.client.get(&format!("/api/v1/events?after={ahead}")).send().await.invalid("query:after");
}
