//! Warnings of a run: said once each, counted always.

use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Something the user ought to look at before trusting the results.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Warning {
    /// Stable, machine-readable kind: "unsupported_call", "partial_call", ...
    pub code: String,
    /// Node it happened on; null: the whole run.
    pub node: Option<String>,
    /// The sentence for people.
    pub text: String,
    /// How often it happened, at least 1.
    pub count: u64,
}

/// Collects warnings; equal ones (code, node and text) are one entry with a count.
#[derive(Debug, Default)]
pub struct Warnings {
    list: Vec<Warning>,
    index: HashMap<(String, Option<String>, String), usize>,
}

impl Warnings {
    /// Nothing to warn of yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Records one occurrence; true when it is the first of its kind, so that it is worth telling the user now.
    pub fn add(&mut self, code: &str, node: Option<&str>, text: &str) -> bool {
        let key = (code.to_owned(), node.map(str::to_owned), text.to_owned());
        if let Some(&at) = self.index.get(&key) {
            self.list[at].count += 1;
            return false;
        }
        self.index.insert(key, self.list.len());
        self.list.push(Warning {
            code: code.to_owned(),
            node: node.map(str::to_owned),
            text: text.to_owned(),
            count: 1,
        });
        true
    }

    /// All warnings in order of first occurrence.
    pub fn list(&self) -> &[Warning] {
        &self.list
    }

    /// As [`Self::list`], by value, for the summary.
    pub fn into_list(self) -> Vec<Warning> {
        self.list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_warnings_are_counted_not_repeated() {
        let mut warnings = Warnings::new();
        assert!(warnings.add("unsupported_call", Some("h1"), "io_uring_setup is refused"));
        assert!(!warnings.add("unsupported_call", Some("h1"), "io_uring_setup is refused"));
        assert!(warnings.add("unsupported_call", Some("h2"), "io_uring_setup is refused"));
        assert!(warnings.add("unsupported_call", None, "io_uring_setup is refused"));
        assert!(warnings.add("partial_call", Some("h1"), "io_uring_setup is refused"));
        let counts: Vec<u64> = warnings.list().iter().map(|w| w.count).collect();
        assert_eq!(counts, [2, 1, 1, 1]);
    }
}
