//! `windtunnel logs NODE[/PROCESS]`

use crate::failure::{EXIT_OK, Failure, Outcome};
use crate::live;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use windtunnel_control::{Connection, LINK};
use windtunnel_scenario::nearest;

/// How often to look for more.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const STDOUT: &str = ".stdout";
const STDERR: &str = ".stderr";
const KERNEL: &str = "kernel.log";

/// Print what the programs of a node wrote
///
/// Of a live run, or with `--run DIR` of one that is over. Standard error goes to standard error; with more than one program,
/// each line begins with the program's name. `NODE/kernel` is the kernel's log.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Node, or one of its programs as in h1/ping-0; h1/ping is every ping of h1
    #[arg(value_name = "NODE[/PROCESS]", add = ArgValueCompleter::new(complete))]
    what: String,
    /// Go on until the run ends
    #[arg(short, long)]
    follow: bool,
    #[command(flatten)]
    which: live::Which,
}

/// Prints the logs.
pub fn run(args: &Args) -> Outcome {
    // The files of a run that is over, or was killed, are still there.
    let gone = args.which.run.as_ref().filter(|dir| !dir.join(LINK).is_symlink());
    let (connection, out) = match gone {
        Some(dir) => (None, dir.clone()),
        None => match (args.which.connect(), &args.which.run) {
            (Ok(connection), _) => {
                let out = connection.hello().out.clone();
                (Some(connection), out)
            }
            (Err(_), Some(dir)) => (None, dir.clone()),
            (Err(failure), None) => return Err(failure),
        },
    };
    let (node, process) = match args.what.split_once('/') {
        Some((node, process)) => (node, Some(process)),
        None => (args.what.as_str(), None),
    };
    let folder = match &connection {
        Some(connection) => {
            live::check_node(connection, node)?;
            out.join(node)
        }
        None => node_folder(&out, node)?,
    };
    let mut logs = Logs::new(folder, process);
    if !logs.find() {
        return Err(nothing(&logs, node));
    }
    match connection.filter(|_| args.follow) {
        Some(connection) => follow(&mut logs, connection),
        None => {
            logs.print()?;
            logs.finish()
        }
    }
}

/// The folder of a node of a run that is over.
fn node_folder(out: &Path, node: &str) -> Result<PathBuf, Failure> {
    let folder = out.join(node);
    if node.is_empty() || node == ".." || !folder.join(KERNEL).is_file() {
        let failure = Failure::user(format!("the run in {} has no node `{node}`", out.display()));
        let nodes = nodes_in(out);
        let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
        return Err(match nearest(node, &nodes) {
            Some(near) => failure.hint(format!("did you mean `{near}`?")),
            None if nodes.is_empty() => {
                failure.hint("`--run DIR` takes the folder given to `windtunnel run --out DIR`")
            }
            None => failure.hint(format!("its nodes: {}", nodes.join(", "))),
        });
    }
    Ok(folder)
}

fn nodes_in(out: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(out).into_iter().flatten().flatten();
    let nodes = entries.filter(|entry| entry.path().join(KERNEL).is_file());
    let mut names: Vec<String> = nodes
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn nothing(logs: &Logs, node: &str) -> Failure {
    let failure = match &logs.wanted {
        Some(process) => Failure::user(format!("node {node} has no program `{process}`")),
        None => Failure::user(format!("node {node} has no programs")),
    };
    match names_in(&logs.folder)[..] {
        [] => failure.hint(format!("its kernel's log: windtunnel logs {node}/kernel")),
        ref names => failure.hint(format!("there are: {}", names.join(", "))),
    }
}

/// Names of the programs whose output is in a node's folder, in order.
fn names_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(STDOUT)?.to_owned()));
    let mut names: Vec<String> = names.collect();
    // ping-10 comes after ping-9.
    names.sort_by_key(|name| {
        let (_, index) = name.rsplit_once('-').unwrap_or_default();
        (index.parse::<u32>().unwrap_or(u32::MAX), name.clone())
    });
    names
}

/// Output of programs of one node.
struct Logs {
    folder: PathBuf,
    wanted: Option<String>,
    open: Vec<Log>,
}

/// One file.
struct Log {
    name: String,
    path: PathBuf,
    file: File,
    error: bool,
    /// Begins of lines that have no end yet.
    rest: Vec<u8>,
}

impl Logs {
    fn new(folder: PathBuf, wanted: Option<&str>) -> Self {
        Self {
            folder,
            wanted: wanted.map(str::to_owned),
            open: Vec::new(),
        }
    }

