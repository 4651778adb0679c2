//! The host's memory: what happens when it runs out.
//!
//! Limits of nodes are constants, so that programs are told the same on every host; a host may have less. Then the kernel
//! would end the engine, with all that is known of the run. So a thread looks at how much is left, the more often the less
//! it is. Where it gets short, nodes whose files take much get no more room for files, and then the biggest program is ended
//! by SIGKILL while it runs, as Linux would do it; both is warned of, for the results are those of this host then. Where
//! that does not help, the run ends with what is known of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use windtunnel_base::ByteSize;
use windtunnel_process::trap::{strike, struck};

use crate::shared::Shared;
use crate::watchdog::{LastWords, end_run};

/// Kept free: this part of all there is, within bounds, bytes.
const RESERVE_PART: u64 = 10;
const RESERVE_RANGE: (u64, u64) = (64 << 20, 1 << 30);
/// Faster than programs can take memory, bytes per ms.
const FASTEST: u64 = 8 << 20;
/// How often to look, ms.
const EVERY_MS: (u64, u64) = (1, 500);
/// How long a program may run until it is struck, and one that was may take to give its memory back.
const STRIKE_WITHIN: Duration = Duration::from_millis(50);
const FREE_WITHIN: Duration = Duration::from_secs(10);

/// The running guard; dropping it ends its thread.
#[derive(Debug)]
pub struct MemoryGuard {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl MemoryGuard {
    /// Starts looking. To be called before the traps of the simulation thread are set, which its threads inherit.
    pub fn start(shared: Arc<Shared>, words: LastWords) -> Self {
        let (stop, stopped) = channel();
        let watch = move || {
            let source = Source::of_this_process();
            let mut guard = Guard {
                shared,
                words,
                doomed_since: None,
                struck_at: None,
                begin: Instant::now(),
            };
            let mut wait = Duration::ZERO;
            while stopped.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                let Some(left) = source.left() else { return };
                guard.look(&left);
                wait = left.wait();
            }
        };
        let thread = std::thread::Builder::new().name("memory".into()).spawn(watch).ok();
        Self {
            stop: Some(stop),
            thread,
        }
    }
}

impl Drop for MemoryGuard {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It only sleeps; a panic in it has been printed.
            let _ = thread.join();
        }
    }
}

/// How much memory there is for this process, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Left {
    free: u64,
    total: u64,
    /// The total is a limit of a cgroup, not the host's memory.
    limited: bool,
}

impl Left {
    fn reserve(&self) -> u64 {
        (self.total / RESERVE_PART).clamp(RESERVE_RANGE.0, RESERVE_RANGE.1)
    }

    /// How long it is certainly enough.
    fn wait(&self) -> Duration {
        let ms = self.free.saturating_sub(2 * self.reserve()) / FASTEST;
        Duration::from_millis(ms.clamp(EVERY_MS.0, EVERY_MS.1))
    }
}

/// Whoever has most of the memory.
struct Guard {
    shared: Arc<Shared>,
    words: LastWords,
    /// A program is to be ended, since the simulation had run for so long.
    doomed_since: Option<Duration>,
    /// One was told to end.
    struck_at: Option<Instant>,
    begin: Instant,
}

/// For how long a thread of this process has run; where the host does not tell, the time since `begin`.
fn time_run(tid: i32, begin: Instant) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/schedstat")).ok();
    let ran_ns = stat.and_then(|stat| stat.split_whitespace().next()?.parse().ok());
    ran_ns.map_or_else(|| begin.elapsed(), Duration::from_nanos)
}

impl Guard {
    fn look(&mut self, left: &Left) {
        let reserve = left.reserve();
        let files = &self.words.files;
        // Files first: nothing has to be ended for them, and they stay when their programs are gone.
        files.refuse_files((left.free < 2 * reserve).then_some(reserve / 4));
        if struck() {
            self.struck_at = Some(Instant::now());
            self.doomed_since = None;
        }
        if left.free >= reserve {
            self.doomed_since = None;
            self.struck_at = None;
            return;
        }
        if self.struck_at.is_some_and(|at| at.elapsed() < FREE_WITHIN) {
            return;
        }
        self.struck_at = None;
        match files.biggest_program().filter(|&(_, bytes)| bytes >= reserve) {
            Some((slot, _)) => {
                let tid = self.shared.simulation_tid.load(Ordering::Relaxed);
                // Its own time: on a busy host it may have to wait, and takes no memory meanwhile.
                let ran = time_run(tid, self.begin);
                let since = *self.doomed_since.get_or_insert(ran);
                strike(tid, slot);
                let defies = left.free < reserve / 4 && ran.saturating_sub(since) > STRIKE_WITHIN;
                if defies || left.free < reserve / 16 {
                    self.end(left);
                }
            }
            // Of the whole host's memory somebody else may have taken it.
            None if left.free < reserve / 4 && left.limited => self.end(left),
            None => {}
        }
    }

    fn end(&self, left: &Left) {
        let text = format!(
            "host: out of memory: {} are left of {}{}",
            ByteSize(left.free),
            ByteSize(left.total),
            if left.limited { ", the limit of its cgroup" } else { "" }
        );
        let hint =
            "give nodes less `program_memory` and `disk`, run fewer programs at a time, or give the run more memory";
        end_run(&self.shared, &self.words, &text, hint);
    }
}

/// Where to read how much memory is left.
#[derive(Debug)]
struct Source {
    meminfo: PathBuf,
    cgroups: Vec<Cgroup>,
}

/// A cgroup with a limit on memory; version 1 or 2.
#[derive(Debug, PartialEq, Eq)]
struct Cgroup {
    limit: u64,
    folder: PathBuf,
    files: &'static Files,
}

