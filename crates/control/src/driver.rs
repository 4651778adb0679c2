//! What whoever drives a run asks for, and what the run answers.
//!
//! A driver has time in its hands: between two of its commands virtual time stands still, and a command that lets it go on
//! says how far. Every command has a number of the driver's choice, which its answer repeats; commands are carried out one after
//! the other, in the order in which they came, so a driver need not wait for answers. Only [`Command::Pause`] and
//! [`Command::Stop`] overtake others.
//!
//! A command that does something to the network takes effect at the virtual time that its answer names, and takes one
//! nanosecond: the next one takes effect after all that it has led to at that instant. So two of them never share a time,
//! and the log of them, replayed, gives the same run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use windtunnel_results::{Ended, LinkSummary};

use crate::message::{End, Open, Process, Refusal, WindowSize};

/// Most bytes of a file that is read or written by one command.
pub const FILE_MAX_BYTES: usize = 4 << 20;

/// Shortest interval of measurements, as in scenarios, ns.
pub const INTERVAL_MIN_NS: u64 = 1_000;

/// A command with its number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Numbered {
    /// The driver's number for it; the answer has the same.
    pub id: u64,
    /// What.
    #[serde(flatten)]
    pub command: Command,
}

/// What a driver asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Let time go on. Answered by [`Outcome::Time`] when it stands still again.
    Run(Run),
    /// Let time go on for one window: the longest span in which no node can hear of what another does. Answered by
    /// [`Outcome::Time`].
    Step {},
    /// Let time stand still; answered by [`Outcome::Done`]. The [`Command::Run`] it breaks off is answered first.
    Pause {},
    /// Start a program, and connect its input and output with this connection. Answered by [`Outcome::Started`].
    Start {
        /// On which node.
        node: String,
        /// What.
        program: Open,
    },
    /// There is no more input for a program. Answered by [`Outcome::Done`].
    EndInput {
        /// Its number, from [`Outcome::Started`].
        program: u64,
    },
    /// The window of a program's terminal has another size. Answered by [`Outcome::Done`].
    Resize {
        /// Its number.
        program: u64,
        /// The size.
        size: WindowSize,
    },
    /// Take a program's terminal or pipes away; it gets SIGHUP. Answered by [`Outcome::Done`].
    HangUp {
        /// Its number.
        program: u64,
    },
    /// Send a signal. Answered by [`Outcome::Done`].
    Signal {
        /// On which node.
        node: String,
        /// Process id there, as of kill(2): a process, or a process group if negative. Neither process 1 nor all (-1).
        pid: i32,
        /// Number of the signal, 1 to 64; 0 only asks whether it could be sent.
        signal: i32,
    },
    /// List the processes of a node, or of all. Answered by [`Outcome::Processes`].
    Processes {
        /// Which node; none: all.
        #[serde(default)]
        node: Option<String>,
    },
    /// Change a link. Answered by [`Outcome::Done`].
    Link {
        /// As an entry of the scenario's `events` without `at`: `{"link": ["h1", "h2"], "set": {"delay": "5ms"}}`.
        change: serde_json::Map<String, serde_json::Value>,
    },
    /// Take the power of a node away, as by pulling the plug, or give it back: the node boots. Answered by [`Outcome::Done`].
    Power {
        /// Which node.
        node: String,
        /// Whether it has power from now on.
        up: bool,
    },
    /// Say which nodes are up. Answered by [`Outcome::Nodes`]. It does nothing to the network, and takes no time.
    Nodes {},
    /// Read the counters of all links. Answered by [`Outcome::Links`]. It does nothing to the network, and takes no time.
    Counters {},
    /// Read what kernels know now, as tables of results have it. Answered by [`Outcome::Sample`]. It does nothing to the
    /// network, and takes no time.
    Sample {
        /// Of what.
        what: Sampled,
        /// Of which node; none: of all, in the scenario's order.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<String>,
        /// So many rows are left out at the start: those that an answer before had.
        #[serde(default)]
        skip: u64,
    },
    /// See to it that the file of a series holds all that was measured until now. Answered by [`Outcome::Series`]. It does
    /// nothing to the network, and takes no time.
    Series {
        /// Which.
        series: Measured,
    },
    /// Measure something from now on that is not measured yet. Answered by [`Outcome::Done`]. It does nothing to the network,
    /// takes no time, and is not logged: measuring never changes a run.
    Measure {
        /// Every so much virtual time, nanoseconds; at least [`INTERVAL_MIN_NS`].
        interval_ns: u64,
        /// What.
        series: Vec<Measured>,
    },
    /// Read a file of a node, also in /proc and /sys. Answered by [`Outcome::File`].
    ReadFile {
        /// On which node.
        node: String,
        /// Absolute path.
        path: String,
    },
    /// Write a file of a node, also in /proc and /sys. Answered by [`Outcome::Done`].
    WriteFile {
        /// On which node.
        node: String,
        /// Absolute path.
        path: String,
        /// All it holds then.
        content: Content,
        /// Its mode (the lower 12 bits); none: as it is, 0644 if it is made now.
        #[serde(default)]
        mode: Option<u32>,
    },
    /// End the run. Not answered: [`crate::Reply::RunOver`] comes, and the connection is closed when its results are written.
    Stop {},
}

