//! Mode `raw`: what changes in the host's addresses and routes changes in the node, by a program that is run there: ip(8), which the node sees as
//! the host has it.

use super::engine::INTERFACE;
use super::raw;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;
use windtunnel_control::{Connection, ControlError, FromRun, Open, Reply, Request};
use windtunnel_ports::{HostChanges, HostInterface, Subnet};

/// Changes come in groups: an address, then the routes that lean on it.
const GROUP: Duration = Duration::from_millis(50);

/// What is followed, and what the node has of it at first.
#[derive(Debug)]
pub struct Spec {
    /// The host's interface.
    pub interface: String,
    /// News since before it was read.
    pub changes: HostChanges,
    /// What it was then.
    pub host: HostInterface,
    /// The node's addresses are followed too: not where a broker has lent them.
    pub addresses: bool,
}

/// A thread that follows; it ends when [`Follower::finish`] is called.
#[derive(Debug)]
pub struct Follower {
    thread: JoinHandle<Option<String>>,
    /// Closed at the end.
    end: UnixStream,
}

impl Spec {
    /// Follows on the node `node` of the run whose socket is `socket`.
    ///
    /// # Errors
    /// When the host has no threads or descriptors left.
    pub fn start(self, socket: &Path, node: &str) -> std::io::Result<Follower> {
        let (end, over) = UnixStream::pair()?;
        let (socket, node) = (socket.to_owned(), node.to_owned());
        let thread = std::thread::Builder::new()
            .name("follow".into())
            .spawn(move || follow(&self, &socket, &node, &over))?;
        Ok(Follower { thread, end })
    }
}

impl Follower {
    /// Ends it; why the node has not followed, if it has not.
    pub fn finish(self) -> Option<String> {
        drop(self.end);
        // A panic has been printed.
        self.thread.join().ok().flatten()
    }
}

fn follow(spec: &Spec, socket: &Path, node: &str, over: &UnixStream) -> Option<String> {
    let mut known = State::of(&spec.host, spec.addresses);
    let mut failed = None;
    loop {
        let readable = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let mut fds = [readable(spec.changes.as_fd()), readable(over.as_fd())];
        // Interrupted, it looks again.
        let _ = poll(&mut fds, PollTimeout::NONE);
        if fds[1].any().unwrap_or(false) {
            return failed;
        }
        std::thread::sleep(GROUP);
        if !spec.changes.take() {
            continue;
        }
        // It may have gone, and come back.
        let Ok(host) = HostInterface::read(&spec.interface) else {
            continue;
        };
        let now = State::of(&host, spec.addresses);
        if now == known {
            continue;
        }
        match apply(&known.commands(&now), socket, node) {
            Ok(()) => (known, failed) = (now, None),
            Err(why) => failed = Some(why),
        }
    }
}

/// What a node has to have.
#[derive(Debug, PartialEq, Eq)]
struct State {
    addresses: Vec<Subnet>,
    routes: Vec<String>,
}

/// Commands of ip(8).
#[derive(Debug, PartialEq, Eq)]
struct Commands {
    /// What is taken away, which may have gone by itself.
    away: Vec<String>,
    /// What has to be there.
    there: Vec<String>,
}

impl State {
    fn of(host: &HostInterface, addresses: bool) -> Self {
        Self {
            addresses: if addresses { host.preferred.clone() } else { Vec::new() },
            routes: raw::routes(host),
        }
    }

    /// What makes `now` of this.
    fn commands(&self, now: &Self) -> Commands {
        let gone_routes = self.routes.iter().filter(|route| !now.routes.contains(route));
        let gone_addresses = self.addresses.iter().filter(|subnet| !now.addresses.contains(subnet));
        let away = gone_routes
            .map(|route| format!("route delete {route}"))
            .chain(gone_addresses.map(|subnet| format!("address delete {subnet} dev {INTERFACE}")));
        // All of them: with an address that goes, others and routes may go.
        let addresses = now.addresses.iter().map(|subnet| {
            let at_once = if subnet.address.is_ipv6() { " nodad" } else { "" };
            format!("address replace {subnet} dev {INTERFACE}{at_once}")
        });
        let there = addresses.chain(now.routes.iter().map(|route| format!("route replace {route}")));
        Commands {
            away: away.collect(),
            there: there.collect(),
        }
    }
}

