//! What a scenario expects of a process, and whether it held.

use regex_lite::Regex;

/// How a process must end, and what it must print.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expect {
    /// How it ends.
    pub end: End,
    /// All of them must hold of its standard output.
    pub stdout: Vec<StdoutCheck>,
}

/// How a process must end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// Nothing went wrong: it exited with 0, still runs at the end of the run, or ended by the `stop_signal` it was sent.
    /// The default.
    #[default]
    Success,
    /// It exits with this code.
    Exit(i32),
    /// It still runs at the end of the run.
    Running,
    /// It is ended by this signal.
    Signal(i32),
    /// Whatever happens.
    Any,
}

/// A check of standard output as text (bytes that are not UTF-8 count as U+FFFD).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StdoutCheck {
    /// It contains this text.
    Contains(String),
    /// This regular expression matches somewhere in it. Known to compile.
    Matches(String),
}

/// What became of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Still running at the end of the run.
    Running,
    /// Exited with this code.
    Exited(i32),
    /// Ended by this signal.
    Signaled(i32),
    /// Never ran: the program could not be started, or the run was over before.
    NotStarted,
}

impl Expect {
    /// Checks all of it. `stop_signal_sent`: the signal the process was sent at its `stop` time, if it was.
    ///
    /// # Errors
    /// A sentence for each part that did not hold.
    pub fn check(&self, outcome: Outcome, stop_signal_sent: Option<i32>, stdout: &[u8]) -> Result<(), Vec<String>> {
        let mut failed = Vec::new();
        if !self.end.holds(outcome, stop_signal_sent) {
            failed.push(format!(
                "expected {}, but it {}",
                self.end.describe(),
                outcome.describe()
            ));
        }
        let text = String::from_utf8_lossy(stdout);
        failed.extend(self.stdout.iter().filter_map(|check| check.failure(&text)));
        if failed.is_empty() { Ok(()) } else { Err(failed) }
    }
}

impl End {
    /// Whether `outcome` is as expected.
    pub fn holds(self, outcome: Outcome, stop_signal_sent: Option<i32>) -> bool {
        match (self, outcome) {
            (Self::Any, _) | (Self::Running, Outcome::Running) => true,
            (Self::Success, Outcome::Running | Outcome::Exited(0)) => true,
            (Self::Success, Outcome::Signaled(signal)) => stop_signal_sent == Some(signal),
            (Self::Exit(code), Outcome::Exited(is)) => code == is,
            (Self::Signal(signal), Outcome::Signaled(is)) => signal == is,
            _ => false,
        }
    }

    fn describe(self) -> String {
        match self {
            Self::Success => "success".into(),
            Self::Exit(code) => format!("exit code {code}"),
            Self::Running => "it to run to the end".into(),
            Self::Signal(signal) => format!("an end by signal {signal}"),
            Self::Any => "anything".into(),
        }
    }
}

impl Outcome {
    fn describe(self) -> String {
        match self {
            Self::Running => "still runs".into(),
            Self::Exited(code) => format!("exited with {code}"),
            Self::Signaled(signal) => format!("was ended by signal {signal}"),
            Self::NotStarted => "never started".into(),
        }
    }
}

impl StdoutCheck {
    fn failure(&self, text: &str) -> Option<String> {
        match self {
            Self::Contains(part) if !text.contains(part.as_str()) => {
                Some(format!("standard output does not contain `{part}`"))
            }
            Self::Matches(pattern) => {
                let regex = Regex::new(pattern).expect("checked when the scenario was read");
                (!regex.is_match(text)).then(|| format!("standard output does not match `{pattern}`"))
            }
            Self::Contains(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_forgives_what_the_scenario_asked_for() {
        let expect = Expect::default();
        assert_eq!(expect.check(Outcome::Exited(0), None, b""), Ok(()));
        assert_eq!(expect.check(Outcome::Running, None, b""), Ok(()));
        assert_eq!(expect.check(Outcome::Signaled(15), Some(15), b""), Ok(()));
        let failed = |outcome, sent| expect.check(outcome, sent, b"").unwrap_err();
        assert_eq!(
            failed(Outcome::Signaled(11), Some(15)),
            ["expected success, but it was ended by signal 11"]
        );
        assert_eq!(
            failed(Outcome::Signaled(15), None),
            ["expected success, but it was ended by signal 15"]
        );
        assert_eq!(
            failed(Outcome::Exited(1), None),
            ["expected success, but it exited with 1"]
        );
        assert_eq!(
            failed(Outcome::NotStarted, None),
            ["expected success, but it never started"]
        );
    }

    #[test]
    fn every_part_that_fails_is_told() {
        let expect = Expect {
            end: End::Exit(2),
            stdout: vec![
                StdoutCheck::Contains("0% packet loss".into()),
                StdoutCheck::Matches(r"rtt .* = 10\.0".into()),
                StdoutCheck::Contains("PING".into()),
            ],
        };
        assert_eq!(
            expect.check(Outcome::Running, None, b"PING x").unwrap_err(),
            [
                "expected exit code 2, but it still runs",
                "standard output does not contain `0% packet loss`",
                r"standard output does not match `rtt .* = 10\.0`",
            ]
        );
        assert_eq!(
            expect.check(Outcome::Exited(2), None, b"PING\n0% packet loss\nrtt min = 10.01"),
            Ok(())
        );
    }

    #[test]
    fn running_and_signal_mean_just_that() {
        assert!(End::Running.holds(Outcome::Running, None) && !End::Running.holds(Outcome::Exited(0), None));
        assert!(
            End::Signal(9).holds(Outcome::Signaled(9), None) && !End::Signal(9).holds(Outcome::Signaled(15), Some(15))
        );
        assert!(End::Any.holds(Outcome::NotStarted, None) && !End::Exit(0).holds(Outcome::Running, None));
    }
}
