//! Addresses of the whole network.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use windtunnel_base::{IfaceId, NodeId};

use crate::document::NodeDoc;
use crate::error::Problem;
use crate::model::{Caution, LinkSpec, Node, PortEnd};
use crate::text::{Entries, Text};

/// No address may be twice on a node or on a link. Elsewhere it is told of, as it may be meant (anycast, sites behind
/// NAT) or not; not of addresses that are valid on a link only.
pub(super) fn check_clashes(
    docs: &Entries<NodeDoc>,
    nodes: &[Node],
    links: &[LinkSpec],
    ports: &[PortEnd],
) -> Result<Vec<Caution>, Problem> {
    let mut owners: BTreeMap<IpAddr, BTreeSet<IfaceId>> = BTreeMap::new();
    let ends = links.iter().flat_map(|link| [(link.a, link.b), (link.b, link.a)]);
    let peers: BTreeMap<IfaceId, IfaceId> = ends.collect();
    let mut told = Vec::new();
    let name = |id: IfaceId| {
        let node = &nodes[id.node.index()];
        format!("{}:{}", node.name, node.interfaces[id.index as usize].name)
    };
    for (number, ((_, doc), node)) in docs.0.iter().zip(nodes).enumerate() {
        for (index, interface) in node.interfaces.iter().enumerate() {
            let this = IfaceId {
                node: NodeId(number as u32),
                index: index as u32,
            };
            for (net, text) in interface.addresses.iter().zip(written(doc, &interface.name)) {
                let here = ports.iter().find(|port| port.end == this);
                if let Some(port) = here.filter(|port| port.addresses().contains(&net.addr())) {
                    let message = format!(
                        "address `{}` of {} is also that of port {}",
                        net.addr(),
                        name(this),
                        port.name
                    );
                    return Err(Problem::new(text.at, message).hint("give each end of the link an address of its own"));
                }
                let others = owners.entry(net.addr()).or_default();
                let message = |other| {
                    format!(
                        "address `{}` of {} is also that of {}",
                        net.addr(),
                        name(this),
                        name(other)
                    )
                };
                let first = IfaceId { index: 0, ..this };
                let on_node = others.range(first..=this).next();
                let on_link = peers.get(&this).filter(|peer| others.contains(peer));
                if let Some(&other) = on_node.into_iter().chain(on_link).min() {
                    return Err(Problem::new(text.at, message(other)).hint("give each interface addresses of its own"));
                }
                if let Some(other) = others.first().filter(|_| !is_link_local(net.addr())) {
                    told.push(Caution {
                        code: "address_twice",
                        text: message(*other),
                    });
                }
                others.insert(this);
            }
        }
    }
    Ok(told)
}

/// RFC 3927, RFC 4291 section 2.5.6.
pub(super) fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// The addresses of an interface as written, in the order of [`crate::Interface::addresses`].
pub(super) fn written(doc: &NodeDoc, interface: &str) -> Vec<Text> {
    let short = doc
        .addresses
        .0
        .iter()
        .filter(|(name, _)| name.value == interface)
        .map(|(_, words)| words);
    let long = doc.interfaces.0.iter().filter(|(name, _)| name.value == interface);
    short
        .chain(long.filter_map(|(_, doc)| doc.addresses.as_ref()))
        .flat_map(|words| words.items())
        .collect()
}
