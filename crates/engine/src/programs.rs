//! The programs of a node as they are started and as they are reported: paths, files, environment.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;

use windtunnel_control::Open;
use windtunnel_kernel::{Descriptor, SpawnSpec};
use windtunnel_process::{HostFailure, ProcessHost};
use windtunnel_results::{OutDir, ProcessLogs, ProcessRecord, ProcessSummary, ResultsError, sha256_file};
use windtunnel_scenario::{Expect, Node, Outcome, Process, User};

use crate::configure::errno_text;
use crate::defaults::{Defaults, Description};
use crate::error::EngineError;
use crate::family::Family;
use crate::lifecycle::{Lifecycle, Plan, State};
use crate::machine::Life;
use crate::preflight;
use crate::shared::Shared;

/// How much of a failed command's standard error goes into the message, bytes.
const STDERR_TAIL_BYTES: i64 = 2000;
/// A program, ready to be started.
#[derive(Debug)]
struct Ready {
    path: CString,
    argv: Vec<CString>,
    envp: Vec<CString>,
    cwd: CString,
    user: User,
    stdin: Option<String>,
    /// For its output and errors; none once it cannot be started any more.
    files: Option<[File; 2]>,
    stdout_path: String,
    stderr_path: String,
}

/// The programs of one node: set-up commands first, then processes.
#[derive(Debug)]
pub struct Programs {
    /// Their lives.
    pub lifecycle: Lifecycle,
    /// The processes that they make.
    pub family: Family,
    /// The life of the node.
    pub life: Life,
    node: String,
    image_environment: Vec<(String, String)>,
    ready: Vec<Ready>,
    out: OutDir,
    /// What programs without input read from.
    no_input: Descriptor,
}

impl Programs {
    /// Checks the programs of `node`, and opens their output files. `defaults` are those of its root.
    ///
    /// # Errors
    /// When one could not be started, or a file cannot be made.
    pub fn new(
        node: &Node,
        defaults: &Defaults,
        host: &mut ProcessHost,
        out: &OutDir,
        life: &Life,
    ) -> Result<Self, EngineError> {
        let mut ready = Vec::new();
        let mut setup = Vec::new();
        for (index, command) in node.setup.iter().enumerate() {
            let label = format!("setup-{}", file_name(&command[0]));
            let logs = out.process_logs(&node.name, &label, index as u32, life.number)?;
            ready.push(Ready::new(node, &defaults.setup(command), host, logs)?);
            setup.push(setup_plan(command));
        }
        let mut processes = Vec::new();
        for (index, process) in node.processes.iter().enumerate() {
            let description = defaults.process(process).map_err(|missing| EngineError::Program {
                node: node.name.clone(),
                program: "a process without `exec`".into(),
                problem: missing.problem,
                hint: Some(missing.hint),
            })?;
            let logs = out.process_logs(&node.name, &description.exec[0], index as u32, life.number)?;
            ready.push(Ready::new(node, &description, host, logs)?);
            processes.push(process_plan(process, description.exec));
        }
        let lifecycle = Lifecycle::new(setup, processes);
        Ok(Self {
            lifecycle,
            family: Family::new(node.cpu.syscall.as_ns() > 0 || node.cpu.copy.as_ps() > 0),
            life: *life,
            node: node.name.clone(),
            image_environment: defaults.image_environment().to_vec(),
            ready,
            out: out.clone(),
            no_input: Descriptor::Null,
        })
    }

    /// The power of the node went at `now_ns`: nothing is started any more.
    pub fn cut(&mut self, now_ns: u64) {
        self.lifecycle.cut(now_ns);
        self.family.cut(now_ns);
        for ready in &mut self.ready {
            ready.files = None;
        }
    }

    /// Has programs without input read from this descriptor of process 1.
    pub fn set_no_input(&mut self, fd: i32) {
        self.no_input = Descriptor::OfInit(fd);
    }

    /// The request that starts program `index`. Its key is one above `index`.
    ///
    /// # Errors
    /// When the host refuses one of its files.
    pub fn spawn_spec(&self, index: usize, host: &mut ProcessHost) -> Result<SpawnSpec, EngineError> {
        let ready = &self.ready[index];
        let [stdout, stderr] = ready.files.as_ref().expect("the node is up");
        let descriptors = [
            ready.stdin(&self.node, host)?.unwrap_or(self.no_input),
            self.adopt(stdout, &ready.stdout_path, host)?,
            self.adopt(stderr, &ready.stderr_path, host)?,
        ];
        Ok(SpawnSpec {
            key: index as u64 + 1,
            path: ready.path.clone(),
            argv: ready.argv.clone(),
            envp: ready.envp.clone(),
            cwd: ready.cwd.clone(),
            descriptors,
            tty: false,
            uid: ready.user.uid,
            gid: ready.user.gid,
        })
    }

