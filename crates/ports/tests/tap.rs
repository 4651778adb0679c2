//! A TAP port and the host's own kernel behind it, in a network namespace of the test's own.

mod common;

use common::{answering, own_network, put, sh, storm, take};
use windtunnel_ports::{DropCause, PortError, PortSpec, Subnet, open};

fn spec(name: &str, address: &str) -> PortSpec {
    PortSpec::Tap {
        name: Some(name.into()),
        addresses: vec![Subnet {
            address: address.parse().unwrap(),
            prefix_bits: 24,
        }],
        mtu: None,
        netns: None,
    }
}

#[test]
fn the_host_pings_through_it_and_nothing_is_left() {
    if !own_network() {
        return;
    }
    let mut port = open(&spec("wt0", "192.0.2.1"), "outside").unwrap();
    assert_eq!(port.describe(), "TAP wt0 of the host (192.0.2.1/24, MTU 1500)");
    let output = answering(&mut *port, [192, 0, 2, 2], "ping -c 5 -i 0.05 -W 2 192.0.2.2");
    assert!(output.contains("5 packets transmitted, 5 received"), "{output}");
    let counters = port.counters();
    assert!(counters.frames_in >= 6 && counters.frames_out >= 6, "{counters:?}");
    drop(port);
    assert!(!sh("ip -brief link").contains("wt0"));
    assert!(!sh("ip route; ip address").contains("192.0.2"));
}

#[test]
fn it_has_ipv6_addresses_and_an_mtu() {
    if !own_network() {
        return;
    }
    let spec = PortSpec::Tap {
        name: None,
        addresses: vec![Subnet {
            address: "2001:db8::1".parse().unwrap(),
            prefix_bits: 64,
        }],
        mtu: Some(9000),
        netns: None,
    };
    let port = open(&spec, "outside").unwrap();
    assert_eq!(port.describe(), "TAP tap0 of the host (2001:db8::1/64, MTU 9000)");
    assert!(sh("ip link show tap0").contains("mtu 9000"));
    assert!(sh("ip -6 address show tap0").contains("2001:db8::1/64 scope global"));
}

#[test]
fn names_and_addresses_in_use_are_refused() {
    if !own_network() {
        return;
    }
    let _first = open(&spec("wt0", "192.0.2.1"), "a").unwrap();
    let error = open(&spec("wt0", "192.0.2.9"), "b").unwrap_err();
    assert_eq!(error.to_string(), "port b: the host has an interface wt0 already");
    let error = open(&spec("wt1", "192.0.2.1"), "b").unwrap_err();
    assert_eq!(
        error.to_string(),
        "port b: the host has the address 192.0.2.1 already, on interface wt0"
    );
    assert!(!sh("ip -brief link").contains("wt1"));
    let error = open(&spec("a/b", "192.0.2.3"), "b").unwrap_err();
    assert!(matches!(error, PortError::Name { .. }), "{error}");
    let mut spec = spec("wt2", "192.0.2.3");
    if let PortSpec::Tap { mtu, .. } = &mut spec {
        *mtu = Some(70_000);
    }
    let error = open(&spec, "b").unwrap_err().to_string();
    assert_eq!(
        error,
        "port b: an MTU of 70000 bytes is not possible: 68 to 65521 are allowed"
    );
}

#[test]
fn it_can_be_in_another_namespace() {
    if !own_network() {
        return;
    }
    let other = common::second_network();
    let mut spec = spec("wt0", "192.0.2.1");
    if let PortSpec::Tap { netns, .. } = &mut spec {
        *netns = Some(other.path.clone());
    }
    let port = open(&spec, "outside").unwrap();
    assert!(sh(&other.line("ip -brief address")).contains("192.0.2.1/24"));
    assert!(!sh("ip -brief link").contains("wt0"));
    drop(port);
    assert!(!sh(&other.line("ip -brief link")).contains("wt0"));
    drop(other);
    let error = open(&spec, "outside").unwrap_err().to_string();
    assert!(error.contains("entering the network namespace"), "{error}");
}

/// Where users may have namespaces, no right is needed for a TAP in one.
#[test]
fn it_needs_no_right_in_a_network_of_ones_own() {
    let own = ["--user", "--map-root-user", "--net"];
    let unshare = |program: &std::path::Path, args: &[&str]| {
        let mut command = std::process::Command::new("unshare");
        command.args(own).arg(program).args(args).output().unwrap()
    };
    if !unshare("true".as_ref(), &[]).status.success() {
        common::skipped("this host lets this user have no namespaces");
        return;
    }
    let test = "the_host_pings_through_it_and_nothing_is_left";
    let output = unshare(&std::env::current_exe().unwrap(), &["--exact", test]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("1 passed"), "{text}");
    assert!(!String::from_utf8_lossy(&output.stderr).contains("skipped"));
}

