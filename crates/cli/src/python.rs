//! Verbs that are written in Python: their arguments, help and completions are here as all others', and the Python package does the
//! work (`python/windtunnel/_verb.py`).

use crate::failure::{EXIT_CRASH, Failure, Outcome};
use serde::Serialize;
use std::env;
use std::ffi::OsString;
use std::io::{self, ErrorKind, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Names the interpreter.
const PYTHON_VARIABLE: &str = "WINDTUNNEL_PYTHON";
/// Tells the package which program to drive: this one.
const PROGRAM_VARIABLE: &str = "WINDTUNNEL_PROGRAM";
/// 3.9, and the package; the rest it says itself.
const START: &str = "\
import sys
if sys.version_info < (3, 9):
    sys.stderr.write('error: Python %d.%d is too old; 3.9 is needed\\n' % sys.version_info[:2])
    sys.stderr.write('hint: WINDTUNNEL_PYTHON=PROGRAM names another\\n')
    sys.exit(2)
try:
    from windtunnel import _verb
except ImportError as missing:
    sys.stderr.write('error: this verb needs the Python package windtunnel: %s\\n' % missing)
    sys.stderr.write('hint: pip install the wheel; WINDTUNNEL_PYTHON=PROGRAM names an interpreter that has it, ')
    sys.stderr.write('in place of %s\\n' % sys.executable)
    sys.exit(2)
sys.exit(_verb.main(sys.argv[1], sys.argv[2]))
";

/// Becomes the Python program for a verb.
pub fn become_verb(name: &str, arguments: &impl Serialize) -> Outcome {
    let (mut command, python) = command(name, arguments)?;
    Err(cannot_run(&python, &command.exec()))
}

/// Runs the Python program for a part of a verb, with what it is to read from its standard input; its exit code.
pub fn run_part(name: &str, arguments: &impl Serialize, input: &[u8]) -> Outcome {
    let (mut command, python) = command(name, arguments)?;
    let mut child = command
        .stdin(Stdio::piped())
        .spawn()
        .map_err(|error| cannot_run(&python, &error))?;
    let mut stdin = child.stdin.take().expect("it was asked for");
    // A program that gives up early says why itself.
    let written = stdin.write_all(input);
    drop(stdin);
    let status = child.wait().map_err(|error| cannot_run(&python, &error))?;
    match (status.code(), written) {
        (Some(0), Err(error)) => Err(cannot_run(&python, &error)),
        (code, _) => Ok(code.unwrap_or(EXIT_CRASH)),
    }
}

/// Has a verb done, without what it prints to standard output. Whether it was; if not, it has said why.
pub fn run_verb(name: &str, arguments: &impl Serialize) -> Result<bool, Failure> {
    let (mut command, python) = command(name, arguments)?;
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
    status
        .map(|status| status.success())
        .map_err(|error| cannot_run(&python, &error))
}

/// The command for a verb, and its interpreter.
fn command(name: &str, arguments: &impl Serialize) -> Result<(Command, PathBuf), Failure> {
    let program =
        env::current_exe().map_err(|error| Failure::user("cannot find out where this program lies").because(error))?;
    let arguments =
        serde_json::to_string(arguments).map_err(|error| Failure::user("an argument is no UTF-8").because(error))?;
    let python = interpreter(&program);
    let mut command = Command::new(&python);
    command.args(["-c", START, name, &arguments]);
    command.env(PROGRAM_VARIABLE, &program);
    if let Some(path) = path_of_clone(&program) {
        command.env("PYTHONPATH", path);
    }
    Ok((command, python))
}

fn cannot_run(python: &Path, error: &io::Error) -> Failure {
    let failure = Failure::user(format!("cannot run {}", python.display())).because(error);
    if error.kind() == ErrorKind::NotFound {
        failure.hint(format!(
            "apt install python3, or {PYTHON_VARIABLE}=PROGRAM names another"
        ))
    } else {
        failure
    }
}

/// The one that is named, that of the virtual environment which the program lies in, or the system's.
fn interpreter(program: &Path) -> PathBuf {
    if let Some(named) = env::var_os(PYTHON_VARIABLE).filter(|named| !named.is_empty()) {
        return named.into();
    }
    let beside = program.with_file_name("python3");
    if beside.exists() { beside } else { "python3".into() }
}

/// In a clone, where `make build` has put the program: its package, before all others.
fn path_of_clone(program: &Path) -> Option<OsString> {
    let package = program.parent()?.parent()?.parent()?.join("python");
    if !package.join("windtunnel/_verb.py").exists() {
        return None;
    }
    let others = env::var_os("PYTHONPATH").unwrap_or_default();
    env::join_paths(
        [package]
            .into_iter()
            .chain(env::split_paths(&others).filter(|path| !path.as_os_str().is_empty())),
    )
    .ok()
}
