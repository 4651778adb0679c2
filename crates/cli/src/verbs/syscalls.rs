//! `windtunnel syscalls`

use crate::failure::Outcome;
use serde::Serialize;
use windtunnel_process::table::{HOST_CALLS, HostCall, Status};

/// Print which system calls of programs the host side handles, and how
///
/// Every call that is not listed is Linux's own, in the library kernel.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// A row of `--json`.
#[derive(Serialize)]
struct Row {
    /// Number on x86-64.
    nr: u32,
    name: &'static str,
    /// "full", "partial", "refused" or "absent" (as on a real Linux without the hardware).
    status: &'static str,
    /// What differs from Linux; empty for a full one.
    note: &'static str,
}

/// Prints the table, by number.
pub fn run(args: &Args) -> Outcome {
    let rows: Vec<Row> = HOST_CALLS.iter().map(row).collect();
    if args.json {
        return super::print_json(&rows);
    }
    let mut text = format!("{:>4}  {:<18}  {:<7}  note\n", "nr", "call", "status");
    for row in &rows {
        let line = format!("{:>4}  {:<18}  {:<7}  {}", row.nr, row.name, row.status, row.note);
        text += line.trim_end();
        text.push('\n');
    }
    super::print(&text)
}

fn row(call: &HostCall) -> Row {
    let status = match call.status {
        Status::Full => "full",
        Status::Partial => "partial",
        Status::Refused => "refused",
        Status::Absent => "absent",
    };
    Row {
        nr: call.nr,
        name: call.name,
        status,
        note: call.note,
    }
}
