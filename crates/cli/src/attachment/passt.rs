//! Mode `host`: passt, which every user may run, turns the node's packets into connections of the host. It ends when the connection to
//! it does, however this program ends.

use super::engine::INTERFACE;
use super::network::{self, IpSubnet};
use super::resolver::resolver;
use super::{Wire, Wish, joined, of_node};
use crate::failure::Failure;
use serde_json::json;
use std::io::Read;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = "passt";
/// As Ethernet has it.
const MTU: u32 = 1500;
/// Whether an address is tried before it is used (duplicate address detection). What is sent meanwhile is from `::`, which passt of 2023 takes
/// for the node's address, and answers to.
const NO_TRIAL: [&str; 2] = ["accept_dad", "dad_transmits"];
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
    let (has_v4, has_v6) = (network::has_default_route(), network::has_default_route_v6());
    if !has_v4 && !has_v6 {
        return Err(
            Failure::user("mode host needs a default route of the host, which passt takes its interface from")
                .hint("`ip route` lists the routes; `--mode tap` (as root) needs none"),
        );
    }
    let pid = std::process::id();
    let v4 = has_v4.then(|| wish.address_v4_or_free()).transpose()?;
    let v6 = has_v6.then(|| wish.address_v6_or_free()).flatten();
    let subnets: Vec<IpSubnet> = [v4, v6].into_iter().flatten().collect();
    for (version, given, laid) in [("IPv4", wish.address_v4(), v4), ("IPv6", wish.address_v6(), v6)] {
        if let (Some(given), None) = (given, laid) {
            return Err(Failure::user(format!(
                "{given} cannot be used: this host has no default route of {version}, which passt takes its interface from"
            ))
            .hint("`ip route` and `ip -6 route` list the routes"));
        }
    }
    let gateways: Vec<IpAddr> = subnets.iter().map(|subnet| subnet.neighbour()).collect();
    // Queries to the gateway go to the host's first resolver, also where that is on its loopback.
    let stand_in = gateways.first().copied();
    let resolver = resolver(&wish.resolvers, stand_in);
    let socket = format!("windtunnel-attach-{pid}");
    let mut arguments: Vec<String> = ["--foreground", "--quiet", "--fd", "0"].map(str::to_owned).to_vec();
    // The node has its addresses already.
    arguments.extend(["--no-dhcp", "--no-dhcpv6", "--no-ra"].map(str::to_owned));
    let mut option = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
    for (subnet, gateway) in subnets.iter().zip(&gateways) {
        option("--address", subnet.address.to_string());
        option("--gateway", gateway.to_string());
    }
    if let Some(v4) = v4 {
        option("--netmask", v4.prefix_bits.to_string());
    }
    if let Some(stand_in) = stand_in {
        option("--dns-forward", stand_in.to_string());
    }
    match (v4, v6) {
        (Some(_), None) => arguments.push("--ipv4-only".into()),
        (None, Some(_)) => arguments.push("--ipv6-only".into()),
        _ => {}
    }
    Ok(Wire {
        port: json!({"stream": format!("@{socket}"), "listen": true}),
        addresses: of_node(&subnets),
        routes: gateways
            .iter()
            .map(|gateway| format!("default via {gateway}"))
            .collect(),
        mtu: MTU,
        resolv_conf: resolver.text,
        says: format!(
            "the program speaks to {kernel}, the wire speaks this host's own kernel (passt); address {}, the host's loopback is {}",
            joined(&subnets),
            joined(&gateways)
        ),
        notes: resolver.note.into_iter().collect(),
        nat: None,
        mac: None,
        follow: None,
        sysctls: NO_TRIAL
            .map(|key| (format!("net.ipv6.conf.{INTERFACE}.{key}"), "0".to_owned()))
            .into(),
        passt: Some(Spec {
            program,
            arguments,
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
