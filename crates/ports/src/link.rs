//! Interfaces of the host: what they are, and their set-up over netlink.

use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};
use windtunnel_netlink::{Answer, Request, parse_answer};

use crate::PortError;

/// Room for one answer, bytes.
const ANSWER_BYTES: usize = 16 << 10;
/// Longest name of an interface, bytes: IFNAMSIZ without the NUL.
const NAME_BYTES_MAX: usize = 15;

/// Checks a name as the kernel does (`dev_valid_name`), and also refuses `%`, with which it would count.
pub(crate) fn check_name(port: &str, interface: &str) -> Result<(), PortError> {
    let allowed = |c: char| !matches!(c, '/' | ':' | '%' | '\0') && !c.is_whitespace();
    let fits = (1..=NAME_BYTES_MAX).contains(&interface.len()) && !matches!(interface, "." | "..");
    if fits && interface.chars().all(allowed) {
        return Ok(());
    }
    Err(PortError::Name {
        port: port.into(),
        interface: interface.into(),
    })
}

/// What gives CAP_NET_ADMIN: being root, or a namespace of one's own.
pub(crate) const ADMIN_HINT: &str = "sudo windtunnel run ...; or as ordinary user in a network of your own: unshare --user \
                                     --map-root-user --net windtunnel run ...";
/// What gives CAP_NET_RAW for an interface of the host, which is not in a namespace of one's own.
pub(crate) const RAW_HINT: &str = "sudo windtunnel run ...";

/// A capability is missing.
pub(crate) fn capability_error(port: &str, doing: &str, capability: &'static str) -> PortError {
    PortError::Capability {
        port: port.into(),
        doing: doing.into(),
        capability,
        hint: if capability == "CAP_NET_ADMIN" {
            ADMIN_HINT
        } else {
            RAW_HINT
        }
        .into(),
    }
}

/// The name of another interface that has this address.
pub(crate) fn holder_of(address: IpAddr) -> Option<String> {
    let same = |candidate: &nix::ifaddrs::InterfaceAddress| {
        let Some(storage) = &candidate.address else {
            return false;
        };
        let v4 = storage.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
        let v6 = storage.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip()));
        v4.or(v6) == Some(address)
    };
    // Where addresses cannot be listed, the kernel is left to refuse them.
    let mut all = nix::ifaddrs::getifaddrs().ok()?;
    all.find(same).map(|found| found.interface_name)
}

/// A route netlink socket, asked one thing at a time.
#[derive(Debug)]
pub(crate) struct Configurator {
    socket: OwnedFd,
    sequence: u32,
}

impl Configurator {
    pub fn open() -> Result<Self, Errno> {
        let kind = (AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC);
        Ok(Self {
            socket: socket(kind.0, kind.1, kind.2, SockProtocol::NetlinkRoute)?,
            sequence: 0,
        })
    }

    /// The number of an interface; ENODEV if there is none of this name.
    pub fn index_of(&mut self, name: &str) -> Result<u32, Errno> {
        match self.ask(&Request::FindLink { name: name.into() })? {
            Answer::Link { index } => Ok(index),
            _ => Err(Errno::EPROTO),
        }
    }

    /// Carries out one request.
    pub fn ask(&mut self, request: &Request) -> Result<Answer, Errno> {
        self.sequence += 1;
        let fd = self.socket.as_raw_fd();
        send(fd, &request.to_bytes(self.sequence), MsgFlags::empty())?;
        let mut answer = vec![0; ANSWER_BYTES];
        let length = recv(fd, &mut answer, MsgFlags::empty())?;
        match parse_answer(&answer[..length], self.sequence) {
            Ok(Answer::Refused { errno, .. }) => Err(Errno::from_raw(errno)),
            Ok(answer) => Ok(answer),
            Err(_) => Err(Errno::EPROTO),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_as_the_kernel_does() {
        for good in ["wt0", "exactly15bytes0", "eth0.5", "ä"] {
            assert!(check_name("p", good).is_ok(), "{good}");
        }
        for bad in ["", "sixteen-bytes-00", "a/b", "a b", "a:1", "tap%d", ".", ".."] {
            assert!(check_name("p", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_loopback_interface_is_found() {
        let mut configurator = Configurator::open().unwrap();
        assert_eq!(configurator.index_of("lo"), Ok(1));
        assert_eq!(configurator.index_of("not-there"), Err(Errno::ENODEV));
    }
}
