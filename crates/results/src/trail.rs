//! `trail.json`: the digest of each interface on its way, so that two runs can be compared without captures.
//!
//! An interface has marks at frames that are evenly spaced: after each `stride` frames the digest so far is noted, and when there are
//! too many marks every second one goes and the stride is doubled. Two runs that are equal up to a frame have equal marks up to
//! there, whatever comes later, except that strides may differ: those of the longer run are among those of the shorter.

use crate::digest::InterfaceDigest;
use crate::error::{Result, ResultsError};
use crate::summary::read_json;
use serde::{Deserialize, Serialize};
use std::path::Path;
use windtunnel_base::result_files::TRAIL;

/// Version of the shape of `trail.json`.
pub const TRAIL_VERSION: u32 = 1;
/// Most marks of one interface.
pub(crate) const MARKS_MAX: usize = 256;
/// Most marks of all interfaces together: some 600 kB. Each has sixteen at least.
const ALL_MARKS_MAX: usize = 16_384;
const MARKS_MIN: usize = 16;

/// The digest of an interface after some frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark(
    /// Number of the frame, from 1.
    pub u64,
    /// Its virtual time, nanoseconds since the start of the run.
    pub u64,
    /// The digest of all frames up to and with it: its last 16 hexadecimal digits.
    pub String,
);

/// What crossed one interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceTrail {
    /// The node.
    pub node: String,
    /// The interface's name there.
    pub interface: String,
    /// Frames, both directions.
    pub frames: u64,
    /// The digest of all of them, 32 hexadecimal digits.
    pub digest: String,
    /// Marks by number of the frame.
    pub marks: Vec<Mark>,
}

/// All of `trail.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trail {
    /// [`TRAIL_VERSION`].
    pub trail_version: u32,
    /// Wall clock of the nodes at virtual time 0, seconds since 1970: what captures count from.
    pub epoch_s: u64,
    /// Interfaces by node and name.
    pub interfaces: Vec<InterfaceTrail>,
}

impl Trail {
    /// The trail of a run with these interfaces: node, name and digest of each, in any order.
    pub fn new<'a>(epoch_s: u64, interfaces: impl Iterator<Item = (&'a str, &'a str, &'a InterfaceDigest)>) -> Self {
        let mut all: Vec<_> = interfaces.collect();
        all.sort_by_key(|(node, interface, _)| (*node, *interface));
        let marks_max = (ALL_MARKS_MAX / all.len().max(1)).clamp(MARKS_MIN, MARKS_MAX);
        let trail = |(node, interface, digest): (&str, &str, &InterfaceDigest)| InterfaceTrail {
            node: node.to_owned(),
            interface: interface.to_owned(),
            frames: digest.frames(),
            digest: format!("{:032x}", digest.value()),
            marks: digest
                .marks(marks_max)
                .map(|(frame, time_ns, value)| Mark(frame, time_ns, format!("{:016x}", value as u64)))
                .collect(),
        };
        Self {
            trail_version: TRAIL_VERSION,
            epoch_s,
            interfaces: all.into_iter().map(trail).collect(),
        }
    }

    /// The bytes of `trail.json`: an interface a line.
    pub fn to_json(&self) -> String {
        let line = |trail| serde_json::to_string(trail).expect("string keys only");
        let lines: Vec<String> = self.interfaces.iter().map(line).collect();
        format!(
            "{{\"trail_version\": {}, \"epoch_s\": {}, \"interfaces\": [\n{}\n]}}\n",
            self.trail_version,
            self.epoch_s,
            lines.join(",\n")
        )
    }

    /// Reads `DIR/trail.json`; none: the run left no trail.
    ///
    /// # Errors
    /// When it is there and cannot be read.
    pub fn read(out_dir: &Path) -> Result<Option<Self>> {
        match read_json(&out_dir.join(TRAIL), "the trail of a run") {
            Ok(trail) => Ok(Some(trail)),
            Err(ResultsError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Direction;

    fn digest(frames: u64) -> InterfaceDigest {
        let mut digest = InterfaceDigest::new();
        for frame in 1..=frames {
            digest.record(frame * 10, Direction::Transmit, &frame.to_le_bytes());
        }
        digest
    }

    #[test]
    fn marks_are_evenly_spaced_and_few() {
        for frames in [0, 1, 255, 256, 257, 100_000] {
            let digest = digest(frames);
            let marks: Vec<_> = digest.marks(MARKS_MAX).collect();
            assert!(
                marks.len() <= MARKS_MAX && marks.len() as u64 >= frames.min(127),
                "{frames}"
            );
            let stride = marks.first().map_or(1, |mark| mark.0);
            for (index, (frame, time_ns, value)) in marks.iter().enumerate() {
                assert_eq!((*frame, *time_ns), (stride * (index as u64 + 1), frame * 10));
                assert_eq!(*value, self::digest(*frame).value(), "{frame} of {frames}");
                if *frame > 2000 {
                    break; // the digest of every prefix would take long
                }
            }
            assert!(frames - marks.last().map_or(0, |mark| mark.0) < stride, "{frames}");
        }
    }

    #[test]
    fn a_longer_run_has_marks_of_a_shorter_one() {
        let (short, long) = (digest(300), digest(5000));
        let short: Vec<_> = short.marks(MARKS_MAX).collect();
        let common: Vec<_> = long.marks(MARKS_MAX).filter(|mark| mark.0 <= 300).collect();
        assert!(common.len() > 5 && common.iter().all(|mark| short.contains(mark)));
    }

    #[test]
    fn what_is_written_is_read_back_and_bounded() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Trail::read(dir.path()).unwrap(), None);
        let digest = digest(1000);
        let names: Vec<String> = (0..500).map(|number| format!("n{number}")).collect();
        let trail = Trail::new(7, names.iter().map(|name| (name.as_str(), "eth0", &digest)));
        assert_eq!(trail.interfaces[1].node, "n1");
        let marks = trail.interfaces[0].marks.len();
        assert!((16..=ALL_MARKS_MAX / 500).contains(&marks), "{marks}");
        std::fs::write(dir.path().join(TRAIL), trail.to_json()).unwrap();
        assert_eq!(Trail::read(dir.path()).unwrap(), Some(trail));
        std::fs::write(dir.path().join(TRAIL), "{}").unwrap();
        assert!(Trail::read(dir.path()).is_err());
    }
}
