//! What a scenario may ask for and the host's kernel does not give: refused where it would make another scenario, else warned of.
//! docs/platforms.md has the whole table.

use std::path::Path;

use windtunnel_results::Warnings;
use windtunnel_scenario::{Action, Cpu, Exec, Measures, NicModel, Root, Scenario};

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
        if node.root != Root::Host {
            return refuse(
                format!("node {name} has a root of its own"),
                "leave `root` out, or run it in virtual time",
            );
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
        if node.cpu != Cpu::default() {
            let text = "`cpu` has no effect on the host's kernel: work takes the time that it takes";
            warnings.add(0, "host_cpu", Some(name), None, text);
        }
        let models = node.interfaces.iter().map(|interface| interface.nic.model);
        if let Some(model) = models.into_iter().find(|model| *model != NicModel::Ideal) {
            let text = format!(
                "the NIC model {} has no effect: interfaces are TAPs of the host's kernel",
                model.name()
            );
            warnings.add(0, "host_nic", Some(name), None, &text);
        }
    }
    if scenario.run.measure != Measures::default() {
        let text = "`measure` has no effect on the host's kernel: there are no series of links, connections and queues";
        warnings.add(0, "host_measure", None, None, text);
    }
    Ok(())
}
