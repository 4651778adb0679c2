//! The digest of a run: equal exactly when every frame and every program behaved the same.
//!
//! Hot path, per frame and interface: XXH3-128 of the frame, then one 32-byte record (time, direction, length, frame
//! hash) into the interface's own XXH3-128 stream. A frame's hash is computed once, at transmit, and serves its receive
//! record as well ([`frame_hash`], [`InterfaceDigest::record_hashed`]). Interfaces do not share state, so the order in
//! which the engine visits nodes within a window, or on how many threads, does not show.
//!
//! At the end: SHA-256 over the canonical text of [`RunDigest::finish`]. XXH3 is not meant to resist an adversary; the
//! digest answers "is this the same run?", not "was this forged?".

use crate::error::{Result, ResultsError};
use crate::trail::MARKS_MAX;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use twox_hash::xxhash3_128::Hasher as Xxh3;
use windtunnel_base::hashes::hex;

/// First line of the hashed text; changes whenever the meaning of a digest does.
const FORMAT: &str = "windtunnel-digest/1";
/// Time, length and direction, frame hash; 8 + 8 + 16.
const RECORD_BYTES: usize = 32;

/// Which way a frame crossed an interface, seen from its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Direction {
    /// The node sent it.
    Transmit = 0,
    /// The node received it.
    Receive = 1,
}

/// XXH3-128 of a frame from its Ethernet header on, without FCS.
#[inline]
pub fn frame_hash(frame: &[u8]) -> u128 {
    Xxh3::oneshot(frame)
}

/// Lets the hash functions look at the CPU now. They do it once, with cpuid: call this before any thread traps that.
pub fn prepare() {
    frame_hash(&[0; 1024]);
    sha256_bytes(&[]);
}

/// Running digest of all that crossed one interface.
#[derive(Clone)]
pub struct InterfaceDigest {
    stream: Xxh3,
    frames: u64,
    /// The frame after which the next mark is due.
    next_mark: u64,
    marks: Marks,
}

/// The digest on its way: see [`crate::trail`].
#[derive(Clone)]
struct Marks {
    stride: u64,
    /// Time, ns, and digest after frame (index + 1) * stride.
    list: Vec<(u64, u128)>,
}

impl Marks {
    /// Every second one goes.
    fn thin_out(&mut self) {
        let mut index = 0;
        self.list.retain(|_| {
            index += 1;
            index % 2 == 0
        });
        self.stride *= 2;
    }
}

impl InterfaceDigest {
    /// Nothing seen yet.
    pub fn new() -> Self {
        Self {
            stream: Xxh3::new(),
            frames: 0,
            next_mark: 1,
            marks: Marks {
                stride: 1,
                list: Vec::new(),
            },
        }
    }

    /// Records a frame that crossed the interface at `time_ns` after the start of the run.
    #[inline]
    pub fn record(&mut self, time_ns: u64, direction: Direction, frame: &[u8]) {
        self.record_hashed(time_ns, direction, frame.len() as u32, frame_hash(frame));
    }

    /// As [`Self::record`] with the hash known from before; `len_bytes` is the length of the hashed frame.
    #[inline]
    pub fn record_hashed(&mut self, time_ns: u64, direction: Direction, len_bytes: u32, hash: u128) {
        let mut record = [0u8; RECORD_BYTES];
        record[..8].copy_from_slice(&time_ns.to_le_bytes());
        record[8..12].copy_from_slice(&len_bytes.to_le_bytes());
        record[12] = direction as u8;
        record[16..].copy_from_slice(&hash.to_le_bytes());
        self.stream.write(&record);
        self.frames += 1;
        if self.frames == self.next_mark {
            self.mark(time_ns);
        }
    }

    /// Notes the digest so far. Some hundred times for the first frames, then ever more seldom.
    #[cold]
    fn mark(&mut self, time_ns: u64) {
        let marks = &mut self.marks;
        if marks.list.len() == MARKS_MAX {
            marks.thin_out();
        }
        if self.frames.is_multiple_of(marks.stride) {
            marks.list.push((time_ns, self.stream.finish_128()));
        }
        self.next_mark = (self.frames / marks.stride + 1) * marks.stride;
    }

    /// At most `max` marks: frame, its time, ns, and the digest up to it.
    pub(crate) fn marks(&self, max: usize) -> impl Iterator<Item = (u64, u64, u128)> {
        let mut marks = self.marks.clone();
        while marks.list.len() > max {
            marks.thin_out();
        }
        let Marks { stride, list } = marks;
        let numbered = list.into_iter().zip(1..);
        numbered.map(move |((time_ns, value), number)| (number * stride, time_ns, value))
    }

    /// Frames recorded, both directions.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// The digest of everything so far; recording may go on.
    pub fn value(&self) -> u128 {
        self.stream.finish_128()
    }
}

impl Default for InterfaceDigest {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for InterfaceDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "InterfaceDigest({:032x}, {} frames)", self.value(), self.frames)
    }
}

