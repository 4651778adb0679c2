//! What the summaries say: starts, ends and exit codes of programs, and sums over the whole run.

use super::{Event, Kind, NONE, Process, Run, quote};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A program by node and place among those of the node, from 0.
pub type Key = (String, usize);

/// Programs by node and place.
pub fn by_place(run: &Run) -> BTreeMap<Key, &Process> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let numbered = run.summary.processes.iter().map(|process| {
        let count = counts.entry(&process.node).or_default();
        *count += 1;
        ((process.node.clone(), *count - 1), process)
    });
    numbered.collect()
}

/// "node: `command`".
pub fn name(process: &Process) -> String {
    format!("{}: `{}`", process.node, quote(&process.command.join(" ")))
}

/// Adds the first difference in the life of each program.
pub fn differences(a: &Run, b: &Run, events: &mut Vec<Event>) {
    let (of_a, of_b) = (by_place(a), by_place(b));
    for key in of_a.keys().chain(of_b.keys()).collect::<BTreeSet<_>>() {
        let event = match (of_a.get(key), of_b.get(key)) {
            (Some(a), Some(b)) => first_difference(a, b),
            (Some(only), None) => Some(event(only, "is in one run only", 0, name(only), NONE.into())),
            (None, Some(only)) => Some(event(only, "is in one run only", 0, NONE.into(), name(only))),
            (None, None) => None,
        };
        events.extend(event);
    }
}

fn event(process: &Process, what: &str, at_ns: u64, a: String, b: String) -> Event {
    Event {
        kind: Kind::Program,
        what: format!("{} {what}", name(process)),
        from_ns: at_ns,
        to_ns: at_ns,
        a,
        b,
    }
}

fn first_difference(a: &Process, b: &Process) -> Option<Event> {
    if a.command != b.command {
        let command = |process: &Process| quote(&process.command.join(" "));
        return Some(event(a, "has another command", 0, command(a), command(b)));
    }
    let time = |at_ns: Option<u64>| at_ns.map_or(NONE.to_owned(), super::time);
    let earlier = |a: Option<u64>, b: Option<u64>| a.into_iter().chain(b).min().unwrap_or_default();
    if a.start_ns != b.start_ns {
        let at_ns = earlier(a.start_ns, b.start_ns);
        return Some(event(a, "starts", at_ns, time(a.start_ns), time(b.start_ns)));
    }
    let end = |process: &Process| match (process.exit, process.signal, process.end_ns) {
        (Some(code), _, Some(at_ns)) => format!("exit {code} at {}", super::time(at_ns)),
        (None, Some(signal), Some(at_ns)) => format!("signal {signal} at {}", super::time(at_ns)),
        _ => "still running".to_owned(),
    };
    let same = (a.end_ns, a.exit, a.signal) == (b.end_ns, b.exit, b.signal);
    (!same).then(|| event(a, "ends", earlier(a.end_ns, b.end_ns), end(a), end(b)))
}

/// Adds what is known of the whole run only: sums, warnings, expectations, how it ended. And the digest, where nothing else says why
/// it differs.
pub fn totals(a: &Run, b: &Run, events: &mut Vec<Event>) {
    let end_ns = a.summary.virtual_time_ns.min(b.summary.virtual_time_ns);
    let mut add = |kind: Kind, what: String, a: String, b: String| {
        if a != b {
            let (from_ns, to_ns) = (0, end_ns);
            events.push(Event {
                kind,
                what,
                from_ns,
                to_ns,
                a,
                b,
            });
        }
    };
    let (one, other) = (&a.summary, &b.summary);
    let (links_a, links_b) = (links(&one.links), links(&other.links));
    for name in links_a.keys().chain(links_b.keys()).collect::<BTreeSet<_>>() {
        let value = |links: &BTreeMap<String, String>| links.get(name).map_or(NONE.to_owned(), Clone::clone);
        add(Kind::Total, name.clone(), value(&links_a), value(&links_b));
    }
    let sums = one.others.keys().chain(other.others.keys());
    // Seed and the scenario's name are inputs.
    for name in sums
        .filter(|name| matches!(name.as_str(), "syscalls" | "frames"))
        .collect::<BTreeSet<_>>()
    {
        let value = |of: &BTreeMap<String, Value>| of.get(name).map_or(NONE.to_owned(), Value::to_string);
        add(Kind::Total, name.clone(), value(&one.others), value(&other.others));
    }
    let (warnings_a, warnings_b) = (texts(&one.warnings), texts(&other.warnings));
    for warning in warnings_a.symmetric_difference(&warnings_b) {
        let value = |of: &BTreeSet<String>| {
            if of.contains(warning) {
                quote(warning)
            } else {
                NONE.to_owned()
            }
        };
        add(
            Kind::Warning,
            "a warning".into(),
            value(&warnings_a),
            value(&warnings_b),
        );
    }
    let failed = |failed: &[String]| failed.first().map_or(NONE.to_owned(), |first| quote(first));
    let (failed_a, failed_b) = (failed(&one.failed_expectations), failed(&other.failed_expectations));
    add(Kind::Total, "a failed expectation".into(), failed_a, failed_b);
    let end = |run: &Run| format!("{} at {}", run.summary.ended, super::time(run.summary.virtual_time_ns));
    add(Kind::Total, "the end of the run".into(), end(a), end(b));
    let digest = |run: &Run| run.summary.digest.clone().unwrap_or_else(|| NONE.to_owned());
    let (digest_a, digest_b) = (digest(a), digest(b));
    if events.is_empty() && digest_a != digest_b {
        events.push(Event {
            kind: Kind::Total,
            what: "the digest (no record says more: files of a run were changed, or it left no trail.json)".into(),
            from_ns: 0,
            to_ns: end_ns,
            a: digest_a,
            b: digest_b,
        });
    }
}

/// Each direction of each link, with its counters.
fn links(links: &[Value]) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for link in links {
        let end = |key: &str| link[key].as_str().unwrap_or_default().to_owned();
        for (from, to, key) in [("a", "b", "a_to_b"), ("b", "a", "b_to_a")] {
            let counters = link[key].as_object().into_iter().flatten();
            let counters: Vec<String> = counters.map(|(name, value)| format!("{name} {value}")).collect();
            all.insert(format!("link {} -> {}", end(from), end(to)), counters.join(", "));
        }
    }
    all
}

fn texts(warnings: &[Value]) -> BTreeSet<String> {
    let text = |warning: &Value| {
        let list = |key: &str| {
            warning[key]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect::<Vec<_>>()
        };
        let subject = [list("nodes"), list("programs")].concat().join(" ");
        let text = warning["text"].as_str().unwrap_or_default();
        format!("{subject} {text} ({} times)", warning["count"])
            .trim()
            .to_owned()
    };
    warnings.iter().map(text).collect()
}
