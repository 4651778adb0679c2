//! What a network card would have done: splits superframes into frames of a wire and completes checksums.
//!
//! The host hands over up to 64 KiB of a TCP or UDP flow as one frame, with a header that says how to split it (`linux/virtio_net.h`,
//! as TAP and AF_PACKET sockets use it). That saves most of the cost per frame. The rules are those of `net/ipv4/tcp_offload.c` and
//! `udp_offload.c`.

use crate::{DropCause, FRAME_BYTES_MAX, FRAME_BYTES_MIN};

/// Bytes of the header before each frame.
pub(crate) const VNET_BYTES: usize = 10;
/// A header that asks for nothing: what is sent is whole.
pub(crate) const VNET_NOTHING: [u8; VNET_BYTES] = [0; VNET_BYTES];

const NEEDS_CSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
/// UDP fragmentation offload, which is not undone.
const GSO_UFO: u8 = 3;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
/// A flag of the type: CWR is set.
const GSO_ECN: u8 = 0x80;

const ETHERNET_BYTES: usize = 14;
const VLAN_BYTES: usize = 4;
pub(crate) const PROTOCOL_TCP: u8 = 6;
pub(crate) const PROTOCOL_UDP: u8 = 17;
const PROTOCOL_SCTP: u8 = 132;
/// Extension headers of IPv6 that may stand before TCP or UDP: hop-by-hop, routing, destination options.
const EXTENSIONS: [u8; 3] = [0, 43, 60];
const TCP_FIN: u8 = 0x01;
const TCP_PSH: u8 = 0x08;
const TCP_CWR: u8 = 0x80;

/// Why a frame cannot be made whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Its headers contradict each other or its length.
    Malformed,
    /// A kind of offload that is not undone here: inside a tunnel, or UDP fragmentation.
    Unsupported,
}

/// `struct virtio_net_hdr`, of which `hdr_len` is not needed: headers are read instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct VnetHeader {
    flags: u8,
    kind: u8,
    /// Bytes of payload in each frame.
    size: u16,
    csum_start: u16,
    csum_offset: u16,
}

impl VnetHeader {
    /// Reads it; numbers are in the order of the host.
    pub fn parse(bytes: &[u8; VNET_BYTES]) -> Self {
        let number = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        Self {
            flags: bytes[0],
            kind: bytes[1],
            size: number(4),
            csum_start: number(6),
            csum_offset: number(8),
        }
    }

    /// The bytes of the header of a superframe of TCP.
    pub fn of_tcp(is_v4: bool, size: usize, transport: usize, headers: usize) -> [u8; VNET_BYTES] {
        let kind = if is_v4 { GSO_TCPV4 } else { GSO_TCPV6 };
        let numbers = [headers, size, transport, 16].map(|number| (number as u16).to_ne_bytes());
        let mut bytes = [NEEDS_CSUM, kind, 0, 0, 0, 0, 0, 0, 0, 0];
        bytes[2..].copy_from_slice(numbers.as_flattened());
        bytes
    }

    /// So many bytes have been put in before the IP header.
    pub fn shifted(mut self, bytes: u16) -> Self {
        self.csum_start = self.csum_start.saturating_add(bytes);
        self
    }
}

/// Makes `frame` whole: completes its checksum, or says how to split it.
pub(crate) fn prepare(header: VnetHeader, frame: &mut [u8]) -> Result<Option<Segments>, Fault> {
    if header.kind == GSO_NONE {
        if header.flags & NEEDS_CSUM != 0 {
            complete(header, frame)?;
        }
        return Ok(None);
    }
    Segments::plan(header, frame).map(Some)
}

/// As [`prepare`], for a frame of any length, with the cause to count where it is dropped.
pub(crate) fn whole(header: VnetHeader, frame: &mut [u8]) -> Result<Option<Segments>, DropCause> {
    match frame.len() {
        ..FRAME_BYTES_MIN => return Err(DropCause::InMalformed),
        FRAME_BYTES_MIN..=FRAME_BYTES_MAX => {}
        _ => return Err(DropCause::InTooLong),
    }
    prepare(header, frame).map_err(|fault| match fault {
        Fault::Malformed => DropCause::InMalformed,
        Fault::Unsupported => DropCause::InUnsupported,
    })
}

