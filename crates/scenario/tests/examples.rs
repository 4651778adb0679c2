//! The examples and the JSON Schema that are checked in.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use windtunnel_scenario::{Scenario, json_schema};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn example(name: &str) -> Scenario {
    let path = root().join("examples").join(name);
    let text = fs::read_to_string(&path).unwrap();
    Scenario::parse(&text, Path::new(name)).unwrap_or_else(|error| panic!("{error}"))
}

fn chain(n: &str) -> (bool, String) {
    let output = Command::new("python3")
        .arg(root().join("examples/chain.py"))
        .arg(n)
        .output()
        .unwrap();
    (output.status.success(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn every_example_is_valid() {
    let shape = |name| {
        let scenario = example(name);
        let processes: usize = scenario.nodes.iter().map(|node| node.processes.len()).sum();
        (scenario.name, scenario.nodes.len(), scenario.links.len(), processes)
    };
    assert_eq!(shape("01-ping.yaml"), ("ping".into(), 2, 1, 2));
    assert_eq!(shape("02-chain-udp.yaml"), ("chain-udp-8".into(), 8, 7, 2));
    assert_eq!(shape("03-tcp.yaml"), ("tcp".into(), 2, 1, 2));
    assert_eq!(shape("04-dumbbell.yaml"), ("dumbbell".into(), 6, 5, 4));
    assert_eq!(shape("05-tools.yaml"), ("tools".into(), 4, 3, 14));
}

#[test]
fn the_chain_is_what_its_script_writes() {
    let checked_in = fs::read_to_string(root().join("examples/02-chain-udp.yaml")).unwrap();
    assert_eq!(chain("8"), (true, checked_in));
}

#[test]
fn the_script_writes_chains_of_2_to_64_nodes() {
    for n in [2usize, 3, 64] {
        let (ok, text) = chain(&n.to_string());
        assert!(ok);
        let scenario = Scenario::parse(&text, Path::new("chain.yaml")).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((scenario.nodes.len(), scenario.links.len()), (n, n - 1));
        // Every node reaches every network: its own ones and routes to all others.
        for node in &scenario.nodes {
            assert_eq!(node.routes.len() + node.interfaces.len(), n - 1, "{}", node.name);
        }
    }
    assert!(!chain("1").0 && !chain("65").0);
}

#[test]
fn the_schema_checked_in_is_current() {
    let path = root().join("schema/scenario-v1.json");
    if std::env::var_os("WINDTUNNEL_BLESS").is_some() {
        fs::write(&path, json_schema()).unwrap();
    }
    let checked_in = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        checked_in == json_schema(),
        "run this test with WINDTUNNEL_BLESS=1 to write schema/scenario-v1.json anew"
    );
}
