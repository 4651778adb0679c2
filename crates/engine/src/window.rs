//! The lookahead windows: how the kernels of a run share time.
//!
//! Let T be the earliest event of all kernels and L the least time a message needs from one kernel to another. No
//! message sent from T on arrives before T + L, so in the window [T, T + L) the kernels cannot influence one
//! another: each runs *all* its events of the window before the next kernel runs, which keeps caches warm, and any
//! number of threads could run them at once. Messages are kept back until the window is over and are ordered by
//! (time, source, sequence), never by arrival, so neither the order of the kernels nor threads can change a result.
//!
//! With L = 0 the window is a single instant: a message may arrive at the instant it was sent, and then takes
//! part in the next round of that instant.
//!
//! A kernel without events in a window costs nothing: the earliest times are kept in a heap whose entries are
//! dropped when they turn out to be outdated.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::event::Event;

/// One kernel as the windows see it.
pub trait Kernel {
    /// Body of the events kernels send to one another.
    type Message;
    /// What ends a run.
    type Error;

    /// Time of the earliest thing to do, ns; `u64::MAX`: none.
    fn next_ns(&self) -> u64;
    /// Runs everything earlier than `end_ns`, in order; what it sends to other kernels goes to `outbox`.
    fn run_window(&mut self, end_ns: u64, outbox: &mut Outbox<Self::Message>) -> Result<(), Self::Error>;
    /// Takes an event another kernel sent.
    fn accept(&mut self, event: Event<Self::Message>);
}

/// Messages of one window, kept back until it is over.
#[derive(Debug)]
pub struct Outbox<M> {
    messages: Vec<(u32, Event<M>)>,
}

impl<M> Default for Outbox<M> {
    fn default() -> Self {
        Self { messages: Vec::new() }
    }
}

impl<M> Outbox<M> {
    /// Sends `event` to kernel number `to`.
    pub fn send(&mut self, to: u32, event: Event<M>) {
        self.messages.push((to, event));
    }
}

/// One step of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A window from the first to the second time (ns, the end is not part of it) was run.
    Ran(u64, u64),
    /// Nothing is left to do before the limit.
    Idle,
}

/// The window loop's own state: when each kernel wants to run next.
#[derive(Debug)]
pub struct Windows<M> {
    /// Earliest time of each kernel as last noted, ns; `u64::MAX` while it is being run or has nothing to do.
    next_ns: Vec<u64>,
    /// (time, kernel); an entry counts only if the time equals `next_ns` of the kernel.
    heap: BinaryHeap<Reverse<(u64, u32)>>,
    /// Kernels of the current window.
    ready: Vec<u32>,
    outbox: Outbox<M>,
    /// End of the last window, ns.
    done_ns: u64,
}

impl<M> Windows<M> {
    /// Windows over these kernels.
    pub fn new<K: Kernel<Message = M>>(kernels: &[K]) -> Self {
        let mut windows = Self {
            next_ns: vec![u64::MAX; kernels.len()],
            heap: BinaryHeap::new(),
            ready: Vec::new(),
            outbox: Outbox::default(),
            done_ns: 0,
        };
        for (index, kernel) in kernels.iter().enumerate() {
            windows.note(index as u32, kernel.next_ns());
        }
        windows
    }

    /// Records that `kernel` has something to do at `next_ns`.
    pub fn note(&mut self, kernel: u32, next_ns: u64) {
        let known_ns = &mut self.next_ns[kernel as usize];
        if next_ns < *known_ns {
            *known_ns = next_ns;
            self.heap.push(Reverse((next_ns, kernel)));
        }
    }

    /// Kernel `kernel` has nothing to do any more.
    pub fn forget(&mut self, kernel: u32) {
        self.next_ns[kernel as usize] = u64::MAX;
    }

    /// The earliest time at which any kernel has something to do, ns; `u64::MAX`: none.
    pub fn earliest_ns(&mut self) -> u64 {
        while let Some(&Reverse((at_ns, kernel))) = self.heap.peek() {
            if self.next_ns[kernel as usize] == at_ns {
                return at_ns;
            }
            self.heap.pop();
        }
        u64::MAX
    }

    /// End of the last window, ns: all that was due before has happened, once the windows are settled.
    pub fn done_ns(&self) -> u64 {
        self.done_ns
    }