/// For frames that a kernel of the same host has put into a tunnel without finishing them, and without saying so: one whose checksum covers
/// the pseudo header only. It is a superframe if its packet is longer than `mtu`. None: it is finished. (One that is finished and looks
/// like this comes out as it was: completing it gives the same checksum.)
pub(crate) fn unfinished(frame: &[u8], mtu: usize) -> Option<VnetHeader> {
    let layers = Layers::of(frame)?;
    let (kind, field) = match (layers.protocol, layers.is_v4) {
        (PROTOCOL_TCP, true) => (GSO_TCPV4, 16),
        (PROTOCOL_TCP, false) => (GSO_TCPV6, 16),
        // How such a superframe is to be split nobody knows.
        (PROTOCOL_UDP, _) => (GSO_UFO, 6),
        _ => return None,
    };
    let transport = &frame[layers.transport..];
    let found = transport.get(field..field + 2)?;
    u16::try_from(transport.len()).ok()?;
    let pseudo = pseudo_sum(frame, layers.network, layers.transport, layers.is_v4, layers.protocol);
    if found != fold(pseudo).to_ne_bytes() {
        return None;
    }
    let is_super = frame.len() - layers.network > mtu;
    let bytes = if field == 16 {
        usize::from(transport[12] >> 4) * 4
    } else {
        8
    };
    let headers = layers.transport - layers.network + bytes;
    Some(VnetHeader {
        flags: NEEDS_CSUM,
        kind: if is_super { kind } else { GSO_NONE },
        size: mtu.saturating_sub(headers) as u16,
        csum_start: layers.transport as u16,
        csum_offset: field as u16,
    })
}

/// Where the headers of a frame begin.
pub(crate) struct Layers {
    pub network: usize,
    pub transport: usize,
    pub protocol: u8,
    pub is_v4: bool,
}

impl Layers {
    pub fn of(frame: &[u8]) -> Option<Self> {
        let mut network = ETHERNET_BYTES;
        while let [0x81, 0x00] | [0x88, 0xa8] = frame.get(network - 2..network)? {
            network += VLAN_BYTES;
        }
        match frame.get(network - 2..network)? {
            [0x08, 0x00] => Self::of_v4(frame, network),
            [0x86, 0xdd] => Self::of_v6(frame, network),
            _ => None,
        }
    }

    fn of_v4(frame: &[u8], network: usize) -> Option<Self> {
        let header = frame.get(network..network + 20)?;
        let bytes = usize::from(header[0] & 0x0f) * 4;
        let is_fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0;
        (header[0] >> 4 == 4 && bytes >= 20 && !is_fragment && frame.len() >= network + bytes).then_some(Self {
            network,
            transport: network + bytes,
            protocol: header[9],
            is_v4: true,
        })
    }

    fn of_v6(frame: &[u8], network: usize) -> Option<Self> {
        let header = frame.get(network..network + 40)?;
        if header[0] >> 4 != 6 {
            return None;
        }
        let (mut protocol, mut transport) = (header[6], network + 40);
        while EXTENSIONS.contains(&protocol) {
            let extension = frame.get(transport..transport + 2)?;
            protocol = extension[0];
            transport += 8 + usize::from(extension[1]) * 8;
        }
        (frame.len() >= transport).then_some(Self {
            network,
            transport,
            protocol,
            is_v4: false,
        })
    }
}

/// How a superframe is split, and how far that has got.
#[derive(Clone, Debug)]
pub(crate) struct Segments {
    network: usize,
    transport: usize,
    /// Bytes of all headers.
    headers: usize,
    is_v4: bool,
    is_tcp: bool,
    /// Bytes of payload in each frame.
    size: usize,
    /// Bytes of payload that have gone.
    done: usize,
    count: u16,
}