    /// Opens what is there and not open yet; whether any is.
    fn find(&mut self) -> bool {
        let mut found = Vec::new();
        if self.wanted.as_deref() == Some("kernel") {
            found.push(("kernel".to_owned(), self.folder.join(KERNEL), false));
        }
        for name in names_in(&self.folder) {
            let program = name.rsplit_once('-').map_or("", |(program, _)| program);
            if self
                .wanted
                .as_ref()
                .is_none_or(|wanted| *wanted == name || wanted == program)
            {
                found.push((name.clone(), self.folder.join(format!("{name}{STDOUT}")), false));
                found.push((name.clone(), self.folder.join(format!("{name}{STDERR}")), true));
            }
        }
        for (name, path, error) in found {
            if self.open.iter().all(|log| log.path != path)
                && let Ok(file) = File::open(&path)
            {
                self.open.push(Log {
                    name,
                    path,
                    file,
                    error,
                    rest: Vec::new(),
                });
            }
        }
        !self.open.is_empty()
    }

    /// Prints what there is more of.
    fn print(&mut self) -> Outcome {
        let several = self.open.iter().any(|log| log.name != self.open[0].name);
        for log in &mut self.open {
            let mut bytes = Vec::new();
            log.file
                .read_to_end(&mut bytes)
                .map_err(|error| Failure::unreadable(&log.path, &error))?;
            let text = if several { log.prefixed(&bytes) } else { bytes };
            let written = if log.error {
                std::io::stderr().lock().write_all(&text)
            } else {
                let mut out = std::io::stdout().lock();
                out.write_all(&text).and_then(|()| out.flush())
            };
            match written {
                // A reader that has seen enough (`| head`) is no failure.
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(EXIT_OK),
                Err(error) => return Err(Failure::user("cannot write to standard output").because(error)),
                Ok(()) => {}
            }
        }
        Ok(EXIT_OK)
    }

    /// Lines without an end are printed at the end.
    fn finish(&mut self) -> Outcome {
        for log in &mut self.open {
            if !log.rest.is_empty() {
                log.rest.push(b'\n');
                let rest = std::mem::take(&mut log.rest);
                let line = [log.name.as_bytes(), b": ", &rest].concat();
                let _ = if log.error {
                    std::io::stderr().write_all(&line)
                } else {
                    std::io::stdout().write_all(&line)
                };
            }
        }
        Ok(EXIT_OK)
    }
}

impl Log {
    /// Whole lines, each with the program's name.
    fn prefixed(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.rest.extend(bytes);
        let whole = self
            .rest
            .iter()
            .rposition(|&byte| byte == b'\n')
            .map_or(0, |end| end + 1);
        let mut text = Vec::with_capacity(whole);
        for line in self.rest[..whole].split_inclusive(|&byte| byte == b'\n') {
            text.extend(self.name.as_bytes());
            text.extend(b": ");
            text.extend(line);
        }
        self.rest.drain(..whole);
        text
    }
}

/// Prints until the run closes the connection.
fn follow(logs: &mut Logs, mut connection: Connection) -> Outcome {
    let (over, is_over) = std::sync::mpsc::channel::<()>();
    let watch = std::thread::Builder::new().spawn(move || {
        // The sender is dropped with the connection.
        let _over = over;
        while matches!(connection.read_more(), Ok(true)) {}
    });
    watch.map_err(|error| Failure::user("cannot watch the run").because(error))?;
    loop {
        let ended = is_over.recv_timeout(LOOK_EVERY) != Err(std::sync::mpsc::RecvTimeoutError::Timeout);
        logs.find();
        logs.print()?;
        if ended {
            return logs.finish();
        }
    }
}

/// Nodes, and after a slash their programs.
fn complete(start: &OsStr) -> Vec<CompletionCandidate> {
    let text = start.to_string_lossy().into_owned();
    let Some((node, _)) = text.split_once('/') else {
        return live::complete_node(start);
    };
    let which = live::Which {
        run: live::run_on_command_line(),
    };
    let Ok(connection) = which.connect() else {
        return Vec::new();
    };
    let names = names_in(&connection.hello().out.join(node))
        .into_iter()
        .chain(["kernel".to_owned()]);
    let words = names.map(|name| format!("{node}/{name}"));
    words
        .filter(|word| word.starts_with(&text))
        .map(CompletionCandidate::new)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> Log {
        Log {
            name: "yes-0".into(),
            path: PathBuf::new(),
            file: File::open("/dev/null").expect("every host has it"),
            error: false,
            rest: Vec::new(),
        }
    }

    #[test]
    fn lines_get_their_names_when_they_are_whole() {
        let mut log = log();
        assert_eq!(log.prefixed(b"a\nb"), b"yes-0: a\n");
        assert_eq!(log.prefixed(b""), b"");
        assert_eq!(log.prefixed(b"c\n\nd"), b"yes-0: bc\nyes-0: \n");
        assert_eq!(log.rest, b"d");
    }

    #[test]
    fn many_lines_take_no_longer_than_their_bytes() {
        // Taken off the front one by one, two million lines would move some 4 TB: this would not end.
        assert_eq!(log().prefixed(&b"y\n".repeat(2_000_000)).len(), 18_000_000);
    }
}
