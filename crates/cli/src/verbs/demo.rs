//! `windtunnel demo`: an experiment from start to plot, with nothing but what came with the program and what every system has.

use crate::chart::{Chart, Line, Span};
use crate::failure::{EXIT_OK, Failure, Outcome};
use crate::host;
use crate::verbs::run;
use std::fmt::Write;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Instant;
use windtunnel_results::Summary;

/// Run an experiment from start to plot
///
/// Two senders, one with TCP's cubic and one with BBR, share a bottleneck that loses frames for a while. Leaves the scenario
/// (demo.yaml), its results, and their goodput as a plot (goodput.svg) and as numbers (goodput.csv).
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folder for all of it; that of an earlier demo is used again
    #[arg(long, value_name = "DIR", default_value = "windtunnel-demo")]
    out: PathBuf,
    /// Which of this host's programs sends and receives [default: the first that is there]
    #[arg(long, value_name = "NAME")]
    program: Option<Interpreter>,
}

const SCENARIO: &str = include_str!("../../assets/demo/demo.yaml");
/// The senders, in the order of the server's processes, and their colours (Okabe and Ito: hold for the colour-blind).
const SENDERS: [(&str, &str); 2] = [("cubic", "#0072B2"), ("bbr", "#D55E00")];
/// What the scenario does in which part of the run, seconds. The first second is left out: slow start.
const PHASES: [(&str, f64, f64); 3] = [("before", 1.0, 10.0), ("1 % loss", 10.0, 20.0), ("after", 20.0, 30.0)];
const LOSS_PHASE: usize = 1;
/// How often the receiver says what came, seconds.
const INTERVAL_S: f64 = 0.5;
/// Where a node looks for programs.
const NODE_PATH: [&str; 6] = [
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
];

/// What can send and receive: Debian and its relatives cannot be without perl-base, others mostly have Python.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Interpreter {
    Perl,
    Python3,
}

impl Interpreter {
    const ALL: [Self; 2] = [Self::Perl, Self::Python3];

    fn name(self) -> &'static str {
        match self {
            Self::Perl => "perl",
            Self::Python3 => "python3",
        }
    }

    /// Name and text of what it carries out.
    fn script(self) -> (&'static str, &'static str) {
        match self {
            Self::Perl => ("traffic.pl", include_str!("../../assets/demo/traffic.pl")),
            Self::Python3 => ("traffic.py", include_str!("../../assets/demo/traffic.py")),
        }
    }

    /// The scenario with this as its program.
    fn scenario(self) -> String {
        SCENARIO
            .replace("@script@", self.script().0)
            .replace("@interpreter@", self.name())
    }

    /// Whether nodes would find it.
    fn is_here(self) -> bool {
        NODE_PATH.iter().any(|dir| Path::new(dir).join(self.name()).is_file())
    }

    fn choose(asked: Option<Self>) -> Result<Self, Failure> {
        let candidates = asked.map_or_else(|| Self::ALL.to_vec(), |one| vec![one]);
        candidates.iter().copied().find(|one| one.is_here()).ok_or_else(|| {
            let names: Vec<&str> = candidates.iter().map(|one| one.name()).collect();
            Failure::user(format!("this host has no {}", names.join(" and no ")))
                .because(format!("looked in {}, as nodes do", NODE_PATH.join(", ")))
                .hint("apt install perl-base, or python3")
        })
    }
}

/// Runs it, draws it, says what happened.
pub fn run(args: &Args) -> Outcome {
    host::restart_if_need_be();
    super::check_current_dir(&args.out)?;
    let interpreter = Interpreter::choose(args.program)?;
    let scenario = lay_out(&args.out, interpreter)?;
    super::print(&format!(
        "Four nodes, each a Linux kernel; {} of this host sends and receives: {}\n",
        interpreter.name(),
        scenario.display()
    ))?;
    let begin = Instant::now();
    let results = args.out.join("results");
    let code = run::run(&run::Args::plain(scenario.clone(), results.clone()))?;
    if code != EXIT_OK {
        return Ok(code);
    }
    let summary = Summary::read(&results)?;
    let series = SENDERS
        .iter()
        .zip(["5001", "5002"])
        .map(|((name, _), port)| Ok((*name, goodput(&results, &summary, port)?)))
        .collect::<Result<Vec<_>, Failure>>()?;
    let plot = args.out.join("goodput.svg");
    write(&args.out.join("goodput.csv"), &csv(&series))?;
    write(&plot, &chart(&series).svg())?;
    let mut text = format!(
        "{} s of virtual time, {} frames, in {:.1} s\n\n{}\n",
        summary.virtual_time_ns as f64 / 1e9,
        summary.frames,
        begin.elapsed().as_secs_f64(),
        table(&series)
    );
    let places = [
        ("plot", plot),
        ("numbers", args.out.join("goodput.csv")),
        ("results", results),
    ];
    for (what, path) in places {
        writeln!(text, "{what:<8} {}", path.display()).expect("writing to a String");
    }
    write!(
        text,
        "\nThe digest is the same on every run and machine with the same {}: {}\n\
         Change the scenario and run it: windtunnel run {} --out DIR\n",
        interpreter.name(),
        summary.digest.as_deref().unwrap_or("none"),
        scenario.display()
    )
    .expect("writing to a String");
    super::print(&text)
}

