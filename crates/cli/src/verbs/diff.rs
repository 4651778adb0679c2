//! `windtunnel diff RUN_A RUN_B`

use crate::diff::{self, Comparison, Event, Kind, time};
use crate::failure::{EXIT_OK, Failure, Outcome};
use std::fmt::Write;
use std::path::PathBuf;

/// The runs differ.
const EXIT_DIFFERENT: i32 = 1;
/// So many names of further inputs are listed.
const NAMES_MAX: usize = 5;

/// Name the first input and the first event at which two runs differ
///
/// Inputs are what the manifests hold: version, scenario, seed, kernel, and every program and file that was opened. Events are frames,
/// starts and ends of programs, their output, kernel logs and counters. Where both runs have captures the frame is known exactly,
/// elsewhere the frames between which it lies. Exit codes: 0 equal, 1 different, 2 a folder holds no results.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Results of the first run
    #[arg(value_name = "RUN_A")]
    a: PathBuf,
    /// Results of the second run
    #[arg(value_name = "RUN_B")]
    b: PathBuf,
    /// Print all differences as JSON; the exit code is as without
    #[arg(long)]
    json: bool,
}

/// Compares and tells.
pub fn run(args: &Args) -> Outcome {
    for folder in [&args.a, &args.b] {
        // A folder without a manifest is refused below, with a better word.
        let manifest = windtunnel_results::Manifest::read(folder);
        if let Ok(Some(platform)) = manifest.map(|manifest| manifest.platform) {
            let what = format!(
                "{} has no digest: it ran with `--platform {}`",
                folder.display(),
                platform.name
            );
            return Err(Failure::user(what)
                .because(platform.no_digest)
                .hint("compare what it measured, or its captures, instead"));
        }
    }
    let comparison = diff::compare(&args.a, &args.b)?;
    if args.json {
        super::print_json(&comparison)?;
    } else {
        super::print(&render(&comparison))?;
    }
    Ok(if comparison.equal { EXIT_OK } else { EXIT_DIFFERENT })
}

/// A screen at most.
fn render(comparison: &Comparison) -> String {
    if comparison.equal {
        return "the runs are equal: inputs, frames, programs, their output and counters\n".into();
    }
    let mut text = String::new();
    let mut line = |arguments: std::fmt::Arguments<'_>| writeln!(text, "{arguments}").expect("writing to a String");
    match comparison.inputs.split_first() {
        None => line(format_args!("the inputs are equal")),
        Some((first, others)) => {
            line(format_args!("first different input: {}", first.what));
            line(format_args!("  a: {}\n  b: {}", first.a, first.b));
            if !others.is_empty() {
                let mut names: Vec<&str> = others.iter().map(|input| input.what.as_str()).take(NAMES_MAX).collect();
                if others.len() > NAMES_MAX {
                    names.push("...");
                }
                line(format_args!("  and {} more: {}", others.len(), names.join(", ")));
            }
        }
    }
    match comparison.events.split_first() {
        None => line(format_args!("the events are equal")),
        Some((first, others)) => {
            line(format_args!("first different event: {}, {}", first.what, when(first)));
            line(format_args!("  a: {}\n  b: {}", first.a, first.b));
            if !others.is_empty() {
                line(format_args!("  and {} more: {}", others.len(), counts(others)));
            }
            if first.kind == Kind::Interval {
                line(format_args!(
                    "hint: with a capture of that interface in both runs (`interfaces: {{NAME: {{capture: true}}}}` of the node) \
                     the frame is shown"
                ));
            }
        }
    }
    text
}

fn when(event: &Event) -> String {
    if event.from_ns == event.to_ns {
        format!("at {}", time(event.from_ns))
    } else {
        format!("between {} and {}", time(event.from_ns), time(event.to_ns))
    }
}

fn counts(events: &[Event]) -> String {
    let mut kinds: Vec<(&str, usize)> = Vec::new();
    for event in events {
        let plural = event.kind.plural();
        match kinds.iter_mut().find(|(name, _)| *name == plural) {
            Some((_, count)) => *count += 1,
            None => kinds.push((plural, 1)),
        }
    }
    let texts: Vec<String> = kinds
        .into_iter()
        .map(|(name, count)| format!("{count} {name}"))
        .collect();
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diff::Input;

    #[test]
    fn reads_like_this() {
        let input = |what: &str| Input {
            what: what.into(),
            a: "1".into(),
            b: "2".into(),
        };
        let event = |kind, what: &str, from_ns, to_ns| Event {
            kind,
            what: what.into(),
            from_ns,
            to_ns,
            a: "one".into(),
            b: "-".into(),
        };
        let comparison = Comparison {
            equal: false,
            inputs: vec![input("seed"), input("programs /bin/ls")],
            events: vec![
                event(Kind::Interval, "h1:eth0: a frame from 5 to 8", 1, 1_000_000_000),
                event(Kind::Frame, "h2:eth0: frame 9", 2_000_000_000, 2_000_000_000),
                event(Kind::Output, "h1: `ls`: line 3 of its output", 0, 3_000_000_000),
            ],
        };
        assert_eq!(
            render(&comparison),
            "first different input: seed\n  a: 1\n  b: 2\n  and 1 more: programs /bin/ls\n\
             first different event: h1:eth0: a frame from 5 to 8, between 0.000000001s and 1.000000000s\n  a: one\n  b: -\n  \
             and 2 more: 1 interfaces, 1 outputs\n\
             hint: with a capture of that interface in both runs (`interfaces: {NAME: {capture: true}}` of the node) the \
             frame is shown\n"
        );
    }
}
