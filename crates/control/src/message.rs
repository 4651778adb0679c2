//! Messages of a connection, JSON each. Names of fields and variants are the protocol: a change raises [`PROTOCOL`].

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::driver::{Answer, Numbered, ProgramEnd};
use crate::state::{Break, Broken, Look, State};

/// Version of the protocol.
pub const PROTOCOL: u32 = 4;

/// Size of a terminal's window, characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WindowSize {
    /// Lines.
    pub rows: u16,
    /// Characters in a line.
    pub columns: u16,
}

/// A program to start for a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Open {
    /// Program and arguments; empty: the node's shell, bash or sh.
    pub argv: Vec<String>,
    /// Environment, besides PATH, HOME and the like.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Whether `env` is all of the environment, without PATH, HOME and the like.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub env_only: bool,
    /// On a terminal of this size; none: on three pipes.
    #[serde(default)]
    pub terminal: Option<WindowSize>,
    /// Whom it runs as: a name in the node's /etc/passwd, a user id, or user and group id as in 1000:1000; none: root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Its working directory, an absolute path; none: `/`, and the user's home for the node's shell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
}

impl Open {
    /// Why no program can be started like this, if so: Linux ends each word at a NUL character, and a name in the environment at
    /// the first `=`.
    pub fn problem(&self) -> Option<String> {
        let words = self.argv.iter().map(|word| ("argument", word));
        let names = self.env.keys().map(|name| ("name in the environment", name));
        let values = self.env.values().map(|value| ("value in the environment", value));
        let users = self.user.iter().map(|user| ("user", user));
        let folders = self.cwd.iter().map(|cwd| ("working directory", cwd));
        let mut all = words.chain(names).chain(values).chain(users).chain(folders);
        if let Some((what, word)) = all.find(|(_, word)| word.contains('\0')) {
            return Some(format!("the {what} {word:?} contains a NUL character"));
        }
        if let Some(cwd) = self.cwd.as_ref().filter(|cwd| !cwd.starts_with('/')) {
            return Some(format!("the working directory `{cwd}` is not absolute"));
        }
        let bad = self.env.keys().find(|name| name.is_empty() || name.contains('='))?;
        Some(format!("{bad:?} cannot be a name in the environment"))
    }
}

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Start a program, and connect its input and output with this connection.
    Open {
        /// On which node.
        node: String,
        /// What.
        program: Open,
    },
    /// The window of the program's terminal has another size.
    Resize(WindowSize),
    /// There is no more input for the program.
    EndInput,
    /// Send a signal to the program, once it runs.
    Signal {
        /// Its number, from 1 to 64.
        #[schemars(range(min = 1, max = 64))]
        signal: i32,
        /// To its process group, as a terminal does, and not to the program alone.
        #[serde(default)]
        group: bool,
    },
    /// List the processes of a node, or of all.
    Processes {
        /// Which node; none: all.
        node: Option<String>,
    },
    /// Say how the run stands, which does nothing to it. Answered by [`Reply::State`], as often as it is asked.
    Look(Look),
    /// Let time stand still each time when a condition begins to hold. Answered by [`Reply::Watching`], then by [`Reply::Broken`]
    /// each time. One for each connection: another takes its place. It is over when the connection is closed.
    BreakWhen(Break),
    /// Let time go on after [`Reply::Broken`].
    GoOn,
    /// End the run, as Ctrl-C does. The connection is closed when its results are written.
    Stop,
    /// Drive the run from now on: time stands still but for what commands say. There is one driver at most.
    Drive,
    /// A command of the driver.
    Command(Numbered),
}

/// What a run says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// First of all.
    Hello(Hello),
    /// The program runs.
    Started {
        /// Process id in the node.
        pid: u32,
    },
    /// The program has ended; nothing else follows.
    Ended(End),
    /// As asked for.
    Processes(Vec<Process>),
    /// How the run stands.
    State(Box<State>),
    /// The condition is understood, and looked at from now on.
    Watching,
    /// The condition holds: time stands still until [`Request::GoOn`], or until this connection is closed.
    Broken(Box<Broken>),
    /// It cannot be done; nothing else follows.
    Refused(Refusal),
    /// This connection drives the run now; answers to commands follow.
    Driving {
        /// Where time stands, ns.
        at_ns: u64,
    },
    /// The answer to a command.
    Answer(Answer),
    /// A program that a driver has started has ended.
    ProgramEnded(ProgramEnd),
    /// The run is over; nothing else follows.
    RunOver,
}

/// Which run this is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Hello {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// Version of windtunnel.
    pub version: String,
    /// Name of the scenario.
    pub scenario: String,
    /// Its output folder, absolute.
    pub out: PathBuf,
    /// Process id of the engine.
    pub pid: u32,
    /// Names of the nodes.
    pub nodes: Vec<String>,
}

/// How a program ended: one of the two is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct End {
    /// Exit code.
    pub exit: Option<i32>,
    /// Number of the signal that ended it.
    pub signal: Option<i32>,
}

/// A process of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Process {
    /// The node.
    pub node: String,
    /// Process id.
    pub pid: u32,
    /// Process id of its parent; 1: started by the scenario or a client, or an orphan.
    pub parent: u32,
    /// As in `ps`: R running, S sleeping, D waiting, T stopped, Z ended and not waited for.
    pub state: String,
    /// Program and arguments; the program's short name in brackets if they are not known.
    pub command: String,
    /// Virtual time at which it started, nanoseconds. Exact for programs of the scenario and of clients, else to 10 ms.
    pub start_ns: u64,
}

/// Why something cannot be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Refusal {
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// Exit code for the client, as shells have it: 127 not found, 126 not executable, 2 anything else.
    pub exit_code: i32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_linux_would_cut_is_refused() {
        let open = |change: fn(&mut Open)| {
            let mut open = Open {
                argv: vec!["ls".into()],
                env: [("A".to_owned(), "b=c".to_owned())].into(),
                env_only: false,
                terminal: None,
                user: Some("root".into()),
                cwd: Some("/tmp".into()),
            };
            change(&mut open);
            open.problem()
        };
        assert_eq!(open(|_| ()), None);
        let text = open(|open| open.argv.push("a\0b".into()));
        assert_eq!(text.as_deref(), Some("the argument \"a\\0b\" contains a NUL character"));
        assert!(open(|open| open.user = Some("\0".into())).is_some());
        assert!(open(|open| open.cwd = Some("/\0".into())).is_some());
        let text = open(|open| open.cwd = Some("tmp".into()));
        assert_eq!(text.as_deref(), Some("the working directory `tmp` is not absolute"));
        assert!(open(|open| drop(open.env.insert("A\0".into(), String::new()))).is_some());
        assert!(open(|open| drop(open.env.insert("A".into(), "\0".into()))).is_some());
        assert!(open(|open| drop(open.env.insert("A=".into(), String::new()))).is_some());
        assert!(open(|open| drop(open.env.insert(String::new(), String::new()))).is_some());
    }
}
