//! What clients of a live run do in a node: programs on terminals and pipes of their own, and lists of processes.
//!
//! Everything that enters the node is an event with a virtual time ([`Arrived`]). What comes out, [`News`], is taken by the
//! engine between windows. Process 1 of the node holds the near ends of terminals and pipes; they are read and written
//! by its system calls, in entries of their own after each entry in which a program did something. So whoever watches, and how
//! fast, changes nothing in the node, unless it is another event.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::ops::Range;

use windtunnel_control::{End, Input, Open, Outcome as Answered, Process, Refusal, Stream};
use windtunnel_kernel::{Completed, Events, Request, abi};
use windtunnel_results::{ProcessLogs, ProcessRecord, ProcessSummary, sha256_file};
use windtunnel_scenario::Outcome;

use super::{Body, Node, NodeCalls};
use crate::configure::errno_text;
use crate::error::EngineError;
use crate::host::ProcessNews;
use crate::lifecycle::outcome_of;
use crate::processes;
use crate::terminal::{self, Ends};
use crate::visit;
use crate::window::Outbox;

/// Keys of spawns for clients are their session's number and this bit; others are the scenario's.
pub const CLIENT_KEY: u64 = 1 << 63;
/// Bytes read from, or written to, a terminal or pipe at once.
const PIECE_BYTES: usize = 8 << 10;
/// What clients hear of programs that were there when the power went.
const KILLED: End = End {
    exit: None,
    signal: Some(libc::SIGKILL),
};

/// Something that a client did.
#[derive(Debug)]
pub struct Arrived {
    /// Number of its program or question.
    pub session: u64,
    /// What.
    pub input: Input,
}

/// Something to tell a client.
#[derive(Debug)]
pub struct News {
    /// Number of its program or question.
    pub session: u64,
    /// What.
    pub what: What,
}

/// What there is to tell.
#[derive(Debug)]
pub enum What {
    /// The program runs.
    Started {
        /// Process id.
        pid: u32,
    },
    /// It printed something.
    Output(Stream, Vec<u8>),
    /// It, or its terminal, took so many bytes of input.
    InputTaken(usize),
    /// It has ended.
    Ended(End),
    /// It could not be started.
    Refused(Refusal),
    /// Its client has gone, and its terminal or pipes with it; its end is told when it comes.
    HungUp,
    /// The node's processes.
    Processes(Vec<Process>),
    /// It did what it was asked to, or cannot.
    Done(Answered),
}

/// The clients' part of a node.
#[derive(Debug, Default)]
pub struct Interaction {
    arrived: Vec<Arrived>,
    sessions: Vec<Session>,
    news: Vec<News>,
    /// Every program that clients started, in order.
    records: Vec<Record>,
    /// Requests that [`Node::call_all`] waits for.
    awaited: Range<u64>,
    completed: Vec<Completed>,
    /// System calls when terminals and pipes were last looked at.
    syscalls_seen: u64,
    /// Boots of the node before this one.
    earlier_lives: u32,
}

/// A program that somebody watches.
#[derive(Debug)]
struct Session {
    number: u64,
    ends: Ends,
    /// Input that it has not taken.
    untaken: VecDeque<u8>,
    input_over: bool,
    paused: bool,
    ended: Option<End>,
    refused: Option<Refusal>,
    output: File,
    error: File,
    /// Where these are, for messages.
    output_path: String,
}

/// What is known of a program that a client started.
#[derive(Debug)]
struct Record {
    session: u64,
    /// Life of the node, from 1.
    life: u32,
    power_off: bool,
    command: Vec<String>,
    pid: Option<u32>,
    start_ns: Option<u64>,
    end_ns: Option<u64>,
    outcome: Option<Outcome>,
    output_path: String,
    error_path: String,
}

/// A request that moves bytes.
#[derive(Clone, Copy, Debug)]
enum Job {
    Write { session: usize },
    Read { session: usize, end: usize },
}

impl Interaction {
    /// Whether there is anything to do after an entry.
    #[inline]
    pub fn is_active(&self) -> bool {
        !self.sessions.is_empty() || !self.arrived.is_empty()
    }

