//! Programs in a made-up tree.

use std::collections::BTreeMap;

use super::*;

/// Entries by path; ids count them from 1 on, the root being the empty path.
struct FakeTree {
    entries: Vec<(String, u32, Vec<u8>)>,
}

impl FakeTree {
    fn new(entries: &[(&str, u32, &[u8])]) -> Self {
        let mut all: BTreeMap<String, (u32, Vec<u8>)> = BTreeMap::new();
        for (path, mode, bytes) in entries {
            for (at, _) in path.match_indices('/').skip(1) {
                all.entry(path[..at].to_owned()).or_insert((DIRECTORY | 0o755, vec![]));
            }
            all.insert((*path).to_owned(), (*mode, bytes.to_vec()));
        }
        all.insert(String::new(), (DIRECTORY | 0o755, vec![]));
        Self {
            entries: all
                .into_iter()
                .map(|(path, (mode, bytes))| (path, mode, bytes))
                .collect(),
        }
    }

    fn at(&self, id: u64) -> &(String, u32, Vec<u8>) {
        &self.entries[id as usize - 1]
    }
}

impl Tree for FakeTree {
    fn is_pinned(&self) -> bool {
        false
    }

    fn lookup(&mut self, dir: u64, name: &[u8]) -> Option<Entry> {
        let path = format!("{}/{}", self.at(dir).0, String::from_utf8_lossy(name));
        let index = self.entries.iter().position(|(known, ..)| *known == path)?;
        Some(Entry {
            id: index as u64 + 1,
            mode: self.entries[index].1,
            uid: 0,
            gid: 0,
        })
    }

    fn readlink(&mut self, id: u64) -> Option<Vec<u8>> {
        Some(self.at(id).2.clone())
    }

    fn read(&mut self, id: u64, offset: u64, len: usize) -> Option<Vec<u8>> {
        let bytes = &self.at(id).2;
        let start = bytes.len().min(offset as usize);
        Some(bytes[start..bytes.len().min(start + len)].to_vec())
    }
}

/// An ELF header for a machine, with an interpreter if one is named.
fn elf(class: u8, machine: u16, interpreter: Option<&str>) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, 1]);
    bytes[18..20].copy_from_slice(&machine.to_le_bytes());
    if let Some(name) = interpreter {
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56] = 1;
        let mut header = vec![0; 56];
        header[0] = 3;
        header[8] = 120;
        header[32] = name.len() as u8 + 1;
        bytes.extend(header);
        bytes.extend(name.as_bytes());
        bytes.push(0);
    }
    bytes
}

const ROOT_USER: User = User { uid: 0, gid: 0 };
const PROGRAM: u32 = REGULAR | 0o755;

fn tree() -> FakeTree {
    let ping = elf(2, X86_64, Some("/lib64/ld.so"));
    FakeTree::new(&[
        ("/usr/bin/ping", PROGRAM, &ping),
        ("/bin", LINK | 0o777, b"usr/bin"),
        ("/lib64/ld.so", PROGRAM, &elf(2, X86_64, None)),
        ("/usr/bin/musl", PROGRAM, &elf(2, X86_64, Some("/lib/ld-musl.so"))),
        ("/usr/bin/arm", PROGRAM, &elf(2, 183, None)),
        ("/usr/bin/old", PROGRAM, &elf(1, 3, None)),
        ("/usr/bin/script", PROGRAM, b"#! /bin/ping -x\nhello"),
        ("/usr/bin/lost", PROGRAM, b"#!/usr/bin/tclsh\n"),
        ("/usr/bin/twice", PROGRAM, b"#!/usr/bin/lost\n"),
        ("/usr/bin/bare", PROGRAM, b"#!\n"),
        ("/usr/bin/text", PROGRAM, b"hello"),
        ("/usr/bin/plain", REGULAR | 0o644, &ping),
        ("/usr/bin/mine", REGULAR | 0o700, &ping),
        ("/usr/bin/loop", LINK | 0o777, b"loop"),
        ("/opt/up", LINK | 0o777, b"../bin/./ping"),
    ])
}

fn found(program: &str) -> Result<String, Problem> {
    resolve(&mut tree(), program, "/usr/local/bin:/bin:/opt", "/", ROOT_USER, false)
}

fn problem(program: &str) -> String {
    found(program).unwrap_err().text
}

#[test]
fn programs_are_found_by_name_by_path_and_through_links() {
    assert_eq!(found("ping").unwrap(), "/bin/ping");
    assert_eq!(found("up").unwrap(), "/opt/up");
    assert_eq!(found("/usr/bin/ping").unwrap(), "/usr/bin/ping");
    assert_eq!(found("script").unwrap(), "/bin/script");
    assert_eq!(
        resolve(&mut tree(), "./ping", "", "/usr/bin", ROOT_USER, false).unwrap(),
        "/usr/bin/./ping"
    );
}

#[test]
fn a_missing_program_is_told_with_a_hint() {
    let problem = found("iperf3").unwrap_err();
    assert_eq!(
        problem.text,
        "not found in any folder of PATH (/usr/local/bin:/bin:/opt)"
    );
    assert_eq!(
        problem.hint.unwrap(),
        "nodes see the host's programs: is the package installed on this host?"
    );
    assert_eq!(found("/usr/bin/iperf3").unwrap_err().text, "not found in the node");
    assert_eq!(found("/usr/bin/loop").unwrap_err().text, "not found in the node");
    assert_eq!(
        found("/data/bin/server").unwrap_err().hint.unwrap(),
        "nodes see the host's packages and /usr/local, but nothing of its /data: give the program by `files`, as in \
         {/data/bin/server: {source: /data/bin/server, mode: \"755\"}}"
    );
}

#[test]
fn what_may_come_to_be_is_taken_on_trust() {
    assert_eq!(found("/tmp/made-later").unwrap(), "/tmp/made-later");
    assert!(found("/srv/made-later").is_err());
    assert!(resolve(&mut tree(), "/srv/made-later", "", "/", ROOT_USER, true).is_ok());
}

#[test]
fn what_cannot_be_executed_is_told() {
    assert_eq!(problem("arm"), "it is a program for AArch64");
    assert_eq!(problem("old"), "it is a program for 32-bit x86");
    assert_eq!(
        problem("musl"),
        "its ELF interpreter /lib/ld-musl.so is not in the node"
    );
    assert_eq!(problem("lost"), "its interpreter /usr/bin/tclsh is not in the node");
    assert_eq!(
        problem("twice"),
        "its interpreter /usr/bin/lost: its interpreter /usr/bin/tclsh is not in the node"
    );
    assert_eq!(problem("bare"), "its first line names no interpreter: `#!`");
    assert_eq!(problem("text"), "it is neither an ELF program nor a script");
    assert_eq!(problem("/usr/bin"), "it is a folder");
    assert_eq!(problem("plain"), "permission denied: its mode is 644");
}

#[test]
fn permission_is_that_of_the_user() {
    let nobody = User { uid: 65534, gid: 65534 };
    assert!(found("/usr/bin/mine").is_ok());
    assert_eq!(
        resolve(&mut tree(), "/usr/bin/mine", "", "/", nobody, false)
            .unwrap_err()
            .text,
        "permission denied: its mode is 700"
    );
}
