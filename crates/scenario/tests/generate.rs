//! Generated scenarios are scenarios: valid, connected, and of as many nodes and links as their formulas say.

use std::collections::BTreeSet;
use std::path::Path;

use proptest::prelude::*;
use windtunnel_base::{Rate, SimDuration};
use windtunnel_scenario::generate::{Forwarder, Options, Topology, Values, generate};
use windtunnel_scenario::{NodeKind, Scenario};

const TOWNS: &str = include_str!("towns.graphml");

fn options() -> Options {
    Options {
        seed: 1,
        ..Options::default()
    }
}

/// The scenario, read back from YAML, which must say the same as JSON.
fn made(topology: &Topology, options: &Options) -> Scenario {
    let made = generate(topology, options).unwrap_or_else(|error| panic!("{topology:?}: {error}"));
    let read = |text: &str| {
        let scenario = Scenario::parse(text, Path::new("made.yaml")).unwrap_or_else(|error| panic!("{error}\n{text}"));
        Scenario {
            sha256: String::new(),
            ..scenario
        }
    };
    let (yaml, json) = (read(&made.to_yaml()), read(&made.to_json()));
    assert_eq!(format!("{yaml:?}"), format!("{json:?}"));
    assert_eq!(yaml.warnings, []);
    yaml
}

/// How many nodes can be reached from the first.
fn reached(scenario: &Scenario) -> usize {
    let mut seen = BTreeSet::from([0]);
    loop {
        let before = seen.len();
        for link in &scenario.links {
            let ends = [link.a.node.index(), link.b.node.index()];
            if ends.iter().any(|end| seen.contains(end)) {
                seen.extend(ends);
            }
        }
        if seen.len() == before {
            return before;
        }
    }
}

