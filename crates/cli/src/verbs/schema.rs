//! `windtunnel schema`

use crate::failure::Outcome;

/// Print the JSON Schema of scenario files
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Prints it.
pub fn run(_args: &Args) -> Outcome {
    let schema = windtunnel_scenario::json_schema();
    super::print(&(schema.trim_end().to_owned() + "\n"))
}
