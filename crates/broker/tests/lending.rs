//! The broker in a network namespace of the test's own, with clients of it.

use std::io::Write;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, recv, send, setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};
use windtunnel_broker::{Broker, BrokerError, CLIENTS_OF_USER_MAX, Config};
use windtunnel_ports::{Answer, DropCause, HostInterface, Port, PortRange, PortSpec, open};

fn sh(line: &str) -> String {
    let output = Command::new("sh").args(["-c", line]).output().unwrap();
    assert!(
        output.status.success(),
        "{line}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// A namespace with a cable in it, and a broker on a thread that this user may ask for TCP 40000 to 40099 on one end.
fn broker(path: &Path) -> bool {
    if let Err(errno) = unshare(CloneFlags::CLONE_NEWNET) {
        let why = format!("skipped: a network namespace of the test's own needs CAP_SYS_ADMIN ({errno})\n");
        std::io::stderr().write_all(why.as_bytes()).unwrap();
        return false;
    }
    sh("ip link set lo up; ip link add host0 type veth peer name wire0; ip link set host0 up; ip link set wire0 up");
    sh("ip address add 192.0.2.1/24 dev host0");
    let rule = format!(
        "[[allow]]\nusers = ['{}']\ninterfaces = ['host0']\ntcp = ['40000-40099']\n",
        nix::unistd::getuid()
    );
    let config = Config::parse(&rule, "", "").unwrap();
    let broker = Broker::open(path, config, |_| ()).unwrap();
    std::thread::spawn(move || broker.run());
    true
}

fn port(path: &Path, first: u16, last: u16) -> Result<Box<dyn Port>, String> {
    let spec = PortSpec::Raw {
        interface: "host0".into(),
        tcp: vec![PortRange { first, last }],
        udp: vec![],
        broker: Some(path.into()),
    };
    open(&spec, "p").map_err(|error| error.to_string())
}

fn client(path: &Path) -> OwnedFd {
    let fd = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).unwrap();
    connect(fd.as_raw_fd(), &UnixAddr::new(path).unwrap()).unwrap();
    setsockopt(&fd, sockopt::ReceiveTimeout, &TimeVal::seconds(9)).unwrap();
    fd
}

fn answer(fd: &OwnedFd) -> Answer {
    let mut bytes = [0; 4096];
    let length = recv(fd.as_raw_fd(), &mut bytes, MsgFlags::empty()).unwrap();
    Answer::parse(&bytes[..length]).unwrap()
}

/// A segment without payload from this port of the host.
fn segment(port: u16) -> Vec<u8> {
    let mac = HostInterface::read("host0").unwrap().mac;
    let mut frame = [
        &[0xff; 6][..],
        &mac,
        &[8, 0, 0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0],
    ]
    .concat();
    frame.extend([192, 0, 2, 1, 192, 0, 2, 2]);
    frame.extend(port.to_be_bytes());
    frame.extend([0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0]);
    frame
}

fn arrives(wire: &mut dyn Port, fits: impl Fn(&[u8]) -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(5);
    let mut found = false;
    while Instant::now() < end && !found {
        wire.receive(64, &mut |frame| found |= fits(frame)).unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    found
}

#[test]
fn ports_are_lent_checked_and_given_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    if !broker(&path) {
        return;
    }
    let before = sh("nft list ruleset; ss -Hlntu; ss -Hanp --packet");
    let mut port_here = port(&path, 40_000, 40_009).unwrap();
    assert!(
        port_here
            .describe()
            .contains(" on host0, by the broker: TCP 40000-40009")
    );
    assert!(sh("nft list ruleset").contains("40000-40009") || sh("nft list ruleset").contains("40000"));
    assert!(TcpListener::bind("0.0.0.0:40005").is_err());
    let spec = PortSpec::Interface {
        name: "wire0".into(),
        mtu: None,
    };
    let mut wire = open(&spec, "wire").unwrap();
    for source in [22, 40_010, 40_003] {
        port_here.send(&segment(source)).unwrap();
    }
    port_here.flush().unwrap();
    let from = |port: u16| move |frame: &[u8]| frame[12..14] == [8, 0] && frame[34..36] == port.to_be_bytes();
    assert!(arrives(&mut *wire, from(40_003)));
    assert_eq!(port_here.counters().dropped(DropCause::OutForeign), 2);
    // The other way: to an owned port of the host's address.
    let mut inward = segment(80);
    let mac = HostInterface::read("host0").unwrap().mac;
    inward[..6].copy_from_slice(&mac);
    inward[26..34].copy_from_slice(&[192, 0, 2, 2, 192, 0, 2, 1]);
    inward[36..38].copy_from_slice(&40_001_u16.to_be_bytes());
    wire.send(&inward).unwrap();
    wire.flush().unwrap();
    assert!(arrives(&mut *port_here, |frame| frame == inward));
    drop(wire);
    drop(port_here);
    let end = Instant::now() + Duration::from_secs(5);
    while sh("nft list ruleset; ss -Hlntu; ss -Hanp --packet") != before {
        assert!(Instant::now() < end);
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_client_that_lies_sends_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    if !broker(&path) {
        return;
    }
    let spec = PortSpec::Interface {
        name: "wire0".into(),
        mtu: None,
    };
    let mut wire = open(&spec, "wire").unwrap();
    let liar = client(&path);
    let request = windtunnel_ports::Request {
        interface: "host0".into(),
        tcp: vec![PortRange {
            first: 40_000,
            last: 40_000,
        }],
        udp: vec![],
    };
    send(liar.as_raw_fd(), &request.to_bytes(), MsgFlags::empty()).unwrap();
    assert!(matches!(answer(&liar), Answer::Granted(_)));
    let message = |header: [u8; 10], port| [&header[..], &segment(port)].concat();
    // A checksum that is to be written over the source address.
    let forged = [1, 0, 0, 0, 0, 0, 14, 0, 12, 0];
    for bytes in [
        message([0; 10], 22),
        message(forged, 40_000),
        vec![0; 3],
        message([0; 10], 40_000),
    ] {
        send(liar.as_raw_fd(), &bytes, MsgFlags::empty()).unwrap();
    }
    let mut sent = Vec::new();
    assert!(arrives(&mut *wire, |frame| frame == segment(40_000)));
    wire.receive(64, &mut |frame| sent.push(frame.to_vec())).unwrap();
    assert!(sent.iter().all(|frame| frame[12..14] != [8, 0]), "{sent:?}");
}

#[test]
fn what_is_not_allowed_or_not_a_request_is_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    if !broker(&path) {
        return;
    }
    let error = port(&path, 22, 22).unwrap_err();
    assert!(
        error.contains("the broker refuses: not all of these ports; allowed to user"),
        "{error}"
    );
    assert!(
        port(&folder.path().join("none"), 1, 1)
            .unwrap_err()
            .contains("connecting to the broker at")
    );
    for bytes in [&b"GET / HTTP/1.1"[..], &[0; 4000], &[7; 60_000]] {
        let fd = client(&path);
        send(fd.as_raw_fd(), bytes, MsgFlags::empty()).unwrap();
        let mut rest = [0; 4096];
        let length = recv(fd.as_raw_fd(), &mut rest, MsgFlags::empty()).unwrap();
        if length > 0 {
            assert!(
                matches!(Answer::parse(&rest[..length]), Ok(Answer::Refused(words)) if words.contains("cannot be read"))
            );
        }
    }
    let all: Vec<OwnedFd> = (0..CLIENTS_OF_USER_MAX).map(|_| client(&path)).collect();
    let words = |answer| match answer {
        Answer::Refused(words) => words,
        Answer::Granted(_) => panic!("one too many"),
    };
    assert!(words(answer(&client(&path))).contains("8 connections already"));
    drop(all);
    assert!(matches!(
        Broker::open(&path, Config::default(), |_| ()),
        Err(BrokerError::Running(_))
    ));
    let end = Instant::now() + Duration::from_secs(5);
    while let Err(error) = port(&path, 40_000, 40_000) {
        assert!(Instant::now() < end, "{error}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
