//! Measurements at intervals of virtual time. Between two windows they look at what links know, and ask kernels for samples, which
//! change nothing: a run with them is the run without, and they may begin while it goes on.

use windtunnel_base::{SimTime, result_files};
use windtunnel_control::Measured;
use windtunnel_kernel::abi::{MptcpSample, QdiscSample, TcpSample};
use windtunnel_results::{LinkInterval, OutDir, Series};
use windtunnel_scenario::Measures;

use crate::cables::{Cables, Counts, Direction};
use crate::error::EngineError;
use crate::node::{Body, Node};
use crate::samples;
use crate::window::{Step, Windows};

const BITS: u128 = 8;
const NS_PER_S: u128 = 1_000_000_000;

/// The measurements of a run.
#[derive(Debug)]
pub struct Measure {
    series: Vec<Due>,
    /// Conversations are looked for since the start.
    has_flows: bool,
}

/// A series, and when it goes on.
#[derive(Debug)]
struct Due {
    what: What,
    series: Series,
    interval_ns: u64,
    /// When the last interval ended, ns.
    done_ns: u64,
}

/// What a series holds. The vectors are empty between two samples.
#[derive(Debug)]
enum What {
    /// What each direction had counted at the last time, in the order of [`Cables::each`].
    Links(Vec<Counts>),
    Tcp(Vec<TcpSample>),
    Mptcp(Vec<MptcpSample>),
    Qdiscs(Vec<QdiscSample>),
}

impl Measure {
    /// Whether conversations were looked for, too.
    pub fn has_flows(&self) -> bool {
        self.has_flows
    }

    /// What `measures` asks for; nothing if it asks for nothing.
    ///
    /// # Errors
    /// When a file cannot be made.
    pub fn new(measures: &Measures, out: &OutDir, cables: &Cables<'_>) -> Result<Option<Self>, EngineError> {
        let wanted = [
            (Measured::Links, measures.links),
            (Measured::Tcp, measures.tcp),
            (Measured::Mptcp, measures.mptcp),
            (Measured::Qdiscs, measures.qdiscs),
        ];
        let mut measure = Self {
            series: Vec::new(),
            has_flows: measures.links.is_some(),
        };
        for (what, interval) in wanted {
            if let Some(interval) = interval {
                measure
                    .series
                    .push(Due::new(what, out, cables.count(), interval.as_ns())?);
            }
        }
        Ok((!measure.series.is_empty()).then_some(measure))
    }

    /// Whether this is among what is measured.
    pub fn has(&self, what: Measured) -> bool {
        self.series.iter().any(|due| due.what.name() == what)
    }

    /// Begins to measure something in the middle of a run, at `at_ns`. It must not be measured yet.
    ///
    /// # Errors
    /// When a file cannot be made.
    pub fn start(
        this: &mut Option<Self>,
        (what, interval_ns): (Measured, u64),
        out: &OutDir,
        nodes: &mut [Node],
        cables: &mut Cables<'_>,
        at_ns: u64,
    ) -> Result<(), EngineError> {
        let none = Self {
            series: Vec::new(),
            has_flows: false,
        };
        let measure = this.get_or_insert(none);
        let mut due = Due::new(what, out, cables.count(), interval_ns)?;
        due.done_ns = at_ns;
        if let What::Links(before) = &mut due.what {
            let mut before = before.iter_mut();
            cables.each(nodes, at_ns, |direction| {
                direction.link.take_longest_wait_ns();
                *before.next().expect("links stay as many") = direction.counts;
                Ok::<_, EngineError>(())
            })?;
        }
        measure.series.push(due);
        Ok(())
    }

