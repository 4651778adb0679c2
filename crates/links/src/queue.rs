//! A link's own tail-drop queue: which accepted frames still wait, and whether one more fits.

use std::collections::VecDeque;

use windtunnel_base::SimTime;

use crate::params::QueueLimit;

/// Frames that wait for their first bit to leave. Holds times and lengths, no frames.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    waiting: VecDeque<(SimTime, u32)>,
    bytes: u64,
}

impl Queue {
    /// Forgets the frames that are on the wire by `now`.
    fn drain(&mut self, now: SimTime) {
        while let Some(&(start, len_bytes)) = self.waiting.front() {
            if start > now {
                break;
            }
            self.waiting.pop_front();
            self.bytes -= u64::from(len_bytes);
        }
    }

    /// Whether a frame may enter at `now`. One that finds the wire free needs no place.
    pub fn admits(&mut self, now: SimTime, wire_free_at: SimTime, len_bytes: u32, limit: QueueLimit) -> bool {
        self.drain(now);
        if wire_free_at <= now {
            return true;
        }
        match limit {
            QueueLimit::Nic => true,
            QueueLimit::Packets(frames) => self.waiting.len() < frames as usize,
            QueueLimit::Bytes(size) => self.bytes + u64::from(len_bytes) <= size.as_bytes(),
        }
    }

    /// Notes a frame that was admitted and whose first bit leaves at `start`.
    pub fn push(&mut self, start: SimTime, len_bytes: u32) {
        self.waiting.push_back((start, len_bytes));
        self.bytes += u64::from(len_bytes);
    }

    /// Frames that wait at `now`, and their bytes.
    pub fn length(&mut self, now: SimTime) -> (u64, u64) {
        self.drain(now);
        (self.waiting.len() as u64, self.bytes)
    }

    /// Drops all that wait.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}
