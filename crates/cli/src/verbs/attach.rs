//! `windtunnel attach -- CMD...`

use crate::attach::{self, Ending, Manner};
use crate::attachment::{self, Engine, IpSubnet, Mode, Plan, Wire, Wish};
use crate::failure::{Failure, Outcome, SIGNAL_BASE};
use crate::host;
use crate::live;
use std::io::IsTerminal;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use windtunnel_control::{Connection, NameLock, Open, live_sockets};

/// Run a program of this host on a library kernel that is on the real network
///
/// The program is as on the host: its files, folder, environment, user, terminal, signals and exit code, and those of its
/// children. Its sockets are the library kernel's, in real time. What it writes to files reaches the host's when it has ended.
/// Without `--mode` it is `tap` where this user may make one, else `host`. Exit code: the program's; 127 if it is not found, 126 if it
/// cannot be executed, 128 and the signal's number if a signal ended it.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How the library kernel reaches the network
    #[arg(long, value_enum)]
    mode: Option<Mode>,
    /// What becomes of files that the program writes
    #[arg(long, value_enum, default_value_t = Files::Host)]
    files: Files,
    /// Address of the library kernel, with its subnet; a free private one of a few by default; may be given again, for IPv6
    #[arg(long = "address", value_name = "ADDRESS/BITS")]
    addresses: Vec<IpSubnet>,
    /// Kernel series
    #[arg(long, value_name = "SERIES", default_value = "6.12")]
    kernel: String,
    /// Kernel parameter, as in net.ipv4.tcp_congestion_control=bbr; may be given again
    #[arg(long = "sysctl", value_name = "NAME=VALUE", value_parser = parse_sysctl)]
    sysctls: Vec<(String, String)>,
    /// Name server in place of the host's; may be given again
    #[arg(long = "resolver", value_name = "ADDRESS")]
    resolvers: Vec<IpAddr>,
    /// In mode `raw`: interface of this host whose address is shared; that of the default route by default
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    /// In mode `raw`: ports of TCP and UDP that are the library kernel's, as in 40000-40099; a hundred free ones by default
    #[arg(long, value_name = "FIRST-LAST")]
    ports: Option<windtunnel_ports::PortRange>,
    /// In mode `udp`: address and port of this end of the cable
    #[arg(long, value_name = "ADDRESS:PORT")]
    local: Option<SocketAddr>,
    /// In mode `udp`: address and port of the other end
    #[arg(long, value_name = "ADDRESS:PORT")]
    peer: Option<SocketAddr>,
    /// In mode `udp`: file with the key that both ends share, 64 hexadecimal digits
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Name of the library kernel: programs attached by the same name share it, with its address and ports, and it stays until the last of them ends
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    name: Option<String>,
    /// Keep summary, capture and logs in this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Do not say what the wire speaks
    #[arg(long)]
    quiet: bool,
    /// Program and its arguments; no shell is involved
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<String>,
}

/// What becomes of what is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Files {
    /// It is brought to the host's files at the end.
    Host,
    /// It stays apart, and is dropped at the end.
    Layer,
}

fn parse_sysctl(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.trim().into(), value.trim().into())),
        _ => Err("a kernel parameter is NAME=VALUE, as in net.ipv4.tcp_congestion_control=bbr".into()),
    }
}

fn parse_name(text: &str) -> Result<String, String> {
    let usable = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if (1..=40).contains(&text.len()) && text.chars().all(usable) {
        return Ok(text.into());
    }
    Err("a name is 1 to 40 letters, digits, `-`, `_` and `.`".into())
}

/// What the runs of this verb are called among live runs.
fn run_name(name: Option<&str>) -> String {
    name.map_or_else(|| "attach".to_owned(), |name| format!("attach-{name}"))
}

/// The program's exit code.
pub fn run(args: &Args) -> Outcome {
    host::restart_if_need_be();
    host::lift_limits();
    let program = program(args)?;
    let manner = Manner::of(&program)?;
    let name = run_name(args.name.as_deref());
    let lock = args.name.is_some().then(|| NameLock::take(&name)).transpose()?;
    if args.name.is_some()
        && let Some(connection) = find(&name)
    {
        drop(lock);
        return join(args, connection, program, manner);
    }
    let wish = Wish {
        mode: args.mode,
        addresses: args.addresses.clone(),
        interface: args.interface.clone(),
        ports: args.ports,
        resolvers: args.resolvers.clone(),
        local: args.local,
        peer: args.peer,
        key: args.key.clone(),
    };
    let (mode, mut wire) = attachment::lay(&wish, &format!("linux-{}", args.kernel))?;
    let plan = Plan {
        name: &name,
        kernel: &args.kernel,
        sysctls: &args.sysctls,
        out: args.out.as_deref(),
        write_back: args.files == Files::Host,
    };
    let engine = Engine::start(&plan, &wire)?;
    // From now on it is found.
    drop(lock);
    let follower = wire.follow.take().and_then(|spec| {
        let started = spec.start(engine.socket(), &engine.node);
        started
            .inspect_err(|error| eprintln!("attach: warning: the host's routes are not followed: {error}"))
            .ok()
    });
    let ended = live_with(args, &engine, &wire, program, &manner, || say(args, mode, &wire));
    if let Some(why) = follower.and_then(attachment::Follower::finish) {
        eprintln!(
            "attach: warning: the host's addresses or routes have changed, and the library kernel's have not: {why}"
        );
    }
    let is_over = engine.is_over();
    let finished = engine.finish();
    wire.remove();
    match (finished, ended) {
        // Why the run broke off is the reason for all else.
        (Err(failure), _) => Err(failure),
        (Ok(()), Err(failure)) if is_over => Err(failure.because("the run has ended")),
        (Ok(()), ended) => ended,
    }
}

