//! The commands as processes: exit codes, and what goes to stdout and stderr.

use std::collections::HashMap;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Query, State};
use axum::routing::get;
use serde_json::{Value, json};
use tallystick_payments::verify::{Effect, EffectKind, RULES};
use tokio::net::TcpListener;

use super::book::sorted;
use super::fixture::Fixture;
use super::plant::plant;

/// Runs the program with these arguments and nothing in the environment that chooses a database.
async fn tallystick(args: &[&str]) -> Output {
    tokio::process::Command::new(env!("CARGO_BIN_EXE_tallystick"))
        .args(args)
        .env_remove("TALLYSTICK_DATABASE_URL")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .expect("the program starts")
}

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn parsed(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"))
}

async fn book_page(
    State(effects): State<Vec<Effect>>,
    Query(asked): Query<HashMap<String, String>>,
) -> String {
    let after: u64 = asked["after"].parse().unwrap();
    let limit: usize = asked["limit"].parse().unwrap();
    let word = |kind| match kind {
        EffectKind::Charge => "charge",
        EffectKind::Authorize => "authorize",
        EffectKind::Payout => "payout",
        EffectKind::PayoutReturn => "payout_return",
        _ => "refund",
    };
    let found = effects
        .iter()
        .filter(|e| e.seq > after && asked.get("key").is_none_or(|key| *key == e.key))
        .take(limit);
    let page: Vec<Value> = found
        .map(|e| {
            json!({"seq": e.seq, "at": "2026-01-01T00:00:00Z", "kind": word(e.kind), "key": e.key, "reference": e.reference,
                   "amount_minor": e.amount_minor, "currency": e.currency, "gateway": e.gateway,
                   "state": if e.standing { "done" } else { "undone" }})
        })
        .collect();
    let next = page.last().map(|e| e["seq"].clone());
    json!({"effects": page, "next": next}).to_string()
}

/// A book over HTTP as the sandbox shows it; gives its address.
async fn served(effects: Vec<Effect>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("a bound port");
    let app = Router::new().route("/_book", get(book_page)).with_state(effects);
    tokio::spawn(async move { axum::serve(listener, app).await });
    format!("http://{address}")
}

/// An address at which nobody listens.
async fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    listener.local_addr().expect("a bound port").to_string()
}

#[tokio::test]
async fn verify_ends_with_what_it_found() {
    let fixture = Fixture::new().await;
    let copy = fixture.copy().await;
    let (url, book) = (copy.url(), served(fixture.effects.clone()).await);
    let fine = tallystick(&["verify", "--json", "--database-url", &url, "--sandbox-url", &book]).await;
    assert_eq!(code(&fine), Some(0), "{fine:?}");
    let report = parsed(&fine);
    assert_eq!(report["ok"], true);
    let ids: Vec<&str> =
        report["checks"].as_array().unwrap().iter().map(|c| c["id"].as_str().unwrap()).collect();
    assert_eq!(ids, RULES.iter().map(|rule| rule.id).collect::<Vec<_>>());
    let late = report["checks"].as_array().unwrap().iter().find(|c| c["id"] == "I11").unwrap();
    assert_eq!(late["status"], "explained");
    let both = |names: [&str; 2]| sorted(&names.map(|name| fixture.id(name)));
    assert_eq!(late["violations"], json!(both(["late", "late payout"])));
    assert_eq!(late["breaks"], json!(both(["late break", "late payout break"])));
    let table = tallystick(&["verify", "--database-url", &url, "--sandbox-url", &book]).await;
    assert_eq!(code(&table), Some(0), "{table:?}");
    let text = String::from_utf8(table.stdout).unwrap();
    assert!(
        text.contains("explained by break") && text.ends_with("1 explained, 0 skipped, 0 violated\n"),
        "{text}"
    );
    let without = tallystick(&["verify", "--json", "--database-url", &url]).await;
    assert_eq!((code(&without), parsed(&without)["ok"].clone()), (Some(0), json!(true)), "{without:?}");
    let away = format!("http://{}", nobody().await);
    let blind = tallystick(&["verify", "--database-url", &url, "--sandbox-url", &away]).await;
    assert_eq!(code(&blind), Some(3), "{blind:?}");
    plant(&copy, &fixture.sql("DELETE FROM payments.dispatch WHERE operation_id = '{open}'")).await;
    for arguments in [&["verify", "--json", "--database-url", &url][..], &["verify", "--database-url", &url]]
    {
        let broken = tallystick(arguments).await;
        assert_eq!(code(&broken), Some(1), "{broken:?}");
        assert!(
            String::from_utf8_lossy(&broken.stdout).contains(&fixture.id("open").to_string()),
            "{broken:?}"
        );
    }
}

