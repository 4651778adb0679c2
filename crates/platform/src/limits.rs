//! What a scenario may ask for and the host's kernel does not give: refused where it would make another scenario, else warned of.
//! docs/platforms.md has the whole table.

use std::path::Path;

use windtunnel_results::Warnings;
use windtunnel_scenario::{Action, Exec, Node, Root, Run, Scenario};

use crate::PlatformError;

/// Checks all of it.
///
/// # Errors
/// The first thing that cannot be had.
pub(crate) fn check(scenario: &Scenario, rootless: bool, warnings: &mut Warnings) -> Result<(), PlatformError> {
    let refuse = |what: String, hint: &str| {
        let hint = hint.to_owned();
        Err(PlatformError::Unsupported { what, hint })
    };
    if let Some(port) = scenario.ports.first() {
        return refuse(
            format!("port {} leads outside", port.name),
            "leave `ports` out, or run it with `run: {mode: realtime}` and no `--platform`",
        );
    }
    if scenario
        .events
        .iter()
        .any(|event| !matches!(event.action, Action::SetLink { .. }))
    {
        return refuse(
            "an event takes a node down".to_owned(),
            "leave it out, or run it in virtual time",
        );
    }
    let has_ipv6 = Path::new("/proc/sys/net/ipv6").is_dir();
    for node in &scenario.nodes {
        let name = &node.name;
        if let Root::Path { path, .. } = &node.root
            && !node.root.is_folder()
        {
            return match path.try_exists() {
                Ok(true) => refuse(
                    format!("node {name} has the image {} as its root", path.display()),
                    "name a folder, leave `root` out, or run it in virtual time",
                ),
                _ => Err(PlatformError::Node {
                    node: name.clone(),
                    what: format!("take {} as the root", path.display()),
                    reason: "there is nothing of that name".into(),
                }),
            };
        }
        if let Some(sysctl) = node
            .sysctls
            .keys()
            .find(|key| !key.starts_with("net.") && !key.starts_with("net/"))
        {
            let what = format!("node {name} sets sysctl {sysctl}, which is the whole host's");
            return refuse(
                what,
                "only net.* belongs to a network namespace; leave it out, or run it in virtual time",
            );
        }
        let mut addresses = node.interfaces.iter().flat_map(|interface| &interface.addresses);
        if let Some(address) = addresses.find(|address| address.addr().is_ipv6() && !has_ipv6) {
            return refuse(
                format!("node {name} has {address}, and the host's kernel has no IPv6"),
                "start the host with IPv6",
            );
        }
        for process in &node.processes {
            if matches!(process.exec, Exec::Image { .. }) {
                return refuse(
                    format!("node {name} runs the entrypoint of an image"),
                    "name the program with `exec`",
                );
            }
            let user = process.user.unwrap_or_default();
            if rootless && (user.uid, user.gid) != (0, 0) {
                let what = format!("a process of node {name} runs as user {}:{}", user.uid, user.gid);
                return refuse(
                    what,
                    "without root there is one user in a node: run as root, or leave `user` out",
                );
            }
        }
    }
    without_effect(scenario, warnings);
    Ok(())
}

/// Most bytes of files that a node may have: half of the host's memory, as always for a tmpfs.
pub(crate) fn disk_bytes_max() -> u64 {
    nix::sys::sysinfo::sysinfo().map_or(u64::MAX, |host| host.ram_total() / 2)
}

/// Says nothing that it need not say: what its node, interface and run have, the scenario that is checked has by default.
const PLAIN: &str = "
version: 1
name: plain
run: {stop: 1s}
nodes: {a: {}, b: {}}
links: [{endpoints: ['a:eth0', 'b:eth0'], both: {rate: 1Gbit, delay: 1ms}}]
";

/// Warns of settings that are not as by default, and change nothing here.
fn without_effect(scenario: &Scenario, warnings: &mut Warnings) {
    let plain = Scenario::parse(PLAIN, Path::new("plain.yaml")).expect("it is a scenario");
    for (_, code, text) in of_run(&scenario.run, &plain.run).into_iter().filter(|row| row.0) {
        warnings.add(0, code, None, None, text);
    }
    for node in &scenario.nodes {
        let rows = of_node(node, &plain.nodes[0]);
        for (_, code, text) in rows.into_iter().filter(|row| row.0) {
            warnings.add(0, code, Some(&node.name), None, text);
        }
    }
}

/// Whether to warn, the code, the sentence.
type Row = (bool, &'static str, &'static str);

