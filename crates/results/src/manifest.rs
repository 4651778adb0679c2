//! `manifest.json`: all that is needed to repeat a run, and the facts of the host it ran on.

use crate::error::Result;
use crate::host_facts::HostFacts;
use crate::summary::read_json;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Value of [`Manifest::generator`]; how a folder is recognised as ours.
pub const GENERATOR: &str = "windtunnel";
/// Version of the shape of `manifest.json`.
pub const MANIFEST_VERSION: u32 = 2;

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// Virtual time reached `run.stop`.
    Stop,
    /// No program and no event was left.
    AllDone,
    /// Whoever drove the run had seen enough.
    Driver,
    /// The user asked it to stop.
    Interrupted,
    /// A kernel panicked, or the engine met a bug.
    Crash,
    /// It could not go on: a file could not be written, a program could not be started ...
    Error,
}

impl Ended {
    /// The value as written in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::AllDone => "all_done",
            Self::Driver => "driver",
            Self::Interrupted => "interrupted",
            Self::Crash => "crash",
            Self::Error => "error",
        }
    }
}

/// All of `manifest.json`. Written when the run starts (with `ended: null`) and again when it ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// [`GENERATOR`].
    pub generator: String,
    /// [`MANIFEST_VERSION`].
    pub manifest_version: u32,
    /// Version of windtunnel.
    pub windtunnel_version: String,
    /// Why the run ended; null: it is still running, or was killed.
    pub ended: Option<Ended>,
    /// The message of a crash or error; null: there was none.
    pub error: Option<String>,
    /// The scenario that ran.
    pub scenario: ScenarioRecord,
    /// Seed of all random numbers.
    pub seed: u64,
    /// What nodes saw as `/`, in the order of the first node that has it.
    #[serde(default)]
    pub roots: Vec<RootRecord>,
    /// Every file that the scenario gives nodes from the host (`source:`), by path.
    #[serde(default)]
    pub sources: Vec<SourceRecord>,
    /// Kernels in use, by series.
    pub kernels: Vec<KernelRecord>,
    /// Every file that was executed or loaded as a program or library, by path.
    pub programs: Vec<ProgramRecord>,
    /// Every other file of the host that was opened and read, by path.
    #[serde(default)]
    pub files: Vec<FileRecord>,
    /// Every directory of the host whose entries were listed, by path: two hosts with other packages differ here.
    #[serde(default)]
    pub directories: Vec<FileRecord>,
    /// Files and directories of the host that changed during the run in a way that programs may have seen, by path.
    #[serde(default)]
    pub changed_files: Vec<String>,
    /// What makes the results of this run depend on the host, one sentence each; only there if something does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_deterministic: Vec<String>,
    /// As in the summary.
    pub digest: Option<String>,
    /// Virtual time at the end, nanoseconds since the start.
    pub virtual_time_ns: u64,
    /// When the run started, seconds since 1970 on the host's clock.
    pub started_unix_s: u64,
    /// What the run took of the host.
    pub cost: Cost,
    /// The host it ran on.
    pub host: HostFacts,
    /// What it ran on instead of library kernels; only there if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<PlatformRecord>,
}

/// What a run was on that was not in virtual time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlatformRecord {
    /// `host`: namespaces of the host's kernel.
    pub name: String,
    /// Release of that kernel.
    pub kernel_release: String,
    /// Whether nodes were in user namespaces, for the run was not root's.
    pub rootless: bool,
    /// Why there is no digest.
    pub no_digest: String,
    /// Folders that nodes could not write to.
    pub read_only: Vec<String>,
}

/// The scenario of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioRecord {
    /// File as named by the user.
    pub path: String,
    /// `name:` in the file.
    pub name: String,
    /// SHA-256 of the file, 64 hexadecimal digits.
    pub sha256: String,
    /// Wall clock of the nodes at virtual time 0, seconds since 1970: what captures count from.
    #[serde(default)]
    pub epoch_s: u64,
}

