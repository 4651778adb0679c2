//! Mode `raw`: some ports of the host's own address on one of its interfaces, by this process or by the broker.

use super::engine::INTERFACE;
use super::resolver::resolver;
use super::{Wire, Wish, follow, joined};
use crate::failure::Failure;
use serde_json::json;
use std::collections::BTreeMap;
use std::net::IpAddr;
use windtunnel_ports::{
    BROKER_SOCKET, HostChanges, HostInterface, HostRoute, PortRange, Subnet, availability, free_ports,
};

/// Ports that are taken unless some are named: as many connections to one peer and port.
const PORTS: u16 = 100;

/// See the module.
///
/// # Errors
/// When there is no such interface, or it has no address that can be shared.
pub fn lay(wish: &Wish, kernel: &str) -> Result<Wire, Failure> {
    let interface = wish.interface.clone().or_else(HostInterface::of_default_route);
    let interface = interface.ok_or_else(|| {
        Failure::user("mode raw shares an interface, and the host has no default route that would name one")
            .hint("`--interface NAME`; `ip -brief address` lists those there are")
    })?;
    // Before it is read: what changes after that is news.
    let changes = HostChanges::listen()
        .map_err(|errno| Failure::user("the host's addresses and routes cannot be followed").because(errno))?;
    let host = HostInterface::read(&interface)
        .map_err(|error| Failure::user(error.to_string()).hint("`ip -brief link` lists those there are"))?;
    let shown: Vec<IpAddr> = (host.preferred.iter())
        .map(|subnet| subnet.address)
        .filter(|address| !is_link_local(*address))
        .collect();
    if shown.is_empty() {
        return Err(Failure::user(format!("{interface} has no address to share"))
            .hint("`ip -brief address` lists those there are; `--mode tap` has one of its own"));
    }
    let ports = match wish.ports {
        Some(ports) => ports,
        None => free_ports(PORTS, std::process::id())
            .ok_or_else(|| Failure::user(format!("no {PORTS} free ports were found")).hint("`--ports FIRST-LAST`"))?,
    };
    let lacks = |row: &windtunnel_ports::Availability| row.kinds == "raw" && row.detail.contains("missing");
    let by_broker = availability().iter().any(lacks) && std::path::Path::new(BROKER_SOCKET).exists();
    let mut port = json!({"interface": interface, "tcp": [ports.to_string()], "udp": [ports.to_string()]});
    if by_broker {
        port["broker"] = json!("auto");
    }
    let resolver = resolver(&wish.resolvers, None);
    let mac: Vec<String> = host.mac.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Wire {
        port: json!({ "raw": port }),
        addresses: host.preferred.clone(),
        routes: routes(&host),
        mtu: host.mtu,
        resolv_conf: resolver.text,
        says: format!(
            "the wire speaks {kernel}, not the host's kernel; address {}, the host's own on {interface}, TCP and UDP ports {ports}{}",
            joined(&shown),
            if by_broker { " by the broker" } else { "" }
        ),
        notes: resolver.note.into_iter().collect(),
        nat: None,
        passt: None,
        mac: Some(mac.join(":")),
        sysctls: sysctls(ports),
        follow: Some(follow::Spec {
            interface,
            changes,
            addresses: !by_broker,
            host,
        }),
    })
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

/// The interface has the host's addresses and no other, so what it says is the host's to say.
fn sysctls(ports: PortRange) -> BTreeMap<String, String> {
    let PortRange { first, last } = ports;
    BTreeMap::from([
        ("net.ipv4.ip_local_port_range".to_owned(), format!("{first} {last}")),
        // IN6_ADDR_GEN_MODE_NONE (linux/if_link.h): its link-local address is the host's.
        (format!("net.ipv6.conf.{INTERFACE}.addr_gen_mode"), "1".to_owned()),
        (
            format!("net.ipv6.conf.{INTERFACE}.router_solicitations"),
            "0".to_owned(),
        ),
    ])
}

/// The host's routes that lead out of the interface, but for those that come with its addresses, in an order in which each next hop can be reached.
pub fn routes(host: &HostInterface) -> Vec<String> {
    let mut on_link = host.preferred.clone();
    let of_address = |to: &Subnet| {
        host.preferred
            .iter()
            .any(|subnet| subnet.prefix_bits == to.prefix_bits && subnet.has(to.address))
    };
    let (hops, direct): (Vec<&HostRoute>, Vec<&HostRoute>) = host.routes.iter().partition(|route| route.via.is_some());
    let mut seen: Vec<(Subnet, u32)> = Vec::new();
    let mut lines = Vec::new();
    for route in direct.into_iter().filter(|route| !of_address(&route.to)).chain(hops) {
        // Of several of the same rank, one is taken.
        if seen.contains(&(route.to, route.metric)) {
            continue;
        }
        seen.push((route.to, route.metric));
        let via = match route.via {
            None => {
                on_link.push(route.to);
                String::new()
            }
            Some(via) => {
                if !on_link.iter().any(|subnet| subnet.has(via)) {
                    // The host was told that it is on the link all the same (`onlink`).
                    lines.push(format!("{via} dev {INTERFACE}"));
                    on_link.push(Subnet {
                        address: via,
                        prefix_bits: if via.is_ipv4() { 32 } else { 128 },
                    });
                }
                format!(" via {via}")
            }
        };
        lines.push(format!("{}{via} dev {INTERFACE} metric {}", route.to, route.metric));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subnet(text: &str) -> Subnet {
        let (address, bits) = text.split_once('/').unwrap();
        Subnet {
            address: address.parse().unwrap(),
            prefix_bits: bits.parse().unwrap(),
        }
    }

    #[test]
    fn each_next_hop_is_reached_before_it_is_used() {
        let route = |to: &str, via: Option<&str>, metric| HostRoute {
            to: subnet(to),
            via: via.map(|via| via.parse().unwrap()),
            metric,
        };
        let host = HostInterface {
            index: 2,
            mac: [2; 6],
            mtu: 1500,
            addresses: Vec::new(),
            preferred: ["192.0.2.7/24", "2001:db8::7/128", "fe80::7/64"].map(subnet).to_vec(),
            routes: vec![
                route("0.0.0.0/0", Some("10.0.0.1"), 0),
                route("0.0.0.0/0", Some("192.0.2.1"), 100),
                route("0.0.0.0/0", Some("192.0.2.2"), 100),
                route("192.0.2.0/24", None, 100),
                route("198.51.100.0/24", None, 0),
                route("2001:db8::7/128", None, 256),
                route("fe80::/64", None, 256),
                route("203.0.113.0/24", Some("198.51.100.9"), 0),
                route("::/0", Some("fe80::1"), 1024),
            ],
            neighbours: Vec::new(),
        };
        assert_eq!(
            routes(&host),
            [
                "198.51.100.0/24 dev eth0 metric 0",
                "10.0.0.1 dev eth0",
                "0.0.0.0/0 via 10.0.0.1 dev eth0 metric 0",
                "0.0.0.0/0 via 192.0.2.1 dev eth0 metric 100",
                "203.0.113.0/24 via 198.51.100.9 dev eth0 metric 0",
                "::/0 via fe80::1 dev eth0 metric 1024",
            ]
        );
    }
}
