//! Datagrams that wait to be sent together.

use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::sys::socket::SockaddrStorage;

use crate::counters::Tally;
use crate::sys::{BATCH, send_together};
use crate::{DropCause, FRAME_BYTES_MAX, FRAME_BYTES_MIN};

/// A batch of datagrams, one frame in each.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    /// Where each datagram ends in `bytes`, and the bytes of its frame.
    ends: Vec<(usize, usize)>,
}

/// What a send came to besides what was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// There was nothing to send, or nothing that the host took.
    Nothing,
    /// The host took some.
    Some,
    /// The host said this of the last that it refused for good: no interface, or no such peer.
    Down(Errno),
}

impl Outbox {
    /// Begins a datagram for a frame of so many bytes, to be completed by [`Outbox::finish`]. None, and counted, where no frame has this length.
    pub fn begin(&mut self, frame_bytes: usize, tally: &mut Tally) -> Option<&mut Vec<u8>> {
        let cause = match frame_bytes {
            ..FRAME_BYTES_MIN => DropCause::OutMalformed,
            FRAME_BYTES_MIN..=FRAME_BYTES_MAX => return Some(&mut self.bytes),
            _ => DropCause::OutTooLong,
        };
        tally.dropped(cause);
        None
    }

    /// The datagram that was begun is complete. True if the batch is full.
    #[must_use]
    pub fn finish(&mut self, frame_bytes: usize) -> bool {
        self.ends.push((self.bytes.len(), frame_bytes));
        self.ends.len() == BATCH
    }

    /// Sends everything and counts it: what is not taken now is dropped.
    pub fn send(&mut self, fd: impl AsFd, to: Option<&SockaddrStorage>, tally: &mut Tally) -> Sent {
        let mut sent = Sent::Nothing;
        let mut datagrams: [&[u8]; BATCH] = [&[]; BATCH];
        let mut start = 0;
        for (datagram, (end, _)) in datagrams.iter_mut().zip(&self.ends) {
            *datagram = &self.bytes[start..*end];
            start = *end;
        }
        let (mut next, count) = (0, self.ends.len());
        while next < count {
            match send_together(&fd, &datagrams[next..count], to) {
                Ok(taken) => {
                    for (_, frame_bytes) in &self.ends[next..next + taken] {
                        tally.passed_out(*frame_bytes);
                    }
                    next += taken;
                    sent = Sent::Some;
                }
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN | Errno::ENOBUFS | Errno::ENOMEM) => {
                    tally.dropped_many(DropCause::OutFull, (count - next) as u64);
                    break;
                }
                Err(errno) => {
                    let cause = cause_of(errno);
                    if cause == DropCause::OutDown {
                        sent = Sent::Down(errno);
                    }
                    tally.dropped(cause);
                    next += 1;
                }
            }
        }
        self.bytes.clear();
        self.ends.clear();
        sent
    }
}

fn cause_of(errno: Errno) -> DropCause {
    match errno {
        Errno::EMSGSIZE => DropCause::OutTooLong,
        Errno::ENETDOWN
        | Errno::ENXIO
        | Errno::ENODEV
        | Errno::ECONNREFUSED
        | Errno::ENETUNREACH
        | Errno::EHOSTUNREACH
        | Errno::EHOSTDOWN => DropCause::OutDown,
        _ => DropCause::OutRefused,
    }
}
