//! The broker: a daemon that gives ordinary users ports of the host's own address, as far as the administrator allows (`windtunnel broker`).
//!
//! One thread, one epoll set. For each client it holds its ports, a packet socket and a table of nf_tables; all of that goes when the client's connection
//! or the broker ends, also by `kill -9`. Frames pass through it in both directions, checked on the way out: `windtunnel_ports::Lent` says why.
//! Memory is bounded: so many clients, one message at a time, and the buffers of their sockets. What a client does not read is dropped.
#![forbid(unsafe_code)]

mod config;

pub use config::{Client, Config, ConfigError};

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockType, UnixAddr, bind, connect, getsockopt, listen, recv, send,
    setsockopt, socket, sockopt,
};
use windtunnel_ports::{Answer, Lent, MESSAGE_BYTES_MAX, Request, WORDS_BYTES_MAX};

/// Clients at a time.
pub const CLIENTS_MAX: usize = 64;
/// Of them, of one user.
pub const CLIENTS_OF_USER_MAX: usize = 8;
/// How long a client may take to ask, and the administrator's rules to be looked at.
const REQUEST_PATIENCE: Duration = Duration::from_secs(5);
/// Messages that are passed for one client before the others have their turn.
const TURN: usize = 64;
/// What is asked for the buffers of a client's socket, bytes.
const BUFFER_BYTES: usize = 1 << 20;

const LISTENER: u64 = 0;
const SIGNALS: u64 = 1;
/// Keys of clients are even from here on: that of the connection; the packet socket's is the one after.
const FIRST: u64 = 2;

/// Why the broker cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    /// Another one listens there.
    #[error("a broker listens at {} already", .0.display())]
    Running(PathBuf),
    /// The host refused something.
    #[error("{doing} failed: {source}")]
    Host {
        /// What was tried.
        doing: String,
        /// What the host said.
        source: std::io::Error,
    },
}

fn failed(doing: impl Into<String>) -> impl FnOnce(Errno) -> BrokerError {
    let doing = doing.into();
    move |errno| BrokerError::Host {
        doing,
        source: errno.into(),
    }
}

/// Somebody who is connected.
#[derive(Debug)]
struct Session {
    socket: OwnedFd,
    client: Client,
    since: Instant,
    /// None: it has not asked yet.
    lent: Option<Lent>,
    /// Frames that it was not allowed to send.
    refused: u64,
}

/// The daemon.
#[derive(Debug)]
pub struct Broker {
    config: Config,
    path: PathBuf,
    epoll: Epoll,
    listener: UnixListener,
    signals: SignalFd,
    sessions: BTreeMap<u64, Session>,
    next: u64,
    buffer: Vec<u8>,
    /// What is worth a line of the log.
    log: fn(&str),
}

