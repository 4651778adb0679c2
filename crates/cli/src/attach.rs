//! Connects this process's input and output with those of a program in a node.

use crate::failure::{Failure, Outcome, SIGNAL_BASE};
use crate::live;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};
use serde_json::Value;
use std::io::{IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};
use windtunnel_control::{Connection, End, FromRun, Look, Open, Process, Refusal, Reply, Request, Stream, WindowSize};
use windtunnel_process::trap::inherited;

/// Input sent at once, bytes: less than what a socket that has room takes.
const PIECE_BYTES: usize = 16 << 10;
/// Size of a window that is not known.
const USUAL_SIZE: WindowSize = WindowSize { rows: 24, columns: 80 };
/// Signals that a terminal session looks at itself: so its terminal is restored, and a stopped client does not leave a raw one.
const WATCHED: [Signal; 6] = [
    Signal::SIGWINCH,
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGTSTP,
];

/// A terminal that passes every key on as it is; it is as before when this is dropped.
struct RawTerminal {
    before: Termios,
}

impl RawTerminal {
    fn new() -> nix::Result<Self> {
        let stdin = std::io::stdin();
        let before = tcgetattr(&stdin)?;
        let mut raw = before.clone();
        cfmakeraw(&mut raw);
        tcsetattr(&stdin, SetArg::TCSADRAIN, &raw)?;
        Ok(Self { before })
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        // The terminal may be gone.
        let _ = tcsetattr(std::io::stdin(), SetArg::TCSADRAIN, &self.before);
    }
}

/// Signals for an attached program. Those of a terminal go to all of the group that the terminal is for.
const PASSED: [(Signal, bool); 6] = [
    (Signal::SIGINT, true),
    (Signal::SIGQUIT, true),
    (Signal::SIGHUP, false),
    (Signal::SIGTERM, false),
    (Signal::SIGUSR1, false),
    (Signal::SIGUSR2, false),
];
/// How long what a program has left to its kernel may wait for the peer without getting on.
const LINGER: Duration = Duration::from_secs(10);
/// The same, where only the ends of connections have not been acknowledged.
const LINGER_FOR_ENDS: Duration = Duration::from_secs(1);
/// How often that is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// How often it is looked whether other programs have ended.
const LOOK_FOR_OTHERS: Duration = Duration::from_millis(200);

/// How a program is attached.
#[derive(Debug)]
pub struct Manner {
    /// Signals to look at; to be made before any other thread, which would take them.
    signals: Option<SignalFd>,
    /// The program gets those that come, and the keys to leave are keys.
    whole: bool,
}

impl Manner {
    /// As if the program ran in place of this one.
    ///
    /// # Errors
    /// When the host refuses it.
    pub fn of(program: &Open) -> Result<Self, Failure> {
        let passed = PASSED.iter().map(|(signal, _)| *signal);
        let heard = passed.filter(|&signal| !inherited::is_ignored(signal as i32));
        let of_terminal = program.terminal.is_some().then_some(Signal::SIGWINCH);
        let signals = watch_signals(heard.chain(of_terminal)).map_err(refused)?;
        Ok(Self {
            signals: Some(signals),
            whole: true,
        })
    }

    /// Whether a signal has come since the program has ended: somebody does not want to wait.
    fn is_impatient(&self) -> bool {
        let mut signals = self
            .signals
            .iter()
            .filter_map(|signals| signals.read_signal().ok().flatten());
        signals.any(|taken| taken.ssi_signo as i32 != Signal::SIGWINCH as i32)
    }

    /// A visitor of a node.
    fn visitor(program: &Open) -> Result<Self, Failure> {
        let signals = match program.terminal {
            Some(_) => Some(watch_signals(WATCHED.into_iter()).map_err(refused)?),
            None => None,
        };
        Ok(Self { signals, whole: false })
    }
}

fn refused(error: Errno) -> Failure {
    Failure::user("cannot set up the terminal").because(error)
}

/// Looks for the keys that leave a terminal session, as in ssh(1): `~.` at the start of a line. `~~` there is one `~`.
#[derive(Debug)]
struct LeaveKeys {
    /// What comes next is the first of its line.
    line_start: bool,
    /// A `~` that was first of its line, and has not been sent.
    held: bool,
}

impl LeaveKeys {
    fn new() -> Self {
        Self {
            line_start: true,
            held: false,
        }
    }

