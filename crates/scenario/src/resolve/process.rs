//! Programs and what is expected of them.

use std::collections::BTreeMap;

use regex_lite::Regex;
use windtunnel_base::SimTime;

use super::leaf;
use crate::document::{Document, EventDoc, ExpectDoc, ProcessDoc};
use crate::error::Problem;
use crate::expect::{End, Expect, StdoutCheck};
use crate::model::{Exec, Node, Process, Root};
use crate::text::{Flexible, ShortOr, Text, Words, WordsShape};

const SIGTERM: i32 = 15;

/// Words that only a shell understands.
const SHELL_WORDS: &[&str] = &["|", "||", "&&", ">", ">>", "<", "2>", "2>&1"];

/// Program and arguments of `exec` or a setup command.
pub(super) fn command(words: &Words) -> Result<Vec<String>, Problem> {
    let exec = split(words)?;
    match exec.first() {
        Some(program) if !program.is_empty() => Ok(exec),
        _ => Err(Problem::new(words.at, "the command is empty").allowed("a program and its arguments")),
    }
}

/// The words of a command line, which may be one text.
fn split(words: &Words) -> Result<Vec<String>, Problem> {
    let words_of_it: Vec<String> = match &words.shape {
        WordsShape::Many(items) => items.iter().map(|item| item.value.clone()).collect(),
        WordsShape::One(line) => {
            let split = shlex::split(line).ok_or_else(|| {
                Problem::new(
                    words.at,
                    format!("`{line}` does not split into words: a quote is not closed"),
                )
            })?;
            if let Some(word) = split.iter().find(|word| SHELL_WORDS.contains(&word.as_str())) {
                return Err(Problem::new(
                    words.at,
                    format!("`{word}` means nothing here: no shell runs this command"),
                )
                .hint(
                    "for a shell, write [sh, -c, \"...\"]; to pass the word on as it is, write the command as a list",
                ));
            }
            split
        }
    };
    match words_of_it.iter().find(|word| word.contains('\0')) {
        Some(_) => Err(Problem::new(
            words.at,
            "an argument contains a NUL character, which no program can be given",
        )),
        None => Ok(words_of_it),
    }
}

/// What a process of `node` runs.
fn exec(doc: &ProcessDoc, node: &Text, root: &Root) -> Result<Exec, Problem> {
    match (&doc.exec, &doc.args) {
        (Some(exec), None) => command(exec).map(Exec::Command),
        (Some(_), Some(args)) => Err(Problem::new(
            args.at,
            "`args` are for the entrypoint of an image; a process with `exec` has them there",
        )),
        (None, args) if *root == Root::Host => {
            let at = args.as_ref().map_or(node.at, |args| args.at);
            Err(Problem::new(at, format!("a process of `{}` has no `exec`", node.value))
                .hint("only where the `root` of the node is an image with an entrypoint, a process can do without"))
        }
        (None, None) => Ok(Exec::Image { args: None }),
        (None, Some(args)) => Ok(Exec::Image {
            args: Some(split(args)?),
        }),
    }
}

/// A process of `node`.
pub(super) fn one(doc: &ProcessDoc, node: &Text, root: &Root) -> Result<Process, Problem> {
    let start = doc.start.as_ref().map(leaf::time).transpose()?.unwrap_or(SimTime::ZERO);
    let stop = doc.stop.as_ref().map(leaf::time).transpose()?;
    if let (Some(text), Some(stop)) = (&doc.stop, stop)
        && stop <= start
    {
        return Err(Problem::new(
            text.at,
            format!(
                "the process stops at {} but starts only at {}",
                text.value,
                start - SimTime::ZERO
            ),
        )
        .hint("`stop` is a point of time, not how long it runs"));
    }
    if let (Some(signal), None) = (&doc.signal, stop) {
        return Err(Problem::new(signal.at, "`signal` is sent at `stop`, which is missing"));
    }
    let cwd = match &doc.cwd {
        Some(cwd) if !cwd.value.starts_with('/') => {
            return Err(
                Problem::new(cwd.at, format!("`{}` is not a working directory", cwd.value)).allowed("an absolute path"),
            );
        }
        Some(cwd) => Some(cwd.value.clone()),
        None => None,
    };
    Ok(Process {
        exec: exec(doc, node, root)?,
        start,
        stop,
        stop_signal: doc.signal.as_ref().map(leaf::signal).transpose()?.unwrap_or(SIGTERM),
        stdin: doc.stdin.as_ref().map(|text| text.value.clone()),
        env: environment(&doc.env.0)?,
        cwd,
        user: doc.user.as_ref().map(leaf::user).transpose()?,
        expect: doc.expect.as_ref().map(expect).transpose()?.unwrap_or_default(),
    })
}

