//! Whether this host can be a platform: for `windtunnel doctor`. The only way to know is to make a node.

use std::collections::BTreeMap;

use crate::PlatformError;
use crate::limits;
use crate::process1::Process1;
use crate::protocol::{InterfaceSpec, NodeSpec};

/// Makes a node with one interface, and lets go of it, which leaves nothing. What it took, in words.
///
/// # Errors
/// What the host refused; its hint says what to do.
pub fn probe() -> Result<String, PlatformError> {
    let rootless = !nix::unistd::geteuid().is_root();
    let interface = InterfaceSpec {
        name: "eth0".into(),
        mac: [2, 0, 0, 0, 0, 1],
        mtu: 1500,
        addresses: Vec::new(),
    };
    let spec = NodeSpec {
        name: "doctor".into(),
        rootless,
        root: None,
        disk_bytes: limits::disk_bytes_max(),
        bridge: None,
        interfaces: vec![interface],
        sysctls: BTreeMap::new(),
        routes: Vec::new(),
        files: Vec::new(),
        programs: Vec::new(),
    };
    Process1::start(spec)?.wait_until_made(1)?;
    Ok(match rootless {
        true => "nodes are made as an ordinary user, in user namespaces, with TAPs of /dev/net/tun".into(),
        false => "nodes are made as root, in namespaces, with TAPs of /dev/net/tun".into(),
    })
}
