//! `summary.json`: what happened in virtual time. Also what `windtunnel run --json` prints.
//!
//! Nothing in it depends on the host, the time of day or the output folder: equal runs give equal bytes.

use crate::error::{Result, ResultsError};
use crate::manifest::Ended;
use crate::warnings::Warning;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// Version of the shape of `summary.json`.
pub const SUMMARY_VERSION: u32 = 2;

/// All of `summary.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    /// [`SUMMARY_VERSION`].
    pub summary_version: u32,
    /// Name of the scenario.
    pub scenario: String,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Why the run ended.
    pub ended: Ended,
    /// Digest of the run, 64 hexadecimal digits; null when it was switched off.
    pub digest: Option<String>,
    /// Virtual time at the end, nanoseconds since the start.
    pub virtual_time_ns: u64,
    /// System calls of all programs.
    pub syscalls: u64,
    /// Frames that left an interface, all nodes.
    pub frames: u64,
    /// Programs of the scenario, by node, then by position in the scenario; after them those that clients of the live run
    /// started, by node, in order.
    pub processes: Vec<ProcessSummary>,
    /// Links in scenario order.
    pub links: Vec<LinkSummary>,
    /// What passed the ports to the outside; only there if there are any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortSummary>,
    /// How late the run was; only there if it went with the wall clock, on which all of it depends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness: Option<LatenessSummary>,
    /// What ought to be looked at before trusting the results.
    pub warnings: Vec<Warning>,
    /// One sentence per expectation that did not hold; empty: all held.
    pub failed_expectations: Vec<String>,
    /// How late frames arrived; only there where time was the host's (`--platform host`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery_lateness: Option<DeliveryLateness>,
}

/// How much later than the link model said frames arrived. Percentiles are right to a sixteenth.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeliveryLateness {
    /// Frames that arrived.
    pub deliveries: u64,
    /// The median, nanoseconds.
    pub p50_ns: u64,
    /// What a hundredth of them passed, nanoseconds.
    pub p99_ns: u64,
    /// The worst, nanoseconds.
    pub max_ns: u64,
}

/// One program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessSummary {
    /// Node it ran on.
    pub node: String,
    /// Process id inside the node; null: it never started.
    pub pid: Option<u32>,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Exit code; null: it did not exit by itself.
    pub exit: Option<i32>,
    /// Number of the signal that ended it; null: none did.
    pub signal: Option<i32>,
    /// Virtual time of its start, nanoseconds; null: it never started.
    pub start_ns: Option<u64>,
    /// Virtual time of its end, nanoseconds; null: it was still running when the run ended.
    pub end_ns: Option<u64>,
    /// File with its standard output, relative to the output folder.
    pub stdout: String,
    /// File with its standard error, relative to the output folder.
    pub stderr: String,
    /// Whether a client of the live run started it, not the scenario; only there if so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub client: bool,
    /// Which boot of its node it belongs to, counted from 1; only there from the second on.
    #[serde(default = "first_life", skip_serializing_if = "is_first_life")]
    pub life: u32,
    /// Whether it ended because its node went down; only there if so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub power_off: bool,
}

fn first_life() -> u32 {
    1
}

pub(crate) fn is_first_life(life: &u32) -> bool {
    *life == 1
}

/// One link: both directions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkSummary {
    /// First endpoint, "node:interface".
    pub a: String,
    /// Second endpoint, "node:interface".
    pub b: String,
    /// Frames `a` sent.
    pub a_to_b: DirectionSummary,
    /// Frames `b` sent.
    pub b_to_a: DirectionSummary,
}

/// One direction of a link. Bytes are of frames from the Ethernet header on, without FCS, preamble and gap.
///
/// `offered = delivered - duplicated + dropped + in flight at the end`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DirectionSummary {
    /// Frames the sender handed to the link.
    pub frames: u64,
    /// Bytes of those frames.
    pub bytes: u64,
    /// Frames that reached the receiver, copies included.
    pub delivered_frames: u64,
    /// Bytes of those frames.
    pub delivered_bytes: u64,
    /// Extra copies the link made.
    pub duplicated_frames: u64,
    /// Frames in which the link flipped a bit.
    pub corrupted_frames: u64,
    /// Frames lost, by cause ("loss", "queue_full", "link_down", ...); causes that did not occur are absent.
    pub drops: BTreeMap<String, u64>,
}

/// A port to the outside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PortSummary {
    /// Its name.
    pub name: String,
    /// What it was, in a sentence; "replay": what had come from there was repeated.
    pub what: String,
    /// Frames that came from outside.
    pub frames_in: u64,
    /// Their bytes.
    pub bytes_in: u64,
    /// Frames that the host took.
    pub frames_out: u64,
    /// Their bytes.
    pub bytes_out: u64,
    /// Frames that the port dropped, by cause; causes that did not occur are absent.
    pub drops: BTreeMap<String, u64>,
}

/// How late events began, by the host's clock. A window counts once for each node that has something to do in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LatenessSummary {
    /// Beyond this a window is late, ns.
    pub limit_ns: u64,
    /// Windows, for each node.
    pub windows: u64,
    /// Those of them that were late.
    pub late_windows: u64,
    /// Half of the windows were not later than this, ns.
    pub p50_ns: u64,
    /// 99 of 100 were not, ns.
    pub p99_ns: u64,
    /// The latest one, ns.
    pub max_ns: u64,
    /// How often the run was so late that it gave up catching up.
    pub slips: u64,
    /// By how much it is behind the wall clock through that, ns.
    pub slipped_ns: u64,
    /// How often programs that computed made way by the wall clock.
    #[serde(default)]
    pub preempted_by_wall_clock: u64,
    /// Pairs of a lateness, ns, and of how many windows were that late at most, and later than the pair before says.
    pub histogram: Vec<[u64; 2]>,
    /// The same by node.
    pub nodes: Vec<NodeLateness>,
}

/// How late a node was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeLateness {
    /// Its name.
    pub node: String,
    /// As in [`LatenessSummary`].
    pub windows: u64,
    /// As there.
    pub late_windows: u64,
    /// As there, ns.
    pub p50_ns: u64,
    /// As there, ns.
    pub p99_ns: u64,
    /// As there, ns.
    pub max_ns: u64,
    /// How often its programs did.
    #[serde(default)]
    pub preempted_by_wall_clock: u64,
}

impl Summary {
    /// The bytes of `summary.json`: indented, with a newline at the end.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("a summary has string keys only");
        text.push('\n');
        text
    }

    /// Reads `DIR/summary.json`.
    pub fn read(out_dir: &Path) -> Result<Self> {
        read_json(&out_dir.join("summary.json"), "a summary")
    }
}

/// Parses a JSON file of ours.
pub(crate) fn read_json<T: serde::de::DeserializeOwned>(path: &Path, what: &'static str) -> Result<T> {
    let text = std::fs::read(path).map_err(|e| ResultsError::from_io("read", path, e))?;
    serde_json::from_slice(&text).map_err(|error| ResultsError::BadContents {
        path: path.to_path_buf(),
        what,
        reason: error.to_string(),
    })
}
