//! Addresses and routes that the scenario leaves to us: `addressing` and `routing`.
//!
//! Interfaces that can hear each other without a router are a segment: the two ends of a link, and all that switches join. A segment
//! has a subnet of each family, in the order in which the file's links come to it, and its interfaces the addresses from .1 on in
//! the order in which links name them. Routes follow the paths of the fewest hops through nodes that forward; of equal ones
//! that of the least delay, then the one over the node that the file names first; with `ecmp` all of the fewest hops, whatever
//! their delay. Routes of the same next hops are summed up.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use windtunnel_base::IfaceId;
use windtunnel_ports::{PortSpec, Subnet};

use super::address::is_link_local;
use super::leaf;
use super::node::IPV6_MTU_MIN;
use crate::document::{AddressingDoc, Document};
use crate::error::{Mark, Problem};
use crate::model::{Caution, LinkSpec, Node, NodeKind, PortEnd, Route};
use crate::text::{Flexible, ShortOr, Text};

/// Where addresses come from unless the scenario says: private addresses (RFC 1918) and unique local ones (RFC 4193).
const IPV4_POOL: &str = "10.0.0.0/8";
const IPV6_POOL: &str = "fd00::/48";
/// Bits of the prefix of a segment; of an IPv4 one that is not too large for it.
const IPV4_BITS: u8 = 24;
const IPV6_BITS: u8 = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

impl Family {
    fn has(self, net: &IpNet) -> bool {
        matches!((self, net), (Self::V4, IpNet::V4(_)) | (Self::V6, IpNet::V6(_)))
    }

    fn name(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }
}

/// The networks that addresses are taken from; none: nothing is given to that family.
#[derive(Debug)]
struct Pools {
    at: Mark,
    ipv4: Option<IpNet>,
    ipv6: Option<IpNet>,
}

/// Gives addresses and routes to those nodes that have to have them.
pub(super) fn fill_in(
    document: &Document,
    nodes: &mut [Node],
    links: &[LinkSpec],
    ports: &[PortEnd],
) -> Result<(), Problem> {
    let segments = segments(nodes, links, ports);
    if let Some(doc) = &document.addressing
        && let Some(pools) = pools(doc)?
    {
        for (family, pool) in [(Family::V4, pools.ipv4), (Family::V6, pools.ipv6)] {
            if let Some(pool) = pool {
                give_addresses(&segments, nodes, family, pool, pools.at)?;
            }
        }
    }
    if let Some(doc) = &document.routing {
        let paths = match leaf::one_of(doc, "a way to find routes", &["none", "auto", "ecmp"])? {
            0 => return Ok(()),
            1 => Paths::One,
            _ => Paths::AllOfFewestHops,
        };
        for family in [Family::V4, Family::V6] {
            give_routes(&segments, nodes, (links, ports), family, paths);
        }
    }
    Ok(())
}

fn pools(doc: &Flexible<AddressingDoc>) -> Result<Option<Pools>, Problem> {
    let (ipv4, ipv6) = match &doc.shape {
        ShortOr::Short(word) if word == "none" => return Ok(None),
        ShortOr::Short(word) if word == "auto" => (None, None),
        ShortOr::Short(word) => {
            return Err(Problem::new(doc.at, format!("`{word}` is not a plan for addresses"))
                .allowed("`none`, `auto`, or networks as in {ipv4: 10.0.0.0/8, ipv6: \"fd00::/48\"}"));
        }
        ShortOr::Long(AddressingDoc { ipv4, ipv6 }) => (ipv4.as_ref(), ipv6.as_ref()),
    };
    Ok(Some(Pools {
        at: doc.at,
        ipv4: pool(ipv4, Family::V4, IPV4_POOL)?,
        ipv6: pool(ipv6, Family::V6, IPV6_POOL)?,
    }))
}

fn pool(text: Option<&Text>, family: Family, default: &str) -> Result<Option<IpNet>, Problem> {
    let Some(text) = text else {
        return Ok(Some(default.parse().expect("a network")));
    };
    if text.value == "none" {
        return Ok(None);
    }
    let problem = || {
        Problem::new(text.at, format!("`{}` is not an {} network", text.value, family.name()))
            .allowed(format!("`none`, or a network as in {default}"))
    };
    let net: IpNet = text.value.parse().map_err(|_| problem())?;
    if !family.has(&net) {
        return Err(problem());
    }
    if net.trunc() != net {
        return Err(problem().hint(format!("write `{}`", net.trunc())));
    }
    Ok(Some(net))
}

