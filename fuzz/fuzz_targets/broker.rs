// SPDX-License-Identifier: GPL-2.0-or-later
//! What anybody may say to the broker, and the broker to anybody: requests are refused, or read as they were written; of frames none passes that
//! is from another address or port.
#![no_main]

use std::net::IpAddr;

use libfuzzer_sys::fuzz_target;
use windtunnel_ports::{Answer, Owned, PortRange, Request};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(request) = Request::parse(bytes) {
        assert_eq!(request.to_bytes(), bytes);
    }
    if let Ok(answer) = Answer::parse(bytes) {
        assert_eq!(Answer::parse(&answer.to_bytes()).as_ref(), Ok(&answer));
    }
    let port = PortRange { first: 7, last: 9 };
    let owned = Owned {
        mac: [2, 0, 0, 0, 0, 1],
        addresses: vec![
            "192.0.2.1".parse().expect("an address"),
            "fd00::1".parse().expect("an address"),
        ],
        tcp: vec![port],
        udp: vec![port],
    };
    if owned.allows_message(bytes) {
        check(&owned, &bytes[HEADER_BYTES..]);
    }
});

/// Before each frame: what is to be done with it (`struct virtio_net_hdr`).
const HEADER_BYTES: usize = 10;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

/// A frame that passes is from the client's own addresses and ports, read apart from the code that let it pass.
fn check(owned: &Owned, frame: &[u8]) {
    assert_eq!(frame[6..12], owned.mac);
    let is_own = |source: IpAddr| assert!(owned.addresses.contains(&source), "{source}");
    let v4 = |at: usize| IpAddr::from(<[u8; 4]>::try_from(&frame[at..at + 4]).expect("four bytes"));
    let v6 = |at: usize| IpAddr::from(<[u8; 16]>::try_from(&frame[at..at + 16]).expect("16 bytes"));
    let port = |at: usize| {
        let port = u16::from_be_bytes([frame[at], frame[at + 1]]);
        assert!((7..=9).contains(&port), "{port}");
    };
    match frame[12..14] {
        // A request: from the MAC address that the frame is from, for another's address.
        [8, 6] => {
            is_own(v4(28));
            assert_eq!((&frame[20..22], &frame[22..28]), (&[0, 1][..], &owned.mac[..]));
            assert_ne!(v4(28), v4(38));
        }
        [8, 0] => {
            is_own(v4(26));
            assert_eq!((frame[14], frame[20] & 0x3f, frame[21]), (0x45, 0, 0));
            match frame[23] {
                TCP | UDP => port(34),
                // "Unreachable", about what was for an own port.
                ICMP => assert_eq!(frame[34], 3),
                other => panic!("protocol {other}"),
            }
        }
        [0x86, 0xdd] => {
            is_own(v6(22));
            match frame[20] {
                TCP | UDP => port(54),
                ICMPV6 => assert!(matches!(frame[54], 1 | 135), "{}", frame[54]),
                other => panic!("next header {other}"),
            }
        }
        ref other => panic!("{other:?}"),
    }
}
