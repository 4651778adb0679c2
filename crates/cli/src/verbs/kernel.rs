//! `windtunnel kernel build` and `windtunnel kernel list`

use crate::failure::{EXIT_INTERRUPTED, EXIT_OK, Failure, Outcome};
use crate::kernels;
use std::process::{Command, Stdio};

/// Build and list the library kernels
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Build the kernel of a series, unless its build is in the cache already
    ///
    /// Takes some minutes. Prints the path of the built image. The build script is kernel/build. Runs use the kernel
    /// that came with the program, if one did, unless WINDTUNNEL_KERNEL_DIR names the folder that yours are built from.
    Build {
        /// Which series of kernel/versions.toml
        #[arg(long, default_value = "6.12")]
        series: String,
        /// Compilers at a time [default: one per CPU]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        jobs: Option<u32>,
    },
    /// List the series that can be built and what is installed or in the cache
    List {
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
}

/// Builds or lists.
pub fn run(args: &Args) -> Outcome {
    match &args.action {
        Action::Build { series, jobs } => build(series, *jobs),
        Action::List { json } => list(*json),
    }
}

fn build(series: &str, jobs: Option<u32>) -> Outcome {
    let script = kernels::kernel_dir()?.join("build");
    let mut command = Command::new(&script);
    if let Some(jobs) = jobs {
        command.arg("--jobs").arg(jobs.to_string());
    }
    // Its standard output is the path of the image, its standard error the progress: both are ours, too.
    let status = command.arg(series).stdin(Stdio::null()).status().map_err(|error| {
        Failure::user(format!("cannot run {}", script.display()))
            .because(error)
            .hint("it needs python3: apt install python3")
    })?;
    match status.code() {
        Some(0) => {
            note_installed(series);
            Ok(EXIT_OK)
        }
        Some(EXIT_INTERRUPTED) | None => Ok(EXIT_INTERRUPTED),
        Some(code) => Err(
            Failure::user(format!("the build of kernel {series} failed")).because(format!(
                "{} ended with exit code {code}; its messages are above",
                script.display()
            )),
        ),
    }
}

/// Says so where runs do not take what was built.
fn note_installed(series: &str) {
    if let Ok(image) = kernels::image(series)
        && image.installed
    {
        eprintln!(
            "note: runs use the kernel that came with this program, {}\nhint: to use kernels of your own, set \
             WINDTUNNEL_KERNEL_DIR to the folder that they are built from, for builds and for runs",
            image.path.display()
        );
    }
}

fn list(json: bool) -> Outcome {
    let series = kernels::list()?;
    if json {
        return super::print_json(&series);
    }
    let mut text = String::new();
    for entry in &series {
        let state = match &entry.current {
            Some(image) if image.installed => format!("installed  {}", image.path.display()),
            Some(image) => format!("built      {}", image.path.display()),
            None => format!("missing    windtunnel kernel build --series {}", entry.series),
        };
        text += &format!("{:<6}  {:<22}  {state}\n", entry.series, entry.known_good);
    }
    super::print(&text)
}