/// Interfaces that hear each other without a router, switches' own ones left out.
#[derive(Debug, Default)]
struct Segment {
    members: Vec<IfaceId>,
    /// Addresses of ports there.
    outside: Vec<IpNet>,
}

fn segments(nodes: &[Node], links: &[LinkSpec], ports: &[PortEnd]) -> Vec<Segment> {
    let is_switch = |id: IfaceId| nodes[id.node.index()].kind == NodeKind::Switch;
    // The segment that each switch belongs to, as far as known; joined ones lead to the one that they joined.
    let mut of_switch: BTreeMap<usize, usize> = BTreeMap::new();
    let mut joined: Vec<usize> = Vec::new();
    let root = |joined: &[usize], mut at: usize| {
        while joined[at] != at {
            at = joined[at];
        }
        at
    };
    let mut of_link = Vec::new();
    let ends = links.iter().map(|link| vec![link.a, link.b]);
    let ends: Vec<Vec<IfaceId>> = ends.chain(ports.iter().map(|port| vec![port.end])).collect();
    for both in &ends {
        let mut own = joined.len();
        joined.push(own);
        for end in both.iter().filter(|end| is_switch(**end)) {
            let known = *of_switch.entry(end.node.index()).or_insert(own);
            let known = root(&joined, known);
            let (first, second) = (known.min(own), known.max(own));
            joined[second] = first;
            own = first;
        }
        of_link.push(own);
    }
    let mut all: BTreeMap<usize, Segment> = BTreeMap::new();
    for (both, own) in ends.iter().zip(&of_link) {
        let segment = all.entry(root(&joined, *own)).or_default();
        segment.members.extend(both.iter().filter(|end| !is_switch(**end)));
    }
    for (port, own) in ports.iter().zip(&of_link[links.len()..]) {
        let segment = all.entry(root(&joined, *own)).or_default();
        segment.outside.extend(port_addresses(port));
    }
    all.into_values().collect()
}

/// The host's addresses at a port.
fn port_addresses(port: &PortEnd) -> Vec<IpNet> {
    let PortSpec::Tap { addresses, .. } = &port.spec else {
        return Vec::new();
    };
    let net = |subnet: &Subnet| IpNet::new(subnet.address, subnet.prefix_bits).expect("it was a network before");
    addresses.iter().map(net).collect()
}

/// Switches in a ring, if there are any: without the spanning tree protocol a frame for all goes round for ever, as on real ones.
pub(super) fn ring_of_switches(nodes: &[Node], links: &[LinkSpec]) -> Option<Caution> {
    let plain = |node: &Node| {
        let speaks = node
            .setup
            .iter()
            .any(|command| command.iter().any(|word| word == "stp_state"));
        node.kind == NodeKind::Switch && !speaks
    };
    // The switch that each one has been found to hang together with, in the end the first of them.
    let mut joined: Vec<usize> = (0..nodes.len()).collect();
    let first = |joined: &[usize], mut at: usize| {
        while joined[at] != at {
            at = joined[at];
        }
        at
    };
    for link in links {
        let (a, b) = (link.a.node.index(), link.b.node.index());
        if !(plain(&nodes[a]) && plain(&nodes[b])) {
            continue;
        }
        let (near, far) = (first(&joined, a), first(&joined, b));
        if near == far {
            let text = format!(
                "the switches {} and {} are in a ring, in which frames for all go round without end: leave out a link, or have \
                 them speak the spanning tree protocol (`setup: [ip link set br0 type bridge stp_state 1]`)",
                nodes[a].name, nodes[b].name
            );
            return Some(Caution {
                code: "switch_ring",
                text,
            });
        }
        joined[near.max(far)] = near.min(far);
    }
    None
}

