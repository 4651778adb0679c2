//! Connections and flows of captures.
//!
//! What is kept: 56 bytes for each segment of TCP, each different set of options once per connection, and the round-trip times of pings.
//! A connection that several interfaces saw is kept as the one saw it that saw it first, which is the one of who opened it.

use crate::capture::{Capture, CaptureError};
use crate::options::{self, Options};
use crate::packet::{Body, Decoded, Packet, Tcp, decode, flag};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::net::SocketAddr;
use twox_hash::XxHash3_64;

/// As many as a header has room for, bytes.
const OPTIONS_MAX_BYTES: usize = 40;

/// A segment of TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// Hash of what was kept of the payload.
    pub payload_hash: u64,
    /// Sequence number as sent.
    pub seq: u32,
    /// Acknowledgement number as sent.
    pub ack: u32,
    /// Time stamps as sent; 0 if there are none.
    pub timestamps: (u32, u32),
    /// Bytes of payload that were sent.
    pub payload_length: u32,
    /// Bytes of payload that the capture has.
    pub payload_kept: u32,
    /// Which of the connection's sets of options.
    pub options: u32,
    /// Not scaled.
    pub window: u16,
    /// Urgent pointer.
    pub urgent: u16,
    /// Bits of [`flag`].
    pub flags: u16,
    /// DSCP and ECN.
    pub tos: u8,
    /// Who sent it.
    pub from_client: bool,
    /// Whether it has the time stamps option.
    pub stamped: bool,
}

impl Segment {
    /// Whether all of these flags are set.
    pub fn has(&self, flags: u16) -> bool {
        self.flags & flags == flags
    }

    /// What it takes of the sequence space: its payload, SYN and FIN.
    pub fn span(&self) -> u32 {
        let ends = u32::from(self.has(flag::SYN)) + u32::from(self.has(flag::FIN));
        self.payload_length.wrapping_add(ends)
    }
}

/// A connection of TCP.
#[derive(Debug, Clone)]
pub struct Connection {
    /// Who opened it.
    pub client: SocketAddr,
    /// Who was called.
    pub server: SocketAddr,
    /// Where it was captured.
    pub seen_at: String,
    /// In the order of the capture.
    pub segments: Vec<Segment>,
    /// What their `options` count.
    pub options: Vec<Options>,
}

/// Packets of UDP or ICMP between two addresses and ports.
#[derive(Debug, Clone)]
pub struct Flow {
    /// "udp", "echo" (of ping) or "icmp".
    pub protocol: &'static str,
    /// Who sent the first packet.
    pub client: SocketAddr,
    /// Whom to.
    pub server: SocketAddr,
    /// Where it was captured.
    pub seen_at: String,
    /// Time of the first packet, nanoseconds since 1970.
    pub first_ns: u64,
    /// Time of the last packet.
    pub last_ns: u64,
    /// Packets of the client, and of the server.
    pub packets: [u64; 2],
    /// Bytes of them, from IP's header on.
    pub bytes: [u64; 2],
    /// Round-trip times of pings in the order of their replies, nanoseconds.
    pub rtt_ns: Vec<u64>,
    asked: BTreeMap<u16, u64>,
}

/// How much was read, and what was left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Counts {
    /// Capture files.
    pub captures: u64,
    /// Frames in them.
    pub frames: u64,
    /// Frames of other protocols than TCP, UDP and ICMP.
    pub other_frames: u64,
    /// Fragments of IP, which are left out.
    pub fragments: u64,
    /// Frames whose headers are damaged, or were cut off by the capture; they are left out.
    pub unreadable_frames: u64,
}

/// Which addresses, ports and protocol: the smaller end first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    protocol: &'static str,
    ends: [SocketAddr; 2],
    /// Identifier of pings.
    id: u16,
}

/// Of one key, from one interface.
struct Slot {
    vantage: u32,
    first_ns: u64,
    found: Found,
}

enum Found {
    /// One after the other with the same ports.
    Connections(Vec<Open>),
    Flow(Box<Flow>),
}

/// A connection that is being read, with what is known of it so far.
struct Open {
    connection: Connection,
    known: HashMap<Box<[u8]>, u32>,
    client_isn: Option<u32>,
}

/// Connections and flows of captures, as they come together.
#[derive(Default)]
pub struct Collector {
    index: HashMap<Key, usize>,
    slots: Vec<Slot>,
    vantages: Vec<String>,
    counts: Counts,
    warnings: Vec<String>,
}

/// Connections and flows of captures.
#[derive(Debug)]
pub struct Trace {
    /// In the order of their first packets.
    pub connections: Vec<Connection>,
    /// Likewise.
    pub flows: Vec<Flow>,
    /// What was read.
    pub counts: Counts,
    /// What whoever uses the result should know.
    pub warnings: Vec<String>,
}

