//! Reads file and environment into a [`Config`].

use std::path::{Path, PathBuf};

use figment::providers::{Format, Toml};
use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider};
use tallystick_gateway::adapters::Account;

use super::error::UnknownName;
use super::settings::{self, Kind, Setting};
use super::{Config, ConfigError};

/// What every variable begins with.
pub const PREFIX: &str = "TALLYSTICK_";
const ENVIRONMENT: &str = "environment";
/// Names less alike than this are no hint.
const ALIKE: f64 = 0.75;

/// Reads settings: `file` (or the one that `TALLYSTICK_CONFIG` names), then `env`, which wins.
///
/// `env` is the whole environment; what does not begin with [`PREFIX`] is not looked at.
///
/// # Errors
/// [`ConfigError`] names the variable or key and says what is wrong, without the value of a secret.
pub fn load<I>(file: Option<&Path>, env: I) -> Result<Config, ConfigError>
where
    I: IntoIterator<Item = (String, String)>,
{
    let env: Vec<(String, String)> = env
        .into_iter()
        .filter_map(|(name, value)| Some((name.strip_prefix(PREFIX)?.to_owned(), value)))
        .collect();
    let from_env = || env.iter().find(|(name, value)| name == "CONFIG" && !value.is_empty());
    let file = file.map(Path::to_owned).or_else(|| from_env().map(|(_, path)| PathBuf::from(path)));
    let mut unknown = unknown_variables(&env);
    let mut figment = Figment::new();
    if let Some(path) = &file {
        let (table, strangers) = read_file(path)?;
        unknown.extend(strangers);
        figment = figment.merge(table);
    }
    if !unknown.is_empty() {
        return Err(ConfigError::Unknown(unknown));
    }
    let environment = Environment::new(&env)?;
    let mut config: Config = figment.merge(environment).extract().map_err(|e| explain(&e))?;
    config.gateways.accounts = accounts(&mut config)?;
    config.engine().check()?;
    if let Some(sink) =
        config.events.sinks.iter().find(|sink| !tallystick_outbox::sinks::ALL.contains(&sink.as_str()))
    {
        let known = tallystick_outbox::sinks::ALL.join(", ");
        return Err(ConfigError::Value(format!(
            "{PREFIX}SINKS: there is no sink {sink:?}; there are {known}"
        )));
    }
    if config.process.roles.is_empty() {
        return Err(ConfigError::Value(format!("{PREFIX}ROLES is empty: a process needs at least one role")));
    }
    Ok(config)
}

fn unknown_variables(env: &[(String, String)]) -> Vec<UnknownName> {
    let known = |name: &str| {
        settings::by_name(name).is_some()
            || settings::TOLERATED.contains(&name)
            || name.starts_with(settings::TOLERATED_PREFIX)
    };
    let strangers = env.iter().filter(|(name, _)| !known(name));
    strangers
        .map(|(name, _)| UnknownName {
            name: format!("{PREFIX}{name}"),
            place: ENVIRONMENT.into(),
            nearest: nearest(name, settings::ALL.iter().map(|s| s.name))
                .map(|name| format!("{PREFIX}{name}")),
        })
        .collect()
}

fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let scored = known.map(|candidate| (strsim::jaro_winkler(name, candidate), candidate));
    let best = scored.max_by(|a, b| a.0.total_cmp(&b.0));
    best.filter(|(score, _)| *score >= ALIKE).map(|(_, candidate)| candidate)
}

fn read_file(path: &Path) -> Result<(FromFile, Vec<UnknownName>), ConfigError> {
    let text = read(path)?;
    let place = path.display().to_string();
    // The parser's own message would quote the line, and with it perhaps a secret.
    let table: Dict =
        Toml::from_str(&text).map_err(|_| ConfigError::Value(format!("{place} is not valid TOML")))?;
    let mut paths = Vec::new();
    leaves(&table, "", &mut paths);
    let strangers = paths.into_iter().filter(|path| settings::by_path(path).is_none());
    let strangers = strangers
        .map(|name| UnknownName {
            nearest: nearest(&name, settings::ALL.iter().map(|s| s.path)).map(str::to_owned),
            name,
            place: place.clone(),
        })
        .collect();
    Ok((FromFile { place, table }, strangers))
}

