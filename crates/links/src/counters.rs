//! What a direction of a link has done so far.

/// Frames that did not arrive, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Lost on the wire by chance.
    pub loss: u64,
    /// Found the link's queue full.
    pub queue: u64,
    /// Offered while the link was down, or on it when it went down.
    pub down: u64,
}

impl Dropped {
    /// All causes together.
    pub const fn total(&self) -> u64 {
        self.loss + self.queue + self.down
    }
}

/// Running counts of one direction. Always `delivered + dropped.total() == frames + duplicated`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames offered by the sender.
    pub frames: u64,
    /// Their bytes, from the Ethernet header to the end of the payload, without padding and FCS.
    pub bytes: u64,
    /// Frames that arrived or are on their way, duplicates included.
    pub delivered: u64,
    /// Frames that did not.
    pub dropped: Dropped,
    /// Second copies made.
    pub duplicated: u64,
    /// Frames, copies not counted, sent on with a flipped bit.
    pub corrupted: u64,
    /// Frames that arrive before one that was offered earlier.
    pub reordered: u64,
    /// Frames that were put on the wire, lost ones included.
    pub sent: u64,
    /// How long these waited for the wire, all together, ns.
    pub waited_ns: u64,
}
