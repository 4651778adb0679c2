//! Mode `host`: passt, which every user may run, turns the node's packets into connections of the host. It ends when the connection to
//! it does, however this program ends.

use super::resolver::resolver;
use super::{Wire, Wish, network};
use crate::failure::Failure;
use serde_json::json;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = "passt";
/// As Ethernet has it.
const MTU: u32 = 1500;
/// How long the port may take to listen: until then the run has begun, or failed.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_micros(200);

/// How it is started.
#[derive(Debug)]
pub struct Spec {
    program: PathBuf,
    arguments: Vec<String>,
    /// Name of the abstract socket that the port listens at.
    socket: String,
}

/// passt, running; it ends when this goes.
#[derive(Debug)]
pub struct Passt(Child);

impl Drop for Passt {
    fn drop(&mut self) {
        // It may have ended by itself, as its connection has.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Where it is.
pub fn find() -> Option<PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    // Ordinary users of some distributions do not have sbin.
    let folders = std::env::split_paths(&folders).chain([PathBuf::from("/usr/sbin")]);
    folders.map(|folder| folder.join(PROGRAM)).find(|path| path.is_file())
}

/// See the module.
///
/// # Errors
/// When passt is not installed, or there is no free subnet.
pub fn lay(wish: &Wish, kernel: &str) -> Result<Wire, Failure> {
    let program = find().ok_or_else(|| {
        Failure::user("mode host needs passt, which is in no folder of PATH")
            .hint("apt install passt (https://passt.top)")
    })?;
    if !network::has_default_route() {
        return Err(
            Failure::user("mode host needs a default route of the host, which passt takes its interface from")
                .hint("`ip route` lists the routes; `--mode tap` (as root) needs none"),
        );
    }
    let pid = std::process::id();
    let address = match wish.address {
        Some(address) => address,
        None => network::free_pair(pid)
            .ok_or_else(|| {
                Failure::user("no free private subnet was found: the host has routes to all of them")
                    .hint("name one with `--address ADDRESS/BITS`")
            })?
            .nth(2),
    };
    let gateway = address.neighbour();
    // Queries to the gateway go to the host's first resolver, also where that is on its loopback.
    let resolver = resolver(&wish.resolvers, Some(gateway));
    let socket = format!("windtunnel-attach-{pid}");
    let arguments = [
        "--foreground",
        "--quiet",
        "--fd",
        "0",
        "--ipv4-only",
        "--no-dhcp",
        "--address",
        &address.address.to_string(),
        "--netmask",
        &address.prefix_bits.to_string(),
        "--gateway",
        &gateway.to_string(),
        "--dns-forward",
        &gateway.to_string(),
    ];
    Ok(Wire {
        port: json!({"stream": format!("@{socket}"), "listen": true}),
        address,
        gateway: Some(gateway),
        mtu: MTU,
        resolv_conf: resolver.text,
        says: format!(
            "the program speaks to {kernel}, the wire speaks this host's own kernel (passt); address {address}, {gateway} is the host's loopback"
        ),
        notes: resolver.note.into_iter().collect(),
        nat: None,
        mac: None,
        sysctls: std::collections::BTreeMap::new(),
        passt: Some(Spec {
            program,
            arguments: arguments.map(str::to_owned).to_vec(),
            socket,
        }),
    })
}

impl Spec {
    /// Starts it at the port, which listens soon; none: `is_over` said that the run has failed meanwhile.
    ///
    /// # Errors
    /// When it cannot be started, or ends at once.
    pub fn start(&self, is_over: impl Fn() -> bool) -> Result<Option<Passt>, Failure> {
        let refused = |error: std::io::Error| Failure::user("passt cannot be connected").because(error);
        let address = SocketAddr::from_abstract_name(&self.socket).map_err(refused)?;
        let deadline = Instant::now() + PATIENCE;
        let stream = loop {
            match UnixStream::connect_addr(&address) {
                Ok(stream) => break stream,
                Err(_) if is_over() => return Ok(None),
                Err(error) if Instant::now() > deadline => return Err(refused(error)),
                Err(_) => std::thread::sleep(LOOK_AGAIN),
            }
        };
        let child = Command::new(&self.program)
            .args(&self.arguments)
            .stdin(Stdio::from(OwnedFd::from(stream)))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        let child = child
            .map_err(|error| Failure::user(format!("{} cannot be started", self.program.display())).because(error))?;
        Ok(Some(Passt(child)))
    }
}

impl Passt {
    /// What it said, if it has ended though its connection has not.
    pub fn failure(&mut self) -> Option<Failure> {
        let status = self.0.try_wait().ok().flatten()?;
        let mut words = String::new();
        if let Some(mut stderr) = self.0.stderr.take() {
            // What cannot be read is not told.
            let _ = stderr.read_to_string(&mut words);
        }
        let failure = Failure::user(format!("passt has ended: {status}"));
        let lines = words.lines().map(str::trim).filter(|line| !line.is_empty());
        Some(lines.fold(failure, |failure, line| failure.because(line)))
    }
}