impl Broker {
    /// Listens at `path`, whose folder is made if need be. SIGTERM and SIGINT end [`Broker::run`] from now on, of this thread. `log` gets lines for the administrator.
    ///
    /// # Errors
    /// That another broker is there, or what the host refused.
    pub fn open(path: &Path, config: Config, log: fn(&str)) -> Result<Self, BrokerError> {
        let listening = format!("listening at {}", path.display());
        let host = |source| BrokerError::Host {
            doing: listening.clone(),
            source,
        };
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(host)?;
        }
        let make = || {
            socket(
                AddressFamily::Unix,
                SockType::SeqPacket,
                SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
                None,
            )
        };
        let address = UnixAddr::new(path).map_err(failed(&listening))?;
        let probe = make().map_err(failed(&listening))?;
        match connect(probe.as_raw_fd(), &address) {
            Ok(()) | Err(Errno::EAGAIN) => return Err(BrokerError::Running(path.into())),
            // The file of one that was killed.
            Err(Errno::ECONNREFUSED) => std::fs::remove_file(path).map_err(host)?,
            Err(_) => {}
        }
        let listener = make().map_err(failed(&listening))?;
        bind(listener.as_raw_fd(), &address).map_err(failed(&listening))?;
        // Everybody may ask; the rules say who gets something.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666)).map_err(host)?;
        listen(&listener, Backlog::new(16).unwrap_or(Backlog::MAXCONN)).map_err(failed(&listening))?;
        let mut signals = SigSet::empty();
        signals.add(Signal::SIGTERM);
        signals.add(Signal::SIGINT);
        signals.thread_block().map_err(failed("blocking signals"))?;
        let signals = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
            .map_err(failed("signalfd"))?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(failed("epoll_create"))?;
        let wait = |fd: BorrowedFd<'_>, key| epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, key));
        wait(listener.as_fd(), LISTENER).map_err(failed("epoll_ctl"))?;
        wait(signals.as_fd(), SIGNALS).map_err(failed("epoll_ctl"))?;
        Ok(Self {
            config,
            path: path.into(),
            epoll,
            // Its type is that of a stream, which accepting does not ask for.
            listener: UnixListener::from(listener),
            signals,
            sessions: BTreeMap::new(),
            next: FIRST,
            buffer: vec![0; MESSAGE_BYTES_MAX + 1],
            log,
        })
    }

    /// Serves until a signal ends it, and removes the socket's file.
    ///
    /// # Errors
    /// What the host refused.
    pub fn run(mut self) -> Result<(), BrokerError> {
        let mut events = [EpollEvent::empty(); 64];
        loop {
            let waiting = self.sessions.values().any(|session| session.lent.is_none());
            let timeout = if waiting {
                EpollTimeout::from(500_u16)
            } else {
                EpollTimeout::NONE
            };
            let count = match self.epoll.wait(&mut events, timeout) {
                Err(Errno::EINTR) => 0,
                other => other.map_err(failed("epoll_wait"))?,
            };
            for event in &events[..count] {
                match event.data() {
                    LISTENER => self.accept(),
                    SIGNALS => {
                        let _ = self.signals.read_signal();
                        let _ = std::fs::remove_file(&self.path);
                        return Ok(());
                    }
                    key => self.serve(key),
                }
            }
            let late: Vec<u64> = (self.sessions.iter())
                .filter(|(_, session)| session.lent.is_none() && session.since.elapsed() > REQUEST_PATIENCE)
                .map(|(key, _)| *key)
                .collect();
            for key in late {
                self.end(key, "asked for nothing");
            }
        }
    }

    fn accept(&mut self) {
        // One that has gone again is no matter, nor is it if there are no descriptors: it is asked again.
        let Ok((socket, _)) = self.listener.accept() else {
            return;
        };
        if socket.set_nonblocking(true).is_err() {
            return;
        }
        let socket = OwnedFd::from(socket);
        let Ok(peer) = getsockopt(&socket, sockopt::PeerCredentials) else {
            return;
        };
        let refuse = |words: String| {
            let _ = send(
                socket.as_raw_fd(),
                &Answer::Refused(words).to_bytes(),
                MsgFlags::MSG_NOSIGNAL,
            );
        };
        let of_user = self
            .sessions
            .values()
            .filter(|session| session.client.uid == peer.uid())
            .count();
        if self.sessions.len() >= CLIENTS_MAX {
            return refuse(format!("it has {CLIENTS_MAX} clients already"));
        }
        if of_user >= CLIENTS_OF_USER_MAX {
            return refuse(format!(
                "user {} has {CLIENTS_OF_USER_MAX} connections already",
                peer.uid()
            ));
        }
        let mut gids = windtunnel_ports::peer_groups(&socket).unwrap_or_default();
        gids.push(peer.gid());
        let _ = setsockopt(&socket, sockopt::SndBufForce, &BUFFER_BYTES);
        let key = self.next;
        self.next += 2;
        if self
            .epoll
            .add(&socket, EpollEvent::new(EpollFlags::EPOLLIN, key))
            .is_ok()
        {
            let client = Client { uid: peer.uid(), gids };
            let session = Session {
                socket,
                client,
                since: Instant::now(),
                lent: None,
                refused: 0,
            };
            self.sessions.insert(key, session);
        }
    }

    /// Does what a descriptor is ready for: an even key is a connection, an odd one the packet socket of the one before.
    fn serve(&mut self, key: u64) {
        let owner = key & !1;
        let Some(session) = self.sessions.get_mut(&owner) else {
            return;
        };
        let done = match &session.lent {
            None => self.ask(owner),
            Some(lent) if key != owner => inward(lent, &session.socket, &mut self.buffer),
            Some(lent) => outward(lent, &session.socket, &mut self.buffer, &mut session.refused),
        };
        if let Err(why) = done {
            self.end(owner, &why);
        }
    }

    /// Reads what a client asks for, and gives it.
    fn ask(&mut self, key: u64) -> Result<(), String> {
        let Some(session) = self.sessions.get_mut(&key) else {
            return Ok(());
        };
        let length = match recv(session.socket.as_raw_fd(), &mut self.buffer, MsgFlags::empty()) {
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(()),
            Err(errno) => return Err(errno.to_string()),
            Ok(0) => return Err("it has gone".into()),
            Ok(length) if length > WORDS_BYTES_MAX => return Err("its request is too long".into()),
            Ok(length) => length,
        };
        let granted = Request::parse(&self.buffer[..length])
            .map_err(|what| format!("the request cannot be read: {what}"))
            .and_then(|request| {
                self.config.allows(&session.client, &request)?;
                let name = format!("of user {}", session.client.uid);
                let lent = Lent::open(&name, &request);
                lent.map_err(|error| match error.hint() {
                    Some(hint) => format!("{error}; hint: {hint}"),
                    None => error.to_string(),
                })
            });
        let answer = match &granted {
            Ok(lent) => Answer::Granted(lent.owned().clone()),
            Err(words) => Answer::Refused(words.clone()),
        };
        let sent = send(session.socket.as_raw_fd(), &answer.to_bytes(), MsgFlags::MSG_NOSIGNAL);
        let lent = granted?;
        sent.map_err(|errno| errno.to_string())?;
        (self.epoll.add(lent.fd(), EpollEvent::new(EpollFlags::EPOLLIN, key + 1)))
            .map_err(|errno| errno.to_string())?;
        let owned = lent.owned();
        (self.log)(&format!(
            "client {key}: user {} has TCP {:?} and UDP {:?}",
            session.client.uid,
            owned.tcp.iter().map(ToString::to_string).collect::<Vec<_>>(),
            owned.udp.iter().map(ToString::to_string).collect::<Vec<_>>()
        ));
        session.lent = Some(lent);
        Ok(())
    }

    /// Closing its descriptors gives back all that it had.
    fn end(&mut self, key: u64, why: &str) {
        if let Some(session) = self.sessions.remove(&key) {
            let refused = match session.refused {
                0 => String::new(),
                frames => format!("; {frames} frames of it were not its own to send"),
            };
            (self.log)(&format!("client {key}: user {}: {why}{refused}", session.client.uid));
        }
    }
}

