//! Regular topologies. Each function returns the name of its scenario.

use std::f64::consts::TAU;

use super::build::{Builder, HOST_SPACE, Id, Point, SPACE};
use super::{GenerateError, Values, check_count, check_size};

/// More interfaces than that have no room in the memory of a node.
pub(super) const PORTS_MAX: u32 = 4_000;

pub(super) fn chain(build: &mut Builder, count: u32, per_router: Option<u32>) -> Result<String, GenerateError> {
    check_count(count, "routers", 1, 10_000)?;
    check_hosts(per_router.unwrap_or(1))?;
    let (routers, hosts) = (u64::from(count), u64::from(count) * u64::from(per_router.unwrap_or(0)));
    check_size(routers + hosts.max(2), routers + hosts.max(2))?;
    let letter = build.letter();
    let at = |number: u32| [f64::from(number) * SPACE, 0.0];
    let routers: Vec<Id> = (0..count)
        .map(|number| build.forwarder(format!("{letter}{}", number + 1), at(number)))
        .collect();
    match per_router {
        Some(per_router) => hosts_of_all(build, &routers, per_router),
        None => {
            let [first, last] = [at(0), at(count - 1)];
            build.host("h1", routers[0], [first[0] - SPACE, 0.0]);
            build.host("h2", routers[routers.len() - 1], [last[0] + SPACE, 0.0]);
        }
    }
    line(build, &routers);
    Ok(format!("chain-{count}"))
}

/// Hosts h1, h2 ... at each of the routers, in that order.
fn hosts_of_all(build: &mut Builder, routers: &[Id], per_router: u32) {
    for (index, &router) in routers.iter().enumerate() {
        build.hosts(&format!("h{}", index + 1), router, per_router);
    }
}

fn check_hosts(per_router: u32) -> Result<(), GenerateError> {
    check_count(per_router, "hosts per router", 0, PORTS_MAX)
}

fn line(build: &mut Builder, nodes: &[Id]) {
    for pair in nodes.windows(2) {
        build.plain_link(pair[0], pair[1]);
    }
}

/// Places on a circle around the origin, `space` apart, the first at the top.
fn circle(count: u32, space: f64) -> impl Fn(u32) -> Point {
    let radius = (f64::from(count) * space / TAU).max(SPACE);
    move |number| {
        let angle = TAU * f64::from(number) / f64::from(count);
        [radius * libm::sin(angle), -radius * libm::cos(angle)]
    }
}

pub(super) fn star(build: &mut Builder, hosts: u32) -> Result<String, GenerateError> {
    check_count(hosts, "hosts", 2, PORTS_MAX)?;
    let letter = build.letter();
    let centre = build.forwarder(format!("{letter}1"), [0.0, 0.0]);
    let at = circle(hosts, HOST_SPACE);
    for number in 0..hosts {
        build.host(format!("h{}", number + 1), centre, at(number));
    }
    Ok(format!("star-{hosts}"))
}

pub(super) fn ring(build: &mut Builder, count: u32, per_router: u32) -> Result<String, GenerateError> {
    check_count(count, "routers in a ring", 3, 10_000)?;
    check_hosts(per_router)?;
    let (routers, hosts) = (u64::from(count), u64::from(count) * u64::from(per_router));
    check_size(routers + hosts, routers + hosts)?;
    let at = circle(count, SPACE);
    let routers: Vec<Id> = (0..count)
        .map(|number| build.forwarder(format!("r{}", number + 1), at(number)))
        .collect();
    hosts_of_all(build, &routers, per_router);
    line(build, &routers);
    build.plain_link(routers[routers.len() - 1], routers[0]);
    Ok(format!("ring-{count}"))
}

