//! What is equal, what differs, and how it is told.

mod made;

use made::{ACK, Origin, PLAIN, Segment, compared, packets, pcap, trace, trace_of, transfer};
use proptest::prelude::*;
use windtunnel_traces::{Field, MatchedBy, Tolerance, compare};

fn data(index: u32) -> usize {
    let all = transfer(20);
    all.iter()
        .position(|segment| segment.from_client && segment.payload.len() == 1000 && segment.seq == 1 + index * 1000)
        .unwrap()
}

/// The connection with a change.
fn changed(change: impl FnOnce(&mut Vec<Segment>)) -> windtunnel_traces::Trace {
    let mut segments = transfer(20);
    change(&mut segments);
    trace_of(&segments, &Origin::default())
}

#[test]
fn each_field_is_named() {
    let at = data(7);
    type Change = fn(&mut Segment);
    let changes: [(Field, Change, &str, &str); 6] = [
        (Field::Window, |one| one.window = 400, "65536 bytes", "51200 bytes"),
        (Field::Push, |one| one.flags = ACK, "set", "not set"),
        (Field::Ack, |one| one.ack = 0, "1", "0"),
        (Field::Payload, |one| one.payload[999] ^= 1, "", ""),
        (
            Field::Timestamps,
            |one| one.stamp += 1,
            "value +18, echo +8",
            "value +19, echo +8",
        ),
        (Field::Sack, |one| one.sack = vec![(5, 9)], "none", "5-9"),
    ];
    let a = trace_of(&transfer(20), &Origin::default());
    for (field, change, has_a, has_b) in changes {
        let b = changed(|segments| change(&mut segments[at]));
        let comparison = compared(&a, &b, &[]);
        let pair = &comparison.connections[0];
        let first = pair.first_difference.as_ref().unwrap();
        assert!(!comparison.equal && !pair.equal);
        assert_eq!(pair.identical_prefix, at as u64);
        assert_eq!((first.packet_a, first.packet_b), (at as u64 + 1, at as u64 + 1));
        assert_eq!(first.fields.iter().map(|one| one.field).collect::<Vec<_>>(), [field]);
        if !has_a.is_empty() {
            assert_eq!((first.fields[0].a.as_str(), first.fields[0].b.as_str()), (has_a, has_b));
        }
        assert_eq!((pair.client.different, pair.client.identical), (1, 23));
        assert_eq!(pair.client.fields.get(field.name()), Some(&1));
        assert_eq!((pair.server.different, pair.server.missing), (0, 0));
        if field != Field::Ack {
            assert!(compared(&a, &b, &[field]).equal, "{field:?}");
        }
    }
}

#[test]
fn a_lost_segment_does_not_shift_the_rest() {
    let a = trace_of(&transfer(20), &Origin::default());
    let b = changed(|segments| drop(segments.remove(data(7))));
    let comparison = compared(&a, &b, &[Field::Order]);
    let pair = &comparison.connections[0];
    assert_eq!(
        (pair.client.missing, pair.client.additional, pair.client.different),
        (1, 0, 0)
    );
    assert_eq!(pair.client.identical, 23);
    assert_eq!((pair.server.missing, pair.server.identical), (0, 22));
    // The other way round it is one more.
    let comparison = compared(&b, &a, &[Field::Order]);
    assert_eq!(comparison.connections[0].client.additional, 1);
}

#[test]
fn a_shorter_trace_ends() {
    let a = trace_of(&transfer(20), &Origin::default());
    let b = changed(|segments| segments.truncate(30));
    let comparison = compared(&a, &b, &[]);
    let pair = &comparison.connections[0];
    let first = pair.first_difference.as_ref().unwrap();
    assert_eq!(
        (pair.identical_prefix, first.packet_a, first.b.is_some()),
        (30, 31, false)
    );
    assert!(first.text.ends_with("in A, B has no more packets"), "{}", first.text);
    let comparison = compared(&b, &a, &[Field::Order]);
    let first = comparison.connections[0].first_difference.as_ref().unwrap();
    assert!(first.text.contains("in B, A has no more packets"), "{}", first.text);
}