/// From the interface to the client. What it does not read is dropped: its buffer is full.
fn inward(lent: &Lent, client: &OwnedFd, buffer: &mut [u8]) -> Result<(), String> {
    for _ in 0..TURN {
        match recv(lent.fd().as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT) {
            Ok(length) if length > MESSAGE_BYTES_MAX => {}
            Ok(length) => match send(
                client.as_raw_fd(),
                &buffer[..length],
                MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL,
            ) {
                Ok(_) | Err(Errno::EAGAIN | Errno::EINTR | Errno::EMSGSIZE | Errno::ENOBUFS | Errno::ENOMEM) => {}
                Err(_) => return Err("it has gone".into()),
            },
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => break,
            // Told once; it comes again when the interface is up.
            Err(Errno::ENETDOWN) => break,
            Err(errno) => return Err(format!("its interface: {errno}")),
        }
    }
    Ok(())
}

/// From the client to the interface, what it may send. What the interface does not take is dropped.
fn outward(lent: &Lent, client: &OwnedFd, buffer: &mut [u8], refused: &mut u64) -> Result<(), String> {
    for _ in 0..TURN {
        match recv(client.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT) {
            Ok(0) => return Err("it has gone".into()),
            Ok(length) if length <= MESSAGE_BYTES_MAX && lent.allows(&buffer[..length]) => {
                let _ = send(lent.fd().as_raw_fd(), &buffer[..length], MsgFlags::MSG_DONTWAIT);
            }
            Ok(_) => *refused += 1,
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => break,
            Err(_) => return Err("it has gone".into()),
        }
    }
    Ok(())
}
