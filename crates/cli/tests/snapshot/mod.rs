//! Runs a command and compares what it prints with an expected text.
//!
//! In an expected text `[..]` stands for anything within a line, and a newline at the very start is not part of the text,
//! so that a raw string can begin on a line of its own. `SNAPSHOTS=overwrite` rewrites expected texts that are files.

use std::path::Path;
use std::process::{Command, Output};

/// Stands for anything within a line.
const WILDCARD: &str = "[..]";

/// Runs a command to its end.
pub trait Assert {
    /// What came of it, to be asserted on.
    fn assert(&mut self) -> Ended;
}

impl Assert for Command {
    fn assert(&mut self) -> Ended {
        let output = self.output().unwrap_or_else(|error| panic!("{self:?}: {error}"));
        Ended { output }
    }
}

/// A command that has ended.
#[derive(Debug)]
pub struct Ended {
    output: Output,
}

impl Ended {
    /// Asserts exit code 0.
    #[track_caller]
    pub fn success(self) -> Self {
        self.code(0)
    }

    /// Asserts the exit code.
    #[track_caller]
    pub fn code(self, expected: i32) -> Self {
        assert_eq!(self.output.status.code(), Some(expected), "{:#?}", self.output);
        self
    }

    /// Asserts all of standard output.
    #[track_caller]
    pub fn stdout_eq(self, expected: &str) -> Self {
        assert_text(&self.output.stdout, expected);
        self
    }

    /// Asserts all of standard error.
    #[track_caller]
    pub fn stderr_eq(self, expected: &str) -> Self {
        assert_text(&self.output.stderr, expected);
        self
    }

    /// Asserts that standard output is what a file beside the tests says, a path relative to `tests/`.
    #[track_caller]
    pub fn stdout_eq_file(self, file: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(file);
        if std::env::var_os("SNAPSHOTS").is_some_and(|value| value == "overwrite") {
            std::fs::write(&path, &self.output.stdout).unwrap();
        }
        let expected = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        self.stdout_eq(&expected)
    }

    /// Exit status and all that was printed.
    pub fn get_output(&self) -> &Output {
        &self.output
    }
}

#[track_caller]
fn assert_text(actual: &[u8], expected: &str) {
    let actual = String::from_utf8_lossy(actual);
    if let Err(difference) = compare(&actual, expected.strip_prefix('\n').unwrap_or(expected)) {
        panic!("{difference}\nall of it:\n{actual}");
    }
}

/// Says which line is the first that differs.
fn compare(actual: &str, expected: &str) -> Result<(), String> {
    // Not `lines()`: a missing newline at the end is a difference.
    let (mut actual_lines, mut expected_lines) = (actual.split('\n'), expected.split('\n'));
    for number in 1.. {
        match (actual_lines.next(), expected_lines.next()) {
            (None, None) => break,
            (Some(actual), Some(expected)) if line_matches(actual, expected) => {}
            (actual, expected) => return Err(format!("line {number}: expected {expected:?}, got {actual:?}")),
        }
    }
    Ok(())
}

fn line_matches(line: &str, pattern: &str) -> bool {
    let Some((start, rest)) = pattern.split_once(WILDCARD) else {
        return line == pattern;
    };
    let Some(mut line) = line.strip_prefix(start) else {
        return false;
    };
    let mut parts: Vec<&str> = rest.split(WILDCARD).collect();
    let end = parts.pop().unwrap_or_default();
    for part in parts {
        let Some((_, after)) = line.split_once(part) else {
            return false;
        };
        line = after;
    }
    line.ends_with(end)
}

#[test]
fn a_wildcard_stays_within_its_line() {
    assert_eq!(compare("a 1 b 2\nc\n", "a [..] b [..]\nc\n"), Ok(()));
    assert_eq!(compare("6.12.117", "6.12.[..]"), Ok(()));
    assert!(compare("a 1\nb", "a [..]b").is_err());
    assert!(compare("a b", "a [..] b").is_err());
    assert!(compare("a x\n", "a [..]y\n").is_err());
}

#[test]
fn a_missing_or_extra_line_is_a_difference() {
    assert!(compare("a", "a\n").is_err());
    assert!(compare("a\nb\n", "a\n").is_err());
    assert!(compare("", "a").is_err());
}
