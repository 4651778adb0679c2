//! Looks at a program before the run begins: whether a node would find it and could execute it.
//!
//! Only the read-only tree of a node is there to look at. What lies in a folder that starts empty in every node, or may
//! be made by a set-up command, is taken on trust; if it is missing, the start fails when its time comes.

use windtunnel_kernel::abi::FsAttr;
use windtunnel_process::{HOST_FOLDERS, ProcessHost};
use windtunnel_scenario::User;

/// Links followed on the way to one file, as Linux does.
const LINKS_MAX: usize = 40;
/// Interpreters of interpreters, as Linux does.
const SCRIPTS_MAX: usize = 4;
/// What Linux looks at to tell what a program is, bytes.
const HEAD_BYTES: usize = 256;
const TYPE_MASK: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;
const LINK: u32 = 0o120_000;
const REGULAR: u32 = 0o100_000;
/// `e_machine` of x86-64.
const X86_64: u16 = 62;
/// `p_type` of the interpreter's name.
const PT_INTERP: u32 = 3;
/// Folders that are filled in the run.
const OWN_FOLDERS: [&str; 5] = ["/dev", "/proc", "/run", "/sys", "/tmp"];
/// Folders that hold nothing of the host, but are shown where the scenario names a root.
const HIDDEN_FOLDERS: [&str; 3] = ["/home", "/root", "/var/tmp"];

/// A tree of files to look programs up in.
pub trait Tree {
    /// Entry `name` of folder `dir`: its id and mode. `None`: no such entry.
    fn lookup(&mut self, dir: u64, name: &[u8]) -> Option<Entry>;
    /// Target of a symbolic link.
    fn readlink(&mut self, id: u64) -> Option<Vec<u8>>;
    /// Up to `len` bytes of a file from `offset` on.
    fn read(&mut self, id: u64, offset: u64, len: usize) -> Option<Vec<u8>>;
    /// Whether the scenario names the root, rather than that it is the host's.
    fn is_pinned(&self) -> bool;
}

/// An entry of a tree.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Id in the tree; the root is 1.
    pub id: u64,
    /// Type and permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

const ROOT: Entry = Entry {
    id: 1,
    mode: DIRECTORY | 0o755,
    uid: 0,
    gid: 0,
};

impl Tree for ProcessHost {
    fn is_pinned(&self) -> bool {
        self.root_is_pinned()
    }

    fn lookup(&mut self, dir: u64, name: &[u8]) -> Option<Entry> {
        let mut attr = FsAttr::default();
        let found = self.fs_lookup(dir, name, &mut attr) >= 0;
        found.then_some(Entry {
            id: attr.id,
            mode: attr.mode,
            uid: attr.uid,
            gid: attr.gid,
        })
    }

    fn readlink(&mut self, id: u64) -> Option<Vec<u8>> {
        let mut target = vec![0; 4096];
        let length = usize::try_from(self.fs_readlink(id, &mut target)).ok()?;
        target.truncate(length);
        Some(target)
    }

    fn read(&mut self, id: u64, offset: u64, len: usize) -> Option<Vec<u8>> {
        let handle = u64::try_from(self.fs_open(id)).ok()?;
        let mut bytes = vec![0; len];
        let length = self.fs_read(handle, bytes.as_mut_ptr(), len as u64, offset);
        self.fs_release(handle);
        bytes.truncate(usize::try_from(length).ok()?);
        Some(bytes)
    }
}

/// Why a program can't be started, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// "not found" or the like.
    pub text: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Problem {
    fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            hint: None,
        }
    }

    fn not_found(tree: &dyn Tree) -> Self {
        let hint = match tree.is_pinned() {
            true => "the node sees the programs of its `root`, not the host's: is the package in there?",
            false => "nodes see the host's programs: is the package installed on this host?",
        };
        Self {
            text: "not found in the node".into(),
            hint: Some(hint.into()),
        }
    }

    /// The same of a path that leads to where nodes see nothing of the host.
    fn not_found_at(tree: &dyn Tree, path: &str) -> Self {
        let top = path.split('/').nth(1).unwrap_or_default();
        if tree.is_pinned() || HOST_FOLDERS.contains(&top) || path.matches('/').count() < 2 {
            return Self::not_found(tree);
        }
        Self {
            hint: Some(format!(
                "nodes see the host's packages and /usr/local, but nothing of its /{top}: give the program by `files`, as \
                 in {{{path}: {{source: {path}, mode: \"755\"}}}}"
            )),
            ..Self::not_found(tree)
        }
    }
}

