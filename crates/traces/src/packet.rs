//! What a frame carries: link layers are stripped here, etherparse takes IP and what lies above apart.

use crate::capture::{Frame, LinkType};
use etherparse::{LaxNetSlice, LaxSlicedPacket, TcpSlice, TransportSlice};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
/// Tags of virtual networks: IEEE 802.1Q, 802.1ad, and the one from before it.
const ETHERTYPES_VLAN: [u16; 3] = [0x8100, 0x88a8, 0x9100];
const ICMP_ECHO_REPLY: u8 = 0;
const ICMP_ECHO_REQUEST: u8 = 8;
const ICMPV6_ECHO_REQUEST: u8 = 128;
const ICMPV6_ECHO_REPLY: u8 = 129;
/// Discovery of neighbours and of multicast listeners (RFC 4861, 2710, 3810): a matter of the link, as ARP is.
const ICMPV6_OF_THE_LINK: [u8; 9] = [130, 131, 132, 133, 134, 135, 136, 137, 143];

/// Flags of TCP as in its header: RFC 9293, 3.1; the ninth is Accurate ECN's.
pub mod flag {
    #![allow(missing_docs)]
    pub const FIN: u16 = 1;
    pub const SYN: u16 = 1 << 1;
    pub const RST: u16 = 1 << 2;
    pub const PSH: u16 = 1 << 3;
    pub const ACK: u16 = 1 << 4;
    pub const URG: u16 = 1 << 5;
    pub const NAMES: [&str; 9] = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR", "AE"];
}

/// A packet of IP.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a> {
    /// Who sent it; port 0 where there are none.
    pub source: SocketAddr,
    /// Whom to.
    pub destination: SocketAddr,
    /// Type of service or traffic class: DSCP and ECN.
    pub tos: u8,
    /// Length of IP's header and all behind it, bytes.
    pub length: u32,
    /// What it carries.
    pub body: Body<'a>,
}

/// What a packet carries.
#[derive(Debug, Clone, Copy)]
pub enum Body<'a> {
    /// A TCP segment.
    Tcp(Tcp<'a>),
    /// A UDP datagram.
    Udp,
    /// A request or a reply of ping.
    Echo(Echo),
    /// ICMP of another kind.
    Icmp,
}

/// A TCP segment as it is in the packet.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct Tcp<'a> {
    pub seq: u32,
    pub ack: u32,
    /// Bits of [`flag`].
    pub flags: u16,
    /// Not scaled.
    pub window: u16,
    pub urgent: u16,
    pub options: &'a [u8],
    /// Bytes of payload that were sent.
    pub payload_length: u32,
    /// What the capture has of them.
    pub payload: &'a [u8],
}

/// A request or a reply of ping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Echo {
    /// Identifier, which a ping program has chosen.
    pub id: u16,
    /// Sequence number.
    pub sequence: u16,
    /// Whether it is a reply.
    pub reply: bool,
}

/// What became of a frame.
#[derive(Debug, Clone, Copy)]
pub enum Decoded<'a> {
    /// A packet of TCP, UDP or ICMP; the number is that of the host's interface, where the capture knows it.
    Packet(Packet<'a>, u32),
    /// Anything but that, and what finds neighbours in IPv6.
    Other,
    /// A fragment, which is not put together here.
    Fragment,
    /// The capture kept too little of it, or its headers are damaged.
    Unreadable,
}

