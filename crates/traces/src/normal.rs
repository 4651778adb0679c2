//! Connections without what depends on chance: sequence numbers count from the first SYN, time from the start, time stamps from the
//! first of each side; windows are scaled.

use crate::options::Options;
use crate::packet::flag;
use crate::trace::{Connection, Segment};
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// What of segments is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Field {
    /// Which side sent it.
    Sender,
    /// First byte, relative: the SYN is 0.
    Seq,
    /// Acknowledgement, relative.
    Ack,
    /// All flags but PSH.
    Flags,
    /// The PSH flag.
    Push,
    /// Advertised window, scaled, bytes.
    Window,
    /// Urgent pointer.
    Urgent,
    /// Bytes of payload.
    Length,
    /// Contents of the payload.
    Payload,
    /// Option of the largest segment.
    Mss,
    /// Option of the windows' shift.
    WindowScale,
    /// Option that permits SACK.
    SackPermitted,
    /// SACK blocks, relative.
    Sack,
    /// Option of time stamps, relative.
    Timestamps,
    /// All other options.
    Options,
    /// ECN bits of IP.
    Ecn,
    /// DSCP of IP.
    Dscp,
    /// Time since the connection's start; compared with a tolerance only.
    Time,
    /// In which order both sides' segments were captured.
    Order,
    /// The other trace has no such segment.
    Presence,
}

impl Field {
    /// All, in the order in which differences are told.
    pub const ALL: [Self; 20] = [
        Self::Sender,
        Self::Seq,
        Self::Ack,
        Self::Flags,
        Self::Push,
        Self::Window,
        Self::Urgent,
        Self::Length,
        Self::Payload,
        Self::Mss,
        Self::WindowScale,
        Self::SackPermitted,
        Self::Sack,
        Self::Timestamps,
        Self::Options,
        Self::Ecn,
        Self::Dscp,
        Self::Time,
        Self::Order,
        Self::Presence,
    ];

    /// As in the JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sender => "sender",
            Self::Seq => "seq",
            Self::Ack => "ack",
            Self::Flags => "flags",
            Self::Push => "push",
            Self::Window => "window",
            Self::Urgent => "urgent",
            Self::Length => "length",
            Self::Payload => "payload",
            Self::Mss => "mss",
            Self::WindowScale => "window-scale",
            Self::SackPermitted => "sack-permitted",
            Self::Sack => "sack",
            Self::Timestamps => "timestamps",
            Self::Options => "options",
            Self::Ecn => "ecn",
            Self::Dscp => "dscp",
            Self::Time => "time",
            Self::Order => "order",
            Self::Presence => "presence",
        }
    }
}

/// A set of fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fields(u32);

impl Fields {
    /// With one more.
    pub fn insert(&mut self, field: Field) {
        self.0 |= 1 << field as u32;
    }

    /// Whether it is in the set.
    pub fn has(self, field: Field) -> bool {
        self.0 & 1 << field as u32 != 0
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Without those of another set.
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Those in the set, in order.
    pub fn iter(self) -> impl Iterator<Item = Field> {
        Field::ALL.into_iter().filter(move |field| self.has(*field))
    }
}

impl FromIterator<Field> for Fields {
    fn from_iter<I: IntoIterator<Item = Field>>(fields: I) -> Self {
        let mut set = Self::default();
        fields.into_iter().for_each(|field| set.insert(field));
        set
    }
}

/// What counts as equal.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tolerance {
    /// Fields that may differ.
    pub ignored: Fields,
    /// Time stamps may differ by so many ticks.
    pub timestamp_ticks: u32,
    /// Times may differ by so much, nanoseconds; none: by anything.
    pub time_ns: Option<u64>,
}

/// A connection, and what its segments are relative to.
#[derive(Debug)]
pub struct Normal<'a> {
    /// It.
    pub connection: &'a Connection,
    /// Time of the first SYN, else of the first segment.
    pub start_ns: u64,
    /// Sequence numbers that count as 0: of the client, of the server.
    isn: [u32; 2],
    /// Time stamps that count as 0, likewise.
    first_timestamp: [Option<u32>; 2],
    /// Shifts of windows, likewise.
    shift: [u8; 2],
    mss: [Option<u16>; 2],
}

/// A segment in relative numbers.
#[derive(Debug, Clone, Copy)]
pub struct Relative<'a> {
    /// As captured.
    pub segment: &'a Segment,
    /// Time since the connection's start, nanoseconds.
    pub time_ns: i64,
    /// First byte: the SYN is 0.
    pub seq: u32,
    /// Acknowledgement; 0 without the flag.
    pub ack: u32,
    /// Window, bytes.
    pub window: u32,
    /// Time stamps relative to the first of each side; of 0, which is none, it is 0.
    pub timestamps: Option<(i32, i32)>,
    options: &'a Options,
    /// What SACK blocks are relative to.
    peer_isn: u32,
}

/// Which of two values is the side's.
pub fn side(from_client: bool) -> usize {
    usize::from(!from_client)
}

