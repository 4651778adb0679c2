// SPDX-License-Identifier: GPL-2.0-or-later
//! Damaged captures: each is refused with its place in the file, or read; and what was read is equal to itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use windtunnel_traces::{Collector, Tolerance, compare};

fuzz_target!(|file: &[u8]| {
    let mut collector = Collector::default();
    match collector.add("fuzz", file) {
        Ok(()) => {
            let trace = collector.finish();
            assert!(compare(("a", &trace), ("b", &trace), None, &Tolerance::default()).equal);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
