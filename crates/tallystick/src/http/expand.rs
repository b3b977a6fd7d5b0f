//! `?expand=`: what an object is shown with.

use super::extract::Params;

/// Takes `expand`: names separated by commas, each one of `known`.
pub(super) fn take(params: &mut Params, known: &'static [&'static str]) -> Vec<&'static str> {
    let message = format!("must be names out of: {}", known.join(", "));
    params.read("expand", "choice", &message, |text| names(text, known)).unwrap_or_default()
}

fn names(text: &str, known: &'static [&'static str]) -> Option<Vec<&'static str>> {
    text.split(',').map(|name| known.iter().find(|known| **known == name).copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn only_known_names_expand() {
        const KNOWN: &[&str] = &["history", "events"];
        assert_eq!(names("events,history", KNOWN), Some(vec!["events", "history"]));
        for bad in ["", "x", "history,", "history, events", "History"] {
            assert_eq!(names(bad, KNOWN), None, "{bad}");
        }
    }
}
