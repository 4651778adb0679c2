//! `/etc/ld.so.cache` of a node.
//!
//! The host's is as long as the list of all libraries of the host, and its length moves what the dynamic linker maps
//! after it: any installed package shows in the addresses of all programs. Without one, the dynamic linker looks for
//! variants of each library for newer processors, so that the processor shows; and it misses the directories that
//! packages and administrators name in /etc/ld.so.conf (/usr/local/lib). So nodes get one of their own: what is in the
//! directories is in it, without such variants, and it is always of the same length. A library that no program of a
//! run asks for makes no difference then, but to those who read the file itself.
//!
//! The format is that of glibc's sysdeps/generic/dl-cache.h, "glibc-ld.so.cache1.1".

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, RawDir};

/// Where the dynamic linker looks for it.
pub(super) const PATH: &str = "/etc/ld.so.cache";

const MAGIC: &[u8; 20] = b"glibc-ld.so.cache1.1";
/// Length of the header, and of an entry, bytes.
const HEADER: usize = 48;
const ENTRY: usize = 24;
/// `FLAG_ELF_LIBC6 | FLAG_X8664_LIB64`.
const X86_64_LIBRARY: u32 = 0x0303;
/// `cache_file_new_flags_endian_little`.
const LITTLE_ENDIAN: u8 = 2;
/// The file is filled up to a multiple of this, bytes. There is room for some 7,000 libraries, more than the largest
/// desktop has.
const LENGTH_STEP: usize = 512 << 10;
/// Bytes of directory entries read at a time.
const DIRECTORY_BUFFER: usize = 32 << 10;
/// Files that include each other.
const INCLUDES_MAX: usize = 8;

/// Directories that the dynamic linker searches by itself, whether /etc/ld.so.conf names them or not.
const SYSTEM: [&str; 6] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib",
    "/usr/lib",
    "/lib64",
    "/usr/lib64",
];
/// A directory of this name holds libraries for x86-64 only (Debian's multiarch).
const MULTIARCH: &str = "/x86_64-linux-gnu";

/// The contents for the host's files below `root`.
pub(super) fn make(root: &Path) -> Vec<u8> {
    let directories = directories(root);
    let mut libraries = Vec::new();
    let mut seen = BTreeSet::new();
    for dir in &directories {
        // One directory by two names counts by the first: /lib is a link.
        let Ok(place) = below(root, dir).canonicalize() else {
            continue;
        };
        if seen.insert(place.clone()) {
            let names = library_names(&place, dir.ends_with(MULTIARCH)).into_iter();
            libraries.extend(names.map(|name| Library { dir, name }));
        }
    }
    // Stable: of several directories the first stays first.
    libraries.sort_by(|a, b| compare(b.name.as_bytes(), a.name.as_bytes()));
    encode(&libraries)
}

/// An entry: who asks for `name` gets that of `dir`.
#[derive(Debug)]
struct Library<'a> {
    dir: &'a str,
    name: String,
}

