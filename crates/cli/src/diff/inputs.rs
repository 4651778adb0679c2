//! Inputs: what manifests hold but facts of the host, costs and how the run went. Whatever is added to manifests is compared as well.

use super::{Input, NONE};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Fields that are no inputs, or say nothing about them.
const NO_INPUTS: [&str; 9] = [
    "generator",
    "manifest_version",
    "ended",
    "error",
    "digest",
    "virtual_time_ns",
    "started_unix_s",
    "cost",
    "host",
];
/// The path of the scenario file is where it happened to lie.
const SCENARIO_PATH: &str = "scenario path";
/// What explains most comes first; then the others.
const FIRST: [&str; 5] = ["windtunnel_version", "scenario sha256", "scenario", "seed", "kernels"];
/// The list of what nodes saw as `/`.
const ROOTS: &str = "roots";
/// What names an entry of a list.
const NAMES: [&str; 4] = ["path", "series", "name", "node"];

/// Inputs that differ.
pub fn differences(a: &Value, b: &Value) -> Vec<Input> {
    let (a, b) = (flatten(a), flatten(b));
    let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let value = |of: &BTreeMap<String, String>, name: &String| of.get(name).map_or(NONE.to_owned(), String::clone);
    let mut found: Vec<Input> = names
        .into_iter()
        .map(|name| Input {
            what: name.clone(),
            a: value(&a, name),
            b: value(&b, name),
        })
        .filter(|input| input.a != input.b)
        .collect();
    // What only one run has may be there because of how it went, so it comes after what both have.
    found.sort_by_key(|input| {
        let rank = FIRST.iter().position(|first| input.what.starts_with(first));
        (
            rank.unwrap_or(FIRST.len()),
            input.a == NONE || input.b == NONE,
            input.what.clone(),
        )
    });
    found
}

/// Every input by its name.
fn flatten(manifest: &Value) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for (name, value) in manifest.as_object().into_iter().flatten() {
        if !NO_INPUTS.contains(&name.as_str()) {
            add(name, value, &mut all);
        }
    }
    all.remove(SCENARIO_PATH);
    all
}

fn add(name: &str, value: &Value, all: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                add(&format!("{name} {key}"), value, all);
            }
        }
        Value::Array(entries) => {
            for (index, entry) in entries.iter().enumerate() {
                add_entry(name, index, entry, all);
            }
        }
        Value::String(text) => drop(all.insert(name.to_owned(), text.clone())),
        other => drop(all.insert(name.to_owned(), other.to_string())),
    }
}