impl Collector {
    /// Reads a capture; `name` says which, for people.
    ///
    /// # Errors
    /// It cannot be read, or is damaged.
    pub fn add(&mut self, name: &str, input: impl Read) -> Result<(), CaptureError> {
        let mut capture = Capture::new(input)?;
        self.counts.captures += 1;
        let mut vantages: HashMap<(u32, u32), u32> = HashMap::new();
        let mut unnamed: Vec<(u32, u32)> = Vec::new();
        while let Some(frame) = capture.next_frame()? {
            self.counts.frames += 1;
            match decode(&frame) {
                Decoded::Other => self.counts.other_frames += 1,
                Decoded::Fragment => self.counts.fragments += 1,
                Decoded::Unreadable => self.counts.unreadable_frames += 1,
                Decoded::Packet(packet, host_interface) => {
                    let place = (frame.interface, host_interface);
                    let next = self.vantages.len() as u32;
                    let vantage = *vantages.entry(place).or_insert(next);
                    if vantage == next {
                        self.vantages.push(name.to_owned());
                        unnamed.push((frame.interface, vantage));
                    }
                    self.packet(&packet, frame.time_ns, vantage);
                }
            }
            // The name of an interface is known as long as its section lasts.
            for (interface, vantage) in unnamed.drain(..) {
                if let Some(own) = capture.interface_name(interface) {
                    self.vantages[vantage as usize] = format!("{own} in {name}");
                }
            }
        }
        if let Some(position) = capture.cut_at() {
            self.warnings.push(format!(
                "{name} ends within the record at byte {position}: that frame is left out"
            ));
        }
        if capture.timeless() > 0 {
            self.warnings.push(format!(
                "{name} has {} packets in blocks without a time: they are left out",
                capture.timeless()
            ));
        }
        Ok(())
    }

    fn packet(&mut self, packet: &Packet<'_>, time_ns: u64, vantage: u32) {
        let (protocol, id) = match packet.body {
            Body::Tcp(_) => ("tcp", 0),
            Body::Udp => ("udp", 0),
            Body::Echo(echo) => ("echo", echo.id),
            Body::Icmp => ("icmp", 0),
        };
        let mut ends = [packet.source, packet.destination];
        ends.sort();
        let slot = *self.index.entry(Key { protocol, ends, id }).or_insert_with(|| {
            self.slots.push(Slot::new(packet, protocol, time_ns, vantage));
            self.slots.len() - 1
        });
        let slot = &mut self.slots[slot];
        if slot.vantage != vantage {
            if time_ns >= slot.first_ns {
                return;
            }
            *slot = Slot::new(packet, protocol, time_ns, vantage);
        }
        match &mut slot.found {
            Found::Flow(flow) => flow.add(packet, time_ns),
            Found::Connections(all) => {
                if let Body::Tcp(tcp) = packet.body {
                    add_segment(all, packet, &tcp, time_ns);
                }
            }
        }
    }

    /// What came together.
    pub fn finish(self) -> Trace {
        let (mut connections, mut flows) = (Vec::new(), Vec::new());
        for slot in self.slots {
            let seen_at = &self.vantages[slot.vantage as usize];
            match slot.found {
                Found::Flow(flow) => flows.push(Flow {
                    seen_at: seen_at.clone(),
                    ..*flow
                }),
                Found::Connections(all) => connections.extend(all.into_iter().map(|open| Connection {
                    seen_at: seen_at.clone(),
                    ..open.connection
                })),
            }
        }
        let mut warnings = self.warnings;
        for (count, what) in [
            (
                self.counts.fragments,
                "fragments of IP are left out, they are not put together",
            ),
            (
                self.counts.unreadable_frames,
                "frames are left out: their headers are damaged, or the capture cut them off",
            ),
        ] {
            if count > 0 {
                warnings.push(format!("{count} {what}"));
            }
        }
        connections.sort_by_key(|one| (one.segments[0].time_ns, one.client, one.server));
        flows.sort_by_key(|one| (one.first_ns, one.client, one.server));
        Trace {
            connections,
            flows,
            counts: self.counts,
            warnings,
        }
    }
}

impl Slot {
    fn new(packet: &Packet<'_>, protocol: &'static str, time_ns: u64, vantage: u32) -> Self {
        let found = match packet.body {
            Body::Tcp(_) => Found::Connections(Vec::new()),
            _ => Found::Flow(Box::new(Flow::new(packet, protocol, time_ns))),
        };
        Self {
            vantage,
            first_ns: time_ns,
            found,
        }
    }
}

impl Flow {
    fn new(packet: &Packet<'_>, protocol: &'static str, time_ns: u64) -> Self {
        let reply = matches!(packet.body, Body::Echo(echo) if echo.reply);
        let (client, server) = if reply {
            (packet.destination, packet.source)
        } else {
            (packet.source, packet.destination)
        };
        Self {
            protocol,
            client,
            server,
            seen_at: String::new(),
            first_ns: time_ns,
            last_ns: time_ns,
            packets: [0; 2],
            bytes: [0; 2],
            rtt_ns: Vec::new(),
            asked: BTreeMap::new(),
        }
    }

