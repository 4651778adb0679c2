//! Captures: classic pcap, nanosecond time stamps, Ethernet without FCS.
//!
//! The format is 24 bytes of header and 16 bytes before each frame, all little-endian here on every host, so that
//! equal runs give equal bytes. Source: the pcap-savefile(5) manual page.

use crate::error::{Result, ResultsError};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

/// Magic number of the nanosecond variant.
const MAGIC_NANOSECOND: u32 = 0xa1b2_3c4d;
const VERSION_MAJOR: u16 = 2;
const VERSION_MINOR: u16 = 4;
const LINKTYPE_ETHERNET: u32 = 1;
/// Longest frame that is kept whole: what tcpdump uses, and more than any GSO frame.
const SNAP_LEN_BYTES: u32 = 262_144;
/// Big enough that a capture of full frames makes a host write every 80 frames or so.
const BUFFER_BYTES: usize = 128 << 10;
const NS_PER_S: u64 = 1_000_000_000;

/// One capture file.
#[derive(Debug)]
pub struct PcapWriter {
    out: BufWriter<File>,
    path: PathBuf,
    epoch_s: u64,
    frames: u64,
    failed: bool,
}

impl PcapWriter {
    /// Starts a capture; `epoch_s` is the wall clock of the nodes at virtual time 0, seconds since 1970.
    pub(crate) fn new(file: File, path: PathBuf, epoch_s: u64) -> Result<Self> {
        let mut header = Vec::with_capacity(24);
        header.extend_from_slice(&MAGIC_NANOSECOND.to_le_bytes());
        header.extend_from_slice(&VERSION_MAJOR.to_le_bytes());
        header.extend_from_slice(&VERSION_MINOR.to_le_bytes());
        header.extend_from_slice(&[0; 8]); // time zone and accuracy: always 0
        header.extend_from_slice(&SNAP_LEN_BYTES.to_le_bytes());
        header.extend_from_slice(&LINKTYPE_ETHERNET.to_le_bytes());
        let mut writer = Self {
            out: BufWriter::with_capacity(BUFFER_BYTES, file),
            path,
            epoch_s,
            frames: 0,
            failed: false,
        };
        let written = writer.out.write_all(&header).and_then(|()| writer.out.flush());
        writer.checked(written)?;
        Ok(writer)
    }

    /// Adds a frame that crossed the interface `time_ns` after the start of the run; `frame` starts at the Ethernet
    /// header and has no FCS. After the first error nothing more is written, so what is there stays readable.
    pub fn write(&mut self, time_ns: u64, frame: &[u8]) -> Result<()> {
        if self.failed {
            return Ok(());
        }
        let kept = &frame[..frame.len().min(SNAP_LEN_BYTES as usize)];
        let fields = [
            (self.epoch_s + time_ns / NS_PER_S) as u32, // the format ends in 2106
            (time_ns % NS_PER_S) as u32,
            kept.len() as u32,
            frame.len() as u32,
        ];
        let mut header = [0u8; 16];
        for (bytes, field) in header.chunks_exact_mut(4).zip(fields) {
            bytes.copy_from_slice(&field.to_le_bytes());
        }
        let written = self.out.write_all(&header).and_then(|()| self.out.write_all(kept));
        self.checked(written)?;
        self.frames += 1;
        Ok(())
    }

    /// Frames written so far.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Hands everything to the host. Also done on drop, where an error can't be told.
    pub fn flush(&mut self) -> Result<()> {
        if self.failed {
            return Ok(());
        }
        let flushed = self.out.flush();
        self.checked(flushed)
    }

    fn checked(&mut self, result: io::Result<()>) -> Result<()> {
        result.map_err(|error| {
            self.failed = true;
            ResultsError::from_io("write", &self.path, error)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pcap_file::pcap::PcapReader;
    use pcap_file::{DataLink, TsResolution};
    use std::time::Duration;

    #[test]
    fn another_reader_reads_back_what_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("h1-eth0.pcap");
        let frames: [(u64, Vec<u8>); 3] = [
            (0, vec![0; 60]),
            (1_999_999_999, (0..=255).collect()),
            (2_000_000_000, vec![7; 9_014]),
        ];
        let mut writer = PcapWriter::new(File::create(&path).unwrap(), path.clone(), 1_767_225_600).unwrap();
        for (time_ns, frame) in &frames {
            writer.write(*time_ns, frame).unwrap();
        }
        assert_eq!(writer.frames(), 3);
        drop(writer);

        let mut reader = PcapReader::new(File::open(&path).unwrap()).unwrap();
        assert_eq!(reader.header().datalink, DataLink::ETHERNET);
        assert_eq!(reader.header().ts_resolution, TsResolution::NanoSecond);
        for (time_ns, frame) in &frames {
            let packet = reader.next_packet().unwrap().unwrap();
            let stamp = Duration::from_secs(1_767_225_600) + Duration::from_nanos(*time_ns);
            assert_eq!(
                (packet.timestamp, packet.orig_len as usize, &packet.data[..]),
                (stamp, frame.len(), &frame[..])
            );
        }
        assert!(reader.next_packet().is_none());
    }

    #[test]
    fn tools_read_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("h1-eth0.pcap");
        let mut arp = vec![0xff; 6];
        arp.extend_from_slice(&[
            2, 0, 0, 0, 0, 1, 0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1,
        ]);
        arp.extend_from_slice(&[0, 0, 0, 0, 0, 0, 10, 0, 0, 2]);
        arp.resize(60, 0);
        let mut writer = PcapWriter::new(File::create(&path).unwrap(), path.clone(), 0).unwrap();
        writer.write(1_000_000_123, &arp).unwrap();
        writer.flush().unwrap();
        let Ok(output) = std::process::Command::new("tcpdump")
            .args(["--nano", "-tt", "-n", "-r"])
            .arg(&path)
            .output()
        else {
            eprintln!("tcpdump is not installed: not checked");
            return;
        };
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            text.starts_with("1.000000123 ARP, Request who-has 10.0.0.2 tell 10.0.0.1"),
            "{output:?}"
        );
    }

    #[test]
    fn a_full_disk_is_reported_once_and_stops_writing() {
        let full = || File::options().write(true).open("/dev/full").unwrap();
        let error = PcapWriter::new(full(), "h1-eth0.pcap".into(), 0).unwrap_err();
        assert!(matches!(error, ResultsError::DiskFull { .. }), "{error}");

        let null = File::options().write(true).open("/dev/null").unwrap();
        let mut writer = PcapWriter::new(null, "h1-eth0.pcap".into(), 0).unwrap();
        writer.out = BufWriter::new(full());
        let first = (0..20)
            .find_map(|_| writer.write(0, &[0; 1500]).err())
            .expect("8 KiB of buffer are soon full");
        assert_eq!(
            first.to_string(),
            "disk full while writing h1-eth0.pcap: No space left on device (os error 28)"
        );
        assert!(first.hint().is_some_and(|hint| hint.contains("capture: false")));
        let frames = writer.frames();
        writer.write(0, &[0; 1500]).unwrap();
        writer.flush().unwrap();
        assert_eq!(writer.frames(), frames);
    }
}
