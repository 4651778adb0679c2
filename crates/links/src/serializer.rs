//! Time on the wire: frames follow each other at exactly the rate, without rounding errors that add up.

use windtunnel_base::{Rate, SimDuration, SimTime};

/// Bytes of wire time a frame costs besides its own: FCS 4, preamble and start 8, gap between frames 12 (IEEE 802.3).
pub const ETHERNET_OVERHEAD_BYTES: u32 = 24;

/// Shorter frames are padded to this many bytes, without FCS (IEEE 802.3).
pub const MIN_FRAME_BYTES: u32 = 60;

const NS_PER_S: u128 = 1_000_000_000;

/// Bytes of wire time of a frame of `frame_bytes` (Ethernet header to end of payload, no FCS).
pub const fn wire_bytes(frame_bytes: u32) -> u32 {
    let padded = if frame_bytes < MIN_FRAME_BYTES {
        MIN_FRAME_BYTES
    } else {
        frame_bytes
    };
    padded + ETHERNET_OVERHEAD_BYTES
}

/// Time of `wire_bytes` at `rate`, rounded down to a nanosecond.
pub(crate) fn serialization_time(wire_bytes: u32, rate: Rate) -> SimDuration {
    let ns = u128::from(wire_bytes) * 8 * NS_PER_S / u128::from(rate.as_bps());
    SimDuration(u64::try_from(ns).expect("a frame takes longer than 584 years"))
}

/// Time of `wire_bytes` and a `carried` remainder at `rate`: whole nanoseconds (none: they do not fit) and what is left.
#[inline]
fn division(wire_bytes: u32, carried: u64, rate: Rate) -> (Option<u64>, u64) {
    let bps = rate.as_bps();
    let work = u128::from(wire_bytes) * 8 * NS_PER_S + u128::from(carried);
    // A division by 128 bits is many times as slow, and hardly ever needed.
    match u64::try_from(work) {
        Ok(work) => (Some(work / bps), work % bps),
        Err(_) => (
            u64::try_from(work / u128::from(bps)).ok(),
            (work % u128::from(bps)) as u64,
        ),
    }
}

/// The sender's end of the wire. Knows when it is free again, to a fraction of a nanosecond.
#[derive(Clone, Debug, Default)]
pub(crate) struct Serializer {
    /// When the last accepted frame has left, rounded down.
    free_ns: u64,
    /// What that rounding took off, in units of 1 ns / rate; below the rate in bit/s.
    remainder: u64,
}

/// When a frame is on the wire.
pub(crate) struct Slot {
    /// Its first bit leaves.
    pub start: SimTime,
    /// Its last bit, and the gap after it, has left; rounded up.
    pub end: SimTime,
}

impl Serializer {
    /// When the wire is free for a next frame, rounded up.
    pub fn free_at(&self) -> SimTime {
        SimTime(self.free_ns + u64::from(self.remainder > 0))
    }

    /// Puts a frame behind those accepted before. One that comes at the rounded-up end of the last follows it without a gap:
    /// the sender could not have been told any earlier.
    pub fn take(&mut self, now: SimTime, wire_bytes: u32, rate: Rate) -> Slot {
        let start = now.max(self.free_at());
        if now > self.free_at() {
            self.free_ns = now.as_ns();
            self.remainder = 0;
        }
        let (ns, remainder) = division(wire_bytes, self.remainder, rate);
        let free_ns = ns.and_then(|ns| self.free_ns.checked_add(ns));
        self.free_ns =
            free_ns.unwrap_or_else(|| panic!("virtual time overflows: a frame at {now} and {rate} never leaves"));
        self.remainder = remainder;
        Slot {
            start,
            end: self.free_at(),
        }
    }

    /// Call before the rate changes: fractions count in units of the old one.
    pub fn round_up(&mut self) {
        self.free_ns = self.free_at().as_ns();
        self.remainder = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn wire_bytes_follow_ieee_802_3() {
        assert_eq!(wire_bytes(1514), 1538);
        assert_eq!(wire_bytes(60), 84);
        assert_eq!(wire_bytes(42), 84);
    }

    proptest! {
        // N frames end at exactly the ceiling of the ideal total, whether they were offered together or one by one.
        #[test]
        fn frames_in_a_row_never_drift(
            len in 1u32..9_001,
            bps in 1_000u64..400_000_000_000,
            count in 1u32..3_000,
            start in 0u64..1_000_000_000_000,
            one_by_one: bool,
        ) {
            let mut wire = Serializer::default();
            let mut now = SimTime(start);
            for i in 1..=count {
                let slot = wire.take(now, wire_bytes(len), Rate(bps));
                let ideal_bits = u128::from(wire_bytes(len)) * 8 * u128::from(i);
                let ideal_ns = (ideal_bits * 1_000_000_000).div_ceil(u128::from(bps));
                prop_assert_eq!(u128::from(slot.end.as_ns() - start), ideal_ns);
                if one_by_one {
                    now = slot.end;
                }
            }
        }

        #[test]
        fn a_pause_starts_afresh(bps in 1_000u64..400_000_000_000, pause in 1u64..1_000_000) {
            let mut wire = Serializer::default();
            let first = wire.take(SimTime(0), 100, Rate(bps)).end;
            let now = first + SimDuration(pause);
            let second = wire.take(now, 100, Rate(bps));
            prop_assert_eq!(second.start, now);
            prop_assert_eq!(second.end - now, first - SimTime(0));
        }
    }
}
