//! Addresses and routes that a scenario leaves to us.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use proptest::prelude::*;
use windtunnel_scenario::{IpNet, Node, NodeKind, Scenario};

fn parse(text: &str) -> Scenario {
    Scenario::parse(text, Path::new("plan.yaml")).unwrap_or_else(|error| panic!("{error}"))
}

fn scenario(plan: &str, nodes: &[(&str, &str)], links: &[(&str, &str)]) -> Scenario {
    let mut text =
        format!("version: 1\nrun: {{stop: 1s}}\ndefaults: {{link: {{rate: 1Gbit, delay: 1ms}}}}\n{plan}\nnodes:\n");
    for (name, body) in nodes {
        text += &format!("  {name}: {{{body}}}\n");
    }
    text += "links:\n";
    for (a, b) in links {
        text += &format!("  - endpoints: [\"{a}\", \"{b}\"]\n");
    }
    parse(&text)
}

fn addresses(scenario: &Scenario, node: usize) -> Vec<String> {
    let interfaces = scenario.nodes[node].interfaces.iter();
    interfaces
        .flat_map(|interface| interface.addresses.iter().map(ToString::to_string))
        .collect()
}

fn routes(scenario: &Scenario, node: usize) -> Vec<String> {
    let routes = scenario.nodes[node].routes.iter();
    routes
        .map(|route| format!("{} via {}", route.to, route.via.expect("a next hop")))
        .collect()
}

const BOTH: &str = "addressing: auto\nrouting: auto";

#[test]
fn a_line_needs_no_address_and_no_route() {
    let nodes = [("h1", ""), ("r1", "kind: router"), ("r2", "kind: router"), ("h2", "")];
    let links = [("h1:eth0", "r1:eth0"), ("r1:eth1", "r2:eth0"), ("r2:eth1", "h2:eth0")];
    let scenario = scenario(BOTH, &nodes, &links);
    assert_eq!(addresses(&scenario, 0), ["10.0.0.1/24", "fd00::1/64"]);
    assert_eq!(
        addresses(&scenario, 1),
        ["10.0.0.2/24", "fd00::2/64", "10.0.1.1/24", "fd00:0:0:1::1/64"]
    );
    // An end system has a default route; a router one for each subnet beyond its neighbours.
    assert_eq!(routes(&scenario, 0), ["0.0.0.0/0 via 10.0.0.2", "::/0 via fd00::2"]);
    assert_eq!(
        routes(&scenario, 1),
        ["10.0.2.0/24 via 10.0.1.2", "fd00:0:0:2::/64 via fd00:0:0:1::2"]
    );
}

#[test]
fn switches_make_one_subnet_of_their_links() {
    let nodes = [
        ("s1", "kind: switch"),
        ("s2", "kind: switch"),
        ("a", ""),
        ("b", ""),
        ("c", ""),
        ("r", "kind: router"),
        ("out", ""),
    ];
    let links = [
        ("a:eth0", "s1:p1"),
        ("b:eth0", "s2:p1"),
        ("out:eth0", "r:eth1"),
        ("s1:p0", "s2:p0"),
        ("c:eth0", "s2:p2"),
        ("s1:p2", "r:eth0"),
    ];
    let scenario = scenario(BOTH, &nodes, &links);
    assert_eq!(scenario.nodes[0].kind, NodeKind::Switch);
    assert!(addresses(&scenario, 0).is_empty() && addresses(&scenario, 1).is_empty());
    let first = |node| addresses(&scenario, node)[0].clone();
    let lan = ["10.0.0.1/24", "10.0.0.2/24", "10.0.0.3/24", "10.0.0.4/24"].map(str::to_owned);
    assert_eq!([first(2), first(3), first(4), first(5)], lan);
    assert_eq!(first(6), "10.0.1.1/24");
    assert_eq!(routes(&scenario, 4)[0], "0.0.0.0/0 via 10.0.0.4");
}

#[test]
fn a_ring_of_switches_is_told_of() {
    let three = |body| [("s1", "kind: switch"), ("s2", "kind: switch"), ("s3", body)];
    let line = [("s1:p1", "s2:p1"), ("s2:p2", "s3:p1")];
    let ring = [line[0], line[1], ("s3:p2", "s1:p2")];
    assert_eq!(scenario("", &three("kind: switch"), &line).warnings, []);
    let told = scenario("", &three("kind: switch"), &ring).warnings;
    assert!(told.len() == 1 && told[0].code == "switch_ring", "{told:?}");
    assert!(told[0].text.contains("s3 and s1 are in a ring"), "{told:?}");
    let speaks = "kind: switch, setup: [ip link set br0 type bridge stp_state 1]";
    assert_eq!(scenario("", &three(speaks), &ring).warnings, []);
}

