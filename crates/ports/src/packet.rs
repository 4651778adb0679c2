//! An existing interface of the host, by AF_PACKET: the run is one more machine at its cable.
//!
//! Nothing of the interface is changed but that it is promiscuous while the socket lives. Offloads stay as they are: superframes are split
//! here. The host's own stack goes on to see the same frames.

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::libc;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use crate::counters::Tally;
use crate::link::{capability_error, check_name};
use crate::offload::{self, Segments, VNET_BYTES, VNET_NOTHING, VnetHeader};
use crate::outbox::{Outbox, Sent};
use crate::raw::bpf::Insn;
use crate::sys::{self, Inbox};
use crate::{DropCause, FRAME_BYTES_MAX, Port, PortCounters, PortError};

const VLAN_BYTES: usize = 4;
/// What a frame has besides the packet: a header and two VLAN tags, bytes.
const FRAME_EXTRA: usize = 14 + 2 * VLAN_BYTES;
/// Bytes of both MAC addresses: a VLAN tag comes after them.
const MACS_BYTES: usize = 12;
/// What is asked for the socket's buffer, bytes: some 100 superframes.
const BUFFER_BYTES: i32 = 8 << 20;

/// See the module.
#[derive(Debug)]
pub(crate) struct Interface {
    port: String,
    interface: String,
    mtu: u32,
    pub(crate) socket: OwnedFd,
    inbox: Inbox,
    /// What of the last batch has not been looked at yet.
    next: usize,
    count: usize,
    /// The message before `next` is a superframe that has not been handed on: how it is split, and where it ends.
    rest: Option<(Segments, usize)>,
    segment: Vec<u8>,
    outbox: Outbox,
    pub(crate) tally: Tally,
    /// What the socket's buffer had no room for.
    overflow: Cell<u64>,
    /// That it is down or gone was told.
    down: bool,
    /// A frame was longer than its MTU allows.
    longer: bool,
    /// The other end of a socket that is no packet socket has gone.
    pub(crate) ended: bool,
}

/// What a packet socket is to be like.
pub(crate) struct Setup<'a> {
    /// The MTU that the interface has to have.
    pub mtu: Option<u32>,
    /// Whether what is for other MAC addresses is wanted.
    pub promiscuous: bool,
    /// What is taken; none: everything.
    pub filter: Option<&'a [Insn]>,
}

/// A packet socket that is bound to the interface, and the interface's MTU.
pub(crate) fn packet_socket(port: &str, interface: &str, setup: &Setup<'_>) -> Result<(OwnedFd, u32), PortError> {
    check_name(port, interface)?;
    let failed = |doing: &str| {
        let doing = format!("{doing} {interface}");
        move |errno| PortError::host(port, doing, errno)
    };
    // Without a protocol nothing is received before it is bound to the one interface.
    let socket =
        socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, None).map_err(|errno| match errno {
            Errno::EPERM | Errno::EACCES => {
                capability_error(port, &format!("using the interface {interface}"), "CAP_NET_RAW")
            }
            other => PortError::host(port, "opening a packet socket", other),
        })?;
    let index = if_nametoindex(interface).map_err(|_| PortError::NoInterface {
        port: port.into(),
        interface: interface.into(),
    })?;
    let state = sys::interface_state(&socket, interface).map_err(failed("looking at the interface"))?;
    check_state(port, interface, &state, setup.mtu)?;
    for option in [libc::PACKET_VNET_HDR, libc::PACKET_AUXDATA, PACKET_IGNORE_OUTGOING] {
        sys::set_option(&socket, libc::SOL_PACKET, option, 1).map_err(failed("setting up a packet socket for"))?;
    }
    // Without CAP_NET_ADMIN the host's limit holds.
    if sys::set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, BUFFER_BYTES).is_err() {
        let _ = sys::set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, BUFFER_BYTES);
    }
    if let Some(filter) = setup.filter {
        sys::attach_filter(&socket, filter).map_err(failed("filtering a packet socket for"))?;
        sys::set_option(&socket, libc::SOL_SOCKET, libc::SO_LOCK_FILTER, 1)
            .map_err(failed("locking the filter of a packet socket for"))?;
    }
    sys::bind_packet(&socket, index, setup.promiscuous).map_err(failed("binding a packet socket to"))?;
    Ok((socket, state.mtu))
}