pub(super) fn tree(build: &mut Builder, depth: u32, fanout: u32) -> Result<String, GenerateError> {
    check_count(depth, "levels of a tree", 1, 13)?;
    check_count(fanout, "children of a switch", 1, PORTS_MAX)?;
    let level = |at: u32| u64::from(fanout).checked_pow(at);
    let nodes = (0..=depth).try_fold(0u64, |sum, at| sum.checked_add(level(at)?));
    let nodes = nodes.unwrap_or(u64::MAX);
    check_size(nodes, nodes - 1)?;
    let hosts = f64::from(fanout.pow(depth));
    let letter = build.letter();
    // Each node above the middle of the hosts beneath it.
    let at = |row: u32, number: usize| {
        let share = hosts / f64::from(fanout.pow(row));
        let x = (number as f64 * share + (share - 1.0) / 2.0) * HOST_SPACE;
        [x, f64::from(row) * SPACE]
    };
    let mut above = vec![build.forwarder(format!("{letter}1"), at(0, 0))];
    let (mut switches, mut between) = (1, Vec::new());
    for row in 1..depth {
        let mut here = Vec::new();
        for &parent in &above {
            for _ in 0..fanout {
                switches += 1;
                let child = build.forwarder(format!("{letter}{switches}"), at(row, here.len()));
                here.push(child);
                between.push((parent, child));
            }
        }
        above = here;
    }
    let mut number = 0;
    for &parent in &above {
        for _ in 0..fanout {
            build.host(format!("h{}", number + 1), parent, at(depth, number));
            number += 1;
        }
    }
    for (parent, child) in between {
        build.plain_link(child, parent);
    }
    Ok(format!("tree-{depth}-{fanout}"))
}

/// Names have the numbers of the paper's addresses: `edge-P-S` and `aggr-P-S` are 10.P.S.1, `host-P-S-ID` is 10.P.S.ID, and
/// `core-J-I` is 10.k.J.I.
pub(super) fn fat_tree(build: &mut Builder, k: u32, per_edge: Option<u32>) -> Result<String, GenerateError> {
    if k % 2 == 1 {
        let hint = format!("choose {} or {}", k - 1, k.saturating_add(1));
        return Err(GenerateError::new(format!(
            "a fat-tree of k = {k} is not possible: half of it goes up, half down; allowed: an even number"
        ))
        .hint(hint));
    }
    check_count(k, "ports of a switch (k)", 2, 32)?;
    let half = k / 2;
    let per_edge = per_edge.unwrap_or(half);
    check_count(per_edge, "hosts per edge switch", 0, 253)?;
    let (switches, hosts) = (k * k * 5 / 4, k * half * per_edge);
    check_size((switches + hosts).into(), (hosts + k * half * half * 2).into())?;
    let width = f64::from(k * half * per_edge.max(1)) * HOST_SPACE;
    // In rows of as many as they are, each as wide as that of the hosts.
    let at = |row: u32, number: u32, count: u32| {
        [
            (f64::from(number) + 0.5) * width / f64::from(count),
            f64::from(row) * SPACE * 1.5,
        ]
    };
    let mut cores = Vec::new();
    for (j, i) in pairs(half, half) {
        let name = format!("core-{}-{}", j + 1, i + 1);
        cores.push(build.forwarder(name, at(0, j * half + i, half * half)));
    }
    let mut aggregations = Vec::new();
    for (pod, number) in pairs(k, half) {
        let name = format!("aggr-{pod}-{}", half + number);
        aggregations.push(build.forwarder(name, at(1, pod * half + number, k * half)));
    }
    let mut edges = Vec::new();
    for (pod, number) in pairs(k, half) {
        edges.push(build.forwarder(format!("edge-{pod}-{number}"), at(2, pod * half + number, k * half)));
    }
    for (index, (pod, edge)) in pairs(k, half).enumerate() {
        for host in 0..per_edge {
            let place = at(3, index as u32 * per_edge + host, hosts);
            build.host(format!("host-{pod}-{edge}-{}", host + 2), edges[index], place);
        }
    }
    let half = half as usize;
    for (pod_edges, pod_aggregations) in edges.chunks(half).zip(aggregations.chunks(half)) {
        mesh(build, pod_edges, pod_aggregations);
    }
    for pod in aggregations.chunks(half) {
        for (aggregation, row) in pod.iter().zip(cores.chunks(half)) {
            mesh(build, std::slice::from_ref(aggregation), row);
        }
    }
    Ok(format!("fat-tree-{k}"))
}

fn pairs(first: u32, second: u32) -> impl Iterator<Item = (u32, u32)> {
    (0..first).flat_map(move |a| (0..second).map(move |b| (a, b)))
}

/// A link from each to each.
fn mesh(build: &mut Builder, below: &[Id], above: &[Id]) {
    for &a in below {
        for &b in above {
            build.plain_link(a, b);
        }
    }
}

