//! Flows, where a run is measured: what each sender handed to its links, by five-tuple.
//!
//! A NIC notes the flows of what it sends. A direction of a conversation is that which its first sender notes: a node sends a
//! frame once, before all who pass it on. What links drop counts at every NIC. Nothing here is looked at by the run.

use std::collections::{BTreeMap, HashMap};

use windtunnel_results::{FlowDirection, FlowRow};

use crate::headers::{self, ACK, FIN, Packet, RST, SYN, Segment, TCP, Tuple, UDP};
use crate::node::Node;

/// Numbers of ICMP and ICMPv6.
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

/// The flows of what a NIC sends.
#[derive(Debug, Default)]
pub struct Flows {
    seen: Vec<(Tuple, Sent)>,
    /// Where each is in `seen`.
    places: HashMap<Tuple, usize>,
    /// Where the last one is: mostly, the next frame is of the same flow.
    last: usize,
}

/// One direction of a flow at one NIC.
#[derive(Clone, Debug, Default)]
struct Sent {
    first_ns: u64,
    last_ns: u64,
    frames: u64,
    bytes: u64,
    payload_bytes: u64,
    dropped_frames: u64,
    flags: u8,
    retransmitted_segments: u64,
    /// After the last sequence number that was sent; none: no segment was.
    next_seq: Option<u32>,
    /// The last acknowledgement that was sent.
    acked: Option<u32>,
    /// What was acknowledged since the first acknowledgement, which is that of the SYN.
    acked_bytes: u64,
}

impl Flows {
    /// A frame was sent at `now_ns`; whether the link lost it.
    pub fn note(&mut self, now_ns: u64, frame: &[u8], dropped: bool) {
        let Some(packet) = headers::parse(frame) else {
            return;
        };
        let flow = self.flow(&packet.tuple, now_ns);
        flow.last_ns = now_ns;
        flow.frames += 1;
        flow.bytes += frame.len() as u64;
        flow.payload_bytes += u64::from(packet.payload_bytes);
        flow.dropped_frames += u64::from(dropped);
        if let Some(segment) = packet.segment {
            flow.follow(&packet, segment);
        }
    }

    /// What is known of a flow that sends at `now_ns`.
    fn flow(&mut self, tuple: &Tuple, now_ns: u64) -> &mut Sent {
        if self.seen.get(self.last).is_none_or(|(last, _)| last != tuple) {
            self.last = *self.places.entry(*tuple).or_insert_with(|| {
                let first = Sent {
                    first_ns: now_ns,
                    ..Sent::default()
                };
                self.seen.push((*tuple, first));
                self.seen.len() - 1
            });
        }
        &mut self.seen[self.last].1
    }
}

impl Sent {
    /// RFC 9293, section 3.4: numbers are compared modulo 2^32.
    fn follow(&mut self, packet: &Packet, segment: Segment) {
        let is_syn = segment.flags & SYN != 0;
        let length = packet.payload_bytes + u32::from(is_syn) + u32::from(segment.flags & FIN != 0);
        let end = segment.seq.wrapping_add(length);
        if is_syn
            && self
                .next_seq
                .is_some_and(|next| is_before(next, segment.seq) || is_before(end, next))
        {
            // Another connection between the same ports.
            (self.next_seq, self.acked) = (None, None);
        }
        match self.next_seq {
            Some(next) if length > 0 && is_before(segment.seq, next) => {
                self.retransmitted_segments += 1;
                if is_before(next, end) {
                    self.next_seq = Some(end);
                }
            }
            Some(next) if !is_before(next, end) => {}
            _ => self.next_seq = Some(end),
        }
        self.flags |= segment.flags;
        if segment.flags & ACK == 0 || segment.flags & RST != 0 {
            return;
        }
        match self.acked {
            Some(before) if is_before(before, segment.ack) => {
                self.acked_bytes += u64::from(segment.ack.wrapping_sub(before));
                self.acked = Some(segment.ack);
            }
            Some(_) => {}
            None => self.acked = Some(segment.ack),
        }
    }

    fn add(&mut self, other: &Self) {
        self.first_ns = self.first_ns.min(other.first_ns);
        self.last_ns = self.last_ns.max(other.last_ns);
        self.frames += other.frames;
        self.bytes += other.bytes;
        self.payload_bytes += other.payload_bytes;
        self.flags |= other.flags;
        self.retransmitted_segments += other.retransmitted_segments;
        self.acked_bytes += other.acked_bytes;
        self.acked = self.acked.or(other.acked);
        self.next_seq = self.next_seq.or(other.next_seq);
    }
}

