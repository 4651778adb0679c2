//! Packets and captures made for tests.
#![allow(dead_code)]

use etherparse::{PacketBuilder, TcpHeader};
use std::net::IpAddr;
use windtunnel_traces::{Collector, Comparison, Field, Tolerance, Trace, compare};

pub const FIN: u16 = 1;
pub const SYN: u16 = 2;
pub const PSH: u16 = 8;
pub const ACK: u16 = 16;

/// A segment in relative numbers.
#[derive(Debug, Clone)]
pub struct Segment {
    pub time_ns: u64,
    pub from_client: bool,
    pub seq: u32,
    pub ack: u32,
    pub flags: u16,
    pub window: u16,
    pub payload: Vec<u8>,
    pub sack: Vec<(u32, u32)>,
    /// Ticks since the side's first.
    pub stamp: u32,
    pub echo: u32,
}

/// What relative numbers are relative to.
#[derive(Debug, Clone)]
pub struct Origin {
    pub client: IpAddr,
    pub server: IpAddr,
    pub client_port: u16,
    pub server_port: u16,
    pub isn: [u32; 2],
    pub stamps: [u32; 2],
    pub start_ns: u64,
    pub shift: [u8; 2],
}

impl Default for Origin {
    fn default() -> Self {
        Self {
            client: "10.0.0.1".parse().unwrap(),
            server: "10.0.0.2".parse().unwrap(),
            client_port: 40_000,
            server_port: 80,
            isn: [0, 0],
            stamps: [1, 1],
            start_ns: 1_700_000_000_000_000_000,
            shift: [7, 7],
        }
    }
}

/// A connection in which the client sends so many segments of 1000 bytes, 1 ms apart, each acknowledged after 10 ms.
pub fn transfer(segments: u32) -> Vec<Segment> {
    let one = |time_ms: u64, from_client, seq, ack, flags, length| Segment {
        time_ns: time_ms * 1_000_000,
        from_client,
        seq,
        ack,
        flags,
        window: 512,
        payload: vec![seq as u8; length],
        sack: Vec::new(),
        stamp: time_ms as u32,
        echo: time_ms as u32,
    };
    let mut all = vec![
        one(0, true, 0, 0, SYN, 0),
        one(10, false, 0, 1, SYN | ACK, 0),
        one(10, true, 1, 1, ACK, 0),
    ];
    for index in 0..segments {
        let time_ms = 11 + u64::from(index);
        all.push(one(time_ms, true, 1 + index * 1000, 1, ACK | PSH, 1000));
        all.push(one(time_ms + 10, false, 1, 1001 + index * 1000, ACK, 0));
    }
    let (end_ms, end) = (30 + u64::from(segments), 1 + segments * 1000);
    all.push(one(end_ms, true, end, 1, ACK | FIN, 0));
    all.push(one(end_ms + 10, false, 1, end + 1, ACK | FIN, 0));
    all.push(one(end_ms + 10, true, end + 1, 2, ACK, 0));
    all.sort_by_key(|segment| segment.time_ns);
    all
}

fn options(segment: &Segment, origin: &Origin) -> Vec<u8> {
    let own = usize::from(!segment.from_client);
    let peer = 1 - own;
    let mut bytes = Vec::new();
    if segment.flags & SYN != 0 {
        bytes.extend([2, 4, 5, 180, 4, 2, 1, 3, 3, origin.shift[own], 1, 1]);
    }
    let first = segment.flags & (SYN | ACK) == SYN;
    let echo = if first {
        0
    } else {
        segment.echo.wrapping_add(origin.stamps[peer])
    };
    bytes.extend([1, 1, 8, 10]);
    bytes.extend(segment.stamp.wrapping_add(origin.stamps[own]).to_be_bytes());
    bytes.extend(echo.to_be_bytes());
    if !segment.sack.is_empty() {
        bytes.extend([1, 1, 5, 2 + 8 * segment.sack.len() as u8]);
        for edge in segment.sack.iter().flat_map(|(first, after)| [first, after]) {
            bytes.extend(edge.wrapping_add(origin.isn[peer]).to_be_bytes());
        }
    }
    bytes
}

/// The packet from IP's header on.
pub fn packet(segment: &Segment, origin: &Origin) -> Vec<u8> {
    let own = usize::from(!segment.from_client);
    let ends = [(origin.client, origin.client_port), (origin.server, origin.server_port)];
    let ((from, from_port), (to, to_port)) = (ends[own], ends[1 - own]);
    let mut tcp = TcpHeader::new(
        from_port,
        to_port,
        segment.seq.wrapping_add(origin.isn[own]),
        segment.window,
    );
    tcp.syn = segment.flags & SYN != 0;
    tcp.fin = segment.flags & FIN != 0;
    tcp.psh = segment.flags & PSH != 0;
    tcp.ack = segment.flags & ACK != 0;
    if tcp.ack {
        tcp.acknowledgment_number = segment.ack.wrapping_add(origin.isn[1 - own]);
    }
    tcp.set_options_raw(&options(segment, origin)).unwrap();
    let builder = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => PacketBuilder::ipv4(from.octets(), to.octets(), 64),
        (IpAddr::V6(from), IpAddr::V6(to)) => PacketBuilder::ipv6(from.octets(), to.octets(), 64),
        _ => panic!("one family"),
    }
    .tcp_header(tcp);
    let mut bytes = Vec::new();
    builder.write(&mut bytes, &segment.payload).unwrap();
    bytes
}

