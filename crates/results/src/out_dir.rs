//! The output folder: creates it, hands out its files, and replaces an earlier run without touching anything else.

use crate::error::{Result, ResultsError};
use crate::events::EventLog;
use crate::flow_table::{FlowRow, flows_csv};
use crate::kernel_log::KernelLog;
use crate::link_series::LinkInterval;
use crate::manifest::{GENERATOR, Manifest};
use crate::pcap::PcapWriter;
use crate::samples::{MptcpLine, QdiscLine, TcpLine};
use crate::series::{Line, Series};
use crate::summary::Summary;
use crate::trail::Trail;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, posix_fallocate};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex};
use windtunnel_base::result_files::{
    self, CONTROL, EVENTS, FILES, FLOWS, INPUT, LINKS, MANIFEST, MPTCP, OUTSIDE, PCAP, PCAPNG, QDISCS, SUMMARY, TCP,
    TRAIL,
};

/// Takes everything and holds nothing.
const NOWHERE: &str = "/dev/null";
/// Enough for summary and manifest of some hundred programs.
const RESERVE_BYTES: i64 = 256 << 10;

/// What to do with a folder that holds something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExistingFiles {
    /// Leave it alone and say so.
    Refuse,
    /// Remove what an earlier run made (and nothing else), then go on.
    ReplaceOurs,
}

/// The folder of one run. Clones share it.
#[derive(Debug, Clone)]
pub struct OutDir {
    path: PathBuf,
    /// None: nothing is kept.
    kept: Option<Kept>,
}

/// What a folder has besides its results.
#[derive(Debug, Clone)]
struct Kept {
    /// `files.list`, which names a file before it is made: whatever happens, we know what is ours.
    journal: Arc<Mutex<Journal>>,
    /// Disk space for the summary and the manifest of a run that fills the disk; none once it was needed.
    reserve: Arc<Mutex<Option<File>>>,
}

/// A file that is locked while its run lasts, where the file system has locks.
#[derive(Debug)]
enum Journal {
    Locked(Flock<File>),
    Unlocked(File),
}

impl Journal {
    /// None: another process holds the lock.
    fn lock(file: File) -> Option<Self> {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(locked) => Some(Self::Locked(locked)),
            Err((_, Errno::EWOULDBLOCK)) => None,
            Err((file, _)) => Some(Self::Unlocked(file)),
        }
    }

    fn file(&mut self) -> &mut File {
        match self {
            Self::Locked(file) => file,
            Self::Unlocked(file) => file,
        }
    }
}

/// Open files for the output of one program, and where they are.
#[derive(Debug)]
pub struct ProcessLogs {
    /// Standard output: empty, open for reading and writing.
    pub stdout: File,
    /// Standard error: likewise.
    pub stderr: File,
    /// Path of the first relative to the output folder, as in the summary.
    pub stdout_path: String,
    /// Path of the second.
    pub stderr_path: String,
}

