//! What can end a run early, for the person who started it.

use std::io;
use std::path::PathBuf;

use windtunnel_base::SimTime;
use windtunnel_kernel::{Crash, ImageError, KernelError, ThreadError};
use windtunnel_process::trap::TrapError;
use windtunnel_process::{HostFailure, MapLimit, ProcessError};
use windtunnel_results::ResultsError;
use windtunnel_scenario::SourceError;

/// Exit code of the program when a run could not start, or not go on, because of its input or the host.
pub const EXIT_UNUSABLE: i32 = 2;
/// Exit code of the program when a kernel or the engine is to blame.
pub const EXIT_BROKEN: i32 = 3;

/// An error that ends a run, or keeps it from starting.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// More nodes than the address space has room for.
    #[error("{nodes} nodes do not fit in one engine; at most {max} do")]
    TooManyNodes {
        /// Nodes asked for.
        nodes: u64,
        /// Nodes possible.
        max: u64,
    },
    /// A kernel's memory does not fit in its region.
    #[error("{bytes} bytes of memory do not fit in a node's address range of {max_bytes} bytes")]
    MemoryTooLarge {
        /// Bytes asked for.
        bytes: u64,
        /// Bytes possible.
        max_bytes: u64,
    },
    /// The kernel image cannot be used.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The host lacks something kernels need.
    #[error(transparent)]
    Thread(#[from] ThreadError),
    /// The host lacks something programs need.
    #[error(transparent)]
    Trap(#[from] TrapError),
    /// What a node should see as `/` cannot be had.
    #[error("node {node}: {} cannot be its root: {source}", path.display())]
    Root {
        /// The first node that has it.
        node: String,
        /// Where it should be.
        path: PathBuf,
        /// Why.
        source: windtunnel_images::ImageError,
    },
    /// A node's files or its programs' addresses cannot be had.
    #[error("node {node}: {source}")]
    Process {
        /// The node.
        node: String,
        /// Why.
        source: ProcessError,
    },
    /// The host has no timer for a run in real time.
    #[error(
        "cannot make a timer for programs that compute in real time: {0}\nhint: RLIMIT_SIGPENDING (`ulimit -i`) counts timers; or write `run: {{preempt: off}}`"
    )]
    Ticks(io::Error),
    /// What all nodes' programs share cannot be had.
    #[error(transparent)]
    Shared(ProcessError),
    /// A node's memory cannot be shared with its programs.
    #[error("node {node}: its memory cannot be handed to its programs: {source}")]
    Memory {
        /// The node.
        node: String,
        /// Why.
        source: io::Error,
    },
    /// A node's kernel does not come up.
    #[error("node {node} does not boot: {source}; its kernel log is {}", log.display())]
    Boot {
        /// The node.
        node: String,
        /// Why.
        source: KernelError,
        /// Its kernel log.
        log: PathBuf,
    },
    /// A scenario file for a node cannot be had.
    #[error("node {node}: {source}")]
    NodeFileSource {
        /// The node.
        node: String,
        /// Which, and why.
        source: SourceError,
    },
    /// The kernel refuses a part of a node's configuration.
    #[error("node {node}: cannot {what}: {reason}{}", detail.as_ref().map(|d| format!(" ({d})")).unwrap_or_default())]
    Configure {
        /// The node.
        node: String,
        /// What was to be done.
        what: String,
        /// What the errno value means.
        reason: String,
        /// The kernel's own explanation.
        detail: Option<String>,
    },
    /// A program cannot be started.
    #[error("node {node}: cannot start {program}: {problem}")]
    Program {
        /// The node.
        node: String,
        /// The program as the scenario names it.
        program: String,
        /// Why.
        problem: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// A set-up command failed.
    #[error("node {node}: set-up command `{command}` {problem}{}", stderr_part(stderr))]
    Setup {
        /// The node.
        node: String,
        /// The command.
        command: String,
        /// "exited with 1" or the like.
        problem: String,
        /// The end of what it wrote to standard error.
        stderr: String,
    },
    /// A set-up command is still there at the end of the run.
    #[error(
        "node {node}: set-up command `{command}` had not ended when the run did, at {at}, so no process of the node was started"
    )]
    EndlessSetup {
        /// The node.
        node: String,
        /// The command.
        command: String,
        /// Virtual time.
        at: SimTime,
    },
    /// A kernel is lost.
    #[error(
        "the kernel of node {node} crashed at {at} (seed {seed})\n{crash}{}\nlast lines of its log:\n{log_tail}",
        line(elsewhere)
    )]
    Crash {
        /// The node.
        node: String,
        /// Virtual time.
        at: SimTime,
        /// Seed of the run.
        seed: u64,
        /// Registers and backtrace.
        crash: Box<Crash>,
        /// Whose memory it was after, if not its own.
        elsewhere: Option<String>,
        /// Whether programs were kept from the memory of other nodes.
        isolated: bool,
        /// The last lines of its kernel log.
        log_tail: String,
    },
    /// A node does not let time pass.
    #[error("node {node} was entered {entries} times at {at} and is still not idle")]
    Livelock {
        /// The node.
        node: String,
        /// Virtual time.
        at: SimTime,
        /// Entries at that time.
        entries: u32,
    },
    /// A result could not be written.
    #[error(transparent)]
    Results(#[from] ResultsError),
    /// The log of what clients did could not be written.
    #[error("cannot write input.jsonl: {0}")]
    InputLog(io::Error),
    /// The recording of what came in through ports could not be written.
    #[error("cannot write outside.bin: {0}")]
    OutsideLog(io::Error),
    /// A port to the outside could not be opened.
    #[error(transparent)]
    Port(windtunnel_ports::PortError),
    /// A recording cannot be replayed in this run.
    #[error("the recording cannot be replayed: {0}")]
    Recording(String),
    /// A program's output could not be written.
    #[error("node {node}: {problem}")]
    Output {
        /// The node.
        node: String,
        /// Which file, and why.
        problem: String,
    },
    /// More programs, or larger ones, than the host lets one process have.
    #[error(transparent)]
    Maps(#[from] MapLimit),
    /// The host refuses what the engine needs for the programs, which no program must notice.
    #[error(transparent)]
    Host(#[from] HostFailure),
    /// A bug of the engine.
    #[error("internal error: {0}")]
    Internal(String),
}

/// What may have been the cause where a kernel or the engine seems to be to blame; goes on after a hint.
pub fn stray_write(isolated: bool) -> &'static str {
    match isolated {
        false => {
            "or a program has written through a stray pointer to memory that is not its own: run it with `--isolate`, which \
             stops and reports that where it is another node's"
        }
        true => {
            "or a program has written through a stray pointer to memory of its own node's kernel or of the engine, from which \
             `--isolate` does not keep it"
        }
    }
}

/// Whether a kernel gave up for want of memory (mm/oom_kill.c).
fn ran_out_of_memory(crash: &Crash) -> bool {
    crash.message.starts_with("System is deadlocked on memory")
}

fn bug_or_stray_write(isolated: bool) -> String {
    format!(
        "this is a bug: please report it with the scenario and the seed; {}",
        stray_write(isolated)
    )
}

/// A further line, if there is one.
fn line(text: &Option<String>) -> String {
    text.as_ref().map(|text| format!("\n  {text}")).unwrap_or_default()
}

fn stderr_part(stderr: &str) -> String {
    if stderr.is_empty() {
        String::new()
    } else {
        format!("\n{stderr}")
    }
}

impl EngineError {
    /// What to do about it, where there is something.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Port(error) => error.hint(),
            Self::TooManyNodes { .. } => Some("split the scenario".into()),
            Self::MemoryTooLarge { .. } => Some("give the node less `memory`, or use fewer nodes".into()),
            Self::Image(_) => Some("build it with `windtunnel kernel build`".into()),
            Self::Trap(_) | Self::Thread(_) | Self::Shared(_) => {
                Some("`windtunnel doctor` shows what this host can do".into())
            }
            Self::Configure {
                detail: Some(detail), ..
            } if detail.contains("gateway") => {
                Some("a next hop must lie in the subnet of an address of the node".into())
            }
            Self::Process {
                source: ProcessError::Addresses { .. },
                ..
            } => Some(
                "nodes need much address space, though little memory: raise its limit (`ulimit -v unlimited`); \
                 `windtunnel doctor` shows whether the range is free"
                    .into(),
            ),
            Self::NodeFileSource { .. } => Some(SourceError::HINT.into()),
            Self::EndlessSetup { .. } => Some(
                "set-up commands run one after the other, each to its end: make a server one of the `processes`, or give the run \
                 a later `stop`"
                    .into(),
            ),
            Self::Boot {
                source: KernelError::Crash(crash),
                ..
            } if ran_out_of_memory(crash) => Some("give the node more `memory`".into()),
            Self::Program { hint, .. } => hint.clone(),
            Self::Root { source, .. } => source.hint(),
            Self::Livelock { .. } => {
                Some("look for a link without rate and delay, or a program that works without ever waiting".into())
            }
            Self::Host(failure) => Some(failure.hint()),
            Self::Maps(MapLimit { limit }) => Some(format!(
                "raise it, `sudo sysctl -w vm.max_map_count={}`, or run fewer programs at a time: each takes some 20 to 60",
                limit.saturating_mul(8)
            )),
            Self::Results(error) => error.hint(),
            Self::Recording(_) => Some("give the scenario, seed and options of the run it was made in".into()),
            Self::Output { .. } | Self::InputLog(_) | Self::OutsideLog(_) => Some("what was written so far is kept; free some space".into()),
            Self::Crash { crash, .. } if crash.message.starts_with("sysrq triggered crash") => {
                Some("a program of the node asked for it, by way of /proc/sysrq-trigger".into())
            }
            Self::Crash { crash, .. } if ran_out_of_memory(crash) => {
                Some("its kernel had no memory left: give the node more `memory`".into())
            }
            Self::Crash { isolated, .. } => Some(bug_or_stray_write(*isolated)),
            Self::Internal(_) => Some(bug_or_stray_write(false)),
            _ => None,
        }
    }

    /// Exit code for the program: [`EXIT_UNUSABLE`] where the user or the host can change something, [`EXIT_BROKEN`]
    /// where a kernel or the engine is to blame.
    pub fn exit_code(&self) -> i32 {
        match self {
            Self::Boot {
                source: KernelError::Crash(crash),
                ..
            }
            | Self::Crash { crash, .. }
                if ran_out_of_memory(crash) =>
            {
                EXIT_UNUSABLE
            }
            Self::Boot {
                source: KernelError::Crash(_),
                ..
            } => EXIT_BROKEN,
            Self::Crash { .. } | Self::Internal(_) => EXIT_BROKEN,
            _ => EXIT_UNUSABLE,
        }
    }

    /// Whether a kernel or the engine itself is to blame, rather than input or host.
    pub fn is_crash(&self) -> bool {
        self.exit_code() == EXIT_BROKEN
    }
}
