//! What is wrong with a scenario: where, the value, what is allowed, and a hint.

use std::fmt;
use std::path::{Path, PathBuf};

use serde_saphyr::{Error as YamlError, Location};
use windtunnel_base::UnitError;

/// A place in the file's text; columns and lengths in characters, counted from 1. Line 0: nowhere in particular.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    pub line: u32,
    pub column: u32,
    pub len: u32,
}

impl From<Location> for Mark {
    fn from(location: Location) -> Self {
        let len = u32::try_from(location.span().len()).unwrap_or(1);
        Self {
            line: location.line() as u32,
            column: location.column() as u32,
            len: len.max(1),
        }
    }
}

/// An error without the file around it.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub at: Mark,
    pub message: String,
    pub allowed: Option<String>,
    pub hint: Option<String>,
}

impl Problem {
    pub fn new(at: Mark, message: impl Into<String>) -> Self {
        Self {
            at,
            message: message.into(),
            allowed: None,
            hint: None,
        }
    }

    pub fn allowed(mut self, allowed: impl Into<String>) -> Self {
        self.allowed = Some(allowed.into());
        self
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Lists the `known` names, and proposes the one nearest to `name` if there is one near.
    pub fn known<'a>(self, name: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        let known: Vec<&str> = known.into_iter().collect();
        let near = nearest(name, &known).map(|near| format!("did you mean `{near}`?"));
        let allowed = if known.is_empty() {
            "none is defined".to_owned()
        } else {
            known.join(", ")
        };
        Self {
            allowed: Some(allowed),
            hint: near.or(self.hint.clone()),
            ..self
        }
    }

    pub fn unit(at: Mark, error: UnitError) -> Self {
        let UnitError {
            value,
            problem,
            allowed,
            hint,
        } = error;
        Self {
            at,
            message: format!("`{value}` is {problem}"),
            allowed: Some(allowed),
            hint,
        }
    }

    /// Without a place, for what was not in a file.
    pub fn alone(self) -> ChangeError {
        let message = cut(self.message);
        ChangeError {
            message: match self.allowed.map(cut) {
                Some(allowed) => format!("{message}; allowed: {allowed}"),
                None => message,
            },
            hint: self.hint.map(cut),
        }
    }

    pub fn in_file(self, path: &Path, text: &str) -> ScenarioError {
        let source_line = (self.at.line as usize)
            .checked_sub(1)
            .and_then(|index| text.lines().nth(index));
        ScenarioError(Box::new(Diagnostic {
            path: path.to_owned(),
            line: self.at.line,
            column: self.at.column,
            len: self.at.len,
            source_line: source_line.unwrap_or_default().to_owned(),
            message: cut(self.message),
            allowed: self.allowed.map(cut),
            hint: self.hint.map(cut),
        }))
    }
}

/// Longest message, characters; a longer one quotes more of the file than anybody reads.
const MESSAGE_CHARS: usize = 400;
/// How much of such a one is kept at its end.
const MESSAGE_END_CHARS: usize = 100;
/// Longest part of a line of the file that is shown, characters.
const LINE_CHARS: usize = 120;
/// How much of it comes before the place that is meant, if the line is longer.
const BEFORE_CHARS: usize = 40;

/// A text of reasonable length: of a longer one the middle is left out.
fn cut(text: String) -> String {
    let length = text.chars().count();
    if length <= MESSAGE_CHARS {
        return text;
    }
    let kept = MESSAGE_CHARS - MESSAGE_END_CHARS;
    let start: String = text.chars().take(kept).collect();
    let end: String = text.chars().skip(length - MESSAGE_END_CHARS).collect();
    format!("{start} [... {} characters ...] {end}", length - MESSAGE_CHARS)
}

