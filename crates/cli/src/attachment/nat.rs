//! What lets a node behind a TAP reach what lies beyond the host: its address is replaced by the host's. The table of nftables with
//! that rule is owned by a process of nft(8) that reads from a pipe of this one. So it goes when this process does, however it ends.

use super::network::Ipv4Subnet;
use std::io::Write;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = "nft";
/// How long nft may take for the table.
const PATIENCE: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// The table, and the process that owns it.
#[derive(Debug)]
pub struct Nat {
    nft: Child,
    /// Its end is the end of nft.
    commands: Option<ChildStdin>,
}

impl Drop for Nat {
    fn drop(&mut self) {
        drop(self.commands.take());
        // It has ended by itself, or cannot be waited for.
        let _ = self.nft.wait();
    }
}

/// Whether the host passes on what is not for it.
fn host_forwards() -> bool {
    std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward").is_ok_and(|text| text.trim() == "1")
}

impl Nat {
    /// Hides `node`, which is behind `interface`, behind the host's address, if the host forwards; why not, if that is of no use, or fails.
    pub fn start_if_useful(node: Ipv4Subnet, interface: &str) -> Result<Self, String> {
        if !host_forwards() {
            // It would outlast the run.
            return Err("it does not forward (`sysctl -w net.ipv4.ip_forward=1`, as root, lets it)".into());
        }
        Self::start(node, interface)
    }

    fn start(node: Ipv4Subnet, interface: &str) -> Result<Self, String> {
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
        let mut nat = Self { nft, commands };
        let text = format!(
            "add table ip {table} {{ flags owner; }}\n\
             add chain ip {table} nat {{ type nat hook postrouting priority 100; }}\n\
             add rule ip {table} nat ip saddr {} oifname != \"{interface}\" masquerade\n",
            node.address
        );
        let commands = nat.commands.as_mut().expect("it was asked for");
        commands
            .write_all(text.as_bytes())
            .map_err(|error| format!("nft has ended: {error}"))?;
        let deadline = Instant::now() + PATIENCE;
        while !is_there(&table) {
            if Instant::now() > deadline || nat.nft.try_wait().is_ok_and(|ended| ended.is_some()) {
                return Err("nft did not make a table that goes with this process (it needs Linux 5.12)".into());
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        Ok(nat)
    }
}

/// Whether the last of the commands was carried out.
fn is_there(table: &str) -> bool {
    let listed = Command::new(PROGRAM)
        .args(["list", "table", "ip", table])
        .stderr(Stdio::null())
        .output();
    listed.is_ok_and(|listed| String::from_utf8_lossy(&listed.stdout).contains("masquerade"))
}
