//! Rebuilds the crate when a migration or the sqlx settings change.
fn main() {
    println!("cargo:rerun-if-changed=migrations");
    println!("cargo:rerun-if-changed=sqlx.toml");
}
