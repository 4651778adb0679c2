//! VXLAN ports and the vxlan device of the host's kernel, in a network namespace of the test's own.

mod common;

use std::collections::BTreeMap;
use std::net::UdpSocket;

use common::{answering, expect, own_network, put, second_network, sh, storm, take, transfer_over};
use windtunnel_ports::{DropCause, PortSpec, Subnet, open};

fn spec(vni: u32, local: &str, peer: &str) -> PortSpec {
    PortSpec::Vxlan {
        vni,
        local: local.parse().unwrap(),
        peer: peer.parse().unwrap(),
        port: None,
        mtu: None,
    }
}

/// A namespace with a vxlan device of the kernel whose peer is a port here; the device has 198.51.100.`host`.
fn kernel_peer(number: u8) -> common::Netns {
    let netns = second_network();
    let pid = netns
        .path
        .components()
        .nth(2)
        .unwrap()
        .as_os_str()
        .to_str()
        .unwrap()
        .to_string();
    sh(&format!(
        "ip link add wire{number} type veth peer name far; ip link set wire{number} up; ip link set far netns {pid}"
    ));
    sh(&format!("ip address add 192.0.{number}.1/24 dev wire{number}"));
    sh(&netns.line("ip link set far up"));
    sh(&netns.line(&format!("ip address add 192.0.{number}.2/24 dev far")));
    sh(&netns.line(&format!(
        "ip link add vx0 type vxlan id 42 local 192.0.{number}.2 remote 192.0.{number}.1 dstport 4789"
    )));
    sh(&netns.line("ip link set vx0 up"));
    sh(&netns.line(&format!("ip address add 198.51.100.{number}/24 dev vx0")));
    netns
}

#[test]
fn the_kernels_device_pings_through_it() {
    if !own_network() {
        return;
    }
    let netns = kernel_peer(2);
    let mut port = open(&spec(42, "192.0.2.1", "192.0.2.2"), "outside").unwrap();
    assert_eq!(port.describe(), "VXLAN 42 from 192.0.2.1:4789 to 192.0.2.2:4789");
    let output = answering(
        &mut *port,
        [198, 51, 100, 9],
        &netns.line("ping -c 3 -i 0.05 -W 2 198.51.100.9"),
    );
    assert!(output.contains("3 received"), "{output}");
}

#[test]
fn the_kernels_tcp_passes_through_it() {
    if !own_network() {
        return;
    }
    let netns = kernel_peer(2);
    let tap = PortSpec::Tap {
        name: None,
        addresses: vec![Subnet {
            address: "198.51.100.1".parse().unwrap(),
            prefix_bits: 24,
        }],
        mtu: Some(1450),
        netns: None,
    };
    let mut here = open(&tap, "here").unwrap();
    let mut there = open(&spec(42, "192.0.2.1", "192.0.2.2"), "there").unwrap();
    transfer_over(&mut *here, &mut *there, &netns, "198.51.100.2", 1464);
    assert_eq!(there.counters().drops, BTreeMap::new());
}

#[test]
fn only_the_peer_is_listened_to_and_damage_does_no_harm() {
    if !own_network() {
        return;
    }
    let mut port = open(&spec(7, "127.0.0.1", "127.0.0.2"), "outside").unwrap();
    let (peer, stranger) = (
        UdpSocket::bind("127.0.0.2:0").unwrap(),
        UdpSocket::bind("127.0.0.3:0").unwrap(),
    );
    let mut datagram = vec![8, 0, 0, 0, 0, 0, 7, 0];
    datagram.extend([0xee; 60]);
    stranger.send_to(&datagram, "127.0.0.1:4789").unwrap();
    for bytes in storm() {
        peer.send_to(&bytes, "127.0.0.1:4789").unwrap();
        take(&mut *port);
    }
    peer.send_to(&datagram, "127.0.0.1:4789").unwrap();
    let frame = expect(&mut *port, "the last frame", |frame| frame[0] == 0xee);
    assert_eq!(frame, [0xee; 60]);
    let counters = port.counters();
    assert!(counters.dropped(DropCause::InMalformed) > 500, "{counters:?}");
    assert!(counters.dropped(DropCause::InStranger) > 1, "{counters:?}");
    // Both ways, and frames longer than the path's MTU.
    let mut other = open(&spec(7, "127.0.0.2", "127.0.0.1"), "other").unwrap();
    for bytes in [14, 1514, 65_000] {
        put(&mut *other, &vec![0xcc; bytes]);
        assert_eq!(expect(&mut *port, "a frame", |_| true).len(), bytes);
    }
    put(&mut *other, &[0xcc; 65_557]);
    assert_eq!(other.counters().dropped(DropCause::OutTooLong), 1);
}

#[test]
fn what_cannot_be_is_refused() {
    let text = |vni, local, peer| open(&spec(vni, local, peer), "p").unwrap_err().to_string();
    assert_eq!(
        text(1 << 24, "127.0.0.1", "127.0.0.2"),
        "port p: a VNI of 16777216 is not possible: 0 to 16777215 are allowed"
    );
    assert!(text(1, "127.0.0.1", "::1").contains("of different families"));
    assert!(text(1, "192.0.2.77", "192.0.2.1").starts_with("port p: listening at UDP 192.0.2.77:4789 failed"));
}
