//! `flows.csv`: a line for each conversation, in the order of their first frames. Units are in the names of the columns.

use serde::Serialize;

/// A conversation: what one side sent to the other, and back. `a` is who sent the first frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowRow {
    /// Virtual time of the first frame, nanoseconds.
    pub first_ns: u64,
    /// Virtual time of the last frame, nanoseconds.
    pub last_ns: u64,
    /// Interface that sent the first frame, "node:interface".
    pub seen_at: String,
    /// `ipv4` or `ipv6`.
    pub family: &'static str,
    /// `tcp`, `udp`, `icmp`, `icmpv6`, or its number in IP.
    pub protocol: String,
    /// Address of `a`.
    pub source: String,
    /// Port of `a`; 0: none.
    pub source_port: u16,
    /// Address of `b`.
    pub destination: String,
    /// Port of `b`; 0: none.
    pub destination_port: u16,
    /// What `a` sent.
    pub a_to_b: FlowDirection,
    /// What `b` sent.
    pub b_to_a: FlowDirection,
}

/// One direction, as its sender handed it to its links.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct FlowDirection {
    /// Frames.
    pub frames: u64,
    /// Their bytes, from the Ethernet header on, without FCS, preamble and gap.
    pub bytes: u64,
    /// Bytes after the headers of TCP and UDP, or of IP for other protocols; repeated ones count again.
    pub payload_bytes: u64,
    /// Frames that links anywhere on the way dropped as they were handed over.
    pub dropped_frames: u64,
    /// TCP only: bytes of payload that the other side acknowledged.
    pub goodput_bytes: Option<u64>,
    /// TCP only: segments with a sequence number that was sent before.
    pub retransmitted_segments: Option<u64>,
    /// TCP only: which of SYN, FIN and RST were seen, with `|` between them.
    pub tcp_flags: String,
}

/// Columns of a conversation, then those of each direction after `a_to_b_` and `b_to_a_`.
const CONVERSATION: [&str; 9] = [
    "first_ns",
    "last_ns",
    "seen_at",
    "family",
    "protocol",
    "source",
    "source_port",
    "destination",
    "destination_port",
];
const DIRECTION: [&str; 7] = [
    "frames",
    "bytes",
    "payload_bytes",
    "dropped_frames",
    "goodput_bytes",
    "retransmitted_segments",
    "tcp_flags",
];

/// The bytes of `flows.csv`.
pub fn flows_csv(rows: &[FlowRow]) -> String {
    let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(Vec::new());
    let directions = ["a_to_b", "b_to_a"].iter();
    let directions = directions.flat_map(|direction| DIRECTION.map(|name| format!("{direction}_{name}")));
    let names: Vec<String> = CONVERSATION.map(String::from).into_iter().chain(directions).collect();
    writer.write_record(&names).expect("memory takes all");
    for row in rows {
        let conversation = (
            (row.first_ns, row.last_ns, &row.seen_at, row.family, &row.protocol),
            (&row.source, row.source_port, &row.destination, row.destination_port),
        );
        writer
            .serialize((conversation, &row.a_to_b, &row.b_to_a))
            .expect("memory takes all");
    }
    let bytes = writer.into_inner().expect("memory takes all");
    String::from_utf8(bytes).expect("it was made of texts")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_what_the_first_one_names() {
        let sent = FlowDirection {
            frames: 3,
            bytes: 180,
            goodput_bytes: Some(7),
            retransmitted_segments: Some(1),
            tcp_flags: "SYN|FIN".into(),
            ..FlowDirection::default()
        };
        let row = FlowRow {
            first_ns: 1,
            last_ns: 2,
            seen_at: "h1:eth0".into(),
            family: "ipv4",
            protocol: "tcp".into(),
            source: "10.0.0.1".into(),
            source_port: 1000,
            destination: "10.0.0.2".into(),
            destination_port: 80,
            a_to_b: sent,
            b_to_a: FlowDirection::default(),
        };
        let text = flows_csv(&[row]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0].split(',').count(), CONVERSATION.len() + 2 * DIRECTION.len());
        let line = "1,2,h1:eth0,ipv4,tcp,10.0.0.1,1000,10.0.0.2,80,3,180,0,0,7,1,SYN|FIN,0,0,0,0,,,";
        assert_eq!(lines[1], line);
    }
}
