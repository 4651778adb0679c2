//! What a frame's headers say of its flow. Sources: IEEE 802.1Q, RFC 791, RFC 8200, RFC 9293, RFC 768.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const ETHERTYPE_AT: usize = 12;
const ETHERNET_LEN: usize = 14;
const VLAN_LEN: usize = 4;
const IPV6_LEN: usize = 40;
/// Numbers of protocols, IANA.
pub const TCP: u8 = 6;
/// See [`TCP`].
pub const UDP: u8 = 17;
/// Extension headers that may follow one another before the payload; more than that are not looked through.
const EXTENSIONS_MAX: usize = 8;

/// Flags of a segment.
pub const FIN: u8 = 1;
/// See [`FIN`].
pub const SYN: u8 = 2;
/// See [`FIN`].
pub const RST: u8 = 4;
/// See [`FIN`].
pub const ACK: u8 = 16;

/// Who sends to whom. Protocols other than TCP and UDP, and fragments after the first, have ports 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tuple {
    /// Address and port of the sender.
    pub source: (IpAddr, u16),
    /// Address and port of the receiver.
    pub destination: (IpAddr, u16),
    /// Number of the protocol in IP.
    pub protocol: u8,
}

impl Tuple {
    /// The other direction.
    pub fn reverse(&self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
            protocol: self.protocol,
        }
    }
}

/// What a segment says of TCP's sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Number of its first byte.
    pub seq: u32,
    /// Number of the byte expected next, if [`ACK`] is set.
    pub ack: u32,
    /// Its flags.
    pub flags: u8,
}

/// A packet of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Its flow.
    pub tuple: Tuple,
    /// Bytes after the header of TCP or UDP; of other protocols, after that of IP.
    pub payload_bytes: u32,
    /// Of TCP only.
    pub segment: Option<Segment>,
}

/// Reads a frame that starts at the Ethernet header; none: it carries no IP, or its headers do not fit in.
pub fn parse(frame: &[u8]) -> Option<Packet> {
    let (mut at, mut ethertype) = (ETHERNET_LEN, be16(frame, ETHERTYPE_AT)?);
    while matches!(ethertype, 0x8100 | 0x88a8) {
        ethertype = be16(frame, at + 2)?;
        at += VLAN_LEN;
    }
    let packet = frame.get(at..)?;
    match ethertype {
        0x0800 => ipv4(packet),
        0x86dd => ipv6(packet),
        _ => None,
    }
}

fn ipv4(packet: &[u8]) -> Option<Packet> {
    let first = *packet.first()?;
    let header = usize::from(first & 0xf) * 4;
    let total = usize::from(be16(packet, 2)?);
    if first >> 4 != 4 || header < 20 || total < header {
        return None;
    }
    let address = |at: usize| {
        Some(IpAddr::V4(Ipv4Addr::from(
            <[u8; 4]>::try_from(packet.get(at..at + 4)?).ok()?,
        )))
    };
    let is_later_fragment = be16(packet, 6)? & 0x1fff != 0;
    let ends = (address(12)?, address(16)?);
    // Short frames are padded: the length counts.
    let payload = packet.get(header..total.min(packet.len()))?;
    transport(ends, packet[9], payload, total - header, is_later_fragment)
}

fn ipv6(packet: &[u8]) -> Option<Packet> {
    let address = |at: usize| {
        let bytes = <[u8; 16]>::try_from(packet.get(at..at + 16)?).ok()?;
        Some(IpAddr::V6(Ipv6Addr::from(bytes)))
    };
    let ends = (address(8)?, address(24)?);
    let mut left = usize::from(be16(packet, 4)?);
    let mut payload = packet.get(IPV6_LEN..)?;
    payload = &payload[..left.min(payload.len())];
    let (mut protocol, mut is_later_fragment) = (packet[6], false);
    for _ in 0..EXTENSIONS_MAX {
        let length = match protocol {
            // Hop-by-hop options, routing, destination options.
            0 | 43 | 60 => (usize::from(*payload.get(1)?) + 1) * 8,
            44 => {
                is_later_fragment |= be16(payload, 2)? & 0xfff8 != 0;
                8
            }
            _ => break,
        };
        protocol = payload[0];
        payload = payload.get(length..)?;
        left = left.checked_sub(length)?;
    }
    transport(ends, protocol, payload, left, is_later_fragment)
}

