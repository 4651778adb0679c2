//! Facts of the host that may matter to somebody comparing runs.

use serde::{Deserialize, Serialize};

/// The host of a run. A fact that can't be had is an empty string or 0.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostFacts {
    /// Distribution, as in os-release: "Debian GNU/Linux 12 (bookworm)".
    pub os: String,
    /// Release of the host's kernel.
    pub kernel_release: String,
    /// CPU model name.
    pub cpu_model: String,
    /// CPUs this process may run on.
    pub cpu_count: u32,
    /// Memory of the host, bytes.
    pub memory_bytes: u64,
    /// True when run by the superuser.
    pub root: bool,
    /// True when the host places programs at random addresses.
    pub address_randomization: bool,
}

impl HostFacts {
    /// Looks at the host.
    pub fn gather() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        Self {
            os: value_of(&read("/etc/os-release"), "PRETTY_NAME", '=')
                .trim_matches('"')
                .to_owned(),
            kernel_release: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            cpu_model: value_of(&read("/proc/cpuinfo"), "model name", ':').to_owned(),
            cpu_count: std::thread::available_parallelism().map_or(0, |n| n.get() as u32),
            memory_bytes: value_of(&read("/proc/meminfo"), "MemTotal", ':')
                .trim_end_matches(" kB")
                .parse::<u64>()
                .map_or(0, |kib| kib * 1024),
            root: nix::unistd::geteuid().is_root(),
            address_randomization: read("/proc/sys/kernel/randomize_va_space").trim() != "0",
        }
    }
}

/// The value of the first line `key SEPARATOR value`, or nothing.
fn value_of<'a>(text: &'a str, key: &str, separator: char) -> &'a str {
    text.lines()
        .filter_map(|line| line.split_once(separator))
        .find(|(name, _)| name.trim() == key)
        .map_or("", |(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_values() {
        let text = "processor\t: 0\nmodel name\t: A CPU @ 1: GHz\nmodel name\t: other\n";
        assert_eq!(value_of(text, "model name", ':'), "A CPU @ 1: GHz");
        assert_eq!(value_of(text, "model", ':'), "");
    }

    #[test]
    fn this_host_has_facts() {
        let facts = HostFacts::gather();
        assert!(
            facts.cpu_count >= 1 && facts.memory_bytes > 1 << 20 && !facts.kernel_release.is_empty(),
            "{facts:?}"
        );
    }
}
