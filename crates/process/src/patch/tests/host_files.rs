//! The distro's own files: how much is patched, and that every patch does what the original did.

use super::super::layout::Layout;
use super::super::{Patched, analyse};
use super::trace::{Image, trace};

/// Analyses a file of this host and checks every patch; `None` if there is no such file.
fn check(path: &str) -> Option<Patched> {
    let file = std::fs::read(path).ok()?;
    let patched = analyse(&file).expect("a valid file");
    let layout = Layout::parse(&file).expect("a valid file");
    let code: Vec<(u64, Vec<u8>)> = layout
        .segments
        .iter()
        .filter(|segment| segment.exec)
        .map(|segment| {
            (
                segment.vaddr,
                layout.bytes(segment.range()).expect("in the file").to_vec(),
            )
        })
        .collect();
    let address = |offset: u64| {
        let holds = |s: &&super::super::layout::Segment| (s.offset..s.offset + s.file_bytes).contains(&offset);
        let segment = layout.segments.iter().find(holds).expect("patches are in segments");
        assert!(segment.exec, "{path}: {offset:#x} is not code");
        segment.vaddr + (offset - segment.offset)
    };
    let before = Image::new(code.clone());
    let after = Image::patched(code, &patched, address);
    let mut end = 0;
    for (offset, bytes) in &patched.text {
        assert!(*offset >= end, "{path}: patches overlap at {offset:#x}");
        end = offset + bytes.len() as u64;
        let start = address(*offset);
        assert_eq!(
            trace(&before, start, 16),
            trace(&after, start, 16),
            "{path}: at {start:#x}"
        );
    }
    let stats = patched.stats;
    assert_eq!(patched.text.len() as u32, stats.patched() + stats.counters_patched);
    assert_eq!(stats.sites, stats.patched() + stats.left);
    Some(patched)
}

/// Asserts that at least `percent` of the sites are patched, and that there are at least `sites`.
fn covers(path: &str, percent: u32, sites: u32) {
    if let Some(patched) = check(path) {
        let stats = patched.stats;
        assert!(stats.sites >= sites, "{path}: {stats:?}");
        assert!(stats.patched() * 100 >= stats.sites * percent, "{path}: {stats:?}");
    }
}

#[test]
fn libc_is_covered() {
    covers("/lib/x86_64-linux-gnu/libc.so.6", 98, 300);
}

#[test]
fn the_dynamic_linker_is_covered() {
    covers("/lib64/ld-linux-x86-64.so.2", 90, 30);
}

#[test]
fn static_busybox_is_covered() {
    covers("/bin/busybox", 95, 200);
}

#[test]
fn go_programs_are_covered() {
    covers("/usr/local/go/bin/go", 90, 20);
    covers("/usr/lib/go-1.19/bin/go", 90, 20);
}

#[test]
fn what_asks_the_processor_at_the_start_of_programs_is_replaced() {
    for (path, instructions) in [
        ("/lib64/ld-linux-x86-64.so.2", 20),
        ("/lib/x86_64-linux-gnu/libgcc_s.so.1", 10),
        ("/lib/x86_64-linux-gnu/libcrypto.so.3", 10),
        ("/bin/busybox", 20),
    ] {
        if let Some(patched) = check(path) {
            assert!(
                patched.seeing.len() >= instructions,
                "{path}: {:?}",
                patched.seeing.len()
            );
            assert_eq!(patched.stats.unsure, 0, "{path}");
        }
    }
}