/// The program an event runs.
pub(super) fn of_event(doc: &EventDoc, at: SimTime) -> Result<Process, Problem> {
    if doc.set.is_some() || doc.a_to_b.is_some() || doc.b_to_a.is_some() || doc.up.is_some() || doc.down.is_some() {
        return Err(Problem::new(
            doc.at.at,
            "`exec` is alone: `set`, `a_to_b`, `b_to_a`, `up` and `down` belong to an event of their own",
        ));
    }
    let Some(exec) = &doc.exec else {
        return Err(Problem::new(
            doc.at.at,
            "the event of a node runs a program, or takes it `down` or `up`: `exec` is missing",
        ));
    };
    Ok(Process {
        exec: Exec::Command(command(exec)?),
        start: at,
        stop: None,
        stop_signal: SIGTERM,
        stdin: None,
        env: BTreeMap::new(),
        cwd: None,
        user: None,
        expect: doc.expect.as_ref().map(expect).transpose()?.unwrap_or_default(),
    })
}

fn environment(own: &[(Text, Text)]) -> Result<BTreeMap<String, String>, Problem> {
    let mut env = BTreeMap::new();
    for (name, value) in own {
        if name.value.is_empty() || name.value.contains(['=', '\0']) || value.value.contains('\0') {
            return Err(
                Problem::new(name.at, format!("`{}` cannot be in an environment", name.value))
                    .allowed("a name without `=`, and no NUL characters"),
            );
        }
        env.insert(name.value.clone(), value.value.clone());
    }
    Ok(env)
}

fn expect(doc: &Flexible<ExpectDoc>) -> Result<Expect, Problem> {
    match &doc.shape {
        ShortOr::Short(word) => {
            let text = Text {
                value: word.clone(),
                at: doc.at,
            };
            let end = if word.parse::<u64>().is_ok() {
                exit_code(&text)?
            } else {
                end_word(&text)?
            };
            Ok(Expect {
                end,
                stdout: Vec::new(),
            })
        }
        ShortOr::Long(long) => expect_long(long, doc),
    }
}

fn exit_code(text: &Text) -> Result<End, Problem> {
    leaf::number(text, "an exit code", 0..=255).map(|code| End::Exit(code as i32))
}

fn end_word(text: &Text) -> Result<End, Problem> {
    let words = ["success", "running", "any"];
    let index = leaf::one_of(text, "an expectation", &words).map_err(|problem| {
        problem.allowed("success, running, any, an exit code, or a mapping of end, exit, signal and stdout")
    })?;
    Ok([End::Success, End::Running, End::Any][index])
}

fn expect_long(long: &ExpectDoc, doc: &Flexible<ExpectDoc>) -> Result<Expect, Problem> {
    let end = match (&long.end, &long.exit, &long.signal) {
        (None, None, None) => End::Success,
        (Some(word), None, None) => end_word(word)?,
        (None, Some(code), None) => exit_code(code)?,
        (None, None, Some(signal)) => End::Signal(leaf::signal(signal)?),
        _ => return Err(Problem::new(doc.at, "a process ends in one way").allowed("one of `end`, `exit` and `signal`")),
    };
    let mut stdout = Vec::new();
    if let Some(checks) = &long.stdout {
        let items = |words: &Option<Words>| words.iter().flat_map(Words::items).collect::<Vec<_>>();
        stdout.extend(
            items(&checks.contains)
                .into_iter()
                .map(|text| StdoutCheck::Contains(text.value)),
        );
        for text in items(&checks.matches) {
            Regex::new(&text.value).map_err(|error| {
                Problem::new(
                    text.at,
                    format!("`{}` is not a regular expression: {error}", text.value),
                )
            })?;
            stdout.push(StdoutCheck::Matches(text.value));
        }
    }
    Ok(Expect { end, stdout })
}

/// A process that starts after the end would never run: surely not what was meant.
pub(super) fn check_times(document: &Document, nodes: &[Node], end: SimTime) -> Result<(), Problem> {
    for ((_, doc), node) in document.nodes.value.0.iter().zip(nodes) {
        for (doc, process) in doc.processes.iter().zip(&node.processes) {
            if let Some(start) = &doc.start
                && process.start >= end
            {
                let stop = &document.run.stop.value;
                return Err(Problem::new(
                    start.at,
                    format!(
                        "the process would start at {}, but the run stops at {stop}",
                        start.value
                    ),
                ));
            }
        }
    }
    Ok(())
}