fn read(path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|source| ConfigError::File { path: path.to_owned(), source })
}

/// The keys of a file that hold a value or are a setting by themselves.
fn leaves(table: &Dict, above: &str, out: &mut Vec<String>) {
    for (key, value) in table {
        let path = if above.is_empty() { key.clone() } else { format!("{above}.{key}") };
        match value {
            Value::Dict(_, inner) if settings::by_path(&path).is_none() => leaves(inner, &path, out),
            _ => out.push(path),
        }
    }
}

struct FromFile {
    place: String,
    table: Dict,
}

impl Provider for FromFile {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.place.clone())
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Profile::Default.collect(self.table.clone()))
    }
}

/// The variables, as a tree of the file's form.
struct Environment(Dict);

impl Environment {
    fn new(env: &[(String, String)]) -> Result<Self, ConfigError> {
        let mut tree = Dict::new();
        for (name, text) in env {
            let Some(setting) = settings::by_name(name) else { continue };
            // An empty variable is what compose files make of an absent one; only a list can be empty.
            if text.is_empty() && setting.kind != Kind::List {
                continue;
            }
            let Some((section, key)) = setting.path.split_once('.') else { continue };
            let section = tree.entry(section.to_owned()).or_insert_with(|| Value::from(Dict::new()));
            if let Value::Dict(_, dict) = section {
                dict.insert(key.to_owned(), value(setting, text)?);
            }
        }
        Ok(Self(tree))
    }
}

impl Provider for Environment {
    fn metadata(&self) -> Metadata {
        Metadata::named(ENVIRONMENT)
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Profile::Default.collect(self.0.clone()))
    }
}

fn value(setting: &Setting, text: &str) -> Result<Value, ConfigError> {
    let refuse = |what: &str| ConfigError::Value(format!("{PREFIX}{}: {what}", setting.name));
    match setting.kind {
        Kind::Text | Kind::Secret | Kind::Duration | Kind::List => Ok(Value::from(text)),
        Kind::Number => text
            .trim()
            .parse::<u64>()
            .map(Value::from)
            .map_err(|_| refuse(&format!("{text:?} is no whole number from 0 up"))),
        Kind::Json => {
            let json: serde_json::Value = serde_json::from_str(text)
                .map_err(|e| refuse(&format!("not valid JSON at line {} column {}", e.line(), e.column())))?;
            Ok(plain(json))
        }
    }
}

/// Numbers as plain numbers: with arbitrary precision on, their serialized form is private to `serde_json`.
fn plain(json: serde_json::Value) -> Value {
    use serde_json::Value as J;
    match json {
        J::Null => Value::from(figment::value::Empty::None),
        J::Bool(b) => Value::from(b),
        J::Number(n) => n
            .as_i64()
            .map(Value::from)
            .or_else(|| n.as_u64().map(Value::from))
            .unwrap_or_else(|| Value::from(n.to_string())),
        J::String(s) => Value::from(s),
        J::Array(items) => Value::from(items.into_iter().map(plain).collect::<Vec<_>>()),
        J::Object(map) => Value::from(map.into_iter().map(|(k, v)| (k, plain(v))).collect::<Dict>()),
    }
}