/// The one line on what the wire speaks, and what else there is to know.
fn say(args: &Args, mode: Mode, wire: &Wire) {
    if args.quiet {
        return;
    }
    let files = match args.files {
        Files::Host => "reaches the host's files at the end",
        Files::Layer => "is dropped at the end",
    };
    eprintln!("attach: {}, mode {}; what is written {files}", wire.says, mode.name());
    for note in &wire.notes {
        eprintln!("attach: {note}");
    }
}

/// Everything while the run lasts, which has ended when this returns, or is about to.
fn live_with(
    args: &Args,
    engine: &Engine,
    wire: &Wire,
    program: Open,
    manner: &Manner,
    started: impl FnOnce(),
) -> Outcome {
    let mut passt = match &wire.passt {
        None => None,
        Some(spec) => spec.start(|| engine.is_over())?,
    };
    let mut connection = engine.connect()?;
    let ended = attach::session(&mut connection, &engine.node, program, manner, started);
    if let Ok(Ending::Program(_)) = ended {
        // What a program leaves to its kernel at its end is still sent, as on any host.
        attach::linger(&mut connection, manner)?;
        if let Some(name) = &args.name {
            let waiting = || {
                if !args.quiet {
                    eprintln!("attach: the library kernel `{name}` stays until its last program ends, or Ctrl-C");
                }
            };
            attach::wait_for_others(&mut connection, &engine.node, manner, waiting)?;
            attach::linger(&mut connection, manner)?;
        }
    }
    let told = passt.as_mut().and_then(attachment::Passt::failure);
    // It may be over already.
    let _ = attach::stop(&mut connection);
    match (told, exit_code(ended?)) {
        (Some(failure), Ok(code)) => {
            eprintln!("attach: warning: {failure}");
            Ok(code)
        }
        (_, code) => code,
    }
}

fn exit_code(ending: Ending) -> Outcome {
    match ending {
        Ending::Program(end) => Ok(end.exit.unwrap_or_else(|| SIGNAL_BASE + end.signal.unwrap_or_default())),
        Ending::Signal(signal) => Ok(SIGNAL_BASE + signal),
        Ending::Refused(refusal) => {
            let failure = Failure::user(refusal.message).code(refusal.exit_code);
            Err(match refusal.hint {
                Some(hint) => failure.hint(hint),
                None => failure,
            })
        }
        Ending::Left | Ending::RunOver => Err(live::over("the run has ended".into(), "")),
    }
}

/// The live run of that name.
fn find(name: &str) -> Option<Connection> {
    let mut connections = live_sockets()
        .into_iter()
        .filter_map(|socket| Connection::open(&socket).ok());
    connections.find(|connection| connection.hello().scenario == name)
}

/// A further program on a kernel that is there.
fn join(args: &Args, mut connection: Connection, program: Open, manner: Manner) -> Outcome {
    let of_the_first = [
        ("--mode", args.mode.is_some()),
        ("--address", !args.addresses.is_empty()),
        ("--sysctl", !args.sysctls.is_empty()),
        ("--resolver", !args.resolvers.is_empty()),
        ("--interface", args.interface.is_some()),
        ("--ports", args.ports.is_some()),
        ("--local", args.local.is_some()),
        ("--peer", args.peer.is_some()),
        ("--key", args.key.is_some()),
        ("--out", args.out.is_some()),
        ("--files layer", args.files == Files::Layer),
    ];
    let name = args.name.as_deref().unwrap_or_default();
    if let Some((option, _)) = of_the_first.into_iter().find(|(_, given)| *given) {
        return Err(Failure::user(format!(
            "a library kernel called `{name}` is there already, and `{option}` is for its first program only"
        ))
        .hint(format!("leave `{option}` out, or choose another name")));
    }
    let node = connection.hello().nodes.first().cloned().unwrap_or_default();
    let pid = connection.hello().pid;
    let said = || {
        if !args.quiet {
            eprintln!("attach: shares the library kernel `{name}` of process {pid}");
        }
    };
    match attach::session(&mut connection, &node, program, &manner, said)? {
        Ending::RunOver => Err(Failure::user(format!(
            "the library kernel `{name}` has ended before this program: process {pid}, which made it, was stopped"
        ))
        .hint("what the program has written is lost if that was killed; the same command starts another kernel")),
        ended => exit_code(ended),
    }
}

/// The program as it is on the host.
fn program(args: &Args) -> Result<Open, Failure> {
    let cwd = std::env::current_dir().map_err(|error| {
        Failure::user("the current folder cannot be found")
            .because(error)
            .hint("it may have been removed: go to another one")
    })?;
    let cwd = cwd.to_str().map(str::to_owned).ok_or_else(|| {
        Failure::user(format!("the current folder {} is not UTF-8", cwd.display())).hint("start the program elsewhere")
    })?;
    let mut env = std::collections::BTreeMap::new();
    for (name, value) in std::env::vars_os() {
        match (name.into_string(), value.into_string()) {
            (Ok(name), Ok(value)) if !name.is_empty() => drop(env.insert(name, value)),
            (Ok(name), Err(_)) => eprintln!("attach: {name} is left out of the environment: it is not UTF-8"),
            _ => {}
        }
    }
    let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
    let on_terminal =
        std::io::stdin().is_terminal() && std::io::stdout().is_terminal() && std::io::stderr().is_terminal();
    Ok(Open {
        argv: args.command.clone(),
        env,
        env_only: true,
        terminal: on_terminal.then(attach::window_size),
        user: (!uid.is_root()).then(|| format!("{uid}:{gid}")),
        cwd: Some(cwd),
    })
}
