//! `windtunnel image build`, `windtunnel image list` and `windtunnel image prune`

use crate::failure::{EXIT_OK, Failure, Outcome};
use crate::kernels;
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use windtunnel_images::{Cache, ImageError, Recipe, build_debian};

/// Make images of root file systems, and look after the unpacked ones
///
/// A node's `root` in a scenario names an image; docs/images.md tells what else it can be.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Make an image from Debian packages
    ///
    /// The same versions of packages give the same bytes. The work is done by mmdebstrap, which needs no root where user
    /// namespaces are allowed. SOURCE_DATE_EPOCH, if it is set, is the latest date of a file in the image.
    Build {
        /// File to write, the tar of a root
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        /// What to install, besides the packages that every Debian system has
        #[arg(long, value_name = "NAME,...", value_delimiter = ',', required = true)]
        packages: Vec<String>,
        /// Release of Debian, as in bookworm [default: that of this host's sources]
        #[arg(long)]
        suite: Option<String>,
        /// Where packages come from [default: this host's sources; with --suite, Debian's own]
        #[arg(long, value_name = "URL", requires = "suite")]
        mirror: Option<String>,
        /// Replace FILE if it is there
        #[arg(long)]
        force: bool,
        /// Print path, SHA-256 and packages as JSON
        #[arg(long)]
        json: bool,
        /// Show no progress
        #[arg(long)]
        quiet: bool,
    },
    /// List the images that are unpacked in the cache
    List {
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove unpacked images from the cache, but those in use
    ///
    /// They are unpacked again when a run needs them.
    Prune,
}

/// Builds, lists or prunes.
pub fn run(args: &Args) -> Outcome {
    match &args.action {
        Action::Build {
            output,
            packages,
            suite,
            mirror,
            force,
            json,
            quiet,
        } => {
            let recipe = Recipe {
                packages: checked(packages)?,
                suite: suite.clone(),
                mirror: mirror.clone(),
                epoch_s: epoch()?,
                quiet: *quiet,
            };
            build(&recipe, output, *force, *json)
        }
        Action::List { json } => list(*json),
        Action::Prune => prune(),
    }
}

fn build(recipe: &Recipe, output: &Path, force: bool, json: bool) -> Outcome {
    let built = build_debian(recipe, output, force).map_err(|error| {
        let failure = Failure::user(format!("cannot make {}: {error}", output.display()));
        match error.hint() {
            Some(hint) => failure.hint(hint),
            None if !force && output.exists() => failure.hint("`--force` replaces it"),
            None => failure,
        }
    })?;
    if json {
        return super::print_json(&built);
    }
    super::print(&format!(
        "{}: {} packages, {} bytes, sha256 {}\n",
        built.path.display(),
        built.packages.len(),
        built.bytes,
        built.sha256
    ))
}

/// The names, if packages can be called so.
fn checked(names: &[String]) -> Result<Vec<String>, Failure> {
    // Debian policy 5.6.1; a release or version may follow, as for `apt install`.
    let usable = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-.:=/~".contains(c);
    match names
        .iter()
        .find(|name| !name.starts_with(|c: char| c.is_ascii_alphanumeric()) || !name.chars().all(usable))
    {
        Some(name) => Err(Failure::user(format!("`{name}` cannot be the name of a package"))
            .hint("name packages as for `apt install`, with commas between them: nginx,curl")),
        None => {
            // The order in which they are named shall not matter.
            let sorted: BTreeSet<String> = names.iter().cloned().collect();
            Ok(sorted.into_iter().collect())
        }
    }
}

fn epoch() -> Result<u64, Failure> {
    match std::env::var("SOURCE_DATE_EPOCH") {
        Err(_) => Ok(windtunnel_images::EPOCH_S),
        Ok(text) => text.parse().map_err(|_| {
            Failure::user(format!("$SOURCE_DATE_EPOCH is `{text}`")).hint("it must be seconds since 1970, or not set")
        }),
    }
}

#[derive(Serialize)]
struct Row {
    sha256: String,
    kind: &'static str,
    origin: String,
    entries: u64,
    bytes: u64,
    folder: PathBuf,
}

fn list(json: bool) -> Outcome {
    let row = |cached: windtunnel_images::Cached| Row {
        kind: cached.about.kind.as_str(),
        sha256: cached.about.sha256,
        origin: cached.about.origin,
        entries: cached.about.entries,
        bytes: cached.about.bytes,
        folder: cached.folder,
    };
    let rows: Vec<Row> = cache()?.list().map_err(failed)?.into_iter().map(row).collect();
    if json {
        return super::print_json(&rows);
    }
    let mut text = String::new();
    for row in &rows {
        let (short, mib) = (&row.sha256[..12.min(row.sha256.len())], row.bytes.div_ceil(1 << 20));
        text += &format!(
            "{short}  {:<6}  {mib:>6} MiB  {:>6} files  {}\n",
            row.kind, row.entries, row.origin
        );
    }
    super::print(&text)
}

fn prune() -> Outcome {
    let pruned = cache()?.prune().map_err(failed)?;
    let mib = pruned.bytes.div_ceil(1 << 20);
    let in_use = match pruned.in_use {
        0 => String::new(),
        count => format!("; {count} in use stay"),
    };
    super::print(&format!("{} images removed, {mib} MiB{in_use}\n", pruned.images))?;
    Ok(EXIT_OK)
}

fn cache() -> Result<Cache, Failure> {
    kernels::images().ok_or_else(|| {
        Failure::user("no cache folder: HOME is not set").hint("set WINDTUNNEL_CACHE to a folder for unpacked images")
    })
}

fn failed(error: ImageError) -> Failure {
    Failure::user(error.to_string())
}
