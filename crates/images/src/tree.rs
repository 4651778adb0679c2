//! What an image is when it is unpacked: the index of its files.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::digest;
use crate::error::ImageError;

/// Type bits of modes, as in `struct stat`.
pub(crate) const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const LINK: u32 = 0o120_000;
/// Symbolic links followed on one way, as in Linux.
pub(crate) const LINKS_MAX: usize = 40;

/// First bytes of an index. Another layout gets another number, and older caches are made anew.
const MAGIC: &[u8; 8] = b"WTIMAGE1";
const DIGEST_CHARS: usize = 64;

/// What an image was made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The tar of a root.
    Tar,
    /// An archive as `docker save` writes it.
    Docker,
    /// An OCI image layout, in a folder or a tar.
    Oci,
}

impl Kind {
    /// As in the manifest of a run.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tar => "tar",
            Self::Docker => "docker",
            Self::Oci => "oci",
        }
    }
}

/// An image as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// What it was made from.
    pub kind: Kind,
    /// SHA-256 in hexadecimal: of the configuration (the "image id") for Docker and OCI, of the file for a tar.
    pub sha256: String,
    /// Path it was first unpacked from, for people.
    pub origin: String,
    /// What it says of its programs.
    pub config: Config,
    /// Files, folders and links.
    pub entries: u64,
    /// Bytes in files.
    pub bytes: u64,
}

/// A file of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Index of the folder it is in; entry 0 is the root, its own parent.
    pub parent: u32,
    /// Name without slash.
    pub name: Box<[u8]>,
    /// Permission bits.
    pub permissions: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Modification time, ns since 1970.
    pub mtime_ns: u64,
    /// What it is.
    pub data: Data,
}

/// What a file of an image holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Data {
    /// A folder.
    Directory,
    /// A regular file.
    File {
        /// Number of its contents in the cache; hard links have the same.
        content: u32,
        /// Bytes.
        size: u64,
    },
    /// A symbolic link with its target.
    Link(Box<[u8]>),
}

impl Entry {
    /// Type and permission bits, as in `struct stat`.
    pub fn mode(&self) -> u32 {
        let kind = match self.data {
            Data::Directory => DIRECTORY,
            Data::File { .. } => REGULAR,
            Data::Link(_) => LINK,
        };
        kind | self.permissions
    }
}

/// An index as it is stored. Folders come before what is in them, entries of a folder are sorted by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Index {
    pub about: About,
    pub entries: Vec<Entry>,
}

impl Index {
    /// The bytes of the index file: magic, SHA-256 of the rest, the rest.
    pub fn to_bytes(&self) -> Vec<u8> {
        let rest = postcard::to_stdvec(self).expect("numbers, texts and lists can be stored");
        [&MAGIC[..], digest::sha256(&rest).as_bytes(), &rest].concat()
    }

    /// None: it is damaged, or of another version.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (digest, rest) = bytes.strip_prefix(MAGIC)?.split_at_checked(DIGEST_CHARS)?;
        if digest != digest::sha256(rest).as_bytes() {
            return None;
        }
        let index: Self = postcard::from_bytes(rest).ok()?;
        let ordered = index
            .entries
            .iter()
            .enumerate()
            .all(|(at, entry)| at == 0 || (entry.parent as usize) < at);
        let rooted = matches!(index.entries.first().map(|root| &root.data), Some(Data::Directory));
        (ordered && rooted).then_some(index)
    }
}

/// Children by name, for each entry.
pub(crate) fn children(entries: &[Entry]) -> Vec<BTreeMap<Box<[u8]>, u32>> {
    let mut children = vec![BTreeMap::new(); entries.len()];
    for (index, entry) in entries.iter().enumerate().skip(1) {
        children[entry.parent as usize].insert(entry.name.clone(), index as u32);
    }
    children
}

/// The parts of a path in an archive: no empty ones and no `.`; a leading `/` means nothing there.
pub(crate) fn parts(path: &[u8]) -> Result<Vec<&[u8]>, ImageError> {
    let parts: Vec<&[u8]> = path
        .split(|&c| c == b'/')
        .filter(|part| !matches!(*part, b"" | b"."))
        .collect();
    let shown = || String::from_utf8_lossy(path).into_owned();
    if parts.contains(&&b".."[..]) {
        return Err(ImageError::format(format!(
            "the path `{}` leads out of the archive",
            shown()
        )));
    }
    if parts.iter().any(|part| part.len() > 255 || part.contains(&0)) {
        return Err(ImageError::format(format!("no file can be called `{}`", shown())));
    }
    Ok(parts)
}