/// What kernels can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Sampled {
    /// TCP connections, as in tcp.csv.
    Tcp,
    /// MPTCP connections, as in mptcp.csv.
    Mptcp,
    /// Queueing disciplines, as in qdiscs.csv.
    Qdiscs,
}

/// What can be measured at intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Measured {
    /// Links, in links.csv.
    Links,
    /// TCP connections, in tcp.csv.
    Tcp,
    /// MPTCP connections, in mptcp.csv.
    Mptcp,
    /// Queueing disciplines, in qdiscs.csv.
    Qdiscs,
}

/// How far time goes on. The first thing that holds ends it; with none of them it goes on to the end of the run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Up to this virtual time, nanoseconds; what is due then has not happened yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ns: Option<u64>,
    /// Until all of these programs have ended, by their numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<u64>,
    /// Until one of these programs has printed something, by their numbers; what it printed after the last answer to a `run` or
    /// `step` counts, and so does its end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub output: Vec<u64>,
}

/// What is in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// UTF-8.
    Text(String),
    /// Anything else: two hexadecimal digits for each byte.
    Hex(String),
}

/// What came of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Answer {
    /// The command's number.
    pub id: u64,
    /// Virtual time at which it took effect, ns; for those that let time go on, where it stands now.
    pub at_ns: u64,
    /// What.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// See [`Answer`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It was done.
    Done {},
    /// Time stands still again.
    Time {
        /// Why it stands still.
        why: Pause,
        /// Why the run cannot go on, if so.
        ended: Option<Ended>,
    },
    /// The program runs.
    Started {
        /// Its number on this connection.
        program: u64,
        /// Process id in the node.
        pid: u32,
    },
    /// As asked for.
    Processes(Vec<Process>),
    /// Counters of all links, in the scenario's order and those to ports last, as in summary.json.
    Links(Vec<LinkSummary>),
    /// Some rows of the table that was asked for.
    Sample(Sample),
    /// The series is on the host as far as it goes.
    Series {
        /// Name of its file in the output folder.
        file: String,
        /// Length of the file, all of it whole lines, bytes.
        bytes: u64,
        /// Virtual time of its last sample, or at which it began, nanoseconds: it holds all that was measured until then.
        complete_ns: u64,
    },
    /// All nodes, in the scenario's order.
    Nodes(Vec<NodePower>),
    /// As asked for.
    File(Content),
    /// It cannot be done.
    Refused(Refusal),
}

/// A table, or a part of it that an answer has room for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Sample {
    /// Names of the columns, as in the file of results.
    pub columns: Vec<String>,
    /// A value per column in each; null where there is none.
    pub rows: Vec<Vec<serde_json::Value>>,
    /// Rows of the whole table. If there are more than in the answers so far, `skip` asks for the rest.
    pub rows_total: u64,
}

/// How a node is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodePower {
    /// Its name.
    pub node: String,
    /// Whether it has power.
    pub up: bool,
    /// Whether it is up and its set-up commands are over.
    pub ready: bool,
    /// Which boot this is, or was the last, from 1.
    pub life: u32,
}

/// Why time stands still again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Pause {
    /// `until_ns` of [`Run`] is reached.
    Until,
    /// All of its `programs` have ended.
    Programs,
    /// One of its `output` has printed something, or has ended.
    Output,
    /// The window of [`Command::Step`] is over.
    Window,
    /// [`Command::Pause`] broke it off.
    Paused,
    /// The run has come to its end: `ended` says which.
    End,
}

/// A program that the driver started has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProgramEnd {
    /// Its number.
    pub program: u64,
    /// How.
    #[serde(flatten)]
    pub end: End,
}

impl Command {
    /// Why it cannot be carried out whatever the state of the run, if so.
    pub fn problem(&self) -> Option<String> {
        match self {
            Self::Start { program, .. } => program.problem(),
            Self::Signal { pid, signal, .. } => signal_problem(*pid, *signal),
            Self::ReadFile { path, .. } => path_problem(path),
            Self::Measure { interval_ns, series } => measure_problem(*interval_ns, series),
            Self::WriteFile { path, content, .. } => path_problem(path).or_else(|| content.problem()),
            _ => None,
        }
    }
}

/// Why this cannot be measured, if so.
fn measure_problem(interval_ns: u64, series: &[Measured]) -> Option<String> {
    if interval_ns < INTERVAL_MIN_NS {
        return Some(format!(
            "{interval_ns} ns is no interval for measurements; allowed: at least {INTERVAL_MIN_NS} ns"
        ));
    }
    series.is_empty().then(|| "nothing to measure is named".to_owned())
}

