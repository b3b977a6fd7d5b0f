//! A server that could not keep its promises does not start, and says what to do.

use std::process::Output;

use sqlx::{AssertSqlSafe, PgConnection};

use crate::dev::{said, tallystick};
use crate::support::db::TestDb;

fn serve(args: &[&str], env: &[(&str, &str)]) -> Output {
    let mut command = tallystick(&["serve"]);
    command.args(args).env("TALLYSTICK_LISTEN", "127.0.0.1:0").envs(env.iter().copied());
    command.output().expect("the program runs")
}

fn check(url: &str) -> Output {
    serve(&["--check"], &[("TALLYSTICK_DATABASE_URL", url)])
}

#[track_caller]
fn refused(output: &Output, code: i32, word: &str) {
    assert_eq!(output.status.code(), Some(code), "{}", said(output));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains(word), "{word:?} is not in: {stderr}");
}

async fn run(conn: &mut PgConnection, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(conn).await.expect("the statement is right");
}

#[test]
fn without_a_database_it_says_how_to_name_one() {
    refused(&serve(&["--check"], &[]), 2, "TALLYSTICK_DATABASE_URL");
    refused(&serve(&["--check"], &[("TALLYSTICK_DATABASE_URL", "mysql://root@localhost/x")]), 2, "address");
}

#[test]
fn a_database_that_is_away_is_exit_3() {
    // Nothing listens on a port that was free a moment ago.
    let free =
        std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port is free");
    refused(&check(&format!("postgres://nobody@{free}/nothing")), 3, "PostgreSQL");
}

#[tokio::test]
async fn a_database_that_does_not_exist_or_was_not_migrated_is_told_apart() {
    let db = TestDb::new().await;
    let mut admin = db.admin().await;
    let url = db.url();
    let nowhere = url.replace('?', "_is_not_there?");
    refused(&check(&nowhere), 3, "Create the database");
    for schema in ["payments", "ledger", "outbox"] {
        run(&mut admin, &format!("DROP SCHEMA {schema} CASCADE")).await;
    }
    refused(&check(&url), 2, "tallystick migrate");
    run(&mut admin, "DROP SCHEMA runner CASCADE").await;
    refused(&check(&url), 2, "tallystick migrate");
}

#[tokio::test]
async fn a_database_of_a_newer_program_is_refused() {
    let db = TestDb::new().await;
    let newer =
        "INSERT INTO payments._sqlx_migrations (version, description, success, checksum, execution_time)
                 VALUES (9999, 'from the future', true, '\\x00', 0)";
    run(&mut db.admin().await, newer).await;
    refused(&check(&db.url()), 2, "newer version");
}

#[tokio::test]
async fn a_copied_database_is_refused() {
    let db = TestDb::new().await;
    let checked = check(&db.url());
    assert_eq!(checked.status.code(), Some(0), "{}", said(&checked));
    run(&mut db.admin().await, "UPDATE runner.cluster SET system_identifier = system_identifier + 1").await;
    refused(&check(&db.url()), 2, "tallystick adopt");
}

#[tokio::test]
async fn settings_that_do_not_fit_are_refused_before_the_database_is_asked() {
    for (name, value, word) in [
        ("TALLYSTICK_GATEWAY_TIMEOUT", "20s", "lease"),
        ("TALLYSTICK_SWEEP_MAX_BACKOFF", "1s", "sweep_max_backoff"),
        ("TALLYSTICK_MAX_IN_FLIGHT", "0", "max_in_flight"),
        ("TALLYSTICK_DB_CONECTIONS", "5", "TALLYSTICK_DB_CONNECTIONS"),
        ("TALLYSTICK_ROLES", "api,dispach", "dispach"),
        ("TALLYSTICK_SINKS", "kafka", "stdout"),
        ("TALLYSTICK_LOG", "a=b=c", "TALLYSTICK_LOG"),
        ("TALLYSTICK_CONFIG", "/nowhere/tallystick.toml", "/nowhere/tallystick.toml"),
    ] {
        refused(&serve(&["--check"], &[(name, value)]), 2, word);
    }
    refused(&serve(&["--roles", "everything"], &[]), 2, "everything");
}

#[tokio::test]
async fn an_unknown_default_gateway_is_refused() {
    let db = TestDb::new().await;
    let url = db.url();
    let accounts =
        r#"[{"name": "acme", "adapter": "sandbox", "base_url": "http://127.0.0.1:1", "secret": "s"}]"#;
    let env = [("TALLYSTICK_DATABASE_URL", url.as_str()), ("TALLYSTICK_GATEWAYS", accounts)];
    refused(&serve(&["--check"], &env), 2, "default_gateway");
}

#[tokio::test]
async fn an_address_in_use_is_exit_3() {
    let db = TestDb::new().await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = taken.local_addr().expect("it has an address").to_string();
    let mut command = tallystick(&["serve"]);
    command.env("TALLYSTICK_DATABASE_URL", db.url()).env("TALLYSTICK_LISTEN", &address);
    refused(&command.output().expect("the program runs"), 3, &address);
}
