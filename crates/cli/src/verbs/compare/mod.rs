//! `windtunnel compare A B`

mod text;

use crate::failure::{EXIT_OK, Failure, Outcome};
use crate::{diff, python};
use serde::Serialize;
use std::fs::File;
use std::path::{Path, PathBuf};
use windtunnel_base::SimDuration;
use windtunnel_base::result_files::PCAP;
use windtunnel_traces::{Collector, Field, Fields, Tolerance, Trace, compare, diagram};

/// The traces differ.
const EXIT_DIFFERENT: i32 = 1;
/// What a picture may end with.
const FORMATS: [&str; 3] = ["png", "svg", "pdf"];

/// Compare the packets of two runs or captures, connection by connection
///
/// A and B are results of runs with `capture`, or files of tcpdump or Wireshark (pcap, pcapng). Connections are matched by addresses and
/// ports, else by server port and order. Sequence numbers, times and TCP timestamps are taken relative to the start of each side, windows
/// are scaled; IP's identification, TTL and checksums are not looked at. Told are the identical prefix and the first difference, what is
/// missing, additional or different behind it, differences in time, and goodput, round-trip times and retransmissions of both. Exit codes:
/// 0 equal within the tolerances, 1 different, 2 something cannot be read.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Results of a run, or a capture
    #[arg(value_name = "A")]
    a: PathBuf,
    /// What to compare it with
    #[arg(value_name = "B")]
    b: PathBuf,
    /// Fields that may differ
    #[arg(long, value_name = "FIELDS", value_enum, value_delimiter = ',')]
    ignore: Vec<Ignore>,
    /// TCP timestamps may differ by so many ticks
    #[arg(long, value_name = "TICKS", default_value_t = 0)]
    timestamp_tolerance: u32,
    /// Packets may be apart by so much time, as `1ms`; by default times are told, and make no difference
    #[arg(long, value_name = "TIME", value_parser = duration)]
    time_tolerance: Option<SimDuration>,
    /// Only connections and flows with this part of a name, as `:5201`
    #[arg(long, value_name = "TEXT")]
    connection: Option<String>,
    /// Of runs, captures of this interface only; by default, each connection where it was seen first
    #[arg(long, value_name = "NODE:INTERFACE")]
    at: Option<String>,
    /// Draw the largest connection of both into FILE: .png, .svg or .pdf; needs `pip install 'windtunnel[study]'`
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print all as JSON (`windtunnel schema compare`); the exit code is as without
    #[arg(long)]
    json: bool,
}

/// What may be told to be of no matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Ignore {
    /// The PSH flag
    Push,
    /// Advertised windows
    Window,
    /// The urgent pointer
    Urgent,
    /// Contents of payloads
    Payload,
    /// The option of the largest segment
    Mss,
    /// The option of the windows' shift
    WindowScale,
    /// SACK blocks
    Sack,
    /// TCP timestamps
    Timestamps,
    /// All options of TCP that have no name here
    Options,
    /// ECN bits of IP
    Ecn,
    /// DSCP of IP
    Dscp,
    /// How packets of both sides are interleaved
    Order,
}

impl Ignore {
    fn field(self) -> Field {
        match self {
            Self::Push => Field::Push,
            Self::Window => Field::Window,
            Self::Urgent => Field::Urgent,
            Self::Payload => Field::Payload,
            Self::Mss => Field::Mss,
            Self::WindowScale => Field::WindowScale,
            Self::Sack => Field::Sack,
            Self::Timestamps => Field::Timestamps,
            Self::Options => Field::Options,
            Self::Ecn => Field::Ecn,
            Self::Dscp => Field::Dscp,
            Self::Order => Field::Order,
        }
    }
}

fn duration(text: &str) -> Result<SimDuration, String> {
    text.parse()
        .map_err(|error: windtunnel_base::UnitError| error.to_string())
}

/// What the Python part of the verb is asked for.
#[derive(Serialize)]
struct Picture<'a> {
    file: &'a Path,
    a: String,
    b: String,
}

