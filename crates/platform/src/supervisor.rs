//! A node as the run sees it: its process 1, and the lives of its programs.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use windtunnel_results::{OutDir, ProcessLogs, ProcessSummary};
use windtunnel_scenario::{Expect, Node, NodeKind, Outcome, Root};

use crate::PlatformError;
use crate::limits;
use crate::process1::Process1;
use crate::protocol::{FileSpec, InterfaceSpec, Lines, NodeSpec, Order, ProgramSpec, Report, RouteSpec};

/// How long a program may take to end after its stop signal, as in virtual time.
const KILL_AFTER_NS: u64 = 5_000_000_000;
const SIGKILL: i32 = 9;
/// What a program finds in its environment if nobody says otherwise, as in virtual time.
const ENVIRONMENT: [(&str, &str); 3] = [
    ("HOME", "/root"),
    ("LANG", "C.UTF-8"),
    ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
];

/// A program of a node, set-up commands first.
pub(crate) struct Program {
    command: Vec<String>,
    start_ns: u64,
    stop_ns: Option<u64>,
    stop_signal: i32,
    expect: Expect,
    logs: ProcessLogs,
    asked: bool,
    failed: bool,
    pid: Option<u32>,
    began_ns: Option<u64>,
    ended: Option<(u64, Outcome)>,
    stop_sent_ns: Option<u64>,
    killed: bool,
}

pub(crate) struct Supervisor {
    pub name: String,
    process1: Process1,
    lines: Lines,
    setup_count: usize,
    programs: Vec<Program>,
    pub ready_ns: Option<u64>,
    pub read_only: Vec<String>,
    pub queue_drops: Option<Vec<u64>>,
}

impl Supervisor {
    /// Starts process 1 of a node, and gives it its orders. It goes on by itself; see [`Self::wait_until_made`].
    pub fn start(node: &Node, files: Vec<FileSpec>, out: &OutDir, rootless: bool) -> Result<Self, PlatformError> {
        let programs = programs(node, out)?;
        let spec = spec(node, files, out, &programs, rootless)?;
        Ok(Self {
            name: node.name.clone(),
            process1: Process1::start(spec)?,
            lines: Lines::default(),
            setup_count: node.setup.len(),
            programs,
            ready_ns: None,
            read_only: Vec::new(),
            queue_drops: None,
        })
    }

    /// Waits until the node is there; its TAPs.
    pub fn wait_until_made(&mut self, interfaces: usize) -> Result<Vec<OwnedFd>, PlatformError> {
        let (read_only, taps) = self.process1.wait_until_made(interfaces)?;
        self.read_only = read_only;
        Ok(taps)
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.process1.stream.as_fd()
    }

    /// Starts and stops what is due at `now_ns`.
    pub fn due(&mut self, now_ns: u64) -> Result<(), PlatformError> {
        let setup = self.programs[..self.setup_count]
            .iter()
            .position(|program| program.ended.is_none());
        if let Some(index) = setup {
            if !std::mem::replace(&mut self.programs[index].asked, true) {
                self.process1.order(&Order::Start(index))?;
            }
            return Ok(());
        }
        self.ready_ns.get_or_insert(now_ns);
        for index in self.setup_count..self.programs.len() {
            let program = &mut self.programs[index];
            if !program.asked && program.start_ns <= now_ns {
                program.asked = true;
                self.process1.order(&Order::Start(index))?;
            }
            if let Some(signal) = self.programs[index].signal_due(now_ns) {
                self.process1.order(&Order::Signal { index, signal })?;
            }
        }
        Ok(())
    }

    /// When [`Self::due`] has to be called next, ns.
    pub fn next_ns(&self) -> u64 {
        if self.ready_ns.is_none() {
            return u64::MAX;
        }
        self.programs[self.setup_count..]
            .iter()
            .map(Program::next_ns)
            .min()
            .unwrap_or(u64::MAX)
    }

