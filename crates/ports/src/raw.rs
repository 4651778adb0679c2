//! The host's own address on an existing interface, shared with the host: some ports of TCP and UDP are the run's, all others stay the host's.
//!
//! ```text
//!  interface --copy--> packet socket (filter: owned ports only) --> run
//!            --------> host's stack: hook `input` drops what is for owned ports, so it answers with neither RST nor ICMP
//! ```
//!
//! Sockets that are bound and do nothing hold the owned ports, so no program of the host gets them. All of it goes with this process's
//! descriptors: the table of nf_tables is owned by its netlink socket. Neighbours are asked for by the run itself; the host goes on to answer what others ask for its address.

pub(crate) mod bpf;
pub(crate) mod held;
pub(crate) mod lent;
pub(crate) mod owned;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, recv, send, setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};
use windtunnel_netlink::PortRange;

use crate::interface::{HostChanges, HostInterface};
use crate::join::Joiner;
use crate::packet::{Interface, Setup, packet_socket};
use crate::poller::Poller;
use crate::{DropCause, FRAME_BYTES_MAX, FRAME_BYTES_MIN, Port, PortCounters, PortError};
use held::Held;
use lent::{Answer, Request};
use owned::Owned;

/// What is asked for the socket to the broker, bytes: some 15 superframes.
const BROKER_BUFFER_BYTES: usize = 1 << 20;
/// How long the broker may think.
const BROKER_PATIENCE_S: i64 = 10;
/// What a port may own, of TCP and UDP together: each takes a descriptor.
pub(crate) const PORTS_MAX: usize = 4096;
/// Ranges of each protocol: each takes a rule and some instructions of the filter.
pub(crate) const RANGES_MAX: usize = 64;

/// See the module.
#[derive(Debug)]
pub(crate) struct Raw {
    interface: Interface,
    owned: Owned,
    joiner: Joiner,
    /// A broker that has ended would be ready for ever.
    poller: Poller,
    /// What keeps the host away from the ports, for as long as the port lives; none: the broker has it.
    held: Option<Held>,
    /// News of the host's addresses, which the port follows; none: the broker's are those that it has lent.
    changes: Option<HostChanges>,
}

/// Takes ports of the interface's addresses from the host.
pub(crate) fn take(
    port: &str,
    interface: &str,
    tcp: &[PortRange],
    udp: &[PortRange],
) -> Result<(Owned, Held), PortError> {
    check_ranges(port, tcp, udp)?;
    let host = HostInterface::read(interface).map_err(|error| error.of_port(port))?;
    let owned = host.owned(tcp, udp);
    if owned.addresses.is_empty() {
        return Err(PortError::Interface {
            port: port.into(),
            interface: interface.into(),
            what: "has no address that could be shared".into(),
            hint: format!("ip address add ADDRESS/BITS dev {interface}; or a port of kind `interface`"),
        });
    }
    let held = Held::take(port, host.index, tcp, udp)?;
    Ok((owned, held))
}

impl Raw {
    pub fn open(port: &str, interface: &str, tcp: &[PortRange], udp: &[PortRange]) -> Result<Self, PortError> {
        // Before the addresses are read: what changes after that is news.
        let changes = HostChanges::listen().map_err(|errno| PortError::host(port, "following addresses", errno))?;
        // First the ports and the shield, then the socket: at no time does the host answer what the run has seen.
        let (owned, held) = take(port, interface, tcp, udp)?;
        let filter = owned.filter();
        let setup = Setup {
            mtu: None,
            promiscuous: false,
            filter: Some(&filter),
        };
        let interface = Interface::set_up(port, interface, &setup)?;
        Self::of(port, interface, owned, Some((held, changes)))
    }

