use super::*;
use crate::raw::bpf::run;
use proptest::collection::vec;
use proptest::prelude::*;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const OWN: [u8; 4] = [192, 0, 2, 1];
const PEER: [u8; 4] = [192, 0, 2, 2];

fn owned() -> Owned {
    let range = |first, last| PortRange { first, last };
    Owned {
        mac: MAC,
        addresses: ["198.51.100.7", "192.0.2.1", "fd00::1", "fe80::1"]
            .map(|text| text.parse().unwrap())
            .to_vec(),
        tcp: vec![range(9000, 9000), range(40_000, 40_099)],
        udp: vec![range(53, 54)],
    }
}

fn takes(frame: &[u8]) -> bool {
    run(&owned().filter(), frame, false) != 0
}

fn ethernet(to: [u8; 6], from: [u8; 6], kind: u16, rest: &[u8]) -> Vec<u8> {
    [&to[..], &from[..], &kind.to_be_bytes()[..], rest].concat()
}

fn v4(from: [u8; 4], to: [u8; 4], protocol: u8, options: usize, payload: &[u8]) -> Vec<u8> {
    let header = 20 + 4 * options;
    let length = ((header + payload.len()) as u16).to_be_bytes();
    let start = [
        0x40 | (header / 4) as u8,
        0,
        length[0],
        length[1],
        0,
        0,
        0x40,
        0,
        64,
        protocol,
        0,
        0,
    ];
    [&start[..], &from, &to, &vec![1; 4 * options], payload].concat()
}

fn v6(from: &str, to: &str, next: u8, hops: u8, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u16).to_be_bytes();
    let address = |text: &str| match text.parse().unwrap() {
        IpAddr::V6(v6) => v6.octets(),
        IpAddr::V4(_) => unreachable!(),
    };
    [
        &[0x60, 0, 0, 0, length[0], length[1], next, hops][..],
        &address(from),
        &address(to),
        payload,
    ]
    .concat()
}

fn ports_of(source: u16, destination: u16) -> Vec<u8> {
    [&source.to_be_bytes()[..], &destination.to_be_bytes(), &[0; 16]].concat()
}

fn inward(packet: &[u8]) -> Vec<u8> {
    let kind = if packet[0] >> 4 == 4 { IPV4 } else { IPV6 };
    ethernet(MAC, PEER_MAC, kind, packet)
}

fn outward(packet: &[u8]) -> Vec<u8> {
    let kind = if packet[0] >> 4 == 4 { IPV4 } else { IPV6 };
    ethernet(PEER_MAC, MAC, kind, packet)
}

#[test]
fn only_owned_ports_of_own_addresses_come_in() {
    for options in [0, 3, 10] {
        let frame = |to, protocol, port| inward(&v4(PEER, to, protocol, options, &ports_of(1, port)));
        for (port, is_taken) in [
            (8999, false),
            (9000, true),
            (9001, false),
            (40_000, true),
            (40_099, true),
            (40_100, false),
            (53, false),
        ] {
            assert_eq!(takes(&frame(OWN, 6, port)), is_taken, "TCP port {port}");
        }
        for (port, is_taken) in [(52, false), (53, true), (54, true), (55, false), (9000, false)] {
            assert_eq!(takes(&frame(OWN, 17, port)), is_taken, "UDP port {port}");
        }
        assert!(takes(&frame([198, 51, 100, 7], 6, 9000)));
        assert!(!takes(&frame([192, 0, 2, 9], 6, 9000)), "another address");
        assert!(!takes(&frame(OWN, 132, 9000)), "SCTP");
    }
    let mine = inward(&v4(PEER, OWN, 6, 0, &ports_of(1, 9000)));
    assert_eq!(run(&owned().filter(), &mine, true), 0, "of a VLAN");
    let mut other = mine.clone();
    other[5] ^= 1;
    assert!(!takes(&other), "another MAC address");
    for flags in [0x2000_u16, 0x0001] {
        let mut fragment = mine.clone();
        fragment[20..22].copy_from_slice(&flags.to_be_bytes());
        assert!(!takes(&fragment), "a fragment");
    }
}