impl Interface {
    pub fn open(port: &str, interface: &str, mtu: Option<u32>) -> Result<Self, PortError> {
        let setup = Setup {
            mtu,
            promiscuous: true,
            filter: None,
        };
        Self::set_up(port, interface, &setup)
    }

    pub fn set_up(port: &str, interface: &str, setup: &Setup<'_>) -> Result<Self, PortError> {
        let (socket, mtu) = packet_socket(port, interface, setup)?;
        Ok(Self {
            mtu,
            ..Self::over(port, interface, socket)
        })
    }

    /// One over a socket that gives and takes messages as a packet socket does.
    pub fn over(port: &str, interface: &str, socket: OwnedFd) -> Self {
        Self {
            port: port.into(),
            interface: interface.into(),
            mtu: 0,
            socket,
            inbox: Inbox::new(VNET_BYTES + FRAME_BYTES_MAX + VLAN_BYTES),
            next: 0,
            count: 0,
            rest: None,
            segment: Vec::new(),
            outbox: Outbox::default(),
            tally: Tally::default(),
            overflow: Cell::new(0),
            down: false,
            longer: false,
            ended: false,
        }
    }

    /// Hands on the next part of a superframe; false if there is none.
    fn next_segment(&mut self, each: &mut dyn FnMut(&[u8])) -> bool {
        let Some((segments, end)) = &mut self.rest else {
            return false;
        };
        let (_, message) = self.inbox.message(self.next - 1);
        if !segments.next(&message[VNET_BYTES..*end], &mut self.segment) {
            self.rest = None;
            return false;
        }
        self.longer |= self.segment.len() > self.mtu as usize + FRAME_EXTRA;
        self.tally.passed_in(self.segment.len());
        each(&self.segment);
        true
    }

    /// Looks at the next message: hands it on if it is one whole frame, keeps it if it has to be split, or counts it. False if there is
    /// something to come of it.
    fn take_message(&mut self, each: &mut dyn FnMut(&[u8])) -> bool {
        let frame_max = self.frame_max();
        let (head, message) = self.inbox.message(self.next);
        self.next += 1;
        let Some((header, _)) = message[..head.length].split_first_chunk::<VNET_BYTES>() else {
            self.tally.dropped(DropCause::InMalformed);
            return true;
        };
        let mut header = VnetHeader::parse(header);
        let mut end = head.length;
        if let Some((kind, value)) = head.vlan.filter(|_| end >= VNET_BYTES + MACS_BYTES) {
            let at = VNET_BYTES + MACS_BYTES;
            message.copy_within(at..end, at + VLAN_BYTES);
            message[at..at + 2].copy_from_slice(&kind.to_be_bytes());
            message[at + 2..at + 4].copy_from_slice(&value.to_be_bytes());
            header = header.shifted(VLAN_BYTES as u16);
            end += VLAN_BYTES;
        }
        let frame = &mut message[VNET_BYTES..end];
        let whole = if head.truncated {
            Err(DropCause::InTooLong)
        } else {
            offload::whole(header, frame)
        };
        match whole {
            Ok(None) => {
                self.longer |= frame.len() > frame_max;
                self.tally.passed_in(frame.len());
                each(frame);
            }
            Ok(Some(segments)) => {
                self.rest = Some((segments, end));
                return false;
            }
            Err(cause) => self.tally.dropped(cause),
        }
        true
    }

    /// Longest frame that its MTU allows, bytes.
    fn frame_max(&self) -> usize {
        self.mtu as usize + FRAME_EXTRA
    }

    /// A frame was too long for the MTU that it had: tells if it has another one now.
    fn look_at_mtu(&mut self) -> Result<(), PortError> {
        self.longer = false;
        if self.mtu == 0 {
            return Ok(());
        }
        let Ok(state) = sys::interface_state(&self.socket, &self.interface) else {
            return Ok(());
        };
        let was = std::mem::replace(&mut self.mtu, state.mtu);
        if was == state.mtu {
            return Ok(());
        }
        Err(PortError::Mtu {
            port: self.port.clone(),
            interface: self.interface.clone(),
            was,
            now: state.mtu,
        })
    }

    /// The port's name.
    pub fn port(&self) -> &str {
        &self.port
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.interface
    }

    /// Tells that the broker has gone.
    fn end(&mut self) -> Result<(), PortError> {
        self.ended = true;
        Err(PortError::Lost {
            port: self.port.clone(),
            what: "the broker has ended".into(),
            hint: Some("start the run again when it is back".into()),
        })
    }