/// What a version calls things.
#[derive(Debug, PartialEq, Eq)]
struct Files {
    mount: &'static str,
    limit: &'static str,
    used: &'static str,
    /// Lines of `memory.stat`: page cache that can be given back.
    cache: [&'static str; 2],
}

const V1: Files = Files {
    mount: "memory",
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    cache: ["total_inactive_file", "total_active_file"],
};
const V2: Files = Files {
    mount: "",
    limit: "memory.max",
    used: "memory.current",
    cache: ["inactive_file", "active_file"],
};

impl Source {
    fn of_this_process() -> Self {
        let memberships = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Self {
            meminfo: "/proc/meminfo".into(),
            cgroups: cgroups(Path::new("/sys/fs/cgroup"), &memberships),
        }
    }

    /// None where the host does not tell.
    fn left(&self) -> Option<Left> {
        let meminfo = std::fs::read_to_string(&self.meminfo).ok()?;
        let kib = |name| value_of(&meminfo, name).map(|kib| kib * 1024);
        let host = Left {
            free: kib("MemAvailable:")? + kib("SwapFree:").unwrap_or(0),
            total: kib("MemTotal:")?,
            limited: false,
        };
        let cgroups = self.cgroups.iter().filter_map(Cgroup::left);
        cgroups.chain([host]).min_by_key(|left| left.free)
    }
}

impl Cgroup {
    fn left(&self) -> Option<Left> {
        let used = number(&self.folder.join(self.files.used))?;
        let stat = std::fs::read_to_string(self.folder.join("memory.stat")).ok()?;
        let cache: u64 = self.files.cache.iter().filter_map(|name| value_of(&stat, name)).sum();
        Some(Left {
            free: self.limit.saturating_sub(used.saturating_sub(cache)),
            total: self.limit,
            limited: true,
        })
    }
}

/// The cgroups with a limit that a process is in, by what its /proc/PID/cgroup says (cgroups(7)).
fn cgroups(root: &Path, memberships: &str) -> Vec<Cgroup> {
    let mut found = Vec::new();
    for line in memberships.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        let files = match controllers {
            "" => &V2,
            list if list.split(',').any(|name| name == "memory") => &V1,
            _ => continue,
        };
        let mount = root.join(files.mount);
        // In a container the path may be the host's, and what is mounted the container's own.
        let own = Some(mount.join(path.trim_start_matches('/'))).filter(|own| own.is_dir());
        let own = own.unwrap_or_else(|| mount.clone());
        for folder in own.ancestors().take_while(|folder| folder.starts_with(&mount)) {
            // Version 1 says that there is none by a number as large as can be.
            if let Some(limit) = number(&folder.join(files.limit)).filter(|&limit| limit < 1 << 62) {
                found.push(Cgroup {
                    limit,
                    folder: folder.into(),
                    files,
                });
            }
        }
    }
    found
}

fn number(file: &Path) -> Option<u64> {
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// The number after a name at the beginning of a line.
fn value_of(text: &str, name: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn put(folder: &Path, files: &[(&str, &str)]) {
        fs::create_dir_all(folder).unwrap();
        for (name, text) in files {
            fs::write(folder.join(name), text).unwrap();
        }
    }

    #[test]
    fn the_tightest_limit_on_the_way_up_counts_and_page_cache_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let stat = "anon 5\nactive_file 1000\ninactive_file 500\n";
        put(
            &root.join("a"),
            &[
                ("memory.max", "9000\n"),
                ("memory.current", "8000"),
                ("memory.stat", stat),
            ],
        );
        put(
            &root.join("a/b"),
            &[
                ("memory.max", "max\n"),
                ("memory.current", "8000"),
                ("memory.stat", stat),
            ],
        );
        put(
            root,
            &[("meminfo", "MemTotal: 90 kB\nMemAvailable:   70 kB\nSwapFree: 1 kB\n")],
        );
        let mut source = Source {
            meminfo: root.join("meminfo"),
            cgroups: cgroups(root, "12:cpu:/x\n0::/a/b\n"),
        };
        let limited = Left {
            free: 2500,
            total: 9000,
            limited: true,
        };
        assert_eq!(source.left(), Some(limited));
        source.cgroups.clear();
        let host = Left {
            free: 71 * 1024,
            total: 90 * 1024,
            limited: false,
        };
        assert_eq!(source.left(), Some(host));
    }

    #[test]
    fn version_1_and_containers_are_understood() {
        let dir = tempfile::tempdir().unwrap();
        let none = "9223372036854771712\n";
        let stat = "inactive_file 1\ntotal_inactive_file 100\n";
        let files = [
            ("memory.limit_in_bytes", "1000"),
            ("memory.usage_in_bytes", "300"),
            ("memory.stat", stat),
        ];
        put(&dir.path().join("memory"), &files);
        put(&dir.path().join("memory/known"), &[("memory.limit_in_bytes", none)]);
        for path in ["/docker/not-here", "/known"] {
            let found = cgroups(dir.path(), &format!("4:memory:{path}\n0::/\n"));
            assert_eq!(found.len(), 1, "{path}");
            assert_eq!(found[0].left().map(|left| left.free), Some(800));
        }
    }

    #[test]
    fn the_less_is_left_the_more_often_it_looks() {
        let wait = |free_mib: u64| {
            let left = Left {
                free: free_mib << 20,
                total: 3 << 30,
                limited: true,
            };
            left.wait().as_millis()
        };
        assert_eq!((wait(100_000), wait(100), wait(0)), (500, 1, 1));
        assert!(wait(1000) < 100);
    }
}
