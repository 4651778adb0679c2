//! `outside.bin`: the frames that came into a run through its ports, with their virtual times. With the scenario, the seed and
//! `input.jsonl` it is all that is needed to repeat the run in virtual time.
//!
//! A line that names the format, a line of JSON ([`Header`]), then for each frame, in the order in which they came: virtual time in
//! ns (8 bytes), number of the port (2), length of the frame (4), all little-endian, and the frame.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use windtunnel_ports::FRAME_BYTES_MAX;

/// First line of the file: the format and its version.
const MAGIC: &str = "windtunnel outside 1";
/// More than any header has, bytes.
const HEADER_MAX: u64 = 1 << 20;
const BUFFER_BYTES: usize = 256 << 10;

/// Which run it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// Hash of the scenario, as in the manifest.
    pub scenario_sha256: String,
    /// Seed of the run.
    pub seed: u64,
    /// Names of the ports; their positions are their numbers.
    pub ports: Vec<String>,
}

/// Writes the file.
#[derive(Debug)]
pub struct Writer {
    file: BufWriter<File>,
}

impl Writer {
    /// Begins an empty file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn new(file: File, header: &Header) -> io::Result<Self> {
        let mut file = BufWriter::with_capacity(BUFFER_BYTES, file);
        let header = serde_json::to_string(header).expect("string keys only");
        writeln!(file, "{MAGIC}\n{header}")?;
        file.flush()?;
        Ok(Self { file })
    }

    /// Adds a frame that came at `at_ns` through the port of this number.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn add(&mut self, at_ns: u64, port: u16, frame: &[u8]) -> io::Result<()> {
        let length = u32::try_from(frame.len()).expect("ports have shorter frames");
        self.file.write_all(&at_ns.to_le_bytes())?;
        self.file.write_all(&port.to_le_bytes())?;
        self.file.write_all(&length.to_le_bytes())?;
        self.file.write_all(frame)
    }

    /// Hands all of it to the host.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// A frame that came from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Virtual time, ns.
    pub at_ns: u64,
    /// Number of the port.
    pub port: u16,
    /// The frame.
    pub frame: Vec<u8>,
}

/// Reads the file.
#[derive(Debug)]
pub struct Reader {
    file: BufReader<File>,
    path: PathBuf,
    ports: u16,
    last_ns: u64,
    /// Which run it was.
    pub header: Header,
}

impl Reader {
    /// Opens a file.
    ///
    /// # Errors
    /// A sentence: it cannot be read, or is no such file.
    pub fn open(path: &Path) -> Result<Self, String> {
        let failed = |error: io::Error| format!("cannot read {}: {error}", path.display());
        let mut file = BufReader::with_capacity(BUFFER_BYTES, File::open(path).map_err(failed)?);
        let mut line = || {
            let mut line = Vec::new();
            let read = (&mut file)
                .take(HEADER_MAX)
                .read_until(b'\n', &mut line)
                .map_err(failed)?;
            Ok::<_, String>(String::from_utf8_lossy(&line[..read]).trim_end().to_owned())
        };
        let magic = line()?;
        if magic != MAGIC {
            let begin: String = magic.chars().take(40).collect();
            return Err(format!("{} begins with {begin:?}, not with {MAGIC:?}", path.display()));
        }
        let header: Header =
            serde_json::from_str(&line()?).map_err(|error| format!("{}: line 2: {error}", path.display()))?;
        let ports = u16::try_from(header.ports.len()).map_err(|_| format!("{}: too many ports", path.display()))?;
        Ok(Self {
            file,
            path: path.to_owned(),
            ports,
            last_ns: 0,
            header,
        })
    }