    /// The folder program `index` starts in.
    pub fn cwd(&self, index: usize) -> std::borrow::Cow<'_, str> {
        self.ready[index].cwd.to_string_lossy()
    }

    fn adopt(&self, file: &File, path: &str, host: &mut ProcessHost) -> Result<Descriptor, EngineError> {
        let refused = |error: &io::Error| HostFailure::of(format!("open {path} for a program"), error);
        let own = file.try_clone().map_err(|error| refused(&error))?;
        let handle = host.adopt(own.into(), path).map_err(|errno| refused(&errno.into()))?;
        Ok(Descriptor::File(handle))
    }

    /// Files for the output of a program that a client starts.
    ///
    /// # Errors
    /// When they cannot be made.
    pub fn client_logs(&self, program: &str, index: u32) -> Result<ProcessLogs, EngineError> {
        Ok(self.out.process_logs(&self.node, program, index, self.life.number)?)
    }

    /// What a client asks for, with the environment of the node's image; the client's own wins. The home is the user's.
    pub fn with_image_environment(&self, open: &Open) -> Open {
        let mut open = open.clone();
        if open.env_only {
            return open;
        }
        let image = self
            .image_environment
            .iter()
            .filter(|(name, _)| name != "HOME")
            .cloned();
        open.env = image.chain(std::mem::take(&mut open.env)).collect();
        open
    }

    /// A file of the results by its path there.
    pub fn path_of(&self, relative: &str) -> PathBuf {
        self.out.path().join(relative)
    }

    /// Process ids and start times, ns, of programs that have started.
    pub fn known_starts(&self) -> impl Iterator<Item = (u32, u64)> {
        (0..self.lifecycle.len()).filter_map(|index| {
            let course = Course::of(self.lifecycle.state(index));
            Some((course.pid?, course.start_ns?))
        })
    }

    /// The set-up command that is running, if one is.
    pub fn in_setup(&self) -> Option<&[String]> {
        let index = self.lifecycle.in_setup()?;
        Some(&self.lifecycle.plan(index).command)
    }

    /// The end of what program `index` wrote to standard error; empty if it cannot be read.
    pub fn stderr_tail(&self, index: usize) -> String {
        let mut bytes = Vec::new();
        let read = || -> std::io::Result<()> {
            let mut file = File::open(self.out.path().join(&self.ready[index].stderr_path))?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(STDERR_TAIL_BYTES as u64)))?;
            file.read_to_end(&mut bytes).map(|_| ())
        };
        let mut read = read;
        // The message is about something else: a part less is no reason to lose it.
        let _ = read();
        String::from_utf8_lossy(&bytes).trim_end().to_owned()
    }

    /// What became of program `index`, for the summary.
    pub fn summary(&self, index: usize) -> ProcessSummary {
        let Course {
            pid,
            start_ns,
            end_ns,
            exit,
            signal,
        } = Course::of(self.lifecycle.state(index));
        let logs = &self.ready[index];
        ProcessSummary {
            node: self.node.clone(),
            pid,
            command: self.lifecycle.plan(index).command.clone(),
            exit,
            signal,
            start_ns,
            end_ns,
            stdout: logs.stdout_path.clone(),
            stderr: logs.stderr_path.clone(),
            client: false,
            life: self.life.number,
            power_off: matches!(self.lifecycle.state(index), State::Cut { .. }),
        }
    }

    /// What became of program `index`, for the digest. Set-up commands are numbered after processes.
    ///
    /// # Errors
    /// When its output cannot be read back.
    pub fn record(&self, index: usize) -> Result<ProcessRecord, ResultsError> {
        let Course {
            pid,
            start_ns,
            end_ns,
            exit,
            signal,
        } = Course::of(self.lifecycle.state(index));
        let logs = &self.ready[index];
        let setup_count = self.lifecycle.setup_count();
        let place = match index.checked_sub(setup_count) {
            Some(process) => process,
            None => self.lifecycle.len() - setup_count + index,
        };
        Ok(ProcessRecord {
            node: self.node.clone(),
            life: self.life.number,
            index: place as u32,
            pid,
            command: self.lifecycle.plan(index).command.clone(),
            exit,
            signal,
            start_ns,
            end_ns,
            stdout_sha256: sha256_file(&self.out.path().join(&logs.stdout_path))?,
            stderr_sha256: sha256_file(&self.out.path().join(&logs.stderr_path))?,
        })
    }

    /// A sentence for each expectation of process `index` that does not hold.
    ///
    /// # Errors
    /// When its output cannot be read back.
    pub fn failed_expectations(&self, index: usize) -> Result<Vec<String>, EngineError> {
        let path = &self.ready[index].stdout_path;
        let stdout = match self.lifecycle.plan(index).expect.stdout.is_empty() {
            true => Vec::new(),
            false => std::fs::read(self.out.path().join(path)).map_err(|error| EngineError::Output {
                node: self.node.clone(),
                problem: format!("cannot read {path} back: {error}"),
            })?,
        };
        let command = self.lifecycle.plan(index).command.join(" ");
        let failed = self.lifecycle.check(index, &stdout).err().unwrap_or_default();
        Ok(failed
            .into_iter()
            .map(|what| format!("{}: `{command}`: {what}", self.node))
            .collect())
    }

    /// Notes what became of program `index`, for reports by others.
    pub fn keep_books(&self, index: usize, node: u32, shared: &Shared) {
        if let Some(process) = index.checked_sub(self.lifecycle.setup_count()) {
            let key = (node, self.life.number, process as u32);
            shared.processes().insert(key, self.summary(index));
        }
    }
}