#[test]
fn losing_the_interface_is_told_once_and_counted() {
    if !own_network() {
        return;
    }
    let mut port = open(&spec("wt0", "192.0.2.1"), "outside").unwrap();
    sh("ip link set wt0 down");
    port.send(&[0; 60]).unwrap();
    let error = port.flush().unwrap_err();
    assert_eq!(
        error.to_string(),
        "port outside: the interface wt0 is down; frames are dropped and counted meanwhile"
    );
    put(&mut *port, &[0; 60]);
    sh("ip link set wt0 up");
    put(&mut *port, &[0; 60]);
    assert_eq!(port.counters().dropped(DropCause::OutDown), 2);
    take(&mut *port);
    sh("ip link delete wt0");
    let error = port.receive(1, &mut |_| ()).unwrap_err();
    assert!(error.to_string().contains("the interface wt0 was deleted"), "{error}");
    assert_eq!(port.receive(1, &mut |_| ()).unwrap(), 0);
    assert!(!common::wait(&*port, 0), "a lost interface must not keep the run awake");
    put(&mut *port, &[0; 60]);
    assert_eq!(port.counters().dropped(DropCause::OutDown), 3);
}

#[test]
fn damaged_frames_do_no_harm() {
    if !own_network() {
        return;
    }
    let mut port = open(&spec("wt0", "192.0.2.1"), "outside").unwrap();
    for frame in storm() {
        put(&mut *port, &frame);
    }
    let counters = port.counters();
    assert!(counters.dropped(DropCause::OutMalformed) > 0, "{counters:?}");
    let output = answering(&mut *port, [192, 0, 2, 2], "ping -c 1 -W 2 192.0.2.2");
    assert!(output.contains("1 received"), "{output}");
}

/// The same host at both ends of two ports: what one takes is sent on by the other, as a cable would.
#[test]
fn the_hosts_tcp_passes_with_superframes_split() {
    if !own_network() {
        return;
    }
    let netns = common::second_network();
    let mut here = open(&spec("wt0", "192.0.2.1"), "here").unwrap();
    let mut there_spec = spec("wt1", "192.0.2.2");
    if let PortSpec::Tap { netns: place, .. } = &mut there_spec {
        *place = Some(netns.path.clone());
    }
    let mut there = open(&there_spec, "there").unwrap();
    common::transfer_over(&mut *here, &mut *there, &netns, "192.0.2.2", 1514);
}

/// What the test below kills: not a test of its own.
#[test]
#[ignore = "started by a_killed_process_leaves_nothing"]
fn hold_a_tap() {
    let _port = open(&spec("wt9", "192.0.2.1"), "held").unwrap();
    std::thread::sleep(std::time::Duration::from_secs(60));
}

#[test]
fn a_killed_process_leaves_nothing() {
    if !own_network() {
        return;
    }
    let mut holder = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "hold_a_tap"])
        .spawn()
        .unwrap();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while !sh("ip -brief address").contains("192.0.2.1/24") {
        assert!(
            std::time::Instant::now() < end && holder.try_wait().unwrap().is_none(),
            "no TAP"
        );
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    // Sends SIGKILL.
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert!(!sh("ip -brief link").contains("wt9"));
    assert!(!sh("ip route; ip address").contains("192.0.2"));
}

#[test]
fn a_flood_is_bounded_and_counted() {
    if !own_network() {
        return;
    }
    let mut port = open(&spec("wt0", "192.0.2.1"), "outside").unwrap();
    sh("ip neigh add 192.0.2.2 lladdr 02:00:00:00:00:09 dev wt0");
    let socket = std::net::UdpSocket::bind("192.0.2.1:0").unwrap();
    let mut sent = 0;
    for _ in 0..3000 {
        sent += u64::from(socket.send_to(&[0; 100], "192.0.2.2:9").is_ok());
    }
    let received = take(&mut *port).iter().filter(|frame| frame.len() == 142).count() as u64;
    let dropped = port.counters().dropped(DropCause::InOverflow);
    assert!(
        dropped > 0 && received + dropped >= sent,
        "{sent} {:?}",
        port.counters()
    );
}
