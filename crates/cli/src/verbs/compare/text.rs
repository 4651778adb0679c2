//! A comparison for people.

use std::fmt::Write;
use windtunnel_traces::{Comparison, Difference, Differences, FlowPair, MatchedBy, Pair, Sent, SentRatio, Unmatched};

/// So many connections are told one by one; those that differ come first.
const SHOWN_MAX: usize = 10;
/// So many names without a partner are listed.
const NAMES_MAX: usize = 20;
/// Widths of the columns.
const LABEL: usize = 38;
const VALUE: usize = 14;

/// A few lines for each connection.
pub fn render(comparison: &Comparison) -> String {
    let mut text = String::new();
    for (letter, source) in [("A", &comparison.a), ("B", &comparison.b)] {
        let counts = &source.counts;
        put(
            &mut text,
            format_args!(
                "{letter}: {}: {} in {}",
                source.path,
                amount(counts.frames, "frame"),
                amount(counts.captures, "capture")
            ),
        );
    }
    let mut pairs: Vec<&Pair> = comparison.connections.iter().collect();
    pairs.sort_by_key(|pair| pair.equal);
    for pair in pairs.iter().take(SHOWN_MAX) {
        connection(&mut text, pair);
    }
    if pairs.len() > SHOWN_MAX {
        let rest = &pairs[SHOWN_MAX..];
        let differ = rest.iter().filter(|pair| !pair.equal).count();
        put(
            &mut text,
            format_args!(
                "\nand {}, {differ} of which differ; --json has all, --connection chooses",
                amount(rest.len() as u64, "connection")
            ),
        );
    }
    for flow in comparison.flows.iter().take(SHOWN_MAX) {
        of_flow(&mut text, flow);
    }
    if comparison.flows.len() > SHOWN_MAX {
        let rest = &comparison.flows[SHOWN_MAX..];
        let differ = rest.iter().filter(|pair| !pair.equal).count();
        put(
            &mut text,
            format_args!("\nand {}, {differ} of which differ", amount(rest.len() as u64, "flow")),
        );
    }
    of_unmatched(&mut text, &comparison.unmatched);
    put(&mut text, format_args!("\n{}", verdict(comparison)));
    text
}

fn put(text: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("writing to a String");
}

fn amount(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn verdict(comparison: &Comparison) -> String {
    let count = |all: u64, equal: u64, what: &str| match all {
        0 => None,
        _ => Some(format!("{equal} of {} equal", amount(all, what))),
    };
    let connections = &comparison.connections;
    let flows = &comparison.flows;
    let equal = connections.iter().filter(|pair| pair.equal).count();
    let flows_equal = flows.iter().filter(|pair| pair.equal).count();
    let unmatched = comparison.unmatched.a.len() + comparison.unmatched.b.len();
    let mut parts: Vec<String> = [
        count(connections.len() as u64, equal as u64, "TCP connection"),
        count(flows.len() as u64, flows_equal as u64, "flow"),
    ]
    .into_iter()
    .flatten()
    .collect();
    if unmatched > 0 {
        parts.push(format!("{unmatched} without a partner"));
    }
    let ignored: Vec<&str> = comparison.tolerances.ignored.iter().map(|field| field.name()).collect();
    if !ignored.is_empty() {
        parts.push(format!("ignored: {}", ignored.join(", ")));
    }
    let word = if comparison.equal { "equal" } else { "different" };
    format!("{word}: {}", parts.join("; "))
}

fn how(by: MatchedBy) -> &'static str {
    match by {
        MatchedBy::Ports => "",
        MatchedBy::Addresses => " (matched by addresses, server port and order)",
        MatchedBy::ServerPort => " (matched by server port and order)",
    }
}