impl Segments {
    fn plan(header: VnetHeader, frame: &[u8]) -> Result<Self, Fault> {
        let kind = header.kind & !GSO_ECN;
        if !matches!(kind, GSO_TCPV4 | GSO_TCPV6 | GSO_UDP_L4) {
            return Err(Fault::Unsupported);
        }
        let layers = Layers::of(frame).ok_or(Fault::Malformed)?;
        // The checksum is the innermost header's: another one than ours is in a tunnel.
        if header.flags & NEEDS_CSUM != 0 && usize::from(header.csum_start) != layers.transport {
            return Err(Fault::Unsupported);
        }
        let (protocol, least) = if kind == GSO_UDP_L4 {
            (PROTOCOL_UDP, 8)
        } else {
            (PROTOCOL_TCP, 20)
        };
        if layers.protocol != protocol {
            return Err(Fault::Unsupported);
        }
        let transport = frame.get(layers.transport..).unwrap_or_default();
        if transport.len() < least || header.size == 0 || (kind == GSO_TCPV4 && !layers.is_v4) {
            return Err(Fault::Malformed);
        }
        let is_tcp = protocol == PROTOCOL_TCP;
        let bytes = if is_tcp { usize::from(transport[12] >> 4) * 4 } else { 8 };
        if bytes < least || bytes > transport.len() {
            return Err(Fault::Malformed);
        }
        Ok(Self {
            network: layers.network,
            transport: layers.transport,
            headers: layers.transport + bytes,
            is_v4: layers.is_v4,
            is_tcp,
            size: header.size.into(),
            done: 0,
            count: 0,
        })
    }

    /// Puts the next frame of the superframe into `out`; false if there is none.
    pub fn next(&mut self, frame: &[u8], out: &mut Vec<u8>) -> bool {
        let payload = &frame[self.headers + self.done..];
        // One without payload is a frame as well.
        if payload.is_empty() && self.count > 0 {
            return false;
        }
        let bytes = payload.len().min(self.size);
        let is_last = bytes == payload.len();
        out.clear();
        out.extend_from_slice(&frame[..self.headers]);
        out.extend_from_slice(&payload[..bytes]);
        self.finish_network(out);
        if self.is_tcp {
            self.finish_tcp(out, is_last);
        } else {
            let length = (out.len() - self.transport) as u16;
            out[self.transport + 4..][..2].copy_from_slice(&length.to_be_bytes());
            let sum = self.transport_sum(out, PROTOCOL_UDP, 6);
            // Zero means "none" in UDP.
            let sum = if sum == 0 { 0xffff } else { sum };
            out[self.transport + 6..][..2].copy_from_slice(&sum.to_ne_bytes());
        }
        self.done += bytes;
        self.count = self.count.wrapping_add(1);
        // A count that has come round must not look like the first.
        self.count = self.count.max(1);
        true
    }

    fn finish_network(&self, out: &mut [u8]) {
        let ip = self.network;
        let length = out.len() - ip;
        if !self.is_v4 {
            let length = (length - 40) as u16;
            out[ip + 4..ip + 6].copy_from_slice(&length.to_be_bytes());
            return;
        }
        out[ip + 2..ip + 4].copy_from_slice(&(length as u16).to_be_bytes());
        let id = u16::from_be_bytes([out[ip + 4], out[ip + 5]]).wrapping_add(self.count);
        out[ip + 4..ip + 6].copy_from_slice(&id.to_be_bytes());
        out[ip + 10..ip + 12].fill(0);
        let sum = !fold(sum(&out[ip..self.transport]));
        out[ip + 10..ip + 12].copy_from_slice(&sum.to_ne_bytes());
    }

    fn finish_tcp(&self, out: &mut [u8], is_last: bool) {
        let tcp = self.transport;
        let first = u32::from_be_bytes([out[tcp + 4], out[tcp + 5], out[tcp + 6], out[tcp + 7]]);
        let sequence = first.wrapping_add(self.done as u32);
        out[tcp + 4..tcp + 8].copy_from_slice(&sequence.to_be_bytes());
        if !is_last {
            out[tcp + 13] &= !(TCP_FIN | TCP_PSH);
        }
        if self.count > 0 {
            out[tcp + 13] &= !TCP_CWR;
        }
        let sum = self.transport_sum(out, PROTOCOL_TCP, 16);
        out[tcp + 16..tcp + 18].copy_from_slice(&sum.to_ne_bytes());
    }

    /// The checksum, in the order of memory, whose field is at `field` of the transport header.
    fn transport_sum(&self, out: &mut [u8], protocol: u8, field: usize) -> u16 {
        out[self.transport + field..][..2].fill(0);
        let pseudo = pseudo_sum(out, self.network, self.transport, self.is_v4, protocol);
        !fold(pseudo + sum(&out[self.transport..]))
    }
}