fn addresses(nodes: &[Node], id: IfaceId, family: Family) -> impl Iterator<Item = IpNet> {
    let interface = &nodes[id.node.index()].interfaces[id.index as usize];
    let usable = move |net: &&IpNet| family.has(net) && !is_link_local(net.addr());
    interface.addresses.iter().filter(usable).copied()
}

/// An address for each interface that has none of this family.
fn give_addresses(
    segments: &[Segment],
    nodes: &mut [Node],
    family: Family,
    pool: IpNet,
    at: Mark,
) -> Result<(), Problem> {
    let every = nodes.iter().flat_map(|node| &node.interfaces);
    let mut taken: Vec<IpNet> = every
        .flat_map(|interface| &interface.addresses)
        .chain(segments.iter().flat_map(|segment| &segment.outside))
        .filter(|net| family.has(net))
        .map(IpNet::trunc)
        .collect();
    taken.sort_unstable();
    taken.dedup();
    let mut free = Free { pool, taken, next: 0 };
    for segment in segments {
        let lacks = |id: &&IfaceId| addresses(nodes, **id, family).next().is_none() && can_have(nodes, **id, family);
        let without: Vec<IfaceId> = segment.members.iter().filter(lacks).copied().collect();
        if without.is_empty() {
            continue;
        }
        let members = segment.members.iter();
        let outside = segment.outside.iter().filter(|net| family.has(net)).copied();
        let given = outside.chain(members.flat_map(|id| addresses(nodes, *id, family)));
        let given: Vec<IpNet> = given.filter(|net| !is_link_local(net.addr())).collect();
        let subnet = match given.first() {
            Some(net) => net.trunc(),
            None => free.subnet(family, segment.members.len()).ok_or_else(|| {
                Problem::new(
                    at,
                    format!(
                        "{pool} is too small: there are {} links and switched networks",
                        segments.len()
                    ),
                )
                .hint("give `addressing` a larger network")
            })?,
        };
        let used: BTreeSet<IpAddr> = given.iter().map(IpNet::addr).collect();
        let mut hosts = subnet
            .hosts()
            .filter(|host| !used.contains(host) && !is_anycast(subnet, *host));
        for id in without {
            let interface = &mut nodes[id.node.index()].interfaces[id.index as usize];
            let Some(host) = hosts.next() else {
                let message = format!("no address of {subnet} is left for {}", interface.name);
                return Err(Problem::new(at, message).hint("give the interfaces of this link addresses by hand"));
            };
            let address = IpNet::new(host, subnet.prefix_len()).expect("the subnet's length");
            interface.addresses.push(address);
        }
    }
    Ok(())
}

fn can_have(nodes: &[Node], id: IfaceId, family: Family) -> bool {
    let interface = &nodes[id.node.index()].interfaces[id.index as usize];
    family == Family::V4 || u64::from(interface.mtu) >= IPV6_MTU_MIN
}

/// The first address of an IPv6 subnet is that of all its routers (RFC 4291, section 2.6.1).
fn is_anycast(subnet: IpNet, host: IpAddr) -> bool {
    host.is_ipv6() && host == subnet.network()
}

/// Subnets that nobody has.
struct Free {
    pool: IpNet,
    /// Sorted.
    taken: Vec<IpNet>,
    /// Number within the pool of the next address to be looked at.
    next: u128,
}

impl Free {
    /// The next one with room for so many interfaces.
    fn subnet(&mut self, family: Family, members: usize) -> Option<IpNet> {
        let width: u8 = if family == Family::V4 { 32 } else { 128 };
        let bits = match family {
            Family::V4 => {
                // Besides those of its interfaces it has the addresses of the network and of all.
                let host_bits = (members as u128 + 2).next_power_of_two().trailing_zeros() as u8;
                IPV4_BITS.min(width.checked_sub(host_bits)?)
            }
            Family::V6 => IPV6_BITS,
        };
        let bits = bits.max(self.pool.prefix_len());
        let step = 1u128.checked_shl(u32::from(width - bits))?;
        let room = 1u128
            .checked_shl(u32::from(width - self.pool.prefix_len()))
            .unwrap_or(u128::MAX);
        if family == Family::V4 && step < members as u128 + 2 {
            return None;
        }
        loop {
            let at = self.next.next_multiple_of(step);
            if at.checked_add(step)? > room {
                return None;
            }
            self.next = at + step;
            let subnet: IpNet = match self.pool {
                IpNet::V4(pool) => {
                    let base = pool.network().to_bits() + u32::try_from(at).ok()?;
                    Ipv4Net::new(base.into(), bits).ok()?.into()
                }
                IpNet::V6(pool) => Ipv6Net::new((pool.network().to_bits() + at).into(), bits).ok()?.into(),
            };
            let overlaps = |net: &IpNet| net.contains(&subnet) || subnet.contains(net);
            if !self.taken.iter().any(overlaps) {
                return Some(subnet);
            }
        }
    }
}