/// Takes a frame apart.
pub fn decode<'a>(frame: &Frame<'a>) -> Decoded<'a> {
    match network(frame.link, frame.bytes) {
        Some((true, start, interface)) => above(
            &frame.bytes[start..],
            frame.length.saturating_sub(start as u32),
            interface,
        ),
        Some((false, ..)) => Decoded::Other,
        None => Decoded::Unreadable,
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Whether IP is carried, where it starts, and the interface; none: the frame ends before.
fn network(link: LinkType, bytes: &[u8]) -> Option<(bool, usize, u32)> {
    let is_ip = |kind| matches!(kind, ETHERTYPE_IPV4 | ETHERTYPE_IPV6);
    match link {
        LinkType::Raw => Some((true, 0, 0)),
        // The families of IP differ between systems; the version in the packet tells as well.
        LinkType::Null => Some((matches!(bytes.get(4)? >> 4, 4 | 6), 4, 0)),
        LinkType::Sll => Some((is_ip(u16_at(bytes, 14)?), 16, 0)).filter(|_| bytes.len() >= 16),
        LinkType::Sll2 => {
            let interface = u32::from_be_bytes(*bytes.get(4..)?.first_chunk()?);
            Some((is_ip(u16_at(bytes, 0)?), 20, interface)).filter(|_| bytes.len() >= 20)
        }
        LinkType::Ethernet => {
            let mut at = 12;
            let mut kind = u16_at(bytes, at)?;
            while ETHERTYPES_VLAN.contains(&kind) {
                at += 4;
                kind = u16_at(bytes, at)?;
            }
            Some((is_ip(kind), at + 2, 0))
        }
    }
}

fn above(bytes: &[u8], length: u32, interface: u32) -> Decoded<'_> {
    let Ok(sliced) = LaxSlicedPacket::from_ip(bytes) else {
        return Decoded::Unreadable;
    };
    let (source, destination, tos, stated, payload) = match &sliced.net {
        Some(LaxNetSlice::Ipv4(ip)) => {
            let header = ip.header();
            let (from, to) = (Ipv4Addr::from(header.source()), Ipv4Addr::from(header.destination()));
            let tos = header.dcp().value() << 2 | header.ecn().value();
            let stated = u32::from(header.total_len());
            (IpAddr::V4(from), IpAddr::V4(to), tos, stated, ip.payload())
        }
        Some(LaxNetSlice::Ipv6(ip)) => {
            let header = ip.header();
            let (from, to) = (Ipv6Addr::from(header.source()), Ipv6Addr::from(header.destination()));
            let stated = match header.payload_length() {
                0 => 0,
                payload => u32::from(payload) + 40,
            };
            (
                IpAddr::V6(from),
                IpAddr::V6(to),
                header.traffic_class(),
                stated,
                ip.payload(),
            )
        }
        _ => return Decoded::Other,
    };
    // Segments that a network card is to cut may state no length.
    let length = if stated == 0 { length } else { stated };
    let (ports, body) = match &sliced.transport {
        Some(TransportSlice::Tcp(tcp)) => {
            let ports = (tcp.source_port(), tcp.destination_port());
            match segment(bytes, tcp, length) {
                Some(segment) => (ports, Body::Tcp(segment)),
                None => return Decoded::Unreadable,
            }
        }
        Some(TransportSlice::Udp(udp)) => ((udp.source_port(), udp.destination_port()), Body::Udp),
        Some(TransportSlice::Icmpv4(icmp)) => (
            (0, 0),
            echo(icmp.type_u8(), icmp.bytes5to8(), ICMP_ECHO_REQUEST, ICMP_ECHO_REPLY),
        ),
        Some(TransportSlice::Icmpv6(icmp)) if ICMPV6_OF_THE_LINK.contains(&icmp.type_u8()) => return Decoded::Other,
        Some(TransportSlice::Icmpv6(icmp)) => (
            (0, 0),
            echo(icmp.type_u8(), icmp.bytes5to8(), ICMPV6_ECHO_REQUEST, ICMPV6_ECHO_REPLY),
        ),
        None if payload.fragmented => return Decoded::Fragment,
        // TCP, UDP or ICMP that etherparse could not take apart.
        None if matches!(payload.ip_number.0, 1 | 6 | 17 | 58) => return Decoded::Unreadable,
        None => return Decoded::Other,
    };
    let packet = Packet {
        source: SocketAddr::new(source, ports.0),
        destination: SocketAddr::new(destination, ports.1),
        tos,
        length,
        body,
    };
    Decoded::Packet(packet, interface)
}

fn echo<'a>(kind: u8, rest: [u8; 4], request: u8, reply: u8) -> Body<'a> {
    let [a, b, c, d] = rest;
    if kind != request && kind != reply {
        return Body::Icmp;
    }
    Body::Echo(Echo {
        id: u16::from_be_bytes([a, b]),
        sequence: u16::from_be_bytes([c, d]),
        reply: kind == reply,
    })
}

/// None: the packet is shorter than it has to be.
fn segment<'a>(ip: &'a [u8], tcp: &TcpSlice<'a>, length: u32) -> Option<Tcp<'a>> {
    // Both are parts of one slice.
    let header = tcp.header_slice();
    let start = header.as_ptr().addr() - ip.as_ptr().addr();
    let payload_start = start + header.len();
    let payload_length = length.checked_sub(payload_start as u32)?;
    let kept_end = ip.len().min(length as usize);
    let bits = [
        tcp.fin(),
        tcp.syn(),
        tcp.rst(),
        tcp.psh(),
        tcp.ack(),
        tcp.urg(),
        tcp.ece(),
        tcp.cwr(),
        tcp.ns(),
    ];
    let flags = bits.iter().rev().fold(0, |flags, bit| flags << 1 | u16::from(*bit));
    Some(Tcp {
        seq: tcp.sequence_number(),
        ack: tcp.acknowledgment_number(),
        flags,
        window: tcp.window_size(),
        urgent: tcp.urgent_pointer(),
        options: header.get(20..)?,
        payload_length,
        payload: ip.get(payload_start..kept_end).unwrap_or_default(),
    })
}
