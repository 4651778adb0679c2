//! What passes a port, and what is dropped there.

use std::collections::BTreeMap;

/// Why a frame did not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DropCause {
    /// From outside: not a frame, or its headers contradict its length.
    InMalformed,
    /// From outside: longer than [`crate::FRAME_BYTES_MAX`].
    InTooLong,
    /// From outside: joined by the host's offloads in a way that cannot be undone here (tunnels, UDP fragmentation offload).
    InUnsupported,
    /// From outside: the host's buffer for this port was full.
    InOverflow,
    /// From outside: sent by the peer but never seen.
    InLost,
    /// From outside: not from the named peer, or not for this network.
    InStranger,
    /// From outside: its seal is not that of the shared key, or it has none.
    InForged,
    /// From outside: seen before, or too old to know.
    InReplayed,
    /// From outside: another version of the protocol.
    InVersion,
    /// From outside: a peer that has not been greeted yet.
    InEarly,
    /// To outside: the host's buffer was full.
    OutFull,
    /// To outside: the interface is down or gone, or no peer is there.
    OutDown,
    /// To outside: longer than the interface or the socket takes.
    OutTooLong,
    /// To outside: shorter than an Ethernet header.
    OutMalformed,
    /// To outside: the host refused it (a firewall, no route).
    OutRefused,
    /// To outside: from an address or a port that is not the port's own.
    OutForeign,
}

/// All causes, in the order of their names in results.
const CAUSES: [DropCause; 16] = [
    DropCause::InMalformed,
    DropCause::InTooLong,
    DropCause::InUnsupported,
    DropCause::InOverflow,
    DropCause::InLost,
    DropCause::InStranger,
    DropCause::InForged,
    DropCause::InReplayed,
    DropCause::InVersion,
    DropCause::InEarly,
    DropCause::OutFull,
    DropCause::OutDown,
    DropCause::OutTooLong,
    DropCause::OutMalformed,
    DropCause::OutRefused,
    DropCause::OutForeign,
];

impl DropCause {
    /// The name in results.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InMalformed => "in_malformed",
            Self::InTooLong => "in_too_long",
            Self::InUnsupported => "in_unsupported",
            Self::InOverflow => "in_overflow",
            Self::InLost => "in_lost",
            Self::InStranger => "in_stranger",
            Self::InForged => "in_forged",
            Self::InReplayed => "in_replayed",
            Self::InVersion => "in_version",
            Self::InEarly => "in_early",
            Self::OutFull => "out_full",
            Self::OutDown => "out_down",
            Self::OutTooLong => "out_too_long",
            Self::OutMalformed => "out_malformed",
            Self::OutRefused => "out_refused",
            Self::OutForeign => "out_foreign",
        }
    }
}

/// What has passed a port. "In" is from outside into the run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Frames from outside that were handed on.
    pub frames_in: u64,
    /// Their bytes.
    pub bytes_in: u64,
    /// Frames that the host took.
    pub frames_out: u64,
    /// Their bytes.
    pub bytes_out: u64,
    /// Frames dropped, by cause; causes that never struck are not there.
    pub drops: BTreeMap<DropCause, u64>,
}

impl PortCounters {
    /// Frames dropped for this cause.
    pub fn dropped(&self, cause: DropCause) -> u64 {
        self.drops.get(&cause).copied().unwrap_or(0)
    }
}

/// Counters while they are counted: no map on the way of frames.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    frames_in: u64,
    bytes_in: u64,
    frames_out: u64,
    bytes_out: u64,
    drops: [u64; CAUSES.len()],
}

impl Tally {
    /// A frame of so many bytes came in.
    pub fn passed_in(&mut self, bytes: usize) {
        self.frames_in += 1;
        self.bytes_in += bytes as u64;
    }

    /// A frame of so many bytes went out.
    pub fn passed_out(&mut self, bytes: usize) {
        self.passed_out_many(1, bytes);
    }

    /// Several frames went out, of so many bytes together.
    pub fn passed_out_many(&mut self, frames: usize, bytes: usize) {
        self.frames_out += frames as u64;
        self.bytes_out += bytes as u64;
    }

    /// A frame was dropped.
    pub fn dropped(&mut self, cause: DropCause) {
        self.dropped_many(cause, 1);
    }

    /// Several were.
    pub fn dropped_many(&mut self, cause: DropCause, frames: u64) {
        self.drops[cause as usize] += frames;
    }

    /// How many were dropped for this cause.
    pub fn drops(&self, cause: DropCause) -> u64 {
        self.drops[cause as usize]
    }

    /// As others see it.
    pub fn counters(&self) -> PortCounters {
        let struck = CAUSES.iter().map(|&cause| (cause, self.drops(cause)));
        PortCounters {
            frames_in: self.frames_in,
            bytes_in: self.bytes_in,
            frames_out: self.frames_out,
            bytes_out: self.bytes_out,
            drops: struck.filter(|(_, frames)| *frames > 0).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_is_listed_at_its_number() {
        for (number, cause) in CAUSES.iter().enumerate() {
            assert_eq!(*cause as usize, number);
        }
        assert_eq!(DropCause::OutForeign as usize + 1, CAUSES.len());
    }

    #[test]
    fn only_what_struck_is_told() {
        let mut tally = Tally::default();
        tally.passed_in(60);
        tally.passed_out(100);
        tally.dropped(DropCause::InForged);
        let counters = tally.counters();
        assert_eq!((counters.frames_in, counters.bytes_in), (1, 60));
        assert_eq!((counters.frames_out, counters.bytes_out), (1, 100));
        assert_eq!(counters.drops, BTreeMap::from([(DropCause::InForged, 1)]));
        assert_eq!(counters.dropped(DropCause::OutFull), 0);
    }
}
