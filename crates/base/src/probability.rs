//! Probabilities in parts per billion, so that they are exact and a draw is one comparison of integers.

use std::fmt;
use std::str::FromStr;

use crate::units::{Quantity, UnitError};

/// A probability in parts per billion: 0 is never, 1,000,000,000 is always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Probability(u32);

impl Probability {
    /// It never happens.
    pub const NEVER: Self = Self(0);
    /// It always happens.
    pub const ALWAYS: Self = Self(1_000_000_000);

    /// A probability of `ppb` parts per billion. Panics above one billion.
    pub const fn from_ppb(ppb: u32) -> Self {
        assert!(ppb <= 1_000_000_000, "a probability is at most 1,000,000,000 ppb");
        Self(ppb)
    }

    /// Parts per billion.
    pub const fn as_ppb(self) -> u32 {
        self.0
    }
}

const PROBABILITY: Quantity = Quantity {
    name: "a probability",
    units: &[("%", 10_000_000), ("ppm", 1_000), ("ppb", 1)],
    base: "1 ppb",
    usual: ["%", "ppm"],
    advise: |number, unit| match unit {
        "percent" | "pct" => Some(format!("write `{number}%`")),
        _ => None,
    },
};

impl FromStr for Probability {
    type Err = UnitError;
    /// Reads `1%`, `0.0000001%` (one part per billion), `10ppm`, `5ppb`.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        match u32::try_from(PROBABILITY.parse(text)?) {
            Ok(ppb) if ppb <= Self::ALWAYS.0 => Ok(Self(ppb)),
            _ => Err(UnitError {
                value: text.to_owned(),
                problem: "not a probability: it is above 100%".into(),
                allowed: format!("0% to 100%, {}", PROBABILITY.allowed()),
                hint: None,
            }),
        }
    }
}

/// In percent, exact, and readable by [`Probability::from_str`]: `0.01%`.
impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Quantity::write(self.0.into(), &[("%", 10_000_000)], f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn probabilities_read_exactly() {
        for (text, ppb) in [
            ("0%", 0),
            ("1%", 10_000_000),
            ("0.01%", 100_000),
            ("0.0000001%", 1),
            ("100%", 1_000_000_000),
        ] {
            assert_eq!(text.parse(), Ok(Probability(ppb)));
            assert_eq!(Probability(ppb).to_string(), text);
        }
        assert_eq!("10ppm".parse(), Ok(Probability(10_000)));
    }

    #[test]
    fn bad_probabilities_are_refused() {
        let text = |text: &str| text.parse::<Probability>().unwrap_err().to_string();
        assert_eq!(
            text("101%"),
            "`101%` is not a probability: it is above 100%; allowed: 0% to 100%, a number with one of %, ppm, ppb"
        );
        assert_eq!(
            text("0.00000001%"),
            "`0.00000001%` is not a probability: it is not a whole multiple of 1 ppb; \
             allowed: a number with one of %, ppm, ppb"
        );
        assert_eq!(
            text("0.1"),
            "`0.1` is not a probability: the unit is missing; allowed: a number with one of %, ppm, ppb; \
             hint: write `0.1%` or `0.1ppm`"
        );
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(ppb in 0u32..=1_000_000_000) {
            let p = Probability::from_ppb(ppb);
            prop_assert_eq!(p.to_string().parse::<Probability>().unwrap(), p);
        }
    }
}
