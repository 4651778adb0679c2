//! The network of a node, as its process 1 sets it up: TAP interfaces, sysctls, addresses, bridge and routes.

use std::fs::{self, OpenOptions};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};
use windtunnel_netlink::{Answer, Request, parse_answer};

use crate::protocol::{NodeSpec, RouteSpec};
use crate::sys;

/// Room for one netlink answer, bytes.
const ANSWER_BYTES: usize = 16 << 10;

/// What failed (completes "cannot ..."), and why.
pub(crate) type Refusal = (String, String);

/// For `map_err`.
pub(crate) fn refused<E: std::fmt::Display>(what: impl Into<String>) -> impl FnOnce(E) -> Refusal {
    let what = what.into();
    move |error| (what, error.to_string())
}

/// Makes all of it; the TAPs in the order of interfaces.
pub(crate) fn set_up(node: &NodeSpec) -> Result<Vec<OwnedFd>, Refusal> {
    let mut taps = Vec::new();
    for interface in &node.interfaces {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
        let file = options.open("/dev/net/tun").map_err(refused("open /dev/net/tun"))?;
        sys::make_tap(&file, &interface.name, interface.mac)
            .map_err(refused(format!("make the TAP interface {}", interface.name)))?;
        taps.push(OwnedFd::from(file));
    }
    let mut netlink = Netlink::open()?;
    netlink.bring_up("lo")?;
    for (name, value) in &node.sysctls {
        fs::write(sysctl_path(name), format!("{value}\n"))
            .map_err(refused(format!("set sysctl {name} to {value:?} on the host's kernel")))?;
    }
    let mut indices = Vec::new();
    for interface in &node.interfaces {
        let (name, mtu) = (&interface.name, interface.mtu);
        let index = netlink.index(name)?;
        netlink.ask(&Request::SetMtu { index, mtu }, || {
            format!("set the MTU of {name} to {mtu}")
        })?;
        netlink.ask(&Request::SetUp { index, up: true }, || format!("set {name} up"))?;
        for &(address, prefix_bits) in &interface.addresses {
            let add = Request::AddAddress {
                index,
                address,
                prefix_bits,
            };
            netlink.ask(&add, || format!("add address {address}/{prefix_bits} to {name}"))?;
        }
        indices.push((name.as_str(), index));
    }
    if let Some(bridge) = &node.bridge {
        netlink.ask(&Request::AddBridge { name: bridge.clone() }, || {
            format!("add bridge {bridge}")
        })?;
        let master = netlink.bring_up(bridge)?;
        for &(port, index) in &indices {
            let join = Request::JoinBridge { index, bridge: master };
            netlink.ask(&join, || format!("make {port} a port of {bridge}"))?;
        }
    }
    node.routes.iter().try_for_each(|route| netlink.add_route(route))?;
    Ok(taps)
}

/// The file of a sysctl. As sysctl(8): the first separator in the name is the separator, the other one is part of names.
fn sysctl_path(name: &str) -> String {
    let slashes = name.find(['.', '/']).is_some_and(|at| name.as_bytes()[at] == b'/');
    let swap = |c| match c {
        '.' => '/',
        '/' => '.',
        other => other,
    };
    let path: String = if slashes {
        name.into()
    } else {
        name.chars().map(swap).collect()
    };
    format!("/proc/sys/{path}")
}

/// Frames that found the queue of each interface full, as `/proc/net/dev` has them.
pub(crate) fn queue_drops(node: &NodeSpec) -> Vec<u64> {
    /// Fields of a line before `drop` of what was sent: eight of reception, then bytes, packets and errors.
    const SENT_DROPS: usize = 11;
    let text = fs::read_to_string("/proc/net/dev").unwrap_or_default();
    let of = |name: &str| {
        let line = text
            .lines()
            .find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'))?;
        line.split_whitespace().nth(SENT_DROPS)?.parse().ok()
    };
    node.interfaces
        .iter()
        .map(|interface| of(&interface.name).unwrap_or(0))
        .collect()
}

/// A route netlink socket, asked one thing at a time.
struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

impl Netlink {
    fn open() -> Result<Self, Refusal> {
        let (family, kind) = (AddressFamily::Netlink, SockType::Raw);
        let socket = socket(family, kind, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkRoute)
            .map_err(refused("open a netlink socket"))?;
        Ok(Self { socket, sequence: 0 })
    }

    fn index(&mut self, name: &str) -> Result<u32, Refusal> {
        let find = Request::FindLink { name: name.to_owned() };
        match self.ask(&find, || format!("find interface {name}"))? {
            Answer::Link { index } => Ok(index),
            other => Err((format!("find interface {name}"), format!("{other:?} is no answer"))),
        }
    }

    fn bring_up(&mut self, name: &str) -> Result<u32, Refusal> {
        let index = self.index(name)?;
        self.ask(&Request::SetUp { index, up: true }, || format!("set {name} up"))?;
        Ok(index)
    }

    fn add_route(&mut self, route: &RouteSpec) -> Result<(), Refusal> {
        let index = route.dev.as_ref().map(|dev| self.index(dev)).transpose()?;
        let add = Request::AddRoute {
            to: route.to,
            via: route.via.clone(),
            index,
            metric: route.metric,
        };
        let hops: String = route.via.iter().map(|via| format!(" via {via}")).collect();
        self.ask(&add, || format!("add route {}/{}{hops}", route.to.0, route.to.1))
            .map(drop)
    }

    fn ask(&mut self, request: &Request, what: impl Fn() -> String) -> Result<Answer, Refusal> {
        self.sequence += 1;
        let fd = self.socket.as_raw_fd();
        send(fd, &request.to_bytes(self.sequence), MsgFlags::empty()).map_err(refused(what()))?;
        let mut answer = vec![0; ANSWER_BYTES];
        let length = recv(fd, &mut answer, MsgFlags::empty()).map_err(refused(what()))?;
        match parse_answer(&answer[..length], self.sequence).map_err(refused(what()))? {
            Answer::Refused { errno, text } => {
                let reason = std::io::Error::from_raw_os_error(errno).to_string();
                Err((what(), text.map_or(reason.clone(), |text| format!("{reason}: {text}"))))
            }
            answer => Ok(answer),
        }
    }
}
