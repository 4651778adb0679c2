//! Virtual time in nanoseconds: a point ([`SimTime`]) and a span ([`SimDuration`]), kept apart by type.

use std::fmt;
use std::ops::{Add, AddAssign, Div, Mul, Sub, SubAssign};
use std::str::FromStr;

use crate::units::{Quantity, UnitError, same_but_case};

/// A point of virtual time: nanoseconds since the start of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SimTime(pub u64);

/// A span of virtual time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SimDuration(pub u64);

impl SimTime {
    /// The start of the run.
    pub const ZERO: Self = Self(0);
    /// Later than anything that happens; "never".
    pub const MAX: Self = Self(u64::MAX);

    /// The point `ns` nanoseconds after the start.
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns)
    }

    /// Nanoseconds since the start.
    pub const fn as_ns(self) -> u64 {
        self.0
    }

    /// The time that has passed since `earlier`. Panics when `earlier` is later.
    #[track_caller]
    pub fn since(self, earlier: Self) -> SimDuration {
        match self.0.checked_sub(earlier.0) {
            Some(ns) => SimDuration(ns),
            None => panic!("time went back: {self} is before {earlier}"),
        }
    }

    /// This point plus a span, or `None` where that is beyond the end of time.
    pub const fn checked_add(self, span: SimDuration) -> Option<Self> {
        match self.0.checked_add(span.0) {
            Some(ns) => Some(Self(ns)),
            None => None,
        }
    }

    /// This point plus a span; [`SimTime::MAX`] where that is beyond the end of time.
    pub const fn saturating_add(self, span: SimDuration) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl SimDuration {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// The longest span.
    pub const MAX: Self = Self(u64::MAX);

    /// A span of `ns` nanoseconds.
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns)
    }

    /// A span of `us` microseconds. Panics beyond 584 years.
    pub const fn from_us(us: u64) -> Self {
        Self::scaled(us, 1_000)
    }

    /// A span of `ms` milliseconds. Panics beyond 584 years.
    pub const fn from_ms(ms: u64) -> Self {
        Self::scaled(ms, 1_000_000)
    }

    /// A span of `s` seconds. Panics beyond 584 years.
    pub const fn from_s(s: u64) -> Self {
        Self::scaled(s, 1_000_000_000)
    }

    const fn scaled(count: u64, ns: u64) -> Self {
        match count.checked_mul(ns) {
            Some(ns) => Self(ns),
            None => panic!("duration overflows 584 years"),
        }
    }

    /// The span in nanoseconds.
    pub const fn as_ns(self) -> u64 {
        self.0
    }

    /// The span in seconds, rounded to the nearest double: for reports, never for the simulation.
    pub fn as_seconds_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// This span less another; zero where the other is longer.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// The sum, or `None` where it does not fit.
    pub const fn checked_add(self, other: Self) -> Option<Self> {
        match self.0.checked_add(other.0) {
            Some(ns) => Some(Self(ns)),
            None => None,
        }
    }
}

impl Add<SimDuration> for SimTime {
    type Output = Self;
    #[track_caller]
    fn add(self, span: SimDuration) -> Self {
        self.checked_add(span)
            .unwrap_or_else(|| panic!("virtual time overflows: {self} + {span}"))
    }
}

impl AddAssign<SimDuration> for SimTime {
    #[track_caller]
    fn add_assign(&mut self, span: SimDuration) {
        *self = *self + span;
    }
}

impl Sub<SimDuration> for SimTime {
    type Output = Self;
    #[track_caller]
    fn sub(self, span: SimDuration) -> Self {
        match self.0.checked_sub(span.0) {
            Some(ns) => Self(ns),
            None => panic!("time before the start of the run: {self} - {span}"),
        }
    }
}

impl Sub for SimTime {
    type Output = SimDuration;
    #[track_caller]
    fn sub(self, earlier: Self) -> SimDuration {
        self.since(earlier)
    }
}

impl Add for SimDuration {
    type Output = Self;
    #[track_caller]
    fn add(self, other: Self) -> Self {
        self.checked_add(other)
            .unwrap_or_else(|| panic!("duration overflows: {self} + {other}"))
    }
}

