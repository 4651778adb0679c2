//! Warnings of a run: one for each cause, counted, with the nodes and programs it befell.

use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// So many programs are named for one cause; a run may have any number, and give them any names.
const PROGRAMS_MAX: usize = 16;
/// Stands for all others.
const AND_OTHERS: &str = "...";

/// Something the user ought to look at before trusting the results.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Warning {
    /// Stable, machine-readable kind: "unsupported_call", "partial_call", ...
    pub code: String,
    /// Nodes it happened on, in order of their first time; none: the whole run.
    pub nodes: Vec<String>,
    /// Programs that did it, in order of their first time; after the sixteenth comes "...". None: no program did.
    pub programs: Vec<String>,
    /// The sentence for people; it goes on after the names of the programs.
    pub text: String,
    /// How often it happened, at least 1.
    pub count: u64,
    /// Virtual time of its first time, nanoseconds; 0 also for what was known before the run. What the whole run is warned of
    /// at its end has that time.
    #[serde(default)]
    pub time_ns: u64,
}

/// Collects warnings; equal ones (code and text) are one entry with a count.
#[derive(Debug, Default)]
pub struct Warnings {
    list: Vec<Warning>,
    index: HashMap<(String, String), usize>,
}

impl Warnings {
    /// Nothing to warn of yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Records one occurrence; true when it is the first of its kind, so that it is worth telling the user now.
    pub fn add(&mut self, time_ns: u64, code: &str, node: Option<&str>, program: Option<&str>, text: &str) -> bool {
        self.add_times(time_ns, code, node, program, text, 1)
    }

    /// As [`Self::add`], for `times` occurrences.
    pub fn add_times(
        &mut self,
        time_ns: u64,
        code: &str,
        node: Option<&str>,
        program: Option<&str>,
        text: &str,
        times: u64,
    ) -> bool {
        let key = (code.to_owned(), text.to_owned());
        let next = self.list.len();
        let at = *self.index.entry(key).or_insert(next);
        if at == next {
            self.list.push(Warning {
                code: code.to_owned(),
                nodes: Vec::new(),
                programs: Vec::new(),
                text: text.to_owned(),
                count: 0,
                time_ns,
            });
        }
        let warning = &mut self.list[at];
        warning.count += times;
        // Within a window, nodes run one after the other.
        warning.time_ns = warning.time_ns.min(time_ns);
        if let Some(node) = node
            && warning.nodes.iter().all(|known| known != node)
        {
            warning.nodes.push(node.to_owned());
        }
        if let Some(program) = program
            && warning.programs.len() <= PROGRAMS_MAX
            && warning.programs.iter().all(|known| known != program)
        {
            let more = warning.programs.len() == PROGRAMS_MAX;
            let name = if more { AND_OTHERS } else { program };
            warning.programs.push(name.to_owned());
        }
        at == next
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

impl Warning {
    /// Whom it befell, as the beginning of a sentence: "h1, h2: `ping`, `ip` ". At most four nodes and programs are named.
    pub fn subject(&self) -> String {
        let nodes = some_of(&self.nodes, |name| name.to_owned());
        let programs = some_of(&self.programs, |name| format!("`{name}`"));
        match (nodes.is_empty(), programs.is_empty()) {
            (true, true) => String::new(),
            (false, true) => format!("{nodes}: "),
            (true, false) => format!("{programs} "),
            (false, false) => format!("{nodes}: {programs} "),
        }
    }
}

fn some_of(names: &[String], show: impl Fn(&str) -> String) -> String {
    const SHOWN: usize = 4;
    let mut shown: Vec<String> = names.iter().take(SHOWN).map(|name| show(name)).collect();
    let more = names.len().saturating_sub(SHOWN);
    match names.last() {
        Some(last) if more > 0 && last == AND_OTHERS => shown.push("others".into()),
        _ if more > 0 => shown.push(format!("{more} more")),
        _ => {}
    }
    shown.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_cause_is_one_warning() {
        let mut warnings = Warnings::new();
        let refused = "called io_uring_setup: refused";
        assert!(warnings.add(7, "unsupported_call", Some("h1"), Some("a"), refused));
        assert!(!warnings.add(7, "unsupported_call", Some("h1"), Some("b"), refused));
        assert!(!warnings.add(5, "unsupported_call", Some("h2"), Some("a"), refused));
        assert!(warnings.add(9, "partial_call", Some("h1"), Some("a"), refused));
        assert!(warnings.add(9, "cpuid_not_masked", None, None, "this processor"));
        let [first, second, third] = warnings.list() else {
            panic!("{warnings:?}")
        };
        assert_eq!((first.count, second.count, third.count), (3, 1, 1));
        assert_eq!((first.time_ns, second.time_ns), (5, 9));
        assert_eq!(first.nodes, ["h1", "h2"]);
        assert_eq!(first.programs, ["a", "b"]);
        assert_eq!(first.subject(), "h1, h2: `a`, `b` ");
        assert_eq!(third.subject(), "");
    }

    #[test]
    fn hundreds_of_names_are_not_all_kept() {
        let mut warnings = Warnings::new();
        for number in 0..1000 {
            warnings.add(9, "c", Some("h1"), Some(&format!("p{}", number % 500)), "did it");
        }
        let [warning] = warnings.list() else {
            panic!("{warnings:?}")
        };
        assert_eq!(warning.count, 1000);
        assert_eq!(warning.programs.len(), PROGRAMS_MAX + 1);
        assert_eq!(warning.programs.last().map(String::as_str), Some("..."));
        assert_eq!(warning.subject(), "h1: `p0`, `p1`, `p2`, `p3`, others ");
    }
}
