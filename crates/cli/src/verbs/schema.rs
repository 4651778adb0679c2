//! `windtunnel schema`

use crate::failure::Outcome;

/// Print the JSON Schema of scenarios, of sweeps, of the protocol of live runs, of events.jsonl, or of what `compare` writes
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Of what
    #[arg(value_enum, default_value_t)]
    of: Of,
}

/// What there is a schema of.
#[derive(Debug, Clone, Copy, Default, clap::ValueEnum)]
enum Of {
    /// Scenario files, for editors
    #[default]
    Scenario,
    /// Sweep files, for editors
    Sweep,
    /// Messages on the control socket, for clients in other languages
    Protocol,
    /// A line of events.jsonl in the results
    Events,
    /// What `windtunnel compare --json` writes
    Compare,
}

/// Prints it.
pub fn run(args: &Args) -> Outcome {
    let schema = match args.of {
        Of::Scenario => windtunnel_scenario::json_schema(),
        Of::Sweep => include_str!("../../../../schema/sweep-v1.json").to_owned(),
        Of::Protocol => windtunnel_control::json_schema(),
        Of::Events => windtunnel_results::events_schema(),
        Of::Compare => windtunnel_traces::json_schema(),
    };
    super::print(&(schema.trim_end().to_owned() + "\n"))
}
