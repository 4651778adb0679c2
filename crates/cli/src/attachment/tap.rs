//! Mode `tap`: the host is the node's neighbour, by a TAP interface that goes with the run.

use super::nat::{self, Nat};
use super::network::{self, IpSubnet};
use super::resolver::resolver;
use super::{Wire, Wish, joined, of_node};
use crate::failure::Failure;
use serde_json::json;

/// As Ethernet has it.
const MTU: u32 = 1500;

/// See the module.
///
/// # Errors
/// When there is no free subnet, or an address of IPv6 was given to a host without.
pub fn lay(wish: &Wish, kernel: &str) -> Result<Wire, Failure> {
    let v4 = wish.address_v4_or_free()?;
    let v6 = match (network::has_ipv6(), wish.address_v6()) {
        (true, _) => wish.address_v6_or_free(),
        (false, None) => None,
        (false, Some(given)) => {
            return Err(Failure::user(format!(
                "{given} cannot be reached: this host has no IPv6 for new interfaces"
            ))
            .hint("`sysctl net.ipv6.conf.default.disable_ipv6` has to be 0; or leave this address out"));
        }
    };
    let subnets: Vec<IpSubnet> = [Some(v4), v6].into_iter().flatten().collect();
    let interface = format!("wt-{}", std::process::id());
    let resolver = resolver(&wish.resolvers, None);
    let mut notes: Vec<String> = resolver.note.into_iter().collect();
    let nat = reach_beyond(&subnets, &interface, &mut notes);
    // By IPv6 a way that leads nowhere would be tried first.
    let hidden = |subnet: &IpSubnet| nat.as_ref().is_some_and(|nat| nat.hidden().contains(&subnet.address));
    let gateways = subnets
        .iter()
        .filter(|subnet| subnet.address.is_ipv4() || hidden(subnet))
        .map(|subnet| subnet.neighbour());
    let beyond = match &nat {
        Some(nat) => format!(", which hides {} from what lies beyond (NAT)", joined(nat.hidden())),
        None => String::new(),
    };
    let hosts: Vec<_> = subnets.iter().map(|subnet| subnet.neighbour()).collect();
    let host_addresses: Vec<String> = subnets
        .iter()
        .map(|subnet| format!("{}/{}", subnet.neighbour(), subnet.prefix_bits))
        .collect();
    Ok(Wire {
        port: json!({"tap": interface, "address": host_addresses, "mtu": MTU}),
        addresses: of_node(&subnets),
        routes: gateways.map(|gateway| format!("default via {gateway}")).collect(),
        mtu: MTU,
        resolv_conf: resolver.text,
        says: format!(
            "the wire speaks {kernel}, not the host's kernel; address {}, the host is {} on {interface}{beyond}",
            joined(&subnets),
            joined(&hosts)
        ),
        notes,
        nat,
        passt: None,
        follow: None,
        mac: None,
        sysctls: std::collections::BTreeMap::new(),
    })
}

/// Lets the node reach what the host reaches, as far as the host forwards; tells what it does not.
fn reach_beyond(subnets: &[IpSubnet], interface: &str, notes: &mut Vec<String>) -> Option<Nat> {
    let mut hidden = Vec::new();
    for subnet in subnets {
        let (has_way, by, setting) = if subnet.address.is_ipv4() {
            (network::has_default_route(), "", nat::FORWARDS)
        } else {
            (network::has_default_route_v6(), "by IPv6 ", nat::FORWARDS_V6)
        };
        if has_way && nat::host_forwards(setting) {
            hidden.push(subnet.address);
        } else if has_way {
            // It would outlast the run.
            notes.push(format!(
                "{by}this host is reached, not what lies beyond it: it does not forward (`sysctl -w {setting}=1`, as root, lets it)"
            ));
        }
    }
    if hidden.is_empty() {
        return None;
    }
    match Nat::start(&hidden, interface) {
        Ok(started) => Some(started),
        Err(why) => {
            notes.push(format!("this host is reached, not what lies beyond it: {why}"));
            None
        }
    }
}
