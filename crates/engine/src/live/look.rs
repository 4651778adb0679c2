//! What a run shows to those who only look at it.

use std::convert::Infallible;

use serde_json::Value;
use windtunnel_base::SimTime;
use windtunnel_control::{DirectionState, LinkState, Look, NodeState, ProgramState, Sample, Sampled, State};
use windtunnel_kernel::abi::{MptcpSample, QdiscSample, TcpSample};
use windtunnel_results::{Line, MptcpLine, ProcessSummary, QdiscLine, TcpLine};

use super::{Live, Network};
use crate::cables::Direction;
use crate::error::EngineError;
use crate::node::Node;
use crate::samples;

/// Rows of an answer, bytes: with the rest of it, well within a frame.
const ROWS_MAX_BYTES: usize = 8 << 20;

impl Live {
    /// How the run stands at `at_ns`, between two windows.
    ///
    /// # Errors
    /// When a kernel crashes that is asked for its connections, or a measurement cannot be written.
    pub(super) fn state(&self, network: &mut Network<'_>, at_ns: u64, look: &Look) -> Result<State, EngineError> {
        if network.outside.is_some() {
            // What has arrived at ports is counted below.
            network.catch_up(at_ns)?;
        }
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
            lateness: self.lateness(network.nodes),
            ports: network
                .outside
                .as_ref()
                .map_or_else(Vec::new, |outside| outside.states()),
        })
    }
}

fn node_state(node: &Node) -> NodeState {
    let own = node.lives().flat_map(|programs| {
        let lifecycle = &programs.lifecycle;
        (lifecycle.setup_count()..lifecycle.len()).map(|index| programs.summary(index))
    });
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
    let mut directions = Vec::new();
    let (nodes, mut cables) = network.cables();
    let seen = cables.each(nodes, at_ns, |direction| {
        let Direction { link, powered, .. } = direction;
        let backlog = link.backlog(SimTime(at_ns));
        let params = link.params();
        directions.push(DirectionState {
            up: link.is_up() && powered,
            rate_bps: params.rate.0,
            delay_ns: params.delay.as_ns(),
            queue_frames: backlog.frames,
            queue_bytes: backlog.bytes,
            wait_ns: backlog.wait_ns,
        });
        Ok::<_, Infallible>(())
    });
    let Ok(()) = seen;
    let counters = cables.summaries(nodes);
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

/// What the kernel of a node, or of each, knows at `at_ns`, without the first `skip` rows.
///
/// # Errors
/// When a kernel crashes that is asked.
pub(super) fn sample(
    nodes: &mut [Node],
    node: Option<usize>,
    what: Sampled,
    skip: u64,
    at_ns: u64,
) -> Result<Sample, EngineError> {
    let columns = match what {
        Sampled::Tcp => TcpLine::COLUMNS,
        Sampled::Mptcp => MptcpLine::COLUMNS,
        Sampled::Qdiscs => QdiscLine::COLUMNS,
    };
    let mut page = Page::new(skip);
    let asked = match node {
        Some(node) => &mut nodes[node..=node],
        None => nodes,
    };
    let (mut tcp, mut mptcp, mut qdiscs): (Vec<TcpSample>, Vec<MptcpSample>, Vec<QdiscSample>) = Default::default();
    for node in asked {
        match what {
            Sampled::Tcp => {
                node.sample(&mut tcp)?;
                tcp.sort_by_key(|record| samples::order(&record.ends));
                tcp.iter()
                    .for_each(|record| page.add(&samples::tcp_line(at_ns, node.name(), record)));
            }
            Sampled::Mptcp => {
                node.sample(&mut mptcp)?;
                mptcp.sort_by_key(|record| samples::order(&record.ends));
                mptcp
                    .iter()
                    .for_each(|record| page.add(&samples::mptcp_line(at_ns, node.name(), record)));
            }
            Sampled::Qdiscs => {
                node.sample(&mut qdiscs)?;
                qdiscs
                    .iter()
                    .for_each(|record| page.add(&samples::qdisc_line(at_ns, node.name(), record)));
            }
        }
    }
    Ok(Sample {
        columns: columns.iter().map(|&column| column.to_owned()).collect(),
        rows: page.rows,
        rows_total: page.total,
    })
}

/// Rows of a table, as many as an answer has room for.
struct Page {
    skip: u64,
    rows: Vec<Vec<Value>>,
    bytes: usize,
    total: u64,
}

impl Page {
    fn new(skip: u64) -> Self {
        Self {
            skip,
            rows: Vec::new(),
            bytes: 0,
            total: 0,
        }
    }

    fn add<L: Line>(&mut self, line: &L) {
        self.total += 1;
        if self.total <= self.skip || self.bytes > ROWS_MAX_BYTES {
            return;
        }
        let Ok(Value::Object(mut fields)) = serde_json::to_value(line) else {
            unreachable!("a line is a struct of numbers and texts")
        };
        // What is empty in the file has no value.
        let value = |column: &&str| fields.remove(*column).filter(|value| value != "").unwrap_or_default();
        let row: Vec<Value> = L::COLUMNS.iter().map(value).collect();
        self.bytes += serde_json::to_string(&row).map_or(0, |text| text.len());
        self.rows.push(row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(handle: &str, delay_us: Option<u64>, internals: String) -> QdiscLine<'static> {
        QdiscLine {
            time_ns: 5,
            node: "h1",
            netns: 1,
            interface: "eth0",
            kind: "fq",
            handle: handle.into(),
            parent: "root".into(),
            queued_packets: 0,
            queued_bytes: 0,
            sent_packets: 0,
            sent_bytes: 0,
            dropped_packets: 0,
            overlimits: 0,
            requeues: 0,
            delay_us,
            internals,
        }
    }

    #[test]
    fn rows_are_in_the_order_of_columns_and_what_is_empty_has_no_value() {
        let mut page = Page::new(1);
        for (handle, delay_us) in [("1:", Some(1)), ("2:", None), ("3:", Some(u64::MAX))] {
            page.add(&line(handle, delay_us, String::new()));
        }
        assert_eq!(page.total, 3);
        let values = |name: &str| -> Vec<Value> {
            let at = QdiscLine::COLUMNS.iter().position(|&column| column == name);
            page.rows.iter().map(|row| row[at.unwrap()].clone()).collect()
        };
        assert_eq!(values("handle"), ["2:", "3:"]);
        assert_eq!(values("delay_us"), [Value::Null, u64::MAX.into()]);
        assert_eq!(values("internals"), [Value::Null, Value::Null]);
    }

    #[test]
    fn an_answer_has_as_many_rows_as_fit_in_a_frame() {
        let line = line("1:", None, "x".repeat(3 << 20));
        let (mut first, mut second) = (Page::new(0), Page::new(3));
        for _ in 0..5 {
            first.add(&line);
            second.add(&line);
        }
        assert_eq!((first.rows.len(), first.total), (3, 5));
        assert_eq!((second.rows.len(), second.total), (2, 5));
    }
}