/// Completes a checksum that so far covers the pseudo header only (`skb_checksum_help`).
fn complete(header: VnetHeader, frame: &mut [u8]) -> Result<(), Fault> {
    let start = usize::from(header.csum_start);
    let field = start + usize::from(header.csum_offset);
    if field + 2 > frame.len() {
        return Err(Fault::Malformed);
    }
    if header.csum_offset == 8 && Layers::of(frame).is_some_and(|layers| layers.protocol == PROTOCOL_SCTP) {
        return complete_sctp(start, field, frame);
    }
    let sum = !fold(sum(&frame[start..]));
    let sum = if sum == 0 { 0xffff } else { sum };
    frame[field..field + 2].copy_from_slice(&sum.to_ne_bytes());
    Ok(())
}

/// SCTP has another checksum (RFC 9260, section 6.8).
fn complete_sctp(start: usize, field: usize, frame: &mut [u8]) -> Result<(), Fault> {
    frame.get_mut(field..field + 4).ok_or(Fault::Malformed)?.fill(0);
    let crc = crc32c(&frame[start..]);
    frame[field..field + 4].copy_from_slice(&crc.to_le_bytes());
    Ok(())
}

/// The CRC of Castagnoli, bit by bit: SCTP that meets an offload is rare.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
    !bytes
        .iter()
        .fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

/// The sum of the pseudo header of the packet in `frame`.
pub(crate) fn pseudo_sum(frame: &[u8], network: usize, transport: usize, is_v4: bool, protocol: u8) -> u64 {
    let addresses = &frame[network..][if is_v4 { 12..20 } else { 8..40 }];
    let length = (frame.len() - transport) as u16;
    sum(addresses) + u64::from(u16::from_ne_bytes([0, protocol])) + u64::from(length.to_be())
}

/// Whether the TCP checksum of the packet in `frame` is right.
pub(crate) fn checksum_is_right(frame: &[u8], network: usize, transport: usize, is_v4: bool) -> bool {
    fold(pseudo_sum(frame, network, transport, is_v4, PROTOCOL_TCP) + sum(&frame[transport..])) == 0xffff
}

/// Sum of 16-bit words in the order of memory, to be folded (RFC 1071: the order does not matter).
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    let total: u64 = words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
    total + u64::from(u32::from_ne_bytes(last))
}