    /// The power of the node has gone: all programs are over.
    pub fn cut(&mut self, now_ns: u64) {
        for session in std::mem::take(&mut self.sessions) {
            let what = What::Ended(session.ended.unwrap_or(KILLED));
            let session = session.number;
            self.news.push(News { session, what });
        }
        for record in &mut self.records {
            if record.start_ns.is_some() && record.end_ns.is_none() {
                record.end_ns = Some(now_ns);
                record.power_off = true;
            }
        }
        self.arrived.clear();
    }

    /// The node has booted.
    pub fn boot(&mut self, life: u32) {
        self.earlier_lives = life - 1;
        self.syscalls_seen = 0;
    }

    /// Something a client did, at the current time.
    pub fn arrive(&mut self, arrived: Arrived) {
        self.arrived.push(arrived);
    }

    /// Takes a finished request that is waited for; gives any other back.
    #[inline]
    pub fn take_completed(&mut self, done: Completed) -> Option<Completed> {
        if !self.awaited.contains(&done.id) {
            return Some(done);
        }
        self.completed.push(done);
        None
    }

    /// A step in the life of a client's program.
    pub fn process_step(&mut self, step: ProcessNews, now_ns: u64, why: impl FnOnce() -> String) {
        let number = step.key & !CLIENT_KEY;
        let record = self.records.iter_mut().find(|record| record.session == number);
        let session = self.sessions.iter_mut().find(|session| session.number == number);
        match step.event {
            abi::PROC_STARTED => {
                let pid = step.pid as u32;
                if let Some(record) = record {
                    (record.pid, record.start_ns) = (Some(pid), Some(now_ns));
                }
                let what = What::Started { pid };
                self.news.push(News { session: number, what });
            }
            abi::PROC_EXITED => {
                let outcome = outcome_of(step.value as u32);
                // A program that failed to start ends as a process, too; that is no news.
                let has_run = record.filter(|record| record.pid.is_some());
                let left_alone = session.is_none() && has_run.is_some();
                if let Some(record) = has_run {
                    (record.end_ns, record.outcome) = (Some(now_ns), Some(outcome));
                }
                if let Some(session) = session {
                    session.ended = Some(end_of(outcome));
                }
                if left_alone {
                    let what = What::Ended(end_of(outcome));
                    self.news.push(News { session: number, what });
                }
            }
            abi::PROC_FAILED => {
                let exit_code = if step.value as i32 == libc::ENOENT { 127 } else { 126 };
                if let Some(session) = session {
                    session.refused = Some(Refusal {
                        message: format!("it could not be started: {}", why()),
                        hint: None,
                        exit_code,
                    });
                }
            }
            _ => {}
        }
    }

    /// Requests that move bytes, where there may be some to move.
    fn jobs(&self) -> (Vec<Request>, Vec<Job>) {
        let (mut requests, mut jobs) = (Vec::new(), Vec::new());
        for (index, session) in self.sessions.iter().enumerate() {
            if let Some(fd) = session.ends.input
                && !session.untaken.is_empty()
            {
                let bytes: Vec<u8> = session.untaken.iter().copied().take(PIECE_BYTES).collect();
                requests.push(terminal::write(fd, bytes));
                jobs.push(Job::Write { session: index });
            }
            for (end, &(_, fd)) in session.ends.outputs.iter().enumerate() {
                if !session.paused {
                    requests.push(terminal::read(fd, PIECE_BYTES));
                    jobs.push(Job::Read { session: index, end });
                }
            }
        }
        (requests, jobs)
    }

    /// Looks at what came of a request; whether more may come.
    fn settle(&mut self, job: Job, done: Completed) -> Result<bool, (String, std::io::Error)> {
        let moved = usize::try_from(done.result).unwrap_or(0);
        match job {
            Job::Write { session } => {
                let session = &mut self.sessions[session];
                // Nobody reads it any more: what is left is lost, as in a pipe.
                let lost = done.result < 0 && -done.result != i64::from(libc::EAGAIN);
                let taken = if lost { session.untaken.len() } else { moved };
                session.untaken.drain(..taken);
                let (session, what) = (session.number, What::InputTaken(taken));
                if taken > 0 {
                    self.news.push(News { session, what });
                }
                Ok(taken > 0)
            }
            Job::Read { session, end } => {
                let session = &mut self.sessions[session];
                let stream = session.ends.outputs[end].0;
                let bytes = terminal::bytes_read(done);
                if bytes.is_empty() {
                    return Ok(false);
                }
                let file = match stream {
                    Stream::Output => &mut session.output,
                    Stream::Error => &mut session.error,
                };
                file.write_all(&bytes)
                    .map_err(|error| (session.output_path.clone(), error))?;
                let (session, what) = (session.number, What::Output(stream, bytes));
                self.news.push(News { session, what });
                Ok(true)
            }
        }
    }
}