/// What the digest takes of one program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessRecord {
    /// Node it ran on.
    pub node: String,
    /// Which boot of the node it belongs to, from 1.
    pub life: u32,
    /// Position among the node's processes in the scenario, from 0.
    pub index: u32,
    /// Process id inside the node; none: it never started.
    pub pid: Option<u32>,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Exit code, if it exited by itself.
    pub exit: Option<i32>,
    /// Signal number, if a signal ended it.
    pub signal: Option<i32>,
    /// Virtual time of its start, nanoseconds; none: never started.
    pub start_ns: Option<u64>,
    /// Virtual time of its end, nanoseconds; none: still running at the end of the run.
    pub end_ns: Option<u64>,
    /// SHA-256 of all it wrote to standard output.
    pub stdout_sha256: [u8; 32],
    /// SHA-256 of all it wrote to standard error.
    pub stderr_sha256: [u8; 32],
}

/// Gathers interfaces and programs, in any order, and folds them into the digest of the run.
#[derive(Debug, Default)]
pub struct RunDigest {
    interfaces: BTreeMap<(String, String), (u64, u128)>,
    processes: BTreeMap<(String, u32, u32), ProcessRecord>,
}

impl RunDigest {
    /// Nothing gathered yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in the final state of an interface. Panics when the same interface is given twice.
    pub fn add_interface(&mut self, node: &str, interface: &str, digest: &InterfaceDigest) {
        let key = (node.to_owned(), interface.to_owned());
        let old = self.interfaces.insert(key, (digest.frames(), digest.value()));
        assert!(old.is_none(), "interface {node}:{interface} given to the digest twice");
    }

    /// Takes in a program. Panics when the same program is given twice.
    pub fn add_process(&mut self, record: ProcessRecord) {
        let key = (record.node.clone(), record.life, record.index);
        let old = self.processes.insert(key, record);
        assert!(
            old.is_none(),
            "a process of {:?} given to the digest twice",
            old.map(|p| p.node)
        );
    }

    /// The digest: 64 lower-case hexadecimal digits.
    ///
    /// SHA-256 over, in this order: the format line; per interface, sorted by (node, interface), the letter `i`, node,
    /// interface, frame count and stream digest; per program, sorted by (node, life, index), the letter `p` (for later lives than the first, `l` and the
    /// life's number) and its other fields in the order of [`ProcessRecord`]. Strings and lists are preceded by their length and numbers are little-endian, all
    /// u64 but for digests; an optional number is the byte 0, or the byte 1 and the number.
    pub fn finish(&self) -> String {
        let mut sink = Sink(Sha256::new());
        sink.string(FORMAT);
        for ((node, interface), (frames, value)) in &self.interfaces {
            sink.string("i");
            sink.string(node);
            sink.string(interface);
            sink.number(*frames);
            sink.0.update(value.to_le_bytes());
        }
        for process in self.processes.values() {
            sink.process(process);
        }
        hex(&sink.0.finalize())
    }
}

/// Unambiguous encoding into SHA-256.
struct Sink(Sha256);

impl Sink {
    fn number(&mut self, value: u64) {
        self.0.update(value.to_le_bytes());
    }

    fn option(&mut self, value: Option<u64>) {
        self.0.update([u8::from(value.is_some())]);
        if let Some(value) = value {
            self.number(value);
        }
    }

    fn string(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.update(text);
    }

    fn process(&mut self, process: &ProcessRecord) {
        // As it was before there were lives.
        match process.life {
            1 => self.string("p"),
            life => {
                self.string("l");
                self.number(life.into());
            }
        }
        self.string(&process.node);
        self.number(process.index.into());
        self.option(process.pid.map(u64::from));
        self.number(process.command.len() as u64);
        for word in &process.command {
            self.string(word);
        }
        self.option(process.exit.map(|code| code as u32 as u64));
        self.option(process.signal.map(|signal| signal as u32 as u64));
        self.option(process.start_ns);
        self.option(process.end_ns);
        self.0.update(process.stdout_sha256);
        self.0.update(process.stderr_sha256);
    }
}

