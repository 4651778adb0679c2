//! Joins frames of a TCP flow that go to the host together into one superframe, as its own receive offload would (`net/ipv4/tcp_offload.c`,
//! `tcp_gro_receive`): one call for up to 64 KiB. Splitting it gives the same frames again.

use crate::FRAME_BYTES_MAX;
use crate::offload::{
    Layers, PROTOCOL_TCP, VNET_BYTES, VNET_NOTHING, VnetHeader, checksum_is_right, fold, pseudo_sum, sum,
};

const TCP_ACK: u8 = 0x10;
const TCP_PSH: u8 = 0x08;
/// Longest IP packet, bytes.
const PACKET_BYTES_MAX: usize = 65_535;

/// Frames that wait.
#[derive(Debug, Default)]
pub(crate) struct Joiner {
    /// The header for offloads, then the frame; payloads of others behind it.
    bytes: Vec<u8>,
    frames: usize,
    /// Bytes of all of them, with their headers.
    frame_bytes: usize,
    /// What may be joined to them, if anything.
    flow: Option<Flow>,
}

/// Where the headers of a frame are that others can be joined to.
#[derive(Clone, Copy, Debug)]
struct Flow {
    network: usize,
    transport: usize,
    /// Bytes of all headers.
    headers: usize,
    is_v4: bool,
    /// Bytes of payload in each frame but the last.
    size: usize,
    next_sequence: u32,
    next_id: u16,
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

impl Flow {
    /// None where a frame is to be left alone: not TCP, no payload, other flags than ACK and PSH, IP options, padding, or a
    /// wrong checksum, which nobody would see any more.
    fn of(frame: &[u8]) -> Option<Self> {
        let Layers {
            network,
            transport,
            protocol,
            is_v4,
        } = Layers::of(frame)?;
        let plain = if is_v4 { 20 } else { 40 };
        if protocol != PROTOCOL_TCP || transport - network != plain || frame.len() < transport + 20 {
            return None;
        }
        let told = match is_v4 {
            true => usize::from(u16_at(frame, network + 2)),
            false => 40 + usize::from(u16_at(frame, network + 4)),
        };
        let tcp_bytes = usize::from(frame[transport + 12] >> 4) * 4;
        let headers = transport + tcp_bytes;
        let is_whole = told == frame.len() - network && tcp_bytes >= 20 && headers < frame.len();
        let is_right = !is_v4 || fold(sum(&frame[network..transport])) == 0xffff;
        if !is_whole || frame[transport + 13] & !TCP_PSH != TCP_ACK || !is_right {
            return None;
        }
        let size = frame.len() - headers;
        checksum_is_right(frame, network, transport, is_v4).then_some(Self {
            network,
            transport,
            headers,
            is_v4,
            size,
            next_sequence: u32_at(frame, transport + 4).wrapping_add(size as u32),
            next_id: u16_at(frame, network + 4).wrapping_add(1),
        })
    }

    /// Whether `other` follows on `first`, of which it has all headers but lengths, numbers and checksums.
    fn is_followed_by(&self, first: &[u8], next: &[u8], other: &Self) -> bool {
        let same = |from: usize, to: usize| first[from..to] == next[from..to];
        let (ip, tcp) = (self.network, self.transport);
        let same_network = match self.is_v4 {
            true => same(ip, ip + 2) && same(ip + 6, ip + 10) && same(ip + 12, tcp),
            false => same(ip, ip + 4) && same(ip + 6, tcp),
        };
        (self.network, self.transport, self.headers, self.is_v4)
            == (other.network, other.transport, other.headers, other.is_v4)
            && same(0, ip)
            && same_network
            && (!self.is_v4 || u16_at(next, ip + 4) == self.next_id)
            && same(tcp, tcp + 4)
            && u32_at(next, tcp + 4) == self.next_sequence
            && same(tcp + 8, tcp + 13)
            && same(tcp + 14, tcp + 16)
            && same(tcp + 18, self.headers)
    }
}

impl Joiner {
    /// How many frames wait, and their bytes.
    pub fn waiting(&self) -> (usize, usize) {
        (self.frames, self.frame_bytes)
    }

    /// Adds a frame to those that wait, if it follows on them; also the first. False: they have to go before.
    pub fn add(&mut self, frame: &[u8]) -> bool {
        if self.frames == 0 {
            self.bytes.clear();
            self.bytes.extend(VNET_NOTHING);
            self.bytes.extend(frame);
            self.flow = Flow::of(frame).filter(|flow| frame[flow.transport + 13] & TCP_PSH == 0);
            (self.frames, self.frame_bytes) = (1, frame.len());
            return true;
        }
        let (Some(flow), Some(other)) = (self.flow, self.flow.and_then(|_| Flow::of(frame))) else {
            return false;
        };
        let longer = self.bytes.len() - VNET_BYTES + other.size;
        let fits = other.size <= flow.size && longer <= FRAME_BYTES_MAX && longer - flow.network <= PACKET_BYTES_MAX;
        if !fits || !flow.is_followed_by(&self.bytes[VNET_BYTES..], frame, &other) {
            return false;
        }
        self.bytes.extend(&frame[other.headers..]);
        let push = frame[other.transport + 13] & TCP_PSH;
        self.bytes[VNET_BYTES + flow.transport + 13] |= push;
        // A shorter one is the last, as is one that is pushed.
        let goes_on = other.size == flow.size && push == 0;
        self.finish_headers(&flow);
        self.flow = goes_on.then_some(Flow {
            next_sequence: other.next_sequence,
            next_id: other.next_id,
            ..flow
        });
        self.frames += 1;
        self.frame_bytes += frame.len();
        true
    }

