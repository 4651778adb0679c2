//! Finds the live run that is meant, and the node in it.

use crate::failure::Failure;
use clap_complete::engine::CompletionCandidate;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use windtunnel_control::{Connection, ControlError, LINK, live_sockets};
use windtunnel_results::Manifest;
use windtunnel_scenario::nearest;

/// Which run is meant.
#[derive(Debug, clap::Args)]
pub struct Which {
    /// Output folder of the run; needed if several are live
    #[arg(long, value_name = "DIR")]
    pub run: Option<PathBuf>,
}

impl Which {
    /// Connects to it.
    pub fn connect(&self) -> Result<Connection, Failure> {
        match &self.run {
            Some(dir) => connect_in(dir),
            None => connect_to_the_only_one(),
        }
    }
}

/// Connects to the run whose output folder this is.
fn connect_in(dir: &Path) -> Result<Connection, Failure> {
    if let Ok(socket) = std::fs::read_link(dir.join(LINK)) {
        return Connection::open(&socket).map_err(|error| refused(dir, error));
    }
    let name = dir.display();
    let manifest = Manifest::read(dir).map_err(|error| {
        Failure::user(format!("{name} is not the output folder of a run"))
            .because(error)
            .hint("`--run DIR` takes the folder given to `windtunnel run FILE --out DIR`")
    })?;
    Err(match manifest.ended {
        Some(ended) => over(format!("the run in {name} is over"), ended.as_str()),
        None => Failure::user(format!("the run in {name} cannot be reached")).because("it has no control socket"),
    })
}

/// A run that is over.
pub fn over(what: String, ended: &str) -> Failure {
    let failure = Failure::user(what).hint("`windtunnel run FILE --out DIR --hold` keeps a run alive at its end");
    match ended {
        "" => failure,
        ended => failure.because(format!("it ended: {ended}")),
    }
}

fn refused(dir: &Path, error: ControlError) -> Failure {
    let name = dir.display();
    match error {
        ControlError::Version { .. } => Failure::user(format!("the run in {name} cannot be reached"))
            .because(error)
            .hint("use the version of windtunnel that started it"),
        error => Failure::user(format!("the run in {name} does not answer"))
            .because(error)
            .hint("it may have been killed, or belong to another user"),
    }
}

fn connect_to_the_only_one() -> Result<Connection, Failure> {
    let sockets = live_sockets();
    match &sockets[..] {
        [] => Err(Failure::user("no run is live")
            .hint("start one with `windtunnel run FILE --out DIR --hold`, or name a folder with `--run DIR`")),
        [one] => Connection::open(one).map_err(|error| refused(one, error)),
        several => {
            let mut failure = Failure::user(format!("{} runs are live", several.len()));
            for connection in several.iter().filter_map(|socket| Connection::open(socket).ok()) {
                let hello = connection.hello();
                failure = failure.choice(format!("{} in {}", hello.scenario, hello.out.display()));
            }
            Err(failure.hint("say which one is meant with `--run DIR`"))
        }
    }
}

/// The node of that name must be there.
pub fn check_node(connection: &Connection, name: &str) -> Result<(), Failure> {
    let hello = connection.hello();
    let known: Vec<&str> = hello.nodes.iter().map(String::as_str).collect();
    if known.contains(&name) {
        return Ok(());
    }
    let failure = Failure::user(format!("{} has no node `{name}`", hello.scenario));
    Err(match nearest(name, &known) {
        Some(near) => failure.hint(format!("did you mean `{near}`?")),
        None => failure.hint(format!("its nodes: {}", known.join(", "))),
    })
}

/// Names of the nodes of the live run, for shells that complete a word.
pub fn complete_node(start: &OsStr) -> Vec<CompletionCandidate> {
    let start = start.to_string_lossy();
    let which = Which {
        run: run_on_command_line(),
    };
    let Ok(connection) = which.connect() else {
        return Vec::new();
    };
    let names = connection.hello().nodes.iter().filter(|name| name.starts_with(&*start));
    names.map(CompletionCandidate::new).collect()
}

/// `--run DIR` of the line that is being completed.
pub fn run_on_command_line() -> Option<PathBuf> {
    let words: Vec<_> = std::env::args_os().skip_while(|word| word != "--").collect();
    let at = words.iter().position(|word| word == "--run")?;
    words.get(at + 1).map(PathBuf::from)
}
