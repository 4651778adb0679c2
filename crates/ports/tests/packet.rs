//! Ports on existing interfaces: ends of veth pairs in a network namespace of the test's own.

mod common;

use common::{Netns, answering, expect, own_network, put, second_network, sh, storm, take, transfer_over};
use windtunnel_ports::{DropCause, Port, PortError, PortSpec, open};

fn port(interface: &str) -> Box<dyn Port> {
    open(&spec(interface), "outside").unwrap()
}

fn spec(interface: &str) -> PortSpec {
    PortSpec::Interface {
        name: interface.into(),
        mtu: None,
    }
}

/// A pair whose end `host0` has the address 192.0.2.1 and whose end `run0` has none.
fn pair() {
    sh("ip link add host0 type veth peer name run0; ip link set run0 up; ip link set host0 up");
    sh("ip address add 192.0.2.1/24 dev host0");
    sh("sysctl -q net.ipv6.conf.run0.disable_ipv6=1 net.ipv6.conf.host0.disable_ipv6=1");
}

/// The same to another namespace, where the host has 192.0.2.2 on `host1`.
fn second_pair(netns: &Netns) {
    let pid = netns
        .path
        .components()
        .nth(2)
        .unwrap()
        .as_os_str()
        .to_str()
        .unwrap()
        .to_string();
    sh("ip link add host1 type veth peer name run1; ip link set run1 up");
    sh(&format!("ip link set host1 netns {pid}"));
    sh(&netns.line("ip link set host1 up"));
    sh(&netns.line("ip address add 192.0.2.2/24 dev host1"));
}

#[test]
fn the_host_pings_through_it() {
    if !own_network() {
        return;
    }
    pair();
    let mut port = port("run0");
    assert_eq!(port.describe(), "interface run0 of the host (MTU 1500)");
    assert!(sh("ip -details link show run0").contains("promiscuity 1"));
    let output = answering(&mut *port, [192, 0, 2, 2], "ping -c 3 -i 0.05 -W 2 192.0.2.2");
    assert!(output.contains("3 received"), "{output}");
    drop(port);
    assert!(sh("ip -details link show run0").contains("promiscuity 0"));
}

#[test]
fn the_hosts_tcp_passes_with_offloads_on() {
    if !own_network() {
        return;
    }
    pair();
    let netns = second_network();
    second_pair(&netns);
    let (mut here, mut there) = (port("run0"), port("run1"));
    transfer_over(&mut *here, &mut *there, &netns, "192.0.2.2", 1514);
    for port in [here, there] {
        assert_eq!(port.counters().dropped(DropCause::InUnsupported), 0);
    }
}

/// The host's kernel takes tags out of what arrives before anybody sees it, also where it knows no VLANs.
#[test]
fn a_vlan_tag_that_the_host_took_out_is_put_back() {
    if !own_network() {
        return;
    }
    pair();
    let (mut here, mut there) = (port("run0"), port("host0"));
    for kind in [[0x81, 0x00], [0x88, 0xa8]] {
        let mut frame = [kind.to_vec(), vec![0x20, 5, 0x08, 0x00], vec![7; 60]].concat();
        frame.splice(..0, [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1]);
        put(&mut *there, &frame);
        let received = expect(&mut *here, "the tagged frame", |frame| frame.ends_with(&[7; 60]));
        assert_eq!(received, frame);
    }
}

#[test]
fn what_cannot_be_a_link_end_is_refused() {
    if !own_network() {
        return;
    }
    pair();
    sh("ip link set host0 down");
    let text = |spec: &PortSpec| {
        let error: PortError = open(spec, "p").unwrap_err();
        (error.to_string(), error.hint().unwrap_or_default())
    };
    let (what, hint) = text(&spec("eth7"));
    assert_eq!(what, "port p: the host has no interface eth7");
    assert_eq!(hint, "`ip -brief link` lists those there are");
    assert_eq!(text(&spec("lo")).0, "port p: interface lo is not an Ethernet interface");
    let (what, hint) = text(&spec("host0"));
    assert_eq!(
        (what.as_str(), hint.as_str()),
        ("port p: interface host0 is down", "ip link set dev host0 up")
    );
    let other_mtu = PortSpec::Interface {
        name: "run0".into(),
        mtu: Some(9000),
    };
    assert_eq!(
        text(&other_mtu).0,
        "port p: interface run0 has an MTU of 1500 bytes, and the scenario says 9000"
    );
}

#[test]
fn losing_the_interface_is_told_once_and_counted() {
    if !own_network() {
        return;
    }
    pair();
    let mut port = port("run0");
    take(&mut *port);
    sh("ip link set run0 down");
    let error = port.receive(9, &mut |_| ()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "port outside: the interface run0 is down; frames are dropped and counted meanwhile"
    );
    assert!(!common::wait(&*port, 0));
    put(&mut *port, &[0; 60]);
    assert_eq!(port.counters().dropped(DropCause::OutDown), 1);
    sh("ip link set run0 up");
    let output = answering(&mut *port, [192, 0, 2, 2], "ping -c 1 -W 2 192.0.2.2");
    assert!(output.contains("1 received"), "{output}");
    put(&mut *port, &[0; 4000]);
    assert_eq!(port.counters().dropped(DropCause::OutTooLong), 1);
    sh("ip link set run0 mtu 1000");
    port.send(&[0; 1200]).unwrap();
    let error = port.flush().unwrap_err();
    assert_eq!(
        error.to_string(),
        "port outside: the MTU of run0 was 1500 bytes and is 1000 now; frames that are too long for it or for a node are dropped"
    );
    assert_eq!(error.hint().as_deref(), Some("ip link set dev run0 mtu 1500"));
    put(&mut *port, &[0; 1200]);
    assert_eq!(port.counters().dropped(DropCause::OutTooLong), 3);
    sh("ip link delete run0");
    let error = port.receive(9, &mut |_| ()).unwrap_err();
    assert!(error.to_string().contains("the interface run0 has vanished"), "{error}");
    put(&mut *port, &[0; 60]);
    assert_eq!(port.counters().dropped(DropCause::OutDown), 2);
    assert!(!common::wait(&*port, 0), "a lost interface must not keep the run awake");
}

#[test]
fn damaged_frames_do_no_harm_either_way() {
    if !own_network() {
        return;
    }
    pair();
    let (mut here, mut there) = (port("run0"), port("host0"));
    let sent: Vec<_> = storm().filter(|frame| frame.len() >= 14).collect();
    for frame in &sent {
        there.send(frame).unwrap();
    }
    there.flush().unwrap();
    put(&mut *there, &[0xee; 60]);
    let mut received = Vec::new();
    expect(&mut *here, "the last frame", |frame| {
        received.push(frame.to_vec());
        frame == [0xee; 60]
    });
    // What the host's driver takes comes out as it went in.
    let taken = there.counters().frames_out as usize;
    assert_eq!(
        (received.len(), taken > sent.len() / 2),
        (taken, true),
        "{:?}",
        there.counters()
    );
}

#[test]
fn a_flood_is_bounded_and_counted() {
    if !own_network() {
        return;
    }
    pair();
    let (here, mut there) = (port("run0"), port("host0"));
    for _ in 0..30_000 {
        there.send(&[0xff; 1500]).unwrap();
    }
    there.flush().unwrap();
    let counters = here.counters();
    assert!(counters.dropped(DropCause::InOverflow) > 0, "{counters:?}");
    assert_eq!(here.counters(), counters);
}