#[test]
fn the_same_holds_for_ipv6() {
    let frame = |to, next, port| inward(&v6("fd00::2", to, next, 64, &ports_of(1, port)));
    assert!(takes(&frame("fd00::1", 6, 40_050)) && takes(&frame("fe80::1", 17, 53)));
    assert!(!takes(&frame("fd00::1", 6, 22)) && !takes(&frame("fd00::3", 6, 9000)));
    assert!(!takes(&frame("fd00::1", 44, 9000)), "a fragment");
    let advertisement = |to| inward(&v6("fd00::2", to, 58, 255, &[&[136, 0][..], &[0; 22]].concat()));
    assert!(takes(&advertisement("fe80::1")) && !takes(&advertisement("ff02::1")));
    let solicitation = inward(&v6("fd00::2", "fd00::1", 58, 255, &[&[135, 0][..], &[0; 22]].concat()));
    assert!(!takes(&solicitation), "which the host answers");
}

#[test]
fn icmp_errors_come_in_if_they_quote_what_was_sent_from_owned_ports() {
    for (outer, inner) in [(0, 0), (2, 5)] {
        let error = |kind: u8, from, protocol, port| {
            let quoted = v4(from, PEER, protocol, inner, &ports_of(port, 80));
            inward(&v4(
                [203, 0, 113, 1],
                OWN,
                1,
                outer,
                &[&[kind, 4, 0, 0, 0, 0, 5, 0][..], &quoted].concat(),
            ))
        };
        for kind in [3, 11, 12] {
            assert!(
                takes(&error(kind, OWN, 6, 40_001)) && takes(&error(kind, OWN, 17, 53)),
                "type {kind}"
            );
        }
        assert!(!takes(&error(5, OWN, 6, 40_001)), "a redirect");
        assert!(
            !takes(&error(3, OWN, 6, 22)) && !takes(&error(3, PEER, 6, 40_001)) && !takes(&error(3, OWN, 1, 40_001))
        );
    }
    let error = |kind: u8, from: &str, port| {
        let quoted = v6(from, "fd00::2", 6, 64, &ports_of(port, 80));
        inward(&v6(
            "fd00::9",
            "fd00::1",
            58,
            64,
            &[&[kind, 0, 0, 0, 0, 0, 5, 0][..], &quoted].concat(),
        ))
    };
    assert!(
        takes(&error(2, "fd00::1", 9000)) && !takes(&error(2, "fd00::1", 22)) && !takes(&error(2, "fd00::7", 9000))
    );
    assert!(!takes(&error(128, "fd00::1", 9000)), "an echo request");
}

#[test]
fn of_arp_the_answers_come_in_and_the_questions_go_out() {
    let arp = |operation: u8, sender: [u8; 4], target: [u8; 4], to, from: [u8; 6]| {
        let start = [0, 1, 8, 0, 6, 4, 0, operation];
        ethernet(to, from, ARP, &[&start[..], &from, &sender, &[0; 6], &target].concat())
    };
    assert!(takes(&arp(2, PEER, OWN, MAC, PEER_MAC)));
    assert!(!takes(&arp(1, PEER, OWN, MAC, PEER_MAC)) && !takes(&arp(2, PEER, PEER, MAC, PEER_MAC)));
    let owned = owned();
    assert!(owned.allows(&arp(1, OWN, PEER, [255; 6], MAC)));
    assert!(!owned.allows(&arp(2, OWN, PEER, PEER_MAC, MAC)), "an answer");
    assert!(!owned.allows(&arp(1, OWN, OWN, [255; 6], MAC)), "an announcement");
    assert!(!owned.allows(&arp(1, PEER, OWN, [255; 6], MAC)) && !owned.allows(&arp(1, [0; 4], PEER, [255; 6], MAC)));
    let mut foreign = arp(1, OWN, PEER, [255; 6], MAC);
    foreign[22] ^= 4;
    assert!(!owned.allows(&foreign), "for another MAC address");
}

