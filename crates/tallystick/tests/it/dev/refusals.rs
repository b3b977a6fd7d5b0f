//! What `dev` does not do, and how it says so.

use super::{Dev, folder, said, tallystick};

fn dev(data: &std::path::Path, args: &[&str], env: &[(&str, &str)]) -> std::process::Output {
    super::build_sandbox();
    let mut command = tallystick(&["dev", "--listen", "127.0.0.1:0", "--sandbox-listen", "127.0.0.1:0"]);
    command
        .arg("--data-dir")
        .arg(data)
        .args(args)
        .envs(env.iter().copied())
        .output()
        .expect("the program runs")
}

#[tokio::test]
async fn a_second_dev_on_a_live_folder_exits_3_and_disturbs_nothing() {
    let first = Dev::start(&[]);
    let before = first.info();
    for args in [&[][..], &["--fresh"], &["--once"]] {
        let second = dev(&first.data, args, &[]);
        assert_eq!(second.status.code(), Some(3), "{}", said(&second));
        assert!(said(&second).contains(&first.pid("dev").to_string()), "names the other: {}", said(&second));
    }
    assert_eq!(first.info(), before);
    first.api().get("/health/ready").send().await.is(200);
}

#[test]
fn a_folder_of_somebody_else_is_refused_with_and_without_fresh() {
    let folder = folder();
    std::fs::write(folder.path().join("thesis.txt"), "years of work").expect("it can be written");
    for args in [&[][..], &["--fresh"]] {
        let refused = dev(folder.path(), args, &[]);
        assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
        assert!(said(&refused).contains("--data-dir"), "says what to do: {}", said(&refused));
    }
    let left: Vec<_> = std::fs::read_dir(folder.path()).expect("it is there").collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn without_postgresql_it_says_what_to_install() {
    let folder = folder();
    let nothing = folder.path().join("nothing");
    std::fs::create_dir(&nothing).expect("it can be made");
    let data = folder.path().join("data");
    let refused = dev(&data, &["--postgres-bin", nothing.to_str().expect("a plain path")], &[]);
    assert_eq!(refused.status.code(), Some(3), "{}", said(&refused));
    assert!(said(&refused).contains("apt-get install postgresql"), "{}", said(&refused));
}

#[test]
fn wrong_settings_are_refused_before_anything_starts() {
    let folder = folder();
    let data = folder.path().join("data");
    for (env, word) in [
        (("TALLYSTICK_GATEWAY_TIMOUT", "1s"), "TALLYSTICK_GATEWAY_TIMEOUT"),
        (("TALLYSTICK_LEASE", "3s"), "lease"),
        (("TALLYSTICK_LEASE", "soon"), "TALLYSTICK_LEASE"),
        (("TALLYSTICK_LISTEN", "here"), "--listen"),
    ] {
        let mut command = tallystick(&["dev", "--sandbox-listen", "127.0.0.1:0"]);
        let refused =
            command.arg("--data-dir").arg(&data).env(env.0, env.1).output().expect("the program runs");
        assert_eq!(refused.status.code(), Some(2), "{env:?}: {}", said(&refused));
        assert!(said(&refused).contains(word), "{env:?}: {}", said(&refused));
        assert!(!data.exists(), "nothing was made");
    }
}

#[test]
fn an_address_in_use_is_told_and_everything_is_stopped_again() {
    let folder = folder();
    let data = folder.path().join("data");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = taken.local_addr().expect("it has an address").to_string();
    for option in ["--listen", "--sandbox-listen"] {
        super::build_sandbox();
        let mut command = tallystick(&["dev"]);
        let other = if option == "--listen" { "--sandbox-listen" } else { "--listen" };
        command.args([option, &address, other, "127.0.0.1:0", "--data-dir"]).arg(&data);
        let refused = command.output().expect("the program runs");
        assert_eq!(refused.status.code(), Some(3), "{option}: {}", said(&refused));
        assert!(!data.join("dev.json").exists());
    }
}
