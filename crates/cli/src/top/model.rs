//! What `windtunnel top` knows of a run: the last two states of it, and what came of each connection and link over time.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use windtunnel_control::{Broken, DirectionState, State};
use windtunnel_results::DirectionSummary;

const NS_PER_S: f64 = 1e9;
const BITS: f64 = 8.0;
/// Points that are kept of each series: as wide as a wide terminal.
const HISTORY: usize = 240;

/// One direction of a link over the last interval of virtual time.
#[derive(Clone, Debug)]
pub struct LinkRow {
    /// Its ends, "node:interface".
    pub from: String,
    pub to: String,
    pub now: DirectionState,
    /// Bits of frames that arrived, a second.
    pub throughput_bps: f64,
    pub frames_per_s: f64,
    /// Frames dropped since the run began, by cause.
    pub drops: BTreeMap<String, u64>,
    /// Of these, in the last interval.
    pub new_drops: u64,
}

impl LinkRow {
    /// How much of its rate is used; frames' preambles and gaps are not in the throughput.
    pub fn utilisation(&self) -> f64 {
        self.throughput_bps / self.now.rate_bps.max(1) as f64
    }
}

/// A row of tcp.csv.
#[derive(Clone, Debug)]
pub struct Connection(pub serde_json::Map<String, serde_json::Value>);

impl Connection {
    /// A number of it; none: it has no such value yet.
    pub fn number(&self, column: &str) -> Option<f64> {
        self.0.get(column)?.as_f64()
    }

    pub fn text(&self, column: &str) -> &str {
        self.0
            .get(column)
            .and_then(serde_json::Value::as_str)
            .unwrap_or_default()
    }

    /// An end of it, as in `10.0.0.1:80` and `[fd00::1]:80`.
    pub fn end(&self, which: &str) -> String {
        let address = self.text(&format!("{which}_address"));
        let port = self.number(&format!("{which}_port")).unwrap_or(0.0);
        match address.contains(':') {
            true => format!("[{address}]:{port}"),
            false => format!("{address}:{port}"),
        }
    }

    /// What it is called as long as it lives.
    pub fn key(&self) -> String {
        format!("{} {} {}", self.text("node"), self.end("local"), self.end("remote"))
    }
}

/// Values over time, the newest last.
pub type Series = VecDeque<u64>;

/// Columns of connections that are kept over time.
pub const KEPT: [&str; 4] = ["cwnd_packets", "in_flight_packets", "srtt_us", "delivery_rate_bps"];

/// All that is known.
#[derive(Debug)]
pub struct Model {
    pub scenario: String,
    pub state: State,
    pub links: Vec<LinkRow>,
    pub connections: Vec<Connection>,
    /// System calls a second of virtual time, by node.
    pub calls_per_s: Vec<f64>,
    /// Seconds of virtual time in a second of the host's.
    pub speed: f64,
    /// By connection, in the order of [`KEPT`].
    pub histories: BTreeMap<String, [Series; KEPT.len()]>,
    /// Where time stands by the watcher's condition.
    pub broken: Option<Broken>,
    heard: Instant,
}

impl Model {
    /// Of the first state, which has no rates yet.
    pub fn new(scenario: String, state: State, heard: Instant) -> Self {
        let mut model = Self {
            scenario,
            links: Vec::new(),
            connections: Vec::new(),
            calls_per_s: Vec::new(),
            speed: 0.0,
            histories: BTreeMap::new(),
            broken: None,
            heard,
            state: state.clone(),
        };
        model.take(state, heard);
        model
    }

