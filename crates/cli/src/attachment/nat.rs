//! What lets a node behind a TAP reach what lies beyond the host: its addresses are replaced by the host's. The tables of nftables with
//! these rules are owned by a process of nft(8) that reads from a pipe of this one. So they go when this process does, however it ends.

use std::io::Write;
use std::net::IpAddr;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = "nft";
/// How long nft may take for the tables.
const PATIENCE: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// The tables, one of each version of IP, and the process that owns them.
#[derive(Debug)]
pub struct Nat {
    nft: Child,
    /// Its end is the end of nft.
    commands: Option<ChildStdin>,
    /// What it hides.
    nodes: Vec<IpAddr>,
}

impl Drop for Nat {
    fn drop(&mut self) {
        drop(self.commands.take());
        // It has ended by itself, or cannot be waited for.
        let _ = self.nft.wait();
    }
}

/// The sysctl by which the host passes on packets of IPv4 that are not for it.
pub const FORWARDS: &str = "net.ipv4.ip_forward";
/// The same of IPv6.
pub const FORWARDS_V6: &str = "net.ipv6.conf.all.forwarding";

/// Whether the host passes on what is not for it: one of the two sysctls above.
pub fn host_forwards(sysctl: &str) -> bool {
    let file = format!("/proc/sys/{}", sysctl.replace('.', "/"));
    std::fs::read_to_string(file).is_ok_and(|text| text.trim() != "0")
}

/// The family of tables that look at such packets.
fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "ip" } else { "ip6" }
}

impl Nat {
    /// Addresses of the node that it hides.
    pub fn hidden(&self) -> &[IpAddr] {
        &self.nodes
    }

    /// Hides the addresses `nodes`, which are behind `interface`, behind the host's; why not, if that fails.
    pub fn start(nodes: &[IpAddr], interface: &str) -> Result<Self, String> {
        let table = format!("windtunnel-{}", std::process::id());
        let nft = Command::new(PROGRAM)
            .arg("--interactive")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let mut nft = nft.map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => "nft is in no folder of PATH (apt install nftables)".to_owned(),
            _ => format!("nft cannot be started: {error}"),
        })?;
        let commands = nft.stdin.take();
        let nodes = nodes.to_vec();
        let mut nat = Self { nft, commands, nodes };
        let hide = |node: &IpAddr| {
            let family = family(*node);
            format!(
                "add table {family} {table} {{ flags owner; }}\n\
                 add chain {family} {table} nat {{ type nat hook postrouting priority 100; }}\n\
                 add rule {family} {table} nat {family} saddr {node} oifname != \"{interface}\" masquerade\n"
            )
        };
        let text: String = nat.nodes.iter().map(hide).collect();
        let commands = nat.commands.as_mut().expect("it was asked for");
        commands
            .write_all(text.as_bytes())
            .map_err(|error| format!("nft has ended: {error}"))?;
        let deadline = Instant::now() + PATIENCE;
        while !nat.nodes.iter().all(|node| is_there(family(*node), &table)) {
            if Instant::now() > deadline || nat.nft.try_wait().is_ok_and(|ended| ended.is_some()) {
                return Err("nft did not make a table that goes with this process (it needs Linux 5.12)".into());
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        Ok(nat)
    }
}

/// Whether the last of the commands for this table was carried out.
fn is_there(family: &str, table: &str) -> bool {
    let listed = Command::new(PROGRAM)
        .args(["list", "table", family, table])
        .stderr(Stdio::null())
        .output();
    listed.is_ok_and(|listed| String::from_utf8_lossy(&listed.stdout).contains("masquerade"))
}
