//! What a run shows to those who only look at it.

use windtunnel_base::SimTime;
use windtunnel_control::{DirectionState, LinkState, Look, NodeState, ProgramState, State};
use windtunnel_results::{Line, ProcessSummary, TcpLine};

use super::{Live, Network};
use crate::error::EngineError;
use crate::node::Node;
use crate::samples;

impl Live {
    /// How the run stands at `at_ns`, between two windows.
    ///
    /// # Errors
    /// When a kernel crashes that is asked for its connections.
    pub(super) fn state(&self, network: &mut Network<'_>, at_ns: u64, look: &Look) -> Result<State, EngineError> {
        Ok(State {
            at_ns,
            stop_ns: self.identity.scenario.run.stop.as_ns(),
            held: self.held,
            nodes: network.nodes.iter().map(node_state).collect(),
            links: links(network, at_ns),
            tcp: match look.tcp {
                true => tcp(network.nodes, at_ns)?,
                false => Vec::new(),
            },
        })
    }
}

fn node_state(node: &Node) -> NodeState {
    let lifecycle = node.lifecycle();
    let own = (lifecycle.setup_count()..lifecycle.len()).map(|index| node.programs.summary(index));
    let all: Vec<ProcessSummary> = own.chain(node.client_summaries()).collect();
    let programs = all.iter().filter_map(|program| match program {
        ProcessSummary {
            pid: Some(pid),
            start_ns: Some(start_ns),
            end_ns: None,
            command,
            ..
        } => Some(ProgramState {
            pid: *pid,
            command: command.clone(),
            start_ns: *start_ns,
        }),
        _ => None,
    });
    NodeState {
        node: node.name().to_owned(),
        syscalls: node.syscalls(),
        ended: all.iter().filter(|program| program.end_ns.is_some()).count() as u32,
        programs: programs.collect(),
    }
}

fn links(network: &mut Network<'_>, at_ns: u64) -> Vec<LinkState> {
    let counters = network.links.summaries(network.nodes);
    let mut directions = Vec::new();
    for (from, ..) in network.links.directions() {
        let link = &mut network.nodes[from.node.index()].ports[from.index as usize].link;
        let backlog = link.backlog(SimTime(at_ns));
        let params = link.params();
        directions.push(DirectionState {
            up: link.is_up(),
            rate_bps: params.rate.0,
            delay_ns: params.delay.as_ns(),
            queue_frames: backlog.frames,
            queue_bytes: backlog.bytes,
            wait_ns: backlog.wait_ns,
        });
    }
    let (pairs, _) = directions.as_chunks::<2>();
    let both = counters.into_iter().zip(pairs);
    both.map(|(counters, &[a_to_b_now, b_to_a_now])| LinkState {
        counters,
        a_to_b_now,
        b_to_a_now,
    })
    .collect()
}

/// The connections of all nodes, by node, in the order of tcp.csv.
pub(super) fn tcp(
    nodes: &mut [Node],
    at_ns: u64,
) -> Result<Vec<serde_json::Map<String, serde_json::Value>>, EngineError> {
    let (mut rows, mut records) = (Vec::new(), Vec::new());
    for node in nodes {
        node.sample(&mut records)?;
        records.sort_by_key(|record: &windtunnel_kernel::abi::TcpSample| samples::order(&record.ends));
        rows.extend(records.iter().map(|record| {
            let line = samples::tcp_line(at_ns, node.name(), record);
            match serde_json::to_value(line) {
                Ok(serde_json::Value::Object(row)) => row,
                _ => unreachable!("a line is a struct of numbers and texts"),
            }
        }));
    }
    Ok(rows)
}

/// Whether rows of connections have a number of this name.
pub(super) fn is_tcp_number(column: &str) -> bool {
    const TEXTS: [&str; 6] = [
        "node",
        "local_address",
        "remote_address",
        "state",
        "congestion_control",
        "internals",
    ];
    TcpLine::COLUMNS.contains(&column) && !TEXTS.contains(&column)
}