    /// Takes in what process 1 reports; `base_ns` is the start of the run. Warnings: program and text.
    pub fn attend(&mut self, base_ns: u64) -> Result<Vec<(String, String)>, PlatformError> {
        let mut buffer = [0; 4096];
        let lost = |name: &str, reason: String| PlatformError::Node {
            node: name.to_owned(),
            what: "go on".into(),
            reason,
        };
        loop {
            match (&self.process1.stream).read(&mut buffer) {
                Ok(0) => return Err(lost(&self.name, "its process 1 has ended".into())),
                Ok(length) => self.lines.add(&buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(lost(&self.name, error.to_string())),
            }
        }
        let mut warnings = Vec::new();
        while let Some(report) = self.lines.next().map_err(|error| lost(&self.name, error.to_string()))? {
            match report {
                Report::Started { index, pid, at_ns } => {
                    self.programs[index].pid = Some(pid);
                    self.programs[index].began_ns = Some(at_ns.saturating_sub(base_ns));
                }
                Report::NotStarted { index, reason } => {
                    let text = format!("could not be started: {reason}");
                    if index < self.setup_count {
                        return Err(self.setup_error(index, text));
                    }
                    self.programs[index].failed = true;
                    warnings.push((self.programs[index].command.join(" "), text));
                }
                Report::Ended {
                    index,
                    exit,
                    signal,
                    at_ns,
                } => {
                    let how = match (exit, signal) {
                        (Some(code), _) => Outcome::Exited(code),
                        (None, signal) => Outcome::Signaled(signal.unwrap_or(0)),
                    };
                    self.programs[index].ended = Some((at_ns.saturating_sub(base_ns), how));
                    if index < self.setup_count && how != Outcome::Exited(0) {
                        return Err(self.setup_error(index, format!("failed: {how:?}")));
                    }
                }
                Report::Counted(drops) => self.queue_drops = Some(drops),
                Report::Refused { what, reason } => {
                    let node = self.name.clone();
                    return Err(PlatformError::Node { node, what, reason });
                }
                Report::Ready { .. } => {}
            }
        }
        Ok(warnings)
    }

    fn setup_error(&self, index: usize, how: String) -> PlatformError {
        PlatformError::Setup {
            node: self.name.clone(),
            command: self.programs[index].command.join(" "),
            how,
        }
    }

    pub fn has_processes(&self) -> bool {
        self.programs.len() > self.setup_count
    }

    /// Whether no program runs or is to start.
    pub fn all_over(&self) -> bool {
        self.ready_ns.is_some()
            && self
                .programs
                .iter()
                .all(|program| program.failed || program.ended.is_some())
    }

    /// Asks for the drops of its interfaces; they come as a report.
    pub fn ask_count(&mut self) -> Result<(), PlatformError> {
        self.process1.order(&Order::Count)
    }

    /// Its processes, each with what of its expectation did not hold.
    pub fn results(&self, out: &OutDir) -> Vec<(ProcessSummary, Vec<String>)> {
        self.programs[self.setup_count..]
            .iter()
            .map(|program| program.result(&self.name, out))
            .collect()
    }
}

impl Program {
    fn new(command: &[String], logs: ProcessLogs) -> Self {
        Self {
            command: command.to_vec(),
            start_ns: 0,
            stop_ns: None,
            stop_signal: 0,
            expect: Expect::default(),
            logs,
            asked: false,
            failed: false,
            pid: None,
            began_ns: None,
            ended: None,
            stop_sent_ns: None,
            killed: false,
        }
    }

    fn runs(&self) -> bool {
        self.began_ns.is_some() && self.ended.is_none()
    }

    fn signal_due(&mut self, now_ns: u64) -> Option<i32> {
        if !self.runs() || self.killed {
            return None;
        }
        match self.stop_sent_ns {
            Some(at_ns) if now_ns >= at_ns + KILL_AFTER_NS => {
                self.killed = true;
                Some(SIGKILL)
            }
            None if self.stop_ns.is_some_and(|at_ns| now_ns >= at_ns) => {
                self.stop_sent_ns = Some(now_ns);
                Some(self.stop_signal)
            }
            _ => None,
        }
    }

    fn next_ns(&self) -> u64 {
        match (self.asked, self.stop_sent_ns) {
            (false, _) => self.start_ns,
            (true, _) if !self.runs() || self.killed => u64::MAX,
            (true, Some(at_ns)) => at_ns + KILL_AFTER_NS,
            (true, None) => self.stop_ns.unwrap_or(u64::MAX),
        }
    }

