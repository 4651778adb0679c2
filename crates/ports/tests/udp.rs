//! UDP ports on the loopback interface: no right is needed.

mod common;

use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use common::{expect, put, storm, wait};
use windtunnel_ports::{DropCause, Port, PortError, PortSpec, open};

/// Two addresses that nobody uses.
fn addresses() -> (SocketAddr, SocketAddr) {
    let bind = || UdpSocket::bind("127.0.0.1:0").unwrap();
    let (one, other) = (bind(), bind());
    (one.local_addr().unwrap(), other.local_addr().unwrap())
}

fn port(name: &str, (local, peer): (SocketAddr, SocketAddr), key: Option<&Path>) -> Box<dyn Port> {
    open(&spec((local, peer), key), name).unwrap()
}

fn spec((local, peer): (SocketAddr, SocketAddr), key: Option<&Path>) -> PortSpec {
    PortSpec::Udp {
        local,
        peer,
        key_file: key.map(PathBuf::from),
    }
}

fn key_file(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path
}

/// Lets both work until they know each other, or for so long; what errors there were.
fn meet(one: &mut dyn Port, other: &mut dyn Port, time: Duration) -> Vec<PortError> {
    let end = Instant::now() + time;
    let mut errors = Vec::new();
    while Instant::now() < end && !(one.peer().unwrap().connected && other.peer().unwrap().connected) {
        wait(one, 10);
        errors.extend(one.receive(64, &mut |_| ()).err());
        wait(other, 10);
        errors.extend(other.receive(64, &mut |_| ()).err());
    }
    errors
}

const LONG: Duration = Duration::from_secs(5);

#[test]
fn two_ends_show_each_others_state_and_pass_frames() {
    let folder = tempfile::tempdir().unwrap();
    let key = key_file(folder.path(), "key", &format!("{}\n", "0f".repeat(32)));
    for key in [None, Some(key.as_path())] {
        let (a, b) = addresses();
        let mut one = port("one", (a, b), key);
        put(&mut *one, &[0; 60]);
        assert_eq!(one.counters().dropped(DropCause::OutDown), 1, "nobody is there yet");
        let mut other = port("other", (b, a), key);
        assert!(meet(&mut *one, &mut *other, LONG).is_empty());
        // The last hello of the greeting may still be on its way.
        expect_state(&mut *other, "one");
        expect_state(&mut *one, "other");
        for bytes in [14, 1514, 9014, 65_400] {
            put(&mut *one, &vec![1; bytes]);
            assert_eq!(expect(&mut *other, "a frame", |_| true), vec![1; bytes]);
            put(&mut *other, &vec![2; bytes]);
            assert_eq!(expect(&mut *one, "a frame", |_| true), vec![2; bytes]);
        }
        put(&mut *one, &[1; 65_557]);
        assert_eq!(one.counters().dropped(DropCause::OutTooLong), 1);
        // The peer starts again: it is found again.
        drop(other);
        let mut other = port("again", (b, a), key);
        let end = Instant::now() + LONG;
        while one.peer().unwrap().name.as_deref() != Some("again") && Instant::now() < end {
            meet(&mut *other, &mut *one, Duration::from_millis(50));
            wait(&*one, 50);
            let _ = one.receive(9, &mut |_| ());
        }
        put(&mut *other, &[3; 60]);
        expect(&mut *one, "a frame of the new peer", |frame| frame == [3; 60]);
    }
}

fn expect_state(port: &mut dyn Port, name: &str) {
    let state = port.peer().unwrap();
    assert!(state.connected && state.seen_ago.unwrap() < LONG, "{state:?}");
    assert_eq!(state.name.as_deref(), Some(name));
    assert!(state.version.unwrap().starts_with("windtunnel "));
}

#[test]
fn another_key_or_none_is_told_at_both_ends() {
    let folder = tempfile::tempdir().unwrap();
    let keys = [
        Some(key_file(folder.path(), "a", &"aa".repeat(32))),
        Some(key_file(folder.path(), "b", &"bb".repeat(32))),
        None,
    ];
    for other_key in &keys[1..] {
        let (a, b) = addresses();
        let mut one = port("one", (a, b), keys[0].as_deref());
        let mut other = port("other", (b, a), other_key.as_deref());
        let errors = meet(&mut *one, &mut *other, Duration::from_millis(800));
        let texts: Vec<String> = errors.iter().map(PortError::to_string).collect();
        assert_eq!(texts.len(), 2, "{texts:?}");
        assert!(
            texts
                .iter()
                .all(|text| text.contains("is not sealed with the key of this port")),
            "{texts:?}"
        );
        assert!(!one.peer().unwrap().connected && !other.peer().unwrap().connected);
        assert!(one.counters().dropped(DropCause::InForged) > 1);
    }
}