/// Writes scenario and script; the scenario's path. What is there and not ours stays.
fn lay_out(dir: &Path, interpreter: Interpreter) -> Result<PathBuf, Failure> {
    let scenario = dir.join("demo.yaml");
    let (script, script_text) = interpreter.script();
    let is_ours = match std::fs::read_to_string(&scenario) {
        Ok(text) => Interpreter::ALL.iter().any(|one| one.scenario() == text),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            !std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some())
        }
        Err(_) => false,
    };
    if !is_ours {
        return Err(
            Failure::user(format!("{} holds something else than a demo", dir.display()))
                .because("its demo.yaml is not there, or has been changed")
                .hint("name another folder: windtunnel demo --out DIR"),
        );
    }
    std::fs::create_dir_all(dir).map_err(|error| {
        Failure::user(format!("cannot make the folder {}", dir.display()))
            .because(error)
            .hint("name another folder: windtunnel demo --out DIR")
    })?;
    write(&dir.join(script), script_text)?;
    write(&scenario, &interpreter.scenario())?;
    Ok(scenario)
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|error| Failure::user(format!("cannot write {}", path.display())).because(error))
}

/// Goodput over time.
struct Series {
    /// (end of the interval in seconds, goodput within it in bit/s).
    points: Vec<(f64, f64)>,
}

impl Series {
    /// What the receiver printed: lines of time in seconds and bytes. The last one is of an interval that ended early.
    fn parse(text: &str) -> Option<Self> {
        let mut points: Vec<(f64, f64)> = Vec::new();
        for line in text.lines() {
            let (end_s, bytes) = line.split_once(' ')?;
            points.push((
                end_s.parse().ok()?,
                bytes.parse::<u64>().ok()? as f64 * 8.0 / INTERVAL_S,
            ));
        }
        points.pop()?;
        (!points.is_empty()).then_some(Self { points })
    }

    /// Mean between two times, bit/s.
    fn mean_bps(&self, from_s: f64, to_s: f64) -> f64 {
        let within = self
            .points
            .iter()
            .filter(|(end_s, _)| *end_s > from_s && *end_s <= to_s);
        let (count, sum) = within.fold((0_u32, 0.0), |(count, sum), (_, bps)| (count + 1, sum + bps));
        sum / f64::from(count.max(1))
    }
}

/// What the receiver at this port measured.
fn goodput(results: &Path, summary: &Summary, port: &str) -> Result<Series, Failure> {
    let process = summary
        .processes
        .iter()
        .find(|process| process.command.ends_with(&["receive".into(), port.into()]))
        .expect("the scenario has it");
    let path = results.join(&process.stdout);
    let text = std::fs::read_to_string(&path).map_err(|error| Failure::unreadable(&path, &error))?;
    Series::parse(&text).ok_or_else(|| Failure::crash(format!("{} is not as expected", path.display())))
}

fn csv(series: &[(&str, Series)]) -> String {
    let mut text = String::from("flow,time_s,goodput_bps\n");
    for (name, series) in series {
        for (end_s, bps) in &series.points {
            writeln!(text, "{name},{end_s},{bps}").expect("writing to a String");
        }
    }
    text
}

/// Mean goodput by phase of the run.
fn table(series: &[(&str, Series)]) -> String {
    let mut text = format!("{:<16}", "goodput, Mb/s");
    for (phase, from_s, to_s) in PHASES {
        let title = format!("{phase}, {from_s}-{to_s} s");
        write!(text, "{title:>20}").expect("writing to a String");
    }
    for (name, series) in series {
        write!(text, "\n{name:<16}").expect("writing to a String");
        for (_, from_s, to_s) in PHASES {
            write!(text, "{:>20.2}", series.mean_bps(from_s, to_s) / 1e6).expect("writing to a String");
        }
    }
    text + "\n"
}

fn chart<'a>(series: &'a [(&'a str, Series)]) -> Chart<'a> {
    let (label, from, to) = PHASES[LOSS_PHASE];
    let scale = |series: &Series| series.points.iter().map(|(end_s, bps)| (*end_s, bps / 1e6)).collect();
    Chart {
        title: "Two flows share a bottleneck of 20 Mb/s and 32 ms round trip",
        x_label: "virtual time (s)",
        y_label: "goodput (Mb/s)",
        lines: series
            .iter()
            .zip(SENDERS)
            .map(|((name, series), (_, colour))| Line {
                name,
                colour,
                points: scale(series),
            })
            .collect(),
        span: Span { label, from, to },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windtunnel_scenario::Scenario;

    #[test]
    fn the_scenario_is_valid_with_each_program() {
        for interpreter in Interpreter::ALL {
            let dir = tempfile::tempdir().unwrap();
            let path = lay_out(dir.path(), interpreter).unwrap();
            let scenario = Scenario::parse(&std::fs::read_to_string(&path).unwrap(), &path).unwrap();
            assert_eq!(scenario.nodes.len(), 4);
        }
    }

    #[test]
    fn a_changed_scenario_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = lay_out(dir.path(), Interpreter::Perl).unwrap();
        lay_out(dir.path(), Interpreter::Python3).unwrap();
        std::fs::write(&path, "mine").unwrap();
        assert!(lay_out(dir.path(), Interpreter::Perl).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
        std::fs::remove_file(&path).unwrap();
        assert!(lay_out(dir.path(), Interpreter::Perl).is_err(), "other files are there");
    }

    #[test]
    fn goodput_is_bytes_by_time_without_the_last_interval() {
        let series = Series::parse("0.5 0\n1 125000\n1.5 250000\n2 1\n").unwrap();
        assert_eq!(series.points, [(0.5, 0.0), (1.0, 2e6), (1.5, 4e6)]);
        assert_eq!(series.mean_bps(0.5, 1.5), 3e6);
        assert!(Series::parse("").is_none() && Series::parse("1 x\n2 1\n").is_none());
    }
}
