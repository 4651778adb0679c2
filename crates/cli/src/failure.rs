//! How a verb fails: what happened, why, what to do about it, and the exit code.

use std::fmt;
use std::io;
use windtunnel_results::ResultsError;

/// All is well.
pub const EXIT_OK: i32 = 0;
/// The run went through, but an expectation of the scenario did not hold.
pub const EXIT_EXPECTATION: i32 = 1;
/// The input or the host needs a change by the user.
pub const EXIT_USER: i32 = 2;
/// A kernel crashed, or we have a bug.
pub const EXIT_CRASH: i32 = 3;
/// The user stopped it.
pub const EXIT_INTERRUPTED: i32 = 130;
/// What is added to a signal's number to make the exit code of what the signal ended, as shells do.
pub const SIGNAL_BASE: i32 = 128;

/// What a verb gives back: its exit code.
pub type Outcome = Result<i32, Failure>;

/// A failure as the user sees it. Printed as `error: WHAT`, `  because: WHY`, what there is to choose from, and `hint: REMEDY`.
#[derive(Debug)]
pub struct Failure {
    what: String,
    why: Vec<String>,
    choices: Vec<String>,
    hint: Option<String>,
    exit_code: i32,
}

impl Failure {
    /// Something the user can change.
    pub fn user(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            why: Vec::new(),
            choices: Vec::new(),
            hint: None,
            exit_code: EXIT_USER,
        }
    }

    /// A crash or a bug.
    pub fn crash(what: impl Into<String>) -> Self {
        Self {
            exit_code: EXIT_CRASH,
            ..Self::user(what)
        }
    }

    /// Adds a reason.
    pub fn because(mut self, why: impl fmt::Display) -> Self {
        self.why.push(why.to_string());
        self
    }

    /// Adds something that could have been meant.
    pub fn choice(mut self, choice: impl Into<String>) -> Self {
        self.choices.push(choice.into());
        self
    }

    /// Adds the remedy.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// With another exit code.
    pub fn code(self, exit_code: i32) -> Self {
        Self { exit_code, ..self }
    }

    /// What happened, without reasons and remedy.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// The process's exit code.
    pub fn exit_code(&self) -> i32 {
        self.exit_code
    }

    /// A file that could not be read.
    pub fn unreadable(path: &std::path::Path, error: &io::Error) -> Self {
        Self::user(format!("cannot read {}", path.display())).because(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.what)?;
        for why in &self.why {
            write!(f, "\n  because: {why}")?;
        }
        for choice in &self.choices {
            write!(f, "\n  {choice}")?;
        }
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

impl From<ResultsError> for Failure {
    fn from(error: ResultsError) -> Self {
        Self {
            hint: error.hint(),
            ..Self::user(error.to_string())
        }
    }
}

impl From<windtunnel_control::ControlError> for Failure {
    fn from(error: windtunnel_control::ControlError) -> Self {
        Self::user(error.to_string()).hint("the run may have been killed")
    }
}

impl From<windtunnel_scenario::ScenarioError> for Failure {
    fn from(error: windtunnel_scenario::ScenarioError) -> Self {
        // Its text already has the place, the line, `allowed:` and `hint:`.
        Self::user(error.to_string())
    }
}

impl From<windtunnel_engine::EngineError> for Failure {
    fn from(error: windtunnel_engine::EngineError) -> Self {
        let mut failure = Self::user(error.to_string()).code(error.exit_code());
        failure.hint = error.hint();
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            // Many messages already quote their cause.
            if !failure.what.contains(&cause.to_string()) {
                failure.why.push(cause.to_string());
            }
            source = cause.source();
        }
        failure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_why_and_what_to_do() {
        let failure = Failure::user("cannot read net.yaml")
            .because("No such file")
            .hint("check the path");
        assert_eq!(
            failure.to_string(),
            "error: cannot read net.yaml\n  because: No such file\nhint: check the path"
        );
        assert_eq!(failure.exit_code(), 2);
        assert_eq!(Failure::crash("x").exit_code(), 3);
    }
}
