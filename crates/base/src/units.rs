//! Numbers with a unit, as people write them in a scenario: `1.5ms`, `10Mbit`, `64KiB`, `0.01%`.
//!
//! A value is a decimal number directly followed by its unit. Reading is exact: a value that is not a whole number
//! of the base unit (ns, bit/s, byte, 1e-9) is refused instead of rounded.

use std::fmt;

/// Why a text is not a quantity of some kind: the value, what is allowed, and where possible what was meant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct UnitError {
    /// The text that was refused, as it was written.
    pub value: String,
    /// What is wrong with it, for instance "not a duration: the unit is missing".
    pub problem: String,
    /// What is accepted, for instance "a number with one of ns, us, ms, s, min, h".
    pub allowed: String,
    /// A correction to try.
    pub hint: Option<String>,
}

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is {}; allowed: {}", self.value, self.problem, self.allowed)?;
        match &self.hint {
            Some(hint) => write!(f, "; hint: {hint}"),
            None => Ok(()),
        }
    }
}

/// A kind of quantity and the units it may be written in.
pub(crate) struct Quantity {
    /// With its article: "a duration".
    pub name: &'static str,
    /// Unit and how many base units it is, in ascending order; the first list entry is not special.
    pub units: &'static [(&'static str, u128)],
    /// What one base unit is, for the error about a value that is too fine: "1 ns".
    pub base: &'static str,
    /// Two units to propose where none is given.
    pub usual: [&'static str; 2],
    /// A correction for a unit that is not in the list: the number, then the unit.
    pub advise: fn(&str, &str) -> Option<String>,
}

impl Quantity {
    /// Reads `text` as a whole number of base units.
    pub fn parse(&self, text: &str) -> Result<u64, UnitError> {
        let fail = |problem: String, hint: Option<String>| UnitError {
            value: text.to_owned(),
            problem: format!("not {}: {problem}", self.name),
            allowed: self.allowed(),
            hint,
        };
        if let Some(rest) = text.strip_prefix(['-', '+']) {
            let hint = (!rest.is_empty()).then(|| format!("write `{rest}`"));
            return Err(fail("it has a sign".into(), hint));
        }
        let split = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        if number.is_empty() {
            return Err(fail("it does not start with a number".into(), None));
        }
        let Some((mantissa, decimals)) = decimal(number) else {
            return Err(fail(
                format!("`{number}` is not a decimal number of at most 18 digits"),
                None,
            ));
        };
        if unit.is_empty() {
            let [a, b] = self.usual;
            return Err(fail(
                "the unit is missing".into(),
                Some(format!("write `{number}{a}` or `{number}{b}`")),
            ));
        }
        let Some((_, scale)) = self.units.iter().find(|(name, _)| *name == unit) else {
            let hint = match unit.trim_start() {
                trimmed if trimmed.len() < unit.len() => Some(format!("write `{number}{trimmed}`, without the space")),
                _ => (self.advise)(number, unit),
            };
            return Err(fail(format!("`{unit}` is not a unit of it"), hint));
        };
        // At most 1e18 * 8.64e13 < 2^127: never wraps.
        let scaled = mantissa * scale;
        let divisor = 10u128.pow(decimals);
        if !scaled.is_multiple_of(divisor) {
            return Err(fail(format!("it is not a whole multiple of {}", self.base), None));
        }
        u64::try_from(scaled / divisor).map_err(|_| fail("it is too large".into(), None))
    }

    /// What is accepted, as a sentence part.
    pub fn allowed(&self) -> String {
        let names: Vec<&str> = self.units.iter().map(|(name, _)| *name).collect();
        format!("a number with one of {}", names.join(", "))
    }

    /// Writes `value` base units in the largest of the units `choice` that is not larger than the value, exactly.
    pub fn write(value: u64, choice: &[(&str, u64)], f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fit = choice
            .iter()
            .rev()
            .find(|(_, scale)| value >= *scale)
            .or(choice.first());
        let (unit, scale) = fit.expect("a quantity has units");
        f.write_str(&exact_decimal(value, *scale))?;
        f.write_str(unit)
    }
}

/// `value / scale` in decimal without trailing zeros; `scale` must be a power of ten.
fn exact_decimal(value: u64, scale: u64) -> String {
    let (whole, rest) = (value / scale, value % scale);
    if rest == 0 {
        return whole.to_string();
    }
    let width = scale.ilog10() as usize;
    let digits = format!("{rest:0width$}");
    format!("{whole}.{}", digits.trim_end_matches('0'))
}

/// A decimal number as (digits, how many of them are behind the point).
fn decimal(number: &str) -> Option<(u128, u32)> {
    let (whole, fraction) = match number.split_once('.') {
        Some((whole, fraction)) if !whole.is_empty() && !fraction.is_empty() => (whole, fraction),
        Some(_) => return None,
        None => (number, ""),
    };
    if whole.len() + fraction.len() > 18 || fraction.contains('.') {
        return None;
    }
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    Some((digits, fraction.len() as u32))
}

/// The unit of `units` that `unit` equals but for upper and lower case.
pub(crate) fn same_but_case(unit: &str, units: &[(&'static str, u128)]) -> Option<&'static str> {
    units
        .iter()
        .map(|(name, _)| *name)
        .find(|name| name.eq_ignore_ascii_case(unit))
}
