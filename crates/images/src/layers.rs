//! Layers put on top of each other: the tree of names grows in memory, contents go to numbered files.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use tar::{Archive, EntryType};

use crate::error::ImageError;
use crate::tree::{self, Data, Entry, LINKS_MAX};

/// A whiteout: the name behind it is gone (OCI image specification, layer.md).
const WHITEOUT: &[u8] = b".wh.";
/// All that lower layers have in its folder is gone.
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Notes of a file system that had such names once.
const AUFS: &[u8] = b".wh..wh.";
const ROOT: u32 = 0;
const NS_PER_S: u64 = 1_000_000_000;

/// What names mean in a tar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    /// Themselves.
    Plain,
    /// Those of whiteouts take away what lower layers have.
    Layer,
}

#[derive(Clone, Debug)]
struct Node {
    attributes: Attributes,
    data: Data,
    children: BTreeMap<Box<[u8]>, u32>,
    /// Number of the layer that put it there.
    layer: u32,
}

#[derive(Clone, Copy, Debug)]
struct Attributes {
    permissions: u32,
    uid: u32,
    gid: u32,
    mtime_ns: u64,
}

/// Of folders that are there only because something is in them.
const IMPLIED: Attributes = Attributes {
    permissions: 0o755,
    uid: 0,
    gid: 0,
    mtime_ns: 0,
};

/// A tree being made.
#[derive(Debug)]
pub(crate) struct Layers<'a> {
    /// Entry 0 is the root; what was taken away is not reached any more.
    nodes: Vec<Node>,
    /// Where contents go.
    contents: PathBuf,
    next_content: u32,
    layer: u32,
    stop: &'a AtomicBool,
}

impl<'a> Layers<'a> {
    /// An empty root; contents go to the folder `contents`.
    pub fn new(contents: PathBuf, stop: &'a AtomicBool) -> Self {
        let root = Node {
            attributes: IMPLIED,
            data: Data::Directory,
            children: BTreeMap::new(),
            layer: 0,
        };
        Self {
            nodes: vec![root],
            contents,
            next_content: 0,
            layer: 0,
            stop,
        }
    }

    /// Puts a layer, a plain tar, on top.
    pub fn apply(&mut self, tar: &mut dyn Read, names: Names) -> Result<(), ImageError> {
        self.layer += 1;
        let mut archive = Archive::new(tar);
        for entry in archive.entries().map_err(broken)? {
            if self.stop.load(Ordering::Relaxed) {
                return Err(ImageError::Interrupted);
            }
            self.entry(&mut entry.map_err(broken)?, names)?;
        }
        Ok(())
    }

    fn entry<R: Read>(&mut self, entry: &mut tar::Entry<'_, R>, names: Names) -> Result<(), ImageError> {
        let kind = entry.header().entry_type();
        if kind == EntryType::XGlobalHeader {
            return Ok(());
        }
        let path = entry.path_bytes().into_owned();
        let attributes = attributes(entry)?;
        let parts = tree::parts(&path)?;
        let Some((name, folders)) = parts.split_last() else {
            if kind == EntryType::Directory {
                self.nodes[ROOT as usize].attributes = attributes;
            }
            return Ok(());
        };
        if names == Names::Layer && folders.iter().any(|folder| folder.starts_with(AUFS)) {
            return Ok(());
        }
        let folder = self.folder(folders, &path)?;
        if names == Names::Layer && name.starts_with(WHITEOUT) {
            if *name == OPAQUE {
                self.take_away_lower(folder);
            } else if !name.starts_with(AUFS) {
                self.white_out(folder, &name[WHITEOUT.len()..]);
            }
            return Ok(());
        }
        let data = match kind {
            EntryType::Directory => Data::Directory,
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => self.content(entry, &path)?,
            EntryType::Symlink => Data::Link(link_name(entry, &path)?.into()),
            EntryType::Link => return self.hard_link(folder, name, &link_name(entry, &path)?, &path),
            EntryType::Char | EntryType::Block | EntryType::Fifo => {
                // Not shown, but what was there before is not, either.
                self.nodes[folder as usize].children.remove(*name);
                return Ok(());
            }
            other => {
                return Err(about(
                    &path,
                    &format!("is of the unknown type {:?}", char::from(other.as_byte())),
                ));
            }
        };
        self.put(folder, name, attributes, data);
        Ok(())
    }