/// Checks that all is connected, and that hosts have a route of each family; the numbers of hosts, others and links.
fn counts(scenario: &Scenario) -> [usize; 3] {
    assert_eq!(reached(scenario), scenario.nodes.len());
    let names: BTreeSet<&str> = scenario.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names.len(), scenario.nodes.len());
    let has_routers = scenario.nodes.iter().any(|node| node.kind == NodeKind::Router);
    let hosts: Vec<_> = scenario
        .nodes
        .iter()
        .filter(|node| node.kind == NodeKind::Host)
        .collect();
    for host in &hosts {
        assert_eq!(host.interfaces.len(), 1);
        assert_eq!(host.interfaces[0].addresses.len(), 2);
        assert!(!has_routers || scenario.links.len() == 1 || host.routes.len() <= 2);
    }
    let places = scenario.nodes.iter().filter_map(|node| node.position);
    let places: BTreeSet<String> = places.map(|place| format!("{place:?}")).collect();
    assert!(places.is_empty() || places.len() == scenario.nodes.len(), "{places:?}");
    [hosts.len(), scenario.nodes.len() - hosts.len(), scenario.links.len()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn lines_rings_and_stars(n in 3..20u32, per in 0..3u32) {
        let (count, hosts) = (n as usize, (n * per) as usize);
        let ends = made(&Topology::Chain { routers: n, hosts_per_router: None }, &options());
        prop_assert_eq!(counts(&ends), [2, count, count + 1]);
        let chain = made(&Topology::Chain { routers: n, hosts_per_router: Some(per) }, &options());
        prop_assert_eq!(counts(&chain), [hosts, count, count - 1 + hosts]);
        let ring = made(&Topology::Ring { routers: n, hosts_per_router: per }, &options());
        prop_assert_eq!(counts(&ring), [hosts, count, count + hosts]);
        for forwarder in [Forwarder::Router, Forwarder::Switch] {
            let star = made(&Topology::Star { hosts: n }, &Options { forwarder: Some(forwarder), ..options() });
            prop_assert_eq!(counts(&star), [count, 1, count]);
        }
    }

    #[test]
    fn trees(depth in 1..4u32, fanout in 1..5u32) {
        let tree = made(&Topology::Tree { depth, fanout }, &options());
        let inner: usize = (0..depth).map(|level| fanout.pow(level) as usize).sum();
        let hosts = fanout.pow(depth) as usize;
        prop_assert_eq!(counts(&tree), [hosts, inner, inner + hosts - 1]);
    }

    #[test]
    fn fat_trees(half in 1..4u32) {
        let k = 2 * half;
        let tree = made(&Topology::FatTree { k, hosts_per_edge: None }, &options());
        let [k, half] = [k, half].map(|number| number as usize);
        prop_assert_eq!(counts(&tree), [k * k * k / 4, half * half + k * k, 3 * k * k * k / 4]);
        for node in tree.nodes.iter().filter(|node| node.kind == NodeKind::Router) {
            prop_assert_eq!(node.interfaces.len(), k, "{} has k ports", node.name);
        }
    }

    #[test]
    fn leaves_and_spines(leaves in 1..6u32, spines in 1..5u32, per in 0..4u32) {
        let fabric = made(&Topology::LeafSpine { leaves, spines, hosts_per_leaf: per }, &options());
        let [l, s, h] = [leaves, spines, leaves * per].map(|number| number as usize);
        prop_assert_eq!(counts(&fabric), [h, l + s, l * s + h]);
    }

    #[test]
    fn grids_and_tori(rows in 1..6u32, columns in 1..6u32, per in 0..3u32) {
        let grid = |torus| Topology::Grid { rows, columns, torus, hosts_per_router: per };
        let [r, c] = [rows, columns].map(|number| number as usize);
        let hosts = r * c * per as usize;
        prop_assert_eq!(counts(&made(&grid(false), &options())), [hosts, r * c, r * (c - 1) + c * (r - 1) + hosts]);
        if rows.min(columns) < 3 {
            prop_assert!(generate(&grid(true), &options()).is_err());
        } else {
            prop_assert_eq!(counts(&made(&grid(true), &options())), [hosts, r * c, 2 * r * c + hosts]);
        }
    }

    #[test]
    fn dumbbells(left in 1..9u32, right in 1..9u32) {
        let rate = Some(Rate::from_mbps(3));
        let bottleneck = Values { rate, ..Values::default() };
        let dumbbell = made(&Topology::Dumbbell { left, right, bottleneck }, &options());
        let hosts = (left + right) as usize;
        prop_assert_eq!(counts(&dumbbell), [hosts, 2, hosts + 1]);
        let narrow = dumbbell.links.iter().filter(|link| link.a_to_b.rate == Rate::from_mbps(3) && link.a_to_b == link.b_to_a);
        prop_assert_eq!(narrow.count(), 1);
    }

    #[test]
    fn random_graphs(routers in 2..40u32, alpha in 0.01..1.0f64, beta in 0.01..1.0f64, seed in any::<u64>()) {
        let waxman = |alpha, beta| Topology::Waxman { routers, alpha, beta, side_km: 500.0, hosts_per_router: 1 };
        let options = Options { seed, ..options() };
        let graph = made(&waxman(alpha, beta), &options);
        let n = routers as usize;
        let [hosts, others, links] = counts(&graph);
        prop_assert_eq!([hosts, others], [n, n]);
        prop_assert!((n + n - 1..=n + n * (n - 1) / 2).contains(&links));
        // The same again, and with more of either no fewer links.
        prop_assert_eq!(format!("{:?}", made(&waxman(alpha, beta), &options)), format!("{graph:?}"));
        for link in graph.links.iter().filter(|link| graph.node(link.a.node).kind == NodeKind::Router) {
            // The square's diagonal is 707.2 km, 3.54 ms.
            prop_assert!((5_000..3_540_000).contains(&link.a_to_b.delay.as_ns()), "{:?}", link.a_to_b.delay);
        }
    }
}

#[test]
fn many_nodes_of_waxman_have_as_many_links_as_expected() {
    let graph = |alpha, beta, seed| {
        let topology = Topology::Waxman {
            routers: 200,
            alpha,
            beta,
            side_km: 100.0,
            hosts_per_router: 0,
        };
        generate(&topology, &Options { seed, ..options() })
            .unwrap()
            .to_yaml()
            .matches("endpoints")
            .count()
    };
    // With beta at its largest and alpha = 1 the mean of exp(-d / L) over a square is 0.70 (by numerical integration).
    let all = 200 * 199 / 2;
    let share = graph(1.0, 1.0, 1) as f64 / f64::from(all);
    assert!((share - 0.70).abs() < 0.02, "{share}");
    let half = graph(0.5, 1.0, 1) as f64 / f64::from(all);
    assert!((half - 0.35).abs() < 0.02, "{half}");
    assert_ne!(graph(0.5, 1.0, 1), graph(0.5, 1.0, 2), "the seed counts");
}

