//! Process 1 of a node, and how it comes to be: this program started again, twice. The first makes namespaces, the second is the first
//! process in them.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::network::{self, Refusal, refused};
use crate::protocol::{self, Lines, NodeSpec, Order, ProgramSpec, Report, send};
use crate::root;

/// The first argument of this program when it is to be a node; no verb of users.
pub const INIT_VERB: &str = "__node-init";
/// The second argument of the one that is process 1.
pub const INNER: &str = "inner";
/// The second argument where namespaces need a user namespace.
pub(crate) const ROOTLESS: &str = "rootless";

/// Is a node until the run lets go of the socket that is standard input. `stage` is the second argument.
pub fn node_init(stage: Option<&str>) -> i32 {
    let Ok(stream) = io::stdin().as_fd().try_clone_to_owned().map(UnixStream::from) else {
        return 1;
    };
    let done = match stage {
        Some(INNER) => inner(&stream),
        stage => outer(stage == Some(ROOTLESS)),
    };
    match done {
        Ok(()) => 0,
        Err((what, reason)) => {
            // Where the run is gone there is nobody to tell.
            let _ = send(&mut &stream, &Report::Refused { what, reason });
            1
        }
    }
}

/// Has the kernel end this process when the one that started it ends.
fn die_with_parent() -> Result<(), Refusal> {
    set_pdeathsig(Signal::SIGKILL).map_err(refused("ask to end with the run"))
}

fn outer(rootless: bool) -> Result<(), Refusal> {
    if rootless {
        let (uid, gid) = (nix::unistd::getuid(), nix::unistd::getgid());
        unshare(CloneFlags::CLONE_NEWUSER).map_err(refused("make a user namespace"))?;
        for (file, text) in [
            ("setgroups", "deny".to_owned()),
            ("uid_map", format!("0 {uid} 1")),
            ("gid_map", format!("0 {gid} 1")),
        ] {
            fs::write(format!("/proc/self/{file}"), text)
                .map_err(refused(format!("write the {file} of a user namespace")))?;
        }
    }
    let kinds = CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWPID;
    unshare(kinds).map_err(refused("make the namespaces of a node"))?;
    // Last: a change of credentials forgets it.
    die_with_parent()?;
    let mut inner = Command::new("/proc/self/exe")
        .args([INIT_VERB, INNER])
        .stdout(Stdio::null())
        .spawn()
        .map_err(refused("start process 1 in its namespace"))?;
    inner.wait().map_err(refused("wait for process 1")).map(drop)
}

fn inner(stream: &UnixStream) -> Result<(), Refusal> {
    die_with_parent()?;
    let order: Order = protocol::receive_line(stream).map_err(refused("read what the node is to be"))?;
    let Order::Make(node) = order else {
        return Err(("read what the node is to be".into(), format!("{order:?} came first")));
    };
    let outputs = node.programs.iter().map(open_output).collect::<Result<Vec<_>, _>>()?;
    nix::unistd::sethostname(&node.name).map_err(refused("set the host name"))?;
    let read_only = root::enter(&node)?;
    let taps = network::set_up(&node)?;
    let told = send(&mut &*stream, &Report::Ready { read_only }).and_then(|()| protocol::send_fds(stream, &taps));
    told.map_err(refused("hand over the interfaces"))?;
    // The run alone holds them: they go when it does.
    drop(taps);
    let children = SigSet::from(Signal::SIGCHLD);
    children.thread_block().map_err(refused("wait for signals"))?;
    let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
    let signals = SignalFd::with_flags(&children, flags).map_err(refused("wait for signals"))?;
    let mut init = Init {
        pids: vec![None; node.programs.len()],
        node: *node,
        outputs,
        stream,
    };
    init.serve(&signals).map_err(refused("serve the run"))
}

fn open_output(program: &ProgramSpec) -> Result<[OwnedFd; 2], Refusal> {
    let open = |path: &str| {
        let file = File::options().append(true).open(path);
        file.map(OwnedFd::from).map_err(refused(format!("open {path}")))
    };
    Ok([open(&program.stdout)?, open(&program.stderr)?])
}

