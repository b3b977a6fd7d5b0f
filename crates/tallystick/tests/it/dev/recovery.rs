//! kill -9 of each process, of all of them, and of the one that looks after the others.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::json;

use super::{Dev, alive, folder, signal};

/// The promise is two seconds; on a machine that is busy with other tests it is not measured that sharply.
const BACK: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_killed_process_is_started_again_and_nothing_is_lost() {
    let dev = Dev::start(&[]);
    let (api, url) = (dev.api(), dev.text("api_url"));
    for process in ["server", "sandbox", "postgres", "server"] {
        let reply = api.pay(&json!({"amount_minor": 100, "currency": "EUR"})).send().await;
        let id = reply.is(202).text("payment_id");
        let others: Vec<(&str, i32)> = ["dev", "server", "sandbox", "postgres"]
            .into_iter()
            .filter(|other| *other != process)
            .map(|other| (other, dev.pid(other)))
            .collect();
        let took = dev.kill_and_wait(process);
        assert!(took < BACK || process == "postgres", "{process} took {took:?}: {}", dev.log());
        for (other, pid) in others {
            assert_eq!(dev.pid(other), pid, "{other} went on while {process} was killed: {}", dev.log());
        }
        assert_eq!(dev.text("api_url"), url, "the same port");
        api.payment_in(&id, "succeeded").await;
        let effects = dev.effects(&id).await;
        assert_eq!(effects.len(), 1, "one effect although {process} was killed: {effects:?}");
    }
}

#[tokio::test]
async fn after_a_kill_of_everything_the_next_start_cleans_up() {
    let folder = folder();
    let data = folder.path().join("data");
    let mut dev = Dev::start_in(&data, &[], &[]);
    let reply = dev.api().pay(&json!({"amount_minor": 100, "currency": "EUR"})).send().await;
    let id = reply.is(202).text("payment_id");
    for process in ["dev", "server", "sandbox", "postgres"] {
        signal(dev.pid(process), Signal::SIGKILL);
    }
    dev.ended();
    std::fs::remove_file(data.join("dev.json")).expect("a killed dev leaves its file");
    let dev = Dev::start_in(&data, &[], &[]);
    dev.api().payment_in(&id, "succeeded").await;
    assert_eq!(dev.effects(&id).await.len(), 1);
}

#[tokio::test]
async fn processes_whose_dev_was_killed_are_ended_by_the_next_one() {
    let folder = folder();
    let data = folder.path().join("data");
    let mut dev = Dev::start_in(&data, &[], &[]);
    let left = ["server", "sandbox", "postgres"].map(|name| dev.pid(name));
    let api = dev.api();
    dev.signal(Signal::SIGKILL);
    dev.ended();
    assert!(left.iter().all(|pid| alive(*pid)), "they go on by themselves");
    let id =
        api.pay(&json!({"amount_minor": 100, "currency": "EUR"})).send().await.is(202).text("payment_id");
    std::fs::remove_file(data.join("dev.json")).expect("a killed dev leaves its file");
    let dev = Dev::start_in(&data, &[], &[]);
    assert!(left.iter().all(|pid| !alive(*pid)), "{left:?}: {}", dev.log());
    dev.api().payment_in(&id, "succeeded").await;
}

/// Root's PostgreSQL runs as somebody who may not enter root's folders.
#[tokio::test]
async fn a_folder_that_the_databases_user_cannot_reach_has_its_cluster_elsewhere() {
    use std::os::unix::fs::PermissionsExt;
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let folder = folder();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).expect("it is ours");
    let data = folder.path().join("data");
    let mut dev = Dev::start_in(&data, &[], &[]);
    let cluster = std::fs::read_link(data.join("postgres")).expect("a link to the cluster");
    let id =
        dev.api().pay(&json!({"amount_minor": 1, "currency": "EUR"})).send().await.is(202).text("payment_id");
    dev.api().payment_in(&id, "succeeded").await;
    dev.signal(Signal::SIGTERM);
    assert_eq!(dev.ended().code(), Some(0), "{}", dev.log());
    // Somebody removes the folder by hand: a new one in its place does not find the old cluster.
    std::fs::remove_dir_all(&data).expect("it is ours");
    let mut dev = Dev::start_in(&data, &[], &[]);
    dev.api().get(&format!("/api/v1/payments/{id}")).send().await.refused(404, "not_found");
    dev.signal(Signal::SIGTERM);
    dev.ended();
    std::fs::remove_dir_all(cluster.parent().expect("a folder of its own")).expect("it is ours");
}

#[tokio::test]
async fn a_lock_file_that_names_a_stranger_is_no_obstacle() {
    let folder = folder();
    let data = folder.path().join("data");
    let mut dev = Dev::start_in(&data, &[], &[]);
    for process in ["dev", "server", "sandbox", "postgres"] {
        signal(dev.pid(process), Signal::SIGKILL);
    }
    dev.ended();
    std::fs::remove_file(data.join("dev.json")).expect("a killed dev leaves its file");
    let lock = data.join("postgres/postmaster.pid");
    let text = std::fs::read_to_string(&lock).expect("a killed server leaves its lock file");
    let (_, rest) = text.split_once('\n').expect("several lines");
    std::fs::write(&lock, format!("{}\n{rest}", std::process::id())).expect("it can be written");
    let dev = Dev::start_in(&data, &[], &[]);
    dev.api().get("/health/ready").send().await.is(200);
}