#[test]
fn what_goes_out_is_from_owned_ports_of_own_addresses() {
    let owned = owned();
    let tcp = |from, port| outward(&v4(from, PEER, 6, 0, &ports_of(port, 80)));
    assert!(owned.allows(&tcp(OWN, 40_000)) && owned.allows(&tcp([198, 51, 100, 7], 9000)));
    assert!(!owned.allows(&tcp(OWN, 22)) && !owned.allows(&tcp(PEER, 9000)));
    let mut frame = tcp(OWN, 9000);
    frame[6] ^= 2;
    assert!(!owned.allows(&frame), "from another MAC address");
    let mut frame = tcp(OWN, 9000);
    frame[20] = 0x20;
    assert!(!owned.allows(&frame), "a fragment");
    assert!(
        !owned.allows(&outward(&v4(OWN, PEER, 6, 1, &ports_of(9000, 80)))),
        "IP options"
    );
    let mut frame = tcp(OWN, 9000);
    frame[17] = 21;
    assert!(!owned.allows(&frame), "ports beyond its length");
    assert!(
        !owned.allows(&outward(&v4(OWN, PEER, 1, 0, &[8, 0, 0, 0, 0, 0, 0, 0]))),
        "an echo request"
    );
    let unreachable = |to, port| {
        let quoted = v4(PEER, to, 17, 0, &ports_of(5, port));
        outward(&v4(OWN, PEER, 1, 0, &[&[3, 3, 0, 0, 0, 0, 0, 0][..], &quoted].concat()))
    };
    assert!(
        owned.allows(&unreachable(OWN, 53))
            && !owned.allows(&unreachable(OWN, 99))
            && !owned.allows(&unreachable(PEER, 53))
    );
    assert!(owned.allows(&outward(&v6("fd00::1", "fd00::2", 17, 64, &ports_of(53, 99)))));
    assert!(!owned.allows(&outward(&v6("fd00::2", "fd00::1", 17, 64, &ports_of(53, 99)))));
    let asks = |from, hops, target: u8| {
        let mut target = vec![0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, target];
        target.splice(..0, [135, 0, 0, 0, 0, 0, 0, 0]);
        outward(&v6(from, "ff02::1:ff00:2", 58, hops, &target))
    };
    assert!(owned.allows(&asks("fd00::1", 255, 2)));
    assert!(
        !owned.allows(&asks("fd00::1", 64, 2))
            && !owned.allows(&asks("::", 255, 2))
            && !owned.allows(&asks("fd00::1", 255, 1))
    );
    assert!(
        !owned.allows(&outward(&v6("fe80::1", "ff02::16", 58, 1, &[143, 0, 0, 0, 0, 0, 0, 0]))),
        "a report of groups"
    );
}

proptest! {
    /// Whatever the bytes: neither panics, and no frame of another address passes.
    #[test]
    fn no_bytes_are_too_strange(mut bytes in vec(any::<u8>(), 0..200), kind in 0..4_usize, cut in 0..200_usize) {
        let owned = owned();
        if bytes.len() > 40 {
            bytes[..6].copy_from_slice(&MAC);
            bytes[6..12].copy_from_slice(&MAC);
            bytes[12..14].copy_from_slice(&[ARP, IPV4, IPV6, 0x8100][kind].to_be_bytes());
            bytes[14] = [0x45, 0x4f, 0x60, 0x40][kind];
            bytes[26..30].copy_from_slice(&OWN);
        }
        let frame = &bytes[..cut.min(bytes.len())];
        run(&owned.filter(), frame, false);
        let mut foreign = frame.to_vec();
        if owned.allows(frame) && half(frame, 12) == Some(IPV4) {
            foreign[26] ^= 1;
            prop_assert!(!owned.allows(&foreign));
        }
    }
}

#[test]
fn headers_for_offloads_are_those_of_superframes_of_tcp() {
    let owned = owned();
    let mut segment = ports_of(40_000, 80);
    segment[12] = 0x50;
    segment.extend([7; 3000]);
    let frame = outward(&v4(OWN, PEER, 6, 0, &segment));
    let message = |header: [u8; VNET_BYTES]| owned.allows_message(&[&header[..], &frame].concat());
    let good = VnetHeader::of_tcp(true, 1000, 34, 54);
    assert!(message(good) && message(VNET_NOTHING));
    for at in [0, 1, 2, 6, 7, 8, 9] {
        let mut header = good;
        header[at] ^= 4;
        assert!(!message(header), "byte {at} is another");
    }
    assert!(!message(VnetHeader::of_tcp(true, 0, 34, 54)) && !message(VnetHeader::of_tcp(false, 1000, 34, 54)));
    assert!(!owned.allows_message(&good) && !owned.allows_message(&[]));
    let foreign = outward(&v4(PEER, OWN, 6, 0, &segment));
    assert!(!owned.allows_message(&[&good[..], &foreign].concat()));
}
