//! What a port on the host's own address owns, and which frames are its own: the filter of its socket on the way in, a check on the way out.

use std::net::IpAddr;

use windtunnel_netlink::PortRange;

use super::bpf::{Insn, Program};
use crate::FRAME_BYTES_MAX;
use crate::offload::{PROTOCOL_TCP, PROTOCOL_UDP, VNET_BYTES, VNET_NOTHING, VnetHeader};

const ARP: u16 = 0x0806;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const PROTOCOL_ICMP: u8 = 1;
const PROTOCOL_ICMPV6: u8 = 58;
/// Errors of ICMP that quote a packet: unreachable, time exceeded, parameter problem.
const ICMP_ERRORS: [u8; 3] = [3, 11, 12];
/// The same of ICMPv6, and "packet too big".
const ICMPV6_ERRORS: [u8; 4] = [1, 2, 3, 4];
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
const MAC_AT: usize = 6;
const ETHERNET: usize = 14;

/// What is the port's: the interface's addresses, and some ports of TCP and UDP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    /// The interface's MAC address.
    pub mac: [u8; 6],
    /// Its IP addresses.
    pub addresses: Vec<IpAddr>,
    /// Ports of TCP.
    pub tcp: Vec<PortRange>,
    /// Ports of UDP.
    pub udp: Vec<PortRange>,
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn v4_at(bytes: &[u8], at: usize) -> Option<IpAddr> {
    Some(IpAddr::from(<[u8; 4]>::try_from(bytes.get(at..at + 4)?).ok()?))
}

fn v6_at(bytes: &[u8], at: usize) -> Option<IpAddr> {
    Some(IpAddr::from(<[u8; 16]>::try_from(bytes.get(at..at + 16)?).ok()?))
}

impl Owned {
    /// Whether this is an owned port of this protocol.
    fn has(&self, protocol: u8, port: u16) -> bool {
        let ranges = match protocol {
            PROTOCOL_TCP => &self.tcp,
            PROTOCOL_UDP => &self.udp,
            _ => return false,
        };
        ranges.iter().any(|range| range.has(port))
    }

    /// Whether a frame may be sent: from the host's own addresses and from owned ports, or what asks for a neighbour, or tells that an owned
    /// port did not take something. Neither fragments nor IP options: the ports of later fragments cannot be known, and options can hold routes.
    pub fn allows(&self, frame: &[u8]) -> bool {
        self.allows_checked(frame).unwrap_or(false)
    }

    fn allows_checked(&self, frame: &[u8]) -> Option<bool> {
        if frame.get(MAC_AT..MAC_AT + 6)? != self.mac {
            return Some(false);
        }
        match half(frame, 12)? {
            ARP => self.allows_arp(frame),
            IPV4 => self.allows_v4(frame),
            IPV6 => self.allows_v6(frame),
            _ => Some(false),
        }
    }

    /// Requests only: those of others the host answers. Not for an own address, with which others would be told of a change.
    fn allows_arp(&self, frame: &[u8]) -> Option<bool> {
        let (sender, target) = (v4_at(frame, 28)?, v4_at(frame, 38)?);
        let is_request = frame.get(14..22)? == [0, 1, 8, 0, 6, 4, 0, 1] && frame.get(22..28)? == self.mac;
        Some(is_request && self.addresses.contains(&sender) && sender != target)
    }

    fn allows_v4(&self, frame: &[u8]) -> Option<bool> {
        let told = usize::from(half(frame, 16)?);
        let plain = *frame.get(14)? == 0x45 && half(frame, 20)? & 0x3fff == 0;
        if !plain || !(20..=frame.len() - ETHERNET).contains(&told) || !self.addresses.contains(&v4_at(frame, 26)?) {
            return Some(false);
        }
        let packet = &frame[..ETHERNET + told];
        let transport = ETHERNET + 20;
        match *packet.get(23)? {
            PROTOCOL_ICMP if *packet.get(transport)? == 3 => {
                let quoted = transport + 8;
                let header = usize::from(*packet.get(quoted)? & 0x0f) * 4;
                let to_us = self.addresses.contains(&v4_at(packet, quoted + 16)?);
                let port = half(packet, quoted + header + 2)?;
                Some(to_us && self.has(*packet.get(quoted + 9)?, port))
            }
            protocol => Some(self.has(protocol, half(packet, transport)?)),
        }
    }

