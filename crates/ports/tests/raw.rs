//! Ports on the host's own address: a veth pair between a network namespace of the test's own and another.

mod common;

use std::net::{TcpListener, UdpSocket};

use common::{Netns, expect, own_network, put, second_network, sh, take};
use windtunnel_ports::{DropCause, HostInterface, PortRange, PortSpec, Subnet, free_ports, open};

fn spec(tcp: &[(u16, u16)], udp: &[(u16, u16)]) -> PortSpec {
    let ranges = |list: &[(u16, u16)]| list.iter().map(|&(first, last)| PortRange { first, last }).collect();
    PortSpec::Raw {
        interface: "host0".into(),
        tcp: ranges(tcp),
        udp: ranges(udp),
        broker: None,
    }
}

/// The test's namespace is the host with 192.0.2.1 on `host0`; the peer is 192.0.2.2 in the other one.
fn pair(netns: &Netns) {
    let pid = netns.path.components().nth(2).unwrap().as_os_str().to_str().unwrap();
    sh(&format!("ip link add host0 type veth peer name peer0 netns {pid}"));
    sh("ip address add 192.0.2.1/24 dev host0; ip address add fd00::1/64 dev host0 nodad; ip link set host0 up");
    sh(&netns.line("ip address add 192.0.2.2/24 dev peer0"));
    sh(&netns.line("ip link set peer0 up"));
    sh("ip route add default via 192.0.2.254");
}

/// What of the host could change.
fn state() -> String {
    sh("nft list ruleset; ip -details link show; ip address; ss --all --numeric --no-header --tcp --udp --packet")
        .lines()
        .filter(|line| !line.contains("valid_lft"))
        // What the kernel is still looking whether it is there twice.
        .map(|line| line.replace(" tentative", ""))
        .collect::<Vec<_>>()
        .join("\n")
}

/// A SYN from the peer's namespace to a port of the host, and what came of it.
fn connects(netns: &Netns, port: u16) -> String {
    sh(&netns.line(&format!(
        "python3 -c 'import socket; s = socket.socket(); s.settimeout(0.5); print(s.connect_ex((\"192.0.2.1\", {port})))'"
    )))
}

#[test]
fn the_host_neither_answers_on_owned_ports_nor_gets_them_and_all_is_as_before_afterwards() {
    if !own_network() {
        return;
    }
    let netns = second_network();
    pair(&netns);
    let before = state();
    assert!(
        connects(&netns, 40_001).contains("111"),
        "the host refuses a closed port"
    );
    let mut port = open(&spec(&[(40_000, 40_009)], &[(40_000, 40_001)]), "p").unwrap();
    assert!(port.describe().contains("192.0.2.1") && port.describe().ends_with("TCP 40000-40009; UDP 40000-40001"));
    assert!(sh("nft list ruleset").contains("40000"));
    assert!(
        connects(&netns, 40_001).contains("11\n"),
        "no RST: it waits until its time is over"
    );
    let is_syn = |frame: &[u8]| frame[12..14] == [8, 0] && frame[23] == 6 && frame[36..38] == 40_001_u16.to_be_bytes();
    expect(&mut *port, "the SYN", is_syn);
    // What is not owned is the host's, beside it.
    let listener = TcpListener::bind("192.0.2.1:40010").unwrap();
    assert!(connects(&netns, 40_010).contains("0\n"));
    drop(listener);
    assert!(connects(&netns, 40_010).contains("111"), "a RST for what is not owned");
    assert!(
        take(&mut *port)
            .iter()
            .all(|frame| frame[12..14] != [8, 0] || is_syn(frame))
    );
    for address in ["192.0.2.1:40005", "127.0.0.1:40005", "[::]:40005"] {
        let error = TcpListener::bind(address).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse, "{address}");
    }
    assert!(UdpSocket::bind("0.0.0.0:40001").is_err());
    let error = open(&spec(&[(40_009, 40_009)], &[]), "q").unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("port q: owning TCP port 40009 of the host failed"),
        "{error}"
    );
    assert!(error.hint().unwrap().contains("ss --tcp"));
    drop(port);
    assert_eq!(state(), before);
}