fn heading(text: &mut String, protocol: &str, a: (&str, &str), b: (&str, &str), by: MatchedBy, equal: bool) {
    let word = if equal { "equal" } else { "different" };
    put(text, format_args!("\n{protocol} {}: {word}{}", a.0, how(by)));
    if a.0 != b.0 {
        put(text, format_args!("  in B: {}", b.0));
    }
    if a.1 == b.1 {
        put(text, format_args!("  seen at {}", a.1));
    } else {
        put(text, format_args!("  seen at {} (A), {} (B)", a.1, b.1));
    }
}

fn connection(text: &mut String, pair: &Pair) {
    let (a, b) = (&pair.a, &pair.b);
    heading(
        text,
        "tcp",
        (&a.name, &a.seen_at),
        (&b.name, &b.seen_at),
        pair.matched_by,
        pair.equal,
    );
    put(
        text,
        format_args!(
            "  identical prefix: {} of {} packets (A), {} (B)",
            pair.identical_prefix, a.packets, b.packets
        ),
    );
    if let Some(first) = &pair.first_difference {
        difference(text, first);
    }
    for (who, counted) in [("client", &pair.client), ("server", &pair.server)] {
        put(text, format_args!("  {who}'s packets: {}", counts(counted)));
    }
    if pair.payloads_not_compared > 0 {
        put(
            text,
            format_args!(
                "  {} cut off in one of the captures, not compared",
                amount(pair.payloads_not_compared, "payload")
            ),
        );
    }
    if let Some(times) = &pair.time_difference_ms {
        put(
            text,
            format_args!(
                "  time in B less that in A, {}, ms: min {}, median {}, mean {}, p95 {}, p99 {}, max {}, sd {}",
                amount(times.count, "packet"),
                number(times.min),
                number(times.median),
                number(times.mean),
                number(times.p95),
                number(times.p99),
                number(times.max),
                number(times.sd)
            ),
        );
    }
    put(
        text,
        format_args!("  {:LABEL$}{:>VALUE$}{:>VALUE$}{:>9}", "", "A", "B", "B/A"),
    );
    row(
        text,
        "duration, ms",
        Some(a.metrics.duration_ms),
        Some(b.metrics.duration_ms),
        pair.ratio.duration,
    );
    row(
        text,
        "handshake, ms",
        a.metrics.handshake_ms,
        b.metrics.handshake_ms,
        pair.ratio.handshake,
    );
    sent(text, "client", &a.metrics.client, &b.metrics.client, &pair.ratio.client);
    sent(text, "server", &a.metrics.server, &b.metrics.server, &pair.ratio.server);
}

fn difference(text: &mut String, first: &Difference) {
    let place = if first.packet_a == first.packet_b {
        format!("packet {}", first.packet_a)
    } else {
        format!("packet {} (A), {} (B)", first.packet_a, first.packet_b)
    };
    put(text, format_args!("  first difference: {place}: {}", first.text));
    for (letter, shown) in [("A", &first.a), ("B", &first.b)] {
        match shown {
            Some(shown) => {
                let again = if shown.retransmission { " (retransmission)" } else { "" };
                put(
                    text,
                    format_args!("    {letter} at {} ms: {}{again}", number(shown.time_ms), shown.text),
                );
            }
            None => put(text, format_args!("    {letter}: nothing")),
        }
    }
    // Of one that the other has not, all is said.
    if first.a.is_some() && first.b.is_some() {
        for field in &first.fields {
            put(
                text,
                format_args!("    {}: A has {}, B has {}", field.field.name(), field.a, field.b),
            );
        }
    }
}

fn counts(counted: &Differences) -> String {
    let mut line = format!("{} identical, {} different", counted.identical, counted.different);
    if !counted.fields.is_empty() {
        let fields: Vec<String> = counted
            .fields
            .iter()
            .map(|(name, count)| format!("{name} {count}"))
            .collect();
        let _ = write!(line, " ({})", fields.join(", "));
    }
    let _ = write!(
        line,
        ", {} missing in B, {} additional in B",
        counted.missing, counted.additional
    );
    if counted.moved > 0 {
        let _ = write!(line, ", {} in another order", counted.moved);
    }
    line
}

