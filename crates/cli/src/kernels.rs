//! Where kernel images are: the list of series, those installed with the program, and the cache of built ones.
//!
//! A package puts `lib/windtunnel` beside the `bin` that the program is in. It holds `kernels/`, laid out as in the cache, and
//! `kernel/`, what kernels are built from. An installed kernel comes before the cache, so that what else a user has built
//! changes no result; `$WINDTUNNEL_KERNEL_DIR`, which names other sources, stands for "those that I build".

use crate::failure::Failure;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use windtunnel_base::hashes;
use windtunnel_images::Cache;

/// From the folder that `bin` is in, where a package puts what the program needs.
const INSTALLED: &str = "lib/windtunnel";

/// A kernel series of `kernel/versions.toml`, and what the cache has of it.
#[derive(Debug, Serialize)]
pub struct Series {
    /// As in a scenario: "6.12".
    pub series: String,
    /// Version of the source package the tree is tested with.
    pub known_good: String,
    /// The image that runs use; null: none is built.
    pub current: Option<Image>,
    /// Number of builds in the cache.
    pub builds: usize,
}

/// A built kernel.
#[derive(Debug, Clone, Serialize)]
pub struct Image {
    /// Hash of source, configuration and compiler.
    pub hash: String,
    /// The shared object.
    pub path: PathBuf,
    /// It came with the program, and is not from the cache.
    pub installed: bool,
}

impl Image {
    /// Compares an installed kernel with the record of its build: half an upgrade or a damaged disk is not to run. What is in
    /// the cache was put there in one step, and the manifest has its hash.
    pub fn check(&self) -> Result<(), Failure> {
        #[derive(Deserialize)]
        struct Record {
            hash: String,
            image_sha256: String,
        }
        if !self.installed {
            return Ok(());
        }
        let broken = |why: String| {
            Failure::user(format!("the installed kernel {} is damaged", self.path.display()))
                .because(why)
                .hint("install windtunnel again")
        };
        let record = self.path.with_file_name("build.json");
        let text =
            std::fs::read_to_string(&record).map_err(|error| broken(format!("{}: {error}", record.display())))?;
        let record: Record = serde_json::from_str(&text).map_err(|error| broken(format!("build.json: {error}")))?;
        let sha256 = File::open(&self.path).and_then(|mut file| hashes::sha256_of(&mut file));
        let sha256 = hashes::hex(&sha256.map_err(|error| broken(error.to_string()))?);
        if (&record.image_sha256, &record.hash) == (&sha256, &self.hash) {
            Ok(())
        } else {
            Err(broken(format!(
                "it is of build {} with SHA-256 {sha256}, its record says {} with {}",
                self.hash, record.hash, record.image_sha256
            )))
        }
    }
}

/// The folder `kernel/`: `$WINDTUNNEL_KERNEL_DIR`, or found from where this program lies: that of the checkout
/// (`target/PROFILE/windtunnel` or `target/TRIPLE/PROFILE/windtunnel`), or that installed with it.
pub fn kernel_dir() -> Result<PathBuf, Failure> {
    if let Some(dir) = non_empty("WINDTUNNEL_KERNEL_DIR") {
        let dir = PathBuf::from(dir);
        return if dir.join("versions.toml").is_file() {
            Ok(dir)
        } else {
            Err(Failure::user(format!(
                "$WINDTUNNEL_KERNEL_DIR is {}, which has no versions.toml",
                dir.display()
            ))
            .hint("it must name the folder kernel/ of a checkout"))
        };
    }
    let program = this_program().map_err(|e| Failure::user("cannot find out where this program lies").because(e))?;
    let checkouts = program.ancestors().skip(2).take(4).map(|dir| dir.join("kernel"));
    let found = installed_dir()
        .map(|dir| dir.join("kernel"))
        .into_iter()
        .chain(checkouts)
        .find(|dir| dir.join("versions.toml").is_file());
    found.ok_or_else(|| {
        Failure::user(format!("no folder kernel/ belongs to {}", program.display()))
            .hint("set WINDTUNNEL_KERNEL_DIR to the folder kernel/ of a checkout")
    })
}

