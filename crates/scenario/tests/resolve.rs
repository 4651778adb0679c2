//! What a scenario means once every default is filled in.

use std::path::{Path, PathBuf};

use windtunnel_base::{ByteCost, ByteSize, IfaceId, NodeId, Probability, Rate, SimDuration, SimTime};
use windtunnel_links::{LinkChange, LinkParams, QueueLimit};
use windtunnel_scenario::{
    Action, Cpu, End, Event, Exec, Expect, FileContent, Nic, NicModel, Offload, Root, Scenario, StdoutCheck, User,
};

const TEXT: &str = r#"
version: 1
run: {stop: 1min, capture: all}
defaults:
  node: {root: images/web.tar, memory: 32MiB, cpu: {syscall: 300ns, copy: 0.1ns/B}, mtu: 9000, sysctls: {net.ipv4.tcp_congestion_control: bbr, net.ipv4.ip_forward: 0}}
  link: {rate: 1Gbit, delay: 1ms, loss: 1%}
nodes:
  h1:
    addresses: {eth0: [10.0.0.1/24, "fd00::1/64"]}
    routes: [default via 10.0.0.2, {to: "fd01::/16", via: "fd00::2", dev: eth0, metric: 5}]
    files: {/etc/app.conf: {content: "a: 1\n"}, /data/in: {source: in.bin, mode: 0600}}
    setup: [ip link show, [echo, "|"]]
    processes:
      - exec: prog 'two words' "three" # comment
        start: 1s
        stop: 2.5s
        signal: SIGINT
        stdin: hello
        env: {LANG: C, DEBUG: 1}
        cwd: /tmp
        user: 1000:100
        expect: {exit: 3, stdout: {contains: done, matches: ["a+", "b$"]}}
      - exec: [server]
        expect: running
  r1:
    kind: router
    memory: 64MB
    cpu: {syscall: 1.5us}
    root: {image: ../all.tar, name: "web:1"}
    interfaces: {eth2: {mac: "02:aa:00:00:00:01", mtu: 1500, capture: false, addresses: 10.0.2.1/24}}
    sysctls: {net.ipv6.conf.all.forwarding: 0}
  h2: {cpu: instant, root: host}
links:
  - endpoints: ["h2:eth0", "r1:eth10"]
    both: {delay: 5ms, queue: 100p}
    b_to_a: {rate: 2.5Mbit, queue: 64kB, loss: 0%}
  - endpoints: ["h1:eth0", "r1:eth2"]
events:
  - {at: 30s, link: [h1, r1], down: true}
  - {at: 10s, link: ["r1:eth10", "h2:eth0"], set: {loss: 5%}, a_to_b: {delay: 7ms}}
  - {at: 20s, node: h2, exec: ping -c 1 10.0.0.1, expect: any}
"#;