/// Where a node stands in the search from a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Distance {
    hops: u32,
    delay_ns: u64,
}

/// How many of equally good paths are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Paths {
    One,
    AllOfFewestHops,
}

/// How a node reaches a destination: the addresses of its next hops, at least one, sorted.
type NextHops = Vec<IpAddr>;

/// Static routes of every node to all subnets that it is not in.
fn give_routes(
    segments: &[Segment],
    nodes: &mut [Node],
    cables: (&[LinkSpec], &[PortEnd]),
    family: Family,
    paths: Paths,
) {
    let graph = Graph::new(segments, nodes, cables, family);
    let mut routes: Vec<BTreeMap<NextHops, Vec<IpNet>>> = vec![BTreeMap::new(); nodes.len()];
    for (number, subnets) in graph
        .subnets
        .iter()
        .enumerate()
        .filter(|(_, subnets)| !subnets.is_empty())
    {
        let found = match paths {
            Paths::One => graph.towards(number),
            Paths::AllOfFewestHops => graph.all_towards(number),
        };
        for (node, hops) in found {
            routes[node].entry(hops).or_default().extend(subnets);
        }
    }
    for (index, by_hop) in routes.into_iter().enumerate() {
        let node = &mut nodes[index];
        let own: BTreeSet<IpNet> = node
            .interfaces
            .iter()
            .flat_map(|it| &it.addresses)
            .map(IpNet::trunc)
            .collect();
        let given: BTreeSet<IpNet> = node.routes.iter().map(|route| route.to).collect();
        // An end system that has one way out need not know what is there.
        let only = by_hop.len() == 1 && !graph.forwards[index];
        for (hops, subnets) in by_hop {
            let wanted = subnets.into_iter().filter(|net| !own.contains(net));
            let mut sums = IpNet::aggregate(&wanted.collect());
            if only && !sums.is_empty() {
                let any = if family == Family::V4 { "0.0.0.0/0" } else { "::/0" };
                sums = vec![any.parse().expect("a network")];
            }
            let new = sums.into_iter().filter(|to| !given.contains(to));
            node.routes.extend(new.map(|to| Route {
                to,
                via: Some(hops[0]),
                also_via: hops[1..].to_vec(),
                dev: None,
                metric: None,
            }));
        }
    }
}

/// Nodes, and the segments between them, as routes of one family see them.
struct Graph {
    /// By node.
    forwards: Vec<bool>,
    /// Subnets by segment.
    subnets: Vec<BTreeSet<IpNet>>,
    /// By segment: node, an address of it there, and the delay from there to the far end of its link, ns.
    members: Vec<Vec<(usize, IpAddr, u64)>>,
    /// Segments by node.
    of_node: Vec<Vec<usize>>,
}