#[test]
fn the_order_of_both_sides_is_of_matter_unless_it_is_ignored() {
    let a = trace_of(&transfer(20), &Origin::default());
    // At 21 ms, the first acknowledgement and the 11th segment cross.
    let at = data(10);
    let (mut segments, mut swapped) = (transfer(20), false);
    for neighbour in [at - 1, at + 1] {
        if !swapped && segments[neighbour].time_ns == segments[at].time_ns {
            segments.swap(neighbour, at);
            swapped = true;
        }
    }
    assert!(swapped);
    let b = trace_of(&segments, &Origin::default());
    let comparison = compared(&a, &b, &[]);
    let first = comparison.connections[0].first_difference.as_ref().unwrap();
    assert_eq!(first.fields[0].field, Field::Order, "{first:?}");
    assert!(compared(&a, &b, &[Field::Order]).equal);
}

#[test]
fn overtaken_segments_are_known_again() {
    let a = trace_of(&transfer(20), &Origin::default());
    let b = changed(|segments| {
        let late = segments.remove(data(3));
        segments.insert(data(8), late);
    });
    let pair = &compared(&a, &b, &[]).connections[0];
    assert_eq!(
        (pair.client.missing, pair.client.additional, pair.client.moved),
        (0, 0, 1)
    );
}

#[test]
fn a_retransmission_is_one() {
    let a = trace_of(&transfer(20), &Origin::default());
    let b = changed(|segments| {
        let again = segments[data(15)].clone();
        let after = data(18) + 1;
        let time_ns = segments[after].time_ns;
        segments.insert(after, Segment { time_ns, ..again });
    });
    let comparison = compared(&a, &b, &[]);
    let pair = &comparison.connections[0];
    let shown = pair.first_difference.as_ref().unwrap().b.as_ref().unwrap();
    assert!(shown.retransmission);
    assert_eq!(pair.client.additional, 1);
    let retransmissions = [&pair.a, &pair.b].map(|side| side.metrics.client.retransmissions);
    assert_eq!(retransmissions, [0, 1]);
}

#[test]
fn measures_are_right() {
    let a = trace_of(&transfer(20), &Origin::default());
    let comparison = compared(&a, &a, &[]);
    let pair = &comparison.connections[0];
    let metrics = &pair.a.metrics;
    assert_eq!((metrics.duration_ms, metrics.handshake_ms), (60.0, Some(10.0)));
    let sent = &metrics.client;
    assert_eq!(
        (sent.payload_bytes, sent.acked_bytes, sent.retransmissions),
        (20_000, 20_000, 0)
    );
    // The first payload left after 11 ms, the last acknowledgement, which is that of the FIN, came after 60.
    assert_eq!(sent.goodput_bps, Some(20_000.0 * 8.0 / 0.049));
    let rtt = sent.rtt_ms.unwrap();
    assert_eq!(
        (rtt.count, rtt.min, rtt.median, rtt.max, rtt.sd),
        (22, 10.0, 10.0, 10.0, 0.0)
    );
    assert_eq!(pair.ratio.client.goodput, Some(1.0));
    assert_eq!(
        (pair.a.metrics.server.goodput_bps, pair.ratio.client.retransmissions),
        (None, None)
    );
}

#[test]
fn differences_in_time_are_told_and_may_be_limited() {
    let a = trace_of(&transfer(20), &Origin::default());
    let b = changed(|segments| segments[data(19)].time_ns += 300_000);
    let comparison = compared(&a, &b, &[]);
    let times = comparison.connections[0].time_difference_ms.unwrap();
    assert!(comparison.equal);
    assert_eq!((times.count, times.min, times.median, times.max), (46, 0.0, 0.0, 0.3));
    for (limit_ns, equal) in [(299_999, false), (300_000, true)] {
        let tolerance = Tolerance {
            time_ns: Some(limit_ns),
            ..Tolerance::default()
        };
        let comparison = compare(("a", &a), ("b", &b), None, &tolerance);
        assert_eq!(comparison.equal, equal);
        assert_eq!(comparison.connections[0].client.fields.contains_key("time"), !equal);
    }
}

