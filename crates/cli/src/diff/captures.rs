//! Captures that both runs have: the first frame that differs is known exactly.

use super::{Event, Kind, NONE, Run, unreadable};
use crate::failure::Failure;
use pcap_file::pcap::{PcapPacket, PcapReader};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;
use windtunnel_base::result_files::PCAP;

/// Adds the first difference of each pair of captures; names of the files that both have.
///
/// # Errors
/// When one cannot be read.
pub fn differences(a: &Run, b: &Run, events: &mut Vec<Event>) -> Result<BTreeSet<String>, Failure> {
    let names: BTreeSet<String> = names(&a.dir)?.intersection(&names(&b.dir)?).cloned().collect();
    for name in &names {
        events.extend(first_difference(a, b, name)?);
    }
    Ok(names)
}

/// The name of an interface's capture, if no other has the same.
pub fn file_name(node: &str, interface: &str) -> String {
    format!("{node}-{interface}.pcap")
}

/// Names of the captures in results.
///
/// # Errors
/// The folder cannot be read.
pub fn names(dir: &Path) -> Result<BTreeSet<String>, Failure> {
    let folder = dir.join(PCAP);
    let entries = match std::fs::read_dir(&folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        entries => entries.map_err(|error| unreadable(&folder, &error))?,
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Ok(names.filter(|name| name.ends_with(".pcap")).collect())
}

fn first_difference(a: &Run, b: &Run, name: &str) -> Result<Option<Event>, Failure> {
    let (mut of_a, mut of_b) = (Capture::open(a, name)?, Capture::open(b, name)?);
    let what = |number: u64| format!("{}: frame {number}", interface_of(a, name));
    for number in 1.. {
        let (next_a, next_b) = (of_a.next()?, of_b.next()?);
        if next_a.is_none() && next_b.is_none() {
            break;
        }
        if next_a == next_b {
            continue;
        }
        let at_ns = [&next_a, &next_b]
            .into_iter()
            .flatten()
            .map(|frame| frame.time_ns)
            .min();
        let at_ns = at_ns.unwrap_or_default();
        let describe = |own: &Option<Frame>, other: &Option<Frame>| match own {
            Some(own) => own.describe(other.as_ref()),
            None => NONE.to_owned(),
        };
        return Ok(Some(Event {
            kind: Kind::Frame,
            what: what(number),
            from_ns: at_ns,
            to_ns: at_ns,
            a: describe(&next_a, &next_b),
            b: describe(&next_b, &next_a),
        }));
    }
    Ok(None)
}

/// "node:interface" of a capture; its file's name where that is not clear.
fn interface_of(run: &Run, name: &str) -> String {
    let trails = run.trail.iter().flat_map(|trail| &trail.interfaces);
    let mut fitting = trails.filter(|trail| file_name(&trail.node, &trail.interface) == name);
    match (fitting.next(), fitting.next()) {
        (Some(trail), None) => format!("{}:{}", trail.node, trail.interface),
        _ => format!("{PCAP}/{name}"),
    }
}

struct Capture {
    reader: PcapReader<BufReader<File>>,
    path: std::path::PathBuf,
    epoch_ns: u64,
}

#[derive(PartialEq, Eq)]
struct Frame {
    time_ns: u64,
    length: u32,
    bytes: Vec<u8>,
}

impl Capture {
    fn open(run: &Run, name: &str) -> Result<Self, Failure> {
        let path = run.dir.join(PCAP).join(name);
        let file = File::open(&path).map_err(|error| unreadable(&path, &error))?;
        let reader = PcapReader::new(BufReader::new(file))
            .map_err(|error| Failure::user(format!("{} is no capture", path.display())).because(error))?;
        // Without it, times are the nodes' wall clock.
        let epoch_s = run.trail.as_ref().map_or(0, |trail| trail.epoch_s);
        Ok(Self {
            reader,
            path,
            epoch_ns: epoch_s * 1_000_000_000,
        })
    }

    /// The next frame; none: that was all. A frame that is cut off at the end of the file, by a full disk, is not there.
    fn next(&mut self) -> Result<Option<Frame>, Failure> {
        match self.reader.next_packet() {
            None | Some(Err(pcap_file::PcapError::IncompleteBuffer)) => Ok(None),
            Some(Ok(packet)) => Ok(Some(Frame::new(&packet, self.epoch_ns))),
            Some(Err(error)) => Err(Failure::user(format!("{} is damaged", self.path.display())).because(error)),
        }
    }
}

impl Frame {
    fn new(packet: &PcapPacket<'_>, epoch_ns: u64) -> Self {
        let stamp_ns = u64::try_from(packet.timestamp.as_nanos()).unwrap_or(u64::MAX);
        Self {
            time_ns: stamp_ns.saturating_sub(epoch_ns),
            length: packet.orig_len,
            bytes: packet.data.to_vec(),
        }
    }

    /// This frame, with what distinguishes it from another.
    fn describe(&self, other: Option<&Self>) -> String {
        let mut text = format!("at {}, {} bytes", super::time(self.time_ns), self.length);
        let differing = other.and_then(|other| self.bytes.iter().zip(&other.bytes).position(|(a, b)| a != b));
        if let Some(offset) = differing {
            let end = (offset + 8).min(self.bytes.len());
            let digits: Vec<String> = self.bytes[offset..end]
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            text += &format!(", from byte {offset} on {}", digits.join(" "));
        }
        text
    }
}