impl OutDir {
    /// Makes the folder (and those above it) ready for a run.
    pub fn create(path: &Path, existing: ExistingFiles) -> Result<Self> {
        fs::create_dir_all(path).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => ResultsError::NotADirectory(path.into()),
            _ => ResultsError::from_io("create", path, error),
        })?;
        if !is_empty(path)? {
            if existing == ExistingFiles::Refuse {
                return Err(ResultsError::NotEmpty(path.into()));
            }
            // Held until what is there is removed.
            let earlier = File::open(path.join(FILES)).ok().map(Journal::lock);
            if matches!(earlier, Some(None)) {
                return Err(ResultsError::InUse(path.into()));
            }
            remove_earlier_run(path)?;
        }
        let files = path.join(FILES);
        let journal = Journal::lock(new_file(&files)?).ok_or_else(|| ResultsError::InUse(path.into()))?;
        let dir = Self {
            path: path.into(),
            kept: Some(Kept {
                journal: Arc::new(Mutex::new(journal)),
                reserve: Arc::new(Mutex::new(Some(reserve(path)?))),
            }),
        };
        // Until the engine knows more: enough to recognise the folder.
        dir.write_atomically(
            MANIFEST,
            &format!("{{\n  \"generator\": \"{GENERATOR}\",\n  \"ended\": null\n}}\n"),
        )?;
        Ok(dir)
    }

    /// The folder of a run whose results nobody wants: there is none, and what is written is lost at once.
    pub fn nowhere() -> Self {
        Self {
            path: NOWHERE.into(),
            kept: None,
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Starts the capture of an interface: `pcap/NODE-IFACE.pcap`. `epoch_s` is the wall clock of the nodes at virtual
    /// time 0, seconds since 1970.
    pub fn pcap(&self, node: &str, interface: &str, epoch_s: u64) -> Result<PcapWriter> {
        let (node, interface) = (checked_node(node)?, checked_name("interface", interface)?);
        // "a-b" + "c" and "a" + "b-c" would be the same file: the second one gets a number.
        let stem = format!("{PCAP}/{node}-{interface}");
        let mut relative = format!("{stem}.pcap");
        let mut number = 2;
        while self.path.join(&relative).exists() {
            relative = format!("{stem}.{number}.pcap");
            number += 1;
        }
        let file = self.new_file(&relative)?;
        PcapWriter::new(file, self.path.join(relative), epoch_s)
    }

    /// Starts the kernel log of a node: `NODE/kernel.log`.
    pub fn kernel_log(&self, node: &str) -> Result<KernelLog> {
        let relative = format!("{}/kernel.log", checked_node(node)?);
        let file = self.new_file(&relative)?;
        Ok(KernelLog::new(file, self.path.join(relative)))
    }

    /// Opens the output files of a program: `NODE/NAME-INDEX.stdout` and `.stderr`, NAME being the last component of
    /// `program` and INDEX its position among the node's processes. `life` counts the boots of the node; from the second on
    /// INDEX is followed by `.lifeN`.
    pub fn process_logs(&self, node: &str, program: &str, index: u32, life: u32) -> Result<ProcessLogs> {
        let node = checked_node(node)?;
        let stem = format!("{node}/{}-{index}", file_name_of(program));
        let stem = if life == 1 { stem } else { format!("{stem}.life{life}") };
        let (stdout_path, stderr_path) = (format!("{stem}.stdout"), format!("{stem}.stderr"));
        Ok(ProcessLogs {
            stdout: self.new_file(&stdout_path)?,
            stderr: self.new_file(&stderr_path)?,
            stdout_path,
            stderr_path,
        })
    }

    /// Starts the log of what clients did to the run: `input.jsonl`.
    pub fn input_log(&self) -> Result<File> {
        self.new_file(INPUT)
    }

    /// Starts the log of what came from outside: `outside.bin`.
    pub fn outside_log(&self) -> Result<File> {
        self.new_file(OUTSIDE)
    }

    /// `links.csv`.
    pub fn link_series(&self) -> Result<Series> {
        self.series::<LinkInterval<'_>>(LINKS)
    }

    /// `tcp.csv`.
    pub fn tcp_series(&self) -> Result<Series> {
        self.series::<TcpLine<'_>>(TCP)
    }

    /// `mptcp.csv`.
    pub fn mptcp_series(&self) -> Result<Series> {
        self.series::<MptcpLine<'_>>(MPTCP)
    }

    /// `qdiscs.csv`.
    pub fn qdisc_series(&self) -> Result<Series> {
        self.series::<QdiscLine<'_>>(QDISCS)
    }

    fn series<L: Line>(&self, name: &'static str) -> Result<Series> {
        Series::new::<L>(self.new_file(name)?, self.path.join(name))
    }

    /// Links `control.sock` to the run's socket, while it lasts.
    pub fn link_control(&self, socket: &Path) -> Result<()> {
        if self.kept.is_none() {
            return Ok(());
        }
        self.list(CONTROL)?;
        let path = self.path.join(CONTROL);
        symlink(socket, &path).map_err(|e| ResultsError::from_io("create", &path, e))
    }

    /// Removes that link.
    pub fn unlink_control(&self) -> Result<()> {
        match self.kept {
            Some(_) => remove_file(&self.path.join(CONTROL)),
            None => Ok(()),
        }
    }

    /// Writes `manifest.json`, replacing the one before in one step.
    pub fn write_manifest(&self, manifest: &Manifest) -> Result<()> {
        self.write_atomically(MANIFEST, &manifest.to_json())
    }

    /// Writes `summary.json`, replacing the one before in one step.
    pub fn write_summary(&self, summary: &Summary) -> Result<()> {
        self.write_atomically(SUMMARY, &summary.to_json())
    }

    /// Writes `trail.json`, replacing the one before in one step.
    pub fn write_trail(&self, trail: &Trail) -> Result<()> {
        self.write_atomically(TRAIL, &trail.to_json())
    }

    /// Writes `events.jsonl`, replacing the one before in one step.
    pub fn write_events(&self, events: &EventLog) -> Result<()> {
        self.write_atomically(EVENTS, &events.to_jsonl())
    }

    /// Writes `flows.csv`, replacing the one before in one step.
    pub fn write_flows(&self, flows: &[FlowRow]) -> Result<()> {
        self.write_atomically(FLOWS, &flows_csv(flows))
    }

    /// Writes down that the file of all captures is ours, and where it goes.
    pub fn pcapng(&self) -> Result<PathBuf> {
        self.check_still_ours()?;
        self.list(PCAPNG)?;
        self.list(result_files::PCAPNG_TEMPORARY)?;
        Ok(self.path.join(PCAPNG))
    }

    /// A new file somewhere in the folder, listed as ours; the folders above it are made.
    fn new_file(&self, relative: &str) -> Result<File> {
        if self.kept.is_none() {
            let opened = File::options().read(true).write(true).open(NOWHERE);
            return opened.map_err(|e| ResultsError::from_io("open", Path::new(NOWHERE), e));
        }
        let path = self.path.join(relative);
        self.check_still_ours()?;
        self.list(relative)?;
        if let Some(parent) = path.parent() {
            if let Some(link) = link_above(&self.path, Path::new(relative)) {
                return Err(ResultsError::Link(link));
            }
            fs::create_dir_all(parent).map_err(|e| ResultsError::from_io("create", parent, e))?;
        }
        new_file(&path)
    }

    /// Fails if the folder is not the one this run began with. Another run may have made one of the same name since.
    pub fn check_still_ours(&self) -> Result<()> {
        let Some(kept) = &self.kept else {
            return Ok(());
        };
        let mut journal = kept.journal.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mine = journal.file().metadata();
        let there = fs::symlink_metadata(self.path.join(FILES));
        match (mine, there) {
            (Ok(mine), Ok(there)) if (mine.dev(), mine.ino()) == (there.dev(), there.ino()) => Ok(()),
            // Only what is gone for certain is told.
            (Ok(_), Err(error)) if error.kind() != io::ErrorKind::NotFound => Ok(()),
            (Err(_), _) => Ok(()),
            _ => Err(ResultsError::Removed(self.path.clone())),
        }
    }

    fn list(&self, relative: &str) -> Result<()> {
        let Some(kept) = &self.kept else {
            return Ok(());
        };
        let mut journal = kept.journal.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        journal
            .file()
            .write_all(format!("{relative}\n").as_bytes())
            .map_err(|e| ResultsError::from_io("write", &self.path.join(FILES), e))
    }

    /// Replaces a file; where the disk is full, in the space kept for that.
    fn write_atomically(&self, name: &str, text: &str) -> Result<()> {
        let Some(kept) = &self.kept else {
            return Ok(());
        };
        let result = self.try_write_atomically(name, text);
        if !matches!(result, Err(ResultsError::DiskFull { .. })) {
            return result;
        }
        // Closing the file, which has no name any more, frees its blocks.
        let mut reserve = kept.reserve.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        drop(reserve.take());
        self.try_write_atomically(name, text)
    }

    /// A reader sees the old contents or the new, never a part; nor does a full disk take the old ones away.
    fn try_write_atomically(&self, name: &str, text: &str) -> Result<()> {
        self.check_still_ours()?;
        let path = self.path.join(name);
        let temporary = self.path.join(format!("{name}.tmp"));
        let written = (|| {
            // One that a killed run left, or a link that somebody put there.
            match fs::remove_file(&temporary) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut file = File::options().write(true).create_new(true).open(&temporary)?;
            file.write_all(text.as_bytes())?;
            fs::rename(&temporary, &path)
        })();
        written.map_err(|error| {
            let _ = fs::remove_file(&temporary);
            ResultsError::from_io("write", &path, error)
        })
    }
}

/// Creates a file that must not exist; programs may read back what they wrote, hence both ways.
fn new_file(path: &Path) -> Result<File> {
    File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(path)
        .map_err(|e| ResultsError::from_io("create", path, e))
}

/// A file without a name that holds [`RESERVE_BYTES`] of the disk.
fn reserve(folder: &Path) -> Result<File> {
    let path = folder.join("reserve.tmp");
    let file = new_file(&path)?;
    let allocated = posix_fallocate(&file, 0, RESERVE_BYTES);
    fs::remove_file(&path).map_err(|e| ResultsError::from_io("remove", &path, e))?;
    allocated.map_err(|e| ResultsError::from_io("write", &path, e.into()))?;
    Ok(file)
}

fn is_empty(path: &Path) -> Result<bool> {
    let mut entries = fs::read_dir(path).map_err(|e| ResultsError::from_io("read", path, e))?;
    Ok(entries.next().is_none())
}

/// Deletes the files an earlier run listed, and the folders that are empty without them.
fn remove_earlier_run(path: &Path) -> Result<()> {
    #[derive(serde::Deserialize)]
    struct Marker {
        generator: String,
    }
    let manifest = path.join(MANIFEST);
    let is_file = fs::symlink_metadata(&manifest).is_ok_and(|found| found.is_file());
    let marker = if is_file { fs::read(&manifest).ok() } else { None };
    let marker = marker.and_then(|text| serde_json::from_slice::<Marker>(&text).ok());
    if marker.is_none_or(|marker| marker.generator != GENERATOR) {
        return Err(ResultsError::NotOurs(path.into()));
    }
    let files = path.join(FILES);
    let is_file = fs::symlink_metadata(&files).is_ok_and(|found| found.is_file());
    let listed = if is_file { fs::read_to_string(&files).ok() } else { None };
    let listed = listed.unwrap_or_default();
    let mut folders = BTreeSet::new();
    for relative in listed.lines().map(Path::new).filter(|relative| is_inside(relative)) {
        // What lies behind a link is not ours, whatever it is called.
        if link_above(path, relative).is_some() {
            continue;
        }
        remove_file(&path.join(relative))?;
        folders.extend(relative.ancestors().skip(1).filter(|folder| *folder != Path::new("")));
    }
    for folder in folders.iter().rev() {
        // Fails when somebody else's files are in there, and then it stays.
        let _ = fs::remove_dir(path.join(folder));
    }
    // The manifest last: until then the folder is known as ours, however often we are stopped here.
    for name in [SUMMARY, TRAIL, EVENTS, FLOWS, FILES, MANIFEST] {
        remove_file(&path.join(name))?;
    }
    Ok(())
}

/// The first folder on the way from `folder` to the file `relative` that is a symbolic link.
fn link_above(folder: &Path, relative: &Path) -> Option<PathBuf> {
    let above = relative.ancestors().skip(1).filter(|above| *above != Path::new(""));
    let mut above: Vec<PathBuf> = above.map(|above| folder.join(above)).collect();
    above.reverse();
    above.into_iter().find(|above| above.is_symlink())
}

/// True when the path can't lead out of the folder it is joined to.
fn is_inside(relative: &Path) -> bool {
    relative
        .components()
        .all(|component| matches!(component, Component::Normal(_)))
}

fn remove_file(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(ResultsError::from_io("remove", path, error)),
        _ => Ok(()),
    }
}

