//! Mode `udp`: a cable to another attached program, as frames in UDP.

use super::network::{IpSubnet, LINK_BITS, ULA};
use super::resolver::resolver;
use super::{Wire, Wish, joined, of_node};
use crate::failure::Failure;
use serde_json::json;
use std::net::{IpAddr, Ipv4Addr};

/// Frames of it fit into datagrams on Ethernet.
const MTU: u32 = 1400;
/// The subnets of both ends, unless addresses are given.
const SUBNETS: [IpSubnet; 2] = [
    IpSubnet {
        address: IpAddr::V4(Ipv4Addr::new(10, 213, 0, 0)),
        prefix_bits: 30,
    },
    IpSubnet {
        address: IpAddr::V6(ULA),
        prefix_bits: LINK_BITS,
    },
];

/// See the module.
///
/// # Errors
/// When an end is not named.
pub fn lay(wish: &Wish, kernel: &str) -> Result<Wire, Failure> {
    let (Some(local), Some(peer)) = (wish.local, wish.peer) else {
        return Err(Failure::user("mode udp needs both ends of the cable")
            .hint("`--local ADDRESS:PORT --peer ADDRESS:PORT` here, and the same the other way round at the peer"));
    };
    if local == peer {
        return Err(Failure::user(format!("{local} is both ends of the cable")).hint("each end has a port of its own"));
    }
    // Both ends know both sockets, so they agree on who is who.
    let [v4, v6] = SUBNETS.map(|subnet| subnet.nth(if local < peer { 1 } else { 2 }));
    let addresses = [wish.address_v4().unwrap_or(v4), wish.address_v6().unwrap_or(v6)];
    let resolver = resolver(&wish.resolvers, None);
    let mut port = json!({"local": local.to_string(), "peer": peer.to_string()});
    if let Some(key) = &wish.key {
        let key = std::path::absolute(key).unwrap_or_else(|_| key.clone());
        port["key"] = json!(key);
    }
    let neighbours = addresses.map(IpSubnet::neighbour);
    Ok(Wire {
        port: json!({ "udp": port }),
        addresses: of_node(&addresses),
        routes: neighbours.map(|neighbour| format!("default via {neighbour}")).to_vec(),
        mtu: MTU,
        resolv_conf: resolver.text,
        says: format!(
            "the wire speaks {kernel} to the kernel attached at {peer}, in UDP from {local}; address {}, the peer is {} unless it says otherwise",
            joined(&addresses),
            joined(&neighbours)
        ),
        notes: resolver.note.into_iter().collect(),
        nat: None,
        passt: None,
        follow: None,
        mac: None,
        sysctls: std::collections::BTreeMap::new(),
    })
}