    fn add(&mut self, packet: &Packet<'_>, time_ns: u64) {
        // A ping of oneself: requests and replies have the same addresses.
        let from_server = match packet.body {
            Body::Echo(echo) if packet.source == packet.destination => echo.reply,
            _ => packet.source != self.client,
        };
        let side = usize::from(from_server);
        self.packets[side] += 1;
        self.bytes[side] += u64::from(packet.length);
        self.last_ns = self.last_ns.max(time_ns);
        if let Body::Echo(echo) = packet.body {
            if !echo.reply {
                self.asked.insert(echo.sequence, time_ns);
            } else if let Some(asked_ns) = self.asked.remove(&echo.sequence) {
                self.rtt_ns.push(time_ns.saturating_sub(asked_ns));
            }
        }
    }
}

fn add_segment(all: &mut Vec<Open>, packet: &Packet<'_>, tcp: &Tcp<'_>, time_ns: u64) {
    let opens = tcp.flags & flag::SYN != 0 && tcp.flags & flag::ACK == 0;
    let anew = all.last().is_none_or(|last| {
        let from_client = packet.source == last.connection.client;
        // A SYN of another number is another connection; crossing ones open one together.
        opens && (from_client && last.client_isn != Some(tcp.seq) || !from_client && last.is_over())
    });
    if anew {
        all.push(Open::new(packet, tcp));
    }
    let open = all.last_mut().expect("it has just been put there");
    let connection = &mut open.connection;
    let from_client = packet.source == connection.client;
    if opens && from_client {
        open.client_isn = Some(tcp.seq);
    }
    let (bytes, timestamps) = without_timestamps(tcp.options);
    let bytes = &bytes[..tcp.options.len().min(OPTIONS_MAX_BYTES)];
    let options = &mut connection.options;
    let number = match open.known.get(bytes) {
        Some(number) => *number,
        None => {
            let number = options.len() as u32;
            options.push(options::parse(bytes));
            open.known.insert(bytes.into(), number);
            number
        }
    };
    connection.segments.push(Segment {
        time_ns,
        payload_hash: XxHash3_64::oneshot(tcp.payload),
        seq: tcp.seq,
        ack: tcp.ack,
        timestamps: timestamps.unwrap_or_default(),
        payload_length: tcp.payload_length,
        payload_kept: tcp.payload.len() as u32,
        options: number,
        window: tcp.window,
        urgent: tcp.urgent,
        flags: tcp.flags,
        tos: packet.tos,
        from_client,
        stamped: timestamps.is_some(),
    });
}

/// Options with zeros for time stamps, and these: sets of options are told apart without them.
fn without_timestamps(bytes: &[u8]) -> ([u8; OPTIONS_MAX_BYTES], Option<(u32, u32)>) {
    let mut kept = [0; OPTIONS_MAX_BYTES];
    let length = bytes.len().min(OPTIONS_MAX_BYTES);
    kept[..length].copy_from_slice(&bytes[..length]);
    let Some(at) = options::timestamps_at(&kept[..length]) else {
        return (kept, None);
    };
    let number = |at: usize| u32::from_be_bytes(kept[at..at + 4].try_into().expect("four bytes"));
    let values = (number(at), number(at + 4));
    kept[at..at + 8].fill(0);
    (kept, Some(values))
}

impl Open {
    fn new(packet: &Packet<'_>, tcp: &Tcp<'_>) -> Self {
        let (from, to) = (packet.source, packet.destination);
        let from_client = match (tcp.flags & flag::SYN != 0, tcp.flags & flag::ACK != 0) {
            (true, false) => true,
            (true, true) => false,
            // The start was not captured. Servers have the smaller ports.
            _ => from.port() >= to.port(),
        };
        let (client, server) = if from_client { (from, to) } else { (to, from) };
        Self {
            connection: Connection {
                client,
                server,
                seen_at: String::new(),
                segments: Vec::new(),
                options: Vec::new(),
            },
            known: HashMap::new(),
            client_isn: None,
        }
    }

    /// Whether a FIN or RST was seen.
    fn is_over(&self) -> bool {
        let segments = &self.connection.segments;
        segments
            .iter()
            .any(|segment| segment.flags & (flag::FIN | flag::RST) != 0)
    }
}

impl Connection {
    /// With both sides the other way round.
    pub fn turned(&self) -> Self {
        let mut turned = self.clone();
        (turned.client, turned.server) = (self.server, self.client);
        for segment in &mut turned.segments {
            segment.from_client = !segment.from_client;
        }
        turned
    }
}