    /// Puts an entry in its place. A folder that is there already keeps what is in it.
    fn put(&mut self, folder: u32, name: &[u8], attributes: Attributes, data: Data) {
        let layer = self.layer;
        if let Some(&known) = self.nodes[folder as usize].children.get(name)
            && data == Data::Directory
            && self.nodes[known as usize].data == Data::Directory
        {
            let known = &mut self.nodes[known as usize];
            (known.attributes, known.layer) = (attributes, layer);
            return;
        }
        let node = Node {
            attributes,
            data,
            children: BTreeMap::new(),
            layer,
        };
        self.nodes.push(node);
        let index = self.nodes.len() as u32 - 1;
        self.nodes[folder as usize].children.insert(name.into(), index);
    }

    /// The folder of that path, made where it is missing. Symbolic links on the way lead to places in the tree, as they
    /// would in the image itself.
    fn folder(&mut self, path: &[&[u8]], of: &[u8]) -> Result<u32, ImageError> {
        let mut rest: Vec<Box<[u8]>> = path.iter().rev().map(|&part| part.into()).collect();
        let mut trail = vec![ROOT];
        let mut links = 0;
        while let Some(part) = rest.pop() {
            match &*part {
                b"" | b"." => continue,
                b".." => {
                    if trail.len() > 1 {
                        trail.pop();
                    }
                    continue;
                }
                _ => {}
            }
            let at = *trail.last().expect("the root stays");
            let Some(&next) = self.nodes[at as usize].children.get(&part) else {
                self.put(at, &part, IMPLIED, Data::Directory);
                trail.push(self.nodes.len() as u32 - 1);
                continue;
            };
            match &self.nodes[next as usize].data {
                Data::Directory => trail.push(next),
                Data::File { .. } => {
                    let text = format!("lies in `{}`, which is a file", String::from_utf8_lossy(&part));
                    return Err(about(of, &text));
                }
                Data::Link(target) => {
                    links += 1;
                    if links > LINKS_MAX {
                        return Err(about(of, "lies behind too many symbolic links"));
                    }
                    if target.starts_with(b"/") {
                        trail.truncate(1);
                    }
                    rest.extend(target.split(|&c| c == b'/').rev().map(Box::from));
                }
            }
        }
        Ok(*trail.last().expect("the root stays"))
    }

    /// Another name of a file. It is looked up now: what becomes of the first name later does not matter.
    fn hard_link(&mut self, folder: u32, name: &[u8], target: &[u8], path: &[u8]) -> Result<(), ImageError> {
        let parts = tree::parts(target)?;
        let missing = || {
            about(
                path,
                &format!(
                    "is a hard link to `{}`, which is not there",
                    String::from_utf8_lossy(target)
                ),
            )
        };
        let (last, folders) = parts.split_last().ok_or_else(missing)?;
        let from = self.folder(folders, target)?;
        let &index = self.nodes[from as usize].children.get(*last).ok_or_else(missing)?;
        let Node { attributes, data, .. } = self.nodes[index as usize].clone();
        if data == Data::Directory {
            return Err(about(path, "is a hard link to a folder"));
        }
        self.put(folder, name, attributes, data);
        Ok(())
    }

    /// Takes away what lower layers have of that name.
    fn white_out(&mut self, folder: u32, name: &[u8]) {
        let Some(&index) = self.nodes[folder as usize].children.get(name) else {
            return;
        };
        if !self.keeps_something(index) {
            self.nodes[folder as usize].children.remove(name);
        }
    }

    /// Takes away what lower layers have in a folder.
    fn take_away_lower(&mut self, folder: u32) {
        let children = std::mem::take(&mut self.nodes[folder as usize].children);
        let kept = children
            .into_iter()
            .filter(|&(_, child)| self.keeps_something(child))
            .collect();
        self.nodes[folder as usize].children = kept;
    }

    /// Takes away what lower layers have in and of an entry; whether something of this layer is left.
    fn keeps_something(&mut self, index: u32) -> bool {
        self.take_away_lower(index);
        let node = &mut self.nodes[index as usize];
        if node.layer < self.layer && !node.children.is_empty() {
            (node.attributes, node.layer) = (IMPLIED, self.layer);
        }
        node.layer == self.layer
    }

    fn content<R: Read>(&mut self, entry: &mut tar::Entry<'_, R>, path: &[u8]) -> Result<Data, ImageError> {
        let content = self.next_content;
        self.next_content += 1;
        let file = self.contents.join(content.to_string());
        let mut out = File::create_new(&file).map_err(ImageError::host(format!("make {}", file.display())))?;
        let expected = entry.size();
        let size = copy(entry, &mut out, path, &file)?;
        if size != expected {
            return Err(about(
                path,
                &format!("has {size} of {expected} bytes: the archive is cut off"),
            ));
        }
        Ok(Data::File { content, size })
    }

