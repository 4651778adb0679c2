//! What can go wrong with a port, for users.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

/// Why a port could not be opened, or what has happened to one. `port` is its name in the scenario.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// A right is missing.
    #[error("port {port}: {doing} needs {capability}, which this process does not have")]
    Capability {
        /// The port.
        port: String,
        /// What was tried, as in "making a TAP interface".
        doing: String,
        /// The capability, as in "CAP_NET_ADMIN".
        capability: &'static str,
        /// What gives it.
        hint: String,
    },
    /// The host refused something.
    #[error("port {port}: {doing} failed: {source}")]
    Host {
        /// The port.
        port: String,
        /// What was tried.
        doing: String,
        /// What the host said.
        source: io::Error,
        /// What to do.
        hint: Option<String>,
    },
    /// The interface's name is taken.
    #[error("port {port}: the host has an interface {interface} already")]
    Exists {
        /// The port.
        port: String,
        /// Its interface.
        interface: String,
    },
    /// There is no such interface.
    #[error("port {port}: the host has no interface {interface}")]
    NoInterface {
        /// The port.
        port: String,
        /// The interface.
        interface: String,
    },
    /// A name that no interface can have.
    #[error(
        "port {port}: {interface:?} cannot be the name of an interface: 1 to 15 bytes without `/`, `:`, `%` and white space are allowed"
    )]
    Name {
        /// The port.
        port: String,
        /// The name.
        interface: String,
    },
    /// The interface is not as the scenario wants it.
    #[error("port {port}: interface {interface} {what}")]
    Interface {
        /// The port.
        port: String,
        /// The interface.
        interface: String,
        /// How it is.
        what: String,
        /// What to do.
        hint: String,
    },
    /// An address of the host is somewhere else already.
    #[error("port {port}: the host has the address {address} already, on interface {interface}")]
    AddressInUse {
        /// The port.
        port: String,
        /// The address.
        address: IpAddr,
        /// Who has it.
        interface: String,
    },
    /// The file of a shared key.
    #[error("port {port}: the key file {} {what}", path.display())]
    Key {
        /// The port.
        port: String,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
        /// What to do.
        hint: String,
    },
    /// A value that is not allowed.
    #[error("port {port}: {what}")]
    Value {
        /// The port.
        port: String,
        /// The value, and what is allowed.
        what: String,
    },
    /// News: the interface or the peer cannot be reached; frames are dropped and counted meanwhile.
    #[error("port {port}: {what}; frames are dropped and counted meanwhile")]
    Lost {
        /// The port.
        port: String,
        /// What has happened.
        what: String,
        /// What to do.
        hint: Option<String>,
    },
    /// A node has an address that the host has at the same cable.
    #[error(
        "port {port}: {end} has the address {address}, which is this host's on {interface} as well: both would answer"
    )]
    SharedAddress {
        /// The port.
        port: String,
        /// Interface of the node, "node:interface".
        end: String,
        /// The address.
        address: IpAddr,
        /// Interface of the host.
        interface: String,
    },
    /// News: somebody has changed the MTU of the interface.
    #[error(
        "port {port}: the MTU of {interface} was {was} bytes and is {now} now; frames that are too long for it or for a node are dropped"
    )]
    Mtu {
        /// The port.
        port: String,
        /// Interface of the host.
        interface: String,
        /// When this was looked at last, bytes.
        was: u32,
        /// Bytes.
        now: u32,
    },
    /// News: the peer is of another version.
    #[error(
        "port {port}: the peer {peer} speaks version {theirs} of the port protocol, this program version {ours}; nothing passes"
    )]
    Version {
        /// The port.
        port: String,
        /// The peer's address.
        peer: String,
        /// The peer's version.
        theirs: u8,
        /// This program's.
        ours: u8,
    },
    /// News: what arrives is not sealed with this port's key.
    #[error("port {port}: what arrives from {peer} is not sealed with the key of this port; it is dropped and counted")]
    Sealed {
        /// The port.
        port: String,
        /// The peer's address.
        peer: String,
    },
}

impl PortError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Capability { hint, .. } | Self::Interface { hint, .. } | Self::Key { hint, .. } => Some(hint.clone()),
            Self::Host { hint, .. } | Self::Lost { hint, .. } => hint.clone(),
            Self::Exists { .. } => Some("choose another name, or none: the kernel then takes one that is free".into()),
            Self::NoInterface { .. } => Some("`ip -brief link` lists those there are".into()),
            Self::AddressInUse { address, .. } => Some(format!(
                "choose another address; `ip address show to {address}` shows it"
            )),
            Self::SharedAddress { .. } => {
                Some("give one of them another address; a port of kind `raw` shares those of the host".into())
            }
            Self::Mtu { interface, was, .. } => Some(format!("ip link set dev {interface} mtu {was}")),
            Self::Version { .. } => Some("use the same release at both ends".into()),
            Self::Sealed { .. } => Some("both ends need the same key file, or none".into()),
            Self::Name { .. } | Self::Value { .. } => None,
        }
    }

    /// What the host said to something that needs a capability.
    pub(crate) fn host(port: &str, doing: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::Host {
            port: port.into(),
            doing: doing.into(),
            source: source.into(),
            hint: None,
        }
    }
}