/// Times and packets of segments.
pub fn packets(segments: &[Segment], origin: &Origin) -> Vec<(u64, Vec<u8>)> {
    let all = segments.iter();
    all.map(|segment| (origin.start_ns + segment.time_ns, packet(segment, origin)))
        .collect()
}

/// How a capture is written.
#[derive(Debug, Clone, Copy)]
pub struct Format {
    pub big: bool,
    pub nanoseconds: bool,
    pub link: u32,
    pub snap: usize,
}

pub const PLAIN: Format = Format {
    big: false,
    nanoseconds: true,
    link: 1,
    snap: 262_144,
};

fn u16_in(big: bool, value: u16) -> [u8; 2] {
    if big { value.to_be_bytes() } else { value.to_le_bytes() }
}

fn u32_in(big: bool, value: u32) -> [u8; 4] {
    if big { value.to_be_bytes() } else { value.to_le_bytes() }
}

/// The frame around a packet.
pub fn framed(link: u32, ip: &[u8]) -> Vec<u8> {
    let kind: [u8; 2] = if ip[0] >> 4 == 4 { [8, 0] } else { [0x86, 0xdd] };
    let mut bytes = match link {
        1 => [&[2; 12][..], &kind].concat(),
        // With a tag of a virtual network.
        1001 => [&[2; 12][..], &[0x81, 0, 0, 5], &kind].concat(),
        113 => [&[0, 0, 0, 1, 0, 6, 2, 2, 2, 2, 2, 2, 0, 0][..], &kind].concat(),
        276 => [&kind[..], &[0, 0, 0, 0, 0, 3, 0, 1, 0, 6, 2, 2, 2, 2, 2, 2, 0, 0]].concat(),
        101 => Vec::new(),
        0 => vec![if ip[0] >> 4 == 4 { 2 } else { 10 }, 0, 0, 0],
        _ => panic!("no such link"),
    };
    bytes.extend(ip);
    bytes
}

/// A pcap file.
pub fn pcap(packets: &[(u64, Vec<u8>)], format: Format) -> Vec<u8> {
    let Format {
        big,
        nanoseconds,
        link,
        snap,
    } = format;
    let magic: u32 = if nanoseconds { 0xa1b2_3c4d } else { 0xa1b2_c3d4 };
    let mut file = Vec::new();
    file.extend(u32_in(big, magic));
    file.extend(u16_in(big, 2));
    file.extend(u16_in(big, 4));
    file.extend([0; 8]);
    file.extend(u32_in(big, snap as u32));
    file.extend(u32_in(big, link % 1000));
    for (time_ns, ip) in packets {
        let frame = framed(link, ip);
        let kept = frame.len().min(snap);
        let fraction = time_ns % 1_000_000_000 / if nanoseconds { 1 } else { 1000 };
        for field in [
            (time_ns / 1_000_000_000) as u32,
            fraction as u32,
            kept as u32,
            frame.len() as u32,
        ] {
            file.extend(u32_in(big, field));
        }
        file.extend(&frame[..kept]);
    }
    file
}

/// A pcapng file of one interface; without a resolution, microseconds.
pub fn pcapng(packets: &[(u64, Vec<u8>)], big: bool, nanoseconds: bool) -> Vec<u8> {
    let block = |kind: u32, body: &[u8]| {
        let length = u32_in(big, body.len() as u32 + 12);
        [&u32_in(big, kind)[..], &length, body, &length].concat()
    };
    let section = [
        &u32_in(big, 0x1a2b_3c4d)[..],
        &u16_in(big, 1),
        &u16_in(big, 0),
        &[0xff; 8],
    ]
    .concat();
    let mut file = block(0x0a0d_0d0a, &section);
    let mut interface = [&u16_in(big, 1)[..], &[0, 0], &u32_in(big, 0)].concat();
    interface.extend([&u16_in(big, 2)[..], &u16_in(big, 4), b"eth7"].concat());
    if nanoseconds {
        interface.extend([&u16_in(big, 9)[..], &u16_in(big, 1), &[9, 0, 0, 0]].concat());
    }
    interface.extend([0; 4]);
    file.extend(block(1, &interface));
    for (time_ns, ip) in packets {
        let frame = framed(1, ip);
        let ticks = time_ns / if nanoseconds { 1 } else { 1000 };
        let mut body = Vec::new();
        for field in [
            0,
            (ticks >> 32) as u32,
            ticks as u32,
            frame.len() as u32,
            frame.len() as u32,
        ] {
            body.extend(u32_in(big, field));
        }
        body.extend(&frame);
        body.resize(body.len().next_multiple_of(4), 0);
        file.extend(block(6, &body));
    }
    file
}

/// The connections of a capture.
pub fn trace(file: &[u8]) -> Trace {
    let mut collector = Collector::default();
    collector.add("made", file).unwrap();
    collector.finish()
}

/// Of segments, by way of a capture.
pub fn trace_of(segments: &[Segment], origin: &Origin) -> Trace {
    trace(&pcap(&packets(segments, origin), PLAIN))
}

/// Compares, with fields to be ignored.
pub fn compared(a: &Trace, b: &Trace, ignored: &[Field]) -> Comparison {
    let tolerance = Tolerance {
        ignored: ignored.iter().copied().collect(),
        ..Tolerance::default()
    };
    compare(("a", a), ("b", b), None, &tolerance)
}