#[tokio::test]
async fn wait_ends_when_nothing_is_open_or_says_what_is() {
    let fixture = Fixture::new().await;
    let copy = fixture.copy().await;
    let url = copy.url();
    let open: Vec<String> = fixture.open().iter().map(ToString::to_string).collect();
    let over = tallystick(&["wait", "--idle", "--timeout", "300ms", "--json", "--database-url", &url]).await;
    assert_eq!(code(&over), Some(4), "{over:?}");
    assert_eq!(parsed(&over)["open"]["operation_ids"], json!(open));
    assert!(open.iter().all(|id| stderr(&over).contains(id)), "{over:?}");
    let waiting = tokio::spawn({
        let url = url.clone();
        async move { tallystick(&["wait", "--idle", "--timeout", "60s", "--database-url", &url]).await }
    });
    // It looks more than once before the last work is done.
    let end = Instant::now() + Duration::from_secs(20);
    let looking = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'tallystick command%' AND datname = current_database()";
    while sqlx::query_scalar::<_, i64>(looking).fetch_one(&mut copy.admin().await).await.unwrap() == 0 {
        assert!(Instant::now() < end, "it does not look");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    plant(
        &copy,
        &fixture.sql(
            "DELETE FROM payments.dispatch;
             UPDATE payments.payment SET status = 'failed', failure_code = 'x', processed_at = now() WHERE payment_id = '{open}';
             UPDATE payments.payout SET status = 'failed', failure_code = 'x', processed_at = now(), unknown_since = NULL,
                                        active_reference = NULL
              WHERE status IN ('pending', 'processing', 'unknown') AND attention_code IS NULL",
        ),
    )
    .await;
    let done = waiting.await.unwrap();
    assert_eq!(code(&done), Some(0), "{done:?}");
}

#[tokio::test]
async fn a_database_that_is_away_is_waited_for_and_then_told() {
    let url = format!("postgres://nobody@{}/nothing", nobody().await);
    let started = Instant::now();
    let away = tallystick(&["wait", "--idle", "--timeout", "500ms", "--database-url", &url]).await;
    assert_eq!(code(&away), Some(3), "{away:?}");
    assert!(started.elapsed() >= Duration::from_millis(400), "it waited");
    let away = tallystick(&["verify", "--database-url", &url]).await;
    assert_eq!(code(&away), Some(3), "{away:?}");
}

#[tokio::test]
async fn wrong_use_ends_with_2_and_says_what_to_do() {
    for (arguments, word) in [
        (&["verify"][..], "--data-dir"),
        (&["verify", "--database-url", "postgres://x/y", "--sandbox-url", "nowhere"], "--sandbox-url"),
        (&["wait", "--timeout", "1s", "--database-url", "postgres://x/y"], "--idle"),
        (&["wait", "--idle", "--timeout", "soon"], "--timeout"),
    ] {
        let refused = tallystick(arguments).await;
        assert_eq!(code(&refused), Some(2), "{arguments:?}: {refused:?}");
        assert!(stderr(&refused).contains(word), "{arguments:?}: {refused:?}");
    }
}
