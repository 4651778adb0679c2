//! The verbs. To add one: a file here with `Args` and `run`, a variant and a line below, and its help
//! in `tests/help/`.

mod attach;
mod broker;
mod compare;
mod completions;
mod demo;
mod diff;
mod doctor;
mod exec;
mod export;
mod gdb;
mod generate;
mod image;
mod kernel;
mod logs;
mod man;
mod plot;
mod prompt;
mod ps;
pub mod run;
mod schema;
mod shell;
mod stop;
mod sweep;
mod syscalls;
mod top;
mod validate;

use crate::failure::{EXIT_OK, Failure, Outcome};
use std::io::Write;
use std::path::Path;
use windtunnel_base::input_file::{self, Kind};
use windtunnel_scenario::Scenario;

/// What the user asks for. Each verb's help is the documentation of its `Args`.
#[derive(Debug, clap::Subcommand)]
pub enum Verb {
    Run(run::Args),
    Demo(demo::Args),
    Plot(plot::Args),
    Prompt(prompt::Args),
    Sweep(sweep::Args),
    Attach(attach::Args),
    Shell(shell::Args),
    Exec(exec::Args),
    Ps(ps::Args),
    Top(top::Args),
    Logs(logs::Args),
    Stop(stop::Args),
    Diff(diff::Args),
    Compare(compare::Args),
    Export(export::Args),
    Validate(validate::Args),
    Generate(generate::Args),
    Kernel(kernel::Args),
    Image(image::Args),
    Syscalls(syscalls::Args),
    Broker(broker::Args),
    Doctor(doctor::Args),
    Schema(schema::Args),
    Gdb(gdb::Args),
    Completions(completions::Args),
    Man(man::Args),
}

impl Verb {
    /// Does it; the exit code.
    pub fn run(self) -> Outcome {
        match self {
            Self::Run(args) => run::run(&args),
            Self::Demo(args) => demo::run(&args),
            Self::Plot(args) => plot::run(&args),
            Self::Prompt(args) => prompt::run(&args),
            Self::Sweep(args) => sweep::run(&args),
            Self::Attach(args) => attach::run(&args),
            Self::Shell(args) => shell::run(&args),
            Self::Exec(args) => exec::run(&args),
            Self::Ps(args) => ps::run(&args),
            Self::Top(args) => top::run(&args),
            Self::Logs(args) => logs::run(&args),
            Self::Stop(args) => stop::run(&args),
            Self::Diff(args) => diff::run(&args),
            Self::Compare(args) => compare::run(&args),
            Self::Export(args) => export::run(&args),
            Self::Validate(args) => validate::run(&args),
            Self::Generate(args) => generate::run(args),
            Self::Kernel(args) => kernel::run(&args),
            Self::Image(args) => image::run(&args),
            Self::Syscalls(args) => syscalls::run(&args),
            Self::Broker(args) => broker::run(&args),
            Self::Doctor(args) => doctor::run(&args),
            Self::Schema(args) => schema::run(&args),
            Self::Gdb(args) => gdb::run(&args),
            Self::Completions(args) => completions::run(&args),
            Self::Man(args) => man::run(&args),
        }
    }
}

/// Reads and checks a scenario file.
fn load_scenario(path: &Path) -> Result<Scenario, Failure> {
    Ok(Scenario::parse(&scenario_text(path)?, path)?)
}

/// Largest scenario file, bytes: a thousand times what a network of a hundred nodes takes.
const SCENARIO_MAX_BYTES: u64 = 64 << 20;

/// Reads a scenario file, which may be a pipe.
fn scenario_text(path: &Path) -> Result<String, Failure> {
    check_current_dir(path)?;
    input_file::read_text(path, Kind::Any, SCENARIO_MAX_BYTES).map_err(|error| Failure::unreadable(path, &error))
}

/// A relative path leads nowhere when the current folder is gone, which the host tells as if the file were missing.
fn check_current_dir(path: &Path) -> Result<(), Failure> {
    match std::env::current_dir() {
        Err(error) if path.is_relative() => Err(Failure::user("the current folder cannot be found")
            .because(error)
            .hint("it may have been removed: go to another one, or name absolute paths")),
        _ => Ok(()),
    }
}

/// Prints to standard output. A reader that has seen enough (`| head`) is no failure.
fn print(text: &str) -> Outcome {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::user("cannot write to standard output").because(error))
        }
        _ => Ok(EXIT_OK),
    }
}

/// Prints a value as indented JSON.
fn print_json(value: &impl serde::Serialize) -> Outcome {
    print(&(serde_json::to_string_pretty(value).expect("string keys only") + "\n"))
}
