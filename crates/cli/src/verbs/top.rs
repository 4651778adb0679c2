//! `windtunnel top`

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use crate::failure::{EXIT_OK, Failure, Outcome};
use crate::live;
use crate::top::model::Model;
use crate::top::watcher::Watcher;
use crate::top::{screen, view};
use windtunnel_base::SimDuration;

/// Watch a live run: links, TCP connections, nodes and their programs, ports to the outside
///
/// Rates are of virtual time. To look does nothing to the run: unlike `ps` it enters no node, and is not written to input.jsonl.
/// Keys: Tab or 1 to 4 for the pages, arrows to mark a row, Enter for the control block of a TCP connection with its last
/// values as lines, / to filter, Space to freeze the picture, c to let time go on, q to quit.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    which: live::Which,
    /// How often to look, by the wall clock: 200ms, 1s
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// Print everything once, as text, with rates over one interval
    #[arg(long)]
    once: bool,
    /// Print what the run tells, a JSON object a line: one line, or as many as --count says
    #[arg(long)]
    json: bool,
    /// Lines of --json, an interval apart
    #[arg(long, value_name = "N", requires = "json", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,
    /// Let time stand still each time when this begins to hold for a TCP connection, as in 'cwnd < 2*mss'; c lets it go on.
    /// Names are columns of tcp.csv; cwnd, ssthresh, in_flight (in bytes), mss, srtt, rto and retransmits for short
    #[arg(long = "break", value_name = "CONDITION", conflicts_with_all = ["once", "json"])]
    break_when: Option<String>,
    /// How often to look for it, in virtual time
    #[arg(long, value_name = "TIME", default_value = "1ms", requires = "break_when")]
    break_every: SimDuration,
}

/// Shortest interval: more often would be felt by the run.
const INTERVAL_MIN: Duration = Duration::from_millis(50);

fn interval(text: &str) -> Result<Duration, String> {
    let parsed: SimDuration = text.parse().map_err(|error| format!("{error}"))?;
    let interval = Duration::from_nanos(parsed.as_ns());
    match interval < INTERVAL_MIN {
        true => Err(format!("it is too short; least: {INTERVAL_MIN:?}")),
        false => Ok(interval),
    }
}

/// Watches it.
pub fn run(args: &Args) -> Outcome {
    if !args.json && !args.once && !std::io::stdout().is_terminal() {
        return Err(Failure::user("the output is no terminal").hint("--once prints text, --json what programs read"));
    }
    let mut watcher = Watcher::new(args.which.connect()?);
    if let Some(when) = &args.break_when {
        watcher.break_when(when, args.break_every.as_ns())?;
    }
    let over = || live::over("the run has ended".into(), "");
    if args.json {
        for number in 0..args.count {
            if number > 0 {
                std::thread::sleep(args.interval);
            }
            let state = watcher.look()?.ok_or_else(over)?;
            let line = serde_json::to_string(&state).expect("a state is plain JSON");
            super::print(&format!("{line}\n"))?;
        }
        return Ok(EXIT_OK);
    }
    let first = watcher.look()?.ok_or_else(over)?;
    let mut model = Model::new(watcher.scenario().to_owned(), first, Instant::now());
    if args.once {
        std::thread::sleep(args.interval);
        // One that ended meanwhile is shown as it was.
        if let Some(state) = watcher.look()? {
            model.take(state, Instant::now());
        }
        return super::print(&view::text(&model));
    }
    let name = model.scenario.clone();
    match screen::show(model, args.interval, &mut watcher)? {
        screen::End::Quit => Ok(EXIT_OK),
        screen::End::Over => super::print(&format!("{name}: the run is over\n")),
    }
}
