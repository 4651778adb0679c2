//! Exec and file mappings of the host's own programs and libraries.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::*;
use crate::elf::Elf;
use crate::space::tests::Fixture;
use crate::{NodeConfig, ProcessHost};

/// Where these tests have their programs: beside the nodes.
const PROGRAMS: u64 = 0x5300_0000_0000;

fn host(number: u64, files: Vec<crate::NodeFile>) -> ProcessHost {
    let start = PROGRAMS + number * (8 << 32);
    let shared = Shared::new(Path::new("/")).unwrap();
    let config = NodeConfig {
        node: number as u32,
        spaces_made: 0,
        root: 0,
        programs: start..start + (8 << 32),
        files,
        files_mtime_ns: 0,
        file_limits: crate::FileLimits {
            disk_bytes: 1 << 30,
            output_bytes: 1 << 30,
        },
        memory_limit_bytes: 1 << 40,
    };
    ProcessHost::new(shared, &config).unwrap()
}

/// A handle for a file of the node, reached as its kernel would.
fn open(host: &mut ProcessHost, path: &Path) -> u64 {
    let mut attr = abi::FsAttr {
        id: 1,
        size: 0,
        mtime_ns: 0,
        ino: 0,
        mode: 0,
        uid: 0,
        gid: 0,
        rdev_major: 0,
        rdev_minor: 0,
        nlink: 0,
    };
    for name in path.to_str().unwrap().split('/').filter(|name| !name.is_empty()) {
        let dir = attr.id;
        assert_eq!(
            host.fs_lookup(dir, name.as_bytes(), &mut attr),
            0,
            "{name} of {}",
            path.display()
        );
    }
    let handle = host.fs_open(attr.id);
    assert!(handle > 0, "{}: {handle}", path.display());
    handle as u64
}

fn exec(host: &mut ProcessHost, file: u64, interp: u64) -> (u64, abi::Exec) {
    let id = host.as_create() as u64;
    let mut exec = abi::Exec {
        file,
        interp,
        stack_size: 8 << 20,
        entry: 0,
        stack_top: 0,
        stack_base: 0,
        at_entry: 0,
        at_phdr: 0,
        at_phnum: 0,
        at_base: 0,
        code: [0; 2],
        data: [0; 2],
        brk: 0,
        low: 0,
        reserved: 0,
    };
    assert_eq!(host.exec_map(id, &mut exec), 0, "{:?}", host.take_exec_errors());
    (id, exec)
}

/// `len` bytes of program memory.
fn bytes_at(address: u64, len: usize) -> Option<Vec<u8>> {
    let scratch = Fixture::scratch();
    crate::sys::write_from(std::os::fd::AsFd::as_fd(&scratch), address, len as u64, 0).ok()?;
    let mut bytes = vec![0; len];
    rustix::io::pread(&scratch, &mut bytes, 0).unwrap();
    Some(bytes)
}

#[test]
fn a_dynamic_program_is_laid_out_as_linux_would() {
    let mut host = host(0, Vec::new());
    let path = std::fs::canonicalize("/bin/sh").unwrap();
    let elf = Elf::parse(&std::fs::read(&path).unwrap()).unwrap();
    let interp_path = PathBuf::from(String::from_utf8(elf.interpreter.clone().unwrap()).unwrap());
    let interp_path = std::fs::canonicalize(interp_path).unwrap();
    let file = open(&mut host, &path);
    let interp = open(&mut host, &interp_path);
    let (_, exec) = exec(&mut host, file, interp);
    assert!(!elf.fixed && exec.low == 0);
    let base = exec.at_entry - elf.entry;
    assert_eq!(base % elf.align, 0);
    assert_eq!(
        (exec.at_phdr, exec.at_phnum),
        (base + elf.headers_vaddr, elf.header_count)
    );
    let headers = &std::fs::read(&path).unwrap()[64..64 + 56];
    assert_eq!(bytes_at(exec.at_phdr, 56).unwrap(), headers);
    assert_eq!(bytes_at(exec.at_base, 4).unwrap(), b"\x7fELF");
    assert!(exec.entry > exec.at_base);
    assert_eq!(exec.stack_top - exec.stack_base, 8 << 20);
    assert_eq!(bytes_at(exec.stack_top - 8, 8).unwrap(), [0; 8]);
    assert_eq!(bytes_at(exec.stack_top, 1), None);
    assert!(exec.brk > exec.data[1] && exec.code[0] < exec.code[1]);
    // bss is zero from the last byte of the file on.
    assert_eq!(bytes_at(exec.data[1], 16).unwrap(), [0; 16]);
    let images: Vec<String> = host.shared.images().into_iter().map(|image| image.path).collect();
    assert!(images.contains(&path.display().to_string()) && images.contains(&interp_path.display().to_string()));
}