impl Graph {
    fn new(segments: &[Segment], nodes: &[Node], (links, ports): (&[LinkSpec], &[PortEnd]), family: Family) -> Self {
        let names: &[&str] = match family {
            Family::V4 => &["net.ipv4.ip_forward", "net.ipv4.conf.all.forwarding"],
            Family::V6 => &["net.ipv6.conf.all.forwarding"],
        };
        let is_on = |node: &Node| {
            names
                .iter()
                .any(|name| node.sysctls.get(*name).is_some_and(|value| value == "1"))
        };
        let mut delays: BTreeMap<IfaceId, u64> = BTreeMap::new();
        let mut dead = BTreeSet::new();
        for link in links {
            for (end, params) in [(link.a, link.a_to_b), (link.b, link.b_to_a)] {
                delays.insert(end, params.delay.as_ns());
            }
            if !(link.a_to_b.up && link.b_to_a.up) {
                dead.extend([link.a, link.b]);
            }
        }
        for port in ports {
            delays.insert(port.end, port.outward.delay.as_ns());
            if !(port.outward.up && port.inward.up) {
                dead.insert(port.end);
            }
        }
        let mut graph = Self {
            forwards: nodes.iter().map(is_on).collect(),
            subnets: Vec::new(),
            members: Vec::new(),
            of_node: vec![Vec::new(); nodes.len()],
        };
        for (number, segment) in segments.iter().enumerate() {
            let (mut subnets, mut members) = (BTreeSet::new(), Vec::new());
            for id in segment.members.iter().filter(|id| !dead.contains(*id)) {
                subnets.extend(addresses(nodes, *id, family).map(|net| net.trunc()));
                if let Some(first) = addresses(nodes, *id, family).next() {
                    members.push((id.node.index(), first.addr(), delays[id]));
                    graph.of_node[id.node.index()].push(number);
                }
            }
            graph.subnets.push(subnets);
            graph.members.push(members);
        }
        graph
    }

    /// The next hop to a segment of each node that is not in it but can reach it.
    fn towards(&self, segment: usize) -> Vec<(usize, NextHops)> {
        let mut found: BTreeMap<usize, (Distance, Option<IpAddr>)> = BTreeMap::new();
        let mut heap = BinaryHeap::new();
        let here = Distance { hops: 0, delay_ns: 0 };
        for &(node, ..) in &self.members[segment] {
            found.insert(node, (here, None));
            heap.push(Reverse((here, node)));
        }
        let mut done = BTreeSet::new();
        while let Some(Reverse((distance, node))) = heap.pop() {
            if !done.insert(node) || !self.forwards[node] {
                continue;
            }
            for &through in &self.of_node[node] {
                let Some(address) = self.address_on(node, through) else {
                    continue;
                };
                for &(neighbour, _, delay_ns) in &self.members[through] {
                    let farther = Distance {
                        hops: distance.hops + 1,
                        delay_ns: distance.delay_ns.saturating_add(delay_ns),
                    };
                    let known = found.get(&neighbour).map(|(known, _)| *known);
                    if neighbour != node && known.is_none_or(|known| farther < known) {
                        found.insert(neighbour, (farther, Some(address)));
                        heap.push(Reverse((farther, neighbour)));
                    }
                }
            }
        }
        let reached = found.into_iter();
        reached
            .filter_map(|(node, (_, hop))| Some((node, vec![hop?])))
            .collect()
    }

    /// The next hops on all paths of the fewest hops to a segment, of each node that is not in it but can reach it.
    fn all_towards(&self, segment: usize) -> Vec<(usize, NextHops)> {
        let mut hops: Vec<Option<u32>> = vec![None; self.of_node.len()];
        let mut next: BTreeMap<usize, BTreeSet<IpAddr>> = BTreeMap::new();
        let mut queue = VecDeque::new();
        for &(node, ..) in &self.members[segment] {
            if hops[node].replace(0).is_none() {
                queue.push_back((node, 0));
            }
        }
        while let Some((node, distance)) = queue.pop_front() {
            if !self.forwards[node] {
                continue;
            }
            for &through in &self.of_node[node] {
                let Some(address) = self.address_on(node, through) else {
                    continue;
                };
                for &(neighbour, ..) in &self.members[through] {
                    if hops[neighbour].is_none() {
                        hops[neighbour] = Some(distance + 1);
                        queue.push_back((neighbour, distance + 1));
                    }
                    if hops[neighbour] == Some(distance + 1) {
                        next.entry(neighbour).or_default().insert(address);
                    }
                }
            }
        }
        let sorted = next.into_iter();
        sorted.map(|(node, hops)| (node, hops.into_iter().collect())).collect()
    }

    /// Where others on a segment reach a node: the least of its addresses there.
    fn address_on(&self, node: usize, segment: usize) -> Option<IpAddr> {
        let own = self.members[segment].iter().filter(|(member, ..)| *member == node);
        own.map(|(_, address, _)| *address).min()
    }
}
