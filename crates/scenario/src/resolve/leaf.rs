//! Reads single values, each with an error that says what is allowed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::str::FromStr;

use ipnet::IpNet;
use windtunnel_base::{SimDuration, SimTime, UnitError};

use crate::error::Problem;
use crate::model::User;
use crate::text::Text;

/// A value with a unit.
pub(super) fn quantity<T: FromStr<Err = UnitError>>(text: &Text) -> Result<T, Problem> {
    text.value.parse().map_err(|error| Problem::unit(text.at, error))
}

/// A value with a unit, if it is there.
pub(super) fn optional<T: FromStr<Err = UnitError>>(text: &Option<Text>) -> Result<Option<T>, Problem> {
    text.as_ref().map(quantity).transpose()
}

/// A point of time.
pub(super) fn time(text: &Text) -> Result<SimTime, Problem> {
    quantity::<SimDuration>(text).map(|span| SimTime::ZERO + span)
}

/// A whole number in `range`; `what` with its article ("an MTU").
pub(super) fn number(text: &Text, what: &str, range: RangeInclusive<u64>) -> Result<u64, Problem> {
    let value: Option<u64> = text.value.parse().ok();
    value.filter(|value| range.contains(value)).ok_or_else(|| {
        Problem::new(text.at, format!("`{}` is not {what}", text.value)).allowed(format!(
            "a whole number from {} to {}",
            range.start(),
            range.end()
        ))
    })
}

/// One of a few words; its position among them.
pub(super) fn one_of(text: &Text, what: &str, words: &[&str]) -> Result<usize, Problem> {
    words.iter().position(|word| *word == text.value).ok_or_else(|| {
        Problem::new(text.at, format!("`{}` is not {what}", text.value)).known(&text.value, words.iter().copied())
    })
}

/// An address of an interface, with its prefix length.
pub(super) fn interface_address(text: &Text) -> Result<IpNet, Problem> {
    let value = &text.value;
    let allowed = "an address with prefix length, for instance 10.0.0.1/24 or fd00::1/64";
    let problem =
        |what: &str| Problem::new(text.at, format!("`{value}` is not an interface address{what}")).allowed(allowed);
    if let Ok(plain) = value.parse::<IpAddr>() {
        let prefix = if plain.is_ipv4() { 24 } else { 64 };
        return Err(problem(": the prefix length is missing").hint(format!("write `{value}/{prefix}`")));
    }
    let net: IpNet = value.parse().map_err(|_| problem(""))?;
    // The parser of networks takes 010 for 10; C libraries take it for 8.
    if value
        .split('/')
        .next()
        .is_none_or(|address| address.parse::<IpAddr>().is_err())
    {
        return Err(problem(": it has leading zeros").hint(format!("write `{net}`")));
    }
    let of_others = [IpAddr::V4(Ipv4Addr::BROADCAST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    if net.addr().is_unspecified() || net.addr().is_multicast() || of_others.contains(&net.addr()) {
        return Err(problem(": no interface can have it"));
    }
    if let IpNet::V4(v4) = net
        && v4.prefix_len() < 31
    {
        let first = u32::from(v4.network()) + 1;
        let hint = format!("write `{}/{}`", Ipv4Addr::from(first), v4.prefix_len());
        if v4.addr() == v4.network() {
            return Err(problem(": it names the network itself").hint(hint));
        }
        if v4.addr() == v4.broadcast() {
            return Err(problem(": it is the network's broadcast address").hint(hint));
        }
    }
    Ok(net)
}

/// An Ethernet address of one station.
pub(super) fn mac(text: &Text) -> Result<[u8; 6], Problem> {
    let bytes: Option<Vec<u8>> = text
        .value
        .split(':')
        .map(|part| u8::from_str_radix(part, 16).ok().filter(|_| part.len() == 2))
        .collect();
    let mac: Option<[u8; 6]> = bytes.and_then(|bytes| bytes.try_into().ok());
    mac.filter(|mac| mac[0] & 1 == 0 && *mac != [0; 6]).ok_or_else(|| {
        Problem::new(
            text.at,
            format!("`{}` is not the Ethernet address of an interface", text.value),
        )
        .allowed("six bytes in hexadecimal, the first one even, for instance 02:00:00:00:00:01")
    })
}

/// Signals by name: the x86-64 numbers of Linux.
const SIGNALS: &[(&str, i32)] = &[
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ABRT", 6),
    ("KILL", 9),
    ("USR1", 10),
    ("SEGV", 11),
    ("USR2", 12),
    ("PIPE", 13),
    ("ALRM", 14),
    ("TERM", 15),
    ("CONT", 18),
    ("STOP", 19),
];

/// A signal by name, with or without SIG, or by number.
pub(super) fn signal(text: &Text) -> Result<i32, Problem> {
    let name = text.value.strip_prefix("SIG").unwrap_or(&text.value);
    let by_name = SIGNALS
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, number)| *number);
    let by_number = || name.parse().ok().filter(|number| (1..=64).contains(number));
    by_name.or_else(by_number).ok_or_else(|| {
        let names: Vec<&str> = SIGNALS.iter().map(|(known, _)| *known).collect();
        let problem = Problem::new(text.at, format!("`{}` is not a signal", text.value));
        let problem = problem.known(&name.to_ascii_uppercase(), names.iter().copied());
        problem.allowed(format!("a number from 1 to 64, or one of {}", names.join(", ")))
    })
}