#[test]
fn the_same_requests_give_the_same_addresses_and_exec_starts_afresh() {
    let path = std::fs::canonicalize("/bin/sh").unwrap();
    let mut seen = Vec::new();
    for _ in 0..2 {
        let mut host = host(1, Vec::new());
        let file = open(&mut host, &path);
        let (id, mut exec) = exec(&mut host, file, 0);
        let first = (exec.entry, exec.stack_top, exec.brk);
        let args = [0, 5 << 32, 0, 0x22, u64::MAX, 0];
        let big = host.mem_call(id, 9, &args, 0);
        assert!(big > 0);
        assert_eq!(host.exec_map(id, &mut exec), 0);
        assert_eq!((exec.entry, exec.stack_top, exec.brk), first);
        assert_eq!(
            host.mem_call(id, 9, &args, 0),
            big,
            "the slots of the old image are free again"
        );
        host.as_destroy(id);
        assert_eq!(bytes_at(exec.entry, 1), None);
        seen.push((first, big));
    }
    assert_eq!(seen[0], seen[1]);
}

#[test]
#[ignore = "run by low_range_tests_pass_in_a_process_of_their_own"]
fn programs_at_fixed_addresses_live_side_by_side_in_the_low_range() {
    let dir = tempfile::tempdir().unwrap();
    let program = |name: &str, value: &str| {
        let source = dir.path().join(format!("{name}.c"));
        std::fs::write(
            &source,
            format!("int value = {value}; int rest[9999]; void _start(void) {{ value++; }}"),
        )
        .unwrap();
        let out = dir.path().join(name);
        let options = ["-static", "-no-pie", "-nostdlib", "-fno-pie", "-o"];
        let status = Command::new("cc")
            .args(options)
            .arg(&out)
            .arg(&source)
            .status()
            .expect("a C compiler");
        assert!(status.success());
        let file = crate::NodeFile {
            path: format!("/bin/wt-{name}"),
            bytes: std::fs::read(out).unwrap().into(),
            mode: 0o755,
        };
        (file, PathBuf::from(format!("/usr/bin/wt-{name}")))
    };
    let (a, a_path) = program("a", "0x1111");
    let (b, b_path) = program("b", "0x2222");
    let linked_into_usr = std::fs::symlink_metadata("/bin").unwrap().is_symlink();
    let place = |path: PathBuf| {
        if linked_into_usr {
            path
        } else {
            PathBuf::from("/").join(path.strip_prefix("/usr").unwrap())
        }
    };
    let mut host = host(2, vec![a, b]);
    let handles = [open(&mut host, &place(a_path)), open(&mut host, &place(b_path))];
    let [(one, first), (two, second)] = handles.map(|file| exec(&mut host, file, 0));
    assert!(first.low == 1 && second.low == 1 && first.data[0] < 1 << 32);
    assert!(
        first.brk > PROGRAMS,
        "the break is in the slot, where it need not be moved"
    );
    for _ in 0..2 {
        host.as_activate(one);
        let value = bytes_at(first.data[1] - 4, 4).unwrap();
        assert_eq!(value, 0x1111_u32.to_le_bytes());
        host.as_activate(two);
        let value = bytes_at(second.data[1] - 4, 4).unwrap();
        assert_eq!(value, 0x2222_u32.to_le_bytes());
    }
    assert_eq!(bytes_at(second.data[1], 9999).unwrap(), [0; 9999]);
    host.as_destroy(two);
    assert_eq!(bytes_at(second.data[1] - 4, 4), None);
    host.as_activate(one);
    assert_eq!(bytes_at(first.data[1] - 4, 4).unwrap(), 0x1111_u32.to_le_bytes());
    host.as_destroy(one);
}