/// The sum as 16 bits, with the carries added in.
pub(crate) fn fold(mut sum: u64) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// The checksum, computed in the plainest way.
    fn plain(bytes: &[u8]) -> u16 {
        let mut sum = 0_u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) * 256 + u32::from(pair.get(1).copied().unwrap_or(0));
            sum = sum % 0x1_0000 + sum / 0x1_0000;
        }
        !(sum as u16)
    }

    #[derive(Debug)]
    struct Flow {
        v4: bool,
        tcp: bool,
        vlans: usize,
        options: usize,
        payload: Vec<u8>,
        id: u16,
        sequence: u32,
    }

    impl Flow {
        fn network(&self) -> usize {
            14 + 4 * self.vlans
        }

        fn transport(&self) -> usize {
            self.network() + if self.v4 { 20 } else { 40 }
        }

        fn headers(&self) -> usize {
            self.transport() + if self.tcp { 20 + 4 * self.options } else { 8 }
        }

        fn frame(&self) -> Vec<u8> {
            let mut frame = vec![2; 12];
            for tag in 0..self.vlans {
                frame.extend([0x81, 0, 0, tag as u8]);
            }
            let transport = if self.tcp { 20 + 4 * self.options } else { 8 } + self.payload.len();
            let protocol = if self.tcp { PROTOCOL_TCP } else { PROTOCOL_UDP };
            if self.v4 {
                frame.extend([8, 0, 0x45, 0]);
                frame.extend(((transport + 20) as u16).to_be_bytes());
                frame.extend(self.id.to_be_bytes());
                frame.extend([0x40, 0, 64, protocol, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
            } else {
                frame.extend([0x86, 0xdd, 0x60, 1, 2, 3]);
                frame.extend((transport as u16).to_be_bytes());
                frame.extend([protocol, 64]);
                frame.extend([0x20; 16]);
                frame.extend([0x21; 16]);
            }
            frame.extend([0x12, 0x34, 0x56, 0x78]);
            if self.tcp {
                frame.extend(self.sequence.to_be_bytes());
                frame.extend([
                    9,
                    9,
                    9,
                    9,
                    (5 + self.options as u8) << 4,
                    0x10 | TCP_FIN | TCP_PSH | TCP_CWR,
                ]);
                frame.extend([1, 0, 0xaa, 0xaa, 0, 0]);
                frame.extend(vec![1; 4 * self.options]);
            } else {
                frame.extend(((8 + self.payload.len()) as u16).to_be_bytes());
                frame.extend([0xaa, 0xaa]);
            }
            frame.extend(&self.payload);
            frame
        }

        /// The frame with what a host leaves in the checksum field: the folded sum of the pseudo header.
        fn unfinished(&self) -> Vec<u8> {
            let mut frame = self.frame();
            let addresses = self.network() + if self.v4 { 12 } else { 8 };
            let mut bytes = frame[addresses..self.transport()].to_vec();
            bytes.extend([0, if self.tcp { PROTOCOL_TCP } else { PROTOCOL_UDP }]);
            bytes.extend(((frame.len() - self.transport()) as u16).to_be_bytes());
            let field = self.transport() + if self.tcp { 16 } else { 6 };
            frame[field..field + 2].copy_from_slice(&(!plain(&bytes)).to_be_bytes());
            frame
        }

        fn header(&self, size: u16) -> VnetHeader {
            let kind = match (self.tcp, self.v4) {
                (false, _) => GSO_UDP_L4,
                (true, true) => GSO_TCPV4 | GSO_ECN,
                (true, false) => GSO_TCPV6,
            };
            VnetHeader {
                flags: NEEDS_CSUM,
                kind,
                size,
                csum_start: self.transport() as u16,
                csum_offset: if self.tcp { 16 } else { 6 },
            }
        }

        /// The checksum over pseudo header and segment, which is 0 if it is right.
        fn check(&self, segment: &[u8]) -> u16 {
            let (ip, transport) = (self.network(), self.transport());
            let addresses = if self.v4 { ip + 12..ip + 20 } else { ip + 8..ip + 40 };
            let mut bytes = segment[addresses].to_vec();
            bytes.extend([0, if self.tcp { PROTOCOL_TCP } else { PROTOCOL_UDP }]);
            bytes.extend(((segment.len() - transport) as u16).to_be_bytes());
            bytes.extend(&segment[transport..]);
            plain(&bytes)
        }
    }

    fn flows() -> impl Strategy<Value = Flow> {
        let payload = vec(any::<u8>(), 0..9000);
        let rest = (0..3_usize, 0..=10_usize, payload, any::<u16>(), any::<u32>());
        (any::<bool>(), any::<bool>(), rest).prop_map(|(v4, tcp, (vlans, options, payload, id, sequence))| Flow {
            v4,
            tcp,
            vlans,
            options,
            payload,
            id,
            sequence,
        })
    }

    fn split(header: VnetHeader, mut frame: Vec<u8>) -> Vec<Vec<u8>> {
        let mut segments = prepare(header, &mut frame).unwrap().unwrap();
        let (mut out, mut all) = (Vec::new(), Vec::new());
        while segments.next(&frame, &mut out) {
            all.push(out.clone());
        }
        all
    }

    proptest! {
        #[test]
        fn segments_are_the_superframe_cut_up(flow in flows(), size in 1_u16..3000) {
            let frame = flow.frame();
            let segments = split(flow.header(size), frame.clone());
            let (ip, transport, headers) = (flow.network(), flow.transport(), flow.headers());
            let payload: Vec<u8> = segments.iter().flat_map(|segment| segment[headers..].to_vec()).collect();
            prop_assert_eq!(&payload, &flow.payload);
            prop_assert_eq!(segments.len(), flow.payload.len().div_ceil(size.into()).max(1));
            let mut done = 0;
            for (number, segment) in segments.iter().enumerate() {
                let (first, last) = (number == 0, number + 1 == segments.len());
                let length = segment.len() - headers;
                prop_assert!(length == usize::from(size) || last);
                prop_assert_eq!(flow.check(segment), 0);
                prop_assert_eq!(&segment[..ip], &frame[..ip]);
                let told = |at: usize| u16::from_be_bytes([segment[at], segment[at + 1]]);
                if flow.v4 {
                    prop_assert_eq!(usize::from(told(ip + 2)), segment.len() - ip);
                    prop_assert_eq!(told(ip + 4), flow.id.wrapping_add(number as u16));
                    prop_assert_eq!(plain(&segment[ip..transport]), 0);
                } else {
                    prop_assert_eq!(usize::from(told(ip + 4)), segment.len() - transport);
                }
                if flow.tcp {
                    let sequence = u32::from_be_bytes(segment[transport + 4..transport + 8].try_into().unwrap());
                    prop_assert_eq!(sequence, flow.sequence.wrapping_add(done));
                    let flags = segment[transport + 13];
                    prop_assert_eq!(flags & TCP_CWR != 0, first);
                    prop_assert_eq!(flags & (TCP_FIN | TCP_PSH) == TCP_FIN | TCP_PSH, last);
                } else {
                    prop_assert_eq!(usize::from(told(transport + 4)), segment.len() - transport);
                    prop_assert_ne!(told(transport + 6), 0);
                }
                done += length as u32;
            }
        }

        #[test]
        fn checksums_are_completed(flow in flows()) {
            let mut frame = flow.unfinished();
            let header = VnetHeader { kind: GSO_NONE, ..flow.header(0) };
            prop_assert!(prepare(header, &mut frame).unwrap().is_none());
            prop_assert_eq!(flow.check(&frame), 0);
        }

        #[test]
        fn what_a_tunnel_left_unfinished_is_noticed(flow in flows(), mtu in 500_usize..3000) {
            let mut frame = flow.unfinished();
            let header = unfinished(&frame, mtu).unwrap();
            let packet = frame.len() - flow.network();
            if packet <= mtu {
                prop_assert!(prepare(header, &mut frame).unwrap().is_none());
                prop_assert_eq!(flow.check(&frame), 0);
                let again = unfinished(&frame, mtu).map(|header| prepare(header, &mut frame.clone()).map(|_| ()));
                prop_assert!(again.is_none() || flow.check(&frame) == 0);
            } else if flow.tcp {
                let segments = split(header, frame);
                prop_assert_eq!(segments[0].len() - flow.network(), mtu);
                prop_assert!(segments.iter().all(|segment| flow.check(segment) == 0));
            } else {
                prop_assert_eq!(prepare(header, &mut frame).unwrap_err(), Fault::Unsupported);
            }
        }

        #[test]
        fn any_bytes_are_split_or_refused(header in any::<[u8; VNET_BYTES]>(), mut frame in vec(any::<u8>(), 0..3000), ip in 0..4_usize) {
            if frame.len() > 30 {
                frame[12..14].copy_from_slice(&[[8, 0], [0x86, 0xdd], [0x81, 0], [1, 2]][ip]);
                frame[14] = [0x45, 0x60, 0, 0][ip];
            }
            let mut header = VnetHeader::parse(&header);
            header.kind %= 6;
            if let Ok(Some(mut segments)) = prepare(header, &mut frame) {
                let (mut out, mut bytes) = (Vec::new(), 0);
                let headers = segments.headers;
                while segments.next(&frame, &mut out) {
                    bytes += out.len() - headers;
                }
                prop_assert_eq!(bytes, frame.len() - headers);
            }
        }
    }

    #[test]
    fn tunnels_and_ufo_are_refused_as_such() {
        let flow = Flow {
            v4: true,
            tcp: true,
            vlans: 0,
            options: 0,
            payload: vec![1; 3000],
            id: 1,
            sequence: 1,
        };
        let mut header = flow.header(1000);
        header.csum_start += 50;
        assert_eq!(prepare(header, &mut flow.frame()).unwrap_err(), Fault::Unsupported);
        let ufo = VnetHeader {
            kind: GSO_UFO,
            ..flow.header(1000)
        };
        assert_eq!(prepare(ufo, &mut flow.frame()).unwrap_err(), Fault::Unsupported);
        let none = flow.header(0);
        assert_eq!(prepare(none, &mut flow.frame()).unwrap_err(), Fault::Malformed);
    }

    #[test]
    fn sctp_gets_its_own_checksum() {
        // RFC 3720, B.4: 32 bytes of zeros.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        let mut frame = vec![0; 12];
        frame.extend([
            8,
            0,
            0x45,
            0,
            0,
            36,
            0,
            0,
            0,
            0,
            64,
            PROTOCOL_SCTP,
            0,
            0,
            1,
            1,
            1,
            1,
            2,
            2,
            2,
            2,
        ]);
        frame.extend([7; 16]);
        let header = VnetHeader {
            flags: NEEDS_CSUM,
            kind: GSO_NONE,
            size: 0,
            csum_start: 34,
            csum_offset: 8,
        };
        prepare(header, &mut frame).unwrap();
        let mut expected = frame[34..].to_vec();
        expected[8..12].fill(0);
        assert_eq!(frame[42..46], crc32c(&expected).to_le_bytes());
    }
}
