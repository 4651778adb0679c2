//! Mode `tap`: the host is the node's neighbour, by a TAP interface that goes with the run.

use super::network::{self, Ipv4Subnet};
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
    if network::has_default_route() {
        notes.push(beyond(address, &interface));
    }
    Ok(Wire {
        port: json!({"tap": interface, "address": format!("{host}/{}", address.prefix_bits), "mtu": MTU}),
        address,
        gateway: Some(host),
        mtu: MTU,
        resolv_conf: resolver.text,
        says: format!(
            "the wire speaks {kernel}, not the host's kernel; address {address}, the host is {host} on {interface}"
        ),
        notes,
        passt: None,
    })
}

/// What lets the node reach what lies beyond the host: it would outlast the run, so it is the user's to do.
fn beyond(address: Ipv4Subnet, interface: &str) -> String {
    format!(
        "this host is reached, not what lies beyond: for that, as root, `sysctl -w net.ipv4.ip_forward=1` and `nft 'add table ip wt; add \
         chain ip wt nat {{ type nat hook postrouting priority 100; }}; add rule ip wt nat ip saddr {} oifname != \"{interface}\" \
         masquerade'`; `nft delete table ip wt` undoes it",
        address.address
    )
}
