//! `events.jsonl`: what happened in a run, an object a line, in the order of virtual time. Equal runs give equal bytes.
//!
//! It is composed at the end, from what the run knows anyway: a run that is interrupted, crashes or hangs has it, too.

use crate::manifest::Ended;
use crate::summary::{ProcessSummary, Summary, is_first_life};
use schemars::JsonSchema;
use serde::Serialize;

/// A line of `events.jsonl`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(title = "windtunnel event", description = "A line of events.jsonl, version 1.")]
pub struct EventLine {
    /// Virtual time, nanoseconds since the start of the run.
    pub time_ns: u64,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The run began.
    RunStarted {
        /// Name of the scenario.
        scenario: String,
        /// Seed of all random numbers.
        seed: u64,
    },
    /// The kernel of a node began to run.
    NodeBooted {
        /// The node.
        node: String,
    },
    /// From here on the run goes with the wall clock; before, it went as fast as it could.
    RunLive {
        /// How long that took by the host's clock, ns.
        after_wall_ns: u64,
    },
    /// The power of a node went: its kernel and programs are no more.
    NodeDown {
        /// The node.
        node: String,
        /// Who did it.
        by: ChangedBy,
    },
    /// A node's addresses, routes and set-up commands are done: its programs start from here on.
    NodeReady {
        /// The node.
        node: String,
    },
    /// A program of the scenario or of a client began to run.
    ProcessStarted(ProgramEvent),
    /// It ended.
    ProcessExited {
        /// Which.
        #[serde(flatten)]
        program: ProgramEvent,
        /// Exit code; null: it did not exit by itself.
        exit: Option<i32>,
        /// Number of the signal that ended it; null: none did.
        signal: Option<i32>,
        /// Whether it ended because its node went down; only there if so.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        power_off: bool,
        /// CPU time that it took as its kernel accounts it, children apart, nanoseconds of virtual time: in the program; only there
        /// if work takes time on its node (`cpu`).
        #[serde(skip_serializing_if = "Option::is_none")]
        user_ns: Option<u64>,
        /// In the kernel for it; as `user_ns`.
        #[serde(skip_serializing_if = "Option::is_none")]
        system_ns: Option<u64>,
    },
    /// A process was made by another one: fork(2) and the like. Programs of the scenario and of clients have `process_started`.
    ProcessForked {
        /// The node.
        node: String,
        /// Process id in it.
        pid: u32,
        /// Process id of its parent then.
        parent: u32,
        /// Its name (comm), which is its parent's.
        name: String,
    },
    /// A process became another program: execve(2).
    ProcessExecuted {
        /// The node.
        node: String,
        /// Process id in it.
        pid: u32,
        /// Its name (comm) from here on.
        name: String,
    },
    /// A process of which `process_forked` told has ended.
    ChildExited {
        /// The node.
        node: String,
        /// Process id in it.
        pid: u32,
        /// Its name (comm) since its last exec or fork.
        name: String,
        /// Exit code; null: it did not exit by itself.
        exit: Option<i32>,
        /// Number of the signal that ended it; null: none did.
        signal: Option<i32>,
        /// As of `process_exited`.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        power_off: bool,
        /// As of `process_exited`.
        #[serde(skip_serializing_if = "Option::is_none")]
        user_ns: Option<u64>,
        /// As of `process_exited`.
        #[serde(skip_serializing_if = "Option::is_none")]
        system_ns: Option<u64>,
    },
    /// From here on no more children of this node are told.
    ChildrenNotTold {
        /// The node.
        node: String,
        /// How many were not told: neither their births nor their ends.
        count: u64,
    },
    /// From here on no more execs of this node are told, or those of its children that are not told are not.
    ExecsNotTold {
        /// The node.
        node: String,
        /// How many were not told.
        count: u64,
    },
    /// A program that never ran: it could not be started, or the run ended before. Told at the end of the run.
    ProcessNotStarted(ProgramEvent),
    /// A link got other values.
    LinkChanged {
        /// One end, "node:interface".
        a: String,
        /// The other end.
        b: String,
        /// Who did it.
        by: ChangedBy,
        /// What changed for frames from `a` to `b`.
        a_to_b: LinkValues,
        /// What changed for frames from `b` to `a`.
        b_to_a: LinkValues,
    },
    /// Something that ought to be looked at before trusting the results, told once, when it happened for the first time.
    Warning {
        /// Its kind, as in the summary.
        code: String,
        /// Nodes it happened on; none: the whole run.
        nodes: Vec<String>,
        /// Programs that did it.
        programs: Vec<String>,
        /// The sentence for people; it goes on after the names of the programs.
        text: String,
        /// How often it happened, in all of the run.
        count: u64,
    },
    /// What a program was expected to do was checked, at the end of the run.
    Expectation {
        /// The program.
        #[serde(flatten)]
        program: ProgramEvent,
        /// Whether all of it held.
        held: bool,
        /// A sentence for each part that did not.
        failures: Vec<String>,
    },
    /// The run ended.
    RunEnded {
        /// Why.
        ended: Ended,
        /// The message of a crash or error; null: there was none.
        error: Option<String>,
    },
}