#[test]
fn timestamps_may_differ_by_ticks() {
    let a = trace_of(&transfer(20), &Origin::default());
    let b = changed(|segments| segments[data(4)].stamp += 2);
    for (ticks, equal) in [(0, false), (1, false), (2, true)] {
        let tolerance = Tolerance {
            timestamp_ticks: ticks,
            ..Tolerance::default()
        };
        assert_eq!(compare(("a", &a), ("b", &b), None, &tolerance).equal, equal);
    }
}

#[test]
fn windows_count_in_bytes() {
    let a = trace_of(&transfer(3), &Origin::default());
    let mut segments = transfer(3);
    for segment in &mut segments {
        if segment.flags & made::SYN == 0 {
            segment.window /= 2;
        }
    }
    let origin = Origin {
        shift: [8, 8],
        ..Origin::default()
    };
    let b = trace_of(&segments, &origin);
    // The options differ, what they amount to does not.
    assert!(!compared(&a, &b, &[]).equal);
    assert!(compared(&a, &b, &[Field::WindowScale]).equal);
}

#[test]
fn connections_find_their_partners() {
    let at = |client_port, server_port, start_s: u64, segments| {
        let origin = Origin {
            client_port,
            server_port,
            start_ns: start_s * 1_000_000_000,
            ..Origin::default()
        };
        packets(&transfer(segments), &origin)
    };
    let a = [at(1111, 80, 1, 3), at(2222, 80, 2, 4), at(3333, 22, 3, 1)].concat();
    let b = [at(5555, 80, 1, 3), at(6666, 80, 2, 4), at(3333, 443, 3, 1)].concat();
    let (a, b) = (trace(&pcap(&a, PLAIN)), trace(&pcap(&b, PLAIN)));
    let comparison = compared(&a, &b, &[]);
    let found: Vec<(bool, MatchedBy)> = comparison
        .connections
        .iter()
        .map(|pair| (pair.equal, pair.matched_by))
        .collect();
    assert_eq!(found, [(true, MatchedBy::Addresses), (true, MatchedBy::Addresses)]);
    assert_eq!(comparison.unmatched.a, ["tcp 10.0.0.1:3333 > 10.0.0.2:22"]);
    assert_eq!(comparison.unmatched.b, ["tcp 10.0.0.1:3333 > 10.0.0.2:443"]);
    assert!(!comparison.equal);
    // On other machines, addresses differ as well.
    let elsewhere = Origin {
        client: "192.168.7.1".parse().unwrap(),
        server: "192.168.7.2".parse().unwrap(),
        client_port: 1,
        ..Origin::default()
    };
    let one = trace_of(&transfer(3), &Origin::default());
    let other = trace_of(&transfer(3), &elsewhere);
    let comparison = compared(&one, &other, &[]);
    assert!(comparison.equal);
    assert_eq!(comparison.connections[0].matched_by, MatchedBy::ServerPort);
    let only = compare(("a", &a), ("b", &b), Some(":80"), &Tolerance::default());
    assert!(only.equal && only.connections.len() == 2);
}

/// Requests of ping and their replies.
fn pings(id: u16, rtt_us: &[u64]) -> Vec<(u64, Vec<u8>)> {
    let mut all = Vec::new();
    for (sequence, rtt_us) in (0u16..).zip(rtt_us) {
        let asked_ns = u64::from(sequence) * 1_000_000_000;
        let write = |builder: etherparse::PacketBuilderStep<etherparse::Icmpv4Header>| {
            let mut bytes = Vec::new();
            builder.write(&mut bytes, &[0; 56]).unwrap();
            bytes
        };
        let ask = etherparse::PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).icmpv4_echo_request(id, sequence);
        let reply = etherparse::PacketBuilder::ipv4([10, 0, 0, 2], [10, 0, 0, 1], 64).icmpv4_echo_reply(id, sequence);
        all.push((asked_ns, write(ask)));
        all.push((asked_ns + rtt_us * 1000, write(reply)));
    }
    all
}