#[test]
fn what_cannot_run_is_named() {
    let text = crate::NodeFile {
        path: "/wt-text".into(),
        bytes: b"hello".as_slice().into(),
        mode: 0o755,
    };
    let mut host = host(3, vec![text]);
    let file = open(&mut host, Path::new("/wt-text"));
    let id = host.as_create() as u64;
    let shell = open(&mut host, &std::fs::canonicalize("/bin/sh").unwrap());
    let (_, mut exec) = exec(&mut host, shell, 0);
    exec.file = file;
    assert_eq!(host.exec_map(id, &mut exec), -i64::from(libc::ENOEXEC));
    let errors = host.take_exec_errors();
    assert_eq!(
        errors[0].to_string(),
        "/wt-text is not an ELF program (it starts with \"hell\")"
    );
    exec.file = 4711;
    assert_eq!(host.exec_map(id, &mut exec), -i64::from(libc::EBADF));
}

/// The C library's path on this host.
fn libc_path() -> PathBuf {
    let known = [
        "/lib/x86_64-linux-gnu/libc.so.6",
        "/lib64/libc.so.6",
        "/usr/lib/libc.so.6",
    ];
    let found = known.iter().find(|path| Path::new(path).exists()).expect("a C library");
    std::fs::canonicalize(found).unwrap()
}

/// What the dynamic linker does to load a library, and to unload it; with a greater alignment it maps more than it
/// needs and cuts off both ends.
#[test]
fn a_library_mapped_as_the_dynamic_linker_does_gets_its_trampolines() {
    load_library(4, 0);
    load_library(7, 2 << 20);
}

/// As the fifth argument of mmap: the mapping may have any protection, as the kernel says of a file opened to read and write.
const ANY: u64 = 7;

fn load_library(number: u64, align: u64) {
    let mut host = host(number, Vec::new());
    let path = libc_path();
    let bytes = std::fs::read(&path).unwrap();
    let elf = Elf::parse(&bytes).unwrap();
    let handle = open(&mut host, &path);
    let id = host.as_create() as u64;
    let total = elf.span().end - elf.span().start;
    let start = host.mem_call(id, 9, &[0, total + 2 * align, 1, 0x802, ANY, 0], handle);
    assert!(start > 0);
    let start = start as u64;
    let base = if align == 0 {
        start
    } else {
        (start + PAGE).next_multiple_of(align)
    };
    if align > 0 {
        let end = start + total + 2 * align;
        assert_eq!(host.mem_call(id, 11, &[start, base - start, 0, 0, 0, 0], 0), 0);
        assert_eq!(
            host.mem_call(id, 11, &[base + total, end - base - total, 0, 0, 0, 0], 0),
            0
        );
    }
    for segment in elf.segments.iter().filter(|segment| segment.offset > 0) {
        let page = |value: u64| value - value % PAGE;
        let len = segment.vaddr + segment.file_size - page(segment.vaddr);
        let args = [
            base + page(segment.vaddr),
            len,
            segment.prot.into(),
            0x812,
            ANY,
            page(segment.offset),
        ];
        assert_eq!(host.mem_call(id, 9, &args, handle), args[0] as i64);
    }
    let text = elf.segments.iter().find(|segment| segment.prot & EXEC != 0).unwrap();
    let mapped = bytes_at(base + text.vaddr, text.file_size as usize).unwrap();
    let on_disk = &bytes[text.offset as usize..][..text.file_size as usize];
    let patched = crate::patch::analyse(&bytes).unwrap();
    assert!(!patched.trampolines.is_empty());
    for (offset, new) in &patched.text {
        let at = (offset - text.offset) as usize;
        assert_eq!(&mapped[at..at + new.len()], new);
    }
    assert_ne!(mapped, on_disk);
    let trampolines = base + patched.trampoline_vaddr;
    assert_eq!(
        bytes_at(trampolines, patched.trampolines.len()).unwrap(),
        patched.trampolines
    );
    // The program sees nothing there, and something else mapped next goes elsewhere.
    assert_eq!(
        host.mem_call(id, 10, &[trampolines, PAGE, 1, 0, 0, 0], 0),
        -i64::from(libc::ENOMEM)
    );
    let other = host.mem_call(id, 9, &[0, PAGE, 3, 0x22, u64::MAX, 0], 0) as u64;
    assert!(!(base..trampolines + PAGE).contains(&other));
    assert_eq!(host.mem_call(id, 11, &[base, total, 0, 0, 0, 0], 0), 0);
    assert_eq!(bytes_at(trampolines, 1), None, "trampolines go with their image");
    host.as_destroy(id);
}

