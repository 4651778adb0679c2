//! `windtunnel validate FILE`

use crate::failure::Outcome;
use serde::Serialize;
use std::path::PathBuf;
use windtunnel_engine::check_roots;
use windtunnel_ports::PortSpec;
use windtunnel_scenario::Scenario;

/// Check a scenario without running it
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Scenario file
    file: PathBuf,
    /// Print the findings as JSON; the exit code is as without
    #[arg(long)]
    json: bool,
    /// Print each node's addresses and routes, those of `addressing` and `routing` included, and ports to the outside
    #[arg(long, conflicts_with = "json")]
    plan: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report {
    valid: bool,
    /// Null when the file can't be read as a scenario.
    scenario: Option<Counts>,
    /// Empty when valid.
    errors: Vec<Finding>,
    /// What is allowed, but may not be meant.
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct Counts {
    name: String,
    sha256: String,
    stop_ns: u64,
    nodes: usize,
    links: usize,
    processes: usize,
    events: usize,
}

#[derive(Serialize)]
struct Finding {
    /// 1-based; 0: the whole file.
    line: u32,
    /// 1-based, characters.
    column: u32,
    message: String,
    allowed: Option<String>,
    hint: Option<String>,
}

/// A paragraph for each node: its interfaces with addresses, then its routes; and one for each port to the outside.
fn plan(scenario: &Scenario) -> String {
    let mut text = String::new();
    for node in &scenario.nodes {
        text += &format!("{}\n", node.name);
        let width = node
            .interfaces
            .iter()
            .map(|interface| interface.name.len())
            .max()
            .unwrap_or(0);
        for interface in &node.interfaces {
            let addresses: Vec<String> = interface.addresses.iter().map(ToString::to_string).collect();
            let line = format!("  {:width$}  {}", interface.name, addresses.join(" "));
            text += &format!("{}\n", line.trim_end());
        }
        for route in &node.routes {
            text += &format!("  {}", route.to);
            let hops: Vec<String> = route
                .via
                .iter()
                .chain(&route.also_via)
                .map(ToString::to_string)
                .collect();
            let via = (!hops.is_empty()).then(|| format!(" via {}", hops.join(", ")));
            let dev = route.dev.as_ref().map(|dev| format!(" dev {dev}"));
            let metric = route.metric.map(|metric| format!(" metric {metric}"));
            text.extend([via, dev, metric].into_iter().flatten());
            text += "\n";
        }
    }
    for port in &scenario.ports {
        let addresses: Vec<String> = match &port.spec {
            PortSpec::Tap { addresses, .. } => addresses.iter().map(ToString::to_string).collect(),
            _ => Vec::new(),
        };
        let host = match addresses.is_empty() {
            true => String::new(),
            false => format!("; the host has {}", addresses.join(" ")),
        };
        let inside = scenario.iface_name(port.end);
        text += &format!("{}\n  {}, outside of {inside}{host}\n", port.name, port.kind());
    }
    text
}

/// Checks the file and says what is in it, or what is wrong with it.
pub fn run(args: &Args) -> Outcome {
    if !args.json {
        let scenario = super::load_scenario(&args.file)?;
        check_roots(&scenario)?;
        for caution in &scenario.warnings {
            eprintln!("warning: {}", caution.text);
        }
        if args.plan {
            return super::print(&plan(&scenario));
        }
        let counts = Counts::of(&scenario);
        return super::print(&format!(
            "{}: valid; {} nodes, {} links, {} processes, {} events\n",
            args.file.display(),
            counts.nodes,
            counts.links,
            counts.processes,
            counts.events
        ));
    }
    let text = super::scenario_text(&args.file)?;
    let finding = match Scenario::parse(&text, &args.file) {
        Ok(scenario) => match check_roots(&scenario) {
            Ok(()) => {
                return super::print_json(&Report {
                    valid: true,
                    scenario: Some(Counts::of(&scenario)),
                    errors: Vec::new(),
                    warnings: scenario.warnings.into_iter().map(|caution| caution.text).collect(),
                });
            }
            Err(error) => Finding {
                line: 0,
                column: 0,
                message: error.to_string(),
                allowed: None,
                hint: error.hint(),
            },
        },
        Err(error) => {
            let found = error.diagnostic();
            Finding {
                line: found.line,
                column: found.column,
                message: found.message.clone(),
                allowed: found.allowed.clone(),
                hint: found.hint.clone(),
            }
        }
    };
    super::print_json(&Report {
        valid: false,
        scenario: None,
        errors: vec![finding],
        warnings: Vec::new(),
    })?;
    Ok(crate::failure::EXIT_USER)
}

impl Counts {
    fn of(scenario: &Scenario) -> Self {
        Self {
            name: scenario.name.clone(),
            sha256: scenario.sha256.clone(),
            stop_ns: scenario.run.stop.as_ns(),
            nodes: scenario.nodes.len(),
            // Those to ports, too.
            links: scenario.links.len() + scenario.ports.len(),
            processes: scenario.nodes.iter().map(|node| node.processes.len()).sum(),
            events: scenario.events.len(),
        }
    }
}
