//! What a scenario says of a port: plain data.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use windtunnel_netlink::PortRange;

/// An address and the size of its subnet, as in `192.0.2.1/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subnet {
    /// The address itself.
    pub address: IpAddr,
    /// Bits of the subnet's prefix.
    pub prefix_bits: u8,
}

impl Subnet {
    /// Whether the address is in the subnet.
    pub fn has(&self, address: IpAddr) -> bool {
        let bits = |address| match address {
            IpAddr::V4(v4) => (u128::from(v4.to_bits()), 32),
            IpAddr::V6(v6) => (v6.to_bits(), 128),
        };
        let ((own, width), (other, other_width)) = (bits(self.address), bits(address));
        // All of 128 bits cannot be shifted out at once.
        let ignored = u32::from(width - self.prefix_bits);
        width == other_width && (own ^ other).checked_shr(ignored).unwrap_or(0) == 0
    }
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_bits)
    }
}

/// A kind of port and what it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortSpec {
    /// A TAP interface made for the run; the host is the other end. Needs CAP_NET_ADMIN in the network namespace.
    Tap {
        /// Name of the interface on the host; none: the kernel chooses `tapN`.
        name: Option<String>,
        /// The host's addresses on it.
        addresses: Vec<Subnet>,
        /// Longest packet, bytes; none: 1500.
        mtu: Option<u32>,
        /// Network namespace that it is made in, as a file (`/run/netns/NAME`, `/proc/PID/ns/net`); none: that of this process. Needs
        /// CAP_SYS_ADMIN.
        netns: Option<PathBuf>,
    },
    /// An existing interface of the host, by AF_PACKET: what arrives there comes in, also for others (promiscuous mode). Needs CAP_NET_RAW.
    Interface {
        /// Name of the interface.
        name: String,
        /// The MTU that it has to have; none: whatever it has.
        mtu: Option<u32>,
    },
    /// The host's own addresses on an existing interface, of which the run owns some ports; the host keeps all others. Needs CAP_NET_RAW and CAP_NET_ADMIN.
    Raw {
        /// Name of the interface.
        interface: String,
        /// Owned ports of TCP.
        tcp: Vec<PortRange>,
        /// Owned ports of UDP.
        udp: Vec<PortRange>,
        /// Socket of the broker that is asked for them, which needs no capability; none: this process takes them itself.
        broker: Option<PathBuf>,
    },
    /// Frames in UDP to another run, here or elsewhere.
    Udp {
        /// Address and port to receive at.
        local: SocketAddr,
        /// Address and port of the other end; from no other anything is taken.
        peer: SocketAddr,
        /// File with the shared key: 64 hexadecimal digits. None: frames are neither sealed nor proven to be the peer's.
        key_file: Option<PathBuf>,
    },
    /// VXLAN (RFC 7348) to one peer.
    Vxlan {
        /// Number of the virtual network, at most 2^24 - 1.
        vni: u32,
        /// Address to receive at.
        local: IpAddr,
        /// Address of the other end; from no other anything is taken.
        peer: IpAddr,
        /// UDP port at both ends; none: 4789.
        port: Option<u16>,
        /// Longest packet of the virtual network, bytes; none: 1450. What is longer because a kernel of this host has not split it is split to that.
        mtu: Option<u32>,
    },
    /// A stream socket with a length before each frame, as QEMU (`-netdev stream`) and passt speak it.
    Stream {
        /// Where it is.
        at: StreamAddress,
        /// Wait there for the peer to connect, instead of connecting to it.
        listen: bool,
    },
}

/// Where a stream socket is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamAddress {
    /// A Unix socket; a name that begins with `@` is an abstract one, which has no file.
    Unix(PathBuf),
    /// A TCP socket.
    Tcp(SocketAddr),
}

impl fmt::Display for StreamAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "{}", path.display()),
            Self::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}
