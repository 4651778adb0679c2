//! Netlink messages that configure interfaces, of a node or of the host, and the reading of their answers. Pure: bytes in, bytes out.
#![forbid(unsafe_code)]

mod dump;
mod nftables;

pub use dump::{Dump, Found, parse_dump};
pub use nftables::Shield;

use std::net::IpAddr;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_ACK_TLVS, NLM_F_CAPPED, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkBuffer, NetlinkHeader,
    NetlinkMessage, NetlinkPayload, NlasIterator,
};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage, AddressScope};
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteNextHop, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

/// `NLMSGERR_ATTR_MSG`: the explanation in an error, NUL-terminated text.
const ERROR_TEXT: u16 = 1;
/// Bytes of a netlink header.
const HEADER_BYTES: usize = 16;

/// Ports of TCP or UDP, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    /// The first.
    pub first: u16,
    /// The last, which is one of them.
    pub last: u16,
}

impl PortRange {
    /// How many there are.
    pub fn count(self) -> usize {
        usize::from(self.last.saturating_sub(self.first)) + 1
    }

    /// Whether this is one of them.
    pub fn has(self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }
}

impl std::fmt::Display for PortRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first)
        } else {
            write!(f, "{}-{}", self.first, self.last)
        }
    }
}

impl std::str::FromStr for PortRange {
    type Err = String;

    /// `40000` or `40000-40099`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let port = |text: &str| text.trim().parse().ok().filter(|port| *port > 0_u16);
        match (port(first), port(last)) {
            (Some(first), Some(last)) if first <= last => Ok(Self { first, last }),
            _ => Err(format!("`{text}` is neither a port nor a range of ports")),
        }
    }
}

/// One change to a network configuration, or a question about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// The number of the interface with this name; answered by a link message.
    FindLink {
        /// Interface name, at most 15 bytes.
        name: String,
    },
    /// Sets an interface up or down.
    SetUp {
        /// Interface number.
        index: u32,
        /// Up, or down.
        up: bool,
    },
    /// Sets the longest packet of an interface.
    SetMtu {
        /// Interface number.
        index: u32,
        /// Bytes of a packet, without the Ethernet header.
        mtu: u32,
    },
    /// Makes a bridge.
    AddBridge {
        /// Interface name, at most 15 bytes.
        name: String,
    },
    /// Makes an interface a port of a bridge.
    JoinBridge {
        /// Interface number.
        index: u32,
        /// Interface number of the bridge.
        bridge: u32,
    },
    /// Adds an address. IPv6 addresses are usable at once: duplicate detection is skipped.
    AddAddress {
        /// Interface number.
        index: u32,
        /// The address.
        address: IpAddr,
        /// Bits of the subnet's prefix.
        prefix_bits: u8,
    },
    /// Adds a route to the main table.
    AddRoute {
        /// Destination and the bits of its prefix; zero bits: default.
        to: (IpAddr, u8),
        /// Next hops; of several one is taken for each flow.
        via: Vec<IpAddr>,
        /// Outgoing interface.
        index: Option<u32>,
        /// Metric; smaller wins.
        metric: Option<u32>,
    },
}

impl Request {
    /// The bytes of the message with sequence number `sequence`.
    pub fn to_bytes(&self, sequence: u32) -> Vec<u8> {
        let (message, flags) = self.message();
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        bytes
    }

    fn message(&self) -> (RouteNetlinkMessage, u16) {
        let added = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
        match self {
            Self::FindLink { name } => {
                let mut link = LinkMessage::default();
                link.attributes.push(LinkAttribute::IfName(name.clone()));
                (RouteNetlinkMessage::GetLink(link), 0)
            }
            Self::SetUp { index, up } => {
                let mut link = LinkMessage::default();
                link.header.index = *index;
                link.header.change_mask = LinkFlags::Up;
                if *up {
                    link.header.flags = LinkFlags::Up;
                }
                (RouteNetlinkMessage::SetLink(link), NLM_F_ACK)
            }
            Self::SetMtu { index, mtu } => {
                let mut link = LinkMessage::default();
                link.header.index = *index;
                link.attributes.push(LinkAttribute::Mtu(*mtu));
                (RouteNetlinkMessage::SetLink(link), NLM_F_ACK)
            }
            Self::AddBridge { name } => {
                let mut link = LinkMessage::default();
                let kind = LinkInfo::Kind(InfoKind::Bridge);
                link.attributes.push(LinkAttribute::IfName(name.clone()));
                link.attributes.push(LinkAttribute::LinkInfo(vec![kind]));
                (RouteNetlinkMessage::NewLink(link), added)
            }
            Self::JoinBridge { index, bridge } => {
                let mut link = LinkMessage::default();
                link.header.index = *index;
                link.attributes.push(LinkAttribute::Controller(*bridge));
                (RouteNetlinkMessage::SetLink(link), NLM_F_ACK)
            }
            Self::AddAddress {
                index,
                address,
                prefix_bits,
            } => (
                RouteNetlinkMessage::NewAddress(address_message(*index, *address, *prefix_bits)),
                added,
            ),
            Self::AddRoute { to, via, index, metric } => (
                RouteNetlinkMessage::NewRoute(route_message(*to, via, *index, *metric)),
                added,
            ),
        }
    }
}

fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

fn address_message(index: u32, address: IpAddr, prefix_bits: u8) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = family(address);
    message.header.prefix_len = prefix_bits;
    message.header.index = index;
    message.header.scope = match address {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => AddressScope::Link,
        _ => AddressScope::Universe,
    };
    if address.is_ipv6() {
        message.header.flags = AddressHeaderFlags::Nodad;
    }
    message.attributes.push(AddressAttribute::Local(address));
    message.attributes.push(AddressAttribute::Address(address));
    message
}

fn route_message(to: (IpAddr, u8), via: &[IpAddr], index: Option<u32>, metric: Option<u32>) -> RouteMessage {
    let (destination, prefix_bits) = to;
    let mut message = RouteMessage::default();
    message.header.address_family = family(destination);
    message.header.destination_prefix_length = prefix_bits;
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::Static;
    message.header.kind = RouteType::Unicast;
    // What `ip route` chooses: a destination without a next hop is on the link. IPv6 has no such scope.
    message.header.scope = match (via, destination) {
        ([], IpAddr::V4(_)) => RouteScope::Link,
        _ => RouteScope::Universe,
    };
    if prefix_bits > 0 {
        message
            .attributes
            .push(RouteAttribute::Destination(RouteAddress::from(destination)));
    }
    match via {
        [] => {}
        [via] => message
            .attributes
            .push(RouteAttribute::Gateway(RouteAddress::from(*via))),
        several => message.attributes.push(RouteAttribute::MultiPath(
            several.iter().map(|via| next_hop(*via)).collect(),
        )),
    }
    if let Some(index) = index {
        message.attributes.push(RouteAttribute::Oif(index));
    }
    if let Some(metric) = metric {
        message.attributes.push(RouteAttribute::Priority(metric));
    }
    message
}

/// One of several next hops, with the weight of each other.
fn next_hop(via: IpAddr) -> RouteNextHop {
    let mut hop = RouteNextHop::default();
    hop.attributes.push(RouteAttribute::Gateway(RouteAddress::from(via)));
    hop
}

/// The kernel's answer to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Done.
    Done,
    /// The interface asked for has this number.
    Link {
        /// Interface number.
        index: u32,
    },
    /// Refused.
    Refused {
        /// Linux error number, above zero.
        errno: i32,
        /// The kernel's own explanation, when it gave one.
        text: Option<String>,
    },
}

/// Reads the answer to the request with sequence number `sequence`.
///
/// # Errors
/// Text that says what is wrong with the bytes.
pub fn parse_answer(bytes: &[u8], sequence: u32) -> Result<Answer, String> {
    let buffer = NetlinkBuffer::new_checked(bytes).map_err(|error| error.to_string())?;
    if buffer.sequence_number() != sequence {
        return Err(format!(
            "the answer has number {}, not {sequence}",
            buffer.sequence_number()
        ));
    }
    let flags = buffer.flags();
    let payload_bytes = buffer.length() as usize - HEADER_BYTES;
    let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(bytes).map_err(|error| error.to_string())?;
    match message.payload {
        NetlinkPayload::Error(error) => match error.code {
            None => Ok(Answer::Done),
            Some(code) => Ok(Answer::Refused {
                errno: code.get().abs(),
                text: error_text(&error.header[..payload_bytes - 4], flags),
            }),
        },
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => Ok(Answer::Link {
            index: link.header.index,
        }),
        other => Err(format!("an answer of type {} was not asked for", other.message_type())),
    }
}