/// Why this signal cannot be sent, if so.
pub fn signal_problem(pid: i32, signal: i32) -> Option<String> {
    if !(0..=64).contains(&signal) {
        return Some(format!("{signal} is not the number of a signal; allowed: 0 to 64"));
    }
    let why = match pid {
        1 => "process 1 works for the engine",
        0 => "0 is nobody's process id",
        -1 => "-1 would be all processes",
        i32::MIN => "it is out of range",
        _ => return None,
    };
    Some(format!("no signal can be sent to {pid}: {why}"))
}

/// Why this is no file's path, if so.
pub(crate) fn path_problem(path: &str) -> Option<String> {
    if path.contains('\0') {
        return Some(format!("the path {path:?} contains a NUL character"));
    }
    (!path.starts_with('/')).then(|| format!("the path `{path}` is not absolute; it must begin with `/`"))
}

impl Content {
    /// Of these bytes.
    pub fn of(bytes: Vec<u8>) -> Self {
        String::from_utf8(bytes).map_or_else(
            |error| Self::Hex(error.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()),
            Self::Text,
        )
    }

    /// The bytes; none: they are no hexadecimal digits.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        match self {
            Self::Text(text) => Some(text.as_bytes().to_vec()),
            Self::Hex(digits) => unhex(digits),
        }
    }

    /// Why it cannot be written, if so.
    pub(crate) fn problem(&self) -> Option<String> {
        match self.bytes() {
            None => Some("bytes are two hexadecimal digits each".to_owned()),
            Some(bytes) if bytes.len() > FILE_MAX_BYTES => Some(format!(
                "{} bytes are too many for one command; allowed: {FILE_MAX_BYTES}",
                bytes.len()
            )),
            Some(_) => None,
        }
    }
}

/// The bytes of hexadecimal digits; none: they are not that.
pub(crate) fn unhex(digits: &str) -> Option<Vec<u8>> {
    let digit = |digit: char| digit.to_digit(16).map(|value| value as u8);
    let digits: Vec<u8> = digits.chars().map(digit).collect::<Option<_>>()?;
    let (pairs, rest) = digits.as_chunks::<2>();
    rest.is_empty()
        .then(|| pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_protocol_reads_as_documented() {
        let text = r#"{"id":7,"run":{"until_ns":5,"programs":[1]}}"#;
        let expected = Numbered {
            id: 7,
            command: Command::Run(Run {
                until_ns: Some(5),
                programs: vec![1],
                output: vec![],
            }),
        };
        assert_eq!(serde_json::from_str::<Numbered>(text).unwrap(), expected);
        assert_eq!(serde_json::to_string(&expected).unwrap(), text);
        let answer = Answer {
            id: 7,
            at_ns: 5,
            outcome: Outcome::Time {
                why: Pause::Until,
                ended: None,
            },
        };
        assert_eq!(
            serde_json::to_string(&answer).unwrap(),
            r#"{"id":7,"at_ns":5,"time":{"why":"until","ended":null}}"#
        );
        let end = ProgramEnd {
            program: 1,
            end: End {
                exit: Some(0),
                signal: None,
            },
        };
        assert_eq!(
            serde_json::to_string(&end).unwrap(),
            r#"{"program":1,"exit":0,"signal":null}"#
        );
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let problem = |text: &str| serde_json::from_str::<Numbered>(text).unwrap().command.problem();
        assert_eq!(problem(r#"{"id":1,"signal":{"node":"a","pid":7,"signal":9}}"#), None);
        for (text, fragment) in [
            (r#"{"id":1,"signal":{"node":"a","pid":1,"signal":9}}"#, "process 1"),
            (r#"{"id":1,"signal":{"node":"a","pid":-1,"signal":9}}"#, "all processes"),
            (r#"{"id":1,"signal":{"node":"a","pid":7,"signal":65}}"#, "0 to 64"),
            (
                r#"{"id":1,"measure":{"interval_ns":999,"series":["tcp"]}}"#,
                "at least 1000",
            ),
            (r#"{"id":1,"measure":{"interval_ns":1000,"series":[]}}"#, "nothing"),
            (r#"{"id":1,"read_file":{"node":"a","path":"etc"}}"#, "absolute"),
            (r#"{"id":1,"read_file":{"node":"a","path":"/a\u0000"}}"#, "NUL"),
            (
                r#"{"id":1,"write_file":{"node":"a","path":"/a","content":{"hex":"f"}}}"#,
                "hexadecimal",
            ),
            (r#"{"id":1,"start":{"node":"a","program":{"argv":["\u0000"]}}}"#, "NUL"),
        ] {
            assert!(problem(text).is_some_and(|found| found.contains(fragment)), "{text}");
        }
    }
}
