//! What a time-sequence diagram of both traces is drawn from.

use crate::comparison::Comparison;
use crate::metrics::measure;
use crate::normal::Normal;
use crate::packet::flag;
use crate::trace::Trace;
use serde::Serialize;

const NS_PER_S: f64 = 1e9;

/// What one side sent in one trace: times in s since the connection's start, positions in bytes of the stream.
#[derive(Debug, Default, Serialize)]
pub struct Points {
    /// Of data: time, first byte, the one after the last.
    pub new: Vec<(f64, i64, i64)>,
    /// Of data that was sent before.
    pub again: Vec<(f64, i64, i64)>,
    /// Time, and what is acknowledged.
    pub acks: Vec<(f64, u32)>,
}

/// A connection in both traces.
#[derive(Debug, Serialize)]
pub struct Diagram {
    /// Its name in the first trace.
    pub name: String,
    /// Who sent most: "client" or "server".
    pub sender: &'static str,
    /// In the first trace.
    pub a: Points,
    /// In the second one.
    pub b: Points,
    /// Of segments in both: time in the first trace, s, and by how much it was later in the second, ms.
    pub differences: Vec<(f64, f64)>,
}

/// The diagram of the connection that carried most in the first trace; none: no connection is in both.
pub fn diagram(a: &Trace, b: &Trace, comparison: &Comparison) -> Option<Diagram> {
    let largest = comparison.connections.iter().max_by_key(|pair| {
        let metrics = &pair.a.metrics;
        metrics.client.payload_bytes.max(metrics.server.payload_bytes)
    })?;
    let of_a = &a.connections[largest.indexes[0]];
    let of_b = &b.connections[largest.indexes[1]];
    let of_b = if largest.turned { &of_b.turned() } else { of_b };
    let metrics = &largest.a.metrics;
    let from_client = metrics.client.payload_bytes >= metrics.server.payload_bytes;
    let (normal_a, normal_b) = (Normal::new(of_a), Normal::new(of_b));
    let mut differences = Vec::new();
    for direction in [true, false] {
        for (index_a, index_b) in crate::align(&normal_a, &normal_b, direction).pairs {
            let (one, other) = (normal_a.get(index_a).time_ns, normal_b.get(index_b).time_ns);
            differences.push((one as f64 / NS_PER_S, (other - one) as f64 / 1e6));
        }
    }
    differences.sort_by(|one, other| one.0.total_cmp(&other.0));
    Some(Diagram {
        name: largest.a.name.clone(),
        sender: if from_client { "client" } else { "server" },
        a: points(&normal_a, from_client),
        b: points(&normal_b, from_client),
        differences,
    })
}

fn points(connection: &Normal<'_>, from_client: bool) -> Points {
    let mut found = Points::default();
    measure(connection, |_, one, place| {
        let time_s = one.time_ns as f64 / NS_PER_S;
        let length = i64::from(one.segment.payload_length);
        if one.segment.from_client != from_client {
            if one.segment.has(flag::ACK) && found.acks.last().is_none_or(|last| last.1 != one.ack) {
                found.acks.push((time_s, one.ack));
            }
        } else if length > 0 {
            let bars = if place.again { &mut found.again } else { &mut found.new };
            bars.push((time_s, place.start, place.start + length));
        }
    });
    found
}