/// The explanation in an error: attributes after the request's header, or after the whole request when the kernel
/// did not cap it.
fn error_text(request: &[u8], flags: u16) -> Option<String> {
    if flags & NLM_F_ACK_TLVS == 0 {
        return None;
    }
    let skip = if flags & NLM_F_CAPPED != 0 {
        HEADER_BYTES
    } else {
        let length = request.first_chunk::<4>().map(|bytes| u32::from_le_bytes(*bytes))?;
        (length as usize).next_multiple_of(4)
    };
    let attributes = request.get(skip..)?;
    NlasIterator::new(attributes)
        .filter_map(Result::ok)
        .find(|attribute| attribute.kind() == ERROR_TEXT)
        .map(|attribute| {
            let text = attribute.value();
            let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
            String::from_utf8_lossy(&text[..end]).into_owned()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text
            .chars()
            .filter_map(|digit| digit.to_digit(16))
            .map(|digit| digit as u8)
            .collect();
        digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
    }

    #[test]
    fn an_interface_is_set_up() {
        // nlmsghdr: length 32, RTM_SETLINK 19, REQUEST|ACK, sequence 7, port 0; ifinfomsg: index 2, UP of UP.
        assert_eq!(
            Request::SetUp { index: 2, up: true }.to_bytes(7),
            hex("20000000 1300 0500 07000000 00000000  00 00 0000 02000000 01000000 01000000")
        );
        assert_eq!(
            Request::SetUp { index: 2, up: false }.to_bytes(7),
            hex("20000000 1300 0500 07000000 00000000  00 00 0000 02000000 00000000 01000000")
        );
    }

    #[test]
    fn an_mtu_is_set() {
        // RTM_SETLINK 19; IFLA_MTU 4: 9000.
        let bytes = Request::SetMtu { index: 2, mtu: 9000 }.to_bytes(1);
        assert_eq!(bytes[4..8], hex("1300 0500"));
        assert_eq!(
            bytes[16..],
            hex("00 00 0000 02000000 00000000 00000000  0800 0400 28230000")
        );
    }

    #[test]
    fn an_interface_is_looked_up_by_name() {
        // RTM_GETLINK 18; IFLA_IFNAME 3, "eth0" with its NUL, padded to 4 bytes.
        assert_eq!(
            Request::FindLink { name: "eth0".into() }.to_bytes(9),
            hex(
                "2c000000 1200 0100 09000000 00000000  00 00 0000 00000000 00000000 00000000
                 0900 0300 65746830 00 000000"
            )
        );
    }

    #[test]
    fn a_bridge_is_made_and_joined() {
        // RTM_NEWLINK 16; IFLA_IFNAME 3, IFLA_LINKINFO 18 with IFLA_INFO_KIND 1.
        let request = Request::AddBridge { name: "br0".into() };
        let expected = "0800 0300 62723000  1000 1200  0b00 0100 62726964676500 00";
        let bytes = request.to_bytes(1);
        assert_eq!(
            (&bytes[4..8], &bytes[32..]),
            (&hex("1000 0506")[..], &hex(expected)[..])
        );
        // RTM_SETLINK 19; IFLA_MASTER 10.
        let request = Request::JoinBridge { index: 2, bridge: 7 };
        let bytes = request.to_bytes(1);
        assert_eq!(bytes[4..8], hex("1300 0500"));
        assert_eq!(
            bytes[16..],
            hex("00 00 0000 02000000 00000000 00000000  0800 0a00 07000000")
        );
    }

    #[test]
    fn an_ipv4_address_is_added() {
        // RTM_NEWADDR 20, REQUEST|ACK|EXCL|CREATE 0x605; ifaddrmsg: AF_INET 2, /24, no flags, universe, index 2;
        // IFA_LOCAL 2 and IFA_ADDRESS 1.
        assert_eq!(
            Request::AddAddress {
                index: 2,
                address: "10.0.0.1".parse().unwrap(),
                prefix_bits: 24
            }
            .to_bytes(1),
            hex("28000000 1400 0506 01000000 00000000  02 18 00 00 02000000  0800 0200 0a000001  0800 0100 0a000001")
        );
    }

    #[test]
    fn an_ipv6_address_is_added_without_duplicate_detection() {
        // ifaddrmsg: AF_INET6 10, /64, IFA_F_NODAD 2; a link-local address has scope 253.
        let bytes = Request::AddAddress {
            index: 4,
            address: "fe80::1".parse().unwrap(),
            prefix_bits: 64,
        }
        .to_bytes(1);
        assert_eq!(bytes[16..24], hex("0a 40 02 fd 04000000"));
        let bytes = Request::AddAddress {
            index: 4,
            address: "fd00::1".parse().unwrap(),
            prefix_bits: 64,
        }
        .to_bytes(1);
        assert_eq!(bytes[16..24], hex("0a 40 02 00 04000000"));
    }

    #[test]
    fn a_default_route_names_its_gateway_only() {
        // rtmsg: AF_INET, dst /0, src /0, tos 0, table 254, RTPROT_STATIC 4, universe, RTN_UNICAST 1; RTA_GATEWAY 5.
        let request = Request::AddRoute {
            to: ("0.0.0.0".parse().unwrap(), 0),
            via: vec!["10.0.0.254".parse().unwrap()],
            index: None,
            metric: None,
        };
        assert_eq!(
            request.to_bytes(1),
            hex("24000000 1800 0506 01000000 00000000  02 00 00 00 fe 04 00 01 00000000  0800 0500 0a0000fe")
        );
    }

    #[test]
    fn a_route_on_the_link_has_its_scope_interface_and_metric() {
        let request = Request::AddRoute {
            to: ("10.1.0.0".parse().unwrap(), 16),
            via: vec![],
            index: Some(3),
            metric: Some(50),
        };
        // RTA_DST 1, RTA_OIF 4, RTA_PRIORITY 6; RT_SCOPE_LINK 253.
        assert_eq!(
            request.to_bytes(1)[16..],
            hex("02 10 00 00 fe 04 fd 01 00000000  0800 0100 0a010000  0800 0400 03000000  0800 0600 32000000")
        );
    }

    #[test]
    fn a_route_of_several_next_hops_names_them_all() {
        let request = Request::AddRoute {
            to: ("10.1.0.0".parse().unwrap(), 16),
            via: vec!["10.0.0.2".parse().unwrap(), "10.0.1.2".parse().unwrap()],
            index: None,
            metric: None,
        };
        // RTA_MULTIPATH 9: two of rtnexthop (length 16, flags, weight - 1, no interface) with RTA_GATEWAY 5.
        assert_eq!(
            request.to_bytes(1)[16..],
            hex("02 10 00 00 fe 04 00 01 00000000  0800 0100 0a010000
                 2400 0900  1000 00 00 00000000 0800 0500 0a000002  1000 00 00 00000000 0800 0500 0a000102")
        );
    }

    #[test]
    fn an_acknowledgement_is_read() {
        let ack = hex("24000000 0200 0000 05000000 00000000  00000000  20000000 1300 0500 05000000 00000000");
        assert_eq!(parse_answer(&ack, 5), Ok(Answer::Done));
        assert!(parse_answer(&ack, 6).unwrap_err().contains("number 5, not 6"));
    }

    #[test]
    fn an_error_is_read_with_its_explanation() {
        // NLMSG_ERROR, CAPPED|ACK_TLVS, -ENETUNREACH (101); NLMSGERR_ATTR_MSG "Nexthop".
        let capped = hex(
            "30000000 0200 0003 05000000 00000000  9bffffff  24000000 1800 0506 05000000 00000000
                          0c00 0100 4e6578 74686f70 00",
        );
        let expected = Answer::Refused {
            errno: 101,
            text: Some("Nexthop".into()),
        };
        assert_eq!(parse_answer(&capped, 5), Ok(expected.clone()));
        // Uncapped: the whole request of 0x14 bytes comes before the attribute.
        let whole = hex(
            "34000000 0200 0002 05000000 00000000  9bffffff  14000000 1800 0506 05000000 00000000
                         aabbccdd  0c00 0100 4e6578 74686f70 00",
        );
        assert_eq!(parse_answer(&whole, 5), Ok(expected));
    }

    #[test]
    fn an_error_without_explanation_is_read() {
        let bare = hex("24000000 0200 0000 05000000 00000000  efffffff  20000000 1300 0500 05000000 00000000");
        assert_eq!(parse_answer(&bare, 5), Ok(Answer::Refused { errno: 17, text: None }));
    }

    #[test]
    fn a_link_answer_gives_the_interface_number() {
        let link = hex("20000000 1000 0000 02000000 00000000  00 00 0100 02000000 00000000 00000000");
        assert_eq!(parse_answer(&link, 2), Ok(Answer::Link { index: 2 }));
    }

    #[test]
    fn a_truncated_answer_is_an_error() {
        assert!(parse_answer(&hex("24000000 0200"), 1).is_err());
    }
}
