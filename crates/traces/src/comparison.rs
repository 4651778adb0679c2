//! Two traces side by side.

use crate::align::{Alignment, align};
use crate::metrics::{Distribution, Metrics, measure};
use crate::normal::{Field, Fields, Normal, Tolerance, sender, side};
use crate::trace::{Connection, Counts, Flow, Trace};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

/// Version of the JSON: raised when a field changes its meaning or goes.
const VERSION: u32 = 1;
const NS_PER_MS: f64 = 1e6;

/// What two traces have in common, and what not.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct Comparison {
    /// Version of this format; 1.
    pub version: u32,
    /// Whether all is equal within the tolerances.
    pub equal: bool,
    /// What counts as equal.
    pub tolerances: Tolerances,
    /// The first trace.
    pub a: Source,
    /// The second trace.
    pub b: Source,
    /// Connections of TCP that both have, in the order of the first trace.
    pub connections: Vec<Pair>,
    /// Flows of UDP and ICMP that both have, likewise.
    pub flows: Vec<FlowPair>,
    /// What has no partner.
    pub unmatched: Unmatched,
}

/// What counts as equal.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct Tolerances {
    /// Fields that may differ.
    pub ignored: Vec<Field>,
    /// Time stamps may differ by so many ticks.
    pub timestamp_ticks: u32,
    /// Times may differ by so much, ms; null: by anything.
    pub time_ms: Option<f64>,
}

/// A trace.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct Source {
    /// What was named.
    pub path: String,
    /// How much was read.
    pub counts: Counts,
    /// What whoever uses the result should know.
    pub warnings: Vec<String>,
}

/// Connections and flows of one trace that have no partner in the other: their names.
#[derive(Debug, Default, Serialize, schemars::JsonSchema)]
pub struct Unmatched {
    /// Of the first trace.
    pub a: Vec<String>,
    /// Of the second one.
    pub b: Vec<String>,
}

/// How a connection or flow of one trace found its partner in the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MatchedBy {
    /// The same addresses and ports.
    Ports,
    /// The same addresses and server port, and their order.
    Addresses,
    /// The same server port, and their order.
    ServerPort,
}

/// A connection in one of the traces.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct Side {
    /// `client > server`.
    pub name: String,
    /// Where it was captured.
    pub seen_at: String,
    /// Segments of both directions.
    pub packets: u64,
    /// What it achieved.
    pub metrics: Metrics,
}

/// A connection in both traces.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct Pair {
    /// Whether it is equal within the tolerances.
    pub equal: bool,
    /// How it was found in the second trace.
    pub matched_by: MatchedBy,
    /// In the first trace.
    pub a: Side,
    /// In the second one.
    pub b: Side,
    /// Segments from the start on that are the same.
    pub identical_prefix: u64,
    /// What comes behind them.
    pub first_difference: Option<Difference>,
    /// All that the client sent, aligned.
    pub client: Differences,
    /// All that the server sent, aligned.
    pub server: Differences,
    /// Of segments that both have: time since the connection's start in the second trace less that in the first, ms.
    pub time_difference_ms: Option<Distribution>,
    /// Segments of which a capture cut off payload that the other has: it was not compared.
    pub payloads_not_compared: u64,
    /// Values of the second trace divided by those of the first.
    pub ratio: Ratio,
    /// Which connections of the traces they are.
    #[serde(skip)]
    pub(crate) indexes: [usize; 2],
    /// Who is the client in the first trace is the server in the second.
    #[serde(skip)]
    pub(crate) turned: bool,
}

/// The first place at which a connection differs.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct Difference {
    /// Which segment of the connection in the first trace, from 1.
    pub packet_a: u64,
    /// Which one of the second trace it was compared with.
    pub packet_b: u64,
    /// What it is.
    pub text: String,
    /// In which fields they differ.
    pub fields: Vec<FieldDifference>,
    /// The segment of the first trace; null: it has no more.
    pub a: Option<Shown>,
    /// That of the second one.
    pub b: Option<Shown>,
}

