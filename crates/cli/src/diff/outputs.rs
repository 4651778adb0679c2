//! Texts: output of programs, logs of kernels and of clients. The first line that differs.

use super::{Event, Kind, NONE, Run, programs, quote, unreadable};
use crate::failure::Failure;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use windtunnel_base::result_files::INPUT;

/// How much of a line is read, bytes.
const LINE_BYTES: u64 = 1000;
const BUFFER_BYTES: usize = 64 << 10;

/// Adds the first difference of each output and each kernel's log.
///
/// # Errors
/// When one cannot be read.
pub fn differences(a: &Run, b: &Run, events: &mut Vec<Event>) -> Result<(), Failure> {
    let of_b = programs::by_place(b);
    let end_ns = a.summary.virtual_time_ns.max(b.summary.virtual_time_ns);
    for (key, process) in programs::by_place(a) {
        let Some(other) = of_b.get(&key) else { continue };
        let pairs = [
            (&process.stdout, &other.stdout, "output"),
            (&process.stderr, &other.stderr, "error output"),
        ];
        for (path_a, path_b, what) in pairs {
            let Some(line) = first_difference(&a.dir.join(path_a), &b.dir.join(path_b))? else {
                continue;
            };
            // It was written at some time in the program's life.
            let starts = [process.start_ns, other.start_ns].into_iter().flatten();
            let ends = [process.end_ns, other.end_ns].map(|end| end.unwrap_or(end_ns));
            events.push(Event {
                kind: Kind::Output,
                what: format!("{}: line {} of its {what}", programs::name(process), line.number),
                from_ns: starts.min().unwrap_or_default(),
                to_ns: ends[0].max(ends[1]),
                a: line.a,
                b: line.b,
            });
        }
    }
    let nodes = a.summary.processes.iter().map(|process| process.node.as_str());
    let trails = a.trail.iter().flat_map(|trail| &trail.interfaces);
    let nodes: BTreeSet<&str> = nodes.chain(trails.map(|trail| trail.node.as_str())).collect();
    for node in nodes {
        let log = |run: &Run| run.dir.join(node).join("kernel.log");
        if let Some(line) = first_difference(&log(a), &log(b))? {
            let times: Vec<u64> = [&line.a, &line.b]
                .into_iter()
                .filter_map(|line| log_time_ns(line))
                .collect();
            let at_ns = times.iter().min();
            events.push(Event {
                kind: Kind::KernelLog,
                what: format!("{node}: line {} of its kernel's log", line.number),
                from_ns: at_ns.copied().unwrap_or(0),
                to_ns: at_ns.copied().unwrap_or(end_ns),
                a: line.a,
                b: line.b,
            });
        }
    }
    Ok(())
}

/// What clients of live runs did differently.
///
/// # Errors
/// When a log cannot be read.
pub fn client_input(a: &Run, b: &Run) -> Result<Vec<Event>, Failure> {
    let Some(line) = first_difference(&a.dir.join(INPUT), &b.dir.join(INPUT))? else {
        return Ok(Vec::new());
    };
    let time_ns = |line: &str| {
        let digits = line
            .split("at_ns\\\":")
            .nth(1)
            .or_else(|| line.split("at_ns\":").nth(1))?;
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        digits[..end].parse::<u64>().ok()
    };
    let at_ns = [&line.a, &line.b].into_iter().filter_map(|line| time_ns(line)).min();
    Ok(vec![Event {
        kind: Kind::Client,
        what: format!("line {} of {INPUT}", line.number),
        from_ns: at_ns.unwrap_or(0),
        to_ns: at_ns.unwrap_or(0),
        a: line.a,
        b: line.b,
    }])
}

