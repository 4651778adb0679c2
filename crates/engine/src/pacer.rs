//! Ties virtual time to the wall clock while somebody watches.

use std::time::{Duration, Instant};

/// How far a run may fall behind the wall clock before it gives up catching up.
const LAG_MAX: Duration = Duration::from_millis(100);

/// A pair of equal times.
#[derive(Clone, Copy, Debug)]
pub struct Pacer {
    wall: Instant,
    virtual_ns: u64,
}

impl Pacer {
    /// It is `virtual_ns` now.
    pub fn new(wall: Instant, virtual_ns: u64) -> Self {
        Self { wall, virtual_ns }
    }

    /// The virtual time to be reached at `wall`, ns.
    pub fn virtual_ns(&self, wall: Instant) -> u64 {
        let passed = wall.saturating_duration_since(self.wall);
        self.virtual_ns.saturating_add(passed.as_nanos() as u64)
    }

    /// How long to wait at `wall` for virtual time `at_ns`.
    pub fn wait_for(&self, at_ns: u64, wall: Instant) -> Duration {
        Duration::from_nanos(at_ns.saturating_sub(self.virtual_ns(wall)))
    }

    /// The run is only at `at_ns`: if that is too far behind, time goes on from there.
    pub fn fall_behind(&mut self, at_ns: u64, wall: Instant) {
        let lag_ns = self.virtual_ns(wall).saturating_sub(at_ns);
        if lag_ns > LAG_MAX.as_nanos() as u64 {
            *self = Self::new(wall, at_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_time_goes_with_the_wall_clock_and_does_not_catch_up_for_long() {
        let start = Instant::now();
        let mut pacer = Pacer::new(start, 5_000);
        let later = start + Duration::from_millis(300);
        assert_eq!(pacer.virtual_ns(later), 300_005_000);
        assert_eq!(pacer.wait_for(300_006_000, later), Duration::from_micros(1));
        assert_eq!(pacer.wait_for(1, later), Duration::ZERO);
        pacer.fall_behind(250_000_000, later);
        assert_eq!(pacer.virtual_ns(later), 300_005_000, "a little late is made up for");
        pacer.fall_behind(100_000_000, later);
        assert_eq!(pacer.virtual_ns(later), 100_000_000);
    }
}