/// A segment for people.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct Shown {
    /// Since the connection's start, ms.
    pub time_ms: f64,
    /// In a line.
    pub text: String,
    /// Whether it sends again what was sent before.
    pub retransmission: bool,
}

/// What both have in a field.
#[derive(Debug, PartialEq, Serialize, schemars::JsonSchema)]
#[allow(missing_docs)]
pub struct FieldDifference {
    pub field: Field,
    pub a: String,
    pub b: String,
}

/// All segments of one direction, each with its counterpart.
#[derive(Debug, Default, Serialize, schemars::JsonSchema)]
pub struct Differences {
    /// The same in both.
    pub identical: u64,
    /// The same bytes or acknowledgement with other values in some fields.
    pub different: u64,
    /// In how many of these each field differs.
    pub fields: BTreeMap<String, u64>,
    /// In the first trace only.
    pub missing: u64,
    /// In the second trace only.
    pub additional: u64,
    /// Of those in both, how many are in another order.
    pub moved: u64,
}

/// Values of the second trace divided by those of the first; null where there is none.
#[derive(Debug, PartialEq, Serialize, schemars::JsonSchema)]
#[allow(missing_docs)]
pub struct Ratio {
    pub duration: Option<f64>,
    pub handshake: Option<f64>,
    pub client: SentRatio,
    pub server: SentRatio,
}

/// Of what one side sent.
#[derive(Debug, PartialEq, Serialize, schemars::JsonSchema)]
#[allow(missing_docs)]
pub struct SentRatio {
    pub goodput: Option<f64>,
    pub rtt_mean: Option<f64>,
    pub rtt_median: Option<f64>,
    pub retransmissions: Option<f64>,
}

/// A flow in one of the traces.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct FlowSide {
    /// `client > server`; the client sent the first packet.
    pub name: String,
    /// Where it was captured.
    pub seen_at: String,
    /// Packets of the client, and of the server.
    pub packets: [u64; 2],
    /// Bytes of them, from IP's header on.
    pub bytes: [u64; 2],
    /// From the first packet to the last, ms.
    pub duration_ms: f64,
    /// Of pings.
    pub rtt_ms: Option<PingTimes>,
}

/// Round-trip times as ping prints them, ms.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, schemars::JsonSchema)]
#[allow(missing_docs)]
pub struct PingTimes {
    pub count: u64,
    pub min: f64,
    pub avg: f64,
    pub max: f64,
    /// Standard deviation.
    pub mdev: f64,
}

/// A flow in both traces.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct FlowPair {
    /// "udp", "echo" (of ping) or "icmp".
    pub protocol: String,
    /// Whether packets and bytes are as many; times are told only.
    pub equal: bool,
    /// How it was found in the second trace.
    pub matched_by: MatchedBy,
    /// In the first trace.
    pub a: FlowSide,
    /// In the second one.
    pub b: FlowSide,
}

/// A name for people.
pub fn name(client: SocketAddr, server: SocketAddr) -> String {
    // Ping has no ports.
    if client.port() == 0 && server.port() == 0 {
        return format!("{} > {}", client.ip(), server.ip());
    }
    format!("{client} > {server}")
}

