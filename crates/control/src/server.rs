//! The run's end of connections: threads that pass on what comes and goes, and never touch the simulation.
//!
//! One thread accepts; each connection has one that reads and one that writes what the socket does not take at once. What clients send is put into the
//! simulation's [`Inbox`] as it comes, up to a bound of input that no program has taken; what the simulation sends is
//! queued without a bound, and it stops reading a program's output while [`Client::queued_bytes`] is large.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, send};

use crate::bell::Ringer;
use crate::frame::{Decoder, Frame, FrameError, Stream};
use crate::message::{Hello, Refusal, Reply, Request};
use crate::{ControlError, place};

/// Input that no program has taken, bytes; more is left in the socket.
const INPUT_MAX: usize = 1 << 20;
/// How often to look whether it was taken.
const LOOK_AGAIN_MS: u16 = 10;
/// How long clients have to take the last words of a run.
const LAST_WORDS: Duration = Duration::from_secs(1);
const READ_BYTES: usize = 64 << 10;

/// Something a client did.
#[derive(Debug)]
pub enum Incoming {
    /// It asks for something.
    Request {
        /// Who.
        client: Client,
        /// What.
        request: Request,
    },
    /// It sends input for its program.
    Input {
        /// Number of the client.
        client: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// A driver sends input for one of its programs.
    InputFor {
        /// Number of the client.
        client: u64,
        /// Number of the program.
        program: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// It closed the connection.
    Gone {
        /// Number of the client.
        client: u64,
    },
}

/// What clients did, in order.
#[derive(Debug)]
pub struct Inbox {
    incoming: Receiver<Incoming>,
    full: Arc<AtomicBool>,
}

impl Inbox {
    /// Whether there may be something; costs next to nothing.
    #[inline]
    pub fn has_something(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// The oldest that is there, waiting for it as long as `patience`.
    pub fn take(&self, patience: Duration) -> Option<Incoming> {
        // Cleared before it is looked into: what comes later sets it again.
        self.full.store(false, Ordering::SeqCst);
        let taken = match self.incoming.try_recv() {
            Ok(incoming) => Some(incoming),
            Err(_) if patience.is_zero() => None,
            Err(_) => match self.incoming.recv_timeout(patience) {
                Ok(incoming) => Some(incoming),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => {
                    thread::sleep(patience);
                    None
                }
            },
        };
        if taken.is_some() {
            self.full.store(true, Ordering::SeqCst);
        }
        taken
    }
}

/// A client as the simulation sees it. The connection is closed when the last clone is gone.
#[derive(Clone, Debug)]
pub struct Client {
    /// Its number; no two of a run are equal.
    pub number: u64,
    stream: Arc<UnixStream>,
    outgoing: Sender<Vec<u8>>,
    amounts: Arc<Amounts>,
    /// Held while something is sent, so that frames stay whole and in order.
    turn: Arc<Mutex<()>>,
}

/// Bytes on their way.
#[derive(Debug, Default)]
struct Amounts {
    /// To the client.
    queued: AtomicUsize,
    /// From the client, not taken by its program.
    untaken: AtomicUsize,
}

impl Client {
    /// Sends a message. A client that is gone does not hear it.
    pub fn reply(&self, reply: &Reply) {
        self.send(&Frame::message(reply));
    }

    /// Sends output of its program.
    pub fn output(&self, stream: Stream, bytes: Vec<u8>) {
        self.send(&Frame::Output(stream, bytes));
    }

    /// Sends output of one of a driver's programs.
    pub fn output_of(&self, program: u64, stream: Stream, bytes: Vec<u8>) {
        self.send(&Frame::OutputOf(program, stream, bytes));
    }

    fn send(&self, frame: &Frame) {
        let mut bytes = frame.to_bytes();
        let _turn = self.turn.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        // What the socket takes at once need not go through the thread that writes, which costs more than all else.
        if self.amounts.queued.load(Ordering::Acquire) == 0 {
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
            let sent = send(self.stream.as_raw_fd(), &bytes, flags).unwrap_or(0);
            bytes.drain(..sent);
        }
        if bytes.is_empty() {
            return;
        }
        self.amounts.queued.fetch_add(bytes.len(), Ordering::Relaxed);
        // The receiver is gone when the client is.
        let _ = self.outgoing.send(bytes);
    }

    /// Output that waits for the client to take it, bytes.
    pub fn queued_bytes(&self) -> usize {
        self.amounts.queued.load(Ordering::Relaxed)
    }

    /// The program has taken so much of the input.
    pub fn input_taken(&self, bytes: usize) {
        self.amounts.untaken.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// A run's socket, and the threads behind it. Dropping it ends all connections and removes the socket.
#[derive(Debug)]
pub struct Server {
    socket: PathBuf,
    door: Arc<Door>,
    accepting: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Door {
    greeting: Vec<u8>,
    incoming: Sender<Incoming>,
    full: Arc<AtomicBool>,
    ringer: Option<Ringer>,
    closing: AtomicBool,
    next_client: AtomicU64,
    connections: Mutex<Vec<Connection>>,
}

#[derive(Debug)]
struct Connection {
    stream: UnixStream,
    writing: JoinHandle<()>,
}

impl Server {
    /// Listens on a new socket, and rings when something has come. To be called before the simulation thread sets its traps, which its threads inherit.
    ///
    /// # Errors
    /// When the host refuses it.
    pub fn start(hello: Hello, ringer: Option<Ringer>) -> Result<(Self, Inbox), ControlError> {
        let (listener, socket) = place::listen()?;
        let (sender, incoming) = channel();
        let full = Arc::new(AtomicBool::new(false));
        let door = Arc::new(Door {
            greeting: Frame::message(&Reply::Hello(hello)).to_bytes(),
            incoming: sender,
            full: full.clone(),
            ringer,
            closing: AtomicBool::new(false),
            next_client: AtomicU64::new(1),
            connections: Mutex::new(Vec::new()),
        });
        let own = door.clone();
        let accepting = thread::Builder::new()
            .name("control".into())
            .spawn(move || accept(&own, &listener));
        let accepting = accepting.map_err(|source| ControlError::Socket {
            action: "start a thread for",
            path: socket.clone(),
            source,
        })?;
        let server = Self {
            socket,
            door,
            accepting: Some(accepting),
        };
        Ok((server, Inbox { incoming, full }))
    }

    /// Where it listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.door.closing.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts.
        let woken = UnixStream::connect(&self.socket).is_ok();
        place::remove(&self.socket);
        if let Some(accepting) = self.accepting.take().filter(|_| woken) {
            // A panic in it has been printed.
            let _ = accepting.join();
        }
        let mut connections = self
            .door
            .connections
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        let deadline = Instant::now() + LAST_WORDS;
        for connection in connections.iter() {
            // Readers end, and with them the last senders; writers then end when all is written.
            let _ = connection.stream.shutdown(Shutdown::Read);
        }
        while connections.iter().any(|connection| !connection.writing.is_finished()) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(2));
        }
        for connection in connections.drain(..) {
            let _ = connection.stream.shutdown(Shutdown::Both);
        }
    }
}

/// Takes connections until the server closes.
fn accept(door: &Arc<Door>, listener: &UnixListener) {
    for stream in listener.incoming() {
        if door.closing.load(Ordering::SeqCst) {
            return;
        }
        match stream.and_then(|stream| connect(door, stream)) {
            Ok(connection) => {
                let mut connections = door.connections.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                connections.retain(|connection| !connection.writing.is_finished());
                connections.push(connection);
            }
            // Out of descriptors or memory: that may pass, and the run is more important.
            Err(_) => thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// Starts the threads of a connection.
fn connect(door: &Arc<Door>, stream: UnixStream) -> std::io::Result<Connection> {
    let (outgoing, to_write) = channel();
    let client = Client {
        number: door.next_client.fetch_add(1, Ordering::Relaxed),
        stream: Arc::new(stream.try_clone()?),
        outgoing,
        amounts: Arc::default(),
        turn: Arc::default(),
    };
    // Nobody else has it yet.
    let _ = client.outgoing.send(door.greeting.clone());
    client.amounts.queued.store(door.greeting.len(), Ordering::Relaxed);
    let (writer, amounts) = (stream.try_clone()?, client.amounts.clone());
    let writing = thread::Builder::new()
        .name("control-out".into())
        .spawn(move || write(writer, &to_write, &amounts))?;
    let (reader, door) = (stream.try_clone()?, door.clone());
    thread::Builder::new().name("control-in".into()).spawn(move || {
        let number = client.number;
        read(&door, reader, client);
        door.pass_on(Incoming::Gone { client: number });
    })?;
    Ok(Connection { stream, writing })
}

/// Writes until there is nobody left to write for, or to.
fn write(mut stream: UnixStream, to_write: &Receiver<Vec<u8>>, amounts: &Amounts) {
    for bytes in to_write {
        if stream.write_all(&bytes).is_err() {
            break;
        }
        amounts.queued.fetch_sub(bytes.len(), Ordering::Release);
    }
    let _ = stream.shutdown(Shutdown::Both);
}

/// Reads until the client closes, or sends what is no protocol of ours.
fn read(door: &Door, mut stream: UnixStream, client: Client) {
    let mut decoder = Decoder::default();
    let mut bytes = vec![0; READ_BYTES];
    while let Some(length) = stream.read(&mut bytes).ok().filter(|&length| length > 0) {
        decoder.push(&bytes[..length]);
        loop {
            match decoder.next_frame() {
                Ok(None) => break,
                Ok(Some(frame)) => match incoming(frame, &client) {
                    Ok(incoming) => door.pass_on(incoming),
                    Err(error) => return refuse(&client, &error),
                },
                Err(error) => return refuse(&client, &error),
            }
        }
        if !wait_until_taken(&stream, &client) {
            return;
        }
    }
}

fn incoming(frame: Frame, client: &Client) -> Result<Incoming, FrameError> {
    match frame {
        Frame::Message(json) => Ok(Incoming::Request {
            client: client.clone(),
            request: serde_json::from_slice(&json).map_err(|error| FrameError::Message(error.to_string()))?,
        }),
        Frame::Input(bytes) => {
            client.amounts.untaken.fetch_add(bytes.len(), Ordering::Relaxed);
            Ok(Incoming::Input {
                client: client.number,
                bytes,
            })
        }
        // Without a bound: what comes after it on the connection may be what lets the program take it.
        Frame::InputFor(program, bytes) => Ok(Incoming::InputFor {
            client: client.number,
            program,
            bytes,
        }),
        Frame::Output(..) | Frame::OutputOf(..) => Err(FrameError::Message("clients have no output".into())),
    }
}

fn refuse(client: &Client, error: &FrameError) {
    client.reply(&Reply::Refused(Refusal {
        message: error.to_string(),
        hint: None,
        exit_code: 2,
    }));
}

/// Waits while there is too much input that no program has taken; false: the client has gone meanwhile.
fn wait_until_taken(stream: &UnixStream, client: &Client) -> bool {
    while client.amounts.untaken.load(Ordering::Relaxed) > INPUT_MAX {
        let mut polled = [PollFd::new(stream.as_fd(), PollFlags::empty())];
        let gone = poll(&mut polled, PollTimeout::from(LOOK_AGAIN_MS));
        if gone.is_ok_and(|count| count > 0) {
            return false;
        }
    }
    true
}

impl Door {
    fn pass_on(&self, incoming: Incoming) {
        // Without a simulation there is nobody to hear it.
        let _ = self.incoming.send(incoming);
        self.full.store(true, Ordering::SeqCst);
        if let Some(ringer) = &self.ringer {
            ringer.ring();
        }
    }
}