/// A program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ProgramEvent {
    /// Node it is on.
    pub node: String,
    /// Process id in the node; null: it never started.
    pub pid: Option<u32>,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Whether a client of the live run started it, not the scenario.
    pub client: bool,
    /// Which boot of the node it belongs to, counted from 1; only there from the second on.
    #[serde(skip_serializing_if = "is_first_life")]
    pub life: u32,
}

/// Who changed something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChangedBy {
    /// An event of the scenario.
    Scenario,
    /// A client of the live run, or its recording.
    Client,
}

/// New values of one direction of a link; those that stay are absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LinkValues {
    /// Bits per second on the wire.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<u64>,
    /// Nanoseconds from the last bit's departure to its arrival.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_ns: Option<u64>,
    /// Most that a frame's delay differs from that, nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter_ns: Option<u64>,
    /// Whether a frame may overtake one before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reorder: Option<bool>,
    /// Chance that a frame is lost, in billionths.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_ppb: Option<u32>,
    /// Chance that a frame arrives twice, in billionths.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duplicate_ppb: Option<u32>,
    /// Chance that a bit of a frame is flipped, in billionths.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub corrupt_ppb: Option<u32>,
    /// Where frames wait, as in a scenario: `nic`, `100p`, `64kB`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Whether there is a carrier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up: Option<bool>,
}

impl ProgramEvent {
    /// The program of a line of the summary.
    pub fn of(process: &ProcessSummary) -> Self {
        Self {
            node: process.node.clone(),
            pid: process.pid,
            command: process.command.clone(),
            client: process.client,
            life: process.life,
        }
    }
}

/// All events of a run.
#[derive(Debug)]
pub struct EventLog {
    lines: Vec<EventLine>,
}

