//! What a run prints for people when it is over.

use std::collections::BTreeMap;
use std::fmt::Write;
use windtunnel_results::{DirectionSummary, Ended, ProcessSummary, Summary, Warning};

/// The report: programs, links, warnings, failed expectations, digest.
pub fn render(summary: &Summary, out_dir: &str) -> String {
    let mut text = String::new();
    let seconds = summary.virtual_time_ns as f64 / 1e9;
    let how = match summary.ended {
        Ended::Stop => "stopped at its end",
        Ended::AllDone => "ended: nothing left to do",
        Ended::Driver => "ended by its driver",
        Ended::Interrupted => "interrupted",
        Ended::Crash => "crashed",
        Ended::Error => "broken off",
    };
    line(
        &mut text,
        format_args!(
            "{}: {how} after {seconds} s, {} frames",
            summary.scenario, summary.frames
        ),
    );
    processes(&mut text, &summary.processes);
    for link in &summary.links {
        direction(&mut text, &link.a, &link.b, &link.a_to_b);
        direction(&mut text, &link.b, &link.a, &link.b_to_a);
    }
    for port in &summary.ports {
        line(
            &mut text,
            format_args!(
                "  port {}, {}  {} frames in, {} out{}",
                port.name,
                port.what,
                port.frames_in,
                port.frames_out,
                dropped(&port.drops)
            ),
        );
    }
    for warning in &summary.warnings {
        line(&mut text, format_args!("warning: {}", one_line(warning)));
    }
    for failed in &summary.failed_expectations {
        line(&mut text, format_args!("failed: {failed}"));
    }
    if let Some(digest) = &summary.digest {
        line(&mut text, format_args!("digest {digest}"));
    }
    line(&mut text, format_args!("results in {out_dir}"));
    text
}

/// A warning on one line.
pub fn one_line(warning: &Warning) -> String {
    let times = match warning.count {
        1 => String::new(),
        count => format!(" ({count} times)"),
    };
    let first = warning.text.lines().next().unwrap_or_default();
    format!("{}{first}{times}", warning.subject())
}

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    text.write_fmt(arguments)
        .and_then(|()| text.write_char('\n'))
        .expect("writing to a String");
}

fn processes(text: &mut String, list: &[ProcessSummary]) {
    let node_width = list.iter().map(|process| process.node.len()).max().unwrap_or(0);
    for process in list {
        let end = match (process.exit, process.signal, process.start_ns) {
            (Some(code), _, _) => format!("exit {code}"),
            (None, Some(signal), _) => format!("signal {signal}"),
            (None, None, Some(_)) => "running".to_owned(),
            (None, None, None) => "not started".to_owned(),
        };
        line(
            text,
            format_args!(
                "  {:node_width$}  {end:<11}  {}",
                process.node,
                process.command.join(" ")
            ),
        );
    }
}

fn direction(text: &mut String, from: &str, to: &str, counts: &DirectionSummary) {
    if counts.frames == 0 {
        return;
    }
    line(
        text,
        format_args!(
            "  {from} -> {to}  {} frames, {} bytes{}",
            counts.frames,
            counts.bytes,
            dropped(&counts.drops)
        ),
    );
}

/// What was lost, by cause, as the end of a line.
fn dropped(causes: &BTreeMap<String, u64>) -> String {
    let drops: Vec<String> = causes
        .iter()
        .map(|(cause, frames)| format!("{frames} {cause}"))
        .collect();
    if drops.is_empty() {
        return String::new();
    }
    format!(", dropped: {}", drops.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use windtunnel_results::{LinkSummary, PortSummary, SUMMARY_VERSION};

    #[test]
    fn reads_like_this() {
        let process = |node: &str, exit, signal, start_ns| ProcessSummary {
            node: node.into(),
            pid: None,
            command: vec!["ping".into(), "-c1".into()],
            exit,
            signal,
            start_ns,
            end_ns: None,
            stdout: String::new(),
            stderr: String::new(),
            client: false,
            life: 1,
            power_off: false,
        };
        let sent = |drops: &[(&str, u64)]| DirectionSummary {
            frames: 3,
            bytes: 180,
            drops: drops.iter().map(|(cause, count)| (cause.to_string(), *count)).collect(),
            ..Default::default()
        };
        let summary = Summary {
            summary_version: SUMMARY_VERSION,
            scenario: "demo".into(),
            seed: 1,
            ended: Ended::Stop,
            digest: Some("00ff".into()),
            virtual_time_ns: 1_500_000_000,
            syscalls: 0,
            frames: 6,
            processes: vec![
                process("h1", Some(0), None, Some(0)),
                process("router", None, Some(9), Some(0)),
                process("h2", None, None, None),
            ],
            links: vec![LinkSummary {
                a: "h1:eth0".into(),
                b: "h2:eth0".into(),
                a_to_b: sent(&[("loss", 1), ("queue_full", 2)]),
                b_to_a: sent(&[]),
            }],
            ports: vec![PortSummary {
                name: "lan".into(),
                what: "TAP interface wt0".into(),
                frames_in: 4,
                bytes_in: 240,
                frames_out: 2,
                bytes_out: 120,
                drops: [("out_full".into(), 1)].into(),
            }],
            lateness: None,
            warnings: vec![Warning {
                code: "unsupported_call".into(),
                nodes: vec!["h1".into()],
                programs: vec!["prog".into()],
                text: "called io_uring_setup: refused".into(),
                count: 2,
                time_ns: 7,
            }],
            failed_expectations: vec!["h1: ping exited with 0, expected 1".into()],
            delivery_lateness: None,
        };
        assert_eq!(
            render(&summary, "out/demo"),
            "demo: stopped at its end after 1.5 s, 6 frames\n\
             \x20 h1      exit 0       ping -c1\n\
             \x20 router  signal 9     ping -c1\n\
             \x20 h2      not started  ping -c1\n\
             \x20 h1:eth0 -> h2:eth0  3 frames, 180 bytes, dropped: 1 loss, 2 queue_full\n\
             \x20 h2:eth0 -> h1:eth0  3 frames, 180 bytes\n\
             \x20 port lan, TAP interface wt0  4 frames in, 2 out, dropped: 1 out_full\n\
             warning: h1: `prog` called io_uring_setup: refused (2 times)\n\
             failed: h1: ping exited with 0, expected 1\n\
             digest 00ff\n\
             results in out/demo\n"
        );
    }
}