    /// Makes one packet of the headers: its length, and checksums as the host expects them.
    fn finish_headers(&mut self, flow: &Flow) {
        let (header, frame) = self.bytes.split_at_mut(VNET_BYTES);
        header.copy_from_slice(&VnetHeader::of_tcp(flow.is_v4, flow.size, flow.transport, flow.headers));
        let (ip, packet_bytes) = (flow.network, frame.len() - flow.network);
        if flow.is_v4 {
            frame[ip + 2..ip + 4].copy_from_slice(&(packet_bytes as u16).to_be_bytes());
            frame[ip + 10..ip + 12].fill(0);
            let checksum = !fold(sum(&frame[ip..flow.transport]));
            frame[ip + 10..ip + 12].copy_from_slice(&checksum.to_ne_bytes());
        } else {
            frame[ip + 4..ip + 6].copy_from_slice(&((packet_bytes - 40) as u16).to_be_bytes());
        }
        let pseudo = fold(pseudo_sum(frame, ip, flow.transport, flow.is_v4, PROTOCOL_TCP));
        frame[flow.transport + 16..flow.transport + 18].copy_from_slice(&pseudo.to_ne_bytes());
    }

    /// What waits, with the header for offloads before it. Nothing waits any more.
    pub fn take(&mut self) -> &[u8] {
        (self.frames, self.frame_bytes, self.flow) = (0, 0, None);
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offload::prepare;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// Frames of a flow: a superframe, split.
    fn frames(v4: bool, options: usize, vlan: bool, payload: &[u8], size: u16, push: bool) -> Vec<Vec<u8>> {
        let mut frame = vec![2; 12];
        if vlan {
            frame.extend([0x81, 0, 0, 7]);
        }
        let (tcp_bytes, network) = (20 + 4 * options, frame.len() + 2);
        if v4 {
            frame.extend([
                8, 0, 0x45, 0, 0, 0, 0xff, 0xfe, 0x40, 0, 64, 6, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2,
            ]);
        } else {
            frame.extend([0x86, 0xdd, 0x60, 1, 2, 3, 0, 0, 6, 64]);
            frame.extend([0x20; 16]);
            frame.extend([0x21; 16]);
        }
        let transport = frame.len();
        assert_eq!(transport - network, if v4 { 20 } else { 40 });
        let flags = TCP_ACK | if push { TCP_PSH } else { 0 };
        frame.extend([
            1,
            2,
            3,
            4,
            0xff,
            0xff,
            0xff,
            0xf0,
            9,
            9,
            9,
            9,
            (tcp_bytes as u8 / 4) << 4,
            flags,
            1,
            0,
            0,
            0,
            0,
            0,
        ]);
        frame.extend(vec![1; 4 * options]);
        let header = VnetHeader::of_tcp(v4, size.into(), transport, frame.len());
        frame.extend(payload);
        split(&header, &frame)
    }

    fn split(header: &[u8; VNET_BYTES], frame: &[u8]) -> Vec<Vec<u8>> {
        let mut frame = frame.to_vec();
        let Some(mut segments) = prepare(VnetHeader::parse(header), &mut frame).unwrap() else {
            return vec![frame];
        };
        let (mut out, mut all) = (Vec::new(), Vec::new());
        while segments.next(&frame, &mut out) {
            all.push(out.clone());
        }
        all
    }

    /// What the host makes of frames that were sent, and in how many calls.
    fn sent(frames: &[Vec<u8>]) -> (Vec<Vec<u8>>, usize) {
        let (mut joiner, mut received, mut calls) = (Joiner::default(), Vec::new(), 0);
        let mut go = |joiner: &mut Joiner| {
            let (header, frame) = joiner.take().split_first_chunk().unwrap();
            received.extend(split(header, frame));
            calls += 1;
        };
        for frame in frames {
            if !joiner.add(frame) {
                go(&mut joiner);
                assert!(joiner.add(frame));
            }
        }
        go(&mut joiner);
        (received, calls)
    }

    proptest! {
        #[test]
        fn what_is_joined_comes_apart_as_it_was(
            (v4, vlan, push, options) in (any::<bool>(), any::<bool>(), any::<bool>(), 0..=10_usize),
            payload in vec(any::<u8>(), 1..30_000),
            size in 100_u16..3000,
        ) {
            let frames = frames(v4, options, vlan, &payload, size, push);
            let (received, calls) = sent(&frames);
            prop_assert_eq!(&received, &frames);
            prop_assert_eq!(calls, 1);
        }

        #[test]
        fn whatever_is_changed_or_missing_is_as_it_was(
            v4 in any::<bool>(),
            changes in vec((0..20_usize, 0..90_usize, 1_u8..), 0..4),
            gone in vec(0..20_usize, 0..3),
        ) {
            let mut frames = frames(v4, 3, false, &[5; 20_000], 1000, true);
            for (frame, at, by) in changes {
                frames[frame][at] ^= by;
            }
            for frame in gone {
                if frame < frames.len() {
                    frames.remove(frame);
                }
            }
            prop_assert_eq!(sent(&frames).0, frames);
        }
    }

    #[test]
    fn no_packet_gets_longer_than_ip_allows() {
        let long = frames(true, 0, false, &[1; 60_000], 1460, false);
        let more = long
            .iter()
            .cloned()
            .chain(frames(true, 0, false, &[1; 60_000], 1460, false));
        let (_, calls) = sent(&more.collect::<Vec<_>>());
        assert_eq!(calls, 2);
        let tiny: Vec<_> = (0..3).map(|_| vec![0; 14]).collect();
        assert_eq!(sent(&tiny), (tiny, 3));
    }
}
