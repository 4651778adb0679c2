// SPDX-License-Identifier: GPL-2.0-or-later
//! Damaged programs: each is refused with an error or analysed, and what is analysed stays within the file's own text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use windtunnel_process::{Elf, patch};

fuzz_target!(|file: &[u8]| {
    let parsed = Elf::parse(file);
    if let Ok(patched) = patch::analyse(file) {
        let mut free = 0;
        let mut patches: Vec<_> = patched.text.iter().chain(&patched.replaced).collect();
        patches.sort();
        for (offset, bytes) in patches {
            assert!(*offset >= free, "patches overlap");
            free = offset + bytes.len() as u64;
            assert!(free <= file.len() as u64, "a patch ends past the file");
        }
    }
    if let Ok(elf) = parsed {
        let span = elf.span();
        assert!(span.start <= span.end, "an image ends before it starts");
    }
});
