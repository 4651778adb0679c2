//! What work costs by the byte.

use std::fmt;
use std::str::FromStr;

use crate::units::{Quantity, UnitError, same_but_case};

/// Time per byte, in picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteCost(pub u64);

impl ByteCost {
    /// Bytes take no time.
    pub const ZERO: Self = Self(0);

    /// A byte takes `ps` picoseconds.
    pub const fn from_ps(ps: u64) -> Self {
        Self(ps)
    }

    /// Picoseconds per byte.
    pub const fn as_ps(self) -> u64 {
        self.0
    }
}

const BYTE_COST: Quantity = Quantity {
    name: "a time per byte",
    units: &[("ps/B", 1), ("ns/B", 1_000), ("us/B", 1_000_000)],
    base: "1 ps/B",
    usual: ["ps/B", "ns/B"],
    advise,
};

fn advise(number: &str, unit: &str) -> Option<String> {
    match unit {
        "ps" | "ns" | "us" => return Some(format!("write `{number}{unit}/B`")),
        "GB/s" => return Some("a time, not a rate: 1GB/s is 1ns/B".into()),
        "MB/s" => return Some("a time, not a rate: 1MB/s is 1us/B".into()),
        "Gbit" | "Gbit/s" | "Gb/s" => return Some("a time, not a rate: 8Gbit/s is 1ns/B".into()),
        "Mbit" | "Mbit/s" | "Mb/s" => return Some("a time, not a rate: 8Mbit/s is 1us/B".into()),
        _ => {}
    }
    let meant = unit.strip_suffix("/byte").map(|time| format!("{time}/B"));
    let known = same_but_case(meant.as_deref().unwrap_or(unit), BYTE_COST.units)?;
    Some(format!("write `{number}{known}`"))
}

const DISPLAY_UNITS: &[(&str, u64)] = &[("ps/B", 1), ("ns/B", 1_000), ("us/B", 1_000_000)];

impl FromStr for ByteCost {
    type Err = UnitError;
    /// Reads `0.1ns/B`, `250ps/B`.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        BYTE_COST.parse(text).map(Self)
    }
}

/// Exact, and readable by [`ByteCost::from_str`]: `2.5ns/B`.
impl fmt::Display for ByteCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Quantity::write(self.0, DISPLAY_UNITS, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn costs_read_exactly() {
        for (text, ps) in [("0ps/B", 0), ("0.1ns/B", 100), ("250ps/B", 250), ("1us/B", 1_000_000)] {
            assert_eq!(text.parse(), Ok(ByteCost(ps)));
        }
        assert_eq!(ByteCost(100).to_string(), "100ps/B");
        assert_eq!(ByteCost(2_500).to_string(), "2.5ns/B");
    }

    #[test]
    fn bad_costs_say_what_is_meant() {
        let error = |text: &str| text.parse::<ByteCost>().unwrap_err();
        let hint = |text: &str| error(text).hint.unwrap();
        assert_eq!(hint("0.1"), "write `0.1ps/B` or `0.1ns/B`");
        assert_eq!(hint("0.1ns"), "write `0.1ns/B`");
        assert_eq!(hint("2ns/byte"), "write `2ns/B`");
        assert_eq!(hint("2ns/b"), "write `2ns/B`");
        assert_eq!(hint("10GB/s"), "a time, not a rate: 1GB/s is 1ns/B");
        assert_eq!(hint("40Gbit"), "a time, not a rate: 8Gbit/s is 1ns/B");
        assert_eq!(
            error("0.5ps/B").problem,
            "not a time per byte: it is not a whole multiple of 1 ps/B"
        );
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(ps in 0u64..1_000_000_000_000) {
            prop_assert_eq!(ByteCost(ps).to_string().parse::<ByteCost>().unwrap(), ByteCost(ps));
        }
    }
}