struct Init<'a> {
    node: NodeSpec,
    outputs: Vec<[OwnedFd; 2]>,
    /// Of programs that run.
    pids: Vec<Option<Pid>>,
    stream: &'a UnixStream,
}

impl Init<'_> {
    /// Does what the run says until it is gone.
    fn serve(&mut self, signals: &SignalFd) -> io::Result<()> {
        let mut lines = Lines::default();
        let mut buffer = [0; 4096];
        loop {
            let mut fds = [
                PollFd::new(self.stream.as_fd(), PollFlags::POLLIN),
                PollFd::new(signals.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut fds, PollTimeout::NONE) {
                Err(nix::errno::Errno::EINTR) => continue,
                other => other?,
            };
            let [orders, ended] = fds.map(|fd| fd.any().unwrap_or(true));
            if ended {
                while let Ok(Some(_)) = signals.read_signal() {}
                self.reap()?;
            }
            if orders {
                let length = (&mut &*self.stream).read(&mut buffer)?;
                if length == 0 {
                    return Ok(());
                }
                lines.add(&buffer[..length]);
                while let Some(order) = lines.next()? {
                    self.obey(order)?;
                }
            }
        }
    }

    fn obey(&mut self, order: Order) -> io::Result<()> {
        let report = match order {
            Order::Make(_) => return Ok(()),
            Order::Start(index) => match self.start(index) {
                Ok(pid) => {
                    self.pids[index] = Some(Pid::from_raw(pid as i32));
                    Report::Started {
                        index,
                        pid,
                        at_ns: now_ns(),
                    }
                }
                Err(error) => Report::NotStarted {
                    index,
                    reason: error.to_string(),
                },
            },
            Order::Signal { index, signal } => {
                if let (Some(pid), Ok(signal)) = (self.pids[index], Signal::try_from(signal)) {
                    // It may just have ended: that is told anyway.
                    let _ = kill(pid, signal);
                }
                return Ok(());
            }
            Order::Count => Report::Counted(network::queue_drops(&self.node)),
        };
        send(&mut &*self.stream, &report)
    }

    fn start(&self, index: usize) -> io::Result<u32> {
        let program = &self.node.programs[index];
        let [stdout, stderr] = &self.outputs[index];
        let stdin = match &program.stdin {
            None => Stdio::null(),
            Some(text) => {
                let mut file = File::from(memfd_create("stdin", MFdFlags::MFD_CLOEXEC)?);
                file.write_all(text.as_bytes())?;
                file.rewind()?;
                file.into()
            }
        };
        let mut command = Command::new(&program.command[0]);
        command
            .args(&program.command[1..])
            .env_clear()
            .envs(&program.env)
            .current_dir(&program.cwd)
            .stdin(stdin)
            .stdout(stdout.try_clone()?)
            .stderr(stderr.try_clone()?);
        if (program.uid, program.gid) != (0, 0) {
            command.gid(program.gid).uid(program.uid);
        }
        // Their own group: a signal to the run's terminal is not for them.
        command.process_group(0);
        Ok(command.spawn()?.id())
    }

    /// Tells of programs that ended; others are orphans, whose end nobody waits for.
    fn reap(&mut self) -> io::Result<()> {
        loop {
            let (pid, exit, signal) = match waitpid(None::<Pid>, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) => (pid, Some(code), None),
                Ok(WaitStatus::Signaled(pid, signal, _)) => (pid, None, Some(signal as i32)),
                Ok(WaitStatus::StillAlive) | Err(nix::errno::Errno::ECHILD) => return Ok(()),
                Ok(_) | Err(nix::errno::Errno::EINTR) => continue,
                Err(errno) => return Err(errno.into()),
            };
            if let Some(index) = self.pids.iter().position(|known| *known == Some(pid)) {
                self.pids[index] = None;
                let at_ns = now_ns();
                send(
                    &mut &*self.stream,
                    &Report::Ended {
                        index,
                        exit,
                        signal,
                        at_ns,
                    },
                )?;
            }
        }
    }
}

/// `CLOCK_MONOTONIC`, which is one for all namespaces, ns.
pub(crate) fn now_ns() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).expect("Linux always has this clock");
    now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
}
