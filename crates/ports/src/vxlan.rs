//! VXLAN (RFC 7348) to one peer: a switch, a router, or a vxlan device of Linux (`nolearning`, one `remote`).
//!
//! A kernel of the same host leaves the work of network cards undone where datagrams never meet one: superframes and checksums that cover
//! the pseudo header only. Both are finished here, as nothing says so.
//!
//! The source port is the port that is listened at, not a hash of the frame. Longer frames than the path takes are fragmented by IP.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::SockaddrStorage;

use crate::counters::Tally;
use crate::datagram::{self, Arrivals};
use crate::offload::{self, Segments};
use crate::outbox::{Outbox, Sent};
use crate::{DropCause, FRAME_BYTES_MAX, FRAME_BYTES_MIN, Port, PortCounters, PortError, sys};

/// The port that IANA gave it.
const PORT: u16 = 4789;
const HEADER_BYTES: usize = 8;
/// What is left of 1500 bytes after Ethernet, IPv4, UDP and VXLAN headers.
const MTU: u32 = 1450;
const MTU_MIN: u32 = 68;
const MTU_MAX: u32 = 65_535;
const VNI_MAX: u32 = (1 << 24) - 1;
/// The header has a VNI.
const FLAG_VNI: u8 = 0x08;
/// `linux/udp.h`: take datagrams without a checksum over IPv6 too, as the RFC demands; not in libc for Linux.
const UDP_NO_CHECK6_RX: i32 = 102;

/// See the module.
#[derive(Debug)]
pub(crate) struct Vxlan {
    port: String,
    vni: u32,
    mtu: usize,
    local: SocketAddr,
    peer: SocketAddr,
    to: SockaddrStorage,
    socket: UdpSocket,
    arrivals: Arrivals,
    /// The last datagram holds a superframe that has not been handed on: how it is split, and where it ends.
    rest: Option<(Segments, usize)>,
    segment: Vec<u8>,
    outbox: Outbox,
    tally: Tally,
    down: bool,
}

impl Vxlan {
    pub fn open(
        port: &str,
        vni: u32,
        (local, peer): (IpAddr, IpAddr),
        udp_port: Option<u16>,
        mtu: Option<u32>,
    ) -> Result<Self, PortError> {
        let refuse = |what: String| {
            Err(PortError::Value {
                port: port.into(),
                what,
            })
        };
        if vni > VNI_MAX {
            return refuse(format!("a VNI of {vni} is not possible: 0 to {VNI_MAX} are allowed"));
        }
        if local.is_ipv4() != peer.is_ipv4() {
            return refuse(format!(
                "{local} and {peer} are of different families: both must be IPv4, or both IPv6"
            ));
        }
        let mtu = mtu.unwrap_or(MTU);
        if !(MTU_MIN..=MTU_MAX).contains(&mtu) {
            return refuse(format!(
                "an MTU of {mtu} bytes is not possible: {MTU_MIN} to {MTU_MAX} are allowed"
            ));
        }
        let udp_port = udp_port.unwrap_or(PORT);
        let (local, peer) = (SocketAddr::new(local, udp_port), SocketAddr::new(peer, udp_port));
        let socket = datagram::bind(port, local)?;
        if local.is_ipv6() {
            sys::set_option(&socket, libc::IPPROTO_UDP, UDP_NO_CHECK6_RX, 1)
                .map_err(|errno| PortError::host(port, "setting up UDP", errno))?;
        }
        Ok(Self {
            port: port.into(),
            vni,
            mtu: mtu as usize,
            local,
            peer,
            to: peer.into(),
            socket,
            arrivals: Arrivals::new(HEADER_BYTES + FRAME_BYTES_MAX),
            rest: None,
            segment: Vec::new(),
            outbox: Outbox::default(),
            tally: Tally::default(),
            down: false,
        })
    }
}

impl Vxlan {
    /// Hands on the next part of a superframe; false if there is none.
    fn next_segment(&mut self, each: &mut dyn FnMut(&[u8])) -> bool {
        let Some((segments, end)) = &mut self.rest else {
            return false;
        };
        let frame = &self.arrivals.current()[HEADER_BYTES..*end];
        if !segments.next(frame, &mut self.segment) {
            self.rest = None;
            return false;
        }
        self.tally.passed_in(self.segment.len());
        each(&self.segment);
        true
    }
}