    /// The same by the broker that listens there, which needs no capability.
    pub fn borrow(port: &str, broker: &Path, request: &Request) -> Result<Self, PortError> {
        check_ranges(port, &request.tcp, &request.udp)?;
        let absent = |error: Errno| lent::absent(port, broker, error.into());
        let socket = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).map_err(absent)?;
        let address = UnixAddr::new(broker).map_err(absent)?;
        connect(socket.as_raw_fd(), &address).map_err(absent)?;
        let _ = setsockopt(&socket, sockopt::SndBuf, &BROKER_BUFFER_BYTES);
        let failed = |error: Errno| PortError::host(port, "asking the broker", error);
        let patience = TimeVal::seconds(BROKER_PATIENCE_S);
        setsockopt(&socket, sockopt::ReceiveTimeout, &patience).map_err(failed)?;
        send(socket.as_raw_fd(), &request.to_bytes(), MsgFlags::MSG_NOSIGNAL).map_err(failed)?;
        let mut answer = vec![0; lent::WORDS_BYTES_MAX];
        let length = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty()).map_err(failed)?;
        let refused = |what: String| PortError::Value {
            port: port.into(),
            what,
        };
        let owned = match Answer::parse(&answer[..length]) {
            Ok(Answer::Granted(owned)) => owned,
            Ok(Answer::Refused(words)) => return Err(refused(format!("the broker refuses: {words}"))),
            Err(what) => return Err(refused(format!("what the broker says cannot be read: {what}"))),
        };
        let interface = Interface::over(port, &request.interface, socket);
        Self::of(port, interface, owned, None)
    }

    fn of(port: &str, interface: Interface, owned: Owned, own: Option<(Held, HostChanges)>) -> Result<Self, PortError> {
        let failed = |errno| PortError::host(port, "epoll_create", errno);
        let poller = Poller::new().map_err(failed)?;
        poller.add(&interface.socket, 0).map_err(failed)?;
        let (held, changes) = own.unzip();
        if let Some(changes) = &changes {
            poller.add(changes, 0).map_err(failed)?;
        }
        Ok(Self {
            interface,
            poller,
            owned,
            joiner: Joiner::default(),
            held,
            changes,
        })
    }

    /// Looks whether the host's addresses have changed; then the port has the new ones, by another socket: the filter of this one is locked.
    fn follow(&mut self) -> Result<(), PortError> {
        if !self.changes.as_ref().is_some_and(HostChanges::take) {
            return Ok(());
        }
        let name = self.interface.name().to_owned();
        // It has gone: that is for its socket to say.
        let Ok(host) = HostInterface::read(&name) else {
            return Ok(());
        };
        // A node keeps its MAC address.
        let owned = Owned {
            mac: self.owned.mac,
            ..host.owned(&self.owned.tcp, &self.owned.udp)
        };
        let has_all = |one: &Owned, other: &Owned| one.addresses.iter().all(|found| other.addresses.contains(found));
        if has_all(&owned, &self.owned) && has_all(&self.owned, &owned) {
            return Ok(());
        }
        let filter = owned.filter();
        let setup = Setup {
            mtu: None,
            promiscuous: false,
            filter: Some(&filter),
        };
        let port = self.interface.port();
        let (socket, _) = packet_socket(port, &name, &setup)?;
        let failed = |errno| PortError::host(port, "epoll_ctl", errno);
        self.poller.add(&socket, 0).map_err(failed)?;
        // What the old one had no room for is counted before it goes.
        self.interface.counters();
        self.poller.remove(&self.interface.socket);
        self.interface.socket = socket;
        self.owned = owned;
        Ok(())
    }
}

/// What a port of this kind can own.
pub(crate) fn check_ranges(port: &str, tcp: &[PortRange], udp: &[PortRange]) -> Result<(), PortError> {
    let wrong = |what: String| {
        Err(PortError::Value {
            port: port.into(),
            what,
        })
    };
    let count: usize = tcp.iter().chain(udp).map(|range| range.count()).sum();
    if count == 0 || count > PORTS_MAX {
        return wrong(format!(
            "it owns {count} ports of TCP and UDP: 1 to {PORTS_MAX} are allowed"
        ));
    }
    for (protocol, ranges) in [("TCP", tcp), ("UDP", udp)] {
        if ranges.len() > RANGES_MAX {
            return wrong(format!(
                "it owns {} ranges of ports of {protocol}: at most {RANGES_MAX} are allowed",
                ranges.len()
            ));
        }
        let mut sorted = ranges.to_vec();
        sorted.sort_by_key(|range| range.first);
        if let Some(pair) = sorted.windows(2).find(|pair| pair[1].first <= pair[0].last) {
            return wrong(format!("{protocol} {} and {} overlap", pair[0], pair[1]));
        }
        if let Some(range) = ranges.iter().find(|range| range.first == 0 || range.last < range.first) {
            return wrong(format!(
                "{protocol} {}-{} is no range of ports",
                range.first, range.last
            ));
        }
    }
    Ok(())
}

