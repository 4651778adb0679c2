//! Reads the YAML of a scenario, and says in our words what is wrong with it where the YAML reader's would mislead.

use serde_saphyr::Error as YamlError;

use crate::document::{Document, EventDoc};
use crate::error::{Mark, Problem};

/// The file as written.
pub(crate) fn read(text: &str) -> Result<Document, Problem> {
    let options = serde_saphyr::options! { with_snippet: false };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let at = error.location().map(Mark::from).unwrap_or_default();
        let is_key = match error.without_snippet() {
            YamlError::SerdeMissingField {
                field: field @ ("version" | "run" | "nodes"),
                ..
            } => return tab(text, at, false).unwrap_or_else(|| missing_at_top(text, field)),
            YamlError::SerdeUnknownField { .. } | YamlError::DuplicateMappingKey { .. } => true,
            _ => false,
        };
        let says_tab = error.without_snippet().to_string().contains("tab");
        let of_tab = if is_key { None } else { tab(text, at, says_tab) };
        of_tab.unwrap_or_else(|| Problem::from(error))
    })
}

/// One event by itself, in JSON.
pub(crate) fn read_event(text: &str) -> Result<EventDoc, Problem> {
    let options = serde_saphyr::options! { with_snippet: false };
    serde_saphyr::from_str_with_options(text, options).map_err(Problem::from)
}

/// A key of the whole scenario is not there: the place is where the scenario begins, whatever was read last.
fn missing_at_top(text: &str, field: &str) -> Problem {
    let is_content = |line: &str| {
        let line = line.trim();
        !line.is_empty() && !line.starts_with(['#', '%']) && line != "---"
    };
    let first = text.lines().position(is_content).unwrap_or(0);
    let at = Mark {
        line: first as u32 + 1,
        column: 1,
        len: 1,
    };
    let problem = Problem::new(at, format!("the key `{field}` of the scenario is missing"));
    match field {
        "version" => problem.hint("a scenario begins with `version: 1`"),
        "run" => problem.hint("add when it ends, as in `run: {stop: 10s}`"),
        _ => problem.hint("add at least one node, as in `nodes: {h1: {}}`"),
    }
}

/// The tab that an error at `at` is about, if it is: one in the indentation of that line, or right before the place. Where the
/// reader itself speaks of a tab (`says_tab`), also one in the lines that follow, since it may name the start of what it was reading.
fn tab(text: &str, at: Mark, says_tab: bool) -> Option<Problem> {
    let index = at.line.checked_sub(1)? as usize;
    let indented = |line: &str| {
        let indentation = line.chars().take_while(|c| c.is_whitespace());
        indentation
            .enumerate()
            .find(|(_, c)| *c == '\t')
            .map(|(column, _)| column)
    };
    let line = text.lines().nth(index)?;
    let before = (at.column as usize).checked_sub(2);
    let before = before.filter(|&column| line.chars().nth(column) == Some('\t'));
    let here = indented(line).or(before).map(|column| (index, column));
    let later = || {
        let lines = text.lines().enumerate().skip(index + 1);
        lines.filter_map(|(index, line)| Some((index, indented(line)?))).next()
    };
    let (line, column) = here.or_else(|| says_tab.then(later).flatten())?;
    let at = Mark {
        line: line as u32 + 1,
        column: column as u32 + 1,
        len: 1,
    };
    Some(
        Problem::new(at, "here is a tab, which YAML does not take as indentation")
            .allowed("spaces")
            .hint("replace it by spaces, as many as the lines around it begin with"),
    )
}