fn encode(libraries: &[Library<'_>]) -> Vec<u8> {
    let mut strings = String::new();
    let mut entries = Vec::new();
    for Library { dir, name } in libraries {
        let path_at = HEADER + libraries.len() * ENTRY + strings.len();
        let name_at = path_at + dir.len() + 1;
        strings.extend([dir, "/", name, "\0"]);
        // Flags, key, value, OS version, and hardware capabilities in 64 bits.
        for word in [X86_64_LIBRARY, name_at as u32, path_at as u32, 0, 0, 0] {
            entries.extend_from_slice(&word.to_le_bytes());
        }
    }
    let length = (HEADER + entries.len() + strings.len()).next_multiple_of(LENGTH_STEP);
    let mut bytes = Vec::with_capacity(length);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&(libraries.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&(strings.len() as u32).to_le_bytes());
    bytes.push(LITTLE_ENDIAN);
    bytes.resize(HEADER, 0);
    bytes.extend(entries);
    bytes.extend(strings.into_bytes());
    bytes.resize(length, 0);
    bytes
}

/// The order of entries' names: numbers in them count as such. glibc: `_dl_cache_libcmp`.
fn compare(a: &[u8], b: &[u8]) -> Ordering {
    let (mut a, mut b) = (a, b);
    let number = |text: &mut &[u8]| {
        let digits = text.iter().take_while(|c| c.is_ascii_digit()).count();
        let (head, tail) = text.split_at(digits);
        *text = tail;
        let value = |value: u64, c: &u8| value.saturating_mul(10).saturating_add(u64::from(c - b'0'));
        head.iter().fold(0, value)
    };
    loop {
        let digit = |text: &[u8]| text.first().is_some_and(u8::is_ascii_digit);
        let order = match (digit(a), digit(b)) {
            (true, true) => number(&mut a).cmp(&number(&mut b)),
            (true, false) => return Ordering::Greater,
            (false, true) => return Ordering::Less,
            (false, false) => match (a.split_first(), b.split_first()) {
                (None, None) => return Ordering::Equal,
                (Some((x, rest_a)), Some((y, rest_b))) => {
                    (a, b) = (rest_a, rest_b);
                    x.cmp(y)
                }
                (x, y) => return x.is_some().cmp(&y.is_some()),
            },
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

/// The directories that the host's /etc/ld.so.conf names, in its order, then the system's.
fn directories(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    read_conf(root, "/etc/ld.so.conf", 0, &mut found);
    found.extend(SYSTEM.map(str::to_owned));
    found
}

fn read_conf(root: &Path, path: &str, depth: usize, found: &mut Vec<String>) {
    let Ok(text) = std::fs::read(below(root, path)) else {
        return;
    };
    for line in String::from_utf8_lossy(&text).lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(pattern) = line
            .strip_prefix("include")
            .filter(|rest| rest.starts_with([' ', '\t']))
        {
            if depth < INCLUDES_MAX {
                for file in included(root, path, pattern.trim()) {
                    read_conf(root, &file, depth + 1, found);
                }
            }
        } else if !line.starts_with("hwcap") {
            let dirs = line
                .split([' ', '\t', ',', ':'])
                .map(|dir| dir.split('=').next().unwrap_or_default());
            found.extend(
                dirs.filter(|dir| dir.starts_with('/'))
                    .map(|dir| dir.trim_end_matches('/').to_owned()),
            );
        }
    }
}

/// Files that `include PATTERN` in `conf` means: one `*` in the last part is understood.
fn included(root: &Path, conf: &str, pattern: &str) -> Vec<String> {
    let folder = conf.rsplit_once('/').map_or("", |(folder, _)| folder);
    let pattern = if pattern.starts_with('/') {
        pattern.to_owned()
    } else {
        format!("{folder}/{pattern}")
    };
    let Some((folder, last)) = pattern.rsplit_once('/') else {
        return Vec::new();
    };
    let Some((start, end)) = last.split_once('*') else {
        return vec![pattern];
    };
    let matches = |name: &str| name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end);
    let names = names_in(&below(root, folder), |name| matches(name) && !name.starts_with('.'));
    names.into_iter().map(|name| format!("{folder}/{name}")).collect()
}

/// Names in a directory by which programs ask for libraries, sorted. Unless all there are `x86_64`, looks into them.
fn library_names(dir: &Path, x86_64: bool) -> Vec<String> {
    let is_name = |name: &str| {
        (name.starts_with("lib") || name.starts_with("ld-")) && (name.ends_with(".so") || name.contains(".so."))
    };
    names_in(dir, |name| is_name(name) && (x86_64 || is_library(&dir.join(name))))
}

/// The `wanted` names in a directory, sorted; none where it cannot be read. A host has thousands, and each run looks:
/// nothing is allocated for the others.
fn names_in(dir: &Path, wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let mut names = Vec::new();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(dir) = rustix::fs::open(dir, flags, Mode::empty()) else {
        return names;
    };
    let mut buffer = Vec::with_capacity(DIRECTORY_BUFFER);
    let mut entries = RawDir::new(dir, buffer.spare_capacity_mut());
    while let Some(Ok(entry)) = entries.next() {
        let name = entry.file_name().to_str();
        names.extend(name.ok().filter(|name| wanted(name)).map(str::to_owned));
    }
    names.sort_unstable();
    names
}

/// Whether a file, or what a link leads to, is a shared object for x86-64 that everybody may read.
fn is_library(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    let readable = |meta: std::fs::Metadata| meta.is_file() && meta.permissions().mode() & 0o4 != 0;
    if !std::fs::metadata(path).is_ok_and(readable) {
        return false;
    }
    let mut head = [0; 20];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut head));
    // 64 bits, little-endian; `e_type` is ET_DYN and `e_machine` EM_X86_64.
    read.is_ok() && head.starts_with(b"\x7fELF\x02\x01") && head[16..20] == [3, 0, 62, 0]
}

