//! Images made from Debian packages: by mmdebstrap, which needs no root where user namespaces are allowed.
//!
//! The same versions of packages give the same bytes: what differs between hosts and builds is taken out, and no date is later
//! than [`EPOCH_S`].

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, openat};
use serde::Serialize;
use tar::Archive;

use crate::digest::Hashing;
use crate::error::ImageError;
use crate::layers::broken;

/// Latest date of a file unless `SOURCE_DATE_EPOCH` says otherwise, seconds since 1970: when nodes' clocks start by default,
/// so that no file is from the future there.
pub const EPOCH_S: u64 = 1_767_225_600;
const TOOL: &str = "mmdebstrap";
const STATUS: &str = "var/lib/dpkg/status";
const SOURCES: &str = "/etc/apt/sources.list";
const SOURCES_FOLDER: &str = "/etc/apt/sources.list.d";
/// What mmdebstrap takes from the host or its options: a node has names of its own, and no use for the sources.
const FORGET: &str = r#"cd "$1" && rm -rf etc/resolv.conf etc/hostname etc/apt/sources.list etc/apt/sources.list.d/* etc/apt/apt.conf.d/99mmdebstrap"#;

/// What is to be made.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// Besides those that are in every Debian system.
    pub packages: Vec<String>,
    /// Release, as in `bookworm`; none: as the host's sources have it.
    pub suite: Option<String>,
    /// Where packages come from; none: the host's sources, or Debian's own for `suite`.
    pub mirror: Option<String>,
    /// Latest date of a file, seconds since 1970.
    pub epoch_s: u64,
    /// Whether the tool tells what it does.
    pub quiet: bool,
}

/// What was made.
#[derive(Clone, Debug, Serialize)]
pub struct Built {
    /// The image.
    pub path: PathBuf,
    /// SHA-256 of it, as the manifest of a run names it.
    pub sha256: String,
    /// Its length.
    pub bytes: u64,
    /// All packages in it, by name.
    pub packages: Vec<Package>,
}

/// An installed package.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Package {
    /// As in `apt install`.
    pub name: String,
    /// As its maintainer numbers it.
    pub version: String,
}

/// Makes the image at `path`. Whatever happens, there is either all of it or nothing.
///
/// # Errors
/// When `path` is there already and not to be replaced, the tool is not there or fails, or the file cannot be written.
pub fn build(recipe: &Recipe, path: &Path, replace: bool) -> Result<Built, ImageError> {
    if !replace && path.symlink_metadata().is_ok() {
        return Err(ImageError::format(format!("{} is there already", path.display())));
    }
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let mut file = unnamed(folder).map_err(ImageError::host(format!("make a file in {}", folder.display())))?;
    let mut command = Command::new(TOOL);
    command
        .args(arguments(recipe))
        .env("SOURCE_DATE_EPOCH", recipe.epoch_s.to_string())
        .env("LC_ALL", "C.UTF-8");
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => ImageError::NoTool { tool: TOOL },
            _ => ImageError::host(format!("run {TOOL}"))(error),
        })?;
    let mut tar = Hashing::new(child.stdout.take().expect("it is piped"));
    let copied = io::copy(&mut tar, &mut file);
    let sha256 = tar.finish();
    let status = child.wait().map_err(ImageError::host(format!("wait for {TOOL}")))?;
    if !status.success() {
        return Err(ImageError::ToolFailed {
            tool: TOOL,
            status: status.to_string(),
        });
    }
    let writing = || ImageError::host(format!("write {}", path.display()));
    let bytes = copied.map_err(writing())?;
    let sha256 = sha256.map_err(writing())?;
    file.flush().map_err(writing())?;
    let packages = packages(&mut file)?;
    publish(&file, path, replace).map_err(writing())?;
    Ok(Built {
        path: path.into(),
        sha256,
        bytes,
        packages,
    })
}