    /// Takes all that is due at `at_ns` or before, given that all has happened that is due sooner, and nothing at `at_ns`.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn catch_up(&mut self, nodes: &mut [Node], cables: &mut Cables<'_>, at_ns: u64) -> Result<(), EngineError> {
        while self.next_ns() <= at_ns {
            self.take(nodes, cables, self.next_ns(), false)?;
        }
        Ok(())
    }

    /// Hands a series to the host as far as it goes: file, its length in bytes, and until when it is complete, ns. None: it is
    /// not measured.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn so_far(&mut self, what: Measured) -> Result<Option<(&'static str, u64, u64)>, EngineError> {
        let Some(due) = self.series.iter_mut().find(|due| due.what.name() == what) else {
            return Ok(None);
        };
        let file = match what {
            Measured::Links => result_files::LINKS,
            Measured::Tcp => result_files::TCP,
            Measured::Mptcp => result_files::MPTCP,
            Measured::Qdiscs => result_files::QDISCS,
        };
        Ok(Some((file, due.series.flushed_bytes()?, due.done_ns)))
    }

    /// Runs one window as [`Windows::step`] does, in parts that end where measurements are due. The parts together are the window:
    /// whether the run goes on after it does not depend on measurements.
    ///
    /// # Errors
    /// As [`Windows::step`], and when a measurement cannot be written.
    pub fn step(
        &mut self,
        nodes: &mut [Node],
        windows: &mut Windows<Body>,
        cables: &mut Cables<'_>,
        lookahead_ns: u64,
        limit_ns: u64,
    ) -> Result<Step, EngineError> {
        let start_ns = windows.earliest_ns();
        // Until then nothing happens. A run that waits for its visitors has no limit: there is nothing to measure, either.
        let quiet_ns = start_ns.min(limit_ns);
        while self.next_ns() <= quiet_ns && quiet_ns < u64::MAX {
            self.take(nodes, cables, self.next_ns(), false)?;
        }
        if start_ns >= limit_ns {
            return Ok(Step::Idle);
        }
        let end_ns = start_ns.saturating_add(lookahead_ns.max(1)).min(limit_ns);
        while self.next_ns() < end_ns {
            let at_ns = self.next_ns();
            windows.step(nodes, lookahead_ns, at_ns)?;
            self.take(nodes, cables, at_ns, false)?;
        }
        windows.step(nodes, lookahead_ns, end_ns)?;
        windows.pass(end_ns);
        Ok(Step::Ran(start_ns, end_ns))
    }

    /// When the next one is due, ns.
    pub fn next_ns(&self) -> u64 {
        self.series.iter().map(Due::next_ns).min().unwrap_or(u64::MAX)
    }

    /// All that was due before `at_ns` has happened: takes what is due, or, at the end of the run, everything.
    ///
    /// # Errors
    /// When it cannot be written.
    fn take(&mut self, nodes: &mut [Node], cables: &mut Cables<'_>, at_ns: u64, end: bool) -> Result<(), EngineError> {
        let due = |series: &&mut Due| series.next_ns() == at_ns || end && series.done_ns < at_ns;
        for series in self.series.iter_mut().filter(due) {
            series.take(nodes, cables, at_ns)?;
        }
        Ok(())
    }

    /// The run is over at `at_ns`: the last interval, which may be shorter.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(&mut self, nodes: &mut [Node], cables: &mut Cables<'_>, at_ns: u64) -> Result<(), EngineError> {
        self.take(nodes, cables, at_ns, true)?;
        for due in &mut self.series {
            due.series.flush()?;
        }
        Ok(())
    }
}

impl What {
    fn name(&self) -> Measured {
        match self {
            Self::Links(_) => Measured::Links,
            Self::Tcp(_) => Measured::Tcp,
            Self::Mptcp(_) => Measured::Mptcp,
            Self::Qdiscs(_) => Measured::Qdiscs,
        }
    }
}

impl Due {
    /// A series that begins at time 0, in a run with so many directions of links.
    ///
    /// # Errors
    /// When its file cannot be made.
    fn new(what: Measured, out: &OutDir, directions: usize, interval_ns: u64) -> Result<Self, EngineError> {
        let (what, series) = match what {
            Measured::Links => {
                let before = vec![Counts::default(); directions];
                (What::Links(before), out.link_series()?)
            }
            Measured::Tcp => (What::Tcp(Vec::new()), out.tcp_series()?),
            Measured::Mptcp => (What::Mptcp(Vec::new()), out.mptcp_series()?),
            Measured::Qdiscs => (What::Qdiscs(Vec::new()), out.qdisc_series()?),
        };
        Ok(Self {
            what,
            series,
            interval_ns,
            done_ns: 0,
        })
    }

