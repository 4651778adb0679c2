//! The stream socket of QEMU (`-netdev stream`, `-netdev socket`) and passt (`passt --socket`): before each frame its length, 4 bytes, big endian.
//!
//! One peer at a time. Where it goes away, the port waits for the next one, or connects again. Only programs of the same user, and root, are
//! taken at a Unix socket.
//!
//! QEMU writes frame by frame, and sends none of the padding that Ethernet's shortest frame needs on a cable. Peers rely on both: passt of 2023
//! drops a packet that is shorter than its frame, so all acknowledgements that carry no data, and is out of step for good if a read ends in the
//! middle of a length.

use std::fmt::Debug;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrLike, SockaddrStorage, UnixAddr, connect, getpeername, getsockopt,
    socket, sockopt,
};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::unistd::getuid;

use crate::counters::Tally;
use crate::poller::Poller;
use crate::{DropCause, FRAME_BYTES_MAX, FRAME_BYTES_MIN, PeerState, Port, PortCounters, PortError, StreamAddress};

const LENGTH_BYTES: usize = 4;
/// The longest frame that QEMU sends (`NET_BUFSIZE`), bytes: what is longer is no length at all.
const LENGTH_MAX: usize = 4096 + 65_536;
/// What is read with one call, bytes.
const BUFFER_BYTES: usize = 256 << 10;
/// What may wait to be written, bytes. A peer whose TCP ends there, as passt's does, may be no good at losses: this is more than a window of its.
const WAITING_BYTES: usize = 8 << 20;
/// What is written with one call, bytes, unless it is a single frame: Linux keeps this much together in a Unix socket (`SKB_MAX_ALLOC` and
/// `UNIX_SKB_FRAGS_SZ`, net/unix/af_unix.c), so no read ends within.
const PIECE_BYTES: usize = 32 << 10;
/// The shortest frame on a cable, bytes without FCS (`ETH_ZLEN`): what is shorter is padded.
const PADDED_BYTES: usize = 60;
/// How long after a failure the next attempt to connect comes.
const RETRY: Duration = Duration::from_millis(250);

/// Keys in the set of descriptors.
const LISTENER: u64 = 0;
const TIMER: u64 = 1;
const CONNECTION: u64 = 2;

/// See the module.
#[derive(Debug)]
pub(crate) struct Stream {
    port: String,
    at: StreamAddress,
    role: Role,
    connection: Option<Connection>,
    poller: Poller,
    tally: Tally,
    /// That nobody is there was told.
    told: bool,
}

#[derive(Debug)]
enum Role {
    Listens(Listener),
    /// With the timer of the next attempt.
    Connects(TimerFd),
}

#[derive(Debug)]
struct Listener {
    socket: ListenerSocket,
    /// The file to be removed at the end.
    file: Option<PathBuf>,
}

#[derive(Debug)]
enum ListenerSocket {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// Bytes both ways.
trait Pipe: Read + Write + AsFd + Send + Debug {}
impl<T: Read + Write + AsFd + Send + Debug> Pipe for T {}

/// One peer.
#[derive(Debug)]
struct Connection {
    pipe: Box<dyn Pipe>,
    /// It has been asked for but is not there yet (TCP).
    pending: bool,
    input: Vec<u8>,
    /// What of `input` holds bytes that have not been looked at.
    from: usize,
    until: usize,
    output: Vec<u8>,
    /// What of `output` has been written.
    written: usize,
    /// Bytes after these that belong to a piece whose writing has begun: whole frames, but for what the socket has taken of them.
    begun: usize,
    /// The set of descriptors also waits for room to write.
    waits_to_write: bool,
}

impl Stream {
    pub fn open(port: &str, at: &StreamAddress, listen: bool) -> Result<Self, PortError> {
        let told = |doing: &'static str| move |errno: Errno| PortError::host(port, doing, errno);
        let poller = Poller::new().map_err(told("epoll_create"))?;
        check_place(port, at)?;
        let role = if listen {
            let listener = Listener::open(at).map_err(|source| listen_error(port, at, source))?;
            poller.add(&listener, LISTENER).map_err(told("epoll_ctl"))?;
            Role::Listens(listener)
        } else {
            let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
            let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags).map_err(told("timerfd_create"))?;
            poller.add(&timer, TIMER).map_err(told("epoll_ctl"))?;
            Role::Connects(timer)
        };
        let mut stream = Self {
            port: port.into(),
            at: at.clone(),
            role,
            connection: None,
            poller,
            tally: Tally::default(),
            told: false,
        };
        stream.seek();
        Ok(stream)
    }