/// Compares two traces; `named` says which connections, by a part of their names.
pub fn compare(a: (&str, &Trace), b: (&str, &Trace), named: Option<&str>, tolerance: &Tolerance) -> Comparison {
    let wanted = |client, server| named.is_none_or(|part| name(client, server).contains(part));
    let connections = [a.1, b.1].map(|trace| chosen(&trace.connections, |one| wanted(one.client, one.server)));
    let flows = [a.1, b.1].map(|trace| chosen(&trace.flows, |one| wanted(one.client, one.server)));
    let ends: [Vec<Ends>; 2] = [0, 1].map(|index| {
        let all = connections[index].iter();
        all.map(|(_, one)| ("tcp", one.client, one.server)).collect()
    });
    let flow_ends: [Vec<Ends>; 2] = [0, 1].map(|index| {
        let all = flows[index].iter();
        all.map(|(_, one)| (one.protocol, one.client, one.server)).collect()
    });
    let matched = match_up(&ends[0], &ends[1]);
    let flows_matched = match_up(&flow_ends[0], &flow_ends[1]);
    let mut unmatched = Unmatched::default();
    for (matched, ends) in [(&matched, &ends), (&flows_matched, &flow_ends)] {
        let label = |(protocol, client, server): &Ends| format!("{protocol} {}", name(*client, *server));
        unmatched
            .a
            .extend(matched.only_a.iter().map(|index| label(&ends[0][*index])));
        unmatched
            .b
            .extend(matched.only_b.iter().map(|index| label(&ends[1][*index])));
    }
    let pairs = matched.pairs.iter();
    let connections: Vec<Pair> = pairs
        .map(|(of_a, of_b, by)| {
            let indexes = [connections[0][*of_a].0, connections[1][*of_b].0];
            pair((a.1, b.1), indexes, *by, tolerance)
        })
        .collect();
    let pairs = flows_matched.pairs.iter();
    let flows: Vec<FlowPair> = pairs
        .map(|(of_a, of_b, by)| flow_pair(flows[0][*of_a].1, flows[1][*of_b].1, *by))
        .collect();
    let equal = connections.iter().all(|pair| pair.equal)
        && flows.iter().all(|pair| pair.equal)
        && unmatched.a.is_empty()
        && unmatched.b.is_empty();
    let source = |(path, trace): (&str, &Trace), own: fn(&Pair) -> &Side| Source {
        path: path.to_owned(),
        counts: trace.counts.clone(),
        warnings: trace
            .warnings
            .iter()
            .cloned()
            .chain(offloads(&connections, own))
            .collect(),
    };
    let (a, b) = (source(a, |pair| &pair.a), source(b, |pair| &pair.b));
    Comparison {
        version: VERSION,
        equal,
        tolerances: Tolerances {
            ignored: tolerance.ignored.iter().collect(),
            timestamp_ticks: tolerance.timestamp_ticks,
            time_ms: tolerance.time_ns.map(|time_ns| time_ns as f64 / NS_PER_MS),
        },
        a,
        b,
        connections,
        flows,
        unmatched,
    }
}

/// Those that are wanted, each with its index.
fn chosen<T>(all: &[T], wanted: impl Fn(&T) -> bool) -> Vec<(usize, &T)> {
    all.iter().enumerate().filter(|(_, one)| wanted(one)).collect()
}

/// A warning if a network card cuts segments: the other trace may show them cut.
fn offloads(connections: &[Pair], own: fn(&Pair) -> &Side) -> Option<String> {
    let metrics = connections.iter().map(|pair| &own(pair).metrics);
    let count: u64 = metrics
        .map(|one| one.client.larger_than_mss + one.server.larger_than_mss)
        .sum();
    (count > 0).then(|| {
        format!(
            "{count} segments are longer than the receiver's MSS: the network card cuts or joins them (TSO, GRO); \
             `ethtool -K INTERFACE tso off gso off gro off` before capturing shows them as they cross the wire"
        )
    })
}