#[test]
fn another_version_is_told_once_in_clear_text() {
    let (a, b) = addresses();
    let peer = UdpSocket::bind(b).unwrap();
    let mut port = port("outside", (a, b), None);
    let mut datagram = [0; 64];
    let (length, _) = peer.recv_from(&mut datagram).unwrap();
    datagram[4] = 2;
    for _ in 0..2 {
        peer.send_to(&datagram[..length], a).unwrap();
    }
    // Not before everything that waits has been taken.
    assert_eq!(port.receive(1, &mut |_| ()).unwrap(), 1);
    let error = port.receive(9, &mut |_| ()).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "port outside: the peer {b} speaks version 2 of the port protocol, this program version 1; nothing passes"
        )
    );
    assert_eq!(error.hint().unwrap(), "use the same release at both ends");
    peer.send_to(&datagram[..length], a).unwrap();
    assert_eq!(port.receive(9, &mut |_| ()).unwrap(), 1);
    assert_eq!(port.counters().dropped(DropCause::InVersion), 3);
}

#[test]
fn nobody_but_the_peer_is_heard() {
    let (a, b) = addresses();
    let mut one = port("one", (a, b), None);
    let mut other = port("other", (b, a), None);
    meet(&mut *one, &mut *other, LONG);
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..100 {
        let _ = stranger.send_to(&[0x57; 200], a);
    }
    put(&mut *other, &[4; 60]);
    expect(&mut *one, "the peer's frame", |frame| frame == [4; 60]);
    assert!(one.counters().drops.is_empty(), "{:?}", one.counters());
}

#[test]
fn damage_does_no_harm() {
    let (a, b) = addresses();
    let peer = UdpSocket::bind(b).unwrap();
    let mut one = port("one", (a, b), None);
    let mut hello = [0; 200];
    let (length, _) = peer.recv_from(&mut hello).unwrap();
    let mut errors = 0;
    for (number, bytes) in storm().enumerate() {
        let mut datagram = bytes.clone();
        if number % 2 == 0 {
            // A real header before the damage, or damage in a real hello.
            datagram.splice(..0, hello[..32].iter().copied());
            datagram[5] = (number % 5) as u8;
            datagram[24] = (number / 2 % 2) as u8 * 0x80;
        } else {
            datagram = hello[..length].to_vec();
            datagram[number % length] ^= bytes.first().copied().unwrap_or(1) | 1;
        }
        peer.send_to(&datagram, a).unwrap();
        errors += usize::from(one.receive(9, &mut |_| ()).is_err());
    }
    assert!(errors <= 2, "{errors} errors were told");
    let counters = one.counters();
    assert!(counters.dropped(DropCause::InMalformed) > 300, "{counters:?}");
    drop(peer);
    let mut other = port("other", (b, a), None);
    meet(&mut *one, &mut *other, LONG);
    put(&mut *other, &[4; 60]);
    expect(&mut *one, "a frame", |frame| frame == [4; 60]);
}

#[test]
fn a_flood_is_bounded_and_what_was_lost_is_known_at_both_ends() {
    let (a, b) = addresses();
    let mut one = port("one", (a, b), None);
    let mut other = port("other", (b, a), None);
    meet(&mut *one, &mut *other, LONG);
    for _ in 0..20_000 {
        other.send(&[5; 1514]).unwrap();
    }
    other.flush().unwrap();
    let sent = other.counters().frames_out;
    let end = Instant::now() + LONG;
    while Instant::now() < end && one.counters().frames_in + one.counters().dropped(DropCause::InLost) < sent {
        wait(&*one, 50);
        one.receive(64, &mut |_| ()).unwrap();
        wait(&*other, 1);
        other.receive(64, &mut |_| ()).unwrap();
    }
    let counters = one.counters();
    let lost = counters.dropped(DropCause::InLost);
    assert!(lost > 0, "{counters:?}");
    assert_eq!(counters.frames_in + lost, sent, "{counters:?}");
    let end = Instant::now() + LONG;
    while Instant::now() < end && other.peer().unwrap().lost_out != Some(lost) {
        for port in [&mut one, &mut other] {
            wait(&**port, 20);
            port.receive(64, &mut |_| ()).unwrap();
        }
    }
    assert_eq!(other.peer().unwrap().lost_out, Some(lost));
}

#[test]
fn key_files_are_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = addresses();
    let text = |path: &Path| {
        let error = open(&spec((a, b), Some(path)), "p").unwrap_err();
        (error.to_string(), error.hint().unwrap())
    };
    let missing = folder.path().join("missing");
    let (what, hint) = text(&missing);
    assert_eq!(what, format!("port p: the key file {} is not there", missing.display()));
    assert!(hint.contains("openssl rand -hex 32"));
    let short = key_file(folder.path(), "short", "abc");
    assert!(
        text(&short)
            .0
            .ends_with("does not hold 64 hexadecimal digits and nothing else")
    );
    let open_file = key_file(folder.path(), "open", &"aa".repeat(32));
    std::fs::set_permissions(&open_file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let (what, hint) = text(&open_file);
    assert!(what.ends_with("may be read or written by others (mode 0644)"), "{what}");
    assert!(hint.starts_with("chmod 600 "));
    let holder = UdpSocket::bind(a).unwrap();
    let error = open(&spec((a, b), None), "p").unwrap_err();
    assert!(
        error
            .hint()
            .unwrap()
            .contains("another program or run has this UDP port"),
        "{error}"
    );
    drop(holder);
}