    /// The next state came.
    pub fn take(&mut self, mut state: State, heard: Instant) {
        let virtual_s = state.at_ns.saturating_sub(self.state.at_ns) as f64 / NS_PER_S;
        let wall = heard.saturating_duration_since(self.heard);
        if wall > Duration::ZERO {
            self.speed = virtual_s / wall.as_secs_f64();
        }
        let rate = |now: u64, before: u64| match virtual_s > 0.0 {
            true => now.saturating_sub(before) as f64 / virtual_s,
            false => 0.0,
        };
        let before = &self.state;
        let calls = state.nodes.iter().zip(&before.nodes);
        self.calls_per_s = calls
            .map(|(node, before)| rate(node.syscalls, before.syscalls))
            .collect();
        let mut links = Vec::new();
        for (link, before) in state.links.iter().zip(&before.links) {
            let (a, b) = (&link.counters.a, &link.counters.b);
            let both = [
                (a, b, &link.counters.a_to_b, &before.counters.a_to_b, link.a_to_b_now),
                (b, a, &link.counters.b_to_a, &before.counters.b_to_a, link.b_to_a_now),
            ];
            for (from, to, counters, before, now) in both {
                let dropped = |direction: &DirectionSummary| direction.drops.values().sum::<u64>();
                links.push(LinkRow {
                    from: from.clone(),
                    to: to.clone(),
                    now,
                    throughput_bps: rate(counters.delivered_bytes, before.delivered_bytes) * BITS,
                    frames_per_s: rate(counters.delivered_frames, before.delivered_frames),
                    drops: counters.drops.clone(),
                    new_drops: dropped(counters).saturating_sub(dropped(before)),
                });
            }
        }
        self.links = links;
        self.connections = std::mem::take(&mut state.tcp).into_iter().map(Connection).collect();
        // Those who listen are no connections.
        self.connections.retain(|one| one.text("state") != "LISTEN");
        self.keep_histories();
        self.state = state;
        self.heard = heard;
    }

    fn keep_histories(&mut self) {
        let mut kept = BTreeMap::new();
        for connection in &self.connections {
            let key = connection.key();
            let mut series = self.histories.remove(&key).unwrap_or_default();
            for (series, column) in series.iter_mut().zip(KEPT) {
                if series.len() == HISTORY {
                    series.pop_front();
                }
                series.push_back(connection.number(column).unwrap_or(0.0) as u64);
            }
            kept.insert(key, series);
        }
        self.histories = kept;
    }
}

/// A number with a prefix of the SI: 12.3 k, 941 M.
pub fn si(value: f64) -> String {
    const PREFIXES: [(f64, &str); 4] = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    let found = PREFIXES.iter().find(|(factor, _)| value >= *factor);
    let (shown, prefix) = found.map_or((value, ""), |(factor, prefix)| (value / factor, *prefix));
    match shown {
        _ if shown >= 100.0 || (prefix.is_empty() && shown.fract() == 0.0) => format!("{shown:.0} {prefix}"),
        _ if shown >= 10.0 => format!("{shown:.1} {prefix}"),
        _ => format!("{shown:.2} {prefix}"),
    }
}

