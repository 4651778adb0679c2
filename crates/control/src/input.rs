//! The log of what clients did to a run: `input.jsonl`, one JSON object a line.
//!
//! The first line says which run it was ([`InputHeader`]); each other one is an [`InputRecord`]: something that entered the
//! simulation at a virtual time. Nothing else enters it, so the same scenario, seed and records give the same run.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use windtunnel_base::input_file::{self, Kind};
use windtunnel_results::Ended;

use crate::driver::{self, Content};
use crate::message::{Open, WindowSize};

/// Version of the log's shape.
pub const INPUT_VERSION: u32 = 3;
/// Oldest version that can be read: what was added since then is not in it.
const OLDEST_VERSION: u32 = 1;

/// Largest log that is read, bytes: years of typing.
const RECORDING_MAX_BYTES: u64 = 256 << 20;

/// First line of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InputHeader {
    /// [`INPUT_VERSION`].
    pub input_version: u32,
    /// Hash of the scenario, as in the manifest.
    pub scenario_sha256: String,
    /// Seed of the run.
    pub seed: u64,
}

/// Something that entered a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputRecord {
    /// Virtual time, nanoseconds since the start.
    pub at_ns: u64,
    /// The node it happened to; none: the run as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Number of the program or question it belongs to, from 1 on; 0: the run as a whole.
    pub session: u64,
    /// What.
    #[serde(flatten)]
    pub input: Input,
}

/// What can enter a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// A program is started.
    Open(Open),
    /// It gets this text as input.
    Text(String),
    /// It gets these bytes as input, which are not UTF-8: two hexadecimal digits each.
    Hex(String),
    /// There is no more input for it. Always true, as below.
    EndInput(bool),
    /// Its terminal has another size.
    Resize(WindowSize),
    /// Nobody takes its output for now, or again.
    Pause(bool),
    /// Its client has gone.
    HangUp(bool),
    /// A list of processes is made.
    Processes(bool),
    /// A signal is sent.
    Signal {
        /// A process of the node, or a process group if negative.
        pid: i32,
        /// Its number.
        signal: i32,
    },
    /// A file is read.
    ReadFile(String),
    /// A file is written.
    WriteFile {
        /// Absolute path.
        path: String,
        /// All it holds then.
        content: Content,
        /// Its mode; none: as it is, 0644 if it is made now.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mode: Option<u32>,
    },
    /// A link is changed, as by an entry of the scenario's `events` without `at`.
    Link(serde_json::Map<String, serde_json::Value>),
    /// The power of a node goes (false), or it is booted.
    Power(bool),
    /// The run ended: nothing from this time on was run.
    End(Ended),
}

impl Input {
    /// Input for a program.
    pub fn bytes(bytes: Vec<u8>) -> Self {
        String::from_utf8(bytes).map_or_else(
            |error| Self::Hex(error.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()),
            Self::Text,
        )
    }

    /// The bytes of hexadecimal digits; none: they are not that.
    pub fn unhex(digits: &str) -> Option<Vec<u8>> {
        driver::unhex(digits)
    }

    /// Why it cannot happen, if so.
    fn problem(&self) -> Option<String> {
        match self {
            Self::Open(open) => open.problem(),
            Self::Hex(digits) if Self::unhex(digits).is_none() => {
                Some("bytes are two hexadecimal digits each".to_owned())
            }
            Self::Signal { pid, signal } => driver::signal_problem(*pid, *signal),
            Self::ReadFile(path) => driver::path_problem(path),
            Self::WriteFile { path, content, .. } => driver::path_problem(path).or_else(|| content.problem()),
            _ => None,
        }
    }

    /// Whether it happens to a node rather than to the run as a whole.
    fn is_of_node(&self) -> bool {
        !matches!(self, Self::End(_) | Self::Link(_))
    }
}

/// Writes the log.
#[derive(Debug)]
pub struct InputLog {
    file: File,
}

impl InputLog {
    /// Begins a log in an empty file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn new(file: File, header: &InputHeader) -> io::Result<Self> {
        let mut log = Self { file };
        log.line(header)?;
        Ok(log)
    }

    /// Adds a record.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn append(&mut self, record: &InputRecord) -> io::Result<()> {
        self.line(record)
    }

    /// In one write, so that a killed run leaves whole lines.
    fn line(&mut self, value: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(value).expect("string keys only");
        line.push(b'\n');
        self.file.write_all(&line)
    }
}

/// A log as read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// Which run it was.
    pub header: InputHeader,
    /// What entered it, in order of time.
    pub records: Vec<InputRecord>,
    /// When it ended, and why; none: it was killed.
    pub end: Option<(u64, Ended)>,
}

/// Why a log is not usable.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// It cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the host said.
        source: io::Error,
    },
    /// A line is not what it should be.
    #[error("{}:{line}: {problem}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong.
        problem: String,
    },
}