    /// What to send of what was typed; none: the keys were among it.
    fn filter(&mut self, typed: &[u8]) -> Option<Vec<u8>> {
        let mut sent = Vec::with_capacity(typed.len() + 1);
        for &key in typed {
            match (std::mem::take(&mut self.held), key) {
                (true, b'.') => return None,
                (true, b'~') => sent.push(b'~'),
                (true, other) => sent.extend([b'~', other]),
                (false, b'~') if self.line_start => self.held = true,
                (false, other) => sent.push(other),
            }
            self.line_start = matches!(key, b'\r' | b'\n');
        }
        Some(sent)
    }
}

/// The program on a terminal like this one's, if this is one.
pub fn on_terminal(argv: Vec<String>, user: Option<String>) -> Result<Open, Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::user("standard input is not a terminal").hint("without one: windtunnel exec NODE -- sh"));
    }
    let term = std::env::var("TERM").unwrap_or_else(|_| "dumb".into());
    Ok(Open {
        argv,
        env: [("TERM".to_owned(), term)].into(),
        env_only: false,
        terminal: Some(window_size()),
        user,
        cwd: None,
    })
}

/// Of this terminal.
pub fn window_size() -> WindowSize {
    let known = terminal_size::terminal_size_of(std::io::stdin());
    known.map_or(USUAL_SIZE, |(columns, rows)| WindowSize {
        rows: rows.0,
        columns: columns.0,
    })
}

/// Starts a program in a node and stays until it ends: its exit code.
pub fn attach(mut connection: Connection, node: &str, program: Open) -> Outcome {
    live::check_node(&connection, node)?;
    let manner = Manner::visitor(&program)?;
    match session(&mut connection, node, program, &manner, || ())? {
        Ending::Program(End { exit, signal }) => Ok(exit.unwrap_or_else(|| SIGNAL_BASE + signal.unwrap_or_default())),
        Ending::Signal(signal) => Ok(SIGNAL_BASE + signal),
        Ending::Left => {
            eprintln!("\r\nleft node {node}; its program was hung up");
            Ok(SIGNAL_BASE + Signal::SIGHUP as i32)
        }
        Ending::Refused(refusal) => Err(of_refusal(node, refusal)),
        Ending::RunOver => Err(live::over("the run has ended".into(), "")),
    }
}

/// Starts a program in a node and stays until it ends. `started` is called before anything of its output is printed.
///
/// # Errors
/// When the connection breaks, or this end of it.
pub fn session(
    connection: &mut Connection,
    node: &str,
    program: Open,
    manner: &Manner,
    started: impl FnOnce(),
) -> Result<Ending, Failure> {
    let on_terminal = program.terminal.is_some();
    connection.send(&Request::Open {
        node: node.to_owned(),
        program,
    })?;
    // Not before the program runs: what keeps it from that is told on a terminal as it was.
    if let Some(refusal) = wait_for_start(connection)? {
        return Ok(Ending::Refused(refusal));
    }
    started();
    let raw = match on_terminal {
        true => Some(RawTerminal::new().map_err(refused)?),
        false => None,
    };
    let ended = Attached {
        connection,
        input_open: true,
        leave_keys: (on_terminal && !manner.whole).then(LeaveKeys::new),
        manner,
        unsent: Vec::new(),
    }
    .stay();
    drop(raw);
    ended
}

/// Waits until the peers of a node have all that its programs have sent, or have not taken any of it for long.
///
/// # Errors
/// When the connection breaks.
pub fn linger(connection: &mut Connection, manner: &Manner) -> Result<(), Failure> {
    let (mut least, mut since) = (u64::MAX, Instant::now());
    loop {
        connection.send(&Request::Look(Look { tcp: true }))?;
        let state = loop {
            match connection.receive()? {
                Some(FromRun::Reply(Reply::State(state))) => break state,
                Some(FromRun::Reply(Reply::RunOver)) | None => return Ok(()),
                Some(_) => {}
            }
        };
        // The end of a connection counts as a byte.
        let queue = |row: &serde_json::Map<String, Value>| row.get("send_queue_bytes").and_then(Value::as_u64);
        let left = || state.tcp.iter().filter_map(queue);
        let (all, most) = (left().sum::<u64>(), left().max().unwrap_or(0));
        let now = Instant::now();
        if all < least {
            (least, since) = (all, now);
        }
        match most {
            0 => return Ok(()),
            _ if manner.is_impatient() => return Ok(()),
            1 if now > since + LINGER_FOR_ENDS => return Ok(()),
            2.. if now > since + LINGER => {
                eprintln!("attach: warning: the peer did not take the last of what was sent");
                return Ok(());
            }
            _ => std::thread::sleep(LOOK_AGAIN),
        }
    }
}