/// Has the node carry out commands; why not, if that fails.
fn apply(commands: &Commands, socket: &Path, node: &str) -> Result<(), String> {
    let lines: String = commands
        .away
        .iter()
        .chain(&commands.there)
        .map(|line| format!("{line}\n"))
        .collect();
    let (exit, said) = run(&lines, socket, node).map_err(|error| error.to_string())?;
    // `Command failed -:3`: the number of the line.
    let failed_at = said
        .lines()
        .filter_map(|line| line.rsplit_once("failed -:")?.1.trim().parse::<usize>().ok());
    match exit {
        Some(0) => Ok(()),
        Some(1) if failed_at.clone().count() > 0 && failed_at.clone().all(|line| line <= commands.away.len()) => Ok(()),
        _ => Err(said.lines().next().unwrap_or("it did not start").to_owned()),
    }
}

/// Runs `ip` in the node, as its root; its exit code, and what it said.
fn run(lines: &str, socket: &Path, node: &str) -> Result<(Option<i32>, String), ControlError> {
    let mut connection = Connection::open(socket)?;
    let words = ["/bin/sh", "-c", "PATH=$PATH:/usr/sbin:/sbin exec ip -force -batch -"];
    connection.send(&Request::Open {
        node: node.to_owned(),
        program: Open {
            argv: words.map(str::to_owned).to_vec(),
            env: [("PATH".to_owned(), "/usr/bin:/bin".to_owned())].into(),
            env_only: true,
            terminal: None,
            user: None,
            cwd: Some("/".into()),
        },
    })?;
    connection.send_input(lines.as_bytes().to_vec())?;
    connection.send(&Request::EndInput)?;
    let mut said = String::new();
    loop {
        match connection.receive()? {
            Some(FromRun::Output(_, bytes)) => said.push_str(&String::from_utf8_lossy(&bytes)),
            Some(FromRun::Reply(Reply::Ended(end))) => return Ok((end.exit, said)),
            Some(FromRun::Reply(Reply::Refused(refusal))) => return Ok((None, refusal.message)),
            Some(FromRun::Reply(Reply::RunOver)) | None => return Ok((Some(0), said)),
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_is_taken_away_and_all_else_is_made_sure_of() {
        let subnet = |text: &str| {
            let (address, bits) = text.split_once('/').unwrap();
            Subnet {
                address: address.parse().unwrap(),
                prefix_bits: bits.parse().unwrap(),
            }
        };
        let state = |addresses: &[&str], routes: &[&str]| State {
            addresses: addresses.iter().map(|text| subnet(text)).collect(),
            routes: routes.iter().map(ToString::to_string).collect(),
        };
        let before = state(
            &["192.0.2.1/24", "fd00::1/64"],
            &["0.0.0.0/0 via 192.0.2.254 dev eth0 metric 0"],
        );
        let after = state(
            &["192.0.2.1/24", "fd00::2/64"],
            &["0.0.0.0/0 via 192.0.2.253 dev eth0 metric 0"],
        );
        let commands = before.commands(&after);
        assert_eq!(
            commands.away,
            [
                "route delete 0.0.0.0/0 via 192.0.2.254 dev eth0 metric 0",
                "address delete fd00::1/64 dev eth0"
            ]
        );
        assert_eq!(
            commands.there,
            [
                "address replace 192.0.2.1/24 dev eth0",
                "address replace fd00::2/64 dev eth0 nodad",
                "route replace 0.0.0.0/0 via 192.0.2.253 dev eth0 metric 0"
            ]
        );
        assert_eq!(before.commands(&before).away, [""; 0]);
    }
}
