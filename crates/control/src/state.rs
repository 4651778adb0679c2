//! How a live run stands, for those who look at it. To look does nothing to the network: it is not written down, and the run is
//! the same with and without.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use windtunnel_results::{Ended, LatenessSummary, LinkSummary, PortSummary};

/// What somebody wants to see.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Look {
    /// Whether to list TCP connections.
    #[serde(default)]
    pub tcp: bool,
}

/// How a run stands between two of its windows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct State {
    /// Virtual time up to which everything has happened, ns.
    pub at_ns: u64,
    /// Virtual time at which the run stops on its own, ns.
    pub stop_ns: u64,
    /// Why the run has come to its end, if it is only held for its visitors.
    pub held: Option<Ended>,
    /// All nodes, in the scenario's order.
    pub nodes: Vec<NodeState>,
    /// All links, in the scenario's order and those to ports last.
    pub links: Vec<LinkState>,
    /// TCP connections of all nodes, a row each with the columns of tcp.csv; empty unless asked for.
    #[serde(default)]
    pub tcp: Vec<serde_json::Map<String, serde_json::Value>>,
    /// How late it has been so far, as in the summary; only if it goes with the wall clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness: Option<LatenessSummary>,
    /// Ports to the outside, in the scenario's order; only if there are any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortState>,
}

/// A port to the outside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PortState {
    /// What passed it so far.
    #[serde(flatten)]
    pub counters: PortSummary,
    /// What is known of the program at the other end; only of kinds where there is one that says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<PeerState>,
}

/// The program at the other end of a port, by the host's clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PeerState {
    /// It is there and has answered.
    pub connected: bool,
    /// What it calls its port; null: it was never heard of.
    pub name: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// Since it was heard of last, ns.
    pub seen_ago_ns: Option<u64>,
    /// Frames that it has sent and that did not arrive here.
    pub lost_in_frames: Option<u64>,
    /// Frames from here that did not arrive there, as it said last.
    pub lost_out_frames: Option<u64>,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeState {
    /// Its name.
    pub node: String,
    /// System calls of its programs so far.
    pub syscalls: u64,
    /// Programs of the scenario and of visitors that have ended.
    pub ended: u32,
    /// Those that run.
    pub programs: Vec<ProgramState>,
}

/// A program that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProgramState {
    /// Process id in the node.
    pub pid: u32,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Virtual time of its start, ns.
    pub start_ns: u64,
}

/// A link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LinkState {
    /// Its ends, and what it carried so far.
    #[serde(flatten)]
    pub counters: LinkSummary,
    /// From `a` to `b`, now.
    pub a_to_b_now: DirectionState,
    /// From `b` to `a`, now.
    pub b_to_a_now: DirectionState,
}

/// One direction of a link, as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DirectionState {
    /// Whether it has a carrier.
    pub up: bool,
    /// Its rate, bit/s, with preamble, FCS and gap between frames.
    pub rate_bps: u64,
    /// Its delay, ns.
    pub delay_ns: u64,
    /// Frames in its queue; none where frames wait in the sender.
    pub queue_frames: u64,
    /// Their bytes.
    pub queue_bytes: u64,
    /// How long a frame offered now would wait for the wire, ns.
    pub wait_ns: u64,
}

/// Where a run shall hold: as soon as a condition begins to hold for a TCP connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Break {
    /// The condition: columns of tcp.csv, or `cwnd`, `ssthresh`, `in_flight` (in bytes), `mss`, `srtt`, `rto` and the like, in
    /// arithmetic and comparisons, as in `cwnd < 2*mss`.
    pub condition: String,
    /// How often connections are looked at, ns of virtual time.
    pub interval_ns: u64,
}

/// A condition holds; time stands still.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Broken {
    /// Where time stands, ns.
    pub at_ns: u64,
    /// The connection, as a row of tcp.csv.
    pub connection: serde_json::Map<String, serde_json::Value>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_reads_as_its_counters_and_what_it_is_now() {
        let now = DirectionState {
            up: true,
            rate_bps: 1_000_000,
            delay_ns: 5,
            queue_frames: 0,
            queue_bytes: 0,
            wait_ns: 0,
        };
        let link = LinkState {
            counters: LinkSummary {
                a: "h1:eth0".into(),
                b: "h2:eth0".into(),
                a_to_b: Default::default(),
                b_to_a: Default::default(),
            },
            a_to_b_now: now,
            b_to_a_now: now,
        };
        let json = serde_json::to_value(&link).unwrap();
        assert_eq!(json["a"], "h1:eth0");
        assert_eq!(json["b_to_a_now"]["rate_bps"], 1_000_000);
        assert_eq!(serde_json::from_value::<LinkState>(json).unwrap(), link);
    }
}
