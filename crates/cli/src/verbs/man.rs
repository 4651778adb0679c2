//! `windtunnel man [--out DIR]`

use crate::failure::{EXIT_OK, Failure, Outcome};
use clap::CommandFactory;
use std::path::PathBuf;

/// Print the manual page, or write one page per verb
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Write windtunnel.1, windtunnel-run.1, ... into this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Prints or writes the pages.
pub fn run(args: &Args) -> Outcome {
    let command = crate::Cli::command();
    let Some(dir) = &args.out else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command)
            .render(&mut page)
            .expect("writing to memory");
        return super::print(&String::from_utf8_lossy(&page));
    };
    std::fs::create_dir_all(dir)
        .and_then(|()| clap_mangen::generate_to(command, dir))
        .map_err(|error| Failure::user(format!("cannot write manual pages to {}", dir.display())).because(error))?;
    Ok(EXIT_OK)
}