fn of_run(run: &Run, usual: &Run) -> [Row; 6] {
    let time = (run.realtime.live_at, run.realtime.priority);
    let usual_time = (usual.realtime.live_at, usual.realtime.priority);
    [
        (
            run.epoch_s != usual.epoch_s,
            "host_epoch",
            "`epoch` has no effect on the host's kernel: programs see the host's date, only captures have the scenario's",
        ),
        (
            run.output_limit_bytes != usual.output_limit_bytes,
            "host_output_limit",
            "`output_limit` has no effect on the host's kernel: programs may print what the host's disk takes",
        ),
        (
            run.preempt != usual.preempt,
            "host_preempt",
            "`preempt` has no effect on the host's kernel: it shares its processors among programs as it always does",
        ),
        (
            run.isolate != usual.isolate,
            "host_isolate",
            "`isolate` has no effect on the host's kernel: programs are processes, with memory of their own",
        ),
        (
            time != usual_time,
            "host_realtime",
            "`live_at` and `priority` have no effect on the host's kernel: time is the host's from the start, and so is the schedule",
        ),
        (
            run.measure != usual.measure,
            "host_measure",
            "`measure` has no effect on the host's kernel: there are no series of links, connections and queues",
        ),
    ]
}

fn of_node(node: &Node, usual: &Node) -> [Row; 6] {
    let usual_nic = &usual.interfaces[0].nic;
    [
        (
            node.kernel != usual.kernel,
            "host_kernel",
            "`kernel` has no effect: the node runs the host's kernel",
        ),
        (
            node.memory_bytes != usual.memory_bytes,
            "host_memory",
            "`memory` has no effect on the host's kernel: it has the host's memory for all nodes together",
        ),
        (
            node.program_memory_bytes != usual.program_memory_bytes,
            "host_program_memory",
            "`program_memory` has no effect on the host's kernel: programs may have what the host has",
        ),
        (
            node.disk_bytes != usual.disk_bytes && node.disk_bytes > disk_bytes_max(),
            "host_disk",
            "`disk` is more than half of the host's memory, which is what a node's files may take here",
        ),
        (
            node.cpu != usual.cpu,
            "host_cpu",
            "`cpu` has no effect on the host's kernel: work takes the time that it takes",
        ),
        (
            node.interfaces.iter().any(|interface| interface.nic != *usual_nic),
            "host_nic",
            "`model` and other values of NICs have no effect: interfaces are TAPs of the host's kernel",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(change: impl Fn(&str) -> String) -> Vec<(String, Vec<String>)> {
        let scenario = Scenario::parse(&change(PLAIN), Path::new("test.yaml")).expect("it is a scenario");
        let mut warnings = Warnings::new();
        check(&scenario, true, &mut warnings).expect("nothing is refused");
        let of = |warning: &windtunnel_results::Warning| (warning.code.clone(), warning.nodes.clone());
        warnings.list().iter().map(of).collect()
    }

    #[test]
    fn what_has_no_effect_is_told_once() {
        assert_eq!(codes(str::to_owned), []);
        for (key, code) in [
            ("epoch: 2026-02-01", "host_epoch"),
            ("output_limit: 1MiB", "host_output_limit"),
            ("preempt: spin", "host_preempt"),
            ("isolate: true", "host_isolate"),
            ("live_at: 500ms", "host_realtime"),
            ("priority: true, mode: realtime", "host_realtime"),
            ("measure: 10ms", "host_measure"),
        ] {
            let found = codes(|text| text.replace("stop: 1s", &format!("stop: 1s, {key}")));
            assert_eq!(found, [(code.to_owned(), vec![])], "{key}");
        }
        for (key, code) in [
            ("memory: 32MiB", "host_memory"),
            ("program_memory: 1GiB", "host_program_memory"),
            ("disk: 1000GiB", "host_disk"),
            ("cpu: {syscall: 1us}", "host_cpu"),
            ("interfaces: {eth0: {model: igb}}", "host_nic"),
            ("interfaces: {eth0: {rx_ring: 32}}", "host_nic"),
        ] {
            let nodes = format!("a: {{{key}}}, b: {{{key}}}");
            let found = codes(|text| text.replace("a: {}, b: {}", &nodes));
            assert_eq!(found, [(code.to_owned(), vec!["a".to_owned(), "b".into()])], "{key}");
        }
    }

    #[test]
    fn what_has_an_effect_is_not_told() {
        let found = codes(|text| {
            text.replace(
                "stop: 1s",
                "stop: 1s, seed: 2, capture: all, mode: realtime, late_limit: 5ms, spin: 10us",
            )
            .replace(
                "a: {}",
                "a: {kind: router, disk: 1MiB, interfaces: {eth0: {mtu: 1400}}}",
            )
        });
        assert_eq!(found, []);
    }
}