fn towns(text: &str, largest: bool) -> Topology {
    Topology::Graphml {
        text: text.to_owned(),
        name: "towns".to_owned(),
        largest,
        hosts_per_router: 1,
    }
}

#[test]
fn a_network_of_the_zoo() {
    let generated = generate(&towns(TOWNS, false), &options()).unwrap();
    assert_eq!(
        generated.warnings,
        [
            "links from a node to itself are left out: Paris",
            "links whose speed is none, and which have the rate of all links: 1",
            "nodes without coordinates, whose links have the delay of all links: 1 of 6",
        ]
    );
    let scenario = made(&towns(TOWNS, false), &options());
    assert_eq!(counts(&scenario), [6, 6, 13]);
    let names: Vec<&str> = scenario.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names[..6], ["Zurich", "Berlin", "Paris", "Paris-2", "n4", "No"]);
    assert_eq!(names[6..9], ["h-Zurich", "h-Berlin", "h-Paris"]);
    let links: Vec<(String, u64, u64)> = scenario.links[6..]
        .iter()
        .map(|link| {
            let ends = [link.a, link.b].map(|end| scenario.iface_name(end));
            (
                ends.join(" "),
                link.a_to_b.rate.as_bps(),
                link.a_to_b.delay.as_ns() / 1_000,
            )
        })
        .collect();
    let expected = [
        // 669, 489, 877 and 7,783 km by the spherical law of cosines, at 199.86 km/ms.
        ("Zurich:eth1 Berlin:eth1", 10_000_000_000, 3_349),
        ("Zurich:eth2 Paris:eth1", 155_000_000, 2_447),
        ("Zurich:eth3 Paris:eth2", 2_500_000_000, 2_447),
        ("Berlin:eth2 Paris:eth3", 1_000_000_000, 4_388),
        ("Paris:eth4 Paris-2:eth1", 1_000_000_000, 38_944),
        ("Berlin:eth3 n4:eth1", 1_000_000_000, 1_000),
        ("Berlin:eth4 No:eth1", 1_000_000_000, 5),
    ];
    for (found, (ends, rate_bps, delay_us)) in links.iter().zip(expected) {
        assert_eq!((found.0.as_str(), found.1), (ends, rate_bps));
        assert!(found.2.abs_diff(delay_us) <= 1, "{found:?}, not {delay_us}");
    }
    // Zurich is south and west of Berlin.
    let at = |node: usize| scenario.nodes[node].position.unwrap();
    assert!(at(0)[0] < at(1)[0] && at(0)[1] > at(1)[1]);
    let fixed = Options {
        links: Values {
            delay: Some(SimDuration::from_ms(7)),
            ..Values::default()
        },
        ..options()
    };
    let fixed = made(&towns(TOWNS, false), &fixed);
    assert!(
        fixed
            .links
            .iter()
            .all(|link| link.a_to_b.delay == SimDuration::from_ms(7))
    );
}

#[test]
fn of_a_graph_in_parts_the_largest_is_taken_when_asked_for() {
    let cut = TOWNS
        .replace("<edge source=\"1\" target=\"4\" />", "")
        .replace("<edge source=\"1\" target=\"5\" />", "");
    let error = generate(&towns(&cut, false), &options()).unwrap_err();
    assert_eq!(
        error.message,
        "the graph is in 3 parts, of which the largest has 4 of 6 nodes; `n4` is not in it"
    );
    assert_eq!(error.hint.as_deref(), Some("--largest takes the largest part alone"));
    let scenario = made(&towns(&cut, true), &options());
    assert_eq!(counts(&scenario), [4, 4, 9]);
}