/// Waits until no program runs in a node any more, or a signal comes. `waiting` is called if there is one.
///
/// # Errors
/// When the connection breaks.
pub fn wait_for_others(
    connection: &mut Connection,
    node: &str,
    manner: &Manner,
    waiting: impl FnOnce(),
) -> Result<(), Failure> {
    let mut waiting = Some(waiting);
    loop {
        let node = Some(node.to_owned());
        connection.send(&Request::Processes { node })?;
        let found = loop {
            match connection.receive()? {
                Some(FromRun::Reply(Reply::Processes(found))) => break found,
                Some(FromRun::Reply(Reply::RunOver)) | None => return Ok(()),
                Some(_) => {}
            }
        };
        let is_over = |process: &Process| process.pid == 1 || process.state == "Z";
        if found.iter().all(is_over) || manner.is_impatient() {
            return Ok(());
        }
        if let Some(waiting) = waiting.take() {
            waiting();
        }
        std::thread::sleep(LOOK_FOR_OTHERS);
    }
}

/// Ends the run.
///
/// # Errors
/// When it is gone already.
pub fn stop(connection: &mut Connection) -> Result<(), Failure> {
    connection.send(&Request::Stop)?;
    while let Some(said) = connection.receive()? {
        if said == FromRun::Reply(Reply::RunOver) {
            break;
        }
    }
    Ok(())
}

fn of_refusal(node: &str, refusal: Refusal) -> Failure {
    let failure = Failure::user(format!("node {node}: {}", refusal.message)).code(refusal.exit_code);
    match refusal.hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

fn watch_signals(watched: impl Iterator<Item = Signal>) -> nix::Result<SignalFd> {
    let watched: SigSet = watched.collect();
    watched.thread_block()?;
    SignalFd::with_flags(&watched, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
}

/// Why it does not start; none: it does.
fn wait_for_start(connection: &mut Connection) -> Result<Option<Refusal>, Failure> {
    match connection.receive()? {
        Some(FromRun::Reply(Reply::Started { .. })) => Ok(None),
        Some(FromRun::Reply(Reply::Refused(refusal))) => Ok(Some(refusal)),
        Some(FromRun::Reply(Reply::RunOver)) | None => Err(live::over("the run has ended".into(), "")),
        Some(other) => Err(Failure::crash(format!(
            "the run sent {other:?} for the start of a program"
        ))),
    }
}

/// Why there is nothing left to do.
#[derive(Debug)]
pub enum Ending {
    /// The program has ended.
    Program(End),
    /// One of ours.
    Signal(i32),
    /// The keys for it were typed.
    Left,
    /// It could not be started.
    Refused(Refusal),
    /// The run has ended.
    RunOver,
}

struct Attached<'a> {
    connection: &'a mut Connection,
    manner: &'a Manner,
    input_open: bool,
    /// On a terminal only.
    leave_keys: Option<LeaveKeys>,
    /// Input that the run had no room for.
    unsent: Vec<u8>,
}

/// What can be done without waiting.
#[derive(Default)]
struct Ready {
    input: bool,
    run: bool,
    room: bool,
    signal: bool,
}

impl Attached<'_> {
    fn stay(&mut self) -> Result<Ending, Failure> {
        loop {
            // What came with the first messages is there already.
            while let Some(received) = self.connection.next_received()? {
                if let Some(ending) = pass_on(received)? {
                    return Ok(ending);
                }
            }
            let ready = self.wait()?;
            if ready.signal
                && let Some(ending) = self.take_signals()?
            {
                return Ok(ending);
            }
            if ready.input && !self.read_input()? {
                return Ok(Ending::Left);
            }
            if ready.room {
                self.connection.send_input(std::mem::take(&mut self.unsent))?;
            }
            if ready.run && !self.connection.read_more()? {
                return Ok(Ending::RunOver);
            }
        }
    }

    fn wait(&self) -> Result<Ready, Failure> {
        let stdin = std::io::stdin();
        // A socket with room takes all of one piece: so neither side waits for the other to read.
        let (input, output) = (PollFlags::POLLIN, PollFlags::POLLOUT);
        let wanted = if self.unsent.is_empty() { input } else { input | output };
        let mut polled = vec![PollFd::new(self.connection.as_fd(), wanted)];
        let signals_at = self.manner.signals.as_ref().map(|signals| {
            polled.push(PollFd::new(signals.as_fd(), PollFlags::POLLIN));
            polled.len() - 1
        });
        let input_at = (self.input_open && self.unsent.is_empty()).then(|| {
            polled.push(PollFd::new(stdin.as_fd(), PollFlags::POLLIN));
            polled.len() - 1
        });
        match poll(&mut polled, PollTimeout::NONE) {
            Err(Errno::EINTR) => return Ok(Ready::default()),
            Err(error) => return Err(Failure::user("cannot wait for input").because(error)),
            Ok(_) => {}
        }
        let any = |at: usize| polled[at].any().unwrap_or(true);
        let run = polled[0].revents().unwrap_or(input);
        Ok(Ready {
            run: run.intersects(!output),
            room: run.intersects(output),
            signal: signals_at.is_some_and(any),
            input: input_at.is_some_and(any),
        })
    }

    fn take_signals(&mut self) -> Result<Option<Ending>, Failure> {
        let signals = self.manner.signals.as_ref().expect("there were some");
        while let Ok(Some(taken)) = signals.read_signal() {
            let signal = taken.ssi_signo as i32;
            if signal == Signal::SIGWINCH as i32 {
                self.connection.send(&Request::Resize(window_size()))?;
            } else if self.manner.whole {
                let group = PASSED.iter().any(|&(passed, group)| passed as i32 == signal && group);
                self.connection.send(&Request::Signal { signal, group })?;
            } else if signal != Signal::SIGTSTP as i32 {
                return Ok(Some(Ending::Signal(signal)));
            }
        }
        Ok(None)
    }

    /// Reads what was typed; false: the keys to leave.
    fn read_input(&mut self) -> Result<bool, Failure> {
        let mut bytes = vec![0; PIECE_BYTES];
        match read_input(std::io::stdin().as_fd(), &mut bytes) {
            0 => {
                self.input_open = false;
                self.connection.send(&Request::EndInput)?;
            }
            length => {
                bytes.truncate(length);
                self.unsent = match &mut self.leave_keys {
                    None => bytes,
                    Some(keys) => match keys.filter(&bytes) {
                        None => return Ok(false),
                        Some(sent) => sent,
                    },
                };
            }
        }
        Ok(true)
    }
}

