//! A node's power: cut as by pulling the plug, and on again with a boot.
//!
//! What went with the power is gone: the kernel, its programs, whatever was in its queues. What belongs to the run goes on: ports with
//! their counters, captures and digests, the numbers of events, and the records of programs.

use std::sync::atomic::Ordering;

use windtunnel_kernel::{Instance, forget_active};
use windtunnel_results::{ChangedBy, KernelLog};

use super::{Body, Node, NodeCalls};
use crate::configure::configure;
use crate::error::EngineError;
use crate::host::{NodeHost, code_of};
use crate::interrupts::Interrupts;
use crate::machine::{Life, Machines};
use crate::window::Outbox;

/// What a node runs on.
pub(super) enum Machine {
    /// A kernel.
    On(Instance<NodeHost>),
    /// Nothing.
    Off(Left),
}

/// What the last kernel of a node left for the next.
pub(super) struct Left {
    log: KernelLog,
    spaces_made: u64,
}

/// A change of a node's power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switched {
    /// It went off.
    Off(ChangedBy),
    /// It was booted.
    On,
}

impl Machine {
    /// The kernel of a node that is up; only such a one is entered.
    #[inline]
    pub(super) fn kernel(&self) -> &Instance<NodeHost> {
        match self {
            Self::On(kernel) => kernel,
            Self::Off(_) => panic!("{OFF}"),
        }
    }

    /// As [`Machine::kernel`].
    #[inline]
    pub(super) fn kernel_mut(&mut self) -> &mut Instance<NodeHost> {
        match self {
            Self::On(kernel) => kernel,
            Self::Off(_) => panic!("{OFF}"),
        }
    }
}

const OFF: &str = "the kernel of a node that is down was asked for";

impl Node {
    /// Whether it has power.
    #[inline]
    pub fn is_up(&self) -> bool {
        matches!(self.machine, Machine::On(_))
    }

    /// Changes of its power, with their times, ns.
    pub fn switched(&self) -> &[(u64, Switched)] {
        &self.switched
    }

    /// System calls of its programs so far.
    pub fn syscalls(&self) -> u64 {
        let now = match &self.machine {
            Machine::On(kernel) => kernel.syscalls(),
            Machine::Off(_) => 0,
        };
        self.past_syscalls + now
    }

    /// Warns of calls of its programs that were refused or changed.
    pub fn tell_notes(&mut self) {
        let Machine::On(kernel) = &mut self.machine else {
            return;
        };
        for ((nr, note), at_ns) in kernel.host_mut().take_notes() {
            let call = windtunnel_process::table::find(nr);
            let (code, name) = call.map_or(("partial_call", "a call"), |call| (code_of(call.status), call.name));
            let text = format!("{name}: {note}");
            self.shared.warn(at_ns, code, Some(self.number), &text);
        }
    }

    /// An event cannot happen any more; a frame is counted.
    pub(super) fn lose(&mut self, body: &Body) {
        if let Body::Deliver { nic, .. } = body {
            self.ports[*nic as usize].cut_frames += 1;
        }
    }

    /// Its power goes at `at_ns`, between two windows.
    ///
    /// # Errors
    /// When its kernel log cannot be written, or the host refuses access to its memory.
    pub fn power_off(
        &mut self,
        files: &windtunnel_process::Shared,
        at_ns: u64,
        by: ChangedBy,
    ) -> Result<(), EngineError> {
        self.tell_notes();
        self.tell_progress();
        self.past_syscalls = self.syscalls();
        if self.isolation.is_some() {
            self.open_memory()?;
        }
        let host = self.machine.kernel_mut().host_mut();
        let left = Left {
            log: host.next_log()?,
            spaces_made: host.programs.spaces_made(),
        };
        // The addresses are free for the next kernel once the old one and what its programs had are gone.
        self.machine = Machine::Off(left);
        files.forget_node(self.number);
        forget_active();
        self.now_ns = at_ns;
        self.entries_now = 0;
        self.requests_wait = false;
        for event in std::mem::take(&mut self.queue).into_events() {
            self.lose(&event.body);
        }
        for port in &mut self.ports {
            port.interrupts = Interrupts::default();
            port.tx_done_ns = u64::MAX;
        }
        self.programs.cut(at_ns);
        for index in 0..self.programs.lifecycle.len() {
            self.programs.keep_books(index, self.number, &self.shared);
        }
        self.interaction.cut(at_ns);
        if std::mem::take(&mut self.was_busy) {
            self.shared.busy_nodes.fetch_sub(1, Ordering::Relaxed);
        }
        self.switched.push((at_ns, Switched::Off(by)));
        Ok(())
    }

    /// It is booted at `at_ns`, between two windows, with NICs that have a carrier where `carriers` says so. What it sends
    /// while it is configured goes to `outbox`.
    ///
    /// # Errors
    /// Whatever keeps it from coming up, which ends the run as it would have at its start.
    pub fn power_on(
        &mut self,
        machines: &Machines,
        at_ns: u64,
        carriers: &[bool],
        outbox: &mut Outbox<Body>,
    ) -> Result<(), EngineError> {
        let Machine::Off(left) = &mut self.machine else {
            return Ok(());
        };
        let life = Life {
            number: self.programs.life.number + 1,
            booted_ns: at_ns,
            spaces_made: left.spaces_made,
        };
        let log = left.log.continued()?;
        let number = self.number as usize;
        let (host, programs) = machines.prepare(number, &life)?;
        let kernel = machines.boot(number, host, log, &self.ports, &life)?;
        self.machine = Machine::On(kernel);
        self.past.push(std::mem::replace(&mut self.programs, programs));
        self.now_ns = at_ns;
        self.syscalls_told = 0;
        self.interaction.boot(life.number);
        self.isolate(&machines.files);
        for (nic, carrier) in carriers.iter().enumerate() {
            if !carrier {
                self.start_without_carrier(nic as u32);
            }
        }
        let spec = &machines.scenario.nodes[number];
        let no_input = configure(&mut NodeCalls { node: self, outbox }, spec)?;
        self.programs.set_no_input(no_input);
        self.switched.push((at_ns, Switched::On));
        self.begin()
    }
}