    fn result(&self, node: &str, out: &OutDir) -> (ProcessSummary, Vec<String>) {
        let outcome = match (self.ended, self.began_ns) {
            (Some((_, how)), _) => how,
            (None, Some(_)) => Outcome::Running,
            (None, None) => Outcome::NotStarted,
        };
        let sent = self
            .stop_sent_ns
            .map(|_| if self.killed { SIGKILL } else { self.stop_signal });
        let sent = sent.filter(|_| !self.killed);
        let path = out.path().join(&self.logs.stdout_path);
        let checked = match std::fs::read(&path) {
            Ok(stdout) => self.expect.check(outcome, sent, &stdout).err().unwrap_or_default(),
            Err(error) => vec![format!("cannot read {} back: {error}", path.display())],
        };
        let command = self.command.join(" ");
        let failures = checked
            .into_iter()
            .map(|what| format!("{node}: `{command}`: {what}"))
            .collect();
        let (exit, signal) = match outcome {
            Outcome::Exited(code) => (Some(code), None),
            Outcome::Signaled(signal) => (None, Some(signal)),
            Outcome::Running | Outcome::NotStarted => (None, None),
        };
        let summary = ProcessSummary {
            node: node.to_owned(),
            pid: self.pid,
            command: self.command.clone(),
            exit,
            signal,
            start_ns: self.began_ns,
            end_ns: self.ended.map(|(at_ns, _)| at_ns),
            stdout: self.logs.stdout_path.clone(),
            stderr: self.logs.stderr_path.clone(),
            client: false,
            life: 1,
            power_off: false,
        };
        (summary, failures)
    }
}

/// The programs of a node, with their files.
fn programs(node: &Node, out: &OutDir) -> Result<Vec<Program>, PlatformError> {
    let mut programs = Vec::new();
    for (index, command) in node.setup.iter().enumerate() {
        let name = command[0].rsplit('/').next().unwrap_or_default();
        let logs = out.process_logs(&node.name, &format!("setup-{name}"), index as u32, 1)?;
        programs.push(Program::new(command, logs));
    }
    for (index, process) in node.processes.iter().enumerate() {
        let windtunnel_scenario::Exec::Command(command) = &process.exec else {
            continue; // refused before
        };
        let logs = out.process_logs(&node.name, &command[0], index as u32, 1)?;
        programs.push(Program {
            start_ns: process.start.as_ns(),
            stop_ns: process.stop.map(|at| at.as_ns()),
            stop_signal: process.stop_signal,
            expect: process.expect.clone(),
            ..Program::new(command, logs)
        });
    }
    Ok(programs)
}

/// The folder that a node has as `/`.
fn root(node: &Node) -> Result<Option<String>, PlatformError> {
    let Root::Path { path, .. } = &node.root else {
        return Ok(None);
    };
    let folder = std::path::absolute(path).map_err(|error| PlatformError::host("find the current folder", error))?;
    Ok(Some(folder.to_string_lossy().into_owned()))
}

fn spec(
    node: &Node,
    files: Vec<FileSpec>,
    out: &OutDir,
    programs: &[Program],
    rootless: bool,
) -> Result<NodeSpec, PlatformError> {
    let folder =
        std::path::absolute(out.path()).map_err(|error| PlatformError::host("find the current folder", error))?;
    let path = |relative: &str| folder.join(relative).to_string_lossy().into_owned();
    let setup_count = node.setup.len();
    let program = |(index, program): (usize, &Program)| {
        let process = index.checked_sub(setup_count).map(|index| &node.processes[index]);
        let mut env: BTreeMap<String, String> = ENVIRONMENT
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()))
            .collect();
        env.extend(process.map(|process| process.env.clone()).unwrap_or_default());
        let user = process.and_then(|process| process.user).unwrap_or_default();
        ProgramSpec {
            command: program.command.clone(),
            env,
            cwd: process
                .and_then(|process| process.cwd.clone())
                .unwrap_or_else(|| "/".into()),
            uid: user.uid,
            gid: user.gid,
            stdin: process.and_then(|process| process.stdin.clone()),
            stdout: path(&program.logs.stdout_path),
            stderr: path(&program.logs.stderr_path),
        }
    };
    Ok(NodeSpec {
        name: node.name.clone(),
        rootless,
        root: root(node)?,
        disk_bytes: node.disk_bytes.min(limits::disk_bytes_max()),
        bridge: (node.kind == NodeKind::Switch).then(|| NodeKind::BRIDGE.to_owned()),
        interfaces: node
            .interfaces
            .iter()
            .map(|interface| InterfaceSpec {
                name: interface.name.clone(),
                mac: interface.mac,
                mtu: interface.mtu,
                addresses: interface
                    .addresses
                    .iter()
                    .map(|net| (net.addr(), net.prefix_len()))
                    .collect(),
            })
            .collect(),
        sysctls: node.sysctls.clone(),
        routes: node
            .routes
            .iter()
            .map(|route| RouteSpec {
                to: (route.to.network(), route.to.prefix_len()),
                via: route.via.iter().chain(&route.also_via).copied().collect(),
                dev: route.dev.clone(),
                metric: route.metric,
            })
            .collect(),
        files,
        programs: programs.iter().enumerate().map(program).collect(),
    })
}
