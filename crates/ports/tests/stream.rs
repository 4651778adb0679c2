//! Stream ports, with one another and with a peer that this test plays.

mod common;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use common::{expect, put, storm, take, wait};
use windtunnel_ports::{DropCause, Port, PortSpec, StreamAddress, open};

fn unix(path: impl Into<PathBuf>, listen: bool) -> PortSpec {
    PortSpec::Stream {
        at: StreamAddress::Unix(path.into()),
        listen,
    }
}

fn connected(port: &mut dyn Port) -> bool {
    let end = Instant::now() + Duration::from_secs(5);
    while Instant::now() < end && !port.peer().unwrap().connected {
        wait(port, 50);
        let _ = port.receive(0, &mut |_| ());
    }
    port.peer().unwrap().connected
}

/// A frame with its length before it.
fn packed(frame: &[u8]) -> Vec<u8> {
    [&(frame.len() as u32).to_be_bytes()[..], frame].concat()
}

fn exchange(one: &mut dyn Port, other: &mut dyn Port) {
    // The one that connects has to try again first.
    assert!(connected(other) && connected(one));
    for bytes in [14, 60, 1514, 65_557] {
        put(one, &vec![bytes as u8; bytes]);
        assert_eq!(expect(other, "a frame", |_| true), vec![bytes as u8; bytes]);
        put(other, &vec![bytes as u8; bytes]);
        assert_eq!(expect(one, "a frame", |_| true), vec![bytes as u8; bytes]);
    }
}

#[test]
fn two_ports_meet_at_a_file_an_abstract_name_and_tcp() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wire");
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let places = [
        StreamAddress::Unix(file.clone()),
        StreamAddress::Unix(format!("@wt-ports-{}", std::process::id()).into()),
        StreamAddress::Tcp(tcp),
    ];
    for at in places {
        let spec = |listen| PortSpec::Stream { at: at.clone(), listen };
        // In either order: a port connects when the other one is there.
        let mut second = open(&spec(false), "second").unwrap();
        let mut first = open(&spec(true), "first").unwrap();
        exchange(&mut *first, &mut *second);
        drop(first);
        let end = Instant::now() + Duration::from_secs(5);
        while second.peer().unwrap().connected && Instant::now() < end {
            if let Err(error) = second.receive(9, &mut |_| ()) {
                let expected = format!(
                    "port second: the peer at {at} has closed the connection; frames are dropped and counted meanwhile"
                );
                assert_eq!(error.to_string(), expected);
            }
        }
        put(&mut *second, &[0; 60]);
        assert_eq!(second.counters().dropped(DropCause::OutDown), 1);
        let mut first = open(&spec(true), "first").unwrap();
        exchange(&mut *first, &mut *second);
    }
    assert!(!file.exists());
}

#[test]
fn the_file_is_its_users_alone_and_replaced_only_if_it_is_dead() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wire");
    drop(UnixListener::bind(&file).unwrap());
    assert!(file.exists());
    let _port = open(&unix(&file, true), "first").unwrap();
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let error = open(&unix(&file, true), "second").unwrap_err();
    assert!(error.to_string().contains("listening at"), "{error}");
    assert!(error.hint().unwrap().contains("another program listens there"));
    let plain = folder.path().join("plain");
    std::fs::write(&plain, "keep me").unwrap();
    assert!(open(&unix(&plain, true), "third").is_err());
    assert_eq!(std::fs::read_to_string(&plain).unwrap(), "keep me");
    let long = folder.path().join("x".repeat(120));
    let error = open(&unix(long, false), "fourth").unwrap_err().to_string();
    assert!(
        error.ends_with("is too long for a Unix socket: at most 107 bytes are allowed"),
        "{error}"
    );
}

#[test]
fn bytes_may_come_in_any_pieces() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wire");
    let mut port = open(&unix(&file, true), "outside").unwrap();
    let mut peer = UnixStream::connect(&file).unwrap();
    let mut bytes = Vec::new();
    let frames: Vec<Vec<u8>> = (0..50).map(|number| vec![number as u8; 14 + number * 37]).collect();
    frames.iter().for_each(|frame| bytes.extend(packed(frame)));
    let mut received = Vec::new();
    for piece in bytes.chunks(7) {
        peer.write_all(piece).unwrap();
        received.extend(take(&mut *port));
    }
    assert!(received == frames);
    put(&mut *port, &frames[3]);
    let mut answer = vec![0; frames[3].len() + 4];
    peer.read_exact(&mut answer).unwrap();
    assert_eq!(answer, packed(&frames[3]));
}

#[test]
fn a_second_peer_is_sent_away() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wire");
    let mut port = open(&unix(&file, true), "outside").unwrap();
    let mut first = UnixStream::connect(&file).unwrap();
    assert!(connected(&mut *port));
    let mut second = UnixStream::connect(&file).unwrap();
    take(&mut *port);
    assert_eq!(second.read(&mut [0; 9]).unwrap_or(0), 0);
    assert_eq!(port.counters().dropped(DropCause::InStranger), 1);
    first.write_all(&packed(&[5; 60])).unwrap();
    expect(&mut *port, "a frame of the first", |frame| frame == [5; 60]);
}

