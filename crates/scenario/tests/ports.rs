//! Link ends outside the run: what they are, and what is wrong with them.

use std::path::Path;

use windtunnel_base::{IfaceId, NodeId, SimDuration};
use windtunnel_ports::{PortSpec, StreamAddress};
use windtunnel_scenario::{Action, Scenario};

fn parse(text: &str) -> Result<Scenario, String> {
    Scenario::parse(text, Path::new("labs/live.yaml")).map_err(|error| error.to_string())
}

fn with(ports: &str, links: &str) -> Result<Scenario, String> {
    parse(&format!(
        "version: 1\nrun: {{stop: 1s, mode: realtime, spin: 50us, late_limit: 2ms, priority: true}}\ndefaults: {{link: {{rate: 1Gbit, delay: 1ms}}}}\n\
         addressing: auto\nrouting: auto\nports: {ports}\nnodes: {{h1: {{}}, r1: {{kind: router}}, s1: {{kind: switch}}}}\nlinks: {links}\n"
    ))
}

#[test]
fn every_kind_is_read() {
    let ports = r#"{a: {tap: wt0, address: [10.0.5.1/24, "fd05::1/64"], mtu: 9000, netns: ns}, b: {interface: eth7}, c: {udp: {local: "127.0.0.1:7000", peer: "127.0.0.1:7001", key: k.txt}}, d: {vxlan: {vni: 5, local: 192.0.2.1, peer: 192.0.2.2}}, e: {stream: "@x", listen: true}, f: {tap: auto}, g: {stream: "tcp:127.0.0.1:9"}, h: {raw: {interface: eth0, tcp: [8080, 40000-40099], udp: [53]}}}"#;
    let links = r#"[{endpoints: [a, "r1:eth0"], a_to_b: {delay: 5ms}}, {endpoints: ["r1:eth1", b]}, {endpoints: ["r1:eth2", c]}, {endpoints: ["r1:eth3", d]}, {endpoints: ["r1:eth4", e]}, {endpoints: ["h1:eth0", "r1:eth5"]}, {endpoints: ["s1:eth0", f]}, {endpoints: ["s1:eth1", g]}, {endpoints: ["r1:eth6", h]}]"#;
    let scenario = with(ports, links).unwrap();
    assert_eq!(scenario.links.len(), 1);
    let names: Vec<&str> = scenario.ports.iter().map(|port| port.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c", "d", "e", "f", "g", "h"]);
    let kinds: Vec<&str> = scenario.ports.iter().map(|port| port.kind()).collect();
    assert_eq!(
        kinds,
        ["tap", "interface", "udp", "vxlan", "stream", "tap", "stream", "raw"]
    );
    let PortSpec::Raw {
        interface,
        tcp,
        udp,
        broker: None,
    } = &scenario.ports[7].spec
    else {
        panic!("{:?}", scenario.ports[7]);
    };
    let texts: Vec<String> = tcp.iter().chain(udp).map(ToString::to_string).collect();
    assert_eq!(
        (interface.as_str(), texts),
        ("eth0", vec!["8080".into(), "40000-40099".into(), "53".into()])
    );
    let first = &scenario.ports[0];
    let end = IfaceId {
        node: NodeId(1),
        index: 0,
    };
    assert_eq!(first.end, end);
    assert_eq!(
        (first.inward.delay, first.outward.delay),
        (SimDuration::from_ms(5), SimDuration::from_ms(1)),
        "a_to_b is from the port here"
    );
    let PortSpec::Tap { netns, mtu, .. } = &first.spec else {
        panic!("{first:?}");
    };
    assert_eq!((netns.as_deref(), *mtu), (Some(Path::new("labs/ns")), Some(9000)));
    assert!(
        matches!(&scenario.ports[4].spec, PortSpec::Stream { at: StreamAddress::Unix(path), listen: true } if path == Path::new("@x"))
    );
    assert!(scenario.run.realtime.wanted);
    assert_eq!(scenario.run.realtime.spin, SimDuration::from_us(50));
    assert_eq!(scenario.run.realtime.late_limit, SimDuration::from_ms(2));
    assert!(scenario.run.realtime.priority);
}

#[test]
fn automatic_addresses_are_in_the_subnet_of_the_host() {
    let ports = r#"{lan: {tap: auto, address: [10.0.0.1/24, "fd05::1/64"]}}"#;
    let links =
        r#"[{endpoints: [lan, "s1:eth0"]}, {endpoints: ["s1:eth1", "r1:eth0"]}, {endpoints: ["r1:eth1", "h1:eth0"]}]"#;
    let scenario = with(ports, links).unwrap();
    let texts = |node: usize, interface: usize| -> Vec<String> {
        let addresses = &scenario.nodes[node].interfaces[interface].addresses;
        addresses.iter().map(ToString::to_string).collect()
    };
    // Also through a switch; the first one is the host's own. The other subnet is another one.
    assert_eq!(texts(1, 0), ["10.0.0.2/24", "fd05::2/64"]);
    assert_eq!(texts(1, 1)[0], "10.0.1.1/24");
    assert!(texts(2, 0).is_empty(), "a port of a switch has none");
    let routes: Vec<String> = scenario.nodes[0]
        .routes
        .iter()
        .map(|route| route.to.to_string())
        .collect();
    assert_eq!(routes, ["0.0.0.0/0", "::/0"], "summed up: all is behind the router");
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    let one = r#"[{endpoints: [lan, "h1:eth0"]}]"#;
    let cases = [
        ("{lan: {}}", one, "does not say what it is"),
        ("{lan: {tap: auto, interface: eth0}}", one, "is of two kinds"),
        ("{h1: {tap: auto}}", one, "the name of a node and of a port"),
        ("{lan: {tap: auto}, wan: {tap: auto}}", one, "port `wan` is on no link"),
        (
            "{lan: {tap: auto}}",
            r#"[{endpoints: [lan, "h1:eth0"]}, {endpoints: [lan, "h1:eth1"]}]"#,
            "port `lan` is on two links",
        ),
        (
            "{lan: {tap: auto}, wan: {tap: auto}}",
            "[{endpoints: [lan, wan]}]",
            "lan and wan are both ports",
        ),
        (
            "{lan: {tap: a-name-too-long-for-linux}}",
            one,
            "cannot be the name of an interface",
        ),
        ("{lan: {tap: auto, listen: true}}", one, "belongs to `stream` only"),
        (
            "{lan: {interface: eth0, address: 10.0.0.1/24}}",
            one,
            "belongs to `tap` only",
        ),
        (
            "{lan: {tap: auto, address: 10.0.0.1}}",
            one,
            "the prefix length is missing",
        ),
        ("{lan: {tap: auto, mtu: 20}}", one, "`20` is not an MTU"),
        (
            "{lan: {udp: {local: \"127.0.0.1:1\", peer: \"[::1]:2\"}}}",
            one,
            "different versions of IP",
        ),
        (
            "{lan: {vxlan: {vni: 16777216, local: 10.0.0.1, peer: 10.0.0.2}}}",
            one,
            "16777215",
        ),
        (
            "{lan: {tap: auto}}",
            r#"[{endpoints: [lam, "h1:eth0"]}]"#,
            "`lam` is not an end of a link",
        ),
    ];
    for (ports, links, text) in cases {
        let error = with(ports, links).unwrap_err();
        assert!(error.contains(text) && error.contains("live.yaml:"), "{text}: {error}");
    }
    let twice = parse(
        "version: 1\nrun: {stop: 1s}\nports: {lan: {tap: auto, address: 10.0.0.1/24}}\nnodes: {h1: {addresses: {eth0: 10.0.0.1/24}}}\n\
         links: [{endpoints: [lan, \"h1:eth0\"], both: {rate: 1Gbit, delay: 0s}}]\n",
    );
    assert!(twice.unwrap_err().contains("is also that of port lan"));
}

#[test]
fn events_change_links_to_ports_in_the_direction_they_name() {
    let events = |events: &str| {
        parse(&format!(
            "version: 1\nrun: {{stop: 9s}}\nports: {{lan: {{tap: auto}}}}\nnodes: {{h1: {{}}}}\n\
             links: [{{endpoints: [lan, \"h1:eth0\"], both: {{rate: 1Gbit, delay: 1ms}}}}]\nevents: [{events}]\n"
        ))
    };
    let ends = [r#"[lan, "h1:eth0"]"#, "[lan, h1]", "[h1, lan]"];
    for (number, ends) in ends.into_iter().enumerate() {
        let scenario = events(&format!("{{at: 1s, link: {ends}, a_to_b: {{delay: 7ms}}}}")).unwrap();
        let Action::SetOutside {
            port: 0,
            outward,
            inward,
        } = &scenario.events[0].action
        else {
            panic!("{:?}", scenario.events);
        };
        let (changed, other) = if number == 2 {
            (outward, inward)
        } else {
            (inward, outward)
        };
        assert_eq!(
            (changed.delay, other.delay),
            (Some(SimDuration::from_ms(7)), None),
            "{ends}"
        );
    }
    let wrong = events(r#"{at: 1s, link: [lan, "h1:eth1"], down: true}"#).unwrap_err();
    assert!(
        wrong.contains("not joined to `h1:eth1`") && wrong.contains("its link is [h1:eth0, lan]"),
        "{wrong}"
    );
    let jitter = events("{at: 1s, link: [lan, h1], set: {jitter: 2ms}}").unwrap_err();
    assert!(jitter.contains("more than the delay"), "{jitter}");
}

#[test]
fn values_of_real_time_are_checked() {
    let run = |run: &str| parse(&format!("version: 1\nrun: {{stop: 1s, {run}}}\nnodes: {{h1: {{}}}}\n"));
    assert!(!run("mode: virtual").unwrap().run.realtime.wanted);
    assert!(run("mode: fast").unwrap_err().contains("realtime"));
    assert!(
        run("mode: realtime, spin: 2ms")
            .unwrap_err()
            .contains("too long to wait awake")
    );
}

#[test]
fn ports_of_the_hosts_own_address_are_checked() {
    let error = with("{p: {raw: {interface: eth0}}}", "[]").unwrap_err();
    assert!(error.contains("owns no port of TCP or UDP"), "{error}");
    for bad in ["0", "70000", "9-8", "http"] {
        let error = with(&format!("{{p: {{raw: {{interface: eth0, tcp: [\"{bad}\"]}}}}}}"), "[]").unwrap_err();
        assert!(error.contains("neither a port nor a range of ports"), "{error}");
    }
}