    /// Tries to connect, for a port that connects: if that fails, again later.
    fn seek(&mut self) {
        let Role::Connects(timer) = &self.role else { return };
        match reach(&self.at) {
            Ok((pipe, pending)) => self.begin(pipe, pending),
            Err(_) => {
                let later = Expiration::OneShot(TimeSpec::from_duration(RETRY));
                // A timer that exists can be set to any time in the future.
                let _ = timer.set(later, TimerSetTimeFlags::empty());
            }
        }
    }

    fn begin(&mut self, pipe: Box<dyn Pipe>, pending: bool) {
        let connection = Connection::new(pipe, pending);
        if self.poller.add(connection.pipe.as_fd(), CONNECTION).is_ok() {
            self.connection = Some(connection);
            self.told = pending;
            if pending {
                self.wait_to_write(true);
            }
        }
    }

    /// The peer has gone, or never came.
    fn lose(&mut self, why: &str) -> Result<(), PortError> {
        if let Some(connection) = self.connection.take() {
            self.poller.remove(connection.pipe.as_fd());
        }
        if let Role::Connects(timer) = &self.role {
            let later = Expiration::OneShot(TimeSpec::from_duration(RETRY));
            // As above.
            let _ = timer.set(later, TimerSetTimeFlags::empty());
        }
        if std::mem::replace(&mut self.told, true) {
            return Ok(());
        }
        Err(PortError::Lost {
            port: self.port.clone(),
            what: format!("the peer at {} {why}", self.at),
            hint: None,
        })
    }

    fn wait_to_write(&mut self, wait: bool) {
        if let Some(connection) = &mut self.connection
            && connection.waits_to_write != wait
        {
            // The descriptor is in the set for as long as there is a connection.
            let _ = self.poller.writable_too(connection.pipe.as_fd(), CONNECTION, wait);
            connection.waits_to_write = wait;
        }
    }

    /// Takes a new peer; where there is one, others are sent away.
    fn accept(&mut self) {
        let Role::Listens(listener) = &self.role else { return };
        while let Ok((pipe, is_own)) = listener.accept() {
            if self.connection.is_some() || !is_own {
                self.tally.dropped(DropCause::InStranger);
            } else {
                self.begin(pipe, false);
                return;
            }
        }
    }

    /// Looks whether a connection has come about.
    fn finish_connecting(&mut self) -> Result<(), PortError> {
        let Some(connection) = self.connection.as_mut().filter(|connection| connection.pending) else {
            return Ok(());
        };
        let fd = connection.pipe.as_fd();
        if getsockopt(&fd, sockopt::SocketError) != Ok(0) {
            return self.lose("does not answer");
        }
        let peer: Result<SockaddrStorage, Errno> = getpeername(fd.as_raw_fd());
        if peer.is_ok() {
            (connection.pending, self.told) = (false, false);
            self.wait_to_write(false);
        }
        Ok(())
    }

    /// Writes what waits. True if nothing is left.
    fn write(&mut self) -> Result<bool, PortError> {
        let Some(connection) = self.connection.as_mut().filter(|connection| !connection.pending) else {
            return Ok(true);
        };
        match connection.write() {
            Ok(all) => {
                self.wait_to_write(!all);
                Ok(all)
            }
            Err(_) => self.lose("has closed the connection").map(|()| true),
        }
    }
}