#[test]
fn what_is_not_the_ports_own_is_not_sent_and_is_counted() {
    if !own_network() {
        return;
    }
    let netns = second_network();
    pair(&netns);
    let host = HostInterface::read("host0").unwrap();
    let mut port = open(&spec(&[], &[(40_000, 40_000)]), "p").unwrap();
    let sniffer = PortSpec::Interface {
        name: "peer0".into(),
        mtu: None,
    };
    let mut wire = in_netns(&netns, || open(&sniffer, "wire").unwrap());
    let datagram = |address: [u8; 4], source: u16| {
        let mut frame = [
            &[0xff; 6][..],
            &host.mac,
            &[8, 0, 0x45, 0, 0, 32, 0, 0, 0x40, 0, 64, 17, 0, 0],
        ]
        .concat();
        frame.extend(address);
        frame.extend([192, 0, 2, 2]);
        let sum = common::checksum(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame.extend([&source.to_be_bytes()[..], &[0, 9, 0, 12, 0, 0], b"mark"].concat());
        frame
    };
    for frame in [
        datagram([192, 0, 2, 7], 40_000),
        datagram([192, 0, 2, 1], 53),
        datagram([192, 0, 2, 1], 40_000),
    ] {
        put(&mut *port, &frame);
    }
    let arrived = expect(&mut *wire, "the datagram", |frame| frame.ends_with(b"mark"));
    assert_eq!(arrived, datagram([192, 0, 2, 1], 40_000));
    assert_eq!(port.counters().dropped(DropCause::OutForeign), 2);
    assert_eq!(port.counters().frames_out, 1);
}

#[test]
fn the_interface_is_read_as_the_host_has_it() {
    if !own_network() {
        return;
    }
    let netns = second_network();
    pair(&netns);
    let host = HostInterface::read("host0").unwrap();
    let text = sh("ip -brief link show host0");
    let mac: Vec<String> = host.mac.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(text.contains(&mac.join(":")), "{text}");
    assert_eq!(host.mtu, 1500);
    let subnet = |text: &str, prefix_bits| Subnet {
        address: text.parse().unwrap(),
        prefix_bits,
    };
    assert!(host.addresses.contains(&subnet("192.0.2.1", 24)) && host.addresses.contains(&subnet("fd00::1", 64)));
    let default = host.routes.iter().find(|route| route.to.prefix_bits == 0).unwrap();
    assert_eq!(default.via, Some("192.0.2.254".parse().unwrap()));
    assert!(
        host.routes
            .iter()
            .any(|route| route.to == subnet("192.0.2.0", 24) && route.via.is_none())
    );
    // One that is being tried is not for new connections.
    sh("ip address add fd00::2/64 dev host0; ip address add fd00::3/64 dev host0 nodad");
    sh("ip address add fd00::4/64 dev host0 nodad preferred_lft 0; ip address add 192.0.2.3/24 dev host0");
    let host_now = HostInterface::read("host0").unwrap();
    let order = |text: &str, bits| host_now.preferred.iter().position(|found| *found == subnet(text, bits));
    assert!(order("192.0.2.1", 24) < order("192.0.2.3", 24));
    assert!(order("fd00::1", 64) < order("fd00::3", 64) && order("fd00::1", 64).is_some());
    assert!(order("fd00::4", 64).is_none());
    assert!(host_now.addresses.contains(&subnet("fd00::4", 64)));
    assert_eq!(HostInterface::of_default_route().as_deref(), Some("host0"));
    connects(&netns, 1);
    let host = HostInterface::read("host0").unwrap();
    assert!(
        host.neighbours
            .iter()
            .any(|(address, _)| address.to_string() == "192.0.2.2")
    );
    assert!(HostInterface::read("eth7").is_err() && HostInterface::read("lo").is_err());
}

#[test]
fn free_ports_are_free_of_what_is_used() {
    if !own_network() {
        return;
    }
    let first = free_ports(100, 0).unwrap();
    assert_eq!(first.count(), 100);
    let holder = TcpListener::bind(("0.0.0.0", first.first + 50)).unwrap();
    let other = free_ports(100, 0).unwrap();
    assert!(!other.has(first.first + 50));
    drop(holder);
}

/// Does something in another namespace, on a thread of its own.
fn in_netns<T: Send>(netns: &Netns, what: impl FnOnce() -> T + Send) -> T {
    let file = std::fs::File::open(&netns.path).unwrap();
    std::thread::scope(|scope| {
        let inside = move || {
            nix::sched::setns(file, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            what()
        };
        scope.spawn(inside).join().unwrap()
    })
}