    /// When it is due, ns.
    fn next_ns(&self) -> u64 {
        self.done_ns.saturating_add(self.interval_ns)
    }

    /// Writes down what there is at `at_ns`.
    ///
    /// # Errors
    /// When it cannot be written.
    fn take(&mut self, nodes: &mut [Node], cables: &mut Cables<'_>, at_ns: u64) -> Result<(), EngineError> {
        let span_ns = at_ns - self.done_ns;
        let series = &mut self.series;
        match &mut self.what {
            What::Links(totals) => take_links(series, totals, nodes, cables, (at_ns, span_ns))?,
            What::Tcp(records) => {
                for node in nodes {
                    node.sample(records)?;
                    records.sort_by_key(|record| samples::order(&record.ends));
                    let lines = records
                        .iter()
                        .map(|record| samples::tcp_line(at_ns, node.name(), record));
                    lines.into_iter().try_for_each(|line| series.add(&line))?;
                }
                records.clear();
            }
            What::Mptcp(records) => {
                for node in nodes {
                    node.sample(records)?;
                    records.sort_by_key(|record| samples::order(&record.ends));
                    let lines = records
                        .iter()
                        .map(|record| samples::mptcp_line(at_ns, node.name(), record));
                    lines.into_iter().try_for_each(|line| series.add(&line))?;
                }
                records.clear();
            }
            What::Qdiscs(records) => {
                for node in nodes {
                    node.sample(records)?;
                    let lines = records
                        .iter()
                        .map(|record| samples::qdisc_line(at_ns, node.name(), record));
                    lines.into_iter().try_for_each(|line| series.add(&line))?;
                }
                records.clear();
            }
        }
        self.done_ns = at_ns;
        Ok(())
    }
}

/// Writes down what links did in the `span_ns` before `at_ns`.
///
/// # Errors
/// When it cannot be written.
fn take_links(
    series: &mut Series,
    totals: &mut [Counts],
    nodes: &mut [Node],
    cables: &mut Cables<'_>,
    (at_ns, span_ns): (u64, u64),
) -> Result<(), EngineError> {
    let mut totals = totals.iter_mut();
    cables.each(nodes, at_ns, |direction| {
        let Direction {
            names,
            link,
            counts: now,
            ..
        } = direction;
        let before = totals.next().expect("links stay as many");
        let backlog = link.backlog(SimTime(at_ns));
        let max_wait_ns = link.take_longest_wait_ns();
        let delivered_bytes = now.delivered.1 - before.delivered.1;
        let bits = u128::from(delivered_bytes) * BITS * NS_PER_S;
        let waits = (now.waited_ns - before.waited_ns).checked_div(now.sent - before.sent);
        series.add(&LinkInterval {
            time_ns: at_ns,
            from: names.0,
            to: names.1,
            offered_frames: now.offered.0 - before.offered.0,
            offered_bytes: now.offered.1 - before.offered.1,
            delivered_frames: now.delivered.0 - before.delivered.0,
            delivered_bytes,
            lost_frames: now.lost - before.lost,
            queue_full_frames: now.queue_full - before.queue_full,
            link_down_frames: now.link_down - before.link_down,
            rx_ring_full_frames: now.ring_full - before.ring_full,
            throughput_bps: bits.checked_div(span_ns.into()).map_or(0, |bps| bps as u64),
            mean_wait_ns: waits.unwrap_or(0),
            max_wait_ns,
            wait_ns: backlog.wait_ns,
            queue_frames: backlog.frames,
            queue_bytes: backlog.bytes,
        })?;
        *before = now;
        Ok(())
    })
}
