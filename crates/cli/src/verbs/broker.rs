//! `windtunnel broker`

use crate::failure::{EXIT_OK, Failure, Outcome};
use std::path::PathBuf;
use windtunnel_broker::{Broker, BrokerError, Config};
use windtunnel_ports::BROKER_SOCKET;

/// Where the administrator says who may have what.
const CONFIG: &str = "/etc/windtunnel/broker.toml";

/// Give ordinary users ports of this host's own address
///
/// A daemon, for root: it listens at a Unix socket, and lends the ports that its configuration allows a user or group to ports of kind `raw` that name it
/// (`broker: auto`). It opens the packet socket, holds the ports, keeps the host's stack from answering, and checks what is sent. All of it goes
/// with the client, or with the broker. SIGTERM and Ctrl-C end it.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Its configuration (TOML)
    #[arg(long, value_name = "FILE", default_value = CONFIG)]
    config: PathBuf,
    /// Where it listens
    #[arg(long, value_name = "SOCKET", default_value = BROKER_SOCKET)]
    socket: PathBuf,
    /// Read the configuration, say what is wrong with it, and end
    #[arg(long)]
    check: bool,
}

/// Serves until a signal ends it.
pub fn run(args: &Args) -> Outcome {
    let config = Config::read(&args.config).map_err(|error| {
        Failure::user("the broker's configuration cannot be used")
            .because(error)
            .hint("docs/outside.md has an example; without rules nobody may have anything")
    })?;
    if args.check {
        return super::print(&format!("{}: {} rules\n", args.config.display(), config.rules()));
    }
    let failure = |error: BrokerError| match error {
        BrokerError::Running(_) => Failure::user(error.to_string()).hint("one is enough; or choose another --socket"),
        BrokerError::Host { .. } => Failure::user(error.to_string()).hint("it has to be started by root"),
    };
    crate::host::lift_limits();
    let broker = Broker::open(&args.socket, config, |line| eprintln!("broker: {line}")).map_err(failure)?;
    eprintln!("broker: listens at {}", args.socket.display());
    broker.run().map_err(failure)?;
    Ok(EXIT_OK)
}