/// The accounts from the setting or from their file, checked one by one.
fn accounts(config: &mut Config) -> Result<Vec<Account>, ConfigError> {
    let mut raw = std::mem::take(&mut config.gateways.raw).0;
    if let Some(path) = &config.gateways.file {
        if !raw.is_empty() {
            return Err(ConfigError::Value(format!(
                "{PREFIX}GATEWAYS and {PREFIX}GATEWAYS_FILE are both set: keep one"
            )));
        }
        raw = serde_json::from_str(&read(path)?).map_err(|e| {
            let (line, column) = (e.line(), e.column());
            ConfigError::Value(format!(
                "{}: no JSON array of objects (line {line}, column {column})",
                path.display()
            ))
        })?;
    }
    let tolerance = config.webhooks.tolerance.as_secs();
    let mut accounts: Vec<Account> = Vec::with_capacity(raw.len());
    for (index, mut members) in raw.into_iter().enumerate() {
        members.entry("webhook_tolerance_seconds").or_insert_with(|| tolerance.into());
        let account: Account = serde_json::from_value(serde_json::Value::Object(members)).map_err(|e| {
            ConfigError::Value(format!("gateway account {}: {}", index + 1, without_values(&e.to_string())))
        })?;
        if accounts.iter().any(|other| other.name == account.name) {
            return Err(ConfigError::Value(format!("two gateway accounts are called {:?}", account.name)));
        }
        accounts.push(account);
    }
    Ok(accounts)
}

/// A complaint about a wrong type quotes the value, which may be a secret; the others quote names only.
fn without_values(message: &str) -> &str {
    if message.starts_with("missing field")
        || message.starts_with("unknown field")
        || message.starts_with("duplicate")
    {
        message
    } else {
        "a member has the wrong type (names and secrets are strings, seconds are whole numbers)"
    }
}

fn explain(error: &figment::Error) -> ConfigError {
    let lines: Vec<String> = error.clone().into_iter().map(|e| one(&e)).collect();
    ConfigError::Value(lines.join("\n"))
}