impl AddAssign for SimDuration {
    #[track_caller]
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for SimDuration {
    type Output = Self;
    #[track_caller]
    fn sub(self, other: Self) -> Self {
        match self.0.checked_sub(other.0) {
            Some(ns) => Self(ns),
            None => panic!("negative duration: {self} - {other}"),
        }
    }
}

impl SubAssign for SimDuration {
    #[track_caller]
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl Mul<u64> for SimDuration {
    type Output = Self;
    #[track_caller]
    fn mul(self, times: u64) -> Self {
        match self.0.checked_mul(times) {
            Some(ns) => Self(ns),
            None => panic!("duration overflows: {self} * {times}"),
        }
    }
}

impl Div<u64> for SimDuration {
    type Output = Self;
    fn div(self, by: u64) -> Self {
        Self(self.0 / by)
    }
}

const DURATION: Quantity = Quantity {
    name: "a duration",
    units: &[
        ("ns", 1),
        ("us", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("min", 60_000_000_000),
        ("h", 3_600_000_000_000),
    ],
    base: "1 ns",
    usual: ["ms", "s"],
    advise: advise_duration,
};

fn advise_duration(number: &str, unit: &str) -> Option<String> {
    let meant = match unit {
        "m" => {
            return Some(format!(
                "write `{number}min` for minutes or `{number}ms` for milliseconds"
            ));
        }
        "µs" | "μs" | "usec" => "us",
        "msec" => "ms",
        "sec" | "secs" | "second" | "seconds" => "s",
        "mins" | "minute" | "minutes" => "min",
        "hour" | "hours" => "h",
        _ => same_but_case(unit, DURATION.units)?,
    };
    Some(format!("write `{number}{meant}`"))
}

const DISPLAY_UNITS: &[(&str, u64)] = &[("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];

impl FromStr for SimDuration {
    type Err = UnitError;
    /// Reads `250ns`, `1.5us`, `5ms`, `60s`, `2min`, `1h`.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        DURATION.parse(text).map(Self)
    }
}

/// Exact, and readable by [`SimDuration::from_str`]: `0s`, `1.5us`, `90s`.
impl fmt::Display for SimDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0s");
        }
        Quantity::write(self.0, DISPLAY_UNITS, f)
    }
}

/// Seconds since the start with all nine digits: `12.000000250s`.
impl fmt::Display for SimTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ns(text: &str) -> Result<u64, String> {
        text.parse::<SimDuration>()
            .map(SimDuration::as_ns)
            .map_err(|e| e.to_string())
    }

    #[test]
    fn durations_read_exactly() {
        assert_eq!(ns("5ms"), Ok(5_000_000));
        assert_eq!(ns("1.5us"), Ok(1_500));
        assert_eq!(ns("2min"), Ok(120_000_000_000));
        assert_eq!(ns("0.000000001s"), Ok(1));
        assert_eq!(ns("1h"), Ok(3_600_000_000_000));
        assert_eq!(ns("0s"), Ok(0));
    }

    #[test]
    fn bad_durations_say_value_allowed_and_hint() {
        let allowed = "allowed: a number with one of ns, us, ms, s, min, h";
        let cases = [
            (
                "5",
                format!("`5` is not a duration: the unit is missing; {allowed}; hint: write `5ms` or `5s`"),
            ),
            (
                "5 ms",
                format!(
                    "`5 ms` is not a duration: ` ms` is not a unit of it; {allowed}; hint: write `5ms`, without the space"
                ),
            ),
            (
                "3m",
                format!(
                    "`3m` is not a duration: `m` is not a unit of it; {allowed}; hint: write `3min` for minutes or `3ms` for milliseconds"
                ),
            ),
            (
                "3sec",
                format!("`3sec` is not a duration: `sec` is not a unit of it; {allowed}; hint: write `3s`"),
            ),
            (
                "7MS",
                format!("`7MS` is not a duration: `MS` is not a unit of it; {allowed}; hint: write `7ms`"),
            ),
            (
                "-1s",
                format!("`-1s` is not a duration: it has a sign; {allowed}; hint: write `1s`"),
            ),
            (
                "soon",
                format!("`soon` is not a duration: it does not start with a number; {allowed}"),
            ),
            (
                "1.5ns",
                format!("`1.5ns` is not a duration: it is not a whole multiple of 1 ns; {allowed}"),
            ),
            (
                "1..5s",
                format!("`1..5s` is not a duration: `1..5` is not a decimal number of at most 18 digits; {allowed}"),
            ),
            (
                "999999999999h",
                format!("`999999999999h` is not a duration: it is too large; {allowed}"),
            ),
            (
                "",
                format!("`` is not a duration: it does not start with a number; {allowed}"),
            ),
        ];
        for (text, error) in cases {
            assert_eq!(ns(text), Err(error));
        }
    }

    #[test]
    fn display_is_short_and_exact() {
        for (ns, text) in [
            (0, "0s"),
            (1, "1ns"),
            (1_500, "1.5us"),
            (10_000_000, "10ms"),
            (90_000_000_000, "90s"),
        ] {
            assert_eq!(SimDuration(ns).to_string(), text);
        }
        assert_eq!(SimTime(12_000_000_250).to_string(), "12.000000250s");
    }

    #[test]
    #[should_panic(expected = "time went back: 0.000000001s is before 0.000000002s")]
    fn time_does_not_go_back() {
        let _ = SimTime(1) - SimTime(2);
    }

    #[test]
    #[should_panic(expected = "virtual time overflows: 18446744073.709551615s + 1ns")]
    fn time_does_not_wrap() {
        let _ = SimTime::MAX + SimDuration(1);
    }

    #[test]
    #[should_panic(expected = "negative duration: 1ns - 2ns")]
    fn durations_are_not_negative() {
        let _ = SimDuration(1) - SimDuration(2);
    }

    proptest! {
        // The parser takes at most 18 digits, which is 31 years in ns.
        #[test]
        fn what_is_printed_reads_back(ns in 0u64..1_000_000_000_000_000_000) {
            let duration = SimDuration(ns);
            prop_assert_eq!(duration.to_string().parse::<SimDuration>().unwrap(), duration);
        }
    }
}