fn arguments(recipe: &Recipe) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["--format=tar".into(), "--variant=essential".into()];
    if recipe.quiet {
        arguments.push("--quiet".into());
    }
    arguments.push(format!("--include={}", recipe.packages.join(",")).into());
    arguments.push(format!("--customize-hook={FORGET}").into());
    // An empty suite: that of the sources.
    arguments.push(recipe.suite.clone().unwrap_or_default().into());
    arguments.push("-".into());
    match (&recipe.mirror, &recipe.suite) {
        (Some(mirror), _) => arguments.push(mirror.into()),
        (None, None) => arguments.extend(host_sources().into_iter().map(OsString::from)),
        (None, Some(_)) => {}
    }
    arguments
}

/// The files in which apt of this host has its sources, sorted.
fn host_sources() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(SOURCES_FOLDER)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    let known = |path: &PathBuf| {
        path.extension()
            .is_some_and(|extension| extension == "list" || extension == "sources")
    };
    let mut files: Vec<PathBuf> = entries.filter(known).collect();
    files.sort();
    let first = PathBuf::from(SOURCES);
    if first.is_file() {
        files.insert(0, first);
    }
    files
}

/// The packages that are installed in a tar of a root.
fn packages(file: &mut File) -> Result<Vec<Package>, ImageError> {
    file.seek(SeekFrom::Start(0))
        .map_err(ImageError::host("read the image"))?;
    let mut archive = Archive::new(&*file);
    for entry in archive.entries_with_seek().map_err(broken)? {
        let mut entry = entry.map_err(broken)?;
        if entry.path_bytes().strip_prefix(b"./").unwrap_or(&entry.path_bytes()) == STATUS.as_bytes() {
            let mut text = String::new();
            entry.read_to_string(&mut text).map_err(broken)?;
            return Ok(installed(&text));
        }
    }
    Err(ImageError::format(format!(
        "the image that {TOOL} made has no {STATUS}"
    )))
}

/// The installed ones of dpkg's status file.
fn installed(status: &str) -> Vec<Package> {
    let field = |paragraph: &str, key: &str| -> Option<String> {
        let line = paragraph
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
        line.map(str::to_owned)
    };
    let package = |paragraph: &str| {
        let there = field(paragraph, "Status")? == "install ok installed";
        let (name, version) = (field(paragraph, "Package")?, field(paragraph, "Version")?);
        there.then_some(Package { name, version })
    };
    let mut packages: Vec<Package> = status.split("\n\n").filter_map(package).collect();
    packages.sort();
    packages
}

/// A file without name, of which nothing is left if this program is killed.
fn unnamed(folder: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    Ok(openat(CWD, folder, flags, Mode::from_raw_mode(0o644))?.into())
}

fn publish(file: &File, path: &Path, replace: bool) -> io::Result<()> {
    let own = format!("/proc/self/fd/{}", file.as_raw_fd());
    let link = |to: &Path| linkat(CWD, own.as_str(), CWD, to, AtFlags::SYMLINK_FOLLOW);
    if !replace {
        return Ok(link(path)?);
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}", std::process::id()));
    link(Path::new(&beside))?;
    std::fs::rename(&beside, path).inspect_err(|_| {
        let _ = std::fs::remove_file(&beside);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_those_that_are_installed() {
        let status = "Package: zlib1g\nStatus: install ok installed\nVersion: 1:1.2\nDescription: x\n Version: 9\n\n\
                      Package: gone\nStatus: deinstall ok config-files\nVersion: 1\n\n\
                      Package: curl\nStatus: install ok installed\nVersion: 7.88\n";
        let package = |name: &str, version: &str| Package {
            name: name.into(),
            version: version.into(),
        };
        assert_eq!(installed(status), [package("curl", "7.88"), package("zlib1g", "1:1.2")]);
    }

    #[test]
    fn a_file_appears_whole_and_replaces_only_when_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image.tar");
        let mut file = unnamed(folder.path()).unwrap();
        file.write_all(b"one").unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        publish(&file, &path, false).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"one");
        assert_eq!(
            publish(&file, &path, false).unwrap_err().kind(),
            io::ErrorKind::AlreadyExists
        );
        let mut other = unnamed(folder.path()).unwrap();
        other.write_all(b"two").unwrap();
        publish(&other, &path, true).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