/// The path of `program` in the node: as execvp(3) finds it, with `path` being the value of `PATH`.
///
/// # Errors
/// Why it could not be executed there.
pub fn resolve(
    tree: &mut dyn Tree,
    program: &str,
    path: &str,
    cwd: &str,
    user: User,
    has_setup: bool,
) -> Result<String, Problem> {
    if program.contains('/') {
        let absolute = if program.starts_with('/') {
            program.to_owned()
        } else {
            format!("{cwd}/{program}")
        };
        let own = |folders: &[&str]| folders.iter().any(|own| absolute.starts_with(&format!("{own}/")));
        let own = own(&OWN_FOLDERS) || !tree.is_pinned() && own(&HIDDEN_FOLDERS);
        return match find(tree, &absolute) {
            None if own || has_setup => Ok(absolute),
            None => Err(Problem::not_found_at(tree, &absolute)),
            Some(entry) => check(tree, entry, user, 0).map(|()| absolute),
        };
    }
    let mut first_problem = None;
    for dir in path.split(':').filter(|dir| dir.starts_with('/')) {
        let candidate = format!("{}/{program}", dir.trim_end_matches('/'));
        let Some(entry) = find(tree, &candidate) else { continue };
        match check(tree, entry, user, 0) {
            Ok(()) => return Ok(candidate),
            Err(problem) => first_problem = first_problem.or(Some(problem)),
        }
    }
    Err(first_problem.unwrap_or_else(|| Problem {
        text: format!("not found in any folder of PATH ({path})"),
        ..Problem::not_found(tree)
    }))
}

/// Follows an absolute path, symbolic links included.
fn find(tree: &mut dyn Tree, path: &str) -> Option<Entry> {
    let mut trail = vec![ROOT];
    let mut parts: Vec<Vec<u8>> = path
        .as_bytes()
        .split(|&c| c == b'/')
        .rev()
        .map(<[u8]>::to_vec)
        .collect();
    let mut links = 0;
    while let Some(part) = parts.pop() {
        match part.as_slice() {
            b"" | b"." => continue,
            b".." => {
                if trail.len() > 1 {
                    trail.pop();
                }
                continue;
            }
            _ => {}
        }
        let entry = tree.lookup(trail.last()?.id, &part)?;
        if entry.mode & TYPE_MASK == LINK {
            links += 1;
            if links > LINKS_MAX {
                return None;
            }
            let target = tree.readlink(entry.id)?;
            if target.starts_with(b"/") {
                trail.truncate(1);
            }
            parts.extend(target.split(|&c| c == b'/').rev().map(<[u8]>::to_vec));
        } else {
            trail.push(entry);
        }
    }
    trail.last().copied()
}

/// Whether `user` could execute `entry`; `depth` scripts led here.
fn check(tree: &mut dyn Tree, entry: Entry, user: User, depth: usize) -> Result<(), Problem> {
    match entry.mode & TYPE_MASK {
        REGULAR => {}
        DIRECTORY => return Err(Problem::new("it is a folder")),
        _ => return Err(Problem::new("it is not a regular file")),
    }
    if !executable(entry, user) {
        return Err(Problem {
            text: format!("permission denied: its mode is {:03o}", entry.mode & 0o777),
            hint: Some("programs need the x permission; for a scenario's file set `mode: 0755`".into()),
        });
    }
    let head = tree
        .read(entry.id, 0, HEAD_BYTES)
        .ok_or_else(|| Problem::new("it cannot be read"))?;
    if head.starts_with(b"#!") {
        return check_script(tree, &head, user, depth);
    }
    check_elf(tree, entry, &head)
}

fn executable(entry: Entry, user: User) -> bool {
    let bits = match user {
        User { uid: 0, .. } => 0o111,
        User { uid, .. } if uid == entry.uid => 0o100,
        User { gid, .. } if gid == entry.gid => 0o010,
        User { .. } => 0o001,
    };
    entry.mode & bits != 0
}