#[test]
fn what_is_given_by_hand_stays() {
    let nodes = [
        ("h1", "addresses: {eth0: 192.168.7.9/28}"),
        ("r", "kind: router, addresses: {eth1: 10.0.0.7/24}"),
        ("h2", "routes: [default via 10.0.0.99]"),
    ];
    let links = [("h1:eth0", "r:eth0"), ("r:eth1", "h2:eth0")];
    let scenario = scenario(
        "addressing: {ipv4: 10.0.0.0/16, ipv6: none}\nrouting: auto",
        &nodes,
        &links,
    );
    assert_eq!(addresses(&scenario, 0), ["192.168.7.9/28"]);
    assert_eq!(addresses(&scenario, 1), ["192.168.7.1/28", "10.0.0.7/24"]);
    assert_eq!(addresses(&scenario, 2), ["10.0.0.1/24"]);
    assert_eq!(routes(&scenario, 0), ["0.0.0.0/0 via 192.168.7.1"]);
    assert_eq!(routes(&scenario, 2), ["0.0.0.0/0 via 10.0.0.99"]);
}

#[test]
fn the_shorter_way_is_taken_and_of_equal_ones_the_faster() {
    // a - b - d and a - c - d: equal hops, but c is nearer; e is one hop more.
    let text = r#"
version: 1
run: {stop: 1s}
addressing: {ipv6: none}
routing: auto
defaults: {node: {}, link: {rate: 1Gbit, delay: 5ms}}
nodes: {a: {kind: router}, b: {kind: router}, c: {kind: router}, d: {kind: router}, x: {}}
links:
  - endpoints: ["a:b", "b:a"]
  - endpoints: ["b:d", "d:b"]
  - {endpoints: ["a:c", "c:a"], both: {delay: 1ms}}
  - {endpoints: ["c:d", "d:c"], both: {delay: 1ms}}
  - endpoints: ["d:x", "x:d"]
"#;
    let scenario = parse(text);
    // To x's network 10.0.4.0/24 over c (10.0.2.2), as to c-d; to b-d over b.
    assert_eq!(
        routes(&scenario, 0),
        [
            "10.0.1.0/24 via 10.0.0.2",
            "10.0.3.0/24 via 10.0.2.2",
            "10.0.4.0/24 via 10.0.2.2"
        ]
    );
}

#[test]
fn ecmp_takes_all_ways_of_the_fewest_hops() {
    // h - a, from there over b, c (nearer) or both links to d, to x; e makes a longer way.
    let text = r#"
version: 1
run: {stop: 1s}
addressing: {ipv6: none}
routing: ecmp
defaults: {node: {}, link: {rate: 1Gbit, delay: 5ms}}
nodes: {h: {}, a: {kind: router}, b: {kind: router}, c: {kind: router}, d: {kind: router}, e: {kind: router}, x: {}}
links:
  - endpoints: ["h:a", "a:h"]
  - endpoints: ["a:b", "b:a"]
  - endpoints: ["a:b2", "b:a2"]
  - {endpoints: ["a:c", "c:a"], both: {delay: 1ms}}
  - endpoints: ["b:d", "d:b"]
  - endpoints: ["c:d", "d:c"]
  - endpoints: ["a:e", "e:a"]
  - endpoints: ["e:c", "c:e"]
  - endpoints: ["d:x", "x:d"]
"#;
    let scenario = parse(text);
    let hops = |node: usize, to: &str| -> Vec<String> {
        let to: IpNet = to.parse().unwrap();
        let route = scenario.nodes[node].routes.iter().find(|route| route.to.contains(&to));
        let route = route.expect("a route");
        let vias = route.via.iter().chain(&route.also_via);
        vias.map(ToString::to_string).collect()
    };
    assert_eq!(hops(1, "10.0.8.0/24"), ["10.0.1.2", "10.0.2.2", "10.0.3.2"]);
    // b - d is next to b only.
    assert_eq!(hops(1, "10.0.4.0/24"), ["10.0.1.2", "10.0.2.2"]);
    assert_eq!(routes(&scenario, 0), ["0.0.0.0/0 via 10.0.0.2"]);
    // Both a and d are as near; of two links to a both count.
    assert_eq!(hops(2, "10.0.7.0/24"), ["10.0.1.1", "10.0.2.1", "10.0.4.2"]);
}