/// `length` is that of the payload, of which there may be less.
fn transport(
    ends: (IpAddr, IpAddr),
    protocol: u8,
    payload: &[u8],
    length: usize,
    is_later_fragment: bool,
) -> Option<Packet> {
    let has_ports = matches!(protocol, TCP | UDP) && !is_later_fragment;
    let ports = if has_ports {
        (be16(payload, 0)?, be16(payload, 2)?)
    } else {
        (0, 0)
    };
    let (header, segment) = match protocol {
        TCP if has_ports => {
            let segment = Segment {
                seq: be32(payload, 4)?,
                ack: be32(payload, 8)?,
                flags: *payload.get(13)?,
            };
            (usize::from(payload[12] >> 4) * 4, Some(segment))
        }
        UDP if has_ports => (8, None),
        _ => (0, None),
    };
    Some(Packet {
        tuple: Tuple {
            source: (ends.0, ports.0),
            destination: (ends.1, ports.1),
            protocol,
        },
        payload_bytes: length.saturating_sub(header) as u32,
        segment,
    })
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A segment from 10.0.0.1:1000 to 10.0.0.2:80, padded to 60 bytes.
    pub fn tcp_frame(seq: u32, ack: u32, flags: u8, payload: usize) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend([8, 0, 0x45, 0]);
        frame.extend((40 + payload as u16).to_be_bytes());
        frame.extend([0, 0, 0x40, 0, 64, TCP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([0x03, 0xe8, 0, 80]);
        frame.extend(seq.to_be_bytes());
        frame.extend(ack.to_be_bytes());
        frame.extend([0x50, flags, 1, 0, 0, 0, 0, 0]);
        frame.resize((frame.len() + payload).max(60), 0);
        frame
    }

    #[test]
    fn a_segment_is_read_without_its_padding() {
        let packet = parse(&tcp_frame(7, 9, SYN | ACK, 0)).unwrap();
        assert_eq!(packet.payload_bytes, 0);
        let (seq, ack, flags) = (7, 9, SYN | ACK);
        assert_eq!(packet.segment, Some(Segment { seq, ack, flags }));
        assert_eq!(packet.tuple.source, ("10.0.0.1".parse().unwrap(), 1000));
        assert_eq!(packet.tuple.reverse().source, ("10.0.0.2".parse().unwrap(), 80));
        assert_eq!(parse(&tcp_frame(0, 0, ACK, 1000)).unwrap().payload_bytes, 1000);
    }

    #[test]
    fn tags_and_extension_headers_are_looked_through() {
        let mut tagged = tcp_frame(1, 2, ACK, 3);
        tagged.splice(12..12, [0x81, 0, 0, 5]);
        assert_eq!(parse(&tagged), parse(&tcp_frame(1, 2, ACK, 3)));
        let mut frame = vec![0; 12];
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, 60, 64]);
        frame.extend([1; 16]);
        frame.extend([2; 16]);
        frame.extend([UDP, 0, 0, 0, 0, 0, 0, 0]);
        frame.extend([0, 53, 0, 54, 0, 12, 0, 0, 9, 9, 9, 9]);
        let packet = parse(&frame).unwrap();
        assert_eq!((packet.payload_bytes, packet.tuple.protocol), (4, UDP));
        assert_eq!((packet.tuple.source.1, packet.tuple.destination.1), (53, 54));
        frame[20] = 44; // a later fragment
        frame[56] = 0x10;
        assert_eq!(parse(&frame).unwrap().tuple.source.1, 0);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0..3usize) {
            let mut bytes = bytes;
            if bytes.len() > 15 {
                bytes[12..15].copy_from_slice(&[[8, 0, 0x45], [0x86, 0xdd, 0x60], [0x81, 0, 0]][kind]);
            }
            if let Some(packet) = parse(&bytes) {
                prop_assert!(packet.payload_bytes <= u32::from(u16::MAX));
            }
        }

        #[test]
        fn a_frame_cut_anywhere_is_no_harm(length in 0..60usize) {
            prop_assert!(length >= 48 || parse(&tcp_frame(1, 2, ACK, 0)[..length]).is_none());
        }
    }
}