/// What some nodes saw as `/`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RootRecord {
    /// `host`, `directory`, `tar`, `docker` or `oci`.
    pub kind: String,
    /// Where it was found.
    pub path: String,
    /// Which image of the archive was asked for; null: none by name.
    pub name: Option<String>,
    /// SHA-256, 64 hexadecimal digits: of the image's configuration (its id) for `docker` and `oci`, of the file for `tar`;
    /// null: a folder has none, the files that were used of it are recorded each.
    pub sha256: Option<String>,
    /// The nodes.
    pub nodes: Vec<String>,
}

/// One file that the scenario gives nodes from the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceRecord {
    /// Path inside the nodes.
    pub path: String,
    /// SHA-256 of its contents, 64 hexadecimal digits.
    pub sha256: String,
    /// The nodes.
    pub nodes: Vec<String>,
}

/// One kernel image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelRecord {
    /// Series, as in a scenario: "6.12".
    pub series: String,
    /// Release the kernel reports: "6.12.117".
    pub release: String,
    /// SHA-256 of the image, 64 hexadecimal digits.
    pub sha256: String,
    /// Hash of source and configuration that names it in the cache; null: not from the cache.
    pub build_hash: Option<String>,
}

/// One executed file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramRecord {
    /// Path inside the node.
    pub path: String,
    /// SHA-256 of its contents as found on the host, 64 hexadecimal digits.
    pub sha256: String,
}

/// One file or directory of the host that nodes read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileRecord {
    /// Path inside the node, and on the host.
    pub path: String,
    /// SHA-256, 64 hexadecimal digits: of a file's contents; of a directory's entries that nodes see, by name, each as
    /// its name, a zero byte, its type in octal as in `st_mode`, and a newline. Null: it changed during the run.
    pub sha256: Option<String>,
}

/// What a run took of the host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// Wall time from start to end, nanoseconds.
    pub wall_time_ns: u64,
    /// CPU time of the process, user and system, nanoseconds.
    pub cpu_time_ns: u64,
    /// Largest resident memory, bytes.
    pub peak_memory_bytes: u64,
}

impl Cost {
    /// CPU time and memory of this process so far, with the given wall time.
    pub fn of_this_process(wall_time_ns: u64) -> Self {
        use nix::sys::resource::{UsageWho, getrusage};
        let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else {
            return Self {
                wall_time_ns,
                ..Self::default()
            };
        };
        let ns = |time: nix::sys::time::TimeVal| time.tv_sec() as u64 * 1_000_000_000 + time.tv_usec() as u64 * 1_000;
        Self {
            wall_time_ns,
            cpu_time_ns: ns(usage.user_time()) + ns(usage.system_time()),
            peak_memory_bytes: usage.max_rss() as u64 * 1024,
        }
    }
}

impl Manifest {
    /// The manifest of a run that starts now.
    pub fn starting(windtunnel_version: &str, scenario: ScenarioRecord, seed: u64) -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self {
            generator: GENERATOR.to_owned(),
            manifest_version: MANIFEST_VERSION,
            windtunnel_version: windtunnel_version.to_owned(),
            ended: None,
            error: None,
            scenario,
            seed,
            roots: Vec::new(),
            sources: Vec::new(),
            kernels: Vec::new(),
            programs: Vec::new(),
            files: Vec::new(),
            directories: Vec::new(),
            changed_files: Vec::new(),
            not_deterministic: Vec::new(),
            digest: None,
            virtual_time_ns: 0,
            started_unix_s: now.map_or(0, |since| since.as_secs()),
            cost: Cost::default(),
            host: HostFacts::gather(),
            platform: None,
        }
    }

    /// The bytes of `manifest.json`: indented, with a newline at the end.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("a manifest has string keys only");
        text.push('\n');
        text
    }

    /// Reads `DIR/manifest.json`.
    pub fn read(out_dir: &Path) -> Result<Self> {
        read_json(&out_dir.join("manifest.json"), "a manifest")
    }
}