fn below(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A root with these configuration files and libraries.
    fn root(conf: &[(&str, &str)], libraries: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let library = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0".as_slice();
        let conf = conf.iter().map(|(path, text)| (*path, text.as_bytes()));
        for (path, bytes) in conf.chain(libraries.iter().map(|path| (*path, library))) {
            let path = below(root.path(), path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
        root
    }

    /// Names and paths in a cache, in its order.
    fn decode(bytes: &[u8]) -> Vec<(String, String)> {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        let text = |at: usize| {
            let end = bytes[at..].iter().position(|&c| c == 0).unwrap();
            String::from_utf8(bytes[at..at + end].to_vec()).unwrap()
        };
        let entries = (0..word(20)).map(|number| HEADER + number * ENTRY);
        entries.map(|at| (text(word(at + 4)), text(word(at + 8)))).collect()
    }

    const CONF: [(&str, &str); 4] = [
        ("/etc/ld.so.conf", "include /etc/ld.so.conf.d/*.conf\n"),
        ("/etc/ld.so.conf.d/a.conf", "# local\n/usr/local/lib # here\n"),
        ("/etc/ld.so.conf.d/b.conf", "/lib/x86_64-linux-gnu\n"),
        (
            "/etc/ld.so.conf.d/c.conf",
            "/usr/lib/more:/nowhere\ninclude more/*.none\n",
        ),
    ];

    #[test]
    fn libraries_are_found_in_the_order_of_the_configuration() {
        let libraries = [
            "/usr/local/lib/libz.so.1",
            "/usr/local/lib/liba.so.10",
            "/usr/local/lib/liba.so.9",
            "/usr/lib/more/liba.so.10",
            "/lib/x86_64-linux-gnu/libz.so.1",
            "/lib/x86_64-linux-gnu/libc.so.6",
            "/lib/x86_64-linux-gnu/libc.a",
            "/lib/libm-2.so",
        ];
        let root = root(&CONF, &libraries);
        std::fs::write(below(root.path(), "/usr/local/lib/libtext.so"), "GROUP ( libc.so.6 )").unwrap();
        let bytes = make(root.path());
        let expected = [
            ("libz.so.1", "/usr/local/lib/libz.so.1"),
            ("libz.so.1", "/lib/x86_64-linux-gnu/libz.so.1"),
            ("libm-2.so", "/lib/libm-2.so"),
            ("libc.so.6", "/lib/x86_64-linux-gnu/libc.so.6"),
            ("liba.so.10", "/usr/local/lib/liba.so.10"),
            ("liba.so.10", "/usr/lib/more/liba.so.10"),
            ("liba.so.9", "/usr/local/lib/liba.so.9"),
        ];
        assert_eq!(
            decode(&bytes),
            expected.map(|(name, path)| (name.to_owned(), path.to_owned()))
        );
    }

    #[test]
    fn its_length_is_that_of_any_host() {
        let conf_only = root(&CONF, &[]);
        assert_eq!(make(conf_only.path()).len(), LENGTH_STEP);
        assert_eq!(
            make(root(&[], &["/lib/libc.so.6"]).path()).len(),
            LENGTH_STEP,
            "no configuration at all"
        );
        assert!(decode(&make(conf_only.path())).is_empty());
    }

    #[test]
    fn a_directory_of_two_names_counts_once() {
        let root = root(&[], &["/usr/lib/x86_64-linux-gnu/libc.so.6"]);
        std::os::unix::fs::symlink("usr/lib", root.path().join("lib")).unwrap();
        let found = decode(&make(root.path()));
        assert_eq!(
            found,
            [("libc.so.6".to_owned(), "/lib/x86_64-linux-gnu/libc.so.6".to_owned())]
        );
    }

    #[test]
    fn names_are_in_glibcs_order() {
        let order = |a: &str, b: &str| compare(a.as_bytes(), b.as_bytes());
        assert_eq!(order("liba.so.9", "liba.so.10"), Ordering::Less);
        assert_eq!(order("liba.so", "liba.so.1"), Ordering::Less);
        assert_eq!(order("lib1.so", "liba.so"), Ordering::Greater);
        assert_eq!(order("lib-x.so", "lib1.so"), Ordering::Less);
        assert_eq!(order("libx.so.1", "libx.so.1"), Ordering::Equal);
    }

    #[test]
    fn files_that_include_each_other_end() {
        let conf = [("/etc/ld.so.conf", "include ld.so.conf\n/usr/local/lib\n")];
        let root = root(&conf, &["/usr/local/lib/liba.so.1"]);
        assert_eq!(decode(&make(root.path())).len(), 1);
    }
}
