// SPDX-License-Identifier: GPL-2.0-or-later
//! What anybody may say to the broker, and the broker to anybody: requests are refused, or read as they were written; of frames none passes that
//! is from another address or port.
#![no_main]

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
        let frame = &bytes[10..];
        assert_eq!(frame[6..12], owned.mac);
        if frame[12..14] == [8, 0] {
            assert_eq!(frame[26..30], [192, 0, 2, 1]);
        }
    }
});
