//! How late a run that goes with the wall clock is: for each kernel and window, when its events began against when they were due.

use std::cell::Cell;
use std::rc::Rc;

use windtunnel_base::SimDuration;
use windtunnel_process::trap::host_clock_ns;
use windtunnel_results::{LatenessSummary, NodeLateness};

use crate::pacer::Pacer;

/// Each power of two is cut into so many buckets, as a power of two: no value is off by more than an eighth.
const PARTS_BITS: u32 = 3;
const PARTS: usize = 1 << PARTS_BITS;
/// Enough for all of u64.
const BUCKETS: usize = (64 - PARTS_BITS as usize + 1) * PARTS;

/// Counts of values by size; its own size is fixed.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Box<[u64; BUCKETS]>,
    total: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: Box::new([0; BUCKETS]),
            total: 0,
            max: 0,
        }
    }
}

impl Histogram {
    /// Adds a value.
    pub fn add(&mut self, value: u64) {
        self.counts[bucket(value)] += 1;
        self.total += 1;
        self.max = self.max.max(value);
    }

    /// Adds all of another one.
    pub fn merge(&mut self, other: &Self) {
        for (own, others) in self.counts.iter_mut().zip(other.counts.iter()) {
            *own += others;
        }
        self.total += other.total;
        self.max = self.max.max(other.max);
    }

    /// A value that so many of a hundred do not exceed, at most an eighth too large.
    pub fn percentile(&self, percent: u64) -> u64 {
        let rank = (u128::from(self.total) * u128::from(percent)).div_ceil(100).max(1);
        let mut below = 0;
        for (index, count) in self.counts.iter().enumerate() {
            below += u128::from(*count);
            if below >= rank {
                return last_of(index).min(self.max);
            }
        }
        self.max
    }

    /// Largest value of each bucket that has any, and how many it has.
    fn rows(&self) -> Vec<[u64; 2]> {
        let rows = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        rows.map(|(index, count)| [last_of(index), *count]).collect()
    }
}

fn bucket(value: u64) -> usize {
    if value < PARTS as u64 {
        return value as usize;
    }
    let exponent = value.ilog2();
    let part = (value >> (exponent - PARTS_BITS)) as usize & (PARTS - 1);
    ((exponent - PARTS_BITS + 1) as usize) * PARTS + part
}

/// The largest value of a bucket.
fn last_of(index: usize) -> u64 {
    if index < PARTS {
        return index as u64;
    }
    let shift = (index / PARTS - 1) as u32;
    let first = ((PARTS + index % PARTS) as u64) << shift;
    first + ((1 << shift) - 1)
}

/// The wall clock of a run, shared by its kernels; none: it has not begun.
pub type Clock = Rc<Cell<Option<Pacer>>>;

/// How late one kernel is.
#[derive(Debug)]
pub struct Lateness {
    clock: Clock,
    limit_ns: u64,
    late: u64,
    histogram: Histogram,
}

impl Lateness {
    /// Nothing has happened. Beyond `limit_ns` it is late.
    pub fn new(clock: Clock, limit_ns: u64) -> Self {
        Self {
            clock,
            limit_ns,
            late: 0,
            histogram: Histogram::default(),
        }
    }

    /// Events that were due at `at_ns` begin now.
    pub fn note(&mut self, at_ns: u64) {
        let Some(pacer) = self.clock.get() else { return };
        let late_ns = pacer.virtual_ns(host_clock_ns()).saturating_sub(at_ns);
        self.late += u64::from(late_ns > self.limit_ns);
        self.histogram.add(late_ns);
    }
}

/// How late a run was, and what it gave up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slips {
    /// How often it stopped catching up.
    pub times: u64,
    /// By how much virtual time is behind the wall clock in total, ns.
    pub lost_ns: u64,
}

/// What the kernels found, by name.
///
/// Each has the number of times that its programs made way by the wall clock as well.
pub fn summary<'a>(
    nodes: impl Iterator<Item = (&'a str, &'a Lateness, u64)>,
    limit_ns: u64,
    slips: Slips,
) -> LatenessSummary {
    let (mut all, mut late, mut preempted, mut rows) = (Histogram::default(), 0, 0, Vec::new());
    for (node, lateness, times) in nodes {
        preempted += times;
        let histogram = &lateness.histogram;
        all.merge(histogram);
        late += lateness.late;
        rows.push(NodeLateness {
            node: node.to_owned(),
            windows: histogram.total,
            late_windows: lateness.late,
            p50_ns: histogram.percentile(50),
            p99_ns: histogram.percentile(99),
            max_ns: histogram.max,
            preempted_by_wall_clock: times,
        });
    }
    LatenessSummary {
        limit_ns,
        windows: all.total,
        late_windows: late,
        p50_ns: all.percentile(50),
        p99_ns: all.percentile(99),
        max_ns: all.max,
        slips: slips.times,
        slipped_ns: slips.lost_ns,
        preempted_by_wall_clock: preempted,
        histogram: all.rows(),
        nodes: rows,
    }
}

/// What a user has to know of it, with a word for each.
pub fn warnings(lateness: &LatenessSummary) -> Vec<(&'static str, String)> {
    let mut warnings = Vec::new();
    if lateness.late_windows > 0 {
        let text = format!(
            "{} of {} windows began more than {} after their time, one of them {}: this host could not keep up with the wall clock",
            lateness.late_windows,
            lateness.windows,
            SimDuration::from_ns(lateness.limit_ns),
            SimDuration::from_ns(lateness.max_ns)
        );
        warnings.push(("late", text));
    }
    if lateness.slips > 0 {
        let text = format!(
            "the run was too late to catch up {} times (stopped, suspended, or too slow): virtual time is {} behind the wall clock",
            lateness.slips,
            SimDuration::from_ns(lateness.slipped_ns)
        );
        warnings.push(("clock_slipped", text));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_one_another_and_hold_what_belongs_there() {
        for value in (0..5_000).chain([1 << 20, (1 << 40) + 12_345, u64::MAX - 1, u64::MAX]) {
            let index = bucket(value);
            let first = if index == 0 { 0 } else { last_of(index - 1) + 1 };
            assert!(first <= value && value <= last_of(index), "{value} in {index}");
            assert!(last_of(index) - first <= value / 8, "{value}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_are_of_all_values() {
        let (mut one, mut other) = (Histogram::default(), Histogram::default());
        assert_eq!(one.percentile(50), 0);
        for value in 1..=98 {
            one.add(value * 1_000);
        }
        other.add(7_000_000);
        other.add(9_000_000);
        one.merge(&other);
        let median = one.percentile(50);
        assert!((50_000..=56_250).contains(&median), "{median}");
        let high = one.percentile(99);
        assert!((7_000_000..=7_875_000).contains(&high), "{high}");
        assert_eq!((one.percentile(100), one.max), (9_000_000, 9_000_000));
        assert_eq!(one.rows().iter().map(|row| row[1]).sum::<u64>(), 100);
    }
}
