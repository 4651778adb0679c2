//! Formats of captures, and what is wrong with some.

mod made;

use made::{Format, Origin, PLAIN, compared, packets, pcap, pcapng, trace, transfer};
use windtunnel_traces::{Collector, Field};

fn refused(file: &[u8]) -> String {
    Collector::default().add("made", file).unwrap_err().to_string()
}

#[test]
fn all_formats_tell_the_same() {
    let v6 = Origin {
        client: "fd00::1".parse().unwrap(),
        server: "fd00::2".parse().unwrap(),
        ..Origin::default()
    };
    for origin in [Origin::default(), v6] {
        let packets = packets(&transfer(5), &origin);
        let expected = trace(&pcap(&packets, PLAIN));
        assert_eq!(expected.connections.len(), 1);
        assert_eq!(expected.connections[0].segments.len(), 16);
        let mut files = vec![
            pcapng(&packets, false, true),
            pcapng(&packets, true, true),
            pcapng(&packets, false, false),
        ];
        for link in [1, 1001, 113, 276, 101, 0] {
            for (big, nanoseconds) in [(false, true), (true, true), (false, false), (true, false)] {
                let format = Format {
                    big,
                    nanoseconds,
                    link,
                    ..PLAIN
                };
                files.push(pcap(&packets, format));
            }
        }
        for file in files {
            let found = trace(&file);
            assert_eq!(found.connections[0].segments, expected.connections[0].segments);
            assert_eq!(found.connections[0].options, expected.connections[0].options);
            assert_eq!(found.warnings, Vec::<String>::new());
            assert!(compared(&expected, &found, &[]).equal);
        }
    }
    assert_eq!(
        trace(&pcapng(&packets(&transfer(1), &Origin::default()), false, true)).connections[0].seen_at,
        "eth7 in made"
    );
}

#[test]
fn what_is_no_capture_is_refused() {
    assert!(refused(b"\x1f\x8b\x08\x00").contains("starts with the bytes 1f 8b 08 00"));
    assert!(refused(b"").contains("neither pcap nor pcapng"));
    let file = pcap(&packets(&transfer(1), &Origin::default()), PLAIN);
    assert!(refused(&file[..20]).contains("ends after 20 bytes"));
    let mut other = file.clone();
    other[20] = 105;
    assert!(refused(&other).contains("link type 105"));
}

#[test]
fn a_damaged_record_is_named_by_its_place() {
    let packets = packets(&transfer(2), &Origin::default());
    let mut file = pcap(&packets, PLAIN);
    let second = 24 + 16 + 14 + packets[0].1.len();
    file[second + 8..second + 12].fill(0xff);
    let message = refused(&file);
    assert!(
        message.contains(&format!("the record at byte {second} is damaged")),
        "{message}"
    );

    let mut file = pcapng(&packets, false, true);
    let length = file.len();
    file[length - 4..].fill(0xee);
    assert!(refused(&file).contains("is damaged"));
}

#[test]
fn a_cut_record_at_the_end_is_a_warning() {
    let packets = packets(&transfer(2), &Origin::default());
    for file in [pcap(&packets, PLAIN), pcapng(&packets, false, true)] {
        let found = trace(&file[..file.len() - 5]);
        assert_eq!(found.connections[0].segments.len(), packets.len() - 1);
        assert!(
            found.warnings[0].contains("ends within the record at byte"),
            "{:?}",
            found.warnings
        );
    }
}

#[test]
fn frames_may_be_cut() {
    let packets = packets(&transfer(3), &Origin::default());
    let whole = trace(&pcap(&packets, PLAIN));
    let cut = trace(&pcap(&packets, Format { snap: 96, ..PLAIN }));
    let comparison = compared(&whole, &cut, &[]);
    assert!(comparison.equal, "{:?}", comparison.connections[0].first_difference);
    assert_eq!(comparison.connections[0].payloads_not_compared, 3);
    assert_eq!(comparison.connections[0].b.metrics.client.payload_bytes, 3000);
    // Headers that are cut off are not guessed.
    let headless = trace(&pcap(&packets, Format { snap: 50, ..PLAIN }));
    assert!(headless.connections.is_empty());
    assert_eq!(headless.counts.unreadable_frames, packets.len() as u64);
    assert!(headless.warnings[0].contains("frames are left out"));
}

#[test]
fn the_interface_that_saw_it_first_counts() {
    let origin = Origin::default();
    let later = Origin {
        start_ns: origin.start_ns + 5_000_000,
        ..Origin::default()
    };
    let (near, far) = (
        pcap(&packets(&transfer(3), &origin), PLAIN),
        pcap(&packets(&transfer(3), &later), PLAIN),
    );
    for order in [[("near", &near), ("far", &far)], [("far", &far), ("near", &near)]] {
        let mut collector = Collector::default();
        for (name, file) in order {
            collector.add(name, &file[..]).unwrap();
        }
        let found = collector.finish();
        assert_eq!(found.connections.len(), 1);
        assert_eq!(found.connections[0].seen_at, "near");
        assert!(compared(&found, &trace(&near), &[]).equal);
    }
}

#[test]
fn ports_are_used_again() {
    let (first, second) = (
        Origin::default(),
        Origin {
            isn: [77, 78],
            start_ns: Origin::default().start_ns + 10_000_000_000,
            ..Origin::default()
        },
    );
    let mut both = packets(&transfer(3), &first);
    both.extend(packets(&transfer(4), &second));
    let found = trace(&pcap(&both, PLAIN));
    let lengths: Vec<usize> = found.connections.iter().map(|one| one.segments.len()).collect();
    assert_eq!(lengths, [12, 14]);
    assert!(compared(&found, &found, &[Field::Push]).equal);
}

#[test]
fn times_that_cannot_be_are_damage() {
    let packets = packets(&transfer(1), &Origin::default());
    let mut file = pcapng(&packets, false, true);
    let first = file.windows(4).position(|bytes| bytes == [6, 0, 0, 0]).unwrap();
    file[first + 12..first + 16].fill(0xff);
    let message = refused(&file);
    assert!(
        message.contains(&format!("byte {first} is damaged: a time before 1970 or after 2106")),
        "{message}"
    );
}