pub(super) fn leaf_spine(
    build: &mut Builder,
    leaves: u32,
    spines: u32,
    per_leaf: u32,
) -> Result<String, GenerateError> {
    check_count(leaves, "leaves", 1, PORTS_MAX)?;
    check_count(spines, "spines", 1, PORTS_MAX)?;
    check_count(per_leaf, "hosts per leaf", 0, PORTS_MAX)?;
    let [l, s, h] = [leaves, spines, per_leaf].map(u64::from);
    check_size(l + s + l * h, l * s + l * h)?;
    let width = f64::from(leaves) * f64::from(per_leaf.max(2)) * HOST_SPACE;
    let at = |row: u32, number: u32, count: u32| {
        [
            (f64::from(number) + 0.5) * width / f64::from(count),
            f64::from(row) * SPACE * 1.5,
        ]
    };
    let above: Vec<Id> = (0..spines)
        .map(|number| build.forwarder(format!("spine{}", number + 1), at(0, number, spines)))
        .collect();
    let below: Vec<Id> = (0..leaves)
        .map(|number| build.forwarder(format!("leaf{}", number + 1), at(1, number, leaves)))
        .collect();
    for (leaf, &id) in below.iter().enumerate() {
        for host in 0..per_leaf {
            let place = at(2, leaf as u32 * per_leaf + host, leaves * per_leaf);
            build.host(format!("h{}-{}", leaf + 1, host + 1), id, place);
        }
    }
    mesh(build, &below, &above);
    Ok(format!("leaf-spine-{leaves}-{spines}"))
}

pub(super) fn grid(
    build: &mut Builder,
    (rows, columns): (u32, u32),
    torus: bool,
    per_router: u32,
) -> Result<String, GenerateError> {
    check_count(rows, "rows", 1, 10_000)?;
    check_count(columns, "columns", 1, 10_000)?;
    check_hosts(per_router)?;
    for (count, what) in [(rows, "rows"), (columns, "columns")] {
        if torus && count < 3 {
            let message = format!("a torus of {count} {what} is not possible; allowed: 3 or more");
            return Err(GenerateError::new(message).hint("with fewer, the way around is the way there"));
        }
    }
    let routers = u64::from(rows) * u64::from(columns);
    let hosts = routers * u64::from(per_router);
    check_size(routers + hosts, 2 * routers + hosts)?;
    let space = SPACE * 1.4;
    let ids: Vec<Id> = pairs(rows, columns)
        .map(|(row, column)| {
            let at = [f64::from(column) * space, f64::from(row) * space];
            build.forwarder(format!("r{}-{}", row + 1, column + 1), at)
        })
        .collect();
    for ((row, column), &id) in pairs(rows, columns).zip(&ids) {
        build.hosts(&format!("h{}-{}", row + 1, column + 1), id, per_router);
    }
    let id = |row: u32, column: u32| ids[(row * columns + column) as usize];
    for (row, column) in pairs(rows, columns) {
        if torus || column + 1 < columns {
            build.plain_link(id(row, column), id(row, (column + 1) % columns));
        }
        if torus || row + 1 < rows {
            build.plain_link(id(row, column), id((row + 1) % rows, column));
        }
    }
    let kind = if torus { "torus" } else { "grid" };
    Ok(format!("{kind}-{rows}-{columns}"))
}

pub(super) fn dumbbell(
    build: &mut Builder,
    left: u32,
    right: u32,
    bottleneck: Values,
) -> Result<String, GenerateError> {
    check_count(left, "hosts on the left", 1, PORTS_MAX)?;
    check_count(right, "hosts on the right", 1, PORTS_MAX)?;
    let letter = build.letter();
    let ends = [-SPACE, SPACE].map(|x| [x, 0.0]);
    let routers = [1, 2].map(|number| build.forwarder(format!("{letter}{number}"), ends[number - 1]));
    for (side, count, router, x) in [
        ("left", left, routers[0], -2.5 * SPACE),
        ("right", right, routers[1], 2.5 * SPACE),
    ] {
        for number in 0..count {
            let y = (f64::from(number) - f64::from(count - 1) / 2.0) * HOST_SPACE;
            build.host(format!("{side}{}", number + 1), router, [x, y]);
        }
    }
    build.link(routers[0], routers[1], bottleneck);
    Ok(format!("dumbbell-{left}-{right}"))
}