#[test]
fn errors_say_what_to_do() {
    let wrong = |plan: &str, nodes: &str| {
        let text = format!(
            "version: 1\nrun: {{stop: 1s}}\ndefaults: {{link: {{rate: 1Gbit, delay: 1ms}}}}\n{plan}\nnodes: {{{nodes}}}\n\
             links:\n  - endpoints: [\"a:eth0\", \"b:eth0\"]\n  - endpoints: [\"a:eth1\", \"c:eth0\"]\n"
        );
        Scenario::parse(&text, Path::new("bad.yaml")).unwrap_err().to_string()
    };
    let three = "a: {}, b: {}, c: {}";
    for (plan, nodes, fragment) in [
        ("addressing: all", three, "`all` is not a plan for addresses"),
        ("addressing: {ipv4: fd00::/48}", three, "is not an IPv4 network"),
        ("addressing: {ipv4: 10.0.0.1/8}", three, "write `10.0.0.0/8`"),
        ("addressing: {ipv4: 10.0.0.0/24}", three, "10.0.0.0/24 is too small"),
        ("addressing: {ipv4: 10.0.0.0/31}", three, "is too small"),
        ("routing: ospf", three, "allowed: none, auto, ecmp"),
        (
            "addressing: auto",
            "a: {addresses: {eth0: 10.0.0.1/32}}, b: {}, c: {}",
            "no address of 10.0.0.1/32 is left for eth0",
        ),
        (
            "",
            "a: {kind: switch, addresses: {eth0: 10.0.0.1/24}}, b: {}, c: {}",
            "a switch has no addresses",
        ),
        (
            "",
            "a: {kind: switch, routes: [default via 10.0.0.1]}, b: {}, c: {}",
            "a switch has no routes",
        ),
    ] {
        let text = wrong(plan, nodes);
        assert!(text.contains(fragment), "{text}");
    }
}

/// Follows the routes from a node to an address, taking of several next hops the one that `pick` says by their number; the
/// number of hops.
fn walk(scenario: &Scenario, from: usize, to: IpAddr, mut pick: impl FnMut(usize) -> usize) -> Option<usize> {
    let owner: BTreeMap<IpAddr, usize> = scenario
        .nodes
        .iter()
        .enumerate()
        .flat_map(|(index, node)| {
            let nets = node.interfaces.iter().flat_map(|interface| &interface.addresses);
            nets.map(move |net| (net.addr(), index))
        })
        .collect();
    let mut next = |node: &Node| -> Option<IpAddr> {
        let nets = node.interfaces.iter().flat_map(|interface| &interface.addresses);
        if nets.into_iter().any(|net| net.contains(&to)) {
            return Some(to);
        }
        let fitting = node.routes.iter().filter(|route| route.to.contains(&to));
        let route = fitting.max_by_key(|route| route.to.prefix_len())?;
        match pick(1 + route.also_via.len()) {
            0 => route.via,
            further => Some(route.also_via[further - 1]),
        }
    };
    let mut at = from;
    for hops in 0..scenario.nodes.len() + 1 {
        if owner[&to] == at {
            return Some(hops);
        }
        at = owner[&next(&scenario.nodes[at])?];
    }
    None
}

proptest! {
    /// In any connected network of routers every address can be reached from everywhere, in no more hops than there are nodes.
    #[test]
    fn everybody_reaches_everybody(
        parents in proptest::collection::vec(any::<prop::sample::Index>(), 1..12),
        more in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..6),
        ecmp in any::<bool>(),
        picks in proptest::collection::vec(any::<prop::sample::Index>(), 16),
    ) {
        let count = parents.len() + 1;
        let mut pairs: Vec<(usize, usize)> =
            parents.iter().enumerate().map(|(child, parent)| (parent.index(child + 1), child + 1)).collect();
        pairs.extend(more.iter().map(|(a, b)| (a.index(count), b.index(count))).filter(|(a, b)| a != b));
        let names: Vec<String> = (0..count).map(|node| format!("n{node}")).collect();
        let nodes: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "kind: router")).collect();
        let ends: Vec<(String, String)> = pairs
            .iter()
            .enumerate()
            .map(|(link, (a, b))| (format!("n{a}:l{link}"), format!("n{b}:l{link}")))
            .collect();
        let links: Vec<(&str, &str)> = ends.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        let plan = if ecmp { "addressing: auto\nrouting: ecmp" } else { BOTH };
        let scenario = scenario(plan, &nodes, &links);
        prop_assert!(scenario.warnings.is_empty());
        let all: Vec<IpNet> = scenario
            .nodes
            .iter()
            .flat_map(|node| node.interfaces.iter().flat_map(|interface| interface.addresses.clone()))
            .collect();
        prop_assert_eq!(all.len(), 4 * links.len());
        for from in 0..count {
            for to in &all {
                let mut picks = picks.iter().cycle();
                let pick = |choices: usize| picks.next().expect("endless").index(choices);
                prop_assert!(walk(&scenario, from, to.addr(), pick).is_some(), "n{} to {}", from, to);
            }
        }
    }
}