impl Node {
    /// A client does something at `key`'s time; nothing happens in a node that is down.
    pub fn client_input(&mut self, key: crate::event::Key, arrived: Arrived) {
        if !self.is_up() {
            return;
        }
        let body = Body::Client(Box::new(arrived));
        self.queue.push(crate::event::Event { key, body });
    }

    /// What there is to tell clients since the last call.
    pub fn take_client_news(&mut self) -> Vec<News> {
        std::mem::take(&mut self.interaction.news)
    }

    /// Programs that clients started, for the summary, in order.
    pub fn client_summaries(&self) -> impl Iterator<Item = ProcessSummary> {
        self.interaction.records.iter().map(|record| {
            let end = record.outcome.map(end_of);
            ProcessSummary {
                node: self.name().to_owned(),
                pid: record.pid,
                command: record.command.clone(),
                exit: end.and_then(|end| end.exit),
                signal: end.and_then(|end| end.signal),
                start_ns: record.start_ns,
                end_ns: record.end_ns,
                stdout: record.output_path.clone(),
                stderr: record.error_path.clone(),
                client: true,
                life: record.life,
                power_off: record.power_off,
            }
        })
    }

    /// Programs that clients started, for the digest. They are numbered after the scenario's.
    ///
    /// # Errors
    /// When their output cannot be read back.
    pub fn client_records(&self) -> Result<Vec<ProcessRecord>, EngineError> {
        let records = self.interaction.records.iter().enumerate();
        let record = |(index, record): (usize, &Record)| {
            let end = record.outcome.map(end_of);
            Ok(ProcessRecord {
                node: self.name().to_owned(),
                life: record.life,
                index: (self.programs.lifecycle.len() + index) as u32,
                pid: record.pid,
                command: record.command.clone(),
                exit: end.and_then(|end| end.exit),
                signal: end.and_then(|end| end.signal),
                start_ns: record.start_ns,
                end_ns: record.end_ns,
                stdout_sha256: sha256_file(&self.programs.path_of(&record.output_path))?,
                stderr_sha256: sha256_file(&self.programs.path_of(&record.error_path))?,
            })
        };
        records.map(record).collect()
    }

    /// Does what clients asked for at this instant, and moves the bytes of their programs.
    pub(super) fn interact(&mut self, outbox: &mut Outbox<Body>) -> Result<(), EngineError> {
        let arrived = std::mem::take(&mut self.interaction.arrived);
        let syscalls = self.machine.kernel().syscalls();
        let ended = |session: &Session| session.ended.is_some();
        let quiet = arrived.is_empty() && syscalls == self.interaction.syscalls_seen;
        if quiet && !self.interaction.sessions.iter().any(ended) {
            return Ok(());
        }
        for Arrived { session, input } in arrived {
            self.carry_out(session, input, outbox)?;
        }
        self.exchange(outbox)?;
        self.close_ended(outbox)?;
        self.interaction.syscalls_seen = self.machine.kernel().syscalls();
        Ok(())
    }

