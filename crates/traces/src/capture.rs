//! Capture files: pcap and pcapng, read front to back in bounded memory.
//!
//! pcap-file takes the formats apart; the buffer is ours, for an error has to name the byte at which the file is damaged.

use pcap_file::pcap::PcapParser;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::pcapng::{Block, PcapNgParser};
use pcap_file::{Endianness, PcapError, TsResolution};
use std::io::{self, Read};

/// What is read from the file at once, bytes.
const READ_BYTES: usize = 1 << 18;
/// The longest packet record that tcpdump writes, bytes (libpcap's MAXIMUM_SNAPLEN).
const RECORD_MAX_BYTES: u32 = 1 << 18;
/// The longest block of a pcapng file that is taken for one, bytes: libpcap's limit.
const BLOCK_MAX_BYTES: usize = 16 << 20;
const NS_PER_S: u128 = 1_000_000_000;
/// Times of pcap end here, in 2106, and those of pcapng are not taken further: differences of them fit 64 bits.
const TIME_MAX_NS: u64 = (1 << 32) * NS_PER_S as u64;
/// `if_tsresol` of interfaces that name none: microseconds (draft-ietf-opsawg-pcapng, 4.2).
const DEFAULT_RESOLUTION: u8 = 6;

/// What a frame of a capture starts with: numbers of the list at tcpdump.org/linktypes.html.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkType {
    /// BSD's loopback: the address family as four bytes in one of both orders.
    Null,
    /// An Ethernet header.
    Ethernet,
    /// An IP header.
    Raw,
    /// Linux cooked capture, version 1 (`tcpdump -i any`).
    Sll,
    /// Linux cooked capture, version 2, which knows the interface.
    Sll2,
}

impl LinkType {
    /// By its number in a file, if it is one of those read here.
    pub fn from_number(number: u32) -> Option<Self> {
        match number {
            0 | 108 => Some(Self::Null),
            1 => Some(Self::Ethernet),
            // DLT_RAW has other numbers than LINKTYPE_RAW, and some programs write it.
            12 | 14 | 101 | 228 | 229 => Some(Self::Raw),
            113 => Some(Self::Sll),
            276 => Some(Self::Sll2),
            _ => None,
        }
    }
}

/// Why a capture cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The host refused.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The file starts as no capture does.
    #[error("it starts with the bytes {0}, which neither pcap nor pcapng does")]
    NoCapture(String),
    /// It ends before there can be a packet.
    #[error("it ends after {bytes} bytes, within its header")]
    HeaderCut {
        /// Length of the file.
        bytes: u64,
    },
    /// A record makes no sense.
    #[error("the record at byte {position} is damaged: {what}")]
    Damaged {
        /// Where the record starts, bytes from the start of the file.
        position: u64,
        /// What is wrong.
        what: String,
    },
    /// Frames of a kind that is not read.
    #[error(
        "its frames have link type {0}; read are Ethernet (1), Linux cooked (113, 276), raw IP (101, 228, 229) and loopback (0, 108)"
    )]
    LinkType(u32),
}

/// A frame as it was captured.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// What `bytes` starts with.
    pub link: LinkType,
    /// Which interface of the file (pcapng), else 0.
    pub interface: u32,
    /// How long the frame was, bytes; more than what is kept if the capture cut it.
    pub length: u32,
    /// What was kept of it.
    pub bytes: &'a [u8],
}

/// An interface of a pcapng file.
#[derive(Debug, Clone)]
struct Interface {
    link: u32,
    /// Ticks per second.
    ticks: u128,
    offset_s: i64,
    name: Option<String>,
}

enum Format {
    Pcap {
        parser: PcapParser,
        link: LinkType,
    },
    PcapNg {
        parser: PcapNgParser,
        interfaces: Vec<Interface>,
    },
}

/// Reads frames one after the other.
pub struct Capture<R: Read> {
    input: Input<R>,
    format: Format,
    cut_at: Option<u64>,
    /// Sections of a pcapng file number their interfaces anew.
    interfaces_before: u32,
    timeless: u64,
}