impl<'a> Normal<'a> {
    /// Finds what the segments are relative to.
    pub fn new(connection: &'a Connection) -> Self {
        let segments = &connection.segments;
        let first_syn = segments
            .iter()
            .find(|segment| segment.from_client && segment.has(flag::SYN));
        let start_ns = first_syn.or(segments.first()).map_or(0, |segment| segment.time_ns);
        let of = |from_client: bool| {
            segments
                .iter()
                .filter(move |segment| segment.from_client == from_client)
        };
        let syn = |from_client: bool| of(from_client).find(|segment| segment.has(flag::SYN));
        let isn = [true, false].map(|own| {
            // The first byte of a stream is number 1.
            let seen = || of(own).find(|segment| !segment.has(flag::RST)).or(of(own).next());
            let acknowledged = || of(!own).find(|segment| segment.has(flag::ACK));
            syn(own)
                .map(|segment| segment.seq)
                .or_else(|| seen().map(|segment| segment.seq.wrapping_sub(1)))
                .or_else(|| acknowledged().map(|segment| segment.ack.wrapping_sub(1)))
                .unwrap_or_default()
        });
        let first_timestamp = [true, false].map(|own| {
            of(own)
                .find(|segment| segment.stamped)
                .map(|segment| segment.timestamps.0)
        });
        let offered = [true, false].map(|own| {
            let options = syn(own).map(|segment| &connection.options[segment.options as usize]);
            options.and_then(|options| options.window_scale)
        });
        // Windows are scaled if both sides offered it (RFC 7323, 2.2).
        let shift = match offered {
            [Some(client), Some(server)] => [client, server],
            _ => [0, 0],
        };
        let mss = [true, false].map(|own| {
            let options = syn(own).map(|segment| &connection.options[segment.options as usize]);
            options.and_then(|options| options.mss)
        });
        Self {
            connection,
            start_ns,
            isn,
            first_timestamp,
            shift,
            mss,
        }
    }

    /// Largest segments that are taken: by the client, by the server.
    pub fn mss(&self) -> [Option<u16>; 2] {
        self.mss
    }

    /// How many segments there are.
    pub fn len(&self) -> usize {
        self.connection.segments.len()
    }

    /// Whether there are none, which no capture gives.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One of the segments.
    pub fn get(&self, index: usize) -> Relative<'a> {
        let segment = &self.connection.segments[index];
        let (own, peer) = (side(segment.from_client), side(!segment.from_client));
        let ack = segment.ack.wrapping_sub(self.isn[peer]);
        let shift = if segment.has(flag::SYN) { 0 } else { self.shift[own] };
        let relative = |value: u32, first: Option<u32>| match (value, first) {
            (0, _) | (_, None) => 0,
            (value, Some(first)) => value.wrapping_sub(first) as i32,
        };
        let (value, echoed) = segment.timestamps;
        let timestamps = (
            value.wrapping_sub(self.first_timestamp[own].unwrap_or_default()) as i32,
            relative(echoed, self.first_timestamp[peer]),
        );
        Relative {
            segment,
            time_ns: segment.time_ns.wrapping_sub(self.start_ns) as i64,
            seq: segment.seq.wrapping_sub(self.isn[own]),
            ack: if segment.has(flag::ACK) { ack } else { 0 },
            window: u32::from(segment.window) << shift,
            timestamps: segment.stamped.then_some(timestamps),
            options: &self.connection.options[segment.options as usize],
            peer_isn: self.isn[peer],
        }
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = Relative<'a>> {
        (0..self.len()).map(|index| self.get(index))
    }
}

