//! Amounts of data in bytes.

use std::fmt;
use std::str::FromStr;

use crate::units::{Quantity, UnitError, same_but_case};

/// An amount of data in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

impl ByteSize {
    /// `mib` times 1024 * 1024 bytes.
    pub const fn from_mib(mib: u64) -> Self {
        Self(mib << 20)
    }

    /// The amount in bytes.
    pub const fn as_bytes(self) -> u64 {
        self.0
    }
}

const SIZE: Quantity = Quantity {
    name: "a size",
    units: &[
        ("B", 1),
        ("kB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
    ],
    base: "1 byte",
    usual: ["kB", "MiB"],
    advise: advise_size,
};

fn advise_size(number: &str, unit: &str) -> Option<String> {
    let meant = match unit {
        "k" | "K" => return Some(format!("write `{number}kB` (1000) or `{number}KiB` (1024)")),
        "m" | "M" => return Some(format!("write `{number}MB` (1000^2) or `{number}MiB` (1024^2)")),
        "g" | "G" => return Some(format!("write `{number}GB` (1000^3) or `{number}GiB` (1024^3)")),
        "b" | "byte" | "bytes" => "B",
        "bit" | "kbit" | "Mbit" | "Gbit" => return Some("sizes count bytes of 8 bits".into()),
        _ => same_but_case(unit, SIZE.units)?,
    };
    Some(format!("write `{number}{meant}`"))
}

impl FromStr for ByteSize {
    type Err = UnitError;
    /// Reads `1500B`, `64kB` (64,000 bytes), `64KiB` (65,536 bytes), `1.5GB`.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        SIZE.parse(text).map(Self)
    }
}

/// Exact, and readable by [`ByteSize::from_str`]: in the largest unit that divides it, binary ones first.
impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [
            ("GiB", 1 << 30),
            ("MiB", 1 << 20),
            ("KiB", 1 << 10),
            ("GB", 1_000_000_000),
            ("MB", 1_000_000),
            ("kB", 1_000),
        ];
        match units
            .iter()
            .find(|(_, scale)| self.0 > 0 && self.0.is_multiple_of(*scale))
        {
            Some((unit, scale)) => write!(f, "{}{unit}", self.0 / scale),
            None => write!(f, "{}B", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_read_exactly() {
        for (text, bytes) in [
            ("1500B", 1500),
            ("64kB", 64_000),
            ("64KiB", 65_536),
            ("1.5MB", 1_500_000),
            ("0.5KiB", 512),
        ] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)));
        }
        for (bytes, text) in [(0, "0B"), (1501, "1501B"), (64_000, "64kB"), (67_108_864, "64MiB")] {
            assert_eq!(ByteSize(bytes).to_string(), text);
        }
    }

    #[test]
    fn bad_sizes_say_what_is_meant() {
        let hint = |text: &str| text.parse::<ByteSize>().unwrap_err().hint.unwrap();
        assert_eq!(hint("64"), "write `64kB` or `64MiB`");
        assert_eq!(hint("64M"), "write `64MB` (1000^2) or `64MiB` (1024^2)");
        assert_eq!(hint("64KB"), "write `64kB`");
        assert_eq!(hint("64Mbit"), "sizes count bytes of 8 bits");
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(bytes in 0u64..1_000_000_000_000_000_000) {
            prop_assert_eq!(ByteSize(bytes).to_string().parse::<ByteSize>().unwrap(), ByteSize(bytes));
        }
    }
}