/// What was read and not taken apart yet.
struct Input<R> {
    reader: R,
    buffer: Vec<u8>,
    start: usize,
    /// Of `start`, in the file.
    position: u64,
    ended: bool,
}

impl<R: Read> Input<R> {
    fn rest(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    /// Reads more behind what there is; false: there is no more.
    fn more(&mut self) -> io::Result<bool> {
        if self.ended {
            return Ok(false);
        }
        self.buffer.drain(..self.start);
        self.start = 0;
        let filled = self.buffer.len();
        self.buffer.resize(filled + READ_BYTES, 0);
        let read = loop {
            match self.reader.read(&mut self.buffer[filled..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        let count = *read.as_ref().unwrap_or(&0);
        self.buffer.truncate(filled + count);
        read?;
        self.ended = count == 0;
        Ok(count != 0)
    }

    /// At least so many bytes, if the file has them.
    fn ensure(&mut self, bytes: usize) -> io::Result<bool> {
        while self.rest().len() < bytes {
            if !self.more()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn advance(&mut self, bytes: usize) {
        self.start += bytes;
        self.position += bytes as u64;
    }
}

impl<R: Read> Capture<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// The file is no capture, or one of frames that are not read here.
    pub fn new(reader: R) -> Result<Self, CaptureError> {
        let mut input = Input {
            reader,
            buffer: Vec::new(),
            start: 0,
            position: 0,
            ended: false,
        };
        input.ensure(24)?;
        let format = match input.rest() {
            [0x0a, 0x0d, 0x0d, 0x0a, ..] => {
                let (parser, length) = section(&mut input)?;
                input.advance(length);
                Format::PcapNg {
                    parser,
                    interfaces: Vec::new(),
                }
            }
            [0xa1, 0xb2, 0xc3, 0xd4, ..]
            | [0xa1, 0xb2, 0x3c, 0x4d, ..]
            | [0xd4, 0xc3, 0xb2, 0xa1, ..]
            | [0x4d, 0x3c, 0xb2, 0xa1, ..] => {
                let bytes = input.rest().len() as u64;
                let (_, parser) = PcapParser::new(input.rest()).map_err(|_| CaptureError::HeaderCut { bytes })?;
                input.advance(24);
                // The upper bits tell of checksums at the ends of frames.
                let number = u32::from(parser.header().datalink) & 0xffff;
                let link = LinkType::from_number(number).ok_or(CaptureError::LinkType(number))?;
                Format::Pcap { parser, link }
            }
            start => {
                let start = start.iter().take(4).map(|byte| format!("{byte:02x}"));
                return Err(CaptureError::NoCapture(start.collect::<Vec<_>>().join(" ")));
            }
        };
        Ok(Self {
            input,
            format,
            cut_at: None,
            interfaces_before: 0,
            timeless: 0,
        })
    }

    /// Where the last record starts, if the file ends within it. Known once there are no more frames.
    pub fn cut_at(&self) -> Option<u64> {
        self.cut_at
    }

    /// Packets of pcapng that were left out, for their blocks have no time.
    pub fn timeless(&self) -> u64 {
        self.timeless
    }

    /// The name of an interface of a pcapng file, of its current section.
    pub fn interface_name(&self, interface: u32) -> Option<&str> {
        match &self.format {
            Format::Pcap { .. } => None,
            Format::PcapNg { interfaces, .. } => {
                let own = interface.checked_sub(self.interfaces_before)?;
                interfaces.get(own as usize)?.name.as_deref()
            }
        }
    }

    /// The next frame; none: that was all.
    ///
    /// # Errors
    /// The file is damaged there, or cannot be read.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, CaptureError> {
        match self.format {
            Format::Pcap { .. } => self.next_record(),
            Format::PcapNg { .. } => self.next_packet_block(),
        }
    }

    fn cut(&mut self) {
        if !self.input.rest().is_empty() {
            self.cut_at = Some(self.input.position);
        }
    }

    fn next_record(&mut self) -> Result<Option<Frame<'_>>, CaptureError> {
        let Format::Pcap { parser, link } = &self.format else {
            unreachable!("called for pcap only")
        };
        let (header, link) = (parser.header(), *link);
        if !self.input.ensure(16)? {
            self.cut();
            return Ok(None);
        }
        let position = self.input.position;
        let damaged = |what: String| CaptureError::Damaged { position, what };
        let [a, b, c, d] = self.input.rest()[8..12] else {
            unreachable!("four bytes")
        };
        let kept = match header.endianness {
            Endianness::Big => u32::from_be_bytes([a, b, c, d]),
            Endianness::Little => u32::from_le_bytes([a, b, c, d]),
        };
        if kept > RECORD_MAX_BYTES {
            return Err(damaged(format!(
                "a frame of {kept} bytes; the longest is {RECORD_MAX_BYTES}"
            )));
        }
        let length = 16 + kept as usize;
        if !self.input.ensure(length)? {
            self.cut();
            return Ok(None);
        }
        let start = self.input.start;
        self.input.advance(length);
        let record = &self.input.buffer[start..start + length];
        let Format::Pcap { parser, .. } = &self.format else {
            unreachable!("called for pcap only")
        };
        let (_, raw) = parser
            .next_raw_packet(record)
            .map_err(|error| damaged(error.to_string()))?;
        let fraction_ns = match header.ts_resolution {
            TsResolution::MicroSecond => u64::from(raw.ts_frac) * 1000,
            TsResolution::NanoSecond => u64::from(raw.ts_frac),
        };
        if fraction_ns >= 1_000_000_000 {
            return Err(damaged(format!("{fraction_ns} ns within a second")));
        }
        Ok(Some(Frame {
            time_ns: u64::from(raw.ts_sec) * 1_000_000_000 + fraction_ns,
            link,
            interface: 0,
            length: raw.orig_len.max(kept),
            bytes: &record[16..],
        }))
    }

    fn next_packet_block(&mut self) -> Result<Option<Frame<'_>>, CaptureError> {
        loop {
            let Some(length) = block_length(&mut self.input, &self.format)? else {
                self.cut();
                return Ok(None);
            };
            let position = self.input.position;
            let damaged = |what: String| CaptureError::Damaged { position, what };
            let start = self.input.start;
            self.input.advance(length);
            let Format::PcapNg { parser, interfaces } = &mut self.format else {
                unreachable!("called for pcapng only")
            };
            let raw = &self.input.buffer[start..start + length];
            let (_, block) = parser.next_block(raw).map_err(|error| damaged(told(&error)))?;
            match block {
                Block::SectionHeader(_) => {
                    self.interfaces_before += interfaces.len() as u32;
                    interfaces.clear();
                }
                Block::InterfaceDescription(found) => {
                    interfaces.push(Interface::new(u32::from(found.linktype), &found.options));
                }
                Block::EnhancedPacket(packet) => {
                    let Some(interface) = interfaces.get(packet.interface_id as usize) else {
                        return Err(damaged(format!("there is no interface {}", packet.interface_id)));
                    };
                    let link = LinkType::from_number(interface.link).ok_or(CaptureError::LinkType(interface.link))?;
                    let (kept, ticks) = (packet.data.len(), packet.timestamp.as_nanos());
                    let time_ns = interface
                        .time_ns(ticks)
                        .ok_or_else(|| damaged("a time before 1970 or after 2106".into()))?;
                    // Type, length, interface, time and both lengths come before the frame.
                    let bytes = &self.input.buffer[start + 28..start + 28 + kept];
                    return Ok(Some(Frame {
                        time_ns,
                        link,
                        interface: self.interfaces_before + packet.interface_id,
                        length: packet.original_len.max(kept as u32),
                        bytes,
                    }));
                }
                Block::SimplePacket(_) | Block::Packet(_) => self.timeless += 1,
                _ => {}
            }
        }
    }
}

impl Interface {
    fn new(link: u32, options: &[InterfaceDescriptionOption<'_>]) -> Self {
        let mut interface = Self {
            link,
            ticks: ticks(DEFAULT_RESOLUTION),
            offset_s: 0,
            name: None,
        };
        for option in options {
            match option {
                InterfaceDescriptionOption::IfTsResol(resolution) => interface.ticks = ticks(*resolution),
                InterfaceDescriptionOption::IfTsOffset(offset) => interface.offset_s = *offset as i64,
                InterfaceDescriptionOption::IfName(name) => interface.name = Some(name.clone().into_owned()),
                _ => {}
            }
        }
        interface
    }

    fn time_ns(&self, ticks: u128) -> Option<u64> {
        let own = ticks / self.ticks * NS_PER_S + ticks % self.ticks * NS_PER_S / self.ticks;
        let offset = i128::from(self.offset_s) * NS_PER_S as i128;
        let time_ns = u64::try_from(i128::try_from(own).ok()?.checked_add(offset)?).ok()?;
        (time_ns < TIME_MAX_NS).then_some(time_ns)
    }
}

/// Ticks per second of an `if_tsresol`: a power of 2 if its highest bit is set, else of 10.
fn ticks(resolution: u8) -> u128 {
    let exponent = u32::from(resolution & 0x7f);
    // Finer than anybody measures, and small enough that products of it fit.
    if resolution & 0x80 != 0 {
        1 << exponent.min(60)
    } else {
        10u128.pow(exponent.min(18))
    }
}

/// The first block of a pcapng file, which is whole, and its length.
fn section<R: Read>(input: &mut Input<R>) -> Result<(PcapNgParser, usize), CaptureError> {
    let bytes = input.rest().len() as u64;
    if bytes < 12 {
        return Err(CaptureError::HeaderCut { bytes });
    }
    let damaged = |what: String| CaptureError::Damaged { position: 0, what };
    let order = [8, 9, 10, 11].map(|index| input.rest()[index]);
    let field = [4, 5, 6, 7].map(|index| input.rest()[index]);
    let length = match order {
        [0x1a, 0x2b, 0x3c, 0x4d] => u32::from_be_bytes(field),
        [0x4d, 0x3c, 0x2b, 0x1a] => u32::from_le_bytes(field),
        _ => return Err(damaged("its byte order is none".into())),
    } as usize;
    check_block_length(length).map_err(damaged)?;
    if !input.ensure(length)? {
        let bytes = input.rest().len() as u64;
        return Err(CaptureError::HeaderCut { bytes });
    }
    let (_, parser) = PcapNgParser::new(&input.rest()[..length]).map_err(|error| damaged(told(&error)))?;
    Ok((parser, length))
}

/// Length of the next block, all of which is in the buffer then; none: the file has no whole one.
fn block_length<R: Read>(input: &mut Input<R>, format: &Format) -> Result<Option<usize>, CaptureError> {
    if !input.ensure(12)? {
        return Ok(None);
    }
    let Format::PcapNg { parser, .. } = format else {
        unreachable!("called for pcapng only")
    };
    let rest = input.rest();
    let field = [4, 5, 6, 7].map(|index| rest[index]);
    let section = rest[..4] == [0x0a, 0x0d, 0x0d, 0x0a];
    let big = match (section, &rest[8..12]) {
        (true, [0x1a, ..]) => true,
        (true, _) => false,
        (false, _) => parser.section().endianness == Endianness::Big,
    };
    let length = if big {
        u32::from_be_bytes(field)
    } else {
        u32::from_le_bytes(field)
    } as usize;
    let position = input.position;
    check_block_length(length).map_err(|what| CaptureError::Damaged { position, what })?;
    Ok(input.ensure(length)?.then_some(length))
}

fn check_block_length(length: usize) -> Result<(), String> {
    if length < 12 || !length.is_multiple_of(4) || length > BLOCK_MAX_BYTES {
        return Err(format!(
            "a block of {length} bytes; it has a multiple of 4, from 12 to {BLOCK_MAX_BYTES}"
        ));
    }
    Ok(())
}

/// The error as a reader of the message understands it.
fn told(error: &PcapError) -> String {
    match error {
        PcapError::IncompleteBuffer => "a field is longer than its block".into(),
        other => other.to_string(),
    }
}
