//! The files of an unpacked image: names and attributes are those of its index, contents are opened by number.
//!
//! Unlike of the host, everything is shown: who may read what is for the node's kernel to say.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{Stat, fstat};
use rustix::io::Errno;
use windtunnel_images::{Data, Entry, Image};

use super::host_file::Changes;
use super::host_tree::{HostAttr, Listing, TYPE_MASK, check_name};

/// The tree of an image.
#[derive(Debug)]
pub(crate) struct ImageTree {
    image: Arc<Image>,
    /// By entry; empty for what is no directory.
    children: Vec<BTreeMap<Box<[u8]>, u32>>,
    /// Paths of what the cache does not hold any more as the image has it.
    pub(super) changes: Changes,
}

impl ImageTree {
    /// The tree of `image`.
    pub(crate) fn new(image: Arc<Image>) -> Self {
        let mut children = vec![BTreeMap::new(); image.entries().len()];
        for (index, entry) in image.entries().iter().enumerate().skip(1) {
            children[entry.parent as usize].insert(entry.name.clone(), index as u32);
        }
        Self {
            image,
            children,
            changes: Changes::default(),
        }
    }

    fn entry(&self, index: u32) -> &Entry {
        &self.image.entries()[index as usize]
    }

    /// What is known of an entry.
    pub(crate) fn attr(&self, index: u32) -> HostAttr {
        let entry = self.entry(index);
        let size = match &entry.data {
            Data::Directory => 0,
            Data::File { size, .. } => *size,
            Data::Link(target) => target.len() as u64,
        };
        HostAttr::of_image(entry.mode(), (entry.uid, entry.gid), size, entry.mtime_ns)
    }

    /// Path from the tree's root, for messages.
    pub(crate) fn path(&self, mut index: u32) -> String {
        let mut names = Vec::new();
        while index != 0 {
            let entry = self.entry(index);
            names.push(String::from_utf8_lossy(&entry.name).into_owned());
            index = entry.parent;
        }
        names.reverse();
        format!("/{}", names.join("/"))
    }

    /// The entry `name` of directory `dir`.
    pub(crate) fn lookup(&self, dir: u32, name: &[u8]) -> Result<u32, Errno> {
        if self.entry(dir).data != Data::Directory {
            return Err(Errno::NOTDIR);
        }
        check_name(name)?;
        self.children[dir as usize].get(name).copied().ok_or(Errno::NOENT)
    }

    /// The entries of a directory.
    pub(crate) fn list(&self, dir: u32) -> Result<Listing, Errno> {
        if self.entry(dir).data != Data::Directory {
            return Err(Errno::NOTDIR);
        }
        let children = self.children[dir as usize].iter();
        Ok(children
            .map(|(name, &child)| (name.clone(), self.entry(child).mode() & TYPE_MASK))
            .collect())
    }

    /// The target of a symbolic link.
    pub(crate) fn readlink(&self, index: u32) -> Result<Arc<[u8]>, Errno> {
        match &self.entry(index).data {
            Data::Link(target) => Ok(target[..].into()),
            _ => Err(Errno::INVAL),
        }
    }

    /// Opens a regular file for reading. `ESTALE`: the cache was damaged.
    pub(crate) fn open(&self, index: u32) -> Result<(OwnedFd, Stat), Errno> {
        let (content, size) = match self.entry(index).data {
            Data::File { content, size } => (content, size),
            Data::Directory => return Err(Errno::ISDIR),
            Data::Link(_) => return Err(Errno::INVAL),
        };
        let file = self.image.open_content(content);
        let fd = OwnedFd::from(file.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?);
        let stat = fstat(&fd)?;
        if stat.st_size as u64 != size {
            self.changes.note(self.path(index));
            return Err(Errno::STALE);
        }
        Ok((fd, stat))
    }
}
