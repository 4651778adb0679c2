// SPDX-License-Identifier: GPL-2.0-or-later
//! Scenario files of any text: each is refused with its place in the text, or resolved.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use windtunnel_scenario::Scenario;

fuzz_target!(|text: &str| {
    match Scenario::parse(text, Path::new("fuzz.yaml")) {
        Ok(scenario) => {
            for link in &scenario.links {
                // Both ends are nodes of the scenario: this panics otherwise.
                let _ = (scenario.node(link.a.node), scenario.node(link.b.node));
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
