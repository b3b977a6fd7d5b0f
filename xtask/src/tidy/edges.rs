//! Which crate may know which. An edge that is not listed is a decision to be made here, not in passing.

use super::Findings;
use super::tree::{File, Tree};

/// Crates of the workspace and what each may depend on, tests included.
const ALLOWED: &[(&str, &[&str])] = &[
    ("tallystick-money", &[]),
    ("tallystick-runner", &[]),
    ("tallystick-gateway", &["tallystick-money"]),
    ("tallystick-ledger", &["tallystick-money", "tallystick-runner"]),
    ("tallystick-outbox", &["tallystick-runner"]),
    (
        "tallystick-payments",
        &[
            "tallystick-money",
            "tallystick-runner",
            "tallystick-ledger",
            "tallystick-outbox",
            "tallystick-gateway",
        ],
    ),
    (
        "tallystick",
        &[
            "tallystick-money",
            "tallystick-runner",
            "tallystick-ledger",
            "tallystick-outbox",
            "tallystick-gateway",
            "tallystick-payments",
        ],
    ),
    // The independent witness, and the tools: they share no code with what they judge.
    ("tallystick-sandbox", &[]),
    ("xtask", &[]),
];

/// Crates that speak SQL; tests of others may.
const WITH_SQL: [&str; 4] =
    ["tallystick-runner", "tallystick-outbox", "tallystick-ledger", "tallystick-payments"];

/// Tables of a manifest that name dependencies.
const TABLES: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];

/// Reads every manifest.
pub fn check(tree: &Tree, findings: &mut Findings<'_>) {
    for file in tree.files().filter(|file| file.name() == "Cargo.toml") {
        match file.text.parse::<toml::Table>() {
            Ok(manifest) => check_manifest(file, &manifest, findings),
            Err(error) => findings.add(&file.path, 1, format!("no manifest: {}", error.message())),
        }
    }
}

fn check_manifest(file: &File, manifest: &toml::Table, findings: &mut Findings<'_>) {
    let Some(name) = manifest.get("package").and_then(|p| p.get("name")).and_then(|n| n.as_str()) else {
        return;
    };
    let Some((_, allowed)) = ALLOWED.iter().find(|(known, _)| *known == name) else {
        let message = format!("{name} is new: say in xtask/src/tidy/edges.rs what it may depend on");
        return findings.add(&file.path, 1, message);
    };
    for (table, dependency) in dependencies(manifest) {
        let is_ours = ALLOWED.iter().any(|(known, _)| *known == dependency);
        if is_ours && !allowed.contains(&dependency.as_str()) {
            findings.add(
                &file.path,
                line(file, &dependency),
                format!("{name} may not depend on {dependency}"),
            );
        }
        if dependency == "sqlx" && table != "dev-dependencies" && !WITH_SQL.contains(&name) {
            findings.add(&file.path, line(file, "sqlx"), format!("{name} holds no SQL, so it needs no sqlx"));
        }
    }
}

/// Every dependency with its table's name, also those of single platforms; a renamed one by its real name.
fn dependencies(manifest: &toml::Table) -> Vec<(&'static str, String)> {
    let platforms = manifest.get("target").and_then(|t| t.as_table()).into_iter().flat_map(|t| t.values());
    let places = std::iter::once(manifest).chain(platforms.filter_map(|p| p.as_table()));
    let mut found = Vec::new();
    for (place, table) in places.flat_map(|place| TABLES.map(|table| (place, table))) {
        for (key, value) in place.get(table).and_then(|t| t.as_table()).into_iter().flatten() {
            let real = value.get("package").and_then(|p| p.as_str()).unwrap_or(key);
            found.push((table, real.to_owned()));
        }
    }
    found
}

fn line(file: &File, dependency: &str) -> usize {
    let named = |line: &str| line.starts_with(dependency) || line.contains(&format!("\"{dependency}\""));
    file.text.lines().position(named).map_or(1, |index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::super::testing::found;

    fn manifest(name: &str, rest: &str) -> String {
        format!("[package]\nname = \"{name}\"\n{rest}")
    }

    fn edges(name: &str, rest: &str) -> Vec<String> {
        found("dependency-edge", &[("crates/x/Cargo.toml", &manifest(name, rest))])
    }

    #[test]
    fn an_edge_that_is_not_allowed_is_found_with_its_line() {
        let rest = "[dependencies]\nserde = \"1\"\ntallystick-payments = { workspace = true }\n";
        assert_eq!(edges("tallystick-ledger", rest), ["crates/x/Cargo.toml:5"]);
        assert_eq!(
            edges("tallystick-ledger", "[dependencies]\ntallystick-money.workspace = true\n"),
            [""; 0]
        );
    }

    #[test]
    fn tests_platforms_and_other_names_are_no_way_around() {
        for rest in [
            "[dev-dependencies]\ntallystick-money = \"1\"\n",
            "[build-dependencies]\ntallystick-money = \"1\"\n",
            "[target.'cfg(unix)'.dependencies]\ntallystick-money = \"1\"\n",
            "[dependencies]\nmoney = { package = \"tallystick-money\", version = \"1\" }\n",
        ] {
            assert_eq!(edges("tallystick-sandbox", rest).len(), 1, "{rest}");
        }
    }

    #[test]
    fn a_crate_that_nobody_decided_on_is_found() {
        assert_eq!(edges("tallystick-fresh", ""), ["crates/x/Cargo.toml:1"]);
    }

    #[test]
    fn sqlx_is_for_the_crates_with_sql_and_for_tests() {
        assert_eq!(edges("tallystick", "[dependencies]\nsqlx = \"1\"\n"), ["crates/x/Cargo.toml:4"]);
        assert_eq!(edges("tallystick", "[dev-dependencies]\nsqlx = \"1\"\n"), [""; 0]);
        assert_eq!(edges("tallystick-ledger", "[dependencies]\nsqlx = \"1\"\n"), [""; 0]);
    }
}
