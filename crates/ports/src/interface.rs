//! An interface of the host as it is now: what a node has to have that stands in its place.

use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::libc;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send, socket,
};
use windtunnel_netlink::{Dump, Found, parse_dump};

use crate::{PortError, Subnet, sys};

/// Longest datagram of a list (`NLMSG_GOODSIZE` and more).
const PART_BYTES: usize = 64 << 10;

/// A way from an interface of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRoute {
    /// Destination; a prefix of no bits: default.
    pub to: Subnet,
    /// Next hop; none: on the link.
    pub via: Option<IpAddr>,
    /// Metric; smaller wins.
    pub metric: u32,
}

/// An interface of the host, read by netlink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostInterface {
    /// Its number.
    pub index: u32,
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Longest packet, bytes.
    pub mtu: u32,
    /// Its addresses.
    pub addresses: Vec<Subnet>,
    /// Those of them that new connections may have, in the order in which another interface has to be given them to prefer the same ones.
    pub preferred: Vec<Subnet>,
    /// Unicast routes of the main table that lead out of it, best metric first.
    pub routes: Vec<HostRoute>,
    /// Neighbours whose MAC address is known.
    pub neighbours: Vec<(IpAddr, [u8; 6])>,
}

/// Why it could not be read.
#[derive(Debug, thiserror::Error)]
pub enum InterfaceError {
    /// There is none of this name.
    #[error("the host has no interface {0}")]
    Missing(String),
    /// Another than an Ethernet interface.
    #[error("{0} is not an Ethernet interface")]
    NotEthernet(String),
    /// The host refused something.
    #[error("reading the interface {0} failed: {1}")]
    Host(String, Errno),
}

impl InterfaceError {
    pub(crate) fn of_port(self, port: &str) -> PortError {
        match self {
            Self::Missing(interface) => PortError::NoInterface {
                port: port.into(),
                interface,
            },
            Self::NotEthernet(interface) => PortError::Interface {
                port: port.into(),
                interface,
                what: "is not an Ethernet interface".into(),
                hint: "the loopback and tunnels without Ethernet headers cannot be shared".into(),
            },
            Self::Host(interface, errno) => PortError::host(port, format!("reading the interface {interface}"), errno),
        }
    }
}

impl HostInterface {
    /// The interface of this name in the network namespace of this thread.
    ///
    /// # Errors
    /// That there is none, that it is no Ethernet interface, or what the host refused.
    pub fn read(name: &str) -> Result<Self, InterfaceError> {
        let failed = |errno| InterfaceError::Host(name.into(), errno);
        let index = if_nametoindex(name).map_err(|_| InterfaceError::Missing(name.into()))?;
        let any = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None).map_err(failed)?;
        let state = sys::interface_state(&any, name).map_err(failed)?;
        if !state.is_ethernet {
            return Err(InterfaceError::NotEthernet(name.into()));
        }
        let mut this = Self {
            index,
            mac: state.mac,
            mtu: state.mtu,
            addresses: Vec::new(),
            preferred: Vec::new(),
            routes: Vec::new(),
            neighbours: Vec::new(),
        };
        for found in list().map_err(failed)? {
            this.add(found);
        }
        this.routes.sort_by_key(|route| route.metric);
        Ok(this)
    }

    /// The name of the interface that the host's default route leads out of: that of IPv4, or else of IPv6.
    pub fn of_default_route() -> Option<String> {
        let default = |found: Found| match found {
            Found::Route {
                to: (_, 0),
                via: Some(via),
                metric,
                index,
            } => Some((via.is_ipv6(), metric, index)),
            _ => None,
        };
        let (_, _, index) = list().ok()?.into_iter().filter_map(default).min()?;
        nix::net::if_::if_indextoname(index).ok()?.into_string().ok()
    }

    /// Whether the host has none of these addresses on it, each of which a node has at the same cable as `port`; with them the names of
    /// the nodes' interfaces.
    ///
    /// # Errors
    /// The first that it has.
    pub fn check_apart<'a>(
        &self,
        port: &str,
        interface: &str,
        nodes: impl IntoIterator<Item = (&'a str, IpAddr)>,
    ) -> Result<(), PortError> {
        let own = |address: &IpAddr| self.addresses.iter().any(|subnet| subnet.address == *address);
        match nodes.into_iter().find(|(_, address)| own(address)) {
            None => Ok(()),
            Some((end, address)) => Err(PortError::SharedAddress {
                port: port.into(),
                end: end.into(),
                address,
                interface: interface.into(),
            }),
        }
    }

    fn add(&mut self, found: Found) {
        let subnet = |(address, prefix_bits)| Subnet { address, prefix_bits };
        match found {
            Found::Address {
                index,
                address,
                prefix_bits,
                set_aside,
            } if index == self.index => {
                self.addresses.push(subnet((address, prefix_bits)));
                if !set_aside {
                    // Linux lists the newest address of IPv6 first, and prefers it (ipv6_link_dev_addr, net/ipv6/addrconf.c).
                    let first_v6 = self.preferred.iter().position(|subnet| subnet.address.is_ipv6());
                    let at = first_v6.unwrap_or(self.preferred.len());
                    self.preferred.insert(at, subnet((address, prefix_bits)));
                }
            }
            Found::Route { index, to, via, metric } if index == self.index => self.routes.push(HostRoute {
                to: subnet(to),
                via,
                metric,
            }),
            Found::Neighbour { index, address, mac } if index == self.index => self.neighbours.push((address, mac)),
            _ => {}
        }
    }
}

/// News of the host's addresses and routes: the descriptor is readable when there are some.
#[derive(Debug)]
pub struct HostChanges {
    socket: OwnedFd,
}

impl HostChanges {
    /// Listens from now on, in the network namespace of this thread.
    ///
    /// # Errors
    /// What the host refused.
    pub fn listen() -> Result<Self, Errno> {
        const GROUPS: [libc::c_int; 4] = [
            libc::RTMGRP_IPV4_IFADDR,
            libc::RTMGRP_IPV4_ROUTE,
            libc::RTMGRP_IPV6_IFADDR,
            libc::RTMGRP_IPV6_ROUTE,
        ];
        let groups = GROUPS.iter().fold(0, |all, group| all | *group as u32);
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let route = SockProtocol::NetlinkRoute;
        let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, route)?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, groups))?;
        Ok(Self { socket })
    }

    /// Takes all news that have come; whether there were any. What has changed is to be read anew ([`HostInterface::read`]).
    pub fn take(&self) -> bool {
        let mut part = [0; 4096];
        let mut any = false;
        loop {
            match recv(self.socket.as_raw_fd(), &mut part, MsgFlags::empty()) {
                // News that were lost are news.
                Ok(_) | Err(Errno::ENOBUFS | Errno::EINTR) => any = true,
                Err(_) => return any,
            }
        }
    }
}

impl AsFd for HostChanges {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Addresses, routes and neighbours of all interfaces.
fn list() -> Result<Vec<Found>, Errno> {
    let socket = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkRoute,
    )?;
    let mut found = Vec::new();
    let mut part = vec![0; PART_BYTES];
    for (sequence, dump) in (1..).zip([Dump::Addresses, Dump::Routes, Dump::Neighbours]) {
        send(socket.as_raw_fd(), &dump.to_bytes(sequence), MsgFlags::empty())?;
        loop {
            let length = recv(socket.as_raw_fd(), &mut part, MsgFlags::empty())?;
            if parse_dump(&part[..length], sequence, &mut found).map_err(|_| Errno::EPROTO)? {
                break;
            }
        }
    }
    Ok(found)
}
