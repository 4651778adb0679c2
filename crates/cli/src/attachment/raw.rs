//! Mode `raw`: some ports of the host's own address on one of its interfaces, by this process or by the broker.

use super::network::Ipv4Subnet;
use super::resolver::resolver;
use super::{Wire, Wish};
use crate::failure::Failure;
use serde_json::json;
use std::collections::BTreeMap;
use std::net::IpAddr;
use windtunnel_ports::{BROKER_SOCKET, HostInterface, PortRange, availability, free_ports};

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
    let host = HostInterface::read(&interface)
        .map_err(|error| Failure::user(error.to_string()).hint("`ip -brief link` lists those there are"))?;
    let address = host.addresses.iter().find_map(|subnet| match subnet.address {
        IpAddr::V4(address) => Some(Ipv4Subnet {
            address,
            prefix_bits: subnet.prefix_bits,
        }),
        IpAddr::V6(_) => None,
    });
    let address = address.ok_or_else(|| {
        Failure::user(format!("{interface} has no IPv4 address to share")).hint("`--mode tap` has one of its own")
    })?;
    let gateway = host.routes.iter().find(|route| route.to.is_none());
    let gateway = gateway.and_then(|route| match route.via {
        Some(IpAddr::V4(gateway)) => Some(gateway),
        _ => None,
    });
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
    let PortRange { first, last } = ports;
    Ok(Wire {
        port: json!({ "raw": port }),
        address,
        gateway,
        mtu: host.mtu,
        resolv_conf: resolver.text,
        says: format!(
            "the wire speaks {kernel}, not the host's kernel; address {}, the host's own on {interface}, TCP and UDP ports {ports}{}",
            address.address,
            if by_broker { " by the broker" } else { "" }
        ),
        notes: resolver.note.into_iter().collect(),
        nat: None,
        passt: None,
        mac: Some(mac.join(":")),
        sysctls: BTreeMap::from([
            ("net.ipv4.ip_local_port_range".to_owned(), format!("{first} {last}")),
            // Its link-local address is the host's.
            ("net.ipv6.conf.all.disable_ipv6".to_owned(), "1".to_owned()),
        ]),
    })
}