    fn carry_out(&mut self, number: u64, input: Input, outbox: &mut Outbox<Body>) -> Result<(), EngineError> {
        let at = self
            .interaction
            .sessions
            .iter()
            .position(|session| session.number == number);
        let session = at.map(|at| &mut self.interaction.sessions[at]);
        match (input, session) {
            (Input::Open(open), _) => self.open_session(number, &open, outbox)?,
            (Input::Processes(_), _) => {
                let exact = self.known_starts();
                let name = self.name().to_owned();
                let found = processes::list(&mut NodeCalls { node: self, outbox }, &name, &exact)?;
                let what = What::Processes(found);
                self.interaction.news.push(News { session: number, what });
            }
            (Input::Signal { pid, signal }, _) => {
                let done = visit::signal(&mut NodeCalls { node: self, outbox }, pid, signal)?;
                self.tell(number, done);
            }
            (Input::ReadFile(path), _) => {
                let done = visit::read_file(&mut NodeCalls { node: self, outbox }, &path)?;
                self.tell(number, done);
            }
            (Input::WriteFile { path, content, mode }, _) => {
                let bytes = content.bytes().unwrap_or_default();
                let done = visit::write_file(&mut NodeCalls { node: self, outbox }, &path, &bytes, mode)?;
                self.tell(number, done);
            }
            (Input::Text(text), Some(session)) => session.untaken.extend(text.bytes()),
            (Input::Hex(digits), Some(session)) => session.untaken.extend(Input::unhex(&digits).unwrap_or_default()),
            (Input::EndInput(_), Some(session)) => session.input_over = true,
            (Input::Pause(paused), Some(session)) => session.paused = paused,
            (Input::Resize(size), Some(session)) => {
                if let (true, Some(fd)) = (session.ends.terminal, session.ends.input) {
                    terminal::resize(&mut NodeCalls { node: self, outbox }, fd, size)?;
                }
            }
            (Input::HangUp(_), Some(_)) => self.hang_up(at.expect("it was found"), outbox)?,
            // The program has ended before its client heard of it.
            (_, None) | (Input::End(_) | Input::Link(_) | Input::Power(_), _) => {}
        }
        Ok(())
    }

    fn tell(&mut self, session: u64, answered: Answered) {
        let what = What::Done(answered);
        self.interaction.news.push(News { session, what });
    }

    /// Starts a program, and says so or why not.
    fn open_session(&mut self, number: u64, open: &Open, outbox: &mut Outbox<Body>) -> Result<(), EngineError> {
        let open = &self.programs.with_image_environment(open);
        let mut calls = NodeCalls { node: self, outbox };
        let refusal = match terminal::find(&mut calls, open)? {
            Err(refusal) => refusal,
            Ok(found) => match terminal::open(&mut calls, open.terminal)? {
                Err(refusal) => refusal,
                Ok((ends, far)) => {
                    terminal::give(&mut calls, far, &found.user)?;
                    let spec = terminal::spawn_spec(number | CLIENT_KEY, open, &found, far);
                    self.add_session(number, &found.argv, ends)?;
                    let done = self.call_all(vec![Request::Spawn(spec)], outbox)?;
                    terminal::close_all(&mut NodeCalls { node: self, outbox }, &far)?;
                    let failed = done[0].result < 0;
                    let session = self.interaction.sessions.last_mut().expect("it was added above");
                    let refused = session.refused.take().or_else(|| {
                        failed.then(|| terminal::refusal(format!("no process: {}", errno_text(-done[0].result)), 2))
                    });
                    let Some(refusal) = refused else { return Ok(()) };
                    let session = self.interaction.sessions.pop().expect("it was added above");
                    terminal::close_ends(&mut NodeCalls { node: self, outbox }, &session.ends)?;
                    refusal
                }
            },
        };
        let what = What::Refused(refusal);
        self.interaction.news.push(News { session: number, what });
        Ok(())
    }

    fn add_session(&mut self, number: u64, command: &[String], ends: Ends) -> Result<(), EngineError> {
        let index = self.programs.lifecycle.len() + self.interaction.records.len();
        let ProcessLogs {
            stdout,
            stderr,
            stdout_path,
            stderr_path,
        } = self.programs.client_logs(&command[0], index as u32)?;
        self.interaction.records.push(Record {
            session: number,
            life: self.interaction.earlier_lives + 1,
            power_off: false,
            command: command.to_vec(),
            pid: None,
            start_ns: None,
            end_ns: None,
            outcome: None,
            output_path: stdout_path.clone(),
            error_path: stderr_path,
        });
        self.interaction.sessions.push(Session {
            number,
            ends,
            untaken: VecDeque::new(),
            input_over: false,
            paused: false,
            ended: None,
            refused: None,
            output: stdout,
            error: stderr,
            output_path: stdout_path,
        });
        Ok(())
    }