impl Relative<'_> {
    /// SACK blocks, relative.
    pub fn sack(&self) -> impl Iterator<Item = (u32, u32)> {
        let relative = |edge: u32| edge.wrapping_sub(self.peer_isn);
        self.options
            .sack
            .iter()
            .map(move |(first, after)| (relative(*first), relative(*after)))
    }

    /// Fields in which two segments differ beyond what is tolerated.
    pub fn differing(&self, other: &Self, tolerance: &Tolerance) -> Fields {
        let (a, b) = (self.segment, other.segment);
        let flags = a.flags ^ b.flags;
        let mut found = Fields::default();
        let mut note = |field, differs| {
            if differs {
                found.insert(field);
            }
        };
        note(Field::Sender, a.from_client != b.from_client);
        note(Field::Seq, self.seq != other.seq);
        note(Field::Ack, self.ack != other.ack);
        note(Field::Flags, flags & !flag::PSH != 0);
        note(Field::Push, flags & flag::PSH != 0);
        note(Field::Window, self.window != other.window);
        note(
            Field::Urgent,
            a.has(flag::URG) && b.has(flag::URG) && a.urgent != b.urgent,
        );
        note(Field::Length, a.payload_length != b.payload_length);
        // What one of the captures cut off cannot be compared.
        note(
            Field::Payload,
            a.payload_kept == b.payload_kept && a.payload_hash != b.payload_hash,
        );
        note(Field::Mss, self.options.mss != other.options.mss);
        note(
            Field::WindowScale,
            self.options.window_scale != other.options.window_scale,
        );
        note(
            Field::SackPermitted,
            self.options.sack_permitted != other.options.sack_permitted,
        );
        note(Field::Sack, !self.sack().eq(other.sack()));
        note(
            Field::Options,
            self.options.others != other.options.others || self.options.damaged != other.options.damaged,
        );
        note(
            Field::Timestamps,
            self.timestamps_differ(other, tolerance.timestamp_ticks),
        );
        note(Field::Ecn, (a.tos ^ b.tos) & 3 != 0);
        note(Field::Dscp, (a.tos ^ b.tos) >> 2 != 0);
        let apart_ns = self.time_ns.abs_diff(other.time_ns);
        note(Field::Time, tolerance.time_ns.is_some_and(|most| apart_ns > most));
        found.without(tolerance.ignored)
    }

    fn timestamps_differ(&self, other: &Self, ticks: u32) -> bool {
        match (self.timestamps, other.timestamps) {
            (Some(own), Some(others)) => {
                // They are counters that wrap.
                let apart = |one: i32, other: i32| one.wrapping_sub(other).unsigned_abs();
                apart(own.0, others.0) > ticks || apart(own.1, others.1) > ticks
            }
            (own, others) => own.is_some() != others.is_some(),
        }
    }

    /// What it has in a field, for people.
    pub fn value(&self, field: Field) -> String {
        let or_none = |value: Option<String>| value.unwrap_or_else(|| "none".into());
        let segment = self.segment;
        match field {
            Field::Sender | Field::Order => sender(segment.from_client).into(),
            Field::Seq => self.seq.to_string(),
            Field::Ack => or_none(segment.has(flag::ACK).then(|| self.ack.to_string())),
            Field::Flags => flags(segment.flags & !flag::PSH),
            Field::Push => if segment.has(flag::PSH) { "set" } else { "not set" }.into(),
            Field::Window => format!("{} bytes", self.window),
            Field::Urgent => segment.urgent.to_string(),
            Field::Length => format!("{} bytes", segment.payload_length),
            Field::Payload => format!("{} bytes, hash {:016x}", segment.payload_kept, segment.payload_hash),
            Field::Mss => or_none(self.options.mss.map(|mss| format!("{mss} bytes"))),
            Field::WindowScale => or_none(self.options.window_scale.map(|shift| format!("shift by {shift}"))),
            Field::SackPermitted => if self.options.sack_permitted { "yes" } else { "no" }.into(),
            Field::Sack => {
                let blocks: Vec<String> = self.sack().map(|(first, after)| format!("{first}-{after}")).collect();
                or_none((!blocks.is_empty()).then(|| blocks.join(" ")))
            }
            Field::Timestamps => or_none(
                self.timestamps
                    .map(|(value, echoed)| format!("value {value:+}, echo {echoed:+}")),
            ),
            Field::Options => self.other_options(),
            Field::Ecn => ["Not-ECT", "ECT(1)", "ECT(0)", "CE"][usize::from(segment.tos & 3)].into(),
            Field::Dscp => (segment.tos >> 2).to_string(),
            Field::Time => format!("{:.6} s", self.time_ns as f64 / 1e9),
            Field::Presence => self.describe(),
        }
    }

    fn other_options(&self) -> String {
        let mut texts: Vec<String> = Vec::new();
        for (kind, body) in &self.options.others {
            let mut text = format!("kind {kind}");
            for (index, byte) in body.iter().enumerate() {
                let space = if index == 0 { ": " } else { "" };
                let _ = write!(text, "{space}{byte:02x}");
            }
            texts.push(text);
        }
        if self.options.damaged {
            texts.push("damaged".into());
        }
        if texts.is_empty() {
            "none".into()
        } else {
            texts.join(", ")
        }
    }

    /// The segment in a line.
    pub fn describe(&self) -> String {
        let segment = self.segment;
        let mut text = format!("{}: {}", sender(segment.from_client), flags(segment.flags));
        let mut add = |part: std::fmt::Arguments<'_>| {
            let _ = text.write_fmt(part);
        };
        match segment.payload_length {
            0 => add(format_args!(", seq {}", self.seq)),
            length => add(format_args!(
                ", seq {} to {}, {length} bytes",
                self.seq,
                self.seq.wrapping_add(length)
            )),
        }
        if segment.has(flag::ACK) {
            add(format_args!(", ack {}", self.ack));
        }
        add(format_args!(", window {}", self.window));
        let mut sack = self.sack().peekable();
        if sack.peek().is_some() {
            add(format_args!(", SACK"));
            sack.for_each(|(first, after)| add(format_args!(" {first}-{after}")));
        }
        text
    }
}

/// Which side, in words.
pub fn sender(from_client: bool) -> &'static str {
    if from_client { "client" } else { "server" }
}

/// Names of flags.
fn flags(bits: u16) -> String {
    let names: Vec<&str> = flag::NAMES
        .iter()
        .enumerate()
        .filter(|(bit, _)| bits & 1 << bit != 0)
        .map(|(_, name)| *name)
        .collect();
    if names.is_empty() {
        "none".into()
    } else {
        names.join(" ")
    }
}