type Ends = (&'static str, SocketAddr, SocketAddr);

/// What was matched with what: indexes.
struct Matched {
    pairs: Vec<(usize, usize, MatchedBy)>,
    only_a: Vec<usize>,
    only_b: Vec<usize>,
}

/// By addresses and ports, then with other client ports, then by the server's port alone; each time in their order.
fn match_up(a: &[Ends], b: &[Ends]) -> Matched {
    type Likeness = (
        &'static str,
        Option<SocketAddr>,
        Option<IpAddr>,
        Option<SocketAddr>,
        u16,
    );
    let by_ports = |(protocol, client, server): &Ends| -> Likeness {
        // Who opened a connection is not known if its start was not captured.
        let (small, large) = (client.min(server), client.max(server));
        (*protocol, Some(*small), None, Some(*large), 0)
    };
    let by_addresses =
        |(protocol, client, server): &Ends| -> Likeness { (*protocol, None, Some(client.ip()), Some(*server), 0) };
    let by_server_port = |(protocol, _, server): &Ends| -> Likeness { (*protocol, None, None, None, server.port()) };
    let likeness = |by: MatchedBy, ends: &Ends| match by {
        MatchedBy::Ports => by_ports(ends),
        MatchedBy::Addresses => by_addresses(ends),
        MatchedBy::ServerPort => by_server_port(ends),
    };
    let (mut only_a, mut only_b): (Vec<usize>, Vec<usize>) = ((0..a.len()).collect(), (0..b.len()).collect());
    let mut pairs = Vec::new();
    for by in [MatchedBy::Ports, MatchedBy::Addresses, MatchedBy::ServerPort] {
        let mut waiting: HashMap<Likeness, VecDeque<usize>> = HashMap::new();
        for index in &only_b {
            waiting.entry(likeness(by, &b[*index])).or_default().push_back(*index);
        }
        only_a.retain(|index| {
            let partner = waiting.get_mut(&likeness(by, &a[*index])).and_then(VecDeque::pop_front);
            pairs.extend(partner.map(|partner| (*index, partner, by)));
            partner.is_none()
        });
        only_b = waiting.into_values().flatten().collect();
        only_b.sort_unstable();
    }
    pairs.sort_unstable_by_key(|(of_a, ..)| *of_a);
    Matched { pairs, only_a, only_b }
}

fn pair(traces: (&Trace, &Trace), indexes: [usize; 2], matched_by: MatchedBy, tolerance: &Tolerance) -> Pair {
    let (a, b) = (&traces.0.connections[indexes[0]], &traces.1.connections[indexes[1]]);
    // Who opened it is a guess where the start was not captured.
    let turned = matched_by == MatchedBy::Ports && a.client != b.client;
    let b = if turned { &b.turned() } else { b };
    let (normal_a, normal_b) = (Normal::new(a), Normal::new(b));
    let aligned = [true, false].map(|from_client| align(&normal_a, &normal_b, from_client));
    let (identical_prefix, at) = prefix(&normal_a, &normal_b, tolerance);
    let mut again = [Vec::new(), Vec::new()];
    let metrics = [&normal_a, &normal_b].map(|normal| {
        let own = std::ptr::eq(normal, &normal_b);
        measure(normal, |index, _, place| {
            if place.again {
                again[usize::from(own)].push(index);
            }
        })
    });
    let first_difference = at.map(|at| at.explain(&normal_a, &normal_b, tolerance, &again));
    let mut times_ms = Vec::new();
    let mut payloads_not_compared = 0;
    let [client, server] = [0, 1].map(|index| {
        let counted = count(&normal_a, &normal_b, &aligned[index], tolerance);
        times_ms.extend(counted.1);
        payloads_not_compared += counted.2;
        counted.0
    });
    let [metrics_a, metrics_b] = metrics;
    let ratio = Ratio::new(&metrics_a, &metrics_b);
    let side = |connection: &Connection, metrics| Side {
        name: name(connection.client, connection.server),
        seen_at: connection.seen_at.clone(),
        packets: connection.segments.len() as u64,
        metrics,
    };
    Pair {
        equal: first_difference.is_none(),
        matched_by,
        a: side(a, metrics_a),
        b: side(b, metrics_b),
        identical_prefix,
        first_difference,
        client,
        server,
        time_difference_ms: Distribution::new(times_ms),
        payloads_not_compared,
        ratio,
        indexes,
        turned,
    }
}

/// What the pairs of one direction are like, their differences in time in ms, and how many payloads could not be compared.
fn count(a: &Normal<'_>, b: &Normal<'_>, aligned: &Alignment, tolerance: &Tolerance) -> (Differences, Vec<f64>, u64) {
    let mut found = Differences {
        missing: aligned.only_a.len() as u64,
        additional: aligned.only_b.len() as u64,
        moved: aligned.moved,
        ..Differences::default()
    };
    let mut fields = [0u64; Field::ALL.len()];
    let mut not_compared = 0;
    let mut times_ms = Vec::with_capacity(aligned.pairs.len());
    for (of_a, of_b) in &aligned.pairs {
        let (one, other) = (a.get(*of_a), b.get(*of_b));
        let differing = one.differing(&other, tolerance);
        if differing.is_empty() {
            found.identical += 1;
        } else {
            found.different += 1;
            differing.iter().for_each(|field| fields[field as usize] += 1);
        }
        not_compared += u64::from(one.segment.payload_kept != other.segment.payload_kept);
        times_ms.push((other.time_ns - one.time_ns) as f64 / NS_PER_MS);
    }
    let counts = Field::ALL.into_iter().map(|field| (field, fields[field as usize]));
    let present = counts.filter(|(_, count)| *count > 0);
    found.fields = present.map(|(field, count)| (field.name().to_owned(), count)).collect();
    (found, times_ms, not_compared)
}

/// Where two connections differ first.
struct At {
    a: Option<usize>,
    b: Option<usize>,
    fields: Fields,
}

/// How many segments are the same from the start on, and what comes then.
///
/// Where the order of both sides may differ, each segment is compared with the one of the same side that has the same number.
fn prefix(a: &Normal<'_>, b: &Normal<'_>, tolerance: &Tolerance) -> (u64, Option<At>) {
    let in_order = !tolerance.ignored.has(Field::Order);
    let of_b: [Vec<usize>; 2] = [true, false].map(|from_client| {
        let segments = b.connection.segments.iter().enumerate();
        let own = segments.filter(|(_, segment)| segment.from_client == from_client);
        own.map(|(index, _)| index).collect()
    });
    let mut next = [0; 2];
    for index in 0..a.len() {
        let one = a.get(index);
        let own = side(one.segment.from_client);
        let partner = of_b[own].get(next[own]).copied();
        let same = partner.map(|partner| one.differing(&b.get(partner), tolerance));
        let at = match (partner, same) {
            (Some(partner), Some(fields)) if fields.is_empty() => {
                if !in_order || partner == index {
                    next[own] += 1;
                    continue;
                }
                // The same segment, but the other side's comes first.
                At {
                    a: Some(index),
                    b: Some(index),
                    fields: [Field::Order].into_iter().collect(),
                }
            }
            (Some(partner), Some(fields)) if !in_order || partner == index => At {
                a: Some(index),
                b: Some(partner),
                fields,
            },
            _ => At {
                a: Some(index),
                b: Some(index).filter(|index| in_order && *index < b.len()),
                fields: [Field::Sender].into_iter().collect(),
            },
        };
        return (index as u64, Some(at));
    }
    let rest = [0, 1].map(|own| of_b[own].get(next[own]).copied());
    let at = rest.into_iter().flatten().min().map(|index| At {
        a: None,
        b: Some(index),
        fields: Fields::default(),
    });
    (a.len() as u64, at)
}

impl At {
    fn explain(&self, a: &Normal<'_>, b: &Normal<'_>, tolerance: &Tolerance, again: &[Vec<usize>; 2]) -> Difference {
        let shown = |trace: &Normal<'_>, index: Option<usize>, again: &[usize]| {
            index.map(|index| {
                let one = trace.get(index);
                Shown {
                    time_ms: one.time_ns as f64 / NS_PER_MS,
                    text: one.describe(),
                    retransmission: again.binary_search(&index).is_ok(),
                }
            })
        };
        let mut fields = Vec::new();
        let mut told = self.fields;
        let text = match (self.a, self.b) {
            (Some(of_a), Some(of_b)) => {
                let (one, other) = (a.get(of_a), b.get(of_b));
                let who = |relative: &crate::normal::Relative<'_>| sender(relative.segment.from_client);
                let text = if told.has(Field::Order) {
                    format!(
                        "the {}'s packet comes later in B: the {}'s is captured before it",
                        who(&one),
                        who(&other)
                    )
                } else if one.segment.from_client != other.segment.from_client {
                    told = one.differing(&other, tolerance);
                    format!("the {} sends in A, the {} in B", who(&one), who(&other))
                } else {
                    format!("the {} sends in both", who(&one))
                };
                fields.extend(told.iter().map(|field| FieldDifference {
                    field,
                    a: one.value(field),
                    b: other.value(field),
                }));
                text
            }
            (Some(of_a), None) => {
                format!(
                    "the {} sends in A, B has no more packets",
                    who_sends(a, of_a, tolerance)
                )
            }
            (None, Some(of_b)) => {
                format!(
                    "the {} sends in B, A has no more packets",
                    who_sends(b, of_b, tolerance)
                )
            }
            (None, None) => unreachable!("there is no difference without a packet"),
        };
        let (shown_a, shown_b) = (shown(a, self.a, &again[0]), shown(b, self.b, &again[1]));
        if fields.is_empty() {
            let text = |shown: &Option<Shown>| shown.as_ref().map_or("none".into(), |one| one.text.clone());
            fields.push(FieldDifference {
                field: Field::Presence,
                a: text(&shown_a),
                b: text(&shown_b),
            });
        }
        Difference {
            packet_a: self.a.unwrap_or(a.len()) as u64 + 1,
            packet_b: self.b.unwrap_or(b.len()) as u64 + 1,
            text,
            fields,
            a: shown_a,
            b: shown_b,
        }
    }
}