/// Compares and tells.
pub fn run(args: &Args) -> Outcome {
    if let Some(file) = &args.plot {
        check_picture(file)?;
    }
    if args.at.is_some() && !args.a.is_dir() && !args.b.is_dir() {
        return Err(
            Failure::user("--at chooses among the captures of a run, and neither A nor B is one")
                .hint("leave it out, or capture that interface alone"),
        );
    }
    let (a, b) = std::thread::scope(|scope| {
        let of_b = scope.spawn(|| read(&args.b, args.at.as_deref()));
        let of_a = read(&args.a, args.at.as_deref());
        (of_a, of_b.join().expect("reading does not panic"))
    });
    let (a, b) = (a?, b?);
    let tolerance = Tolerance {
        ignored: args.ignore.iter().map(|ignored| ignored.field()).collect::<Fields>(),
        timestamp_ticks: args.timestamp_tolerance,
        time_ns: args.time_tolerance.map(SimDuration::as_ns),
    };
    let names = [&args.a, &args.b].map(|path| path.display().to_string());
    let comparison = compare((&names[0], &a), (&names[1], &b), args.connection.as_deref(), &tolerance);
    check_found(&comparison, args)?;
    for (source, side) in [(&comparison.a, "A"), (&comparison.b, "B")] {
        for warning in &source.warnings {
            eprintln!("warning: {side}: {warning}");
        }
    }
    if args.json {
        super::print_json(&comparison)?;
    } else {
        super::print(&text::render(&comparison))?;
    }
    if let Some(file) = &args.plot {
        let Some(diagram) = diagram(&a, &b, &comparison) else {
            return Err(Failure::user(
                "there is no TCP connection in both, so there is nothing to draw",
            ));
        };
        let input = serde_json::to_vec(&diagram).expect("string keys only");
        let [a, b] = names;
        let code = python::run_part("compare", &Picture { file, a, b }, &input)?;
        if code != EXIT_OK {
            return Ok(code.max(crate::failure::EXIT_USER));
        }
    }
    Ok(if comparison.equal { EXIT_OK } else { EXIT_DIFFERENT })
}

/// Before anything is read: what is wrong with the picture's name.
fn check_picture(file: &Path) -> Result<(), Failure> {
    let extension = file.extension().unwrap_or_default().to_string_lossy().to_lowercase();
    if FORMATS.contains(&extension.as_str()) {
        return Ok(());
    }
    Err(Failure::user(format!("`{}` is no name of a picture", file.display()))
        .hint(format!("let it end with .{}", FORMATS.join(", ."))))
}

/// Two traces of nothing are not equal: most likely something else was meant.
fn check_found(comparison: &windtunnel_traces::Comparison, args: &Args) -> Result<(), Failure> {
    let unmatched = &comparison.unmatched;
    let pairs = comparison.connections.len() + comparison.flows.len();
    if pairs + unmatched.a.len() + unmatched.b.len() > 0 {
        return Ok(());
    }
    Err(match &args.connection {
        Some(part) => Failure::user(format!("no connection of either has `{part}` in its name"))
            .hint("names are as `10.0.0.1:40000 > 10.0.0.2:80`; without --connection all are listed"),
        None => Failure::user("there are no packets of TCP, UDP or ICMP in either").because(format!(
            "A has {} frames, B has {}",
            comparison.a.counts.frames, comparison.b.counts.frames
        )),
    })
}

/// Reads all captures of a run, or one file.
fn read(path: &Path, at: Option<&str>) -> Result<Trace, Failure> {
    let mut collector = Collector::default();
    let kind = std::fs::metadata(path).map_err(|error| Failure::unreadable(path, &error))?;
    if kind.is_dir() {
        for (name, file) in captures(path, at)? {
            add(&mut collector, &name, &file)?;
        }
    } else {
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        add(&mut collector, &name, path)?;
    }
    Ok(collector.finish())
}

fn add(collector: &mut Collector, name: &str, path: &Path) -> Result<(), Failure> {
    let file = File::open(path).map_err(|error| Failure::unreadable(path, &error))?;
    collector
        .add(name, file)
        .map_err(|error| Failure::user(format!("cannot read {} as a capture", path.display())).because(error))
}

/// Names of interfaces and their captures, in the order of names.
fn captures(dir: &Path, at: Option<&str>) -> Result<Vec<(String, PathBuf)>, Failure> {
    diff::check_results(dir)?;
    let mut names = diff::capture_names(dir)?;
    let hint = "`run: {capture: all}` in the scenario captures all interfaces; it changes nothing else";
    if names.is_empty() {
        return Err(Failure::user(format!("the run in {} has no captures", dir.display())).hint(hint));
    }
    if let Some(at) = at {
        let wanted = format!("{}.pcap", at.replace(':', "-"));
        if !names.contains(&wanted) {
            let all: Vec<&str> = names.iter().map(|name| name.trim_end_matches(".pcap")).collect();
            return Err(
                Failure::user(format!("the run in {} has no capture of {at}", dir.display()))
                    .hint(format!("it has NODE-INTERFACE: {}", all.join(", "))),
            );
        }
        names.retain(|name| *name == wanted);
    }
    let folder = dir.join(PCAP);
    let named = names.into_iter().map(|name| {
        let path = folder.join(&name);
        (name.trim_end_matches(".pcap").to_owned(), path)
    });
    Ok(named.collect())
}