fn is_before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// What is known of a direction of all NICs.
#[derive(Debug)]
struct Whole {
    /// Node and interface that sent first.
    seen_at: (usize, usize),
    /// What that node sent.
    sent: Sent,
    /// Frames that any link dropped.
    dropped_frames: u64,
}

/// The flow table: conversations in the order of their first frames. `name` names an interface by node and number. `outside` are the
/// flows that come in at ports to the outside, with their names.
pub fn table<'a>(
    nodes: &'a [Node],
    outside: impl Iterator<Item = (&'a str, &'a Flows)>,
    name: impl Fn(usize, usize) -> String,
) -> Vec<FlowRow> {
    let inside = nodes.iter().enumerate().flat_map(|(node, of)| {
        let flows = of.ports.iter().enumerate();
        flows.filter_map(move |(port, at)| Some((node, port, at.flows.as_deref()?)))
    });
    // Each port counts as a node of its own, after all that are.
    let (names, flows): (Vec<_>, Vec<_>) = outside.unzip();
    let outside = (nodes.len()..).zip(flows).map(|(node, flows)| (node, 0, flows));
    rows(&directions(inside.chain(outside)), |node, port| {
        match node.checked_sub(nodes.len()) {
            Some(number) => names[number].to_string(),
            None => name(node, port),
        }
    })
}

fn directions<'a>(ports: impl Iterator<Item = (usize, usize, &'a Flows)>) -> BTreeMap<Tuple, Whole> {
    let mut all: BTreeMap<Tuple, Vec<(usize, usize, &Sent)>> = BTreeMap::new();
    for (node, port, flows) in ports {
        for (tuple, sent) in &flows.seen {
            all.entry(*tuple).or_default().push((node, port, sent));
        }
    }
    let whole = |(tuple, places): (Tuple, Vec<(usize, usize, &Sent)>)| {
        let &(node, port, _) = places
            .iter()
            .min_by_key(|(node, port, sent)| (sent.first_ns, *node, *port))?;
        let mut of_node = places.iter().filter(|place| place.0 == node).map(|place| place.2);
        let mut sent = of_node.next()?.clone();
        of_node.for_each(|other| sent.add(other));
        let dropped_frames = places.iter().map(|place| place.2.dropped_frames).sum();
        let seen_at = (node, port);
        Some((
            tuple,
            Whole {
                seen_at,
                sent,
                dropped_frames,
            },
        ))
    };
    all.into_iter().filter_map(whole).collect()
}

fn rows(directions: &BTreeMap<Tuple, Whole>, name: impl Fn(usize, usize) -> String) -> Vec<FlowRow> {
    let begins = |tuple: &Tuple, one: &Whole| match directions.get(&tuple.reverse()) {
        Some(other) => (one.sent.first_ns, tuple) <= (other.sent.first_ns, &tuple.reverse()),
        None => true,
    };
    let mut found: Vec<(&Tuple, &Whole)> = directions.iter().filter(|(tuple, one)| begins(tuple, one)).collect();
    found.sort_by_key(|(tuple, one)| (one.sent.first_ns, **tuple));
    found
        .into_iter()
        .map(|(tuple, one)| {
            // A flow to oneself would be its own answer.
            let back = directions.get(&tuple.reverse()).filter(|_| tuple.reverse() != *tuple);
            let last_ns = back.map_or(0, |back| back.sent.last_ns);
            FlowRow {
                first_ns: one.sent.first_ns,
                last_ns: one.sent.last_ns.max(last_ns),
                seen_at: name(one.seen_at.0, one.seen_at.1),
                family: if tuple.source.0.is_ipv4() { "ipv4" } else { "ipv6" },
                protocol: protocol_name(tuple.protocol),
                source: tuple.source.0.to_string(),
                source_port: tuple.source.1,
                destination: tuple.destination.0.to_string(),
                destination_port: tuple.destination.1,
                a_to_b: direction(tuple, Some(one), back),
                b_to_a: direction(tuple, back, Some(one)),
            }
        })
        .collect()
}

fn direction(tuple: &Tuple, one: Option<&Whole>, other: Option<&Whole>) -> FlowDirection {
    let Some(one) = one else {
        return FlowDirection::default();
    };
    let sent = &one.sent;
    let is_tcp = tuple.protocol == TCP;
    let flags = [(SYN, "SYN"), (FIN, "FIN"), (RST, "RST")];
    let flags: Vec<&str> = flags
        .iter()
        .filter(|(bit, _)| sent.flags & bit != 0)
        .map(|flag| flag.1)
        .collect();
    FlowDirection {
        frames: sent.frames,
        bytes: sent.bytes,
        payload_bytes: sent.payload_bytes,
        dropped_frames: one.dropped_frames,
        goodput_bytes: is_tcp.then(|| other.map_or(0, |other| acknowledged(sent, &other.sent))),
        retransmitted_segments: is_tcp.then_some(sent.retransmitted_segments),
        tcp_flags: flags.join("|"),
    }
}

