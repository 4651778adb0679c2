//! The named parts of an image: files of a folder, or members of a tar.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use tar::{Archive, EntryType};

use crate::error::ImageError;
use crate::layers::broken;

/// Largest part that is read as a whole, bytes: indexes, manifests, configurations.
const DOCUMENT_MAX: u64 = 16 << 20;

/// Where parts are found by name.
#[derive(Debug)]
pub(crate) enum Parts {
    /// An OCI image layout in a folder.
    Folder(PathBuf),
    /// Members of a plain tar by their paths: position and length.
    Tar {
        file: File,
        members: BTreeMap<String, (u64, u64)>,
    },
}

impl Parts {
    /// Looks at the headers of a plain tar.
    pub fn of_tar(file: File) -> Result<Self, ImageError> {
        let mut members = BTreeMap::new();
        let mut links = Vec::new();
        let mut archive = Archive::new(&file);
        for entry in archive.entries_with_seek().map_err(broken)? {
            let entry = entry.map_err(broken)?;
            let name = clean("", &String::from_utf8_lossy(&entry.path_bytes()));
            match entry.header().entry_type() {
                EntryType::Regular => {
                    members.insert(name, (entry.raw_file_position(), entry.size()));
                }
                // Docker wrote layers that are there twice in this way.
                EntryType::Symlink | EntryType::Link => {
                    let target = String::from_utf8_lossy(&entry.link_name_bytes().unwrap_or_default()).into_owned();
                    let relative = entry.header().entry_type() == EntryType::Symlink && !target.starts_with('/');
                    let folder = if relative {
                        name.rsplit_once('/').map_or("", |(folder, _)| folder)
                    } else {
                        ""
                    };
                    links.push((clean(folder, &target), name));
                }
                _ => {}
            }
        }
        for (target, name) in links {
            if let Some(&place) = members.get(&target) {
                members.entry(name).or_insert(place);
            }
        }
        Ok(Self::Tar { file, members })
    }

    /// Whether there is a part of that name.
    pub fn has(&self, name: &str) -> bool {
        match self {
            Self::Folder(folder) => folder.join(name).is_file(),
            Self::Tar { members, .. } => members.contains_key(name),
        }
    }

    /// Reads a part. Names are the program's own or made of digests: nothing an image says is a path of the host.
    pub fn open(&self, name: &str) -> Result<Box<dyn Read + '_>, ImageError> {
        match self {
            Self::Folder(folder) => {
                let file = File::open(folder.join(name));
                Ok(Box::new(file.map_err(|error| match error.kind() {
                    io::ErrorKind::NotFound => missing(name),
                    _ => ImageError::host(format!("read {name}"))(error),
                })?))
            }
            Self::Tar { file, members } => {
                let &(position, length) = members.get(name).ok_or_else(|| missing(name))?;
                let at = Section { file, position };
                Ok(Box::new(at.take(length)))
            }
        }
    }

    /// All bytes of a small part.
    pub fn document(&self, name: &str) -> Result<Vec<u8>, ImageError> {
        let mut bytes = Vec::new();
        let mut part = self.open(name)?.take(DOCUMENT_MAX + 1);
        part.read_to_end(&mut bytes)
            .map_err(ImageError::host(format!("read {name}")))?;
        if bytes.len() as u64 > DOCUMENT_MAX {
            return Err(ImageError::format(format!(
                "{name} is longer than {DOCUMENT_MAX} bytes"
            )));
        }
        Ok(bytes)
    }
}

fn missing(name: &str) -> ImageError {
    ImageError::format(format!("its part {name} is missing"))
}

/// A file from a position on.
struct Section<'a> {
    file: &'a File,
    position: u64,
}

impl Read for Section<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.position)?;
        self.position += count as u64;
        Ok(count)
    }
}

/// `path`, seen from `folder`, without `.` and `..`.
fn clean(folder: &str, path: &str) -> String {
    let mut parts = Vec::new();
    for part in Path::new(folder).iter().chain(Path::new(path).iter()) {
        match part.to_str() {
            Some("." | "/") | None => {}
            Some("..") => {
                parts.pop();
            }
            Some(part) => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::clean;

    #[test]
    fn names_stay_inside() {
        assert_eq!(clean("", "./manifest.json"), "manifest.json");
        assert_eq!(clean("b", "../a/layer.tar"), "a/layer.tar");
        assert_eq!(clean("", "../../etc/passwd"), "etc/passwd");
        assert_eq!(clean("", "/x//y"), "x/y");
    }
}