/// A state as the numbers of a summary.
struct Course {
    pid: Option<u32>,
    start_ns: Option<u64>,
    end_ns: Option<u64>,
    exit: Option<i32>,
    signal: Option<i32>,
}

impl Course {
    fn of(state: State) -> Self {
        let never = Self {
            pid: None,
            start_ns: None,
            end_ns: None,
            exit: None,
            signal: None,
        };
        match state {
            State::Waiting | State::Starting | State::Failed { .. } | State::Skipped => never,
            State::Cut { pid, start_ns, end_ns } => Self {
                pid: Some(pid),
                start_ns: Some(start_ns),
                end_ns: Some(end_ns),
                ..never
            },
            State::Running { pid, start_ns } => Self {
                pid: Some(pid),
                start_ns: Some(start_ns),
                ..never
            },
            State::Ended {
                pid,
                start_ns,
                end_ns,
                how,
            } => {
                let (exit, signal) = match how {
                    Outcome::Exited(code) => (Some(code), None),
                    Outcome::Signaled(signal) => (None, Some(signal)),
                    Outcome::Running | Outcome::NotStarted => (None, None),
                };
                Self {
                    pid: Some(pid),
                    start_ns: Some(start_ns),
                    end_ns: Some(end_ns),
                    exit,
                    signal,
                }
            }
        }
    }
}

impl Ready {
    fn new(
        node: &Node,
        description: &Description,
        host: &mut ProcessHost,
        logs: ProcessLogs,
    ) -> Result<Self, EngineError> {
        let program = &description.exec[0];
        let refused = |text: String, hint: Option<String>| EngineError::Program {
            node: node.name.clone(),
            program: program.clone(),
            problem: text,
            hint,
        };
        let text =
            |text: &str| CString::new(text).map_err(|_| refused(format!("{text:?} contains a NUL character"), None));
        let path = description.env.get("PATH").map_or("", String::as_str);
        let found = preflight::resolve(
            host,
            program,
            path,
            &description.cwd,
            description.user,
            !node.setup.is_empty(),
        )
        .map_err(|problem| refused(problem.text, problem.hint))?;
        let argv = description
            .exec
            .iter()
            .map(|word| text(word))
            .collect::<Result<_, _>>()?;
        let pairs = description
            .env
            .iter()
            .map(|(name, value)| text(&format!("{name}={value}")));
        Ok(Self {
            path: text(&found)?,
            argv,
            envp: pairs.collect::<Result<_, _>>()?,
            cwd: text(&description.cwd)?,
            user: description.user,
            stdin: description.stdin.clone(),
            files: Some([logs.stdout, logs.stderr]),
            stdout_path: logs.stdout_path,
            stderr_path: logs.stderr_path,
        })
    }

    /// What it reads on standard input, if there is something.
    fn stdin(&self, node: &str, host: &mut ProcessHost) -> Result<Option<Descriptor>, EngineError> {
        let Some(text) = &self.stdin else {
            return Ok(None);
        };
        let refused = |errno: i64| EngineError::Output {
            node: node.to_owned(),
            problem: format!("cannot make a file for standard input: {}", errno_text(-errno)),
        };
        let handle = host.fs_create(0, 0);
        if handle < 0 {
            return Err(refused(handle));
        }
        let mut done = 0;
        while done < text.len() {
            let rest = &text.as_bytes()[done..];
            let wrote = host.fs_write(handle as u64, rest.as_ptr(), rest.len() as u64, done as u64);
            if wrote <= 0 {
                return Err(refused(wrote));
            }
            done += wrote as usize;
        }
        Ok(Some(Descriptor::File(handle as u64)))
    }
}

fn setup_plan(command: &[String]) -> Plan {
    Plan {
        command: command.to_vec(),
        start_ns: 0,
        stop_ns: None,
        stop_signal: 0,
        expect: Expect::default(),
    }
}

fn process_plan(process: &Process, command: Vec<String>) -> Plan {
    Plan {
        command,
        start_ns: process.start.as_ns(),
        stop_ns: process.stop.map(|at| at.as_ns()),
        stop_signal: process.stop_signal,
        expect: process.expect.clone(),
    }
}

/// The last part of a path.
fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