/// Whom a program runs as.
pub(super) fn user(text: &Text) -> Result<User, Problem> {
    let ids = match text.value.as_str() {
        "root" => Some((0, 0)),
        "nobody" => Some((65_534, 65_534)),
        value => match value.split_once(':') {
            Some((uid, gid)) => uid.parse().ok().zip(gid.parse().ok()),
            None => value.parse().ok().map(|id| (id, id)),
        },
    };
    // To Linux the highest id means "leave it as it is", which would be root's.
    let ids = ids.filter(|(uid, gid)| *uid != u32::MAX && *gid != u32::MAX);
    ids.map(|(uid, gid)| User { uid, gid }).ok_or_else(|| {
        Problem::new(text.at, format!("`{}` is not a user", text.value))
            .allowed("root, nobody, a user id, or user and group id as in 1000:1000")
    })
}

/// A date, or date and time in UTC, as seconds since 1970.
pub(super) fn epoch(text: &Text) -> Result<u64, Problem> {
    let seconds = epoch_seconds(&text.value).ok_or_else(|| {
        Problem::new(text.at, format!("`{}` is not a date from 1970 on", text.value))
            .allowed("a date, or date and time in UTC: 2026-01-01 or 2026-01-01T12:00:00Z")
    })?;
    if seconds == 0 {
        let problem = Problem::new(text.at, "nodes boot a second before, which would be before 1970");
        return Err(problem.allowed("1970-01-01T00:00:01Z and later"));
    }
    Ok(seconds)
}

fn epoch_seconds(text: &str) -> Option<u64> {
    let (date, time) = match text.split_once('T') {
        Some((date, time)) => (date, time.strip_suffix('Z')?),
        None => (text, "00:00:00"),
    };
    let parts = |text: &str, by: char, widths: [usize; 3]| -> Option<[u64; 3]> {
        let parts: Vec<&str> = text.split(by).collect();
        let fits = parts.len() == 3 && parts.iter().zip(widths).all(|(part, width)| part.len() == width);
        let digits = text.chars().all(|c| c.is_ascii_digit() || c == by);
        let numbers: Vec<u64> = if fits && digits {
            parts.iter().flat_map(|part| part.parse()).collect()
        } else {
            vec![]
        };
        numbers.try_into().ok()
    };
    let [year, month, day] = parts(date, '-', [4, 2, 2])?;
    let [hour, minute, second] = parts(time, ':', [2, 2, 2])?;
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let february = if leap(year) { 29 } else { 28 };
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let length = *lengths.get((month as usize).checked_sub(1)?)?;
    if year < 1970 || day == 0 || day > length || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let years: u64 = (1970..year).map(|year| 365 + u64::from(leap(year))).sum();
    let days = years + lengths[..month as usize - 1].iter().sum::<u64>() + day - 1;
    Some(days * 86_400 + hour * 3_600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::epoch_seconds;

    // Expected values: `date -u -d ... +%s`.
    #[test]
    fn dates_count_from_1970() {
        assert_eq!(epoch_seconds("1970-01-01"), Some(0));
        assert_eq!(epoch_seconds("2026-01-01"), Some(1_767_225_600));
        assert_eq!(epoch_seconds("2024-02-29T23:59:59Z"), Some(1_709_251_199));
        for bad in [
            "2026-02-29",
            "2026-13-01",
            "2026-1-1",
            "1969-12-31",
            "2026-01-01T24:00:00Z",
            "2026-01-01T12:00:00",
        ] {
            assert_eq!(epoch_seconds(bad), None, "{bad}");
        }
    }
}