#[test]
fn damaged_files_are_refused_and_say_where() {
    for (from, to, expected) in [
        ("</graphml>", "", "this is no XML"),
        ("<graphml", "<!DOCTYPE a [<!ENTITY b \"c\">]><graphml", "this is no XML"),
        ("<graph edge", "<grape edge", "this is no XML"),
        (
            "source=\"1\" target=\"4\"",
            "source=\"1\" target=\"40\"",
            "an edge leads to `40`, and there is no such node (line 26",
        ),
        (
            "source=\"1\" target=\"4\"",
            "source=\"1\"",
            "an edge has no `target` (line 26",
        ),
        ("<node id=\"1\"", "<node id=\"0\"", "there are two nodes `0` (line 16"),
        ("<node id=\"1\"", "<node", "a node has no `id` (line 16"),
        (
            "52.52",
            "152.52",
            "`152.52` is no latitude; allowed: -90 to 90 (line 16",
        ),
    ] {
        let damaged = TOWNS.replacen(from, to, 1);
        assert_ne!(damaged, TOWNS);
        let error = generate(&towns(&damaged, false), &options()).unwrap_err();
        assert!(error.message.contains(expected), "{error}");
    }
    let other = generate(&towns("<svg/>", false), &options()).unwrap_err();
    assert!(other.message.contains("but <svg>") && other.hint.is_some(), "{other}");
}

#[test]
fn silly_numbers_are_refused() {
    let huge = u32::MAX;
    let grid = |rows, columns| Topology::Grid {
        rows,
        columns,
        torus: false,
        hosts_per_router: huge,
    };
    let waxman = |alpha, side_km| Topology::Waxman {
        routers: 10,
        alpha,
        beta: 0.1,
        side_km,
        hosts_per_router: 1,
    };
    let bottleneck = Values::default();
    for topology in [
        Topology::Chain {
            routers: 0,
            hosts_per_router: None,
        },
        Topology::Chain {
            routers: huge,
            hosts_per_router: Some(huge),
        },
        Topology::Star { hosts: 1 },
        Topology::Star { hosts: huge },
        Topology::Ring {
            routers: 2,
            hosts_per_router: 1,
        },
        Topology::Tree { depth: 0, fanout: 2 },
        Topology::Tree {
            depth: huge,
            fanout: huge,
        },
        Topology::Tree {
            depth: 13,
            fanout: 4_000,
        },
        Topology::FatTree {
            k: 0,
            hosts_per_edge: None,
        },
        Topology::FatTree {
            k: 5,
            hosts_per_edge: None,
        },
        Topology::FatTree {
            k: huge - 1,
            hosts_per_edge: None,
        },
        Topology::FatTree {
            k: huge,
            hosts_per_edge: None,
        },
        Topology::FatTree {
            k: 4,
            hosts_per_edge: Some(huge),
        },
        Topology::LeafSpine {
            leaves: 3_000,
            spines: 3_000,
            hosts_per_leaf: 1,
        },
        Topology::Dumbbell {
            left: 0,
            right: 1,
            bottleneck,
        },
        Topology::Dumbbell {
            left: 1,
            right: huge,
            bottleneck,
        },
        grid(1, 1),
        grid(huge, huge),
        waxman(0.0, 10.0),
        waxman(f64::NAN, 10.0),
        waxman(1.5, 10.0),
        waxman(0.5, f64::INFINITY),
        waxman(0.5, -1.0),
    ] {
        let error = generate(&topology, &options()).unwrap_err();
        assert!(error.message.contains("allowed: "), "{error}");
    }
    let ring = Topology::Ring {
        routers: 4,
        hosts_per_router: 1,
    };
    let options = Options {
        forwarder: Some(Forwarder::Switch),
        ..options()
    };
    assert!(generate(&ring, &options).unwrap_err().message.contains("without end"));
}

#[test]
fn a_node_of_many_links_has_memory_for_them() {
    for (hosts, memory_mib) in [(700, 64), (900, 128), (4_000, 512)] {
        let star = made(&Topology::Star { hosts }, &options());
        assert_eq!(star.nodes[0].memory_bytes, memory_mib << 20);
    }
}
