//! `windtunnel doctor`

use crate::failure::{EXIT_OK, EXIT_USER, Outcome};
use crate::host::{self, Check, State};
use crate::kernels;
use serde::Serialize;
use std::path::Path;
use windtunnel_process::trap::priority;

/// Say what this host can and cannot do
///
/// Exit code 0 if scenarios can run on it, else 2.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// Programs that the examples run in nodes, or a verb needs, and the Debian package of each.
const PROGRAMS: [(&str, &str); 10] = [
    ("ping", "iputils-ping"),
    ("iperf3", "iperf3"),
    ("ip", "iproute2"),
    ("ss", "iproute2"),
    ("tc", "iproute2"),
    ("nft", "nftables"),
    ("sysctl", "procps"),
    ("ethtool", "ethtool"),
    ("tcpdump", "tcpdump"),
    ("gdb", "gdb"),
];

/// What `--json` prints.
#[derive(Serialize)]
struct Report {
    /// Scenarios can run here.
    ok: bool,
    kernel_release: String,
    checks: Vec<Check>,
}

/// Looks at everything and tells.
pub fn run(args: &Args) -> Outcome {
    host::restart_if_need_be();
    host::lift_limits();
    let capabilities = windtunnel_process::trap::capabilities();
    let mut checks = host::checks(&capabilities);
    checks.extend(kernel_checks());
    checks.push(programs());
    checks.push(priority_check());
    checks.extend(windtunnel_ports::availability().iter().map(port_check));
    checks.push(attach());
    checks.push(host_platform());
    let ok = checks.iter().all(|check| check.state != State::Missing);
    let report = Report {
        ok,
        kernel_release: capabilities.kernel_release,
        checks,
    };
    if args.json {
        super::print_json(&report)?;
    } else {
        super::print(&render(&report))?;
    }
    Ok(if ok { EXIT_OK } else { EXIT_USER })
}

fn render(report: &Report) -> String {
    let mut text = format!("Linux {}\n", report.kernel_release);
    for check in &report.checks {
        let state = match check.state {
            State::Ok => "ok",
            State::Limited => "limited",
            State::Missing => "MISSING",
        };
        text += &format!("{state:<8} {:<26} {}\n", check.name, check.detail);
        if let Some(hint) = &check.hint {
            text += &format!("{:<35} hint: {hint}\n", "");
        }
    }
    text + if report.ok {
        "Scenarios can run here.\n"
    } else {
        "Scenarios cannot run here yet.\n"
    }
}

/// What `--priority` needs; nothing else does.
fn priority_check() -> Check {
    match priority::try_priority() {
        Ok(()) => Check::ok("priority in real time", "SCHED_FIFO and locked memory"),
        Err(error) => Check::not_ok("priority in real time", State::Limited, error.to_string(), error.hint()),
    }
}

fn kernel_checks() -> Vec<Check> {
    let series = match kernels::list() {
        Ok(list) => list,
        Err(failure) => {
            let hint = "set WINDTUNNEL_KERNEL_DIR to the folder kernel/ of a checkout";
            return vec![Check::not_ok("library kernels", State::Limited, failure.what(), hint)];
        }
    };
    // One is enough to run something.
    let lack = if series.iter().any(|series| series.current.is_some()) {
        State::Limited
    } else {
        State::Missing
    };
    let check = |series: &kernels::Series| {
        let name = format!("library kernel {}", series.series);
        match &series.current {
            Some(image) => match image.check() {
                Ok(()) => Check::ok(&name, kernel_place(image)),
                Err(failure) => Check::not_ok(&name, State::Missing, failure.what(), "install windtunnel again"),
            },
            None => {
                let hint = format!("windtunnel kernel build --series {}", series.series);
                Check::not_ok(&name, lack, "not built", hint)
            }
        }
    };
    series.iter().map(check).collect()
}

fn kernel_place(image: &kernels::Image) -> String {
    let path = image.path.display();
    if image.installed {
        format!("came with this program: {path}")
    } else {
        path.to_string()
    }
}

fn programs() -> Check {
    let missing: Vec<&(&str, &str)> = PROGRAMS.iter().filter(|(program, _)| !is_installed(program)).collect();
    if missing.is_empty() {
        return Check::ok("programs", "all that the examples use");
    }
    let names: Vec<&str> = missing.iter().map(|(program, _)| *program).collect();
    let mut packages: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
    packages.dedup();
    let detail = format!("not installed: {}", names.join(", "));
    Check::not_ok(
        "programs",
        State::Limited,
        detail,
        format!("apt install {}", packages.join(" ")),
    )
}

/// Runs without ports need none of this, so nothing is missing.
fn port_check(row: &windtunnel_ports::Availability) -> Check {
    let name = match row.kinds {
        kinds @ "user namespaces" => kinds.to_string(),
        kinds => format!("ports: {kinds}"),
    };
    match &row.hint {
        None => Check::ok(&name, row.detail.as_str()),
        Some(hint) => Check::not_ok(&name, State::Limited, row.detail.as_str(), hint.as_str()),
    }
}

/// The ways in which `windtunnel attach` can go: one is always open.
fn attach() -> Check {
    let tap = windtunnel_ports::tap_availability().available;
    let host = is_installed("passt");
    let open = [("tap", tap), ("host", host), ("udp", true)];
    let open: Vec<&str> = open.iter().filter(|(_, open)| *open).map(|(mode, _)| *mode).collect();
    let detail = format!("modes {}", open.join(", "));
    match (tap, host) {
        (_, true) => Check::ok("attach", detail),
        (_, false) => Check::not_ok("attach", State::Limited, detail, "mode host: apt install passt"),
    }
}

/// What `run --platform host` needs; nothing else does.
fn host_platform() -> Check {
    let name = "platform host";
    match windtunnel_platform::probe() {
        Ok(how) => Check::ok(name, how),
        Err(error) => {
            let needs = "needs /dev/net/tun, and root or user namespaces";
            let hint = error
                .hint()
                .unwrap_or_else(|| "docs/platforms.md says what it needs".into());
            Check::not_ok(name, State::Limited, format!("{needs}: {error}"), hint)
        }
    }
}

/// Looks where a node's programs are looked for, and in our own PATH.
fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let standard = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(|dir| Path::new(dir).to_owned());
    std::env::split_paths(&path)
        .chain(standard)
        .any(|dir| dir.join(program).is_file())
}
