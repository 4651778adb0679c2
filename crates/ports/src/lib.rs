//! Ports to the outside: where a run that follows the wall clock meets the real network.
//!
//! ```text
//!  link of a run  --send-->  Port  --->  TAP, interface of the host, UDP, VXLAN, stream socket
//!                 <-each---        <---
//! ```
//!
//! One file for each kind, behind the trait [`Port`]; [`open`] makes one of what a scenario says ([`PortSpec`]). A port holds one
//! file descriptor to wait on and never blocks. What comes from outside is not trusted: whatever is not a whole frame is dropped and
//! counted by cause ([`DropCause`]), and no more is kept than the host's socket buffers and a fixed number of frames hold.
//!
//! No port leaves anything behind: what it makes belongs to its file descriptors, so the host's kernel removes it with them, also
//! when the process is killed.
#![deny(unsafe_code)]

mod counters;
mod datagram;
mod error;
mod interface;
mod join;
mod link;
mod needs;
mod offload;
mod outbox;
mod packet;
mod poller;
mod raw;
mod spec;
mod stream;
mod sys;
mod tap;
mod udp;
mod vxlan;

use std::fmt::Debug;
use std::os::fd::BorrowedFd;
use std::time::Duration;

pub use counters::{DropCause, PortCounters};
pub use error::PortError;
pub use interface::{HostChanges, HostInterface, HostRoute, InterfaceError};
pub use needs::{Availability, availability, tap_availability, user_namespaces};
pub use raw::held::free_ports;
pub use raw::lent::{Answer, BROKER_SOCKET, Lent, MESSAGE_BYTES_MAX, Request, WORDS_BYTES_MAX};
pub use raw::owned::Owned;
pub use spec::{PortSpec, StreamAddress, Subnet};
pub use sys::peer_groups;
pub use windtunnel_netlink::PortRange;

/// Longest frame that passes a port, bytes: a maximal IP packet behind an Ethernet header with two VLAN tags.
pub const FRAME_BYTES_MAX: usize = 65_535 + 14 + 8;
/// Shortest frame that passes a port, bytes: an Ethernet header.
pub const FRAME_BYTES_MIN: usize = 14;

/// A link end outside the run. Frames are whole Ethernet frames without FCS, from [`FRAME_BYTES_MIN`] to [`FRAME_BYTES_MAX`] bytes;
/// shorter ones than 60 bytes are not padded.
///
/// Errors after opening are news, not the end: a port that has lost its interface or its peer says so once, with the first call
/// that notices, and goes on; what cannot pass meanwhile is dropped and counted. It works again when the cause has gone.
pub trait Port: Send + Debug {
    /// Becomes readable when something waits to be received or done; level-triggered, for epoll. It is the same descriptor
    /// for the life of the port. Call [`Port::receive`] then, also where no frame is wanted: it does the port's own work as well (keep-alives,
    /// new connections, what a full socket has not yet taken).
    fn poll_fd(&self) -> BorrowedFd<'_>;

    /// Takes at most `most` frames that have arrived, without waiting, and calls `each` for every one: what a wire would carry,
    /// that is no longer than the sender's MTU, with valid checksums where the host left them to its hardware. Returns how many it has looked at, with
    /// those that it dropped. If these are `most`, more may wait in the port itself, where [`Port::poll_fd`] does not show them: call again
    /// before waiting.
    ///
    /// # Errors
    /// News for the user: see [`Port`]. Frames may have been given to `each` before; what still waits, [`Port::poll_fd`] shows.
    fn receive(&mut self, most: usize, each: &mut dyn FnMut(&[u8])) -> Result<usize, PortError>;

    /// Sends one frame. What cannot be taken now is dropped and counted by cause, never waited for. It may be gathered with
    /// others until [`Port::flush`].
    ///
    /// # Errors
    /// News for the user: see [`Port`].
    fn send(&mut self, frame: &[u8]) -> Result<(), PortError>;

    /// Ends a batch of sends: what was gathered goes out.
    ///
    /// # Errors
    /// News for the user: see [`Port`].
    fn flush(&mut self) -> Result<(), PortError> {
        Ok(())
    }

    /// What has passed so far, and what was dropped.
    fn counters(&self) -> PortCounters;

    /// One line for users: what the wire is.
    fn describe(&self) -> String;

    /// What is known of the other side, for kinds where that is one program.
    fn peer(&self) -> Option<PeerState> {
        None
    }
}

/// What a port knows of the program at the other end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerState {
    /// It is there and has answered.
    pub connected: bool,
    /// What it calls itself: the name of its port.
    pub name: Option<String>,
    /// The version of its program.
    pub version: Option<String>,
    /// Since it was heard of last.
    pub seen_ago: Option<Duration>,
    /// Frames that it has sent and that did not arrive here.
    pub lost_in: Option<u64>,
    /// Frames from here that did not arrive there, by its last report.
    pub lost_out: Option<u64>,
}

/// Makes the port that `spec` describes. `name` is what the scenario calls it, for messages.
///
/// # Errors
/// What the host refuses, with the capability that is missing where it is that, and what to do in [`PortError::hint`].
pub fn open(spec: &PortSpec, name: &str) -> Result<Box<dyn Port>, PortError> {
    Ok(match spec {
        PortSpec::Tap {
            name: interface,
            addresses,
            mtu,
            netns,
        } => Box::new(tap::Tap::open(
            name,
            interface.as_deref(),
            addresses,
            *mtu,
            netns.as_deref(),
        )?),
        PortSpec::Interface { name: interface, mtu } => Box::new(packet::Interface::open(name, interface, *mtu)?),
        PortSpec::Raw {
            interface,
            tcp,
            udp,
            broker,
        } => Box::new(match broker {
            None => raw::Raw::open(name, interface, tcp, udp)?,
            Some(broker) => {
                let request = Request {
                    interface: interface.clone(),
                    tcp: tcp.clone(),
                    udp: udp.clone(),
                };
                raw::Raw::borrow(name, broker, &request)?
            }
        }),
        PortSpec::Vxlan {
            vni,
            local,
            peer,
            port,
            mtu,
        } => Box::new(vxlan::Vxlan::open(name, *vni, (*local, *peer), *port, *mtu)?),
        PortSpec::Stream { at, listen } => Box::new(stream::Stream::open(name, at, *listen)?),
        PortSpec::Udp { local, peer, key_file } => Box::new(udp::Udp::open(name, *local, *peer, key_file.as_deref())?),
    })
}
