//! The kernel log of a node, one line per message, each with virtual time in seconds and nine decimals.

use crate::error::{Result, ResultsError};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

/// Writes `DIR/NODE/kernel.log`.
///
/// A kernel's own time stamp, if it prints one, is replaced by the time of the call, so that all lines look alike
/// whatever the kernel's configuration. Lines reach the host when they are complete, so a crash loses none.
#[derive(Debug)]
pub struct KernelLog {
    out: BufWriter<File>,
    path: PathBuf,
    partial: Vec<u8>,
    partial_time_ns: u64,
}

impl KernelLog {
    pub(crate) fn new(file: File, path: PathBuf) -> Self {
        Self {
            out: BufWriter::new(file),
            path,
            partial: Vec::new(),
            partial_time_ns: 0,
        }
    }

    /// Adds console text written at virtual time `time_ns`; a piece of a line waits for its end.
    pub fn append(&mut self, time_ns: u64, text: &[u8]) -> Result<()> {
        for piece in text.split_inclusive(|&byte| byte == b'\n') {
            if self.partial.is_empty() {
                self.partial_time_ns = time_ns;
            }
            match piece.strip_suffix(b"\n") {
                Some(end) => {
                    self.partial.extend_from_slice(end);
                    self.write_line()?;
                }
                None => self.partial.extend_from_slice(piece),
            }
        }
        self.out
            .flush()
            .map_err(|e| ResultsError::from_io("write", &self.path, e))
    }

    /// A further log that goes on where this one ends, which is finished: the node boots again.
    pub fn continued(&mut self) -> Result<Self> {
        self.finish_line()?;
        let copy = self.out.get_ref().try_clone();
        let file = copy.map_err(|error| ResultsError::from_io("write", &self.path, error))?;
        Ok(Self::new(file, self.path.clone()))
    }

    /// Writes what is left of an unfinished line. Dropping does the same, but hides errors.
    pub fn finish(mut self) -> Result<()> {
        self.finish_line()
    }

    fn finish_line(&mut self) -> Result<()> {
        if !self.partial.is_empty() {
            self.write_line()?;
        }
        self.out
            .flush()
            .map_err(|e| ResultsError::from_io("write", &self.path, e))
    }

    fn write_line(&mut self) -> Result<()> {
        let line = std::mem::take(&mut self.partial);
        let text = without_stamp(&line);
        let (seconds, nanos) = (
            self.partial_time_ns / 1_000_000_000,
            self.partial_time_ns % 1_000_000_000,
        );
        write!(self.out, "[{seconds:5}.{nanos:09}] ")
            .and_then(|()| self.out.write_all(text))
            .and_then(|()| self.out.write_all(b"\n"))
            .map_err(|e| ResultsError::from_io("write", &self.path, e))
    }
}

impl Drop for KernelLog {
    fn drop(&mut self) {
        // Nobody is left to tell; the text matters most after a crash, which is when this runs.
        let _ = self.finish_line();
    }
}

/// `line` without a leading printk time stamp, as in `[   12.345678] `.
fn without_stamp(line: &[u8]) -> &[u8] {
    let Some(rest) = line.strip_prefix(b"[") else {
        return line;
    };
    let Some(end) = rest.iter().position(|&byte| byte == b']') else {
        return line;
    };
    let stamp = rest[..end].trim_ascii_start();
    let is_time = stamp.contains(&b'.') && stamp.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.');
    if !is_time {
        return line;
    }
    let text = &rest[end + 1..];
    text.strip_prefix(b" ").unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log_of(calls: &[(u64, &str)]) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kernel.log");
        let mut log = KernelLog::new(File::create(&path).unwrap(), path.clone());
        for (time_ns, text) in calls {
            log.append(*time_ns, text.as_bytes()).unwrap();
        }
        drop(log);
        std::fs::read_to_string(path).unwrap()
    }

    #[test]
    fn stamps_each_line_with_the_time_it_began() {
        assert_eq!(
            log_of(&[
                (5, "Linux version 6.12\neth0: "),
                (1_500_000_000, "link up\n"),
                (61_000_000_001, "tail")
            ]),
            "[    0.000000005] Linux version 6.12\n\
             [    0.000000005] eth0: link up\n\
             [   61.000000001] tail\n"
        );
    }

    #[test]
    fn replaces_only_stamps_of_the_kernel() {
        assert_eq!(
            log_of(&[(7, "[    0.000000] Booting\n[hello] world\n[1.2\n")]),
            "[    0.000000007] Booting\n[    0.000000007] [hello] world\n[    0.000000007] [1.2\n"
        );
    }

    #[test]
    fn a_full_disk_is_reported() {
        let file = File::options().write(true).open("/dev/full").unwrap();
        let mut log = KernelLog::new(file, "h1/kernel.log".into());
        let error = log.append(0, b"line\n").unwrap_err();
        assert!(matches!(error, ResultsError::DiskFull { .. }), "{error}");
    }
}