impl Port for Raw {
    fn poll_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }

    fn receive(&mut self, most: usize, each: &mut dyn FnMut(&[u8])) -> Result<usize, PortError> {
        let taken = self.interface.receive(most, each);
        // Where something waits, but no frame does, it is news: so no frame pays for them.
        if matches!(taken, Ok(0)) {
            self.follow()?;
        }
        if self.interface.ended && taken.is_err() {
            self.poller.remove(&self.interface.socket);
        }
        taken
    }

    fn send(&mut self, frame: &[u8]) -> Result<(), PortError> {
        let cause = match frame.len() {
            ..FRAME_BYTES_MIN => DropCause::OutMalformed,
            FRAME_BYTES_MIN..=FRAME_BYTES_MAX if self.owned.allows(frame) => {
                if self.joiner.add(frame) {
                    return Ok(());
                }
                let sent = self.flush();
                // Nothing waits now, so this one is the first.
                self.joiner.add(frame);
                return sent;
            }
            FRAME_BYTES_MIN..=FRAME_BYTES_MAX => DropCause::OutForeign,
            _ => DropCause::OutTooLong,
        };
        self.interface.tally.dropped(cause);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), PortError> {
        let (frames, bytes) = self.joiner.waiting();
        if frames == 0 {
            return Ok(());
        }
        let message = self.joiner.take();
        let tally = &mut self.interface.tally;
        let sent = loop {
            match crate::sys::send_together(self.interface.socket.as_fd(), &[message], None) {
                Err(Errno::EINTR) => {}
                sent => break sent,
            }
        };
        match sent {
            Ok(_) => tally.passed_out_many(frames, bytes),
            Err(Errno::EAGAIN | Errno::ENOBUFS | Errno::ENOMEM) => {
                tally.dropped_many(DropCause::OutFull, frames as u64)
            }
            Err(Errno::EMSGSIZE) => tally.dropped_many(DropCause::OutTooLong, frames as u64),
            Err(Errno::EPIPE | Errno::ECONNRESET) => tally.dropped_many(DropCause::OutDown, frames as u64),
            Err(Errno::ENETDOWN | Errno::ENXIO | Errno::ENODEV) => {
                tally.dropped_many(DropCause::OutDown, frames as u64);
                return self.interface.lose();
            }
            Err(_) => tally.dropped_many(DropCause::OutRefused, frames as u64),
        }
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        self.interface.counters()
    }

    fn describe(&self) -> String {
        let list = |ranges: &[PortRange]| match ranges {
            [] => "none".into(),
            ranges => ranges.iter().map(PortRange::to_string).collect::<Vec<_>>().join(", "),
        };
        let addresses: Vec<String> = self.owned.addresses.iter().map(ToString::to_string).collect();
        let by = if self.held.is_some() { "" } else { ", by the broker" };
        format!(
            "ports of the host's own address ({}) on {}{by}: TCP {}; UDP {}",
            addresses.join(", "),
            self.interface.name(),
            list(&self.owned.tcp),
            list(&self.owned.udp)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_owned_is_refused() {
        let range = |first, last| PortRange { first, last };
        let text = |tcp: &[PortRange], udp: &[PortRange]| check_ranges("p", tcp, udp).unwrap_err().to_string();
        assert_eq!(
            text(&[], &[]),
            "port p: it owns 0 ports of TCP and UDP: 1 to 4096 are allowed"
        );
        assert!(text(&[range(1, 60_000)], &[]).contains("it owns 60000 ports"));
        assert_eq!(
            text(&[range(5, 9), range(1, 5)], &[]),
            "port p: TCP 1-5 and 5-9 overlap"
        );
        let many: Vec<PortRange> = (1..=65).map(|port| range(port, port)).collect();
        assert!(text(&[], &many).contains("65 ranges"));
        assert!(check_ranges("p", &[range(1, 5)], &[range(1, 5)]).is_ok());
    }
}
