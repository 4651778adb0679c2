//! Mode `udp`: a cable to another attached program, as frames in UDP.

use super::network::Ipv4Subnet;
use super::resolver::resolver;
use super::{Wire, Wish};
use crate::failure::Failure;
use serde_json::json;
use std::net::Ipv4Addr;

/// Frames of it fit into datagrams on Ethernet.
const MTU: u32 = 1400;
/// The subnet of both ends, unless addresses are given.
const SUBNET: Ipv4Subnet = Ipv4Subnet {
    address: Ipv4Addr::new(10, 213, 0, 0),
    prefix_bits: 30,
};

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
    let address = wish
        .address
        .unwrap_or_else(|| SUBNET.nth(if local < peer { 1 } else { 2 }));
    let resolver = resolver(&wish.resolvers, None);
    let mut port = json!({"local": local.to_string(), "peer": peer.to_string()});
    if let Some(key) = &wish.key {
        let key = std::path::absolute(key).unwrap_or_else(|_| key.clone());
        port["key"] = json!(key);
    }
    let neighbour = address.neighbour();
    Ok(Wire {
        port: json!({ "udp": port }),
        address,
        gateway: Some(neighbour),
        mtu: MTU,
        resolv_conf: resolver.text,
        says: format!(
            "the wire speaks {kernel} to the kernel attached at {peer}, in UDP from {local}; address {address}, the peer is {neighbour} unless it says otherwise"
        ),
        notes: resolver.note.into_iter().collect(),
        nat: None,
        passt: None,
        mac: None,
        sysctls: std::collections::BTreeMap::new(),
    })
}
