//! Data rates in bits per second.

use std::fmt;
use std::str::FromStr;

use crate::units::{Quantity, UnitError, same_but_case};

/// A data rate in bit/s; above zero when it was read from text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(pub u64);

impl Rate {
    /// A rate of `bps` bits per second.
    pub const fn from_bps(bps: u64) -> Self {
        Self(bps)
    }

    /// A rate of `mbps` million bits per second.
    pub const fn from_mbps(mbps: u64) -> Self {
        Self(mbps * 1_000_000)
    }

    /// Bits per second.
    pub const fn as_bps(self) -> u64 {
        self.0
    }
}

const RATE: Quantity = Quantity {
    name: "a rate",
    units: &[
        ("bit", 1),
        ("kbit", 1_000),
        ("Mbit", 1_000_000),
        ("Gbit", 1_000_000_000),
        ("Tbit", 1_000_000_000_000),
    ],
    base: "1 bit/s",
    usual: ["kbit", "Mbit"],
    advise: advise_rate,
};

fn advise_rate(number: &str, unit: &str) -> Option<String> {
    let prefix = |rest: &str| match rest {
        "" => Some(""),
        "k" | "K" => Some("k"),
        "m" | "M" => Some("M"),
        "g" | "G" => Some("G"),
        "t" | "T" => Some("T"),
        _ => None,
    };
    for suffix in ["B/s", "Bps", "Byte/s", "byte/s", "B"] {
        if let Some(prefix) = unit.strip_suffix(suffix).and_then(prefix) {
            return Some(format!("rates count bits: 1{prefix}B/s is 8{prefix}bit"));
        }
    }
    for suffix in ["bps", "b/s", "bit/s", "bits/s", "b", "bits", ""] {
        if let Some(prefix) = unit.strip_suffix(suffix).and_then(prefix) {
            return Some(format!("write `{number}{prefix}bit`"));
        }
    }
    same_but_case(unit, RATE.units).map(|unit| format!("write `{number}{unit}`"))
}

const DISPLAY_UNITS: &[(&str, u64)] = &[
    ("bit", 1),
    ("kbit", 1_000),
    ("Mbit", 1_000_000),
    ("Gbit", 1_000_000_000),
    ("Tbit", 1_000_000_000_000),
];

impl FromStr for Rate {
    type Err = UnitError;
    /// Reads `9600bit`, `128kbit`, `2.5Mbit`, `10Gbit`: bits per second, powers of ten.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        match RATE.parse(text)? {
            0 => Err(UnitError {
                value: text.to_owned(),
                problem: "not a rate: it is zero".into(),
                allowed: RATE.allowed(),
                hint: Some("a link that carries nothing is down: use an event with `down: true`".into()),
            }),
            bps => Ok(Self(bps)),
        }
    }
}

/// Exact, and readable by [`Rate::from_str`]: `2.5Mbit`.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Quantity::write(self.0, DISPLAY_UNITS, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rates_read_exactly() {
        for (text, bps) in [
            ("1bit", 1),
            ("10Mbit", 10_000_000),
            ("2.5Mbit", 2_500_000),
            ("1Gbit", 1_000_000_000),
        ] {
            assert_eq!(text.parse(), Ok(Rate(bps)));
            assert_eq!(Rate(bps).to_string(), text);
        }
    }

    #[test]
    fn bad_rates_say_what_is_meant() {
        let hint = |text: &str| text.parse::<Rate>().unwrap_err().hint.unwrap();
        assert_eq!(hint("2.5Mbps"), "write `2.5Mbit`");
        assert_eq!(hint("100"), "write `100kbit` or `100Mbit`");
        assert_eq!(hint("100M"), "write `100Mbit`");
        assert_eq!(hint("10mbit"), "write `10Mbit`");
        assert_eq!(hint("12MB/s"), "rates count bits: 1MB/s is 8Mbit");
        assert_eq!(hint("1GBps"), "rates count bits: 1GB/s is 8Gbit");
        assert_eq!(
            hint("0bit"),
            "a link that carries nothing is down: use an event with `down: true`"
        );
        let error = "100".parse::<Rate>().unwrap_err().to_string();
        assert_eq!(
            error,
            "`100` is not a rate: the unit is missing; allowed: a number with one of bit, kbit, Mbit, Gbit, Tbit; \
             hint: write `100kbit` or `100Mbit`"
        );
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(bps in 1u64..1_000_000_000_000_000_000) {
            prop_assert_eq!(Rate(bps).to_string().parse::<Rate>().unwrap(), Rate(bps));
        }
    }
}
