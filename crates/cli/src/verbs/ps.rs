//! `windtunnel ps`

use crate::failure::{Failure, Outcome};
use crate::live;
use crate::top::model::span;
use crate::top::view::lateness_line;
use clap_complete::engine::ArgValueCompleter;
use windtunnel_base::SimTime;
use windtunnel_control::{Connection, FromRun, Look, Process, Reply, Request};
use windtunnel_results::LatenessSummary;

/// List the processes of a live run
///
/// START is virtual time. To look is to enter the nodes, so it is written to input.jsonl like what is typed; --lateness enters none.
/// Of a run in real time, the line at the end says how late it is.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Node; all nodes if none is given
    #[arg(add = ArgValueCompleter::new(live::complete_node))]
    node: Option<String>,
    #[command(flatten)]
    which: live::Which,
    /// Show how late the run and its nodes are by the wall clock instead, of a run in real time
    #[arg(long)]
    lateness: bool,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// Prints the list.
pub fn run(args: &Args) -> Outcome {
    let mut connection = args.which.connect()?;
    if let Some(node) = &args.node {
        live::check_node(&connection, node)?;
    }
    let lateness = lateness(&mut connection)?;
    if args.lateness {
        return print_lateness(args, lateness);
    }
    let node = args.node.clone();
    connection.send(&Request::Processes { node })?;
    let processes = match connection.receive()? {
        Some(FromRun::Reply(Reply::Processes(processes))) => processes,
        Some(FromRun::Reply(Reply::RunOver)) | None => return Err(live::over("the run has ended".into(), "")),
        Some(other) => {
            return Err(Failure::crash(format!(
                "the run sent {other:?} for a list of processes"
            )));
        }
    };
    if args.json {
        return super::print_json(&processes);
    }
    let late = lateness.map_or_else(String::new, |lateness| format!("{}\n", lateness_line(&lateness)));
    super::print(&(table(&processes) + &late))
}

/// How late the run is; none: it does not go with the wall clock.
fn lateness(connection: &mut Connection) -> Result<Option<LatenessSummary>, Failure> {
    connection.send(&Request::Look(Look { tcp: false }))?;
    match connection.receive()? {
        Some(FromRun::Reply(Reply::State(state))) => Ok(state.lateness),
        Some(FromRun::Reply(Reply::RunOver)) | None => Err(live::over("the run has ended".into(), "")),
        Some(other) => Err(Failure::crash(format!("the run sent {other:?} for how it stands"))),
    }
}

fn print_lateness(args: &Args, lateness: Option<LatenessSummary>) -> Outcome {
    let Some(mut lateness) = lateness else {
        return Err(Failure::user("this run is in virtual time, in which nothing is late")
            .hint("`--lateness` is for runs in real time"));
    };
    if let Some(node) = &args.node {
        lateness.nodes.retain(|row| row.node == *node);
    }
    if args.json {
        return super::print_json(&lateness);
    }
    super::print(&lateness_table(&lateness))
}

fn lateness_table(lateness: &LatenessSummary) -> String {
    let width = lateness
        .nodes
        .iter()
        .map(|row| row.node.len())
        .max()
        .unwrap_or(0)
        .max("NODE".len());
    let mut text = format!(
        "{:<width$}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  PREEMPTED\n",
        "NODE", "WINDOWS", "LATE", "50 %", "99 %", "MOST"
    );
    for row in &lateness.nodes {
        text += &format!(
            "{:<width$}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {}\n",
            row.node,
            row.windows,
            row.late_windows,
            span(row.p50_ns as f64),
            span(row.p99_ns as f64),
            span(row.max_ns as f64),
            row.preempted_by_wall_clock
        );
    }
    text + &format!("{}\n", lateness_line(lateness))
}

fn table(processes: &[Process]) -> String {
    let start = |process: &Process| SimTime(process.start_ns).to_string();
    let width = |of: &dyn Fn(&Process) -> usize, least| processes.iter().map(of).max().unwrap_or(0).max(least);
    let node_width = width(&|process| process.node.len(), "NODE".len());
    let start_width = width(&|process| start(process).len(), "START".len());
    let mut text = format!(
        "{:<node_width$}  {:>5}  {:>6}  S  {:>start_width$}  COMMAND\n",
        "NODE", "PID", "PARENT", "START"
    );
    for process in processes {
        text += &format!(
            "{:<node_width$}  {:>5}  {:>6}  {}  {:>start_width$}  {}\n",
            process.node,
            process.pid,
            process.parent,
            process.state,
            start(process),
            process.command
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_what_is_in_them() {
        let process = |node: &str, start_ns| Process {
            node: node.into(),
            pid: 42,
            parent: 1,
            state: "S".into(),
            command: "sleep 9".into(),
            start_ns,
        };
        let lines = table(&[process("h1", 0), process("router", 1_500_000_000)]);
        let columns: Vec<_> = lines
            .lines()
            .map(|line| line.find("COMMAND").or(line.find("sleep 9")))
            .collect();
        assert!(
            columns.iter().all(|column| column.is_some() && *column == columns[0]),
            "{lines}"
        );
        assert!(lines.contains("1.5"), "{lines}");
    }
}
