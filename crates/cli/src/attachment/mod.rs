//! What `windtunnel attach` joins a node with the real network by: one file for each mode. To add one: a file here with a function that
//! gives a [`Wire`], a variant of [`Mode`], and an arm of [`lay`].

mod engine;
mod follow;
mod nat;
mod network;
mod passt;
mod raw;
mod resolver;
mod tap;
mod udp;

pub use engine::{Engine, Plan};
pub use follow::Follower;
pub use network::IpSubnet;
pub use passt::Passt;

use crate::failure::Failure;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use windtunnel_ports::Subnet;

/// How the node reaches the real network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// A TAP interface made for the run, and an address of its own behind the host; needs CAP_NET_ADMIN.
    Tap,
    /// Through passt, which needs no privileges: TCP and UDP on the wire are then the host kernel's.
    Host,
    /// Some ports of the host's own address; needs CAP_NET_RAW and CAP_NET_ADMIN, or a broker.
    Raw,
    /// Frames in UDP to another attached program, which needs no privileges.
    Udp,
}

impl Mode {
    /// As it is typed, and told.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tap => "tap",
            Self::Host => "host",
            Self::Raw => "raw",
            Self::Udp => "udp",
        }
    }
}

/// What the user says of the network.
#[derive(Debug)]
pub struct Wish {
    /// None: the first that works here.
    pub mode: Option<Mode>,
    /// The node's addresses, one of each version of IP at most.
    pub addresses: Vec<IpSubnet>,
    /// The interface of the host that is shared, in mode `raw`; none: that of the default route.
    pub interface: Option<String>,
    /// Its ports that are the node's; none: some that are free.
    pub ports: Option<windtunnel_ports::PortRange>,
    /// Name servers in place of the host's.
    pub resolvers: Vec<IpAddr>,
    /// Where to receive, in mode `udp`.
    pub local: Option<SocketAddr>,
    /// The other end.
    pub peer: Option<SocketAddr>,
    /// File with the key that both ends have.
    pub key: Option<PathBuf>,
}

/// What is at the end of the node's cable.
#[derive(Debug)]
pub struct Wire {
    /// The port, as a scenario writes it.
    pub port: serde_json::Value,
    /// The node's addresses, in the order that they are added in.
    pub addresses: Vec<Subnet>,
    /// Its routes besides those to its subnets, as a scenario writes them.
    pub routes: Vec<String>,
    /// Longest packet, bytes.
    pub mtu: u32,
    /// The node's `/etc/resolv.conf`.
    pub resolv_conf: String,
    /// Who speaks on the wire, and where the node is, for the line that is printed.
    pub says: String,
    /// What else the user has to know, a line each.
    pub notes: Vec<String>,
    /// What lets it reach what lies beyond the host; it goes with this.
    pub nat: Option<nat::Nat>,
    /// The node's MAC address; none: any.
    pub mac: Option<String>,
    /// Kernel parameters that the mode needs; the user's come after them.
    pub sysctls: std::collections::BTreeMap<String, String>,
    /// How passt is started, once the port is there.
    pub passt: Option<passt::Spec>,
    /// What of the host the node follows.
    pub follow: Option<follow::Spec>,
}

impl Wish {
    /// The node's address of IPv4, if one was given.
    fn address_v4(&self) -> Option<IpSubnet> {
        self.addresses.iter().copied().find(|subnet| subnet.address.is_ipv4())
    }

    /// The same of IPv6.
    fn address_v6(&self) -> Option<IpSubnet> {
        self.addresses.iter().copied().find(|subnet| subnet.address.is_ipv6())
    }

    /// The node's address of IPv4: a free one unless one was given.
    ///
    /// # Errors
    /// When none is free.
    fn address_v4_or_free(&self) -> Result<IpSubnet, Failure> {
        let free = || network::free_pair(std::process::id()).map(|subnet| subnet.nth(2));
        self.address_v4().or_else(free).ok_or_else(|| {
            Failure::user("no free private subnet was found: the host has routes to all of them")
                .hint("name one with `--address ADDRESS/BITS`")
        })
    }

