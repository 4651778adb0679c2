//! What the host's kernel knows of its interfaces: questions that are answered by a list, and the reading of the answers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

/// Flags of an address that is not for new connections.
const SET_ASIDE: AddressHeaderFlags = AddressHeaderFlags::Deprecated
    .union(AddressHeaderFlags::Tentative)
    .union(AddressHeaderFlags::Dadfailed);

/// A question that is answered by a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dump {
    /// All addresses of all interfaces.
    Addresses,
    /// All routes of all tables.
    Routes,
    /// All neighbours that were resolved, or are being.
    Neighbours,
}

/// One thing of such a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// An address of an interface.
    Address {
        /// Interface number.
        index: u32,
        /// The interface's own address.
        address: IpAddr,
        /// Bits of the subnet's prefix.
        prefix_bits: u8,
        /// Not for new connections: it is being tried, was found twice, or has had its time (IPv6).
        set_aside: bool,
    },
    /// A unicast route of the main table; one with several next hops is listed once for each.
    Route {
        /// Interface number.
        index: u32,
        /// Destination and the bits of its prefix; zero bits: default.
        to: (IpAddr, u8),
        /// Next hop; none: on the link.
        via: Option<IpAddr>,
        /// Metric; smaller wins.
        metric: u32,
    },
    /// A neighbour whose MAC address is known.
    Neighbour {
        /// Interface number.
        index: u32,
        /// Its address.
        address: IpAddr,
        /// Its MAC address.
        mac: [u8; 6],
    },
}

impl Dump {
    /// The bytes of the question with sequence number `sequence`.
    pub fn to_bytes(self, sequence: u32) -> Vec<u8> {
        let message = match self {
            Self::Addresses => RouteNetlinkMessage::GetAddress(AddressMessage::default()),
            Self::Routes => RouteNetlinkMessage::GetRoute(RouteMessage::default()),
            Self::Neighbours => RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default()),
        };
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | NLM_F_DUMP;
        header.sequence_number = sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        bytes
    }
}

/// Reads one datagram of the answer with sequence number `sequence` into `found`; true if it was the last.
///
/// # Errors
/// Text that says what is wrong with the bytes, or what the kernel refused.
pub fn parse_dump(mut bytes: &[u8], sequence: u32, found: &mut Vec<Found>) -> Result<bool, String> {
    while !bytes.is_empty() {
        let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(bytes).map_err(|error| error.to_string())?;
        let length = (message.header.length as usize).next_multiple_of(4);
        bytes = bytes.get(length.max(crate::HEADER_BYTES)..).unwrap_or_default();
        if message.header.sequence_number != sequence {
            continue;
        }
        match message.payload {
            NetlinkPayload::Done(_) => return Ok(true),
            NetlinkPayload::Error(error) => match error.code {
                None => return Ok(true),
                Some(code) => return Err(format!("refused with error {}", code.get().abs())),
            },
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewAddress(message)) => found.extend(address(&message)),
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewRoute(message)) => routes(&message, found),
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewNeighbour(message)) => {
                found.extend(neighbour(&message));
            }
            _ => {}
        }
    }
    Ok(false)
}

fn address(message: &AddressMessage) -> Option<Found> {
    let (mut local, mut other) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(address) => local = Some(*address),
            AddressAttribute::Address(address) => other = Some(*address),
            _ => {}
        }
    }
    // Where both are there, the other one is the peer's.
    Some(Found::Address {
        index: message.header.index,
        address: local.or(other)?,
        prefix_bits: message.header.prefix_len,
        set_aside: message.header.flags.intersects(SET_ASIDE),
    })
}

fn routes(message: &RouteMessage, found: &mut Vec<Found>) {
    let header = &message.header;
    if header.table != RouteHeader::RT_TABLE_MAIN || header.kind != RouteType::Unicast {
        return;
    }
    let (mut to, mut via, mut index, mut metric) = (None, None, None, 0);
    let mut hops = &[][..];
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(address) => to = ip(address),
            RouteAttribute::Gateway(address) => via = ip(address),
            RouteAttribute::Oif(number) => index = Some(*number),
            RouteAttribute::Priority(number) => metric = *number,
            RouteAttribute::MultiPath(several) => hops = several,
            // A next hop of the other version of IP.
            RouteAttribute::Via(_) => return,
            _ => {}
        }
    }
    let any = match header.address_family {
        AddressFamily::Inet => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        AddressFamily::Inet6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        _ => return,
    };
    let to = (to.unwrap_or(any), header.destination_prefix_length);
    let route = |index, via| Found::Route { index, to, via, metric };
    found.extend(index.map(|index| route(index, via)));
    for hop in hops {
        let via = hop.attributes.iter().find_map(|attribute| match attribute {
            RouteAttribute::Gateway(address) => ip(address),
            _ => None,
        });
        found.push(route(hop.interface_index, via));
    }
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(v4) => Some(IpAddr::V4(*v4)),
        RouteAddress::Inet6(v6) => Some(IpAddr::V6(*v6)),
        _ => None,
    }
}

fn neighbour(message: &NeighbourMessage) -> Option<Found> {
    let (mut address, mut mac) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => address = Some(IpAddr::V4(*v4)),
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => address = Some(IpAddr::V6(*v6)),
            NeighbourAttribute::LinkLayerAddress(bytes) => mac = <[u8; 6]>::try_from(bytes.as_slice()).ok(),
            _ => {}
        }
    }
    Some(Found::Neighbour {
        index: message.header.ifindex,
        address: address?,
        mac: mac?,
    })
}