    /// All entries, folders before what is in them and sorted, and the bytes in files.
    pub fn finish(self) -> (Vec<Entry>, u64) {
        let mut entries = Vec::new();
        let mut bytes = std::collections::BTreeMap::new();
        let mut rest: Vec<(u32, Box<[u8]>, u32)> = vec![(ROOT, Box::default(), ROOT)];
        while let Some((parent, name, index)) = rest.pop() {
            let node = &self.nodes[index as usize];
            let number = entries.len() as u32;
            if let Data::File { content, size } = node.data {
                bytes.insert(content, size);
            }
            entries.push(Entry {
                parent,
                name,
                permissions: node.attributes.permissions,
                uid: node.attributes.uid,
                gid: node.attributes.gid,
                mtime_ns: node.attributes.mtime_ns,
                data: node.data.clone(),
            });
            let children = node.children.iter().rev();
            rest.extend(children.map(|(name, &child)| (number, name.clone(), child)));
        }
        // What upper layers replaced takes no room.
        for content in (0..self.next_content).filter(|content| !bytes.contains_key(content)) {
            let _ = std::fs::remove_file(self.contents.join(content.to_string()));
        }
        (entries, bytes.values().sum())
    }
}

/// As [`io::copy`], which cannot tell whose fault an error is.
fn copy(from: &mut dyn Read, to: &mut File, path: &[u8], file: &std::path::Path) -> Result<u64, ImageError> {
    let mut buffer = vec![0; 64 << 10];
    let mut done = 0;
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(done),
            Ok(count) => {
                io::Write::write_all(to, &buffer[..count])
                    .map_err(ImageError::host(format!("write {}", file.display())))?;
                done += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(about(path, &format!("cannot be read: {error}"))),
        }
    }
}

fn attributes<R: Read>(entry: &mut tar::Entry<'_, R>) -> Result<Attributes, ImageError> {
    let path = entry.path_bytes().into_owned();
    let header = entry.header();
    let id = |id: io::Result<u64>| id.ok().and_then(|id| u32::try_from(id).ok());
    let (Ok(mode), Some(uid), Some(gid), Ok(seconds)) =
        (header.mode(), id(header.uid()), id(header.gid()), header.mtime())
    else {
        return Err(about(&path, "has a header that is no tar's"));
    };
    let mut attributes = Attributes {
        permissions: mode & 0o7777,
        uid,
        gid,
        mtime_ns: seconds.saturating_mul(NS_PER_S),
    };
    for extension in entry.pax_extensions().map_err(broken)?.into_iter().flatten() {
        let extension = extension.map_err(broken)?;
        if extension.key_bytes().starts_with(b"GNU.sparse.") {
            return Err(about(
                &path,
                "is stored with holes in GNU tar's own way (--sparse), which is not read",
            ));
        }
        if extension.key_bytes() == b"mtime" {
            let time = std::str::from_utf8(extension.value_bytes()).ok().and_then(nanoseconds);
            attributes.mtime_ns = time.ok_or_else(|| about(&path, "has a date that is none"))?;
        }
    }
    Ok(attributes)
}

/// Decimal seconds since 1970; what was before is 1970.
fn nanoseconds(text: &str) -> Option<u64> {
    if text.starts_with('-') {
        return Some(0);
    }
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = fraction.bytes().all(|c| c.is_ascii_digit());
    let fraction: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let ns = digits.then(|| fraction.parse::<u64>().ok())??;
    Some(seconds.parse::<u64>().ok()?.saturating_mul(NS_PER_S).saturating_add(ns))
}

fn link_name<R: Read>(entry: &tar::Entry<'_, R>, path: &[u8]) -> Result<Vec<u8>, ImageError> {
    let name = entry.link_name_bytes().map(|name| name.into_owned());
    let usable = name.filter(|name| !name.is_empty() && name.len() < 4096 && !name.contains(&0));
    usable.ok_or_else(|| about(path, "is a link without a target"))
}

fn about(path: &[u8], what: &str) -> ImageError {
    ImageError::format(format!("`{}` {what}", String::from_utf8_lossy(path)))
}

/// What the reader of tars, or of what is in it, says.
pub(crate) fn broken(error: io::Error) -> ImageError {
    ImageError::format(format!("its tar cannot be read: {error}"))
}

#[cfg(test)]
#[path = "layers_tests.rs"]
mod tests;