    /// Tells once that nothing passes.
    pub(crate) fn lose(&mut self) -> Result<(), PortError> {
        if std::mem::replace(&mut self.down, true) {
            return Ok(());
        }
        let gone = if_nametoindex(self.interface.as_str()).is_err();
        let hint = if gone {
            "start the run again when it is back".into()
        } else {
            format!("ip link set dev {} up", self.interface)
        };
        Err(PortError::Lost {
            port: self.port.clone(),
            what: format!(
                "the interface {} {}",
                self.interface,
                if gone { "has vanished" } else { "is down" }
            ),
            hint: Some(hint),
        })
    }
}

/// `linux/if_packet.h`, from Linux 4.20; not in libc.
const PACKET_IGNORE_OUTGOING: i32 = 23;

fn check_state(port: &str, interface: &str, state: &sys::InterfaceState, mtu: Option<u32>) -> Result<(), PortError> {
    let (what, hint) = if !state.is_ethernet {
        let hint = "the loopback, tunnels without Ethernet headers and Wi-Fi monitors cannot be link ends; a TAP port can be routed to";
        ("is not an Ethernet interface".to_string(), hint.to_string())
    } else if !state.is_up {
        ("is down".to_string(), format!("ip link set dev {interface} up"))
    } else if let Some(mtu) = mtu.filter(|mtu| *mtu != state.mtu) {
        let what = format!("has an MTU of {} bytes, and the scenario says {mtu}", state.mtu);
        (
            what,
            format!("ip link set dev {interface} mtu {mtu}; a run changes nothing of the host's interfaces"),
        )
    } else {
        return Ok(());
    };
    Err(PortError::Interface {
        port: port.into(),
        interface: interface.into(),
        what,
        hint,
    })
}

impl Port for Interface {
    fn poll_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn receive(&mut self, most: usize, each: &mut dyn FnMut(&[u8])) -> Result<usize, PortError> {
        let mut taken = 0;
        while taken < most && !self.ended {
            if self.next_segment(each) {
                taken += 1;
            } else if self.next < self.count {
                taken += usize::from(self.take_message(each));
            } else {
                (self.next, self.count) = (0, 0);
                match self.inbox.receive(&self.socket, VLAN_BYTES) {
                    Ok(count) => {
                        self.down = false;
                        // An empty message is the end of a connection: each has a header.
                        self.count = (0..count)
                            .find(|number| self.inbox.message(*number).0.length == 0)
                            .unwrap_or(count);
                        if self.count == 0 {
                            return self.end().map(|()| taken);
                        }
                    }
                    Err(Errno::ECONNRESET) => return self.end().map(|()| taken),
                    Err(Errno::EAGAIN) => break,
                    Err(Errno::EINTR) => {}
                    Err(Errno::ENETDOWN | Errno::ENXIO | Errno::ENODEV) => return self.lose().map(|()| taken),
                    Err(errno) => return Err(PortError::host(&self.port, "receiving frames", errno)),
                }
            }
        }
        if self.longer {
            self.look_at_mtu()?;
        }
        Ok(taken)
    }

    fn send(&mut self, frame: &[u8]) -> Result<(), PortError> {
        let Some(datagram) = self.outbox.begin(frame.len(), &mut self.tally) else {
            return Ok(());
        };
        datagram.extend_from_slice(&VNET_NOTHING);
        datagram.extend_from_slice(frame);
        if self.outbox.finish(frame.len()) {
            self.flush()
        } else {
            Ok(())
        }
    }

    fn flush(&mut self) -> Result<(), PortError> {
        let too_long = self.tally.drops(DropCause::OutTooLong);
        match self.outbox.send(&self.socket, None, &mut self.tally) {
            Sent::Down(_) => self.lose(),
            Sent::Nothing | Sent::Some if self.tally.drops(DropCause::OutTooLong) > too_long => self.look_at_mtu(),
            Sent::Nothing | Sent::Some => Ok(()),
        }
    }

    fn counters(&self) -> PortCounters {
        let overflow = self.overflow.get() + u64::from(sys::packet_drops(&self.socket).unwrap_or(0));
        self.overflow.set(overflow);
        let mut counters = self.tally.counters();
        if overflow > 0 {
            counters.drops.insert(DropCause::InOverflow, overflow);
        }
        counters
    }

    fn describe(&self) -> String {
        format!("interface {} of the host (MTU {})", self.interface, self.mtu)
    }
}