impl EventLog {
    /// The beginning: the run, and its nodes.
    pub fn new<'a>(scenario: &str, seed: u64, nodes: impl Iterator<Item = &'a str>) -> Self {
        let mut log = Self { lines: Vec::new() };
        log.add(
            0,
            Event::RunStarted {
                scenario: scenario.to_owned(),
                seed,
            },
        );
        for node in nodes {
            log.add(0, Event::NodeBooted { node: node.to_owned() });
        }
        log
    }

    /// Adds what happened at `time_ns`; of the same time, what is added first comes first.
    pub fn add(&mut self, time_ns: u64, event: Event) {
        self.lines.push(EventLine { time_ns, event });
    }

    /// Adds starts and ends of the programs.
    ///
    /// `spent` gives the CPU time, user and system, of a program by node, process id and end, ns; none: work takes no time.
    pub fn add_processes(&mut self, summary: &Summary, spent: impl Fn(&str, Option<u32>, u64) -> Option<(u64, u64)>) {
        for process in &summary.processes {
            let program = ProgramEvent::of(process);
            let Some(start_ns) = process.start_ns else {
                self.add(summary.virtual_time_ns, Event::ProcessNotStarted(program));
                continue;
            };
            self.add(start_ns, Event::ProcessStarted(program.clone()));
            if let Some(end_ns) = process.end_ns {
                let (exit, signal, power_off) = (process.exit, process.signal, process.power_off);
                // What it had taken by then went with the power.
                let pid = process.pid.filter(|_| !power_off);
                let (user_ns, system_ns) = spent(&process.node, pid, end_ns).unzip();
                let event = Event::ProcessExited {
                    program,
                    exit,
                    signal,
                    power_off,
                    user_ns,
                    system_ns,
                };
                self.add(end_ns, event);
            }
        }
    }

    /// Adds what is told at the end: warnings, and that the run is over.
    pub fn end(&mut self, summary: &Summary, error: Option<String>) {
        let last_ns = self.lines.iter().map(|line| line.time_ns).max().unwrap_or(0);
        let end_ns = last_ns.max(summary.virtual_time_ns);
        for warning in &summary.warnings {
            let warning = warning.clone();
            let time_ns = warning.time_ns.min(end_ns);
            let event = Event::Warning {
                code: warning.code,
                nodes: warning.nodes,
                programs: warning.programs,
                text: warning.text,
                count: warning.count,
            };
            self.add(time_ns, event);
        }
        let ended = summary.ended;
        self.add(end_ns, Event::RunEnded { ended, error });
    }

    /// The bytes of `events.jsonl`.
    pub fn to_jsonl(&self) -> String {
        let mut lines: Vec<&EventLine> = self.lines.iter().collect();
        lines.sort_by_key(|line| line.time_ns);
        let line = |line: &EventLine| serde_json::to_string(line).expect("string keys only") + "\n";
        lines.into_iter().map(line).collect()
    }
}

/// The JSON Schema of a line of `events.jsonl`.
pub fn events_schema() -> String {
    let schema = schemars::schema_for!(EventLine);
    serde_json::to_string_pretty(&schema).expect("a schema has string keys only") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::SUMMARY_VERSION;

    fn process(start_ns: Option<u64>, end_ns: Option<u64>) -> ProcessSummary {
        ProcessSummary {
            node: "h1".into(),
            pid: start_ns.map(|_| 7),
            command: vec!["ping".into(), "h2".into()],
            exit: end_ns.map(|_| 0),
            signal: None,
            start_ns,
            end_ns,
            stdout: String::new(),
            stderr: String::new(),
            client: false,
            life: 1,
            power_off: false,
        }
    }

    #[test]
    fn lines_are_in_the_order_of_time_and_the_end_is_the_last() {
        let summary = Summary {
            summary_version: SUMMARY_VERSION,
            scenario: "two".into(),
            seed: 3,
            ended: Ended::Stop,
            digest: None,
            virtual_time_ns: 9,
            syscalls: 0,
            frames: 0,
            processes: vec![process(Some(4), Some(8)), process(Some(2), None), process(None, None)],
            links: Vec::new(),
            ports: Vec::new(),
            lateness: None,
            warnings: Vec::new(),
            failed_expectations: Vec::new(),
            delivery_lateness: None,
        };
        let mut log = EventLog::new("two", 3, ["h1"].into_iter());
        log.add_processes(&summary, |_, _, end_ns| Some((end_ns, 1)));
        log.add(4, Event::NodeReady { node: "h1".into() });
        log.end(&summary, None);
        let text = log.to_jsonl();
        let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let found: Vec<_> = lines
            .iter()
            .map(|line| (line["time_ns"].as_u64().unwrap(), line["event"].as_str().unwrap()))
            .collect();
        let expected = [
            (0, "run_started"),
            (0, "node_booted"),
            (2, "process_started"),
            (4, "process_started"),
            (4, "node_ready"),
            (8, "process_exited"),
            (9, "process_not_started"),
            (9, "run_ended"),
        ];
        assert_eq!(found, expected);
        assert_eq!(
            text.lines().nth(5).unwrap(),
            r#"{"time_ns":8,"event":"process_exited","node":"h1","pid":7,"command":["ping","h2"],"client":false,"exit":0,"signal":null,"user_ns":8,"system_ns":1}"#
        );
    }

    #[test]
    fn the_schema_in_the_tree_is_that_of_the_code() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../schema/events-v1.json");
        let kept = std::fs::read_to_string(path).unwrap();
        assert!(
            kept == events_schema(),
            "windtunnel schema events > schema/events-v1.json"
        );
    }
}
