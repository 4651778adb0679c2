//! Ties virtual time to the wall clock: while somebody watches, and in real time.

use std::time::Duration;

/// How far a run may fall behind the wall clock before it gives up catching up, ns.
const LAG_MAX_NS: u64 = 100_000_000;

/// A pair of equal times.
#[derive(Clone, Copy, Debug)]
pub struct Pacer {
    /// On the host's monotonic clock.
    wall_ns: u64,
    virtual_ns: u64,
}

impl Pacer {
    /// It is `virtual_ns` now.
    pub fn new(wall_ns: u64, virtual_ns: u64) -> Self {
        Self { wall_ns, virtual_ns }
    }

    /// The virtual time to be reached at `wall_ns`, ns.
    #[inline]
    pub fn virtual_ns(&self, wall_ns: u64) -> u64 {
        self.virtual_ns.saturating_add(wall_ns.saturating_sub(self.wall_ns))
    }

    /// How long to wait at `wall_ns` for virtual time `at_ns`.
    pub fn wait_for(&self, at_ns: u64, wall_ns: u64) -> Duration {
        Duration::from_nanos(at_ns.saturating_sub(self.virtual_ns(wall_ns)))
    }

    /// The run is only at `at_ns`: if that is too far behind, time goes on from there. How much was given up then, ns.
    pub fn fall_behind(&mut self, at_ns: u64, wall_ns: u64) -> Option<u64> {
        let lag_ns = self.virtual_ns(wall_ns).saturating_sub(at_ns);
        if lag_ns <= LAG_MAX_NS {
            return None;
        }
        *self = Self::new(wall_ns, at_ns);
        Some(lag_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_time_goes_with_the_wall_clock_and_does_not_catch_up_for_long() {
        let mut pacer = Pacer::new(7_000, 5_000);
        let later = 7_000 + 300_000_000;
        assert_eq!(pacer.virtual_ns(later), 300_005_000);
        assert_eq!(pacer.wait_for(300_006_000, later), Duration::from_micros(1));
        assert_eq!(pacer.wait_for(1, later), Duration::ZERO);
        assert_eq!(pacer.fall_behind(250_000_000, later), None);
        assert_eq!(pacer.virtual_ns(later), 300_005_000, "a little late is made up for");
        assert_eq!(pacer.fall_behind(100_000_000, later), Some(200_005_000));
        assert_eq!(pacer.virtual_ns(later), 100_000_000);
        assert_eq!(pacer.virtual_ns(0), 100_000_000, "no clock goes back");
    }
}
