//! What a connection achieved: goodput, round-trip times, retransmissions.

use crate::normal::{Normal, Relative, side};
use crate::packet::flag;
use serde::Serialize;
use std::collections::VecDeque;

const NS_PER_MS: f64 = 1e6;

/// A distribution. Percentiles are nearest ranks.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, schemars::JsonSchema)]
#[allow(missing_docs)]
pub struct Distribution {
    /// Samples.
    pub count: u64,
    pub min: f64,
    pub median: f64,
    pub mean: f64,
    pub p95: f64,
    pub p99: f64,
    pub max: f64,
    /// Standard deviation of all samples.
    pub sd: f64,
}

impl Distribution {
    /// Of samples in any order; none: there are none.
    pub fn new(mut samples: Vec<f64>) -> Option<Self> {
        samples.sort_by(f64::total_cmp);
        let (first, last) = (*samples.first()?, *samples.last()?);
        let count = samples.len() as f64;
        let rank = |part: f64| samples[((part * count).ceil() as usize).clamp(1, samples.len()) - 1];
        let middle = samples.len() / 2;
        let median = if samples.len() % 2 == 1 {
            samples[middle]
        } else {
            f64::midpoint(samples[middle - 1], samples[middle])
        };
        let mean = samples.iter().sum::<f64>() / count;
        let variance = samples.iter().map(|sample| (sample - mean).powi(2)).sum::<f64>() / count;
        Some(Self {
            count: samples.len() as u64,
            min: first,
            median,
            mean,
            p95: rank(0.95),
            p99: rank(0.99),
            max: last,
            sd: variance.sqrt(),
        })
    }
}

/// What one side sent, and what became of it.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Sent {
    /// Segments.
    pub packets: u64,
    /// Bytes of payload in them.
    pub payload_bytes: u64,
    /// Bytes of payload that the other side acknowledged.
    pub acked_bytes: u64,
    /// These, by the time from the first payload to the last acknowledgement of new bytes, bit/s.
    pub goodput_bps: Option<f64>,
    /// Segments with sequence numbers that were sent before.
    pub retransmissions: u64,
    /// Time from a segment to its acknowledgement where the capture was made, ms; without those that were retransmitted (Karn).
    pub rtt_ms: Option<Distribution>,
    /// Segments longer than the other side's MSS: a network card cut them, or put them together, beyond where the capture was made.
    pub larger_than_mss: u64,
}

/// What a connection achieved.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Metrics {
    /// From the first segment to the last, ms.
    pub duration_ms: f64,
    /// From the client's first SYN to its acknowledgement of the server's, ms.
    pub handshake_ms: Option<f64>,
    /// What the client sent.
    pub client: Sent,
    /// What the server sent.
    pub server: Sent,
}

/// One direction, as it is read.
#[derive(Debug, Default)]
struct Stream {
    packets: u64,
    payload_bytes: u64,
    retransmissions: u64,
    larger_than_mss: u64,
    /// Position after the last byte that was sent, and the number that it has.
    highest: Option<i64>,
    /// Position that is acknowledged.
    acked: Option<i64>,
    first_payload_ns: Option<i64>,
    last_acked_ns: i64,
    /// Ends and times of segments that were sent once and are not acknowledged.
    in_flight: VecDeque<(i64, i64)>,
    fin: Option<i64>,
    rtt_ms: Vec<f64>,
}

/// What a segment is to its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// Position of its first byte in the stream, beyond 4 GiB too.
    pub start: i64,
    /// Whether some of it was sent before.
    pub again: bool,
}

/// The position nearest to a known one that has this number.
fn unwrapped(number: u32, near: Option<i64>) -> i64 {
    let near = near.unwrap_or_default();
    near + i64::from(number.wrapping_sub(near as u32) as i32)
}