fn checked_node(name: &str) -> Result<&str> {
    if result_files::ALL.contains(&name) {
        return Err(ResultsError::BadName {
            what: "node",
            name: name.into(),
        });
    }
    checked_name("node", name)
}

/// Names become one path component each, hence no separators, and no line break for the sake of `files.list`.
fn checked_name<'a>(what: &'static str, name: &'a str) -> Result<&'a str> {
    let bad = name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0', '\n']);
    if bad {
        Err(ResultsError::BadName {
            what,
            name: name.into(),
        })
    } else {
        Ok(name)
    }
}

/// The last component of a program's path with anything unusual replaced, short enough for a file name.
fn file_name_of(program: &str) -> String {
    let last = program.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let name: String = last
        .chars()
        .take(64)
        .map(|c| {
            if c.is_ascii_alphanumeric() || "._+-".contains(c) {
                c
            } else {
                '_'
            }
        })
        .collect();
    if name.is_empty() { "program".into() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::tempdir;

    #[test]
    fn refuses_what_is_not_empty_and_never_removes_what_is_not_ours() {
        let dir = tempdir().unwrap();
        let out = dir.path().join("a/b/out");
        let run = OutDir::create(&out, ExistingFiles::Refuse).unwrap();
        run.kernel_log("h1").unwrap();
        run.process_logs("h1", "/usr/bin/ping", 0, 1).unwrap();
        run.pcap("h1", "eth0", 0).unwrap();
        let error = OutDir::create(&out, ExistingFiles::Refuse).unwrap_err();
        assert!(matches!(error, ResultsError::NotEmpty(_)));
        assert!(error.hint().unwrap().contains("--force"));

        let error = OutDir::create(&out, ExistingFiles::ReplaceOurs).unwrap_err();
        assert!(matches!(error, ResultsError::InUse(_)), "{error}");
        assert!(out.join("h1/kernel.log").exists());
        drop(run);

        fs::write(out.join("notes.txt"), "mine").unwrap();
        fs::write(out.join("h1/plot.svg"), "mine").unwrap();
        OutDir::create(&out, ExistingFiles::ReplaceOurs).unwrap();
        let mut left: Vec<String> = walk(&out);
        left.sort();
        assert_eq!(left, ["files.list", "h1", "h1/plot.svg", "manifest.json", "notes.txt"]);
        assert_eq!(fs::read_to_string(out.join("h1/plot.svg")).unwrap(), "mine");
    }

    #[test]
    fn a_folder_of_others_is_never_replaced() {
        for manifest in [
            None,
            Some("{}"),
            Some("{\"generator\": \"something else\"}"),
            Some("not json"),
        ] {
            let dir = tempdir().unwrap();
            fs::write(dir.path().join("files.list"), "precious\n").unwrap();
            fs::write(dir.path().join("precious"), "1").unwrap();
            if let Some(text) = manifest {
                fs::write(dir.path().join("manifest.json"), text).unwrap();
            }
            let error = OutDir::create(dir.path(), ExistingFiles::ReplaceOurs).unwrap_err();
            assert!(matches!(error, ResultsError::NotOurs(_)), "{error}");
            assert!(dir.path().join("precious").exists());
        }
    }

    #[test]
    fn a_forged_list_cannot_lead_outside() {
        let dir = tempdir().unwrap();
        let out = dir.path().join("out");
        drop(OutDir::create(&out, ExistingFiles::Refuse).unwrap());
        let victim = dir.path().join("victim");
        fs::write(&victim, "1").unwrap();
        fs::write(out.join("files.list"), format!("../victim\n{}\n", victim.display())).unwrap();
        OutDir::create(&out, ExistingFiles::ReplaceOurs).unwrap();
        assert!(victim.exists());
    }

    #[test]
    fn nothing_is_removed_or_written_through_a_link() {
        let dir = tempdir().unwrap();
        let (out, elsewhere) = (dir.path().join("out"), dir.path().join("elsewhere"));
        let run = OutDir::create(&out, ExistingFiles::Refuse).unwrap();
        run.kernel_log("h1").unwrap();
        run.pcap("h1", "eth0", 0).unwrap();
        drop(run);
        // The user moved folders to another disk, say.
        fs::create_dir(&elsewhere).unwrap();
        for folder in ["h1", "pcap"] {
            fs::rename(out.join(folder), elsewhere.join(folder)).unwrap();
            symlink(elsewhere.join(folder), out.join(folder)).unwrap();
        }
        let precious = elsewhere.join("precious");
        fs::write(&precious, "1").unwrap();
        symlink(&precious, out.join("summary.json.tmp")).unwrap();
        symlink(&precious, out.join("summary.json")).unwrap();

        let run = OutDir::create(&out, ExistingFiles::ReplaceOurs).unwrap();
        assert!(elsewhere.join("h1/kernel.log").exists() && elsewhere.join("pcap/h1-eth0.pcap").exists());
        let error = run.kernel_log("h1").unwrap_err();
        assert!(
            matches!(&error, ResultsError::Link(link) if *link == out.join("h1")),
            "{error}"
        );
        assert!(run.pcap("h1", "eth1", 0).is_err() && !elsewhere.join("pcap/h1-eth1.pcap").exists());
        run.kernel_log("h2").unwrap();
        run.try_write_atomically(SUMMARY, "{}").unwrap();
        assert_eq!(fs::read_to_string(&precious).unwrap(), "1");
        assert_eq!(fs::read_to_string(out.join("summary.json")).unwrap(), "{}");
    }

    #[test]
    fn a_manifest_behind_a_link_does_not_make_a_folder_ours() {
        let dir = tempdir().unwrap();
        let (out, other) = (dir.path().join("out"), dir.path().join("other"));
        drop(OutDir::create(&other, ExistingFiles::Refuse).unwrap());
        fs::create_dir(&out).unwrap();
        symlink(other.join("manifest.json"), out.join("manifest.json")).unwrap();
        let error = OutDir::create(&out, ExistingFiles::ReplaceOurs).unwrap_err();
        assert!(matches!(error, ResultsError::NotOurs(_)), "{error}");
    }

    #[test]
    fn a_folder_that_was_taken_away_is_not_written_to() {
        let dir = tempdir().unwrap();
        let out = dir.path().join("out");
        let run = OutDir::create(&out, ExistingFiles::Refuse).unwrap();
        run.try_write_atomically(SUMMARY, "{}").unwrap();
        fs::remove_dir_all(&out).unwrap();
        let gone = |result: Result<()>| matches!(result, Err(ResultsError::Removed(_)));
        assert!(gone(run.try_write_atomically(SUMMARY, "{}")));
        // Another run took its place, whose results are its own.
        let other = OutDir::create(&out, ExistingFiles::Refuse).unwrap();
        assert!(gone(run.try_write_atomically(SUMMARY, "{}")));
        assert!(!out.join(SUMMARY).exists());
        other.try_write_atomically(SUMMARY, "{}").unwrap();
        assert!(gone(run.kernel_log("h1").map(|_| ())) && !out.join("h1").exists());
        assert!(gone(run.check_still_ours()) && other.check_still_ours().is_ok());
    }

    #[test]
    fn results_that_go_nowhere_leave_nothing() {
        let run = OutDir::nowhere();
        let mut logs = run.process_logs("h1", "/usr/bin/ping", 0, 1).unwrap();
        logs.stdout.write_all(b"lost").unwrap();
        run.input_log().unwrap().write_all(b"lost").unwrap();
        run.kernel_log("h1").unwrap();
        run.link_control(Path::new("/nowhere")).unwrap();
        run.write_atomically(SUMMARY, "{}").unwrap();
        run.check_still_ours().unwrap();
        run.unlink_control().unwrap();
        assert!(!Path::new(NOWHERE).is_dir());
    }

    #[test]
    fn names_become_file_names_or_errors() {
        let dir = tempdir().unwrap();
        let run = OutDir::create(dir.path(), ExistingFiles::Refuse).unwrap();
        for bad in [
            "",
            ".",
            "..",
            "a/b",
            "a\nb",
            "manifest.json",
            "pcap",
            "manifest.json.tmp",
            "summary.json.tmp",
        ] {
            assert!(
                matches!(run.kernel_log(bad), Err(ResultsError::BadName { .. })),
                "{bad:?}"
            );
        }
        let logs = run.process_logs("h1", "/opt/my tool", 3, 1).unwrap();
        let later = run.process_logs("h1", "/opt/my tool", 3, 2).unwrap();
        assert_ne!(logs.stdout_path, later.stdout_path);
        assert_eq!(logs.stdout_path, "h1/my_tool-3.stdout");
        assert_eq!(logs.stderr_path, "h1/my_tool-3.stderr");
        assert_eq!(file_name_of("/"), "program");
        run.pcap("a-b", "c", 0).unwrap();
        run.pcap("a", "b-c", 0).unwrap();
        assert!(dir.path().join("pcap/a-b-c.pcap").exists() && dir.path().join("pcap/a-b-c.2.pcap").exists());
    }

    #[test]
    fn a_file_in_the_way_is_named() {
        let dir = tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        for path in [file.clone(), file.join("below")] {
            let error = OutDir::create(&path, ExistingFiles::Refuse).unwrap_err();
            assert!(matches!(error, ResultsError::NotADirectory(_)), "{error:?}");
        }
    }

    fn walk(dir: &Path) -> Vec<String> {
        let mut found = Vec::new();
        let mut todo = vec![dir.to_path_buf()];
        while let Some(folder) = todo.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                found.push(path.strip_prefix(dir).unwrap().display().to_string());
                if path.is_dir() {
                    todo.push(path);
                }
            }
        }
        found
    }
}