/// The part of `line` around the character at index `at`, and the index of that character in the part. What would move the
/// cursor is shown as a space.
fn excerpt(line: &str, at: usize) -> (String, usize) {
    let shown = |c: char| if c.is_control() { ' ' } else { c };
    if line.chars().count() <= LINE_CHARS {
        return (line.chars().map(shown).collect(), at);
    }
    let from = at.saturating_sub(BEFORE_CHARS);
    let mut part: String = line.chars().skip(from).take(LINE_CHARS).map(shown).collect();
    let mut index = at - from;
    if from > 0 {
        part.insert_str(0, "...");
        index += 3;
    }
    if line.chars().count() > from + LINE_CHARS {
        part.push_str("...");
    }
    (part, index)
}

/// The one of `known` that `name` was most likely meant to be.
pub fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let score = |candidate: &&str| strsim::jaro_winkler(name, candidate);
    let best = known.iter().copied().max_by(|a, b| score(a).total_cmp(&score(b)))?;
    let close = score(&best) > 0.8 || strsim::damerau_levenshtein(name, best) == 1;
    close.then_some(best)
}

/// What the YAML reader says, in our words.
impl From<YamlError> for Problem {
    fn from(error: YamlError) -> Self {
        let at = error.location().map(Mark::from).unwrap_or_default();
        match error.without_snippet() {
            YamlError::SerdeUnknownField { field, expected, .. } => {
                let at = Mark {
                    len: field.chars().count() as u32,
                    ..at
                };
                Self::new(at, format!("unknown key `{field}`")).known(field, expected.iter().copied())
            }
            YamlError::SerdeMissingField { field, .. } => Self::new(at, format!("the key `{field}` is missing here")),
            YamlError::DuplicateMappingKey { key: Some(key), .. } => {
                Self::new(at, format!("`{key}` is there twice")).hint("names and keys must be unique in their mapping")
            }
            YamlError::MultipleDocuments { .. } => Self::new(at, "a second YAML document begins here")
                .allowed("one document: a file is one scenario")
                .hint("remove the line `---` between them, or make a file of each"),
            YamlError::Eof { .. } => Self::new(at, "the file is empty").hint("a scenario begins with `version: 1`"),
            other => {
                let text = other.to_string();
                let message = text.split(" at line ").next().unwrap_or_default();
                Self::new(at, format!("this is not what belongs here: {message}"))
            }
        }
    }
}

/// Why a change cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ChangeError {
    /// What is wrong, with the value and what is allowed.
    pub message: String,
    /// A correction to try.
    pub hint: Option<String>,
}

/// Why a text is no scenario. Its `Display` has several lines: place and message, the line, `allowed:`, `hint:`.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct ScenarioError(Box<Diagnostic>);

impl ScenarioError {
    /// The parts of it.
    pub fn diagnostic(&self) -> &Diagnostic {
        &self.0
    }
}

/// The parts of a [`ScenarioError`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The scenario file as it was named.
    pub path: PathBuf,
    /// Line, from 1; 0 if the whole file is meant.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// Length of the offending text in characters.
    pub len: u32,
    /// The line itself.
    pub source_line: String,
    /// What is wrong, with the value.
    pub message: String,
    /// What is allowed there.
    pub allowed: Option<String>,
    /// A correction to try.
    pub hint: Option<String>,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        if self.line > 0 {
            write!(f, ":{}:{}", self.line, self.column)?;
        }
        write!(f, ": {}", self.message)?;
        if self.line > 0 {
            let line = self.line;
            let (source_line, before) = excerpt(&self.source_line, (self.column as usize).saturating_sub(1));
            let rest = source_line.chars().count().saturating_sub(before).max(1);
            let marks = "^".repeat((self.len as usize).clamp(1, rest));
            write!(f, "\n{line:>5} | {source_line}\n      | {:before$}{marks}", "")?;
        }
        for (label, text) in [("allowed", &self.allowed), ("hint", &self.hint)] {
            if let Some(text) = text {
                write!(f, "\n{label}: {text}")?;
            }
        }
        Ok(())
    }
}