    fn allows_v6(&self, frame: &[u8]) -> Option<bool> {
        let told = 40 + usize::from(half(frame, 18)?);
        let fits = frame.get(14)? >> 4 == 6 && told <= frame.len() - ETHERNET;
        if !fits || !self.addresses.contains(&v6_at(frame, 22)?) {
            return Some(false);
        }
        let packet = &frame[..ETHERNET + told];
        let transport = ETHERNET + 40;
        match *packet.get(20)? {
            PROTOCOL_ICMPV6 => match *packet.get(transport)? {
                // RFC 4861: only one of the link has this hop limit.
                SOLICITATION => {
                    Some(*packet.get(21)? == 255 && !self.addresses.contains(&v6_at(packet, transport + 8)?))
                }
                1 => {
                    let quoted = transport + 8;
                    let to_us = self.addresses.contains(&v6_at(packet, quoted + 24)?);
                    Some(to_us && self.has(*packet.get(quoted + 6)?, half(packet, quoted + 42)?))
                }
                _ => Some(false),
            },
            protocol => Some(self.has(protocol, half(packet, transport)?)),
        }
    }

    /// As [`Owned::allows`], for a frame behind a header for offloads that somebody has made who is not trusted. The host's kernel writes a checksum to
    /// where the header says, so that must be TCP's own.
    pub fn allows_message(&self, message: &[u8]) -> bool {
        let Some((header, frame)) = message.split_first_chunk::<VNET_BYTES>() else {
            return false;
        };
        if frame.len() > FRAME_BYTES_MAX || !self.allows(frame) {
            return false;
        }
        if *header == VNET_NOTHING {
            return true;
        }
        let is_v4 = half(frame, 12) == Some(IPV4);
        let (transport, protocol) = if is_v4 {
            (ETHERNET + 20, 23)
        } else {
            (ETHERNET + 40, 20)
        };
        let header_of = |size: u16| {
            let tcp_bytes = usize::from(frame.get(transport + 12)? >> 4) * 4;
            let headers = transport + tcp_bytes;
            let is_whole = tcp_bytes >= 20 && headers < frame.len() && size > 0;
            is_whole.then(|| VnetHeader::of_tcp(is_v4, size.into(), transport, headers))
        };
        // The one header that is made for superframes, but for the size of their parts.
        frame[protocol] == PROTOCOL_TCP && header_of(u16::from_ne_bytes([header[4], header[5]])) == Some(*header)
    }

    /// The filter of the packet socket: takes what is for owned ports of the host's own addresses, ICMP errors about what was sent from them, and
    /// answers of neighbours. Fragments are not taken: only the first has ports.
    pub(crate) fn filter(&self) -> Vec<Insn> {
        let mut p = Program::default();
        // A tag that the host has taken out: another network.
        p.load_tag_present();
        p.unless_equal(0, "reject");
        let [a, b, c, d, e, f] = self.mac;
        p.load_word(0);
        p.unless_equal(u32::from_be_bytes([a, b, c, d]), "reject");
        p.load_half(4);
        p.unless_equal(u16::from_be_bytes([e, f]).into(), "reject");
        p.load_half(12);
        p.if_equal(ARP.into(), "arp");
        p.if_equal(IPV4.into(), "v4");
        p.if_equal(IPV6.into(), "v6");
        p.jump("reject");
        self.filter_arp(&mut p);
        self.filter_v4(&mut p);
        self.filter_v6(&mut p);
        p.label("tcp");
        ports(&mut p, &self.tcp);
        p.label("udp");
        ports(&mut p, &self.udp);
        p.label("accept");
        p.ret(u32::MAX);
        p.label("reject");
        p.ret(0);
        p.finish()
    }

    fn v4(&self) -> impl Iterator<Item = u32> {
        let v4 = |address: &IpAddr| match address {
            IpAddr::V4(v4) => Some(v4.to_bits()),
            IpAddr::V6(_) => None,
        };
        self.addresses.iter().filter_map(v4)
    }

    fn filter_arp(&self, p: &mut Program) {
        p.label("arp");
        p.load_half(20);
        p.unless_equal(2, "reject");
        p.load_word(38);
        for address in self.v4() {
            p.if_equal(address, "accept");
        }
        p.jump("reject");
    }

