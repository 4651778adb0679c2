//! A run that goes with the wall clock: it sleeps until something is due or comes from outside, and knows how late it is.

use std::os::fd::AsFd;

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::prctl;
use nix::sys::time::{TimeSpec, TimeValLike};
use windtunnel_process::trap::host_clock_ns;

use super::{Live, Network, SLICE_NS};
use crate::error::EngineError;
use crate::lateness::{Clock, Slips};
use crate::pacer::Pacer;
use crate::slices::Slicer;
use crate::urgency::Urgency;

/// How long to sleep at most before looking at the stop flag again, ns, where nobody rings a bell then.
const NAP_NS: u64 = 50_000_000;
/// The same where somebody does: nothing depends on it.
const LONG_NAP_NS: u64 = 60_000_000_000;

/// How a run goes with the wall clock.
#[derive(Debug)]
pub struct WallClock {
    /// What kernels see of it.
    pub clock: Clock,
    /// Until then the run goes as fast as it can, ns.
    pub live_at_ns: u64,
    /// The last part of a wait, which is spent awake, ns.
    pub spin_ns: u64,
    /// How often it gave up catching up.
    pub slips: Slips,
    /// Has programs make way that compute; none: they do not.
    pub slicer: Option<Slicer>,
    /// Goes before ordinary programs of the host; none: it is one.
    pub urgency: Option<Urgency>,
    /// Whether the host was asked for exact sleep.
    prepared: bool,
    /// When the run was made, ns of the host's clock.
    made_ns: u64,
    /// The run has gone live, so long after it was made, ns, and nobody has heard of it.
    went_live: Option<u64>,
}

impl WallClock {
    /// It has not begun, and does not until `live_at_ns`. The last `spin_ns` of each wait are spent awake.
    pub fn new(live_at_ns: u64, spin_ns: u64) -> Self {
        Self {
            live_at_ns,
            clock: Clock::default(),
            spin_ns,
            slips: Slips::default(),
            slicer: None,
            urgency: None,
            prepared: false,
            made_ns: host_clock_ns(),
            went_live: None,
        }
    }
}

impl Live {
    /// As [`Live::attend`], in real time. What was there to be heard has been heard.
    pub(super) fn attend_realtime(
        &mut self,
        network: &mut Network<'_>,
        due_ns: u64,
    ) -> Result<Option<u64>, EngineError> {
        if self.pacer.is_none() {
            // Programs that start at once are loaded before the clock begins.
            let begins_ns = self.wall.live_at_ns.max(1);
            if network.windows.earliest_ns().min(due_ns) < begins_ns {
                if self.wall.live_at_ns == 0 {
                    self.begin_turn(host_clock_ns());
                }
                return Ok(Some(due_ns.min(begins_ns)));
            }
            if self.wall.live_at_ns > 0 {
                self.go_live(network);
                return Ok(None);
            }
        }
        let wall_ns = host_clock_ns();
        let mut pacer = *self
            .pacer
            .get_or_insert_with(|| Pacer::new(wall_ns, network.windows.done_ns()));
        let mut now_ns = pacer.virtual_ns(wall_ns);
        if network.outside.is_some() {
            self.look_outside(network, now_ns, due_ns)?;
        }
        let next_ns = network.windows.earliest_ns().min(due_ns);
        if next_ns > now_ns {
            let outside_ns = network
                .outside
                .as_ref()
                .map_or(u64::MAX, |outside| outside.next_ns(now_ns));
            self.sleep(pacer, next_ns.min(outside_ns), network)?;
            return Ok(None);
        }
        if let Some(lost_ns) = pacer.fall_behind(next_ns, wall_ns) {
            self.wall.slips.times += 1;
            self.wall.slips.lost_ns += lost_ns;
            now_ns = pacer.virtual_ns(wall_ns);
        }
        self.pacer = Some(pacer);
        self.wall.clock.set(self.pacer);
        self.begin_turn(wall_ns);
        if network.outside.is_some() {
            // Nothing leaves early, and what comes in comes after what has happened.
            return Ok(Some(due_ns.min(now_ns.saturating_add(1))));
        }
        // Windows that nobody watches are the same as without a clock, so that the run ends at the same time.
        let slice_ns = network.windows.earliest_ns().saturating_add(SLICE_NS);
        Ok(Some(if self.sessions.is_empty() {
            due_ns
        } else {
            due_ns.min(slice_ns)
        }))
    }