#[test]
fn text_made_executable_later_is_patched_unless_it_was_written() {
    let mut host = host(5, Vec::new());
    let path = libc_path();
    let bytes = std::fs::read(&path).unwrap();
    let elf = Elf::parse(&bytes).unwrap();
    let text = elf.segments.iter().find(|segment| segment.prot & EXEC != 0).unwrap();
    let patched = crate::patch::analyse(&bytes).unwrap();
    let (offset, new) = &patched.text[0];
    let handle = open(&mut host, &path);
    let id = host.as_create() as u64;
    let total = elf.span().end;
    for (prot, is_patched) in [(1, true), (3, false)] {
        let base = host.mem_call(id, 9, &[0, total, prot, 2, ANY, 0], handle) as u64;
        let start = text.vaddr - text.vaddr % PAGE;
        assert_eq!(host.mem_call(id, 10, &[base + start, text.file_size, 5, 0, 0, 0], 0), 0);
        let there = bytes_at(base + text.vaddr + (offset - text.offset), new.len()).unwrap();
        assert_eq!(&there == new, is_patched);
        assert_eq!(bytes_at(base + patched.trampoline_vaddr, 1).is_some(), is_patched);
    }
    // A lower file is never written through a mapping.
    let shared = host.mem_call(id, 9, &[0, PAGE, 1, 1, ANY, 0], handle) as u64;
    let refused = -i64::from(libc::EACCES);
    assert_eq!(host.mem_call(id, 10, &[shared, PAGE, 3, 0, 0, 0], 0), refused);
    assert_eq!(host.mem_call(id, 9, &[0, PAGE, 3, 1, ANY, 0], handle), refused);
}

#[test]
fn written_files_are_shared_between_mappings_and_writes() {
    let mut host = host(6, Vec::new());
    let id = host.as_create() as u64;
    let handle = host.fs_create(0, 0) as u64;
    assert_eq!(host.fs_truncate(handle, 8192), 0);
    let one = host.mem_call(id, 9, &[0, 8192, 3, 1, ANY, 0], handle);
    let two = host.mem_call(id, 9, &[0, 4096, 1, 1, 3, 4096], handle);
    assert!(one > 0 && two > 0);
    let data = *b"shared";
    assert_eq!(host.fs_write(handle, data.as_ptr(), 6, 4096), 6);
    assert_eq!(bytes_at(two as u64, 6).unwrap(), data);
    assert_eq!(bytes_at(one as u64 + 4096, 6).unwrap(), data);
    host.fs_release(handle);
    assert_eq!(bytes_at(two as u64, 6).unwrap(), data, "a mapping outlives the handle");
    // Program memory as source and target of file calls.
    let other = host.fs_create(0, 0) as u64;
    assert_eq!(host.fs_write(other, two as *const u8, 6, 0), 6);
    assert_eq!(host.fs_read(other, two as *mut u8, 6, 0), -i64::from(libc::EFAULT));
    assert_eq!(host.fs_read(other, one as *mut u8, 99, 0), 6);
    assert_eq!(bytes_at(one as u64, 6).unwrap(), data);
}
