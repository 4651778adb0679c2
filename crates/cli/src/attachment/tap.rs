//! Mode `tap`: the host is the node's neighbour, by a TAP interface that goes with the run.

use super::nat::Nat;
use super::network;
use super::resolver::resolver;
use super::{Wire, Wish};
use crate::failure::Failure;
use serde_json::json;

/// As Ethernet has it.
const MTU: u32 = 1500;

/// See the module.
///
/// # Errors
/// When there is no free subnet.
pub fn lay(wish: &Wish, kernel: &str) -> Result<Wire, Failure> {
    let pid = std::process::id();
    let address = match wish.address {
        Some(address) => address,
        None => network::free_pair(pid)
            .ok_or_else(|| {
                Failure::user("no free private subnet was found: the host has routes to all of them")
                    .hint("name one with `--address ADDRESS/BITS`")
            })?
            .nth(2),
    };
    let host = address.neighbour();
    let interface = format!("wt-{pid}");
    let resolver = resolver(&wish.resolvers, None);
    let mut notes: Vec<String> = resolver.note.into_iter().collect();
    let mut nat = None;
    if network::has_default_route() {
        match Nat::start_if_useful(address, &interface) {
            Ok(started) => nat = Some(started),
            Err(why) => notes.push(format!("this host is reached, not what lies beyond it: {why}")),
        }
    }
    let beyond = match nat {
        Some(_) => ", which hides it from what lies beyond (NAT)",
        None => "",
    };
    Ok(Wire {
        port: json!({"tap": interface, "address": format!("{host}/{}", address.prefix_bits), "mtu": MTU}),
        address,
        gateway: Some(host),
        mtu: MTU,
        resolv_conf: resolver.text,
        says: format!(
            "the wire speaks {kernel}, not the host's kernel; address {address}, the host is {host} on {interface}{beyond}"
        ),
        notes,
        nat,
        passt: None,
        mac: None,
        sysctls: std::collections::BTreeMap::new(),
    })
}