    /// The next frame; none: there are no more, or the run was killed while the last one was written.
    ///
    /// # Errors
    /// A sentence: it cannot be read, or is damaged.
    pub fn next(&mut self) -> Result<Option<Arrival>, String> {
        let mut head = [0; 14];
        if !self.fill(&mut head)? {
            return Ok(None);
        }
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n] = head;
        let at_ns = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        let port = u16::from_le_bytes([i, j]);
        let length = u32::from_le_bytes([k, l, m, n]) as usize;
        let damaged = |what: String| Err(format!("{} is damaged: {what}", self.path.display()));
        if port >= self.ports {
            return damaged(format!("a frame of port {port}, of {} ports", self.ports));
        }
        if length > FRAME_BYTES_MAX {
            return damaged(format!("a frame of {length} bytes; the longest has {FRAME_BYTES_MAX}"));
        }
        if at_ns < self.last_ns {
            return damaged(format!("time goes back from {} ns to {at_ns} ns", self.last_ns));
        }
        self.last_ns = at_ns;
        let mut frame = vec![0; length];
        let whole = self.fill(&mut frame)?;
        Ok(whole.then_some(Arrival { at_ns, port, frame }))
    }

    /// False: there is no more, or not enough.
    fn fill(&mut self, bytes: &mut [u8]) -> Result<bool, String> {
        match self.file.read_exact(bytes) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(format!("cannot read {}: {error}", self.path.display())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            scenario_sha256: "ab".into(),
            seed: 7,
            ports: vec!["lan".into(), "wire".into()],
        }
    }

    fn written(folder: &Path) -> PathBuf {
        let path = folder.join("outside.bin");
        let mut writer = Writer::new(File::create(&path).unwrap(), &header()).unwrap();
        writer.add(5, 1, &[1; 60]).unwrap();
        writer.add(5, 0, &[2; 1514]).unwrap();
        writer.add(900, 1, &[]).unwrap();
        writer.flush().unwrap();
        path
    }

    #[test]
    fn what_is_written_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let mut reader = Reader::open(&written(folder.path())).unwrap();
        assert_eq!(reader.header, header());
        let mut all = Vec::new();
        while let Some(arrival) = reader.next().unwrap() {
            all.push((arrival.at_ns, arrival.port, arrival.frame));
        }
        assert_eq!(all, [(5, 1, vec![1; 60]), (5, 0, vec![2; 1514]), (900, 1, vec![])]);
    }

    #[test]
    fn a_file_of_a_killed_run_ends_with_its_last_whole_frame() {
        let folder = tempfile::tempdir().unwrap();
        let path = written(folder.path());
        let bytes = std::fs::read(&path).unwrap();
        for cut in [1, 10, 15, 30] {
            std::fs::write(&path, &bytes[..bytes.len() - cut]).unwrap();
            let mut reader = Reader::open(&path).unwrap();
            let mut frames = 0;
            while reader.next().unwrap().is_some() {
                frames += 1;
            }
            assert_eq!(frames, if cut > 14 { 1 } else { 2 }, "{cut}");
        }
    }

    #[test]
    fn damage_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = written(folder.path());
        let bytes = std::fs::read(&path).unwrap();
        let start = bytes.windows(2).position(|pair| pair == b"}\n").unwrap() + 2;
        for (at, value, text) in [
            (start + 8, 2, "port 2"),
            (start + 13, 1, "bytes"),
            (start + 2, 1, "time goes back"),
        ] {
            let mut damaged = bytes.clone();
            damaged[at] = value;
            std::fs::write(&path, &damaged).unwrap();
            let mut reader = Reader::open(&path).unwrap();
            let problem = (0..3).find_map(|_| reader.next().err()).unwrap();
            assert!(problem.contains(text), "{problem}");
        }
        std::fs::write(&path, b"\x89PNG\r\n").unwrap();
        assert!(Reader::open(&path).unwrap_err().contains("begins with"));
        let other = String::from_utf8_lossy(&bytes).replacen("outside 1", "outside 9", 1);
        std::fs::write(&path, other).unwrap();
        assert!(Reader::open(&path).unwrap_err().contains("outside 9"));
    }
}
