//! What keeps the host's programs and its stack away from owned ports: nothing of it outlasts its descriptors.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, bind, recv, send, setsockopt, socket,
    sockopt,
};
use windtunnel_netlink::{Answer, PortRange, Shield, parse_answer};

use crate::PortError;
use crate::link::capability_error;

/// Room for one answer, bytes.
const ANSWER_BYTES: usize = 16 << 10;
/// The whole batch, bytes: the rules of all ranges.
const BATCH_BYTES: usize = 1 << 20;

/// See the module.
#[derive(Debug)]
pub(crate) struct Held {
    _sockets: Vec<OwnedFd>,
    _table: OwnedFd,
}

impl Held {
    /// Holds ports, and has the host's stack see nothing of what arrives for them at the interface with this number.
    pub fn take(port: &str, index: u32, tcp: &[PortRange], udp: &[PortRange]) -> Result<Self, PortError> {
        let mut sockets = Vec::new();
        for (kind, ranges) in [(SockType::Stream, tcp), (SockType::Datagram, udp)] {
            for number in ranges.iter().flat_map(|range| range.first..=range.last) {
                sockets.push(hold(kind, number).map_err(|errno| refusal(port, kind, number, errno))?);
            }
        }
        Ok(Self {
            _sockets: sockets,
            _table: shield(port, index, tcp, udp)?,
        })
    }
}

/// A socket that is bound to a port at all addresses, and does nothing. Without SO_REUSEADDR nobody else can be bound to it.
fn hold(kind: SockType, number: u16) -> Result<OwnedFd, Errno> {
    let at = |family, address: IpAddr| {
        let socket = socket(family, kind, SockFlag::SOCK_CLOEXEC, None)?;
        if family == AddressFamily::Inet6 {
            setsockopt(&socket, sockopt::Ipv6V6Only, &false)?;
        }
        if kind == SockType::Datagram {
            // Nothing reaches it but from the host itself; of that it keeps as little as it can.
            setsockopt(&socket, sockopt::RcvBuf, &0)?;
        }
        bind(
            socket.as_raw_fd(),
            &SockaddrStorage::from(SocketAddr::new(address, number)),
        )?;
        Ok(socket)
    };
    match at(AddressFamily::Inet6, Ipv6Addr::UNSPECIFIED.into()) {
        // Where the host has no IPv6, or it is off.
        Err(Errno::EAFNOSUPPORT | Errno::EADDRNOTAVAIL) => at(AddressFamily::Inet, Ipv4Addr::UNSPECIFIED.into()),
        other => other,
    }
}

fn refusal(port: &str, kind: SockType, number: u16, errno: Errno) -> PortError {
    let protocol = if kind == SockType::Stream { "tcp" } else { "udp" };
    let name = protocol.to_uppercase();
    let hint = match errno {
        Errno::EADDRINUSE => Some(format!(
            "choose other ports; `ss --{protocol} --all --processes 'sport = {number}'` shows who has it"
        )),
        Errno::EMFILE | Errno::ENFILE => Some("each owned port takes a file descriptor: ulimit -n 8192".into()),
        Errno::EACCES | Errno::EPERM => {
            return capability_error(port, &format!("owning {name} port {number}"), "CAP_NET_BIND_SERVICE");
        }
        _ => None,
    };
    PortError::Host {
        port: port.into(),
        doing: format!("owning {name} port {number} of the host"),
        source: errno.into(),
        hint,
    }
}

/// The name of a table that no other of this process has.
fn table_name() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("windtunnel-{}-{count}", std::process::id())
}

/// The socket that owns the table.
fn shield(port: &str, index: u32, tcp: &[PortRange], udp: &[PortRange]) -> Result<OwnedFd, PortError> {
    let failed = |errno| match errno {
        Errno::EPERM | Errno::EACCES => {
            capability_error(port, "keeping the host's stack from owned ports", "CAP_NET_ADMIN")
        }
        other => PortError::Host {
            port: port.into(),
            doing: "making the table of nf_tables that keeps the host's stack from owned ports".into(),
            source: other.into(),
            hint: Some("it needs nf_tables, from Linux 5.12 (tables with an owner): modprobe nf_tables".into()),
        },
    };
    let table = table_name();
    let shield = Shield {
        table: &table,
        index,
        tcp,
        udp,
    };
    let make = || {
        let socket = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkNetFilter,
        )?;
        // Without CAP_NET_ADMIN it cannot be done anyway.
        let _ = crate::sys::set_option(&socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, BATCH_BYTES as i32);
        let (bytes, last) = shield.to_bytes();
        send(socket.as_raw_fd(), &bytes, MsgFlags::empty())?;
        let mut answer = vec![0; ANSWER_BYTES];
        // The answer is there when the call has returned.
        let length = recv(socket.as_raw_fd(), &mut answer, MsgFlags::MSG_DONTWAIT)?;
        let answer = &answer[..length];
        let sequence = answer
            .get(8..12)
            .and_then(|bytes| bytes.try_into().ok())
            .map_or(0, u32::from_ne_bytes);
        match parse_answer(answer, sequence) {
            Ok(Answer::Refused { errno, .. }) => Err(Errno::from_raw(errno)),
            Ok(Answer::Done) if sequence == last => Ok(socket),
            _ => Err(Errno::EPROTO),
        }
    };
    make().map_err(failed)
}

/// So many ports, one after the other, that nobody has, of TCP and UDP, in the host's range of ephemeral ports if there is room: for a node that shares the
/// host's address, to connect from. They are free now; opening the port takes them.
pub fn free_ports(count: u16, salt: u32) -> Option<PortRange> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut numbers = text.split_whitespace().filter_map(|word| word.parse::<u16>().ok());
    let (first, last) = (numbers.next().unwrap_or(32_768), numbers.next().unwrap_or(60_999));
    let blocks = (last.checked_sub(first)? / count.max(1)).max(1);
    (0..blocks).find_map(|number| {
        let block = (u32::from(number) + salt) % u32::from(blocks);
        let first = first.checked_add(u16::try_from(block).ok()?.checked_mul(count)?)?;
        let range = PortRange {
            first,
            last: first.checked_add(count.checked_sub(1)?)?,
        };
        let is_free = |number| {
            [SockType::Stream, SockType::Datagram]
                .into_iter()
                .all(|kind| hold(kind, number).is_ok())
        };
        (range.first..=range.last).all(is_free).then_some(range)
    })
}