/// The time at the start of a line of a kernel's log, as in "[    1.234567] text".
fn log_time_ns(line: &str) -> Option<u64> {
    let (seconds, fraction) = line.strip_prefix('[')?.split_once(']')?.0.trim().split_once('.')?;
    let digits = u32::try_from(fraction.len()).ok().filter(|digits| *digits <= 9)?;
    let fraction_ns = fraction.parse::<u64>().ok()? * 10u64.pow(9 - digits);
    Some(seconds.parse::<u64>().ok()? * 1_000_000_000 + fraction_ns)
}

/// A line that differs.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    /// From 1.
    number: u64,
    a: String,
    b: String,
}

/// The first line in which two files differ. A file that is not there has no lines.
fn first_difference(a: &Path, b: &Path) -> Result<Option<Line>, Failure> {
    let (mut of_a, mut of_b) = (Text::open(a)?, Text::open(b)?);
    let (mut number, mut offset, mut line_start) = (1, 0, 0);
    loop {
        let (byte_a, byte_b) = (of_a.next()?, of_b.next()?);
        if byte_a != byte_b {
            return Ok(Some(Line {
                number,
                a: of_a.line_at(line_start)?,
                b: of_b.line_at(line_start)?,
            }));
        }
        offset += 1;
        match byte_a {
            None => return Ok(None),
            Some(b'\n') => (number, line_start) = (number + 1, offset),
            Some(_) => {}
        }
    }
}

struct Text<'a> {
    path: &'a Path,
    bytes: Option<io::Bytes<BufReader<File>>>,
}

impl<'a> Text<'a> {
    fn open(path: &'a Path) -> Result<Self, Failure> {
        let bytes = match File::open(path) {
            Ok(file) => Some(BufReader::with_capacity(BUFFER_BYTES, file).bytes()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(unreadable(path, &error)),
        };
        Ok(Self { path, bytes })
    }

    fn next(&mut self) -> Result<Option<u8>, Failure> {
        let byte = self.bytes.as_mut().and_then(Iterator::next).transpose();
        byte.map_err(|error| unreadable(self.path, &error))
    }

    /// The beginning of the line that starts at `offset`.
    fn line_at(&self, offset: u64) -> Result<String, Failure> {
        if self.bytes.is_none() {
            return Ok(NONE.to_owned());
        }
        let read = || -> io::Result<Vec<u8>> {
            let mut file = File::open(self.path)?;
            file.seek(SeekFrom::Start(offset))?;
            let mut bytes = Vec::new();
            file.take(LINE_BYTES).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        let bytes = read().map_err(|error| unreadable(self.path, &error))?;
        if bytes.is_empty() {
            return Ok(NONE.to_owned());
        }
        let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
        Ok(quote(&String::from_utf8_lossy(line)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_is_found_and_quoted() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let base = file("a", "one\ntwo\nthree\n");
        let found = |text: &str| first_difference(&base, &file("b", text)).unwrap();
        let line = |number, a: &str, b: &str| {
            Some(Line {
                number,
                a: a.into(),
                b: b.into(),
            })
        };
        assert_eq!(found("one\ntwo\nthree\n"), None);
        assert_eq!(found("one\ntWo\nthree\n"), line(2, "two", "tWo"));
        assert_eq!(found("one\ntwo\n"), line(3, "three", "-"));
        assert_eq!(found("one\ntwo\nthree\nfo\x1bur"), line(4, "-", "fo\\u{1b}ur"));
        assert_eq!(found(""), line(1, "one", "-"));
        let long = "x".repeat(100_000);
        assert_eq!(found(&long), line(1, "one", &format!("{}...", "x".repeat(100))));
        assert_eq!(
            first_difference(&base, Path::new("/none")).unwrap(),
            line(1, "one", "-")
        );
        assert_eq!(first_difference(Path::new("/none"), Path::new("/none")).unwrap(), None);
    }

    #[test]
    fn kernel_logs_have_times() {
        assert_eq!(log_time_ns("[    1.250000] eth0: up"), Some(1_250_000_000));
        assert_eq!(log_time_ns("no time"), None);
    }
}
