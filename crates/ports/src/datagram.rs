//! What the kinds share that put each frame into a UDP datagram.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use nix::errno::Errno;
use nix::libc;

use crate::counters::Tally;
use crate::sys::{Head, Inbox, set_option};
use crate::{DropCause, PortError};

/// What is asked for the socket's buffer, bytes; the host's limit (`net.core.rmem_max`) holds for ordinary users.
const BUFFER_BYTES: i32 = 4 << 20;

/// A UDP socket that fragments what is longer than the path's MTU, as VXLAN devices do: a frame is one datagram.
pub(crate) fn bind(port: &str, local: SocketAddr) -> Result<UdpSocket, PortError> {
    let doing = format!("listening at UDP {local}");
    let socket = UdpSocket::bind(local).map_err(|source| {
        let hint = match source.kind() {
            ErrorKind::AddrInUse => Some("another program or run has this UDP port; `ss -ulnp` shows which".into()),
            ErrorKind::AddrNotAvailable => {
                Some("`local` must be an address of this host; `ip -brief address` lists them".into())
            }
            ErrorKind::PermissionDenied => {
                Some("ports below 1024 need CAP_NET_BIND_SERVICE; choose a higher one".into())
            }
            _ => None,
        };
        PortError::Host {
            port: port.into(),
            doing: doing.clone(),
            source,
            hint,
        }
    })?;
    let (level, discover) = match local.ip() {
        IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
        IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER),
    };
    let told = |errno: Errno| PortError::host(port, doing.clone(), errno);
    set_option(&socket, level, discover, libc::IP_PMTUDISC_DONT).map_err(told)?;
    set_option(&socket, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1).map_err(told)?;
    for (force, plain) in [
        (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF),
        (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF),
    ] {
        if set_option(&socket, libc::SOL_SOCKET, force, BUFFER_BYTES).is_err() {
            // It takes what is allowed.
            let _ = set_option(&socket, libc::SOL_SOCKET, plain, BUFFER_BYTES);
        }
    }
    socket
        .set_nonblocking(true)
        .map_err(|error| PortError::host(port, doing, error))?;
    Ok(socket)
}

/// A batch of datagrams that came in, looked at one by one.
#[derive(Debug)]
pub(crate) struct Arrivals {
    inbox: Inbox,
    next: usize,
    count: usize,
    /// What the host has told of those that found no room.
    overflow: u32,
}

impl Arrivals {
    /// Of datagrams of at most so many bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            inbox: Inbox::new(bytes_max),
            next: 0,
            count: 0,
            overflow: 0,
        }
    }

    /// The next datagram, which may be truncated. EAGAIN if there is none.
    pub fn next(&mut self, socket: &UdpSocket, tally: &mut Tally) -> Result<(Head, &mut [u8]), Errno> {
        if self.next == self.count {
            (self.next, self.count) = (0, 0);
            self.count = self.inbox.receive(socket, 0)?;
        }
        let (head, buffer) = self.inbox.message(self.next);
        self.next += 1;
        if let Some(overflow) = head.overflow {
            let more = overflow.wrapping_sub(self.overflow);
            tally.dropped_many(DropCause::InOverflow, more.into());
            self.overflow = overflow;
        }
        Ok((head, &mut buffer[..head.length]))
    }

    /// The buffer of the last datagram that [`Arrivals::next`] gave.
    pub fn current(&mut self) -> &mut [u8] {
        self.inbox.message(self.next - 1).1
    }
}