fn sent(text: &mut String, who: &str, a: &Sent, b: &Sent, ratio: &SentRatio) {
    let mut values = |label: &str, a: Option<f64>, b: Option<f64>, ratio: Option<f64>| {
        if a.is_some() || b.is_some() {
            row(text, &format!("{who}: {label}"), a, b, ratio);
        }
    };
    values(
        "goodput, Mb/s",
        a.goodput_bps.map(|bps| bps / 1e6),
        b.goodput_bps.map(|bps| bps / 1e6),
        ratio.goodput,
    );
    let (rtt_a, rtt_b) = (a.rtt_ms.as_ref(), b.rtt_ms.as_ref());
    values(
        "mean round-trip time, ms",
        rtt_a.map(|rtt| rtt.mean),
        rtt_b.map(|rtt| rtt.mean),
        ratio.rtt_mean,
    );
    values(
        "median round-trip time, ms",
        rtt_a.map(|rtt| rtt.median),
        rtt_b.map(|rtt| rtt.median),
        ratio.rtt_median,
    );
    if a.payload_bytes > 0 || b.payload_bytes > 0 {
        values(
            "retransmissions",
            Some(a.retransmissions as f64),
            Some(b.retransmissions as f64),
            ratio.retransmissions,
        );
    }
}

fn row(text: &mut String, label: &str, a: Option<f64>, b: Option<f64>, ratio: Option<f64>) {
    let show = |value: Option<f64>| value.map_or("-".into(), number);
    let ratio = ratio.map_or("-".into(), |ratio| format!("{ratio:.4}"));
    put(
        text,
        format_args!("  {label:LABEL$}{:>VALUE$}{:>VALUE$}{ratio:>9}", show(a), show(b)),
    );
}

/// Whole numbers as such, others to the microsecond or so.
fn number(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        return format!("{value:.0}");
    }
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn of_flow(text: &mut String, pair: &FlowPair) {
    let (a, b) = (&pair.a, &pair.b);
    heading(
        text,
        &pair.protocol,
        (&a.name, &a.seen_at),
        (&b.name, &b.seen_at),
        pair.matched_by,
        pair.equal,
    );
    put(
        text,
        format_args!("  {:LABEL$}{:>VALUE$}{:>VALUE$}{:>9}", "", "A", "B", "B/A"),
    );
    let mut values = |label: &str, a: Option<f64>, b: Option<f64>| {
        row(text, label, a, b, windtunnel_traces::ratio(a, b));
    };
    for (side, who) in ["client", "server"].into_iter().enumerate() {
        values(
            &format!("{who}: packets"),
            Some(a.packets[side] as f64),
            Some(b.packets[side] as f64),
        );
        values(
            &format!("{who}: bytes"),
            Some(a.bytes[side] as f64),
            Some(b.bytes[side] as f64),
        );
    }
    if a.rtt_ms.is_some() || b.rtt_ms.is_some() {
        let mut times = |label: &str, of: fn(&windtunnel_traces::PingTimes) -> f64| {
            let label = format!("round-trip time, {label}, ms");
            values(&label, a.rtt_ms.as_ref().map(of), b.rtt_ms.as_ref().map(of));
        };
        times("min", |rtt| rtt.min);
        times("avg", |rtt| rtt.avg);
        times("max", |rtt| rtt.max);
        times("mdev", |rtt| rtt.mdev);
    }
}

fn of_unmatched(text: &mut String, unmatched: &Unmatched) {
    for (letter, names) in [("A", &unmatched.a), ("B", &unmatched.b)] {
        if names.is_empty() {
            continue;
        }
        put(text, format_args!("\nonly in {letter}: {}", names.len()));
        for name in names.iter().take(NAMES_MAX) {
            put(text, format_args!("  {name}"));
        }
        if names.len() > NAMES_MAX {
            put(
                text,
                format_args!("  and {} more; --json has all", names.len() - NAMES_MAX),
            );
        }
    }
}
