//! Files that people name: read whole, and never more than a bound, so that `/dev/zero`, a FIFO that nobody writes to or a disk
//! image is an error and not a wait or the end of the host's memory.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// What may be named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file, or a link to one.
    Regular,
    /// Also a pipe or device, as shells make of `<(COMMAND)`.
    Any,
}

/// The contents of the file at `path`, at most `max_bytes`.
///
/// # Errors
/// What the host says, or that the file is no regular one, or larger than that.
pub fn read(path: &Path, kind: Kind, max_bytes: u64) -> io::Result<Vec<u8>> {
    if kind == Kind::Regular {
        // Before it is opened, which for a FIFO takes until somebody writes to it.
        let found = std::fs::metadata(path)?.file_type();
        if !found.is_file() && !found.is_dir() {
            let text = format!("it is {}, not a regular file", name_of(found));
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(max_bytes + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_bytes {
        let text = format!("it is larger than the {} MiB that are possible", max_bytes >> 20);
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(bytes)
}

/// As [`read`], for text.
///
/// # Errors
/// Also that it is not UTF-8.
pub fn read_text(path: &Path, kind: Kind, max_bytes: u64) -> io::Result<String> {
    let bytes = read(path, kind, max_bytes)?;
    String::from_utf8(bytes).map_err(|error| {
        let text = format!("byte {} is not UTF-8 text", error.utf8_error().valid_up_to());
        io::Error::new(io::ErrorKind::InvalidData, text)
    })
}

fn name_of(kind: std::fs::FileType) -> &'static str {
    if kind.is_fifo() {
        "a FIFO"
    } else if kind.is_char_device() {
        "a character device"
    } else if kind.is_block_device() {
        "a block device"
    } else {
        "a socket"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_is_a_file_and_fits() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, vec![b'x'; 2 << 20]).unwrap();
        for kind in [Kind::Regular, Kind::Any] {
            assert_eq!(read(&path, kind, 2 << 20).unwrap().len(), 2 << 20);
            let error = read(&path, kind, 1 << 20).unwrap_err();
            assert_eq!(error.to_string(), "it is larger than the 1 MiB that are possible");
            assert!(read(&dir.path().join("none"), kind, 1).is_err());
            assert!(read(dir.path(), kind, 1).unwrap_err().to_string().contains("directory"));
        }
        let zero = Path::new("/dev/zero");
        let error = read(zero, Kind::Regular, 1 << 20).unwrap_err();
        assert_eq!(error.to_string(), "it is a character device, not a regular file");
        assert!(
            read(zero, Kind::Any, 1 << 20)
                .unwrap_err()
                .to_string()
                .contains("larger")
        );
        std::fs::write(&path, b"ab\xff").unwrap();
        let error = read_text(&path, Kind::Any, 3).unwrap_err();
        assert_eq!(error.to_string(), "byte 2 is not UTF-8 text");
    }
}