/// An entry of a list: by its name if it has one, with all its other fields as its value. What some nodes have is also told apart by
/// the first of them, and a root by nothing else, for its path is where it happened to lie.
fn add_entry(list: &str, index: usize, entry: &Value, all: &mut BTreeMap<String, String>) {
    let named = NAMES.iter().find_map(|key| Some((*key, entry.get(key)?.as_str()?)));
    let Some((key, mut name)) = named.map(|(key, name)| (key, name.to_owned())) else {
        return add(&format!("{list} {}", index + 1), entry, all);
    };
    if let Some(node) = entry.pointer("/nodes/0").and_then(Value::as_str) {
        name = match list {
            ROOTS => format!("of {node}"),
            _ => format!("{name} of {node}"),
        };
    }
    let fields = entry.as_object().into_iter().flatten();
    let values: Vec<String> = fields
        .filter(|(field, _)| *field != key)
        .map(|(field, value)| match value {
            Value::String(text) => format!("{field} {text}"),
            other => format!("{field} {other}"),
        })
        .collect();
    let mut what = format!("{list} {name}");
    while all.contains_key(&what) {
        what.push('\'');
    }
    all.insert(what, values.join(", "));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn manifest() -> Value {
        json!({
            "generator": "windtunnel", "windtunnel_version": "1", "seed": 1, "cost": {"wall_time_ns": 5}, "host": {"os": "x"},
            "scenario": {"path": "a.yaml", "name": "a", "sha256": "00"},
            "kernels": [{"series": "6.12", "sha256": "aa"}],
            "programs": [{"path": "/bin/ls", "sha256": "11"}, {"path": "/bin/sh", "sha256": "22"}],
            "files": [{"path": "/etc/x", "sha256": "33", "changed": true}],
            "something": {"new": [1, 2]},
            "roots": [{"kind": "tar", "path": "/a/root.tar", "sha256": "44", "nodes": ["h1", "h2"]}],
            "sources": [{"path": "/opt/x", "sha256": "55", "nodes": ["h1"]}, {"path": "/opt/x", "sha256": "66", "nodes": ["h2"]}],
        })
    }

    fn differing(change: impl FnOnce(&mut Value)) -> Vec<(String, String, String)> {
        let mut other = manifest();
        change(&mut other);
        let found = differences(&manifest(), &other);
        found.into_iter().map(|input| (input.what, input.a, input.b)).collect()
    }

    fn row(what: &str, a: &str, b: &str) -> (String, String, String) {
        (what.into(), a.into(), b.into())
    }

    #[test]
    fn facts_of_the_host_do_not_count() {
        let found = differing(|manifest| {
            manifest["cost"]["wall_time_ns"] = json!(9);
            manifest["host"] = json!({});
            manifest["digest"] = json!("ff");
            manifest["scenario"]["path"] = json!("/elsewhere/a.yaml");
            manifest["roots"][0]["path"] = json!("/elsewhere/root.tar");
        });
        assert_eq!(found, []);
    }

    #[test]
    fn each_input_is_named_with_both_values() {
        assert_eq!(differing(|m| m["seed"] = json!(2)), [row("seed", "1", "2")]);
        assert_eq!(
            differing(|m| m["programs"][1]["sha256"] = json!("23")),
            [row("programs /bin/sh", "sha256 22", "sha256 23")]
        );
        assert_eq!(
            differing(|m| m["files"][0]["changed"] = json!(false)),
            [row(
                "files /etc/x",
                "changed true, sha256 33",
                "changed false, sha256 33"
            )]
        );
        assert_eq!(
            differing(|m| m["something"]["new"][1] = json!(3)),
            [row("something new 2", "2", "3")]
        );
        assert_eq!(
            differing(|m| drop(m.as_object_mut().unwrap().remove("files"))),
            [row("files /etc/x", "changed true, sha256 33", "-")]
        );
    }

    #[test]
    fn what_nodes_have_is_told_apart_by_the_first_of_them() {
        assert_eq!(
            differing(|m| m["roots"][0]["sha256"] = json!("45")),
            [row(
                "roots of h1",
                r#"kind tar, nodes ["h1","h2"], sha256 44"#,
                r#"kind tar, nodes ["h1","h2"], sha256 45"#
            )]
        );
        assert_eq!(
            differing(|m| m["sources"][1]["sha256"] = json!("67")),
            [row(
                "sources /opt/x of h2",
                r#"nodes ["h2"], sha256 66"#,
                r#"nodes ["h2"], sha256 67"#
            )]
        );
    }

    #[test]
    fn what_explains_most_comes_first() {
        let found = differing(|m| {
            m["programs"] = json!([{"path": "/bin/aa", "sha256": "1"}, {"path": "/bin/sh", "sha256": "1"}]);
            m["kernels"][0]["sha256"] = json!("bb");
            m["seed"] = json!(7);
            m["scenario"]["sha256"] = json!("01");
            m["windtunnel_version"] = json!("2");
        });
        let order: Vec<&str> = found.iter().map(|(what, ..)| what.as_str()).collect();
        assert_eq!(
            order,
            [
                "windtunnel_version",
                "scenario sha256",
                "seed",
                "kernels 6.12",
                "programs /bin/sh",
                "programs /bin/aa",
                "programs /bin/ls"
            ]
        );
    }
}