#[test]
fn a_peer_that_does_not_read_costs_frames_and_no_memory() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wire");
    let mut port = open(&unix(&file, true), "outside").unwrap();
    let mut peer = UnixStream::connect(&file).unwrap();
    assert!(connected(&mut *port));
    for _ in 0..8000 {
        put(&mut *port, &[1; 1514]);
    }
    let counters = port.counters();
    assert!(counters.dropped(DropCause::OutFull) > 1000, "{counters:?}");
    // When it reads again, what was taken arrives whole; the port writes what waits as soon as there is room.
    let mut bytes = 0;
    let mut buffer = vec![0; 1 << 16];
    peer.set_nonblocking(true).unwrap();
    while bytes < counters.frames_out * 1518 {
        match peer.read(&mut buffer) {
            Ok(read) => bytes += read as u64,
            Err(_) => {
                assert!(wait(&*port, 5000), "{bytes} bytes");
                take(&mut *port);
            }
        }
    }
    assert_eq!(bytes, counters.frames_out * 1518);
    assert!(!wait(&*port, 0));
}

#[test]
fn nonsense_ends_the_connection_and_damage_does_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wire");
    let mut port = open(&unix(&file, true), "outside").unwrap();
    let mut peer = UnixStream::connect(&file).unwrap();
    let mut passed = 0;
    for frame in storm().filter(|frame| !frame.is_empty()) {
        peer.write_all(&packed(&frame)).unwrap();
        passed += u64::from(frame.len() >= 14);
        take(&mut *port);
    }
    let counters = port.counters();
    assert_eq!(counters.frames_in, passed);
    assert!(counters.dropped(DropCause::InMalformed) > 100, "{counters:?}");
    for length in [0_u32, 70_000, u32::MAX] {
        peer.write_all(&length.to_be_bytes()).unwrap();
        let error = port.receive(9, &mut |_| ()).unwrap_err().to_string();
        assert!(
            error.contains(&format!("sent a frame of {length} bytes, which is none")),
            "{error}"
        );
        peer = UnixStream::connect(&file).unwrap();
        assert!(connected(&mut *port));
    }
    // Random bytes: whatever is made of them, a new peer is served.
    for frame in storm() {
        let _ = peer.write_all(&frame);
        let _ = port.receive(64, &mut |_| ());
        if !port.peer().unwrap().connected {
            peer = UnixStream::connect(&file).unwrap();
            assert!(connected(&mut *port));
        }
    }
}

#[test]
fn what_is_read_at_any_moment_ends_with_a_frame() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wire");
    let mut port = open(&unix(&file, true), "outside").unwrap();
    let mut peer = UnixStream::connect(&file).unwrap();
    assert!(connected(&mut *port));
    peer.set_nonblocking(true).unwrap();
    let mut buffer = vec![0; 1 << 20];
    for bytes in [54, 1514, 9014] {
        let frame = vec![1; bytes];
        for _ in 0..20 {
            // More than the socket takes: the rest waits.
            for _ in 0..700_000 / bytes {
                port.send(&frame).unwrap();
            }
            port.flush().unwrap();
            let mut reads = 0;
            while let Ok(read) = peer.read(&mut buffer) {
                assert_eq!(read % (4 + bytes), 0, "{read} bytes are no whole frames of {bytes}");
                reads += 1;
                port.flush().unwrap();
            }
            assert!(reads > 1, "{bytes}");
        }
    }
    assert_eq!(port.counters().drops, BTreeMap::new());
}

/// An Ethernet frame of this type, with a packet that is padded for a cable.
fn padded(kind: [u8; 2], packet: &[u8]) -> Vec<u8> {
    let mut frame = [&[2; 12][..], &kind, packet].concat();
    frame.resize(frame.len().max(60), 0);
    frame
}

#[test]
fn padding_stays_behind() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wire");
    let mut port = open(&unix(&file, true), "outside").unwrap();
    let mut peer = UnixStream::connect(&file).unwrap();
    assert!(connected(&mut *port));
    let ipv4 = |length: u8, bytes: usize| [&[0x45, 0, 0, length][..], &vec![7; bytes - 4]].concat();
    let ipv6 = |length: u8, bytes: usize| [&[0x60, 0, 0, 0, 0, length, 59, 64][..], &vec![7; bytes - 8]].concat();
    let arp = [&[0, 1, 8, 0, 6, 4, 0, 1][..], &[7; 20]].concat();
    let (v4, v6, of_arp) = ([0x08, 0x00], [0x86, 0xdd], [0x08, 0x06]);
    for (frame, passed) in [
        // An acknowledgement of TCP, which has no data.
        (padded(v4, &ipv4(40, 40)), 54),
        (padded(v4, &ipv4(46, 46)), 60),
        (padded(v4, &ipv4(47, 47)), 61),
        (padded(v6, &ipv6(0, 40)), 54),
        (padded(v6, &ipv6(6, 46)), 60),
        (padded(of_arp, &arp), 42),
        // Its length is not known, or is not the packet's: it passes as it is.
        (padded([0x88, 0xb5], &[7; 20]), 60),
        (padded(v4, &ipv4(19, 40)), 60),
        (padded(v4, &ipv4(100, 40)), 60),
        // What was not padded.
        (padded(v4, &ipv4(40, 60)), 74),
        (vec![2; 14], 14),
    ] {
        put(&mut *port, &frame);
        let mut answer = vec![0; passed + 4];
        peer.read_exact(&mut answer).unwrap();
        assert_eq!(answer, packed(&frame[..passed]));
    }
    peer.set_nonblocking(true).unwrap();
    assert!(peer.read(&mut [0]).is_err());
}
