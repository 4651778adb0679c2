//! The interrupts of a NIC that keeps a distance between them, and the receive ring in which frames wait for the next one.
//!
//! The first cause after a quiet time interrupts at once. Those that come before the gap is over, frames that arrive and
//! transmissions that somebody waits for, share the interrupt at its end, as with the throttling registers of real NICs
//! (EITR of Intel's, which drivers/net/ethernet/intel/igb/igb_main.c sets): one for both directions. The kernel is not
//! entered before, so what waits costs next to nothing.

use windtunnel_kernel::{Frame, Moderation};

/// Interrupts of one NIC.
#[derive(Debug, Default)]
pub struct Interrupts {
    /// Frames in the receive ring, in the order of their arrival.
    ring: Vec<Frame>,
    /// A transmission that somebody waits for is done.
    sent: bool,
    /// Time of the last interrupt, ns; none yet.
    last_ns: Option<u64>,
    /// Time of the one that is scheduled, ns.
    due_ns: Option<u64>,
}

/// What becomes of the causes of an interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It comes now.
    Now,
    /// It comes at this time, ns, which has to be scheduled.
    At(u64),
    /// There is no cause, or it is scheduled already.
    Nothing,
}

impl Interrupts {
    /// Whether something waits for one.
    #[inline]
    pub fn is_awaited(&self) -> bool {
        self.sent || !self.ring.is_empty()
    }

    /// Whether one more frame has room in the ring.
    pub fn has_room(&self, terms: &Moderation) -> bool {
        terms.ring == 0 || self.ring.len() < terms.ring as usize
    }

    /// A frame has arrived, for which there is room.
    pub fn arrived(&mut self, frame: Frame) {
        self.ring.push(frame);
    }

    /// A transmission that somebody waits for is done.
    pub fn sent(&mut self) {
        self.sent = true;
    }

    /// When the interrupt for what waits comes; to be asked once all causes of `now_ns` are known.
    pub fn decide(&mut self, now_ns: u64, terms: &Moderation) -> Verdict {
        if !self.is_awaited() {
            return Verdict::Nothing;
        }
        let free_ns = self.last_ns.map_or(0, |last_ns| last_ns.saturating_add(terms.gap_ns));
        let many = terms.frames != 0 && self.ring.len() >= terms.frames as usize;
        if many || free_ns <= now_ns {
            self.last_ns = Some(now_ns);
            self.due_ns = None;
            return Verdict::Now;
        }
        if self.due_ns.replace(free_ns) == Some(free_ns) {
            return Verdict::Nothing;
        }
        Verdict::At(free_ns)
    }

    /// What an interrupt hands over: the frames, and whether a transmission is done.
    pub fn take(&mut self) -> (impl Iterator<Item = Frame>, bool) {
        (self.ring.drain(..), std::mem::take(&mut self.sent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Moderation = Moderation {
        gap_ns: 100,
        frames: 0,
        ring: 3,
    };

    fn arrive(interrupts: &mut Interrupts, now_ns: u64, terms: &Moderation) -> Verdict {
        assert!(interrupts.has_room(terms));
        interrupts.arrived(Frame::new(&[0; 60]));
        interrupts.decide(now_ns, terms)
    }

    #[test]
    fn the_first_frame_after_a_quiet_time_is_not_delayed() {
        let mut interrupts = Interrupts::default();
        for now_ns in [0, 100, 250, 1_000_000] {
            assert_eq!(arrive(&mut interrupts, now_ns, &TERMS), Verdict::Now, "{now_ns}");
            assert_eq!(interrupts.take().0.count(), 1);
        }
    }

    #[test]
    fn what_comes_within_the_gap_shares_the_interrupt_at_its_end() {
        let mut interrupts = Interrupts::default();
        assert_eq!(arrive(&mut interrupts, 7, &TERMS), Verdict::Now);
        let _ = interrupts.take();
        assert_eq!(arrive(&mut interrupts, 8, &TERMS), Verdict::At(107));
        assert_eq!(arrive(&mut interrupts, 9, &TERMS), Verdict::Nothing, "it is scheduled");
        interrupts.sent();
        assert_eq!(interrupts.decide(50, &TERMS), Verdict::Nothing);
        assert_eq!(interrupts.decide(107, &TERMS), Verdict::Now);
        let (frames, sent) = interrupts.take();
        assert_eq!((frames.count(), sent), (2, true));
        assert_eq!(interrupts.decide(107, &TERMS), Verdict::Nothing);
        // The gap counts from the last one.
        assert_eq!(arrive(&mut interrupts, 120, &TERMS), Verdict::At(207));
    }

    #[test]
    fn transmissions_wait_and_count_like_frames() {
        let mut interrupts = Interrupts::default();
        interrupts.sent();
        assert_eq!(interrupts.decide(0, &TERMS), Verdict::Now);
        let (frames, sent) = interrupts.take();
        assert_eq!((frames.count(), sent), (0, true));
        assert_eq!(arrive(&mut interrupts, 99, &TERMS), Verdict::At(100));
    }

    #[test]
    fn many_frames_do_not_wait() {
        let mut interrupts = Interrupts::default();
        let terms = Moderation { frames: 2, ..TERMS };
        assert_eq!(arrive(&mut interrupts, 0, &terms), Verdict::Now);
        let _ = interrupts.take();
        assert_eq!(arrive(&mut interrupts, 1, &terms), Verdict::At(100));
        assert_eq!(arrive(&mut interrupts, 2, &terms), Verdict::Now);
        assert_eq!(interrupts.take().0.count(), 2);
        assert_eq!(arrive(&mut interrupts, 3, &terms), Verdict::At(102));
    }

    #[test]
    fn the_ring_has_an_end() {
        let mut interrupts = Interrupts::default();
        assert_eq!(arrive(&mut interrupts, 0, &TERMS), Verdict::Now);
        let _ = interrupts.take();
        for now_ns in 1..=3 {
            arrive(&mut interrupts, now_ns, &TERMS);
        }
        assert!(!interrupts.has_room(&TERMS));
        assert!(interrupts.has_room(&Moderation { ring: 0, ..TERMS }), "no end of it");
    }

    #[test]
    fn new_terms_count_from_the_next_cause() {
        let mut interrupts = Interrupts::default();
        assert_eq!(arrive(&mut interrupts, 0, &TERMS), Verdict::Now);
        let _ = interrupts.take();
        assert_eq!(arrive(&mut interrupts, 1, &TERMS), Verdict::At(100));
        let shorter = Moderation { gap_ns: 10, ..TERMS };
        assert_eq!(arrive(&mut interrupts, 2, &shorter), Verdict::At(10));
        assert_eq!(interrupts.decide(10, &shorter), Verdict::Now);
        assert_eq!(interrupts.take().0.count(), 2);
        assert_eq!(
            interrupts.decide(100, &shorter),
            Verdict::Nothing,
            "the old one finds nothing"
        );
    }
}