    /// Moves bytes until there are none to move at this instant.
    fn exchange(&mut self, outbox: &mut Outbox<Body>) -> Result<(), EngineError> {
        loop {
            let mut more = false;
            let (requests, jobs) = self.interaction.jobs();
            if !requests.is_empty() {
                for (job, done) in jobs.into_iter().zip(self.call_all(requests, outbox)?) {
                    let settled = self.interaction.settle(job, done);
                    more |= settled.map_err(|(path, error)| EngineError::Output {
                        node: self.name().to_owned(),
                        problem: format!("{path}: {error}"),
                    })?;
                }
            }
            // Its end is something that a program may answer to.
            more |= self.close_inputs(outbox)?;
            if !more {
                return Ok(());
            }
        }
    }

    /// Closes pipes whose input is over and was taken; whether there were any.
    fn close_inputs(&mut self, outbox: &mut Outbox<Body>) -> Result<bool, EngineError> {
        let mut over = Vec::new();
        for session in &mut self.interaction.sessions {
            if session.input_over && session.untaken.is_empty() && !session.ends.terminal {
                over.extend(session.ends.input.take());
            }
        }
        terminal::close_all(&mut NodeCalls { node: self, outbox }, &over)?;
        Ok(!over.is_empty())
    }

    /// Closes what belongs to programs that have ended and whose output was all taken.
    fn close_ended(&mut self, outbox: &mut Outbox<Body>) -> Result<(), EngineError> {
        let over = |session: &Session| session.ended.is_some() && !session.paused;
        while let Some(at) = self.interaction.sessions.iter().position(over) {
            let session = self.interaction.sessions.remove(at);
            let end = session.ended.expect("it has ended");
            let (number, what) = (session.number, What::Ended(end));
            self.interaction.news.push(News { session: number, what });
            terminal::close_ends(&mut NodeCalls { node: self, outbox }, &session.ends)?;
        }
        Ok(())
    }

    /// Takes a terminal or pipes away from their program, which gets SIGHUP.
    fn hang_up(&mut self, at: usize, outbox: &mut Outbox<Body>) -> Result<(), EngineError> {
        let session = self.interaction.sessions.remove(at);
        let number = session.number;
        let record = self.interaction.records.iter().find(|record| record.session == number);
        let group = record.and_then(|record| record.pid).filter(|_| session.ended.is_none());
        let mut calls = NodeCalls { node: self, outbox };
        terminal::close_ends(&mut calls, &session.ends)?;
        // A terminal does that by itself.
        if let (false, Some(group)) = (session.ends.terminal, group) {
            terminal::hang_up_group(&mut calls, group)?;
        }
        let what = session.ended.map_or(What::HungUp, What::Ended);
        self.interaction.news.push(News { session: number, what });
        Ok(())
    }

    /// Requests carried out now, in order, in an entry of their own; all of them, finished.
    pub(super) fn call_all(
        &mut self,
        requests: Vec<Request>,
        outbox: &mut Outbox<Body>,
    ) -> Result<Vec<Completed>, EngineError> {
        let expected = requests.len();
        self.interaction.awaited = self.machine.kernel_mut().submit(requests);
        self.enter(Events::default(), outbox)?;
        self.interaction.awaited = 0..0;
        let completed = std::mem::take(&mut self.interaction.completed);
        if completed.len() != expected {
            return Err(EngineError::Internal(format!(
                "node {}: process 1 finished {} of {expected} requests",
                self.name(),
                completed.len()
            )));
        }
        Ok(completed)
    }

    /// Exact start times of processes, by process id.
    fn known_starts(&self) -> Vec<(u32, u64)> {
        let life = self.interaction.earlier_lives + 1;
        let clients = self.interaction.records.iter().filter(|record| record.life == life);
        let clients = clients.filter_map(|record| Some((record.pid?, record.start_ns?)));
        self.programs.known_starts().chain(clients).collect()
    }
}

fn end_of(outcome: Outcome) -> End {
    match outcome {
        Outcome::Exited(code) => End {
            exit: Some(code),
            signal: None,
        },
        Outcome::Signaled(signal) => End {
            exit: None,
            signal: Some(signal),
        },
        Outcome::Running | Outcome::NotStarted => End {
            exit: None,
            signal: None,
        },
    }
}