fn check_script(tree: &mut dyn Tree, head: &[u8], user: User, depth: usize) -> Result<(), Problem> {
    let line = head[2..].split(|&c| c == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let interpreter = line.split_whitespace().next().unwrap_or_default();
    if !interpreter.starts_with('/') {
        return Err(Problem {
            text: format!("its first line names no interpreter: `#!{line}`"),
            hint: Some("write an absolute path, as in `#!/bin/sh`".into()),
        });
    }
    let Some(entry) = find(tree, interpreter) else {
        return Err(Problem {
            text: format!("its interpreter {interpreter} is not in the node"),
            ..Problem::not_found(tree)
        });
    };
    if depth == SCRIPTS_MAX {
        return Err(Problem::new(
            "its interpreters are scripts that need interpreters without end",
        ));
    }
    check(tree, entry, user, depth + 1).map_err(|problem| Problem {
        text: format!("its interpreter {interpreter}: {}", problem.text),
        ..problem
    })
}

fn check_elf(tree: &mut dyn Tree, entry: Entry, head: &[u8]) -> Result<(), Problem> {
    let half = |at: usize| head.get(at..at + 2).map(|b| u16::from_le_bytes([b[0], b[1]]));
    if !head.starts_with(b"\x7fELF") {
        return Err(Problem {
            text: "it is neither an ELF program nor a script".into(),
            hint: Some("a script needs a first line such as `#!/bin/sh`".into()),
        });
    }
    let (Some(class), Some(machine)) = (head.get(4), half(18)) else {
        return Err(Problem::new("its ELF header is cut off"));
    };
    if *class != 2 || head[5] != 1 || machine != X86_64 {
        return Err(Problem {
            text: format!("it is a program for {}", machine_name(*class, machine)),
            hint: Some("nodes run 64-bit x86-64 programs".into()),
        });
    }
    let Some(interpreter) = elf_interpreter(tree, entry, head) else {
        return Ok(());
    };
    match find(tree, &interpreter) {
        Some(_) => Ok(()),
        None => Err(Problem {
            text: format!("its ELF interpreter {interpreter} is not in the node"),
            hint: Some(match tree.is_pinned() {
                true => "is it built for another C library than the one in the node's `root`?".into(),
                false => "is it built for another C library than this host's?".into(),
            }),
        }),
    }
}

/// The path in `PT_INTERP`, if there is one. A broken program header is left to the kernel to refuse.
fn elf_interpreter(tree: &mut dyn Tree, entry: Entry, head: &[u8]) -> Option<String> {
    let word = |bytes: &[u8], at: usize| {
        bytes
            .get(at..at + 8)?
            .first_chunk::<8>()
            .map(|b| u64::from_le_bytes(*b))
    };
    let (table, size, count) = (word(head, 32)?, head.get(54..56)?, head.get(56..58)?);
    let size = usize::from(u16::from_le_bytes([size[0], size[1]]));
    let count = usize::from(u16::from_le_bytes([count[0], count[1]]));
    let headers = tree.read(entry.id, table, size * count)?;
    let interp = headers
        .chunks_exact(size.max(56))
        .find(|header| header[..4] == PT_INTERP.to_le_bytes())?;
    let (offset, length) = (word(interp, 8)?, word(interp, 32)?);
    let name = tree.read(entry.id, offset, usize::try_from(length.min(4096)).ok()?)?;
    let name = name.split(|&c| c == 0).next().unwrap_or_default();
    Some(String::from_utf8_lossy(name).into_owned())
}

fn machine_name(class: u8, machine: u16) -> String {
    let bits = if class == 1 { "32-bit " } else { "" };
    let name = match machine {
        3 => "x86",
        X86_64 => "x86-64",
        40 => "ARM",
        183 => "AArch64",
        21 => "PowerPC 64",
        22 => "S/390",
        243 => "RISC-V",
        8 => "MIPS",
        other => return format!("{bits}machine number {other}"),
    };
    format!("{bits}{name}")
}

#[cfg(test)]
#[path = "preflight_tests.rs"]
mod tests;