    /// The last window ends at `end_ns`, no sooner, unless something is still due before.
    pub fn pass(&mut self, end_ns: u64) {
        if self.earliest_ns() >= end_ns {
            self.done_ns = self.done_ns.max(end_ns);
        }
    }

    /// Whether nothing is left to do at times of past windows; without lookahead an instant takes several.
    pub fn is_settled(&mut self) -> bool {
        self.earliest_ns() >= self.done_ns
    }

    /// Runs one window, not beyond `limit_ns`, given that messages need at least `lookahead_ns`.
    ///
    /// # Errors
    /// The first error of a kernel; the run cannot go on after it.
    ///
    /// # Panics
    /// If time would go back or a message arrives earlier than the lookahead allows: bugs, not bad input.
    pub fn step<K: Kernel<Message = M>>(
        &mut self,
        kernels: &mut [K],
        lookahead_ns: u64,
        limit_ns: u64,
    ) -> Result<Step, K::Error> {
        let Some((start_ns, end_ns)) = self.open(lookahead_ns, limit_ns) else {
            return Ok(Step::Idle);
        };
        self.ready.sort_unstable();
        self.run_ready(kernels, end_ns)?;
        self.close(kernels, start_ns.saturating_add(lookahead_ns).min(end_ns));
        Ok(Step::Ran(start_ns, end_ns))
    }

    /// Delivers what kernels put into `outbox` outside of a window, at `now_ns`.
    pub fn distribute<K: Kernel<Message = M>>(&mut self, kernels: &mut [K], outbox: Outbox<M>, now_ns: u64) {
        self.outbox.messages.extend(outbox.messages);
        self.close(kernels, now_ns);
    }

    /// Chooses the window and the kernels that run in it.
    fn open(&mut self, lookahead_ns: u64, limit_ns: u64) -> Option<(u64, u64)> {
        let start_ns = self.earliest_ns();
        if start_ns >= limit_ns {
            return None;
        }
        let end_ns = start_ns.saturating_add(lookahead_ns.max(1)).min(limit_ns);
        // A round at one instant may follow another at the same instant; else windows never overlap.
        assert!(
            start_ns >= self.done_ns || (lookahead_ns == 0 && end_ns == self.done_ns),
            "time went back: a window starts at {start_ns} ns after one that ended at {} ns",
            self.done_ns
        );
        self.done_ns = end_ns;
        self.ready.clear();
        while let Some(&Reverse((at_ns, kernel))) = self.heap.peek() {
            if at_ns >= end_ns {
                break;
            }
            self.heap.pop();
            let known_ns = &mut self.next_ns[kernel as usize];
            if *known_ns == at_ns {
                *known_ns = u64::MAX;
                self.ready.push(kernel);
            }
        }
        Some((start_ns, end_ns))
    }

    /// Runs the kernels of the window, in the order of `ready`.
    fn run_ready<K: Kernel<Message = M>>(&mut self, kernels: &mut [K], end_ns: u64) -> Result<(), K::Error> {
        let ready = std::mem::take(&mut self.ready);
        for &index in &ready {
            let kernel = &mut kernels[index as usize];
            kernel.run_window(end_ns, &mut self.outbox)?;
            let next_ns = kernel.next_ns();
            assert!(
                next_ns >= end_ns,
                "kernel {index} left an event at {next_ns} ns in a window to {end_ns} ns"
            );
            self.note(index, next_ns);
        }
        self.ready = ready;
        Ok(())
    }

    /// Hands out the messages of the window; none may arrive before `earliest_ns`.
    fn close<K: Kernel<Message = M>>(&mut self, kernels: &mut [K], earliest_ns: u64) {
        let mut messages = std::mem::take(&mut self.outbox.messages);
        for (to, event) in messages.drain(..) {
            let at_ns = event.key.at_ns;
            assert!(
                at_ns >= earliest_ns,
                "a message for kernel {to} arrives at {at_ns} ns, before {earliest_ns} ns"
            );
            kernels[to as usize].accept(event);
            self.note(to, at_ns);
        }
        self.outbox.messages = messages;
    }
}

#[cfg(test)]
#[path = "window_tests.rs"]
mod tests;