/// SHA-256 of bytes in memory.
pub fn sha256_bytes(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// SHA-256 of a file's contents.
pub fn sha256_file(path: &Path) -> Result<[u8; 32]> {
    let read = |e| ResultsError::from_io("read", path, e);
    let mut file = File::open(path).map_err(read)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0u8; 64 << 10];
    loop {
        let len = match file.read(&mut buffer) {
            Ok(0) => return Ok(hash.finalize().into()),
            Ok(len) => len,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(read(error)),
        };
        hash.update(&buffer[..len]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(records: &[(u64, Direction, &[u8])]) -> u128 {
        let mut digest = InterfaceDigest::new();
        for (time_ns, direction, frame) in records {
            digest.record(*time_ns, *direction, frame);
        }
        digest.value()
    }

    #[test]
    fn each_field_and_the_order_of_a_frame_count() {
        use Direction::*;
        let base = interface(&[(10, Transmit, b"one"), (20, Receive, b"two")]);
        assert_eq!(base, interface(&[(10, Transmit, b"one"), (20, Receive, b"two")]));
        let others = [
            interface(&[(11, Transmit, b"one"), (20, Receive, b"two")]),
            interface(&[(10, Receive, b"one"), (20, Receive, b"two")]),
            interface(&[(10, Transmit, b"onf"), (20, Receive, b"two")]),
            interface(&[(10, Transmit, b"one"), (20, Receive, b"two\0")]),
            interface(&[(20, Receive, b"two"), (10, Transmit, b"one")]),
            interface(&[(10, Transmit, b"one")]),
            interface(&[(10, Transmit, b"one"), (20, Receive, b"two"), (20, Receive, b"two")]),
        ];
        for (at, other) in others.iter().enumerate() {
            assert_ne!(base, *other, "variation {at}");
            assert!(!others[..at].contains(other), "variation {at} equals an earlier one");
        }
    }

    #[test]
    fn every_bit_of_a_frame_counts() {
        let frame: Vec<u8> = (0..1514u32).map(|i| (i * 7) as u8).collect();
        let base = frame_hash(&frame);
        let mut seen = std::collections::HashSet::from([base]);
        for bit in 0..frame.len() * 8 {
            let mut other = frame.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(seen.insert(frame_hash(&other)), "bit {bit}");
        }
    }

    #[test]
    fn a_reused_hash_gives_the_same_record() {
        let frame = [9u8; 60];
        let (mut a, mut b) = (InterfaceDigest::new(), InterfaceDigest::new());
        a.record(5, Direction::Receive, &frame);
        b.record_hashed(5, Direction::Receive, 60, frame_hash(&frame));
        assert_eq!(a.value(), b.value());
        assert_eq!(a.frames(), 1);
    }

    fn process() -> ProcessRecord {
        ProcessRecord {
            node: "h1".into(),
            life: 1,
            index: 0,
            pid: Some(2),
            command: vec!["ping".into(), "-c1".into(), "10.0.0.2".into()],
            exit: Some(0),
            signal: None,
            start_ns: Some(0),
            end_ns: Some(1),
            stdout_sha256: sha256_bytes(b"out"),
            stderr_sha256: sha256_bytes(b""),
        }
    }

    fn digest_of(process: ProcessRecord) -> String {
        let mut run = RunDigest::new();
        run.add_process(process);
        run.finish()
    }

    #[test]
    fn every_field_of_a_process_counts() {
        let base = digest_of(process());
        assert_eq!(base, digest_of(process()));
        let changes: [fn(&mut ProcessRecord); 15] = [
            |p| p.node = "h2".into(),
            |p| p.life = 2,
            |p| p.life = 3,
            |p| p.index = 1,
            |p| p.pid = Some(3),
            |p| p.pid = None,
            |p| p.command = vec!["ping".into(), "-c1 10.0.0.2".into()],
            |p| p.exit = Some(1),
            |p| p.exit = None,
            |p| p.signal = Some(9),
            |p| p.start_ns = None,
            |p| p.end_ns = Some(2),
            |p| p.end_ns = None,
            |p| p.stdout_sha256 = sha256_bytes(b"ouT"),
            |p| p.stderr_sha256 = sha256_bytes(b"x"),
        ];
        let mut seen = std::collections::HashSet::from([base]);
        for (at, change) in changes.iter().enumerate() {
            let mut other = process();
            change(&mut other);
            assert!(seen.insert(digest_of(other)), "change {at}");
        }
    }

    #[test]
    fn the_order_of_gathering_does_not_count_but_names_do() {
        let mut seen = InterfaceDigest::new();
        seen.record(1, Direction::Transmit, b"frame");
        let run = |names: &[(&str, &str)]| {
            let mut run = RunDigest::new();
            for (node, interface) in names {
                run.add_interface(node, interface, &seen);
            }
            run.finish()
        };
        assert_eq!(
            run(&[("a", "eth0"), ("b", "eth0")]),
            run(&[("b", "eth0"), ("a", "eth0")])
        );
        assert_ne!(run(&[("a", "eth0")]), run(&[("a", "eth1")]));
        assert_ne!(run(&[("a", "beth0")]), run(&[("ab", "eth0")]));
        assert_ne!(run(&[]), run(&[("a", "eth0")]));
    }

    #[test]
    fn the_format_is_frozen() {
        // A change here is a change of every digest ever published: bump FORMAT and say so in the changelog.
        let mut run = RunDigest::new();
        let mut seen = InterfaceDigest::new();
        seen.record(1_000, Direction::Transmit, &[0x55; 60]);
        run.add_interface("h1", "eth0", &seen);
        run.add_process(process());
        assert_eq!(
            run.finish(),
            "20b483b8e47446c601a8b12d0d2dd82e1f4a1707000fea6ff9c55d1c6b7f462f"
        );
    }

    #[test]
    fn hashes_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, vec![b'x'; 200_000]).unwrap();
        assert_eq!(sha256_file(&path).unwrap(), sha256_bytes(&vec![b'x'; 200_000]));
        assert!(sha256_file(&dir.path().join("none")).is_err());
    }
}