/// What can be read; 0: it is over, as it is when it cannot be read.
fn read_input(from: BorrowedFd<'_>, bytes: &mut [u8]) -> usize {
    loop {
        match nix::unistd::read(from, bytes) {
            Err(Errno::EINTR) => {}
            result => return result.unwrap_or(0),
        }
    }
}

/// Prints output; anything else is the end.
fn pass_on(received: FromRun) -> Result<Option<Ending>, Failure> {
    let (written, signal) = match received {
        FromRun::Output(Stream::Output, bytes) => {
            let mut out = std::io::stdout().lock();
            (out.write_all(&bytes).and_then(|()| out.flush()), Signal::SIGPIPE)
        }
        FromRun::Output(Stream::Error, bytes) => (std::io::stderr().lock().write_all(&bytes), Signal::SIGPIPE),
        FromRun::Reply(Reply::Ended(end)) => return Ok(Some(Ending::Program(end))),
        FromRun::Reply(Reply::Refused(refusal)) => return Ok(Some(Ending::Refused(refusal))),
        FromRun::Reply(Reply::RunOver) => return Ok(Some(Ending::RunOver)),
        FromRun::Reply(_) => return Ok(None),
    };
    match written {
        // Nobody reads it: hanging up tells the program.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(Some(Ending::Signal(signal as i32))),
        Err(error) => Err(Failure::user("cannot write the program's output").because(error)),
        Ok(()) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is sent of pieces that are typed one after the other; none: they leave.
    fn typed(pieces: &[&str]) -> Option<String> {
        let mut keys = LeaveKeys::new();
        let sent: Option<Vec<_>> = pieces.iter().map(|piece| keys.filter(piece.as_bytes())).collect();
        Some(String::from_utf8(sent?.concat()).unwrap())
    }

    #[test]
    fn only_the_keys_to_leave_are_taken_out() {
        for (pieces, sent) in [
            (&["ls ~/x\r"][..], "ls ~/x\r"),
            (&["cd a~.b\r"], "cd a~.b\r"),
            (&["~/bin/x\r~", "user\r"], "~/bin/x\r~user\r"),
            (&["~~.\r"], "~.\r"),
            (&["\r~", "~", "~."], "\r~~."),
        ] {
            assert_eq!(typed(pieces).as_deref(), Some(sent));
        }
        for pieces in [&["~."][..], &["~", "."], &["ls\r~."], &["x\r", "~", ".", "more"]] {
            assert_eq!(typed(pieces), None);
        }
    }
}