    fn filter_v4(&self, p: &mut Program) {
        p.label("v4");
        p.load_word(30);
        for address in self.v4() {
            p.if_equal(address, "v4-mine");
        }
        p.jump("reject");
        p.label("v4-mine");
        p.load_half(20);
        p.if_any(0x3fff, "reject");
        p.load_byte(23);
        p.if_equal(PROTOCOL_TCP.into(), "v4-tcp");
        p.if_equal(PROTOCOL_UDP.into(), "v4-udp");
        p.unless_equal(PROTOCOL_ICMP.into(), "reject");
        p.x_of_header(14);
        p.load_byte_x(14);
        for kind in ICMP_ERRORS {
            p.if_equal(kind.into(), "v4-quote");
        }
        p.jump("reject");
        for (label, to) in [("v4-tcp", "tcp"), ("v4-udp", "udp")] {
            p.label(label);
            p.x_of_header(14);
            p.load_half_x(16);
            p.jump(to);
        }
        // The quoted packet begins at 22 + X.
        p.label("v4-quote");
        p.load_word_x(34);
        for address in self.v4() {
            p.if_equal(address, "v4-own-quote");
        }
        p.jump("reject");
        p.label("v4-own-quote");
        p.load_half_x(28);
        p.if_any(0x1fff, "reject");
        p.load_byte_x(31);
        p.store();
        p.load_byte_x(22);
        p.and(0x0f);
        p.shift_left(2);
        p.add_x();
        p.copy_to_x();
        p.load_stored();
        for (protocol, label, to) in [(PROTOCOL_TCP, "quoted-tcp", "tcp"), (PROTOCOL_UDP, "quoted-udp", "udp")] {
            p.unless_equal(protocol.into(), label);
            p.load_half_x(22);
            p.jump(to);
            p.label(label);
        }
        p.jump("reject");
    }

    fn filter_v6(&self, p: &mut Program) {
        p.label("v6");
        self.if_v6(p, 38, "v6-mine");
        p.jump("reject");
        p.label("v6-mine");
        p.load_byte(20);
        p.if_equal(PROTOCOL_TCP.into(), "v6-tcp");
        p.if_equal(PROTOCOL_UDP.into(), "v6-udp");
        p.unless_equal(PROTOCOL_ICMPV6.into(), "reject");
        p.load_byte(54);
        p.if_equal(ADVERTISEMENT.into(), "accept");
        for kind in ICMPV6_ERRORS {
            p.if_equal(kind.into(), "v6-quote");
        }
        p.jump("reject");
        // The quoted packet begins at 62.
        p.label("v6-quote");
        self.if_v6(p, 70, "v6-own-quote");
        p.jump("reject");
        p.label("v6-own-quote");
        p.load_byte(68);
        p.if_equal(PROTOCOL_TCP.into(), "v6-quoted-tcp");
        p.if_equal(PROTOCOL_UDP.into(), "v6-quoted-udp");
        p.jump("reject");
        for (label, at, to) in [
            ("v6-tcp", 56, "tcp"),
            ("v6-udp", 56, "udp"),
            ("v6-quoted-tcp", 102, "tcp"),
            ("v6-quoted-udp", 102, "udp"),
        ] {
            p.label(label);
            p.load_half(at);
            p.jump(to);
        }
    }

    /// Jumps if the IPv6 address there is the host's own.
    fn if_v6(&self, p: &mut Program, at: u32, label: &str) {
        for (number, address) in self.addresses.iter().enumerate() {
            let IpAddr::V6(v6) = address else { continue };
            let next = format!("{label}-not-{number}");
            for (word, bytes) in v6.octets().as_chunks::<4>().0.iter().enumerate() {
                p.load_word(at + 4 * word as u32);
                p.unless_equal(u32::from_be_bytes(*bytes), &next);
            }
            p.jump(label);
            p.label(&next);
        }
    }
}

/// Takes the frame if what is loaded is one of these.
fn ports(p: &mut Program, ranges: &[PortRange]) {
    for range in ranges {
        p.if_within(range.first.into(), range.last.into(), "accept");
    }
    p.jump("reject");
}

#[cfg(test)]
mod tests;