/// Who sends what only one trace has; where the order may differ, others may come behind it.
fn who_sends(trace: &Normal<'_>, index: usize, tolerance: &Tolerance) -> String {
    let who = sender(trace.get(index).segment.from_client);
    let of_it = if tolerance.ignored.has(Field::Order) {
        " (of this side)"
    } else {
        ""
    };
    format!("{who}{of_it}")
}

impl Ratio {
    fn new(a: &Metrics, b: &Metrics) -> Self {
        Self {
            duration: ratio(Some(a.duration_ms), Some(b.duration_ms)),
            handshake: ratio(a.handshake_ms, b.handshake_ms),
            client: SentRatio::new(&a.client, &b.client),
            server: SentRatio::new(&a.server, &b.server),
        }
    }
}

impl SentRatio {
    fn new(a: &crate::metrics::Sent, b: &crate::metrics::Sent) -> Self {
        let rtt = |of: fn(&Distribution) -> f64| ratio(a.rtt_ms.as_ref().map(of), b.rtt_ms.as_ref().map(of));
        Self {
            goodput: ratio(a.goodput_bps, b.goodput_bps),
            rtt_mean: rtt(|one| one.mean),
            rtt_median: rtt(|one| one.median),
            retransmissions: ratio(Some(a.retransmissions as f64), Some(b.retransmissions as f64)),
        }
    }
}

/// B by A; none where A is 0 or one is not known.
pub fn ratio(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    Some(b? / a.filter(|a| *a != 0.0)?)
}

fn flow_pair(a: &Flow, b: &Flow, matched_by: MatchedBy) -> FlowPair {
    FlowPair {
        protocol: a.protocol.into(),
        equal: a.packets == b.packets && a.bytes == b.bytes,
        matched_by,
        a: flow_side(a),
        b: flow_side(b),
    }
}

fn flow_side(flow: &Flow) -> FlowSide {
    let samples: Vec<f64> = flow.rtt_ns.iter().map(|rtt_ns| *rtt_ns as f64 / NS_PER_MS).collect();
    FlowSide {
        name: name(flow.client, flow.server),
        seen_at: flow.seen_at.clone(),
        packets: flow.packets,
        bytes: flow.bytes,
        duration_ms: flow.last_ns.saturating_sub(flow.first_ns) as f64 / NS_PER_MS,
        rtt_ms: Distribution::new(samples).map(|all| PingTimes {
            count: all.count,
            min: all.min,
            avg: all.mean,
            max: all.max,
            mdev: all.sd,
        }),
    }
}