fn this_program() -> std::io::Result<PathBuf> {
    std::env::current_exe().and_then(|path| path.canonicalize())
}

/// What a package put beside this program; none for a program that was built in a checkout.
fn installed_dir() -> Option<PathBuf> {
    let dir = this_program().ok()?.parent()?.parent()?.join(INSTALLED);
    dir.is_dir().then_some(dir)
}

/// The kernel of a series that came with this program, unless the user builds from sources of their own.
fn installed(series: &str) -> Option<Image> {
    if non_empty("WINDTUNNEL_KERNEL_DIR").is_some() {
        return None;
    }
    let image = current(&installed_dir()?.join("kernels").join(series), series)?;
    Some(Image {
        installed: true,
        ..image
    })
}

/// The cache folder, chosen as `kernel/build` does; none when there is neither a home nor a checkout.
pub fn cache_dir() -> Option<PathBuf> {
    if let Some(dir) = non_empty("WINDTUNNEL_CACHE") {
        return std::path::absolute(dir).ok();
    }
    if let Some(dir) = non_empty("XDG_CACHE_HOME") {
        return std::path::absolute(dir).ok().map(|dir| dir.join("windtunnel"));
    }
    if let Some(home) = non_empty("HOME") {
        return Some(PathBuf::from(home).join(".cache/windtunnel"));
    }
    let kernel_dir = kernel_dir().ok()?;
    kernel_dir.parent().map(|checkout| checkout.join(".cache/windtunnel"))
}

/// The cache of unpacked images, beside that of kernels.
pub fn images() -> Option<Cache> {
    cache_dir().map(|folder| Cache::new(folder.join("images")))
}

/// All series, by name as written.
pub fn list() -> Result<Vec<Series>, Failure> {
    #[derive(serde::Deserialize)]
    struct Table {
        known_good: String,
    }
    let path = kernel_dir()?.join("versions.toml");
    let text = std::fs::read_to_string(&path).map_err(|e| Failure::unreadable(&path, &e))?;
    let tables: BTreeMap<String, Table> = toml::from_str(&text)
        .map_err(|e| Failure::user(format!("{} is not as expected", path.display())).because(e.message()))?;
    let cache = cache_dir();
    let series = tables.into_iter().map(|(series, table)| {
        let folder = cache.as_ref().map(|cache| cache.join("kernels").join(&series));
        Series {
            current: installed(&series).or_else(|| folder.as_deref().and_then(|folder| current(folder, &series))),
            builds: folder.as_deref().map_or(0, |folder| count_builds(folder, &series)),
            known_good: table.known_good,
            series,
        }
    });
    Ok(series.collect())
}

/// The image to run a series with.
pub fn image(series: &str) -> Result<Image, Failure> {
    if let Some(image) = installed(series) {
        image.check()?;
        return Ok(image);
    }
    let cache = cache_dir().ok_or_else(|| {
        Failure::user("no cache folder: HOME is not set").hint("set WINDTUNNEL_CACHE to a folder for built kernels")
    })?;
    let folder = cache.join("kernels").join(series);
    current(&folder, series).ok_or_else(|| {
        let failure = Failure::user(format!("kernel {series} is not built"))
            .because(format!("no current build in {}", folder.display()));
        match list() {
            Ok(known) if !known.iter().any(|known| known.series == series) => {
                let names: Vec<String> = known.into_iter().map(|known| known.series).collect();
                failure.hint(format!("there is no such series; known: {}", names.join(", ")))
            }
            _ => failure.hint(format!("windtunnel kernel build --series {series}")),
        }
    })
}

fn current(folder: &Path, series: &str) -> Option<Image> {
    let hash = std::fs::read_to_string(folder.join("current")).ok()?.trim().to_owned();
    if hash.is_empty() || hash.contains('/') {
        return None;
    }
    let path = folder.join(&hash).join(file_name(series));
    path.is_file().then_some(Image {
        hash,
        path,
        installed: false,
    })
}

fn count_builds(folder: &Path, series: &str) -> usize {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.path().join(file_name(series)).is_file())
        .count()
}

fn file_name(series: &str) -> String {
    format!("liblinux-{series}.so")
}

fn non_empty(variable: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(variable).filter(|value| !value.is_empty())
}