    /// The same of IPv6. None where no link is free: the host has a route to all unique local addresses.
    fn address_v6_or_free(&self) -> Option<IpSubnet> {
        let free = || network::free_link(std::process::id()).map(|subnet| subnet.nth(2));
        self.address_v6().or_else(free)
    }
}

/// Names of things, as in "a and b".
fn joined<T: ToString>(names: &[T]) -> String {
    let names: Vec<String> = names.iter().map(T::to_string).collect();
    names.join(" and ")
}

/// The subnets as an interface of a node has them.
fn of_node(subnets: &[IpSubnet]) -> Vec<Subnet> {
    let subnet = |subnet: &IpSubnet| Subnet {
        address: subnet.address,
        prefix_bits: subnet.prefix_bits,
    };
    subnets.iter().map(subnet).collect()
}

impl Wire {
    /// Takes back what was changed on the host for it.
    pub fn remove(self) {
        drop(self.nat);
    }
}

/// Decides on a mode if none is given, and makes what it needs.
///
/// # Errors
/// What is missing on this host, or in what was said.
pub fn lay(wish: &Wish, kernel: &str) -> Result<(Mode, Wire), Failure> {
    let mode = wish.mode.map_or_else(|| choose(wish), Ok)?;
    if mode != Mode::Udp {
        let given = [
            ("--local", wish.local.is_some()),
            ("--peer", wish.peer.is_some()),
            ("--key", wish.key.is_some()),
        ];
        if let Some((option, _)) = given.into_iter().find(|(_, given)| *given) {
            return Err(
                Failure::user(format!("`{option}` is not for mode {}", mode.name())).hint("it belongs to `--mode udp`")
            );
        }
    }
    let of_raw = [
        ("--interface", wish.interface.is_some()),
        ("--ports", wish.ports.is_some()),
    ];
    if let Some((option, _)) = of_raw.into_iter().find(|(_, given)| *given && mode != Mode::Raw) {
        return Err(
            Failure::user(format!("`{option}` is not for mode {}", mode.name())).hint("it belongs to `--mode raw`")
        );
    }
    if mode == Mode::Raw && !wish.addresses.is_empty() {
        return Err(Failure::user("`--address` is not for mode raw").hint("the address is the host's own"));
    }
    for (version, is_v4) in [("IPv4", true), ("IPv6", false)] {
        let given = wish.addresses.iter().filter(|subnet| subnet.address.is_ipv4() == is_v4);
        if let [first, second, ..] = given.collect::<Vec<_>>()[..] {
            return Err(
                Failure::user(format!("{first} and {second} are both addresses of {version}"))
                    .hint("`--address` gives one of each version of IP"),
            );
        }
    }
    let wire = match mode {
        Mode::Tap => tap::lay(wish, kernel)?,
        Mode::Host => passt::lay(wish, kernel)?,
        Mode::Raw => raw::lay(wish, kernel)?,
        Mode::Udp => udp::lay(wish, kernel)?,
    };
    Ok((mode, wire))
}

/// The mode that works here and shows most of the library kernel on the wire.
fn choose(wish: &Wish) -> Result<Mode, Failure> {
    if wish.peer.is_some() || wish.local.is_some() {
        return Ok(Mode::Udp);
    }
    let tap = windtunnel_ports::tap_availability();
    match (tap.available, passt::find()) {
        (true, _) => Ok(Mode::Tap),
        (false, Some(_)) => Ok(Mode::Host),
        (false, None) => Err(Failure::user("no way to the network is open to this user")
            .because(format!("mode tap {}", tap.detail))
            .because("mode host needs passt, which is in no folder of PATH")
            .hint("apt install passt; or sudo windtunnel attach ...; or `--mode udp` to another attached program")),
    }
}

/// What a missing right means here: the engine's own words are those of `windtunnel run`.
pub fn explain(failure: Failure) -> Failure {
    if failure.what().contains("CAP_NET_ADMIN") {
        return failure.hint(
            "sudo windtunnel attach ...; without root: `--mode host` (apt install passt), `--mode udp`, or a network of your own: \
             unshare --user --map-root-user --net windtunnel attach ...",
        );
    }
    failure
}
