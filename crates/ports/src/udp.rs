//! Frames in UDP to another run, here or elsewhere: needs no right, and each end shows the other's state.
//!
//! A frame is one datagram; those longer than the path's MTU are fragmented by IP, so an MTU of 1400 at nodes behind such a port is quicker and
//! passes firewalls that drop fragments. The socket is connected to its peer: from others the host takes nothing. The protocol is in
//! [`session`].

mod session;

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::counters::Tally;
use crate::datagram::{self, Arrivals};
use crate::outbox::{Outbox, Sent};
use crate::poller::Poller;
use crate::{DropCause, FRAME_BYTES_MAX, PeerState, Port, PortCounters, PortError};
use session::{Arrival, HEADER_BYTES, Refusal, SEAL_BYTES, Session, SessionId, VERSION};

/// How often an end says that it is there, and how often while it has no peer.
const KEEP_ALIVE: Duration = Duration::from_secs(1);
const SEEK: Duration = Duration::from_millis(250);
const SOCKET: u64 = 0;
const TIMER: u64 = 1;
/// What the other end is told of this program.
const PROGRAM: &str = concat!("windtunnel ", env!("CARGO_PKG_VERSION"));

/// See the module.
#[derive(Debug)]
pub(crate) struct Udp {
    port: String,
    local: SocketAddr,
    peer: SocketAddr,
    has_key: bool,
    socket: UdpSocket,
    timer: TimerFd,
    poller: Poller,
    session: Session,
    arrivals: Arrivals,
    outbox: Outbox,
    hello: Vec<u8>,
    tally: Tally,
    /// News of these kinds has been told.
    told_version: bool,
    told_sealed: bool,
    told_lost: bool,
    /// To be told when no datagram waits here any more: with an error a caller does not learn that some do.
    news: Option<PortError>,
}

impl Udp {
    pub fn open(port: &str, local: SocketAddr, peer: SocketAddr, key_file: Option<&Path>) -> Result<Self, PortError> {
        if local.is_ipv4() != peer.is_ipv4() || peer.port() == 0 || peer.ip().is_unspecified() {
            let what = format!(
                "frames cannot go from {local} to {peer}: both need the same family, and the peer an address and a port"
            );
            return Err(PortError::Value {
                port: port.into(),
                what,
            });
        }
        let key = key_file.map(|path| read_key(port, path)).transpose()?;
        let socket = datagram::bind(port, local)?;
        socket
            .connect(peer)
            .map_err(|error| PortError::host(port, format!("finding a way to {peer}"), error))?;
        let local = socket.local_addr().unwrap_or(local);
        let told = |doing: &'static str| move |errno: Errno| PortError::host(port, doing, errno);
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags).map_err(told("timerfd_create"))?;
        let poller = Poller::new().map_err(told("epoll_create"))?;
        poller.add(&socket, SOCKET).map_err(told("epoll_ctl"))?;
        poller.add(&timer, TIMER).map_err(told("epoll_ctl"))?;
        let mut ours = SessionId::default();
        getrandom::fill(&mut ours).map_err(|_| PortError::host(port, "getrandom", Errno::EIO))?;
        let mut udp = Self {
            port: port.into(),
            local,
            peer,
            has_key: key.is_some(),
            socket,
            timer,
            poller,
            session: Session::new(port, ours, key.as_ref()),
            arrivals: Arrivals::new(HEADER_BYTES + FRAME_BYTES_MAX + SEAL_BYTES),
            outbox: Outbox::default(),
            hello: Vec::new(),
            tally: Tally::default(),
            told_version: false,
            told_sealed: false,
            told_lost: false,
            news: None,
        };
        udp.greet();
        Ok(udp)
    }

    /// Says that we are there, and when it is to be said again.
    fn greet(&mut self) {
        self.hello.clear();
        self.session.pack_hello(PROGRAM, &mut self.hello);
        // A hello that is lost is followed by others.
        let _ = self.socket.send(&self.hello);
        let gap = if self.session.is_alive() { KEEP_ALIVE } else { SEEK };
        let again = Expiration::OneShot(TimeSpec::from_duration(gap));
        // A timer that exists can be set to any time in the future.
        let _ = self.timer.set(again, TimerSetTimeFlags::empty());
    }

    /// The timer has run out.
    fn tick(&mut self, now: Instant) -> Result<(), PortError> {
        // It has run out, so this does not wait.
        let _ = self.timer.wait();
        let gone = self.session.tick(now);
        self.greet();
        if !gone {
            return Ok(());
        }
        let seconds = session::SILENCE.as_secs();
        self.lost(format!("the peer {} has not been heard of for {seconds} s", self.peer))
    }

    fn lost(&mut self, what: String) -> Result<(), PortError> {
        if std::mem::replace(&mut self.told_lost, true) {
            return Ok(());
        }
        Err(PortError::Lost {
            port: self.port.clone(),
            what,
            hint: Some("is the other run still going, and is UDP let through in both directions?".into()),
        })
    }

    /// Counts a datagram that was refused; an error the first time that it is of another version or key.
    fn refuse(&mut self, refusal: Refusal) -> Result<(), PortError> {
        match refusal {
            Refusal::Version(theirs) => {
                self.tally.dropped(DropCause::InVersion);
                if !std::mem::replace(&mut self.told_version, true) {
                    return Err(PortError::Version {
                        port: self.port.clone(),
                        peer: self.peer.to_string(),
                        theirs,
                        ours: VERSION,
                    });
                }
            }
            Refusal::Drop(cause) => {
                self.tally.dropped(cause);
                if cause == DropCause::InForged && !std::mem::replace(&mut self.told_sealed, true) {
                    return Err(PortError::Sealed {
                        port: self.port.clone(),
                        peer: self.peer.to_string(),
                    });
                }
            }
        }
        Ok(())
    }
}