#[test]
fn pings_are_measured() {
    let a = trace(&pcap(&pings(7, &[42_000, 43_000, 44_000]), PLAIN));
    let b = trace(&pcap(&pings(9, &[42_000, 42_000, 42_000]), PLAIN));
    let comparison = compared(&a, &b, &[]);
    let pair = &comparison.flows[0];
    assert!(comparison.equal);
    assert_eq!((pair.a.packets, pair.a.bytes), ([3, 3], [252, 252]));
    let times = pair.a.rtt_ms.unwrap();
    assert_eq!((times.count, times.min, times.avg, times.max), (3, 42.0, 43.0, 44.0));
    assert!((times.mdev - (2.0f64 / 3.0).sqrt()).abs() < 1e-9);
    assert_eq!(pair.b.rtt_ms.unwrap().mdev, 0.0);
    let fewer = trace(&pcap(&pings(7, &[1, 2]), PLAIN));
    assert!(!compared(&a, &fewer, &[]).equal);
}

proptest! {
    #[test]
    fn chance_is_taken_out(
        isn in any::<[u32; 2]>(),
        stamps in any::<[u32; 2]>(),
        start_s in 0u64..4_000_000_000,
        client_port: u16,
        segments in 0u32..40,
    ) {
        // Echoes of 0 are no echoes: a tick on which that happens is left out.
        let reaches_0 = stamps.iter().any(|first| first.wrapping_neg() <= 100);
        prop_assume!(!reaches_0);
        let origin = Origin {
            isn,
            stamps,
            start_ns: start_s * 1_000_000_000,
            client_port,
            ..Origin::default()
        };
        let a = trace_of(&transfer(segments), &Origin::default());
        let b = trace_of(&transfer(segments), &origin);
        let comparison = compared(&a, &b, &[]);
        prop_assert!(comparison.equal, "{:?}", comparison.connections[0].first_difference);
        let pair = &comparison.connections[0];
        prop_assert_eq!(&pair.a.metrics, &pair.b.metrics);
        prop_assert_eq!(pair.identical_prefix, pair.a.packets);
    }

    #[test]
    fn what_one_lost_is_found(segments in 1u32..40, lost in any::<prop::sample::Index>()) {
        let mut less = transfer(segments);
        less.remove(3 + lost.index(less.len() - 3));
        let a = trace_of(&transfer(segments), &Origin::default());
        let b = trace_of(&less, &Origin::default());
        for (a, b, missing) in [(&a, &b, (1, 0)), (&b, &a, (0, 1))] {
            let comparison = compared(a, b, &[]);
            let pair = &comparison.connections[0];
            prop_assert!(!pair.equal);
            prop_assert_eq!((pair.client.missing + pair.server.missing, pair.client.additional + pair.server.additional), missing);
            prop_assert_eq!(pair.client.different + pair.server.different, 0);
        }
    }

    #[test]
    fn damaged_captures_never_panic(
        at in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20),
        nanoseconds: bool,
        which in 0..3,
    ) {
        let packets = packets(&transfer(4), &Origin::default());
        let mut file = match which {
            0 => pcap(&packets, PLAIN),
            1 => made::pcapng(&packets, false, nanoseconds),
            _ => made::pcapng(&packets, true, nanoseconds),
        };
        for (index, byte) in at {
            let place = index.index(file.len());
            file[place] = byte;
        }
        let mut collector = windtunnel_traces::Collector::default();
        if collector.add("made", &file[..]).is_ok() {
            let found = collector.finish();
            // A trace is equal to itself, whatever is in it.
            prop_assert!(compared(&found, &found, &[]).equal);
        }
    }
}