/// A span of time in a unit that suits it.
pub fn span(ns: f64) -> String {
    match ns {
        _ if ns >= 1e9 => format!("{:.2} s", ns / 1e9),
        _ if ns >= 1e6 => format!("{:.1} ms", ns / 1e6),
        _ if ns >= 1e3 => format!("{:.1} us", ns / 1e3),
        _ => format!("{ns:.0} ns"),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use windtunnel_control::{LinkState, NodeState, PeerState, PortState, ProgramState};
    use windtunnel_results::{LinkSummary, PortSummary};

    /// A run at `at_ns` in which h1 has sent so many bytes, in frames of 1,000, to h2 over TCP.
    pub fn state(at_ns: u64, bytes: u64, cwnd_packets: u32) -> State {
        let now = DirectionState {
            up: true,
            rate_bps: 10_000_000,
            delay_ns: 20_000_000,
            queue_frames: 7,
            queue_bytes: 7_000,
            wait_ns: 5_600_000,
        };
        let counters = DirectionSummary {
            delivered_bytes: bytes,
            delivered_frames: bytes / 1000,
            drops: [("queue_full".to_owned(), bytes / 100_000)].into(),
            ..DirectionSummary::default()
        };
        let tcp = serde_json::json!({
            "node": "h1", "local_address": "10.0.0.1", "local_port": 40000, "remote_address": "fd00::2", "remote_port": 80,
            "state": "ESTABLISHED", "congestion_control": "cubic", "cwnd_packets": cwnd_packets, "in_flight_packets": 9,
            "srtt_us": 41_000, "delivery_rate_bps": 9_410_000, "retransmits_total": 3, "ssthresh_packets": null,
        });
        let serde_json::Value::Object(tcp) = tcp else {
            unreachable!("it is an object")
        };
        State {
            at_ns,
            stop_ns: 60_000_000_000,
            held: None,
            nodes: vec![
                NodeState {
                    node: "h1".into(),
                    syscalls: at_ns / 1_000_000,
                    ended: 1,
                    programs: vec![ProgramState {
                        pid: 12,
                        command: vec!["iperf3".into(), "-c".into(), "h2".into()],
                        start_ns: 1_000_000_000,
                    }],
                },
                NodeState {
                    node: "h2".into(),
                    syscalls: 0,
                    ended: 0,
                    programs: vec![],
                },
            ],
            links: vec![LinkState {
                counters: LinkSummary {
                    a: "h1:eth0".into(),
                    b: "h2:eth0".into(),
                    a_to_b: counters,
                    b_to_a: DirectionSummary::default(),
                },
                a_to_b_now: now,
                b_to_a_now: now,
            }],
            tcp: vec![tcp],
            lateness: None,
            ports: vec![PortState {
                counters: PortSummary {
                    name: "lan".into(),
                    what: "frames in UDP".into(),
                    frames_in: 12,
                    bytes_in: 1200,
                    frames_out: 7,
                    bytes_out: 700,
                    drops: [("in_lost".to_owned(), 3)].into(),
                },
                peer: Some(PeerState {
                    connected: true,
                    name: Some("wan".into()),
                    version: Some("windtunnel 0.9.0".into()),
                    seen_ago_ns: Some(400_000_000),
                    lost_in_frames: Some(3),
                    lost_out_frames: Some(1),
                }),
            }],
        }
    }

    /// Two states, two virtual seconds and half a second of the host's apart.
    pub fn model() -> Model {
        let start = Instant::now();
        let mut model = Model::new("bottleneck".into(), state(1_000_000_000, 1_000_000, 10), start);
        model.take(state(3_000_000_000, 3_500_000, 24), start + Duration::from_millis(500));
        model
    }

    #[test]
    fn rates_are_of_virtual_time() {
        let model = model();
        assert_eq!(model.speed, 4.0);
        let [there, back] = &model.links[..] else {
            panic!("one link has two directions")
        };
        assert_eq!(there.throughput_bps, 10_000_000.0);
        assert_eq!(there.utilisation(), 1.0);
        assert_eq!((there.frames_per_s, there.new_drops), (1250.0, 25));
        assert_eq!((back.throughput_bps, back.from.as_str()), (0.0, "h2:eth0"));
        assert_eq!(model.calls_per_s, [1000.0, 0.0]);
    }

    #[test]
    fn while_time_stands_still_nothing_has_a_rate() {
        let start = Instant::now();
        let mut model = Model::new("x".into(), state(5, 100, 1), start);
        model.take(state(5, 100, 1), start + Duration::from_secs(1));
        assert_eq!((model.speed, model.links[0].throughput_bps), (0.0, 0.0));
    }

    #[test]
    fn a_connection_is_followed_as_long_as_it_lives() {
        let mut model = model();
        let key = model.connections[0].key();
        assert_eq!(key, "h1 10.0.0.1:40000 [fd00::2]:80");
        assert_eq!(model.histories[&key][0], [10, 24]);
        model.take(
            State {
                tcp: vec![],
                ..state(4_000_000_000, 0, 0)
            },
            Instant::now(),
        );
        assert!(model.histories.is_empty());
    }

    #[test]
    fn numbers_fit_into_columns() {
        assert_eq!(si(0.0), "0 ");
        assert_eq!(si(999.0), "999 ");
        assert_eq!(si(9_410_000.0), "9.41 M");
        assert_eq!(si(941e6), "941 M");
        assert_eq!(span(5_600_000.0), "5.6 ms");
    }
}