impl Recording {
    /// Reads a log.
    ///
    /// # Errors
    /// When it is not one.
    pub fn read(path: &Path) -> Result<Self, RecordingError> {
        let text = input_file::read_text(path, Kind::Regular, RECORDING_MAX_BYTES).map_err(|source| {
            RecordingError::Unreadable {
                path: path.to_owned(),
                source,
            }
        })?;
        Self::parse(&text).map_err(|(line, problem)| RecordingError::Line {
            path: path.to_owned(),
            line,
            problem,
        })
    }

    fn parse(text: &str) -> Result<Self, (usize, String)> {
        let mut lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
        let (_, first) = lines.next().ok_or((1, "the file is empty".to_owned()))?;
        let header: InputHeader =
            serde_json::from_str(first).map_err(|error| (1, format!("not the start of an input log: {error}")))?;
        if !(OLDEST_VERSION..=INPUT_VERSION).contains(&header.input_version) {
            let found = header.input_version;
            return Err((
                1,
                format!("version {found} of the log; this program reads versions {OLDEST_VERSION} to {INPUT_VERSION}"),
            ));
        }
        let (mut records, mut end) = (Vec::<InputRecord>::new(), None);
        for (number, line) in lines {
            let record: InputRecord = serde_json::from_str(line).map_err(|error| (number, error.to_string()))?;
            if let Some(problem) = record.input.problem() {
                return Err((number, problem));
            }
            let back = records.last().is_some_and(|last| last.at_ns > record.at_ns);
            let wrong = match (&record.input, &record.node) {
                (input, Some(_)) if !input.is_of_node() => Some("it belongs to no node"),
                (input, None) if input.is_of_node() => Some("the node is missing"),
                (Input::End(_), _) => None,
                _ if back => Some("time goes back"),
                _ => None,
            };
            if let Some(wrong) = wrong {
                return Err((number, wrong.to_owned()));
            }
            match record.input {
                Input::End(ended) => end = Some((record.at_ns, ended)),
                _ => records.push(record),
            }
        }
        Ok(Self { header, records, end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> InputHeader {
        InputHeader {
            input_version: INPUT_VERSION,
            scenario_sha256: "ab".into(),
            seed: 7,
        }
    }

    fn record(at_ns: u64, input: Input) -> InputRecord {
        InputRecord {
            at_ns,
            node: Some("h1".into()),
            session: 1,
            input,
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("input.jsonl");
        let open = Open {
            argv: vec!["sh".into()],
            env: [("TERM".to_owned(), "xterm".to_owned())].into(),
            env_only: false,
            terminal: Some(WindowSize { rows: 24, columns: 80 }),
            user: None,
            cwd: None,
        };
        let records = vec![
            record(5, Input::Open(open)),
            record(5, Input::bytes(b"echo caf\xc3\xa9\r".to_vec())),
            record(6, Input::bytes(vec![0xff, 0x00])),
            record(9, Input::HangUp(true)),
        ];
        let mut log = InputLog::new(File::create(&path).unwrap(), &header()).unwrap();
        for record in &records {
            log.append(record).unwrap();
        }
        let end = InputRecord {
            at_ns: 8,
            node: None,
            session: 0,
            input: Input::End(Ended::AllDone),
        };
        log.append(&end).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(
            text.contains(r#"{"at_ns":5,"node":"h1","session":1,"text":"echo café\r"}"#),
            "{text}"
        );
        assert!(text.contains(r#""hex":"ff00"}"#), "{text}");
        let read = Recording::read(&path).unwrap();
        assert_eq!((read.header, read.records), (header(), records));
        assert_eq!(read.end, Some((8, Ended::AllDone)));
        assert_eq!(Input::unhex("ff00"), Some(vec![0xff, 0]));
    }

    #[test]
    fn errors_name_the_line() {
        let start = serde_json::to_string(&header()).unwrap();
        let cases = [
            ("", 1, "empty"),
            ("{}", 1, "not the start"),
            (&start.replace("version\":3", "version\":9"), 1, "version 9"),
            (&format!("{start}\n{{\"at_ns\":1}}"), 2, "missing field"),
            (
                &format!("{start}\n{{\"at_ns\":1,\"session\":1,\"text\":\"\"}}"),
                2,
                "node",
            ),
            (
                &format!("{start}\n{{\"at_ns\":1,\"node\":\"a\",\"session\":1,\"hex\":\"f\"}}"),
                2,
                "digits",
            ),
            (
                &format!("{start}\n{{\"at_ns\":1,\"node\":\"a\",\"session\":1,\"open\":{{\"argv\":[\"a\\u0000b\"]}}}}"),
                2,
                "NUL",
            ),
        ];
        for (text, line, fragment) in cases {
            let (at, problem) = Recording::parse(text).unwrap_err();
            assert!(at == line && problem.contains(fragment), "{text}: {at}: {problem}");
        }
    }
}
