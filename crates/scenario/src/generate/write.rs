//! A generated scenario as YAML for people, a line for each node and link, and as JSON for programs.

use std::fmt::Write;

use serde::{Serialize, Serializer};

use super::Generated;

/// The parts of a scenario file that generated ones have.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Scenario {
    pub version: u32,
    pub name: String,
    pub run: Run,
    pub addressing: &'static str,
    pub routing: &'static str,
    pub defaults: Defaults,
    #[serde(serialize_with = "in_order")]
    pub nodes: Vec<(String, Node)>,
    pub links: Vec<Link>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Run {
    pub stop: String,
    pub seed: u64,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Defaults {
    pub link: Values,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Values {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Node {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<[Place; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    #[serde(serialize_with = "in_order", skip_serializing_if = "Vec::is_empty")]
    pub sysctls: Vec<(String, u32)>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Link {
    pub endpoints: [String; 2],
    #[serde(skip_serializing_if = "Values::is_empty")]
    pub both: Values,
}

/// A coordinate with one decimal, or none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place(pub f64);

impl Place {
    fn text(self) -> String {
        // Adding 0 makes 0 of -0.
        format!("{}", (self.0 * 10.0).round() / 10.0 + 0.0)
    }
}

impl Serialize for Place {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.text().parse().expect("written as a number"))
    }
}

fn in_order<T: Serialize, S: Serializer>(entries: &[(String, T)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(entries.iter().map(|(name, value)| (name, value)))
}

impl Values {
    fn is_empty(&self) -> bool {
        self.fields().is_empty()
    }

    fn fields(&self) -> Vec<String> {
        let fields = [("rate", &self.rate), ("delay", &self.delay), ("queue", &self.queue)];
        let there = fields
            .iter()
            .filter_map(|(name, value)| Some(format!("{name}: {}", value.as_ref()?)));
        there.collect()
    }

    fn yaml(&self) -> String {
        format!("{{{}}}", self.fields().join(", "))
    }
}

impl Node {
    fn yaml(&self) -> String {
        let mut fields = Vec::new();
        fields.extend(self.kind.map(|kind| format!("kind: {kind}")));
        fields.extend(
            self.position
                .map(|[x, y]| format!("position: [{}, {}]", x.text(), y.text())),
        );
        fields.extend(self.memory.as_ref().map(|memory| format!("memory: {memory}")));
        if !self.sysctls.is_empty() {
            let values: Vec<String> = self
                .sysctls
                .iter()
                .map(|(name, value)| format!("{name}: {value}"))
                .collect();
            fields.push(format!("sysctls: {{{}}}", values.join(", ")));
        }
        format!("{{{}}}", fields.join(", "))
    }
}

/// Words that YAML takes for something else than text.
const NOT_TEXT: &[&str] = &["null", "true", "false", "yes", "no", "on", "off", "y", "n"];

/// A text as YAML has it, in quotes where it could be taken for something else.
fn scalar(text: &str) -> String {
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
        && !NOT_TEXT.contains(&text.to_ascii_lowercase().as_str());
    if plain {
        return text.to_owned();
    }
    serde_json::to_string(text).expect("a text")
}

impl Generated {
    /// The scenario's name.
    pub fn name(&self) -> &str {
        &self.scenario.name
    }

    /// The scenario as a file in YAML; ends with a line feed.
    pub fn to_yaml(&self) -> String {
        let scenario = &self.scenario;
        let mut text = format!(
            "version: {}\nname: {}\n\nrun: {{stop: {}, seed: {}}}\n\naddressing: {}\nrouting: {}\n\ndefaults:\n  link: {}\n\nnodes:\n",
            scenario.version,
            scalar(&scenario.name),
            scenario.run.stop,
            scenario.run.seed,
            scenario.addressing,
            scenario.routing,
            scenario.defaults.link.yaml(),
        );
        for (name, node) in &scenario.nodes {
            writeln!(text, "  {}: {}", scalar(name), node.yaml()).expect("writing to a String");
        }
        if !scenario.links.is_empty() {
            text += "\nlinks:\n";
        }
        for link in &scenario.links {
            let [a, b] = &link.endpoints;
            let ends = format!("endpoints: [\"{a}\", \"{b}\"]");
            if link.both.is_empty() {
                writeln!(text, "  - {ends}").expect("writing to a String");
            } else {
                writeln!(text, "  - {{{ends}, both: {}}}", link.both.yaml()).expect("writing to a String");
            }
        }
        text
    }

    /// The same in JSON, which is YAML as well; ends with a line feed.
    pub fn to_json(&self) -> String {
        serde_json::to_string(&self.scenario).expect("string keys only") + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_stay_texts() {
        for (text, written) in [
            ("r1", "r1"),
            ("No", "\"No\""),
            ("12", "\"12\""),
            ("a: b", "\"a: b\""),
            ("é\"", "\"é\\\"\""),
            ("edge-0-1", "edge-0-1"),
        ] {
            assert_eq!(scalar(text), written);
        }
    }

    #[test]
    fn coordinates_are_short() {
        let written = [0.04, -0.04, 84.852, -3.0, 120.0].map(|value| Place(value).text());
        assert_eq!(written, ["0", "0", "84.9", "-3", "120"]);
    }
}