fn one(error: &figment::Error) -> String {
    // Elements of a list have their index behind the setting's own path.
    let path = error.path.iter().take(2).map(String::as_str).collect::<Vec<_>>().join(".");
    let setting = settings::by_path(&path);
    let place = error.metadata.as_ref().map_or(ENVIRONMENT, |m| &m.name);
    let name = match setting {
        Some(setting) if place == ENVIRONMENT => format!("{PREFIX}{}", setting.name),
        _ => format!("{path} in {place}"),
    };
    if setting.is_some_and(|s| matches!(s.kind, Kind::Secret | Kind::Json)) {
        return format!("{name}: the value has the wrong form");
    }
    format!("{name}: {}", error.kind)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use secrecy::ExposeSecret;

    use super::*;
    use crate::config::{LogFormat, Role};

    fn env(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn with(pairs: &[(&str, &str)]) -> Config {
        load(None, env(pairs)).unwrap()
    }

    #[track_caller]
    fn refused(pairs: &[(&str, &str)]) -> String {
        load(None, env(pairs)).expect_err("refused").to_string()
    }

    fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tallystick.toml");
        std::fs::write(&path, text).unwrap();
        (dir, path)
    }

    const ACCOUNTS: &str = r#"[{"name": "sandbox", "adapter": "sandbox", "base_url": "http://127.0.0.1:1",
        "secret": "s3cret", "webhook_secrets": ["whsec_c2VjcmV0"], "re_executes": true},
        {"name": "acme", "adapter": "sandbox", "base_url": "http://127.0.0.1:2", "secret": "other",
        "webhook_tolerance_seconds": 7, "key_retention_seconds": 3600}]"#;

    #[test]
    fn nothing_given_is_the_defaults() {
        let config =
            with(&[("PATH", "/bin"), ("TALLYSTICK_TEST_DATABASE_URL", "x"), ("TALLYSTICK_FAILPOINT", "y")]);
        assert_eq!(config.http.listen.to_string(), "127.0.0.1:8080");
        assert_eq!(config.process.roles, Role::ALL);
        assert!(config.database.url.is_none() && config.gateways.accounts.is_empty());
    }

    #[test]
    fn every_setting_is_read_from_its_variable_and_from_the_file() {
        for setting in settings::ALL {
            let text = match (setting.kind, setting.name) {
                (Kind::Number, _) => "7",
                (Kind::Duration, "LEASE" | "SWEEP_MAX_BACKOFF") => "2h",
                (Kind::Duration, "GATEWAY_TIMEOUT" | "SWEEP_AFTER") => "9s",
                (Kind::Duration, _) => "1m 1s",
                (Kind::List, "ROLES") => "api,sweep",
                (Kind::List, "SINKS") => "stdout",
                (Kind::List, _) => "10.0.0.0/8, ::1/128",
                (Kind::Json, _) => ACCOUNTS,
                (_, "LISTEN") => "[::1]:9",
                (_, "LOG_FORMAT") => "pretty",
                (_, "GATEWAYS_FILE") => continue,
                (Kind::Text | Kind::Secret, _) => "word",
            };
            let mut given = vec![(format!("{PREFIX}{}", setting.name), text.to_owned())];
            if setting.name == "GATEWAY_TIMEOUT" {
                given.push(("TALLYSTICK_LEASE".into(), "2h".into()));
            }
            let from_env = load(None, given).unwrap_or_else(|e| panic!("{}: {e}", setting.name));
            assert_ne!(
                format!("{from_env:?}"),
                format!("{:?}", Config::default()),
                "{} does nothing",
                setting.name
            );
        }
    }

    #[test]
    fn the_environment_wins_over_the_file_and_both_over_the_defaults() {
        let (_dir, path) = file(
            "[gateways]\ntimeout = \"3s\"\nmax_in_flight = 5\n[log]\nformat = \"pretty\"\n\
             [process]\nroles = [\"api\", \"relay\"]\n[webhooks]\nallow_cidrs = \"10.0.0.0/8\"\n",
        );
        let named =
            env(&[("TALLYSTICK_CONFIG", path.to_str().unwrap()), ("TALLYSTICK_GATEWAY_TIMEOUT", "4s")]);
        for (argument, env) in
            [(Some(path.as_path()), env(&[("TALLYSTICK_GATEWAY_TIMEOUT", "4s")])), (None, named)]
        {
            let config = load(argument, env).unwrap();
            assert_eq!(config.gateways.timeout, Duration::from_secs(4));
            assert_eq!(config.gateways.max_in_flight, 5);
            assert_eq!(config.log.format, LogFormat::Pretty);
            assert_eq!(config.process.roles, [Role::Api, Role::Relay]);
            assert_eq!(config.webhooks.allow_cidrs.len(), 1);
            assert_eq!(config.dispatch.lease, Config::default().dispatch.lease);
        }
    }

    #[test]
    fn unknown_names_are_refused_all_at_once_with_the_nearest() {
        let (_dir, path) =
            file("[gateway]\ntimeout = \"3s\"\n[http]\nlisten = \"127.0.0.1:1\"\nlissten = \"x\"\n");
        let given = env(&[("TALLYSTICK_LEESE", "3s"), ("TALLYSTICK_XYZZY", "1")]);
        let text = load(Some(&path), given).expect_err("refused").to_string();
        for word in [
            "TALLYSTICK_LEESE (environment): did you mean TALLYSTICK_LEASE?",
            "no setting TALLYSTICK_XYZZY (environment)\n",
            "gateway.timeout",
            "did you mean gateways.timeout?",
            "http.lissten",
            "did you mean http.listen?",
        ] {
            assert!(text.contains(word), "{word:?} is not in: {text}");
        }
    }

    #[test]
    fn wrong_values_name_their_variable_and_the_right_form() {
        for (name, value, words) in [
            ("TALLYSTICK_LEASE", "soon", ["TALLYSTICK_LEASE", "30m"]),
            ("TALLYSTICK_MAX_IN_FLIGHT", "many", ["TALLYSTICK_MAX_IN_FLIGHT", "whole number"]),
            ("TALLYSTICK_MAX_IN_FLIGHT", "-1", ["TALLYSTICK_MAX_IN_FLIGHT", "whole number"]),
            ("TALLYSTICK_LISTEN", "here", ["TALLYSTICK_LISTEN", "address"]),
            ("TALLYSTICK_ROLES", "api,fly", ["TALLYSTICK_ROLES", "dispatch"]),
            ("TALLYSTICK_LOG_FORMAT", "xml", ["TALLYSTICK_LOG_FORMAT", "pretty"]),
            (
                "TALLYSTICK_WEBHOOK_ALLOW_CIDRS",
                "10.0.0.0/99",
                ["TALLYSTICK_WEBHOOK_ALLOW_CIDRS", "10.0.0.0/99"],
            ),
            ("TALLYSTICK_SINKS", "kafka", ["TALLYSTICK_SINKS", "stdout"]),
            ("TALLYSTICK_ROLES", "", ["TALLYSTICK_ROLES", "empty"]),
            ("TALLYSTICK_GATEWAYS", "[{]", ["TALLYSTICK_GATEWAYS", "JSON"]),
        ] {
            let text = refused(&[(name, value)]);
            assert!(words.iter().all(|word| text.contains(word)), "{name}={value}: {text}");
        }
    }

    #[test]
    fn settings_that_do_not_fit_together_are_refused() {
        let text = refused(&[("TALLYSTICK_GATEWAY_TIMEOUT", "10s"), ("TALLYSTICK_LEASE", "15s")]);
        assert!(text.contains("lease") && text.contains("15s") && text.contains("10s"), "{text}");
    }

    #[test]
    fn accounts_come_from_the_environment_the_file_or_a_file_of_their_own() {
        let from_env = with(&[
            ("TALLYSTICK_GATEWAYS", ACCOUNTS),
            ("TALLYSTICK_WEBHOOK_TOLERANCE", "1m"),
            ("TALLYSTICK_DATABASE_URL", "postgres://u:pass-phrase@h/d"),
        ]);
        let [sandbox, acme] = from_env.gateways.accounts.as_slice() else { panic!("two accounts") };
        assert!(sandbox.re_executes && sandbox.secret.expose_secret() == "s3cret");
        assert_eq!((sandbox.webhook_tolerance_seconds, acme.webhook_tolerance_seconds), (60, 7));
        assert_eq!((sandbox.key_retention_seconds, acme.key_retention_seconds), (86_400, 3600));
        let shown = format!("{from_env:?}");
        for secret in ["s3cret", "whsec_c2VjcmV0", "pass-phrase"] {
            assert!(!shown.contains(secret), "{secret} is shown: {shown}");
        }

        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gateways.json");
        std::fs::write(&path, ACCOUNTS).unwrap();
        let from_file = with(&[("TALLYSTICK_GATEWAYS_FILE", path.to_str().unwrap())]);
        assert_eq!(from_file.gateways.accounts.len(), 2);
        let both = refused(&[
            ("TALLYSTICK_GATEWAYS_FILE", path.to_str().unwrap()),
            ("TALLYSTICK_GATEWAYS", ACCOUNTS),
        ]);
        assert!(both.contains("keep one"), "{both}");

        let (_dir, toml) = file(
            "[[gateways.accounts]]\nname = \"sandbox\"\nadapter = \"sandbox\"\nbase_url = \"http://h\"\nsecret = \"x\"\n",
        );
        assert_eq!(load(Some(&toml), Vec::new()).unwrap().gateways.accounts[0].name, "sandbox");
    }

    #[test]
    fn no_message_holds_a_secret() {
        let secret = "hunter2-hunter2";
        let (_dir, toml) = file(&format!("[database]\nurl = \"{secret}\nlisten"));
        let not_toml = load(Some(&toml), Vec::new()).expect_err("refused").to_string();
        let accounts = [
            format!(r#"[{{"name": "a", "adapter": "sandbox", "base_url": "h", "secret": ["{secret}"]}}]"#),
            format!(r#"[{{"name": "a", "adapter": "sandbox", "base_url": "h", "re_executes": "{secret}"}}]"#),
            format!(r#"["{secret}"]"#),
            format!(r#""{secret}""#),
        ];
        let messages = accounts.iter().map(|text| refused(&[("TALLYSTICK_GATEWAYS", text)]));
        for message in messages.chain([not_toml]) {
            assert!(!message.contains(secret), "{message}");
        }
        let text =
            refused(&[("TALLYSTICK_GATEWAYS", r#"[{"name": "a", "adapter": "sandbox", "base_url": "h"}]"#)]);
        assert!(text.contains("account 1") && text.contains("missing field `secret`"), "{text}");
    }
}