impl Stream {
    fn sent(&mut self, one: &Relative<'_>, mss: Option<u16>) -> Place {
        let segment = one.segment;
        self.packets += 1;
        self.payload_bytes += u64::from(segment.payload_length);
        self.larger_than_mss += u64::from(mss.is_some_and(|mss| segment.payload_length > u32::from(mss)));
        let start = unwrapped(one.seq, self.highest);
        let end = start + i64::from(segment.span());
        let highest = self.highest.unwrap_or(start);
        let mut place = Place { start, again: false };
        if end == start || segment.has(flag::RST) {
            return place;
        }
        if segment.payload_length > 0 {
            self.first_payload_ns.get_or_insert(one.time_ns);
        }
        if segment.has(flag::FIN) {
            self.fin = Some(end);
        }
        let keeps_alive = segment.span() == 1 && segment.payload_length == 1 && end == highest;
        if start < highest && !keeps_alive {
            place.again = true;
            self.retransmissions += 1;
            // Acknowledgements of what is in flight may have waited for this.
            self.in_flight.clear();
        } else if start >= highest {
            self.in_flight.push_back((end, one.time_ns));
        }
        self.highest = Some(highest.max(end));
        place
    }

    fn acknowledged(&mut self, one: &Relative<'_>) {
        let position = unwrapped(one.ack, self.acked.or(self.highest));
        if self.acked.is_some_and(|acked| position <= acked) {
            return;
        }
        let known = self.highest.is_some_and(|highest| position <= highest);
        self.acked = Some(position);
        let mut sent_ns = None;
        while let Some((_, time_ns)) = self.in_flight.front().filter(|(end, _)| *end <= position) {
            sent_ns = Some(*time_ns);
            self.in_flight.pop_front();
        }
        if known {
            self.last_acked_ns = one.time_ns;
            self.rtt_ms
                .extend(sent_ns.map(|sent_ns| (one.time_ns - sent_ns) as f64 / NS_PER_MS));
        }
    }

    fn finish(self) -> Sent {
        let position = self.acked.unwrap_or_default().min(self.highest.unwrap_or_default());
        let ends = 1 + i64::from(self.fin.is_some_and(|fin| position >= fin));
        let acked_bytes = u64::try_from(position - ends).unwrap_or_default();
        let span_ns = self.first_payload_ns.map_or(0, |first| self.last_acked_ns - first);
        let goodput_bps = (acked_bytes > 0 && span_ns > 0).then(|| acked_bytes as f64 * 8e9 / span_ns as f64);
        Sent {
            packets: self.packets,
            payload_bytes: self.payload_bytes,
            acked_bytes,
            goodput_bps,
            retransmissions: self.retransmissions,
            rtt_ms: Distribution::new(self.rtt_ms),
            larger_than_mss: self.larger_than_mss,
        }
    }
}

/// Measures a connection; each segment's place in its stream is told in their order.
pub(crate) fn measure(connection: &Normal<'_>, mut told: impl FnMut(usize, &Relative<'_>, Place)) -> Metrics {
    let mut streams = [Stream::default(), Stream::default()];
    let mss = connection.mss();
    let (mut last_ns, mut first_ns) = (i64::MIN, i64::MAX);
    let mut syn_ns = None;
    let mut handshake_ns = None;
    for (index, one) in connection.iter().enumerate() {
        let segment = one.segment;
        (first_ns, last_ns) = (first_ns.min(one.time_ns), last_ns.max(one.time_ns));
        let (own, peer) = (side(segment.from_client), side(!segment.from_client));
        if segment.has(flag::ACK) && !segment.has(flag::RST) {
            streams[peer].acknowledged(&one);
        }
        let place = streams[own].sent(&one, mss[peer]);
        told(index, &one, place);
        match (segment.from_client, segment.has(flag::SYN)) {
            (true, true) => _ = syn_ns.get_or_insert(one.time_ns),
            (true, false) if segment.has(flag::ACK) && handshake_ns.is_none() => {
                handshake_ns = syn_ns.map(|syn_ns| one.time_ns - syn_ns);
            }
            _ => {}
        }
    }
    let [client, server] = streams.map(Stream::finish);
    Metrics {
        duration_ms: last_ns.saturating_sub(first_ns).max(0) as f64 / NS_PER_MS,
        handshake_ms: handshake_ns.map(|time_ns| time_ns as f64 / NS_PER_MS),
        client,
        server,
    }
}