    /// Sends what is due at `now_ns` by the wall clock, and lets come in what waits outside. What is sent and what comes is told apart
    /// by what has happened before it, so that a replay finds the same.
    fn look_outside(&mut self, network: &mut Network<'_>, now_ns: u64, due_ns: u64) -> Result<(), EngineError> {
        // Measurements at times when nothing happened are of what was before that.
        let quiet_ns = now_ns.min(due_ns).min(network.windows.earliest_ns());
        let measure_ns = network.catch_up(quiet_ns)?;
        let Some(outside) = &mut network.outside else {
            return Ok(());
        };
        network
            .windows
            .pass(now_ns.saturating_add(1).min(due_ns).min(measure_ns));
        outside.send(network.windows.done_ns());
        // A run that is late has not measured all that is due, so what comes in came before.
        let at_ns = now_ns.min(due_ns).min(measure_ns - 1).max(network.windows.done_ns());
        if at_ns < measure_ns {
            outside.receive(network.nodes, network.windows, at_ns)?;
        }
        Ok(())
    }

    /// The wall clock begins, after a while in virtual time.
    fn go_live(&mut self, network: &mut Network<'_>) {
        // Time is as far, though nothing may have happened just before.
        network.windows.pass(self.wall.live_at_ns);
        if let Some(outside) = &mut network.outside {
            outside.open_up();
        }
        let wall_ns = host_clock_ns();
        self.wall.went_live = Some(wall_ns - self.wall.made_ns);
        self.pacer = Some(Pacer::new(wall_ns, network.windows.done_ns()));
    }

    /// The run has just gone live: at which virtual time, and how long after its start by the host's clock, ns.
    #[inline]
    pub fn take_went_live(&mut self) -> Option<(u64, u64)> {
        let after_ns = self.wall.went_live.take()?;
        Some((self.wall.live_at_ns, after_ns))
    }

    fn begin_turn(&mut self, wall_ns: u64) {
        if let Some(urgency) = self.wall.urgency.as_mut().filter(|_| self.pacer.is_some()) {
            urgency.begin_turn(wall_ns);
        }
        if let Some(slicer) = &mut self.wall.slicer {
            slicer.begin_turn(self.pacer, wall_ns);
        }
    }

    /// Sleeps until virtual time `until_ns`, or until something comes.
    fn sleep(&mut self, pacer: Pacer, until_ns: u64, network: &Network<'_>) -> Result<(), EngineError> {
        if !self.wall.prepared {
            self.wall.prepared = true;
            // Without it timers are 50 us late; that they may be is all that is lost where the host refuses.
            let _ = prctl::set_timerslack(1);
        }
        if let Some(slicer) = &mut self.wall.slicer {
            slicer.rest();
        }
        let wall_ns = host_clock_ns();
        let now_ns = pacer.virtual_ns(wall_ns);
        let wait_ns = until_ns.saturating_sub(now_ns);
        if wait_ns > self.wall.spin_ns {
            let nap_ns = if self.bell.is_some() { LONG_NAP_NS } else { NAP_NS };
            if let Some(urgency) = &self.wall.urgency {
                urgency.rest();
            }
            self.doze(network, now_ns, (wait_ns - self.wall.spin_ns).min(nap_ns))?;
            if let Some(urgency) = &mut self.wall.urgency {
                urgency.slept(host_clock_ns() - wall_ns);
            }
        } else {
            while pacer.virtual_ns(host_clock_ns()) < until_ns {
                std::hint::spin_loop();
            }
        }
        Ok(())
    }

    /// Sleeps for so long, or until the bell rings or a port has something.
    fn doze(&self, network: &Network<'_>, now_ns: u64, wait_ns: u64) -> Result<(), EngineError> {
        if let Some(bell) = &self.bell {
            bell.listen();
            // What was left before nobody listened.
            if self.inbox.as_ref().is_some_and(|inbox| inbox.has_something()) || self.stop_flag_is_set() {
                bell.rest();
                return Ok(());
            }
        }
        let ports = network.outside.iter().flat_map(|outside| outside.poll_fds(now_ns));
        let bell = self.bell.iter().map(|bell| bell.as_fd());
        let mut fds: Vec<PollFd<'_>> = bell.chain(ports).map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        let timeout = TimeSpec::nanoseconds(i64::try_from(wait_ns).unwrap_or(i64::MAX));
        // A signal ends the sleep, as it should.
        let _ = ppoll(&mut fds, Some(timeout), None);
        if let Some(bell) = &self.bell {
            bell.rest();
        }
        Ok(())
    }
}