/// Payload that the other side has acknowledged: FIN takes a number, too.
fn acknowledged(sent: &Sent, other: &Sent) -> u64 {
    let fin = sent.flags & FIN != 0 && other.acked.is_some() && other.acked == sent.next_seq;
    other.acked_bytes.saturating_sub(u64::from(fin))
}

fn protocol_name(number: u8) -> String {
    match number {
        TCP => "tcp".into(),
        UDP => "udp".into(),
        ICMP => "icmp".into(),
        ICMPV6 => "icmpv6".into(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers::tests::tcp_frame;

    fn one(segments: &[(u32, u32, u8, usize)]) -> Sent {
        let mut flows = Flows::default();
        for (time_ns, (seq, ack, flags, payload)) in (1..).zip(segments) {
            flows.note(time_ns, &tcp_frame(*seq, *ack, *flags, *payload), false);
        }
        assert_eq!(flows.seen.len(), 1);
        flows.seen.remove(0).1
    }

    #[test]
    fn sequence_numbers_wrap() {
        let start = u32::MAX - 1000;
        let sent = one(&[
            (start, 0, SYN, 0),
            (start.wrapping_add(1), 5, ACK, 900),
            (start.wrapping_add(901), 5, ACK, 900),
            (start.wrapping_add(1), 5, ACK, 900),
            (start.wrapping_add(1801), 5, ACK, 0),
        ]);
        assert_eq!((sent.retransmitted_segments, sent.payload_bytes), (1, 2700));
        assert_eq!(sent.next_seq, Some(start.wrapping_add(1801)));
        let answered = one(&[
            (9, start.wrapping_add(1), SYN | ACK, 0),
            (10, start.wrapping_add(1801), ACK, 0),
            (10, start.wrapping_add(901), ACK, 0),
        ]);
        assert_eq!(acknowledged(&sent, &answered), 1800);
    }

    #[test]
    fn a_fin_is_no_payload_and_a_lost_syn_is_repeated() {
        let sent = one(&[(7, 0, SYN, 0), (7, 0, SYN, 0), (8, 1, ACK, 10), (18, 1, ACK | FIN, 0)]);
        assert_eq!(
            (sent.retransmitted_segments, sent.flags & (SYN | FIN | RST)),
            (1, SYN | FIN)
        );
        let answered = one(&[(0, 8, SYN | ACK, 0), (1, 19, ACK, 0)]);
        assert_eq!(acknowledged(&sent, &answered), 10);
        let answered = one(&[(0, 8, SYN | ACK, 0), (1, 13, ACK, 0)]);
        assert_eq!(acknowledged(&sent, &answered), 5);
    }

    #[test]
    fn another_connection_between_the_same_ports_starts_anew() {
        let sent = one(&[
            (7, 0, SYN, 0),
            (8, 1, ACK, 10),
            (1_000_000, 0, SYN, 0),
            (1_000_001, 900, ACK, 10),
            (500, 0, SYN, 0),
            (501, 77, ACK, 10),
        ]);
        assert_eq!((sent.retransmitted_segments, sent.acked_bytes), (0, 0));
    }

    #[test]
    fn the_first_sender_counts_and_every_link_may_drop() {
        let (mut host, mut router) = (Flows::default(), Flows::default());
        for time_ns in [10, 20, 30] {
            host.note(time_ns, &tcp_frame(time_ns as u32, 0, ACK, 1), time_ns == 10);
            router.note(time_ns + 1, &tcp_frame(time_ns as u32, 0, ACK, 1), time_ns == 30);
        }
        let rows = rows(
            &directions([(0, 0, &router), (1, 2, &host)].into_iter()),
            |node, port| format!("{node}:{port}"),
        );
        assert_eq!(rows.len(), 1);
        assert_eq!(
            (rows[0].seen_at.as_str(), rows[0].first_ns, rows[0].last_ns),
            ("1:2", 10, 30)
        );
        assert_eq!((rows[0].a_to_b.frames, rows[0].a_to_b.dropped_frames), (3, 2));
        assert_eq!((rows[0].b_to_a.frames, rows[0].protocol.as_str()), (0, "tcp"));
    }
}