/// The frame in a datagram, or why there is none.
fn frame_of(datagram: &mut [u8], vni: u32) -> Result<&mut [u8], DropCause> {
    let (header, frame) = datagram
        .split_first_chunk_mut::<HEADER_BYTES>()
        .ok_or(DropCause::InMalformed)?;
    if header[0] & FLAG_VNI == 0 || frame.len() < FRAME_BYTES_MIN {
        return Err(DropCause::InMalformed);
    }
    if header[4..7] != vni.to_be_bytes()[1..] {
        return Err(DropCause::InStranger);
    }
    Ok(frame)
}

impl Port for Vxlan {
    fn poll_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn receive(&mut self, most: usize, each: &mut dyn FnMut(&[u8])) -> Result<usize, PortError> {
        let mut taken = 0;
        while taken < most {
            if self.next_segment(each) {
                taken += 1;
                continue;
            }
            let (head, datagram) = match self.arrivals.next(&self.socket, &mut self.tally) {
                Ok(next) => next,
                Err(Errno::EAGAIN) => break,
                Err(Errno::EINTR) => continue,
                Err(errno) => return Err(PortError::host(&self.port, "receiving datagrams", errno)),
            };
            taken += 1;
            if head.truncated || head.from != Some(self.peer.ip()) {
                let cause = if head.truncated {
                    DropCause::InTooLong
                } else {
                    DropCause::InStranger
                };
                self.tally.dropped(cause);
                continue;
            }
            let end = datagram.len();
            let frame = match frame_of(datagram, self.vni) {
                Ok(frame) => frame,
                Err(cause) => {
                    self.tally.dropped(cause);
                    continue;
                }
            };
            let header = offload::unfinished(frame, self.mtu).unwrap_or_default();
            match offload::whole(header, frame) {
                Ok(None) => {
                    self.tally.passed_in(frame.len());
                    each(frame);
                }
                Ok(Some(segments)) => {
                    self.rest = Some((segments, end));
                    taken -= 1;
                }
                Err(cause) => self.tally.dropped(cause),
            }
        }
        Ok(taken)
    }

    fn send(&mut self, frame: &[u8]) -> Result<(), PortError> {
        let Some(datagram) = self.outbox.begin(frame.len(), &mut self.tally) else {
            return Ok(());
        };
        let vni = self.vni.to_be_bytes();
        datagram.extend_from_slice(&[FLAG_VNI, 0, 0, 0, vni[1], vni[2], vni[3], 0]);
        datagram.extend_from_slice(frame);
        if self.outbox.finish(frame.len()) {
            self.flush()
        } else {
            Ok(())
        }
    }

    fn flush(&mut self) -> Result<(), PortError> {
        match self.outbox.send(&self.socket, Some(&self.to), &mut self.tally) {
            Sent::Nothing => Ok(()),
            Sent::Some => {
                self.down = false;
                Ok(())
            }
            Sent::Down(_) if std::mem::replace(&mut self.down, true) => Ok(()),
            Sent::Down(errno) => Err(PortError::Lost {
                port: self.port.clone(),
                what: format!("the peer {} cannot be reached ({})", self.peer, errno.desc()),
                hint: Some(format!("`ip route get {}` shows the way there", self.peer.ip())),
            }),
        }
    }

    fn counters(&self) -> PortCounters {
        self.tally.counters()
    }

    fn describe(&self) -> String {
        format!("VXLAN {} from {} to {}", self.vni, self.local, self.peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_frames_of_the_network_are_taken() {
        let mut datagram = vec![8, 0, 0, 0, 0, 1, 2, 0];
        datagram.extend([7; 14]);
        let look = |datagram: &[u8], vni| frame_of(&mut datagram.to_vec(), vni).map(|frame| frame.to_vec());
        assert_eq!(look(&datagram, 0x102), Ok(vec![7; 14]));
        assert_eq!(look(&datagram, 0x103), Err(DropCause::InStranger));
        assert_eq!(look(&datagram[..21], 0x102), Err(DropCause::InMalformed));
        assert_eq!(look(&[8; 7], 0x102), Err(DropCause::InMalformed));
        datagram[0] = 0;
        assert_eq!(look(&datagram, 0x102), Err(DropCause::InMalformed));
        // Reserved bits are ignored (RFC 7348, section 5).
        (datagram[0], datagram[1], datagram[7]) = (0xff, 9, 9);
        assert_eq!(look(&datagram, 0x102), Ok(vec![7; 14]));
    }
}