impl Port for Stream {
    fn poll_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }

    fn receive(&mut self, most: usize, each: &mut dyn FnMut(&[u8])) -> Result<usize, PortError> {
        let (mut taken, mut knocks) = (0, false);
        for key in self.poller.ready() {
            match key {
                LISTENER => knocks = true,
                TIMER => {
                    if let Role::Connects(timer) = &self.role {
                        // It has run out, so this does not wait.
                        let _ = timer.wait();
                    }
                    if self.connection.is_none() {
                        self.seek();
                    }
                }
                _ => {
                    self.finish_connecting()?;
                    self.write()?;
                }
            }
        }
        while taken < most {
            let Some(connection) = self.connection.as_mut().filter(|connection| !connection.pending) else {
                break;
            };
            match connection.next_frame() {
                Next::Frame(frame) => {
                    match frame.len() {
                        ..FRAME_BYTES_MIN => self.tally.dropped(DropCause::InMalformed),
                        FRAME_BYTES_MIN..=FRAME_BYTES_MAX => {
                            self.tally.passed_in(frame.len());
                            each(frame);
                        }
                        _ => self.tally.dropped(DropCause::InTooLong),
                    }
                    taken += 1;
                }
                Next::Nonsense(length) => {
                    self.tally.dropped(DropCause::InMalformed);
                    let why = format!("sent a frame of {length} bytes, which is none; the connection was closed");
                    return self.lose(&why).map(|()| taken);
                }
                Next::Nothing => match connection.read() {
                    Ok(0) => return self.lose("has closed the connection").map(|()| taken),
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(_) => return self.lose("has closed the connection").map(|()| taken),
                },
            }
        }
        // Only now it is known whether the last peer has gone.
        if knocks {
            self.accept();
        }
        Ok(taken)
    }

    fn send(&mut self, frame: &[u8]) -> Result<(), PortError> {
        let frame = without_padding(frame);
        match frame.len() {
            ..FRAME_BYTES_MIN => self.tally.dropped(DropCause::OutMalformed),
            FRAME_BYTES_MIN..=FRAME_BYTES_MAX => {
                let Some(connection) = self.connection.as_mut().filter(|connection| !connection.pending) else {
                    self.tally.dropped(DropCause::OutDown);
                    return Ok(());
                };
                if !connection.has_room(frame.len()) {
                    self.write()?;
                }
                match &mut self.connection {
                    None => self.tally.dropped(DropCause::OutDown),
                    Some(connection) if connection.has_room(frame.len()) => {
                        connection.put(frame);
                        self.tally.passed_out(frame.len());
                    }
                    Some(_) => self.tally.dropped(DropCause::OutFull),
                }
            }
            _ => self.tally.dropped(DropCause::OutTooLong),
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), PortError> {
        self.write().map(drop)
    }

    fn counters(&self) -> PortCounters {
        self.tally.counters()
    }

    fn describe(&self) -> String {
        let what = match self.role {
            Role::Listens(_) => "waits for a peer",
            Role::Connects(_) => "connects",
        };
        format!("stream socket {} ({what})", self.at)
    }

    fn peer(&self) -> Option<PeerState> {
        Some(PeerState {
            connected: self.connection.as_ref().is_some_and(|connection| !connection.pending),
            ..PeerState::default()
        })
    }
}

/// What is next in the bytes that have come.
enum Next<'a> {
    Frame(&'a [u8]),
    /// A length that none can have.
    Nonsense(usize),
    Nothing,
}

impl Connection {
    fn new(pipe: Box<dyn Pipe>, pending: bool) -> Self {
        Self {
            pipe,
            pending,
            input: vec![0; BUFFER_BYTES],
            from: 0,
            until: 0,
            output: Vec::new(),
            written: 0,
            begun: 0,
            waits_to_write: false,
        }
    }

