//! Two results folders side by side: which inputs differ, and what happened differently, the earliest first.

mod captures;
mod inputs;
mod interfaces;
mod outputs;
mod programs;

pub use captures::names as capture_names;

use crate::failure::Failure;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use windtunnel_base::SimTime;
use windtunnel_base::result_files::{MANIFEST, SUMMARY};
use windtunnel_results::Trail;

/// Stands for something that one of the runs does not have.
const NONE: &str = "-";
/// How much of a text is quoted, characters.
const QUOTE_CHARS: usize = 100;

/// An input of the runs that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Input {
    /// What: "seed", "programs /usr/bin/ping" ...
    pub what: String,
    /// Its value or hash in the first run; "-": it is not there.
    pub a: String,
    /// Likewise in the second.
    pub b: String,
}

/// Something that happened differently.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Event {
    /// Which kind of record shows it.
    pub kind: Kind,
    /// What: "h1:eth0: frame 12" ...
    pub what: String,
    /// The earliest virtual time at which it can have happened, nanoseconds since the start.
    pub from_ns: u64,
    /// The latest. The same: it is known exactly.
    pub to_ns: u64,
    /// How it was in the first run; "-": it was not.
    pub a: String,
    /// Likewise in the second.
    pub b: String,
}

/// Where a difference was found, in the order in which those of one time are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// What clients of a live run did.
    Client,
    /// A frame in captures that both runs have.
    Frame,
    /// A frame between two marks of an interface's digest.
    Interval,
    /// Start, end and exit code of a program.
    Program,
    /// A line that a program wrote.
    Output,
    /// A line of a kernel's log.
    KernelLog,
    /// A warning.
    Warning,
    /// A sum over the whole run: frames of a link, calls ...
    Total,
}

impl Kind {
    /// For a count of them.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Client => "inputs of clients",
            Self::Frame | Self::Interval => "interfaces",
            Self::Program => "programs",
            Self::Output => "outputs",
            Self::KernelLog => "kernel logs",
            Self::Warning => "warnings",
            Self::Total => "totals",
        }
    }
}

/// All that differs.
#[derive(Debug, Serialize)]
pub struct Comparison {
    /// Nothing does.
    pub equal: bool,
    /// Inputs, those first that explain most.
    pub inputs: Vec<Input>,
    /// Events, the earliest first.
    pub events: Vec<Event>,
}

/// A results folder. What other versions left is read as far as it is known.
#[derive(Debug)]
struct Run {
    dir: PathBuf,
    manifest: serde_json::Value,
    summary: Summary,
    trail: Option<Trail>,
}

#[derive(Debug, Deserialize)]
struct Summary {
    digest: Option<String>,
    ended: String,
    virtual_time_ns: u64,
    #[serde(default)]
    processes: Vec<Process>,
    #[serde(default)]
    links: Vec<serde_json::Value>,
    #[serde(default)]
    warnings: Vec<serde_json::Value>,
    #[serde(default)]
    failed_expectations: Vec<String>,
    /// Sums: "syscalls", "frames".
    #[serde(flatten)]
    others: BTreeMap<String, serde_json::Value>,
}

#[derive(Debug, Deserialize)]
struct Process {
    node: String,
    command: Vec<String>,
    exit: Option<i32>,
    signal: Option<i32>,
    start_ns: Option<u64>,
    end_ns: Option<u64>,
    stdout: String,
    stderr: String,
}

/// Compares the runs in two folders.
///
/// # Errors
/// When one of them does not hold the results of a run that is over.
pub fn compare(a: &Path, b: &Path) -> Result<Comparison, Failure> {
    let (a, b) = (Run::read(a)?, Run::read(b)?);
    let inputs = inputs::differences(&a.manifest, &b.manifest);
    let mut events = outputs::client_input(&a, &b)?;
    let captured = captures::differences(&a, &b, &mut events)?;
    interfaces::differences(&a, &b, &captured, &mut events);
    programs::differences(&a, &b, &mut events);
    outputs::differences(&a, &b, &mut events)?;
    programs::totals(&a, &b, &mut events);
    // What is known to have differed by a time comes before what may have differed only later.
    events.sort_by_key(|event| (event.to_ns, event.from_ns, event.kind, event.what.clone()));
    Ok(Comparison {
        equal: inputs.is_empty() && events.is_empty(),
        inputs,
        events,
    })
}

impl Run {
    fn read(dir: &Path) -> Result<Self, Failure> {
        let unusable = |why: String| {
            Failure::user(format!("{} does not hold the results of a run", dir.display()))
                .because(why)
                .hint("name the folder that was given to `windtunnel run` as `--out`")
        };
        let manifest = dir.join(MANIFEST);
        let bytes = std::fs::read(&manifest).map_err(|error| unusable(format!("{}: {error}", manifest.display())))?;
        let parsed: Result<serde_json::Value, _> = serde_json::from_slice(&bytes);
        let manifest = parsed.map_err(|error| unusable(format!("{}: {error}", manifest.display())))?;
        if manifest["generator"] != windtunnel_results::GENERATOR {
            return Err(unusable(format!("{MANIFEST} is not by windtunnel")));
        }
        if manifest["ended"].is_null() {
            return Err(
                Failure::user(format!("the run in {} is not over, or was killed", dir.display()))
                    .hint("end it with `windtunnel stop`, or run it again"),
            );
        }
        let path = dir.join(SUMMARY);
        let summary = std::fs::read(&path).map_err(|error| unusable(format!("{}: {error}", path.display())))?;
        let summary =
            serde_json::from_slice(&summary).map_err(|error| unusable(format!("{}: {error}", path.display())))?;
        Ok(Self {
            dir: dir.to_owned(),
            manifest,
            summary,
            trail: Trail::read(dir)?,
        })
    }
}

/// Whether a folder holds the results of a run that is over.
///
/// # Errors
/// It does not.
pub fn check_results(dir: &Path) -> Result<(), Failure> {
    Run::read(dir).map(|_| ())
}

/// A file that could not be read for another reason than that it is not there.
fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::unreadable(path, error)
}

/// A text that may be long or hold anything, for one line.
fn quote(text: &str) -> String {
    let mut quoted: String = text.chars().take(QUOTE_CHARS).flat_map(char::escape_debug).collect();
    if text.chars().count() > QUOTE_CHARS {
        quoted.push_str("...");
    }
    quoted
}

/// A virtual time for people.
pub fn time(time_ns: u64) -> String {
    SimTime(time_ns).to_string()
}