fn scenario() -> Scenario {
    Scenario::parse(TEXT, Path::new("labs/two.yaml")).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn nodes_take_defaults_and_own_values() {
    let scenario = scenario();
    assert_eq!(
        (scenario.name.as_str(), scenario.run.seed, scenario.run.epoch_s),
        ("two", 1, 1_767_225_600)
    );
    assert_eq!(scenario.sha256.len(), 64);
    let [h1, r1, h2] = &scenario.nodes[..] else {
        panic!("three nodes")
    };
    assert_eq!((h1.memory_bytes, r1.memory_bytes), (32 << 20, 64_000_000));
    let limits = |node: &windtunnel_scenario::Node| (node.program_memory_bytes, node.disk_bytes);
    assert_eq!(limits(h1), (16 << 30, 16 << 30));
    let cpu = |syscall_ns, copy_ps| Cpu {
        syscall: SimDuration::from_ns(syscall_ns),
        copy: ByteCost::from_ps(copy_ps),
    };
    assert_eq!([h1.cpu, r1.cpu, h2.cpu], [cpu(300, 100), cpu(1500, 100), cpu(0, 0)]);
    let root = |path: &str, name: Option<&str>| Root::Path {
        path: path.into(),
        name: name.map(str::to_owned),
    };
    assert_eq!(
        [&h1.root, &r1.root, &h2.root],
        [
            &root("labs/images/web.tar", None),
            &root("labs/../all.tar", Some("web:1")),
            &Root::Host
        ]
    );
    assert_eq!((h1.kernel.as_str(), h1.sysctls.len()), ("6.12", 2));
    // kind < defaults < own.
    let sysctls: Vec<_> = r1
        .sysctls
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    assert_eq!(
        sysctls,
        [
            "net.ipv4.ip_forward=0",
            "net.ipv4.tcp_congestion_control=bbr",
            "net.ipv6.conf.all.forwarding=0"
        ]
    );
    assert_eq!(h1.files[0].path, "/etc/app.conf");
    assert_eq!(
        (&h1.files[0].content, h1.files[0].mode),
        (&FileContent::Text("a: 1\n".into()), 0o644)
    );
    assert_eq!(
        (&h1.files[1].content, h1.files[1].mode),
        (&FileContent::Source(PathBuf::from("labs/in.bin")), 0o600)
    );
    assert_eq!(h1.setup, [vec!["ip", "link", "show"], vec!["echo", "|"]]);
}

#[test]
fn interfaces_come_from_links_in_natural_order() {
    let scenario = scenario();
    let r1 = &scenario.nodes[1];
    let brief: Vec<_> = r1
        .interfaces
        .iter()
        .map(|i| (i.name.as_str(), i.mac, i.mtu, i.capture))
        .collect();
    assert_eq!(
        brief,
        [
            ("eth2", [2, 0xaa, 0, 0, 0, 1], 1500, false),
            ("eth10", [2, 0, 0, 1, 0, 1], 9000, true)
        ]
    );
    assert_eq!(r1.interfaces[0].addresses, ["10.0.2.1/24".parse().unwrap()]);
    assert_eq!(
        scenario.iface_name(IfaceId {
            node: NodeId(1),
            index: 1
        }),
        "r1:eth10"
    );
    let routes: Vec<_> = scenario.nodes[0]
        .routes
        .iter()
        .map(|route| (route.to.to_string(), route.metric))
        .collect();
    assert_eq!(routes, [("0.0.0.0/0".into(), None), ("fd01::/16".into(), Some(5))]);
}

#[test]
fn processes_are_complete() {
    let scenario = scenario();
    let [prog, server] = &scenario.nodes[0].processes[..] else {
        panic!("two processes")
    };
    let command = |words: &[&str]| Exec::Command(words.iter().map(|&word| word.into()).collect());
    assert_eq!(prog.exec, command(&["prog", "two words", "three"]));
    assert_eq!(
        (prog.start, prog.stop),
        (SimTime(1_000_000_000), Some(SimTime(2_500_000_000)))
    );
    assert_eq!(
        (prog.stop_signal, prog.stdin.as_deref(), prog.cwd.as_deref()),
        (2, Some("hello"), Some("/tmp"))
    );
    assert_eq!(prog.user.unwrap(), User { uid: 1000, gid: 100 });
    let env: Vec<_> = prog.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(env, ["DEBUG=1", "LANG=C"]);
    let stdout = vec![
        StdoutCheck::Contains("done".into()),
        StdoutCheck::Matches("a+".into()),
        StdoutCheck::Matches("b$".into()),
    ];
    assert_eq!(
        prog.expect,
        Expect {
            end: End::Exit(3),
            stdout
        }
    );
    assert_eq!(
        (server.start, server.stop, server.expect.end),
        (SimTime::ZERO, None, End::Running)
    );
    // An event with exec is a process of its node.
    let late = &scenario.nodes[2].processes[0];
    assert_eq!(
        (late.start, &late.exec, late.expect.end),
        (
            SimTime(20_000_000_000),
            &command(&["ping", "-c", "1", "10.0.0.1"]),
            End::Any
        )
    );
}

#[test]
fn links_and_events_name_directions() {
    let scenario = scenario();
    let link = scenario.links[0];
    assert_eq!(
        (link.a, link.b),
        (
            IfaceId {
                node: NodeId(2),
                index: 0
            },
            IfaceId {
                node: NodeId(1),
                index: 1
            }
        )
    );
    let base = LinkParams::new(Rate::from_mbps(1000), SimDuration::from_ms(5));
    let loss = Probability::from_ppb(10_000_000);
    assert_eq!(
        link.a_to_b,
        LinkParams {
            loss,
            queue: QueueLimit::Packets(100),
            ..base
        }
    );
    let (rate, queue) = (Rate(2_500_000), QueueLimit::Bytes(ByteSize(64_000)));
    assert_eq!(link.b_to_a, LinkParams { rate, queue, ..base });
    // By time; the first names r1 first, so its a_to_b is the link's b_to_a.
    let loss = Some(Probability::from_ppb(50_000_000));
    let none = LinkChange::default();
    let set = |link, a_to_b, b_to_a| Action::SetLink { link, a_to_b, b_to_a };
    let first = set(
        0,
        LinkChange { loss, ..none },
        LinkChange {
            loss,
            delay: Some(SimDuration::from_ms(7)),
            ..none
        },
    );
    let down = LinkChange {
        up: Some(false),
        ..none
    };
    assert_eq!(
        scenario.events,
        [
            Event {
                at: SimTime(10_000_000_000),
                action: first
            },
            Event {
                at: SimTime(30_000_000_000),
                action: set(1, down, down)
            },
        ]
    );
}

#[test]
fn an_address_may_be_twice_but_not_in_silence() {
    const TWICE: &str = r#"
version: 1
run: {stop: 1s}
defaults: {link: {rate: 1Gbit, delay: 1ms}}
nodes:
  a: {addresses: {eth0: FAR}}
  b: {addresses: {eth0: NEAR, eth1: 10.0.2.1/24}}
  c: {addresses: {eth0: FAR}}
links:
  - endpoints: ["a:eth0", "b:eth0"]
  - endpoints: ["b:eth1", "c:eth0"]
"#;
    let text = |far: &str, near: &str| TWICE.replace("FAR", far).replace("NEAR", near);
    let warnings = |far: &str, near: &str| {
        Scenario::parse(&text(far, near), Path::new("twice.yaml"))
            .unwrap_or_else(|error| panic!("{error}"))
            .warnings
            .into_iter()
            .map(|caution| caution.text)
            .collect::<Vec<_>>()
    };
    let twice = "address `192.168.1.1` of c:eth0 is also that of a:eth0";
    assert_eq!(warnings("192.168.1.1/24", "192.168.1.2/24"), [twice]);
    assert_eq!(warnings("169.254.1.1/24", "169.254.1.2/24"), [""; 0]);
    assert_eq!(warnings("\"fe80::1/64\"", "\"fe80::2/64\""), [""; 0]);
    for (far, near) in [("192.168.1.1/24", "192.168.1.1/24"), ("10.0.0.1/24", "10.0.2.1/24")] {
        let error = Scenario::parse(&text(far, near), Path::new("twice.yaml")).unwrap_err();
        assert!(error.to_string().contains("is also that of"), "{error}");
    }
}

#[test]
fn a_kernel_needs_room_for_its_interfaces() {
    let hub = |links: usize, memory: &str| {
        let links: String = (0..links)
            .map(|i| {
                format!("  - {{endpoints: [\"hub:eth{i}\", \"leaf:eth{i}\"], both: {{rate: 1Gbit, delay: 1ms}}}}\n")
            })
            .collect();
        let nodes = format!("  hub: {{memory: {memory}}}\n  leaf: {{memory: 256MiB}}\n");
        Scenario::parse(
            &format!("version: 1\nrun: {{stop: 1s}}\nnodes:\n{nodes}links:\n{links}"),
            Path::new("hub.yaml"),
        )
    };
    assert!(hub(700, "64MiB").is_ok() && hub(1000, "128MiB").is_ok());
    assert_eq!(
        hub(1000, "64MiB").unwrap_err().to_string(),
        "hub.yaml:4:17: node `hub` has 1000 interfaces, which take about 79 MiB of its kernel's memory of 64 MiB\n    4 |   \
         hub: {memory: 64MiB}\n      |                 ^^^^^\nhint: give it `memory: 128MiB`"
    );
}

fn nics(defaults: &str, interfaces: &str) -> Vec<Nic> {
    let text = format!(
        "version: 1\nrun: {{stop: 1s}}\ndefaults: {{node: {{{defaults}}}, link: {{rate: 1Gbit, delay: 1ms}}}}\nnodes: {{a: {{interfaces: \
         {{{interfaces}}}}}, b: {{}}}}\nlinks: [{{endpoints: [\"a:eth0\", \"b:eth0\"]}}]\n"
    );
    let scenario = Scenario::parse(&text, Path::new("x.yaml")).unwrap_or_else(|error| panic!("{error}"));
    let interfaces = scenario.nodes.into_iter().flat_map(|node| node.interfaces);
    interfaces.map(|interface| interface.nic).collect()
}

#[test]
fn nics_are_ideal_unless_a_model_is_named() {
    let nics = nics("", "");
    assert_eq!(nics[0], Nic::default());
    assert_eq!(
        (nics[0].model, nics[0].rx_ring, nics[0].tx_ring),
        (NicModel::Ideal, None, 256)
    );
    assert_eq!(nics[0].interrupt_gap, SimDuration::ZERO);
}

#[test]
fn models_of_nics_come_from_the_interface_else_from_defaults() {
    let nics = nics("model: igb", "eth0: {model: e1000e}");
    assert_eq!((nics[0].model, nics[1].model), (NicModel::E1000e, NicModel::Igb));
    assert_eq!(
        (nics[0].interrupt_gap, nics[0].rx_copybreak),
        (SimDuration::from_us(50), 255)
    );
    assert_eq!((nics[0].uso, nics[1].uso), (Offload::Absent, Offload::On));
}

#[test]
fn an_interface_says_single_values_in_place_of_its_model() {
    let text = "eth0: {model: e1000e, interrupt_gap: 100us, rx_ring: 16, tx_ring: 64, bql: false, rx_buffer: 4KiB, rx_copybreak: 0B, \
                uso: true, gro: false, rx_checksum: false, gso_max_size: 16KiB, interrupt_frames: 8}";
    let nic = nics("", text).swap_remove(0);
    let expected = Nic {
        model: NicModel::E1000e,
        rx_ring: Some(16),
        tx_ring: 64,
        bql: false,
        rx_buffer: 4096,
        rx_copybreak: 0,
        rx_checksum: Offload::Off,
        uso: Offload::On,
        gro: false,
        gso_max_size: Some(16 << 10),
        interrupt_gap: SimDuration::from_us(100),
        interrupt_frames: Some(8),
        ..nics("", "eth0: {model: e1000e}").swap_remove(0)
    };
    assert_eq!(nic, expected);
}

#[test]
fn a_nic_that_does_not_sum_does_not_cut() {
    let nic = nics("", "eth0: {tx_checksum: false}").swap_remove(0);
    assert_eq!(
        (nic.tx_checksum, nic.tso, nic.uso),
        (Offload::Off, Offload::Off, Offload::Off)
    );
    let nic = nics("", "eth0: {model: e1000e, tso: false}").swap_remove(0);
    assert_eq!(
        (nic.tso, nic.tso_ecn, nic.tx_checksum),
        (Offload::Off, Offload::Absent, Offload::On)
    );
}