impl Port for Udp {
    fn poll_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }

    fn receive(&mut self, most: usize, each: &mut dyn FnMut(&[u8])) -> Result<usize, PortError> {
        let now = Instant::now();
        if self.poller.ready().any(|key| key == TIMER) {
            self.news = self.tick(now).err().or(self.news.take());
        }
        let mut taken = 0;
        while taken < most {
            let (head, datagram) = match self.arrivals.next(&self.socket, &mut self.tally) {
                Ok(next) => next,
                Err(Errno::EAGAIN) => break,
                // What ICMP says of a peer that is not there yet.
                Err(Errno::EINTR | Errno::ECONNREFUSED | Errno::EHOSTUNREACH | Errno::ENETUNREACH) => {
                    taken += 1;
                    continue;
                }
                Err(errno) => return Err(PortError::host(&self.port, "receiving datagrams", errno)),
            };
            taken += 1;
            if head.truncated {
                self.tally.dropped(DropCause::InTooLong);
                continue;
            }
            match self.session.take(datagram, now) {
                Ok(Arrival::Frame(frame)) => {
                    self.tally.passed_in(frame.len());
                    each(frame);
                }
                Ok(Arrival::Hello { answer }) => {
                    self.told_lost = false;
                    if answer {
                        self.greet();
                    }
                }
                Err(refusal) => self.news = self.news.take().or(self.refuse(refusal).err()),
            }
        }
        match self.news.take_if(|_| taken < most) {
            Some(news) => Err(news),
            None => Ok(taken),
        }
    }

    fn send(&mut self, frame: &[u8]) -> Result<(), PortError> {
        if !self.session.is_alive() {
            self.tally.dropped(DropCause::OutDown);
            return Ok(());
        }
        let Some(datagram) = self.outbox.begin(frame.len(), &mut self.tally) else {
            return Ok(());
        };
        self.session.pack_frame(frame, datagram);
        if self.outbox.finish(frame.len()) {
            self.flush()
        } else {
            Ok(())
        }
    }

    fn flush(&mut self) -> Result<(), PortError> {
        match self.outbox.send(&self.socket, None, &mut self.tally) {
            Sent::Nothing | Sent::Some => Ok(()),
            Sent::Down(errno) => self.lost(format!("the peer {} cannot be reached ({})", self.peer, errno.desc())),
        }
    }

    fn counters(&self) -> PortCounters {
        let mut counters = self.tally.counters();
        if self.session.lost() > 0 {
            counters.drops.insert(DropCause::InLost, self.session.lost());
        }
        counters
    }

    fn describe(&self) -> String {
        let sealed = if self.has_key { "sealed" } else { "not sealed" };
        format!("frames in UDP from {} to {} ({sealed})", self.local, self.peer)
    }

    fn peer(&self) -> Option<PeerState> {
        Some(self.session.state(Instant::now()))
    }
}

/// Reads the shared key: 64 hexadecimal digits, in a file that nobody else may read.
fn read_key(port: &str, path: &Path) -> Result<[u8; 32], PortError> {
    let wrong = |what: String, hint: String| PortError::Key {
        port: port.into(),
        path: path.into(),
        what,
        hint,
    };
    let make = || format!("(umask 077; openssl rand -hex 32 > {}) makes one", path.display());
    let read = std::fs::read(path).and_then(|bytes| Ok((bytes, std::fs::metadata(path)?.permissions().mode())));
    let (bytes, mode) = read.map_err(|error| match error.kind() {
        ErrorKind::NotFound => wrong("is not there".into(), make()),
        _ => wrong(format!("cannot be read: {error}"), "check its owner and mode".into()),
    })?;
    if mode & 0o077 != 0 {
        let what = format!("may be read or written by others (mode {:04o})", mode & 0o7777);
        return Err(wrong(what, format!("chmod 600 {}", path.display())));
    }
    let text = bytes.trim_ascii();
    if text.len() != 64 || !text.iter().all(u8::is_ascii_hexdigit) {
        return Err(wrong(
            "does not hold 64 hexadecimal digits and nothing else".into(),
            make(),
        ));
    }
    let mut key = [0; 32];
    for (byte, digits) in key.iter_mut().zip(text.chunks_exact(2)) {
        let value = |digit: u8| char::from(digit).to_digit(16).unwrap_or(0) as u8;
        *byte = value(digits[0]) << 4 | value(digits[1]);
    }
    Ok(key)
}