    /// The next whole frame.
    fn next_frame(&mut self) -> Next<'_> {
        let waiting = &self.input[self.from..self.until];
        let Some((length, rest)) = waiting.split_first_chunk::<LENGTH_BYTES>() else {
            return Next::Nothing;
        };
        let length = u32::from_be_bytes(*length) as usize;
        if length == 0 || length > LENGTH_MAX {
            return Next::Nonsense(length);
        }
        let Some(frame) = rest.get(..length) else {
            return Next::Nothing;
        };
        self.from += LENGTH_BYTES + length;
        Next::Frame(frame)
    }

    /// Reads more; there is always room, for the buffer is longer than any frame.
    fn read(&mut self) -> io::Result<usize> {
        self.input.copy_within(self.from..self.until, 0);
        (self.from, self.until) = (0, self.until - self.from);
        let bytes = self.pipe.read(&mut self.input[self.until..])?;
        self.until += bytes;
        Ok(bytes)
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.output.len() - self.written + LENGTH_BYTES + bytes <= WAITING_BYTES
    }

    fn put(&mut self, frame: &[u8]) {
        self.output.extend_from_slice(&(frame.len() as u32).to_be_bytes());
        self.output.extend_from_slice(frame);
    }

    /// Bytes of the whole frames at the start of `waiting` that are written together: one at least, if there is any.
    fn piece(waiting: &[u8]) -> usize {
        let mut end = 0;
        while let Some((length, _)) = waiting[end..].split_first_chunk::<LENGTH_BYTES>() {
            let next = end + LENGTH_BYTES + u32::from_be_bytes(*length) as usize;
            if end > 0 && next > PIECE_BYTES {
                break;
            }
            end = next;
        }
        end
    }

    /// Writes what the socket takes now. True if that was all.
    fn write(&mut self) -> io::Result<bool> {
        while self.written < self.output.len() {
            if self.begun == 0 {
                self.begun = Self::piece(&self.output[self.written..]);
            }
            match self.pipe.write(&self.output[self.written..self.written + self.begun]) {
                Ok(bytes) => {
                    self.written += bytes;
                    self.begun -= bytes;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    // Not each time: what waits would be moved more often than it is written.
                    if 2 * self.written >= self.output.len() {
                        self.output.drain(..self.written);
                        self.written = 0;
                    }
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        self.output.clear();
        self.written = 0;
        Ok(true)
    }
}

/// The frame as it was before it was padded for a cable, where its header says how long its packet is.
fn without_padding(frame: &[u8]) -> &[u8] {
    if frame.len() > PADDED_BYTES {
        return frame;
    }
    let Some((header, packet)) = frame.split_at_checked(FRAME_BYTES_MIN) else {
        return frame;
    };
    let bytes = |at: usize| {
        packet
            .get(at..at + 2)
            .map(|two| usize::from(u16::from_be_bytes([two[0], two[1]])))
    };
    let length = match header[12..] {
        // Total length.
        [0x08, 0x00] => bytes(2),
        // Two hardware and two protocol addresses.
        [0x08, 0x06] => packet
            .get(4..6)
            .map(|sizes| 8 + 2 * usize::from(sizes[0]) + 2 * usize::from(sizes[1])),
        // Payload length.
        [0x86, 0xdd] => bytes(4).map(|payload| 40 + payload),
        _ => None,
    };
    // A length that is less than any header is damage, for the receiver to see.
    let end = length
        .filter(|length| *length >= 20)
        .map(|length| FRAME_BYTES_MIN + length);
    end.and_then(|end| frame.get(..end)).unwrap_or(frame)
}

/// The abstract name, for a path that begins with `@`.
fn abstract_name(path: &Path) -> Option<&[u8]> {
    path.as_os_str().as_bytes().strip_prefix(b"@")
}

impl Listener {
    fn open(at: &StreamAddress) -> io::Result<Self> {
        let (socket, file) = match at {
            StreamAddress::Tcp(address) => (ListenerSocket::Tcp(TcpListener::bind(address)?), None),
            StreamAddress::Unix(path) => match abstract_name(path) {
                Some(name) => {
                    let address = UnixAddress::from_abstract_name(name)?;
                    (ListenerSocket::Unix(UnixListener::bind_addr(&address)?), None)
                }
                None => (ListenerSocket::Unix(listen_at(path)?), Some(path.clone())),
            },
        };
        match &socket {
            ListenerSocket::Unix(socket) => socket.set_nonblocking(true)?,
            ListenerSocket::Tcp(socket) => socket.set_nonblocking(true)?,
        }
        Ok(Self { socket, file })
    }

    /// The next peer, and whether it may be one.
    fn accept(&self) -> io::Result<(Box<dyn Pipe>, bool)> {
        match &self.socket {
            ListenerSocket::Unix(socket) => {
                let (stream, _) = socket.accept()?;
                stream.set_nonblocking(true)?;
                let uid = getsockopt(&stream, sockopt::PeerCredentials).map(|peer| peer.uid());
                let is_own = uid.is_ok_and(|uid| uid == 0 || uid == getuid().as_raw());
                Ok((Box::new(stream), is_own))
            }
            ListenerSocket::Tcp(socket) => {
                let (stream, _) = socket.accept()?;
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                Ok((Box::new(stream), true))
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            ListenerSocket::Unix(socket) => socket.as_fd(),
            ListenerSocket::Tcp(socket) => socket.as_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            // Somebody may have removed it.
            let _ = std::fs::remove_file(file);
        }
    }
}

/// Listens at a file. One that a killed process has left, where nobody listens, is replaced.
fn listen_at(path: &Path) -> io::Result<UnixListener> {
    let listener = match UnixListener::bind(path) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            let is_socket = std::fs::symlink_metadata(path)?.file_type().is_socket();
            let is_dead = UnixStream::connect(path).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
            if !is_socket || !is_dead {
                return Err(error);
            }
            std::fs::remove_file(path)?;
            UnixListener::bind(path)?
        }
        other => other?,
    };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Begins to connect; true if that takes longer.
fn reach(at: &StreamAddress) -> Result<(Box<dyn Pipe>, bool), Errno> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let new = |family| socket(family, SockType::Stream, flags, None);
    let go = |fd: &OwnedFd, address: &dyn SockaddrLike| match connect(fd.as_raw_fd(), address) {
        Ok(()) => Ok(false),
        Err(Errno::EINPROGRESS) => Ok(true),
        Err(errno) => Err(errno),
    };
    match at {
        StreamAddress::Tcp(address) => {
            let family = if address.is_ipv4() {
                AddressFamily::Inet
            } else {
                AddressFamily::Inet6
            };
            let fd = new(family)?;
            let pending = go(&fd, &SockaddrStorage::from(*address))?;
            let stream = TcpStream::from(fd);
            // It only saves time.
            let _ = stream.set_nodelay(true);
            Ok((Box::new(stream), pending))
        }
        StreamAddress::Unix(path) => {
            let fd = new(AddressFamily::Unix)?;
            let address = match abstract_name(path) {
                Some(name) => UnixAddr::new_abstract(name)?,
                None => UnixAddr::new(path)?,
            };
            let pending = go(&fd, &address)?;
            Ok((Box::new(UnixStream::from(fd)), pending))
        }
    }
}

/// Whether there can be a socket of this name at all.
fn check_place(port: &str, at: &StreamAddress) -> Result<(), PortError> {
    let StreamAddress::Unix(path) = at else { return Ok(()) };
    let address = match abstract_name(path) {
        Some(name) => UnixAddr::new_abstract(name),
        None => UnixAddr::new(path),
    };
    address.map(drop).map_err(|_| PortError::Value {
        port: port.into(),
        what: format!("the path {at} is too long for a Unix socket: at most 107 bytes are allowed"),
    })
}

fn listen_error(port: &str, at: &StreamAddress, source: io::Error) -> PortError {
    let hint = match source.kind() {
        ErrorKind::AddrInUse => {
            Some("another program listens there, or the file is no socket; choose another place".into())
        }
        ErrorKind::NotFound => Some("make the folder first".into()),
        ErrorKind::PermissionDenied => {
            Some("choose a folder of your own, or an abstract socket (@NAME), which has no file".into())
        }
        ErrorKind::AddrNotAvailable => {
            Some("the address must be one of this host; `ip -brief address` lists them".into())
        }
        _ => None,
    };
    PortError::Host {
        port: port.into(),
        doing: format!("listening at {at}"),
        source,
        hint,
    }
}
