//! A node: a kernel with its programs, its NICs and its events.
//!
//! All that happens to a node at one instant happens in one entry into its kernel: frames that arrive, a timer that is
//! due, departures the kernel waits for, and requests of the engine.

mod interact;
mod isolate;
mod power;

pub use interact::{Arrived, News, What};
pub use power::Switched;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use windtunnel_base::SimTime;
use windtunnel_kernel::{
    Argument, Completed, Crash, CrashKind, Events, Frame, Instance, Received, Record, Request, Transmitted, abi,
};

use crate::configure::{Calls, errno_text};
use crate::error::EngineError;
use crate::event::{Event, EventQueue, Key, Source};
use crate::host::{NodeHost, ProcessNews};
use crate::interrupts::Verdict;
use crate::lateness::Lateness;
use crate::lifecycle::Action;
use crate::outside::Leaving;
use crate::programs::Programs;
use crate::shared::Shared;
use crate::window::{Kernel, Outbox};
use crate::wire::{Peer, Port};
use interact::{CLIENT_KEY, Interaction};
use isolate::Isolation;
use power::Machine;

/// Entries at one instant after which a node is taken to be stuck.
const ENTRIES_MAX: u32 = 1_000_000;

/// What happens to a node.
#[derive(Debug)]
pub enum Body {
    /// A frame arrives at a NIC.
    Deliver {
        /// Number of the NIC.
        nic: u32,
        /// The frame.
        frame: Frame,
    },
    /// A frame whose departure the kernel waits for has left a NIC.
    TxDone {
        /// Number of the NIC.
        nic: u32,
    },
    /// The gap after a NIC's last interrupt is over.
    Interrupt {
        /// Number of the NIC.
        nic: u32,
    },
    /// A carrier has changed.
    Link,
    /// A program may have to be started or stopped.
    Wake,
    /// Requests wait for an entry.
    Requests,
    /// A client of the live run does something.
    Client(Box<Arrived>),
}

/// A node of a run.
pub struct Node {
    /// Its position in the scenario.
    pub number: u32,
    /// Its ports, by the number of the NIC.
    pub ports: Vec<Port>,
    /// Its programs.
    pub programs: Programs,
    /// What it has sent to ports since they looked.
    pub leaving: Vec<Leaving>,
    /// How late it is, where that is of interest.
    pub lateness: Option<Box<Lateness>>,
    machine: Machine,
    /// Its programs in earlier lives.
    past: Vec<Programs>,
    /// System calls in these.
    past_syscalls: u64,
    /// When it went off and was booted again, ns, and who did it.
    switched: Vec<(u64, Switched)>,
    queue: EventQueue<Body>,
    source: Source,
    /// Time of the last entry, ns.
    now_ns: u64,
    /// Entries at that time.
    entries_now: u32,
    /// System calls already counted in the progress.
    syscalls_told: u64,
    /// Sent frames not yet counted in the progress.
    frames_untold: u64,
    /// Requests submitted since the last entry.
    requests_wait: bool,
    was_busy: bool,
    interaction: Interaction,
    shared: Arc<Shared>,
    debug: Option<fn(&str)>,
    rx: Vec<Received>,
    sent: Vec<Transmitted>,
    news: Vec<ProcessNews>,
    /// NICs to ask whether their queue waits for a departure.
    touched: Vec<u32>,
    /// NICs whose interrupts keep a distance, and may come now.
    raised: Vec<u32>,
    /// Only where programs are kept from the memory of other nodes.
    isolation: Option<Box<Isolation>>,
}

impl Node {
    /// A node whose kernel has booted. `source` numbers its events; `debug` is told when its kernel is about to run.
    pub fn new(
        number: u32,
        instance: Instance<NodeHost>,
        ports: Vec<Port>,
        programs: Programs,
        source: Source,
        shared: Arc<Shared>,
        debug: Option<fn(&str)>,
    ) -> Self {
        Self {
            number,
            ports,
            programs,
            leaving: Vec::new(),
            lateness: None,
            machine: Machine::On(instance),
            past: Vec::new(),
            past_syscalls: 0,
            switched: Vec::new(),
            queue: EventQueue::default(),
            source,
            now_ns: 0,
            entries_now: 0,
            syscalls_told: 0,
            frames_untold: 0,
            requests_wait: false,
            was_busy: false,
            interaction: Interaction::default(),
            shared,
            debug,
            rx: Vec::new(),
            sent: Vec::new(),
            news: Vec::new(),
            touched: Vec::new(),
            raised: Vec::new(),
            isolation: None,
        }
    }

    /// Keeps the programs of this node from the memory of others, if `files` says that nodes are isolated.
    pub fn isolate(&mut self, files: &Arc<windtunnel_process::Shared>) {
        self.isolation = Isolation::new(files);
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.shared.nodes[self.number as usize]
    }

    /// Time of its last entry, ns.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Version of its kernel, which must be on.
    pub fn release(&self) -> String {
        self.machine.kernel().release()
    }

    /// Its programs, those of earlier lives first.
    pub fn lives(&self) -> impl Iterator<Item = &Programs> {
        self.past.iter().chain([&self.programs])
    }

    /// Whether its set-up commands are over.
    pub fn is_set_up(&self) -> bool {
        self.programs.lifecycle.setup_end_ns().is_some()
    }

    /// Whether a frame is on its way to it.
    pub fn awaits_frame(&self) -> bool {
        self.queue
            .iter()
            .any(|event| matches!(event.body, Body::Deliver { .. } | Body::Interrupt { .. }))
    }

    /// Starts the life of its programs, now that it is configured.
    ///
    /// # Errors
    /// When the first one cannot be asked for.
    pub fn begin(&mut self) -> Result<(), EngineError> {
        self.was_busy = true;
        self.shared.busy_nodes.fetch_add(1, Ordering::Relaxed);
        let actions = self.programs.lifecycle.begin(self.now_ns);
        self.act(actions)?;
        self.keep_requests_going();
        self.update_busy();
        Ok(())
    }

    /// Sets the carrier and speed of a NIC; the kernel looks at it at `key`'s time.
    pub fn set_link(&mut self, nic: u32, up: bool, speed_mbps: u32, key: Key) {
        if !self.is_up() {
            return;
        }
        let mut state = self.machine.kernel_mut().nic(nic);
        state.set_carrier(up);
        state.set_speed_mbps(speed_mbps);
        self.queue.push(Event { key, body: Body::Link });
    }

    /// Takes the carrier off a NIC before the first entry that looks at it.
    pub fn start_without_carrier(&mut self, nic: u32) {
        self.machine.kernel_mut().nic(nic).set_carrier(false);
        let key = self.source.key(self.now_ns);
        self.queue.push(Event { key, body: Body::Link });
    }

    /// Takes all frames away that are on their way to a NIC; when they were due, ns, in order.
    pub fn lose_frames(&mut self, to_nic: u32) -> Vec<u64> {
        let mut due_ns = Vec::new();
        self.queue.retain(|event| {
            let lost = matches!(event.body, Body::Deliver { nic, .. } if nic == to_nic);
            if lost {
                due_ns.push(event.key.at_ns);
            }
            !lost
        });
        due_ns.sort_unstable();
        due_ns
    }

    /// Takes an event from outside of the run.
    pub fn take_in(&mut self, event: Event<Body>) {
        self.queue.push(event);
    }

    /// Runs all that is due at `at_ns` in one entry.
    fn run_instant(&mut self, at_ns: u64, outbox: &mut Outbox<Body>) -> Result<(), EngineError> {
        assert!(
            at_ns >= self.now_ns,
            "node {}: time goes back from {} ns to {at_ns} ns",
            self.name(),
            self.now_ns
        );
        self.entries_now = if at_ns == self.now_ns { self.entries_now + 1 } else { 1 };
        if self.entries_now > ENTRIES_MAX {
            let (node, at) = (self.name().to_owned(), SimTime(at_ns));
            return Err(EngineError::Livelock {
                node,
                at,
                entries: ENTRIES_MAX,
            });
        }
        self.now_ns = at_ns;
        let mut events = Events::default();
        let mut has_work = self
            .machine
            .kernel()
            .next_timer()
            .is_some_and(|timer_ns| timer_ns <= at_ns);
        while let Some(event) = self.queue.pop_at(at_ns) {
            match event.body {
                Body::Deliver { nic, frame } => self.arrive(nic, frame)?,
                Body::TxDone { nic } => self.tx_done(nic, &mut events),
                Body::Interrupt { nic } => self.raised.push(nic),
                Body::Link => events.link = true,
                Body::Wake => {
                    let actions = self.programs.lifecycle.due(at_ns);
                    self.act(actions)?;
                    has_work = true;
                }
                Body::Requests => has_work = true,
                Body::Client(arrived) => {
                    self.interaction.arrive(*arrived);
                    has_work = true;
                }
            }
        }
        if !self.raised.is_empty() {
            self.interrupt(&mut events);
        }
        // What waits for an interrupt does not concern the kernel.
        if !has_work && self.rx.is_empty() && events == Events::default() {
            return Ok(());
        }
        self.enter(events, outbox)?;
        if self.interaction.is_active() {
            self.interact(outbox)?;
        }
        Ok(())
    }

    /// A frame arrives: at the kernel, or in the ring of a NIC whose interrupts keep a distance.
    #[inline]
    fn arrive(&mut self, nic: u32, frame: Frame) -> Result<(), EngineError> {
        let mut state = self.machine.kernel_mut().nic(nic);
        let terms = state.moderation();
        let port = &mut self.ports[nic as usize];
        if terms.gap_ns == 0 && !port.interrupts.is_awaited() {
            port.receive(self.now_ns, &frame)?;
            self.rx.push(Received::new(nic, frame));
        } else if port.interrupts.has_room(&terms) {
            port.receive(self.now_ns, &frame)?;
            port.interrupts.arrived(frame);
            self.raised.push(nic);
        } else {
            port.missed_frames += 1;
            state.count_missed();
        }
        Ok(())
    }

    /// A frame for whose departure the kernel waits has left.
    #[inline]
    fn tx_done(&mut self, nic: u32, events: &mut Events) {
        let terms = self.machine.kernel_mut().nic(nic).moderation();
        let port = &mut self.ports[nic as usize];
        port.tx_done_ns = u64::MAX;
        if terms.gap_ns == 0 && !port.interrupts.is_awaited() {
            events.tx_done = true;
            self.touched.push(nic);
        } else {
            port.interrupts.sent();
            self.raised.push(nic);
        }
    }

    /// Lets NICs interrupt whose gap is over, once everything that happens now is known; others are scheduled.
    fn interrupt(&mut self, events: &mut Events) {
        for nic in self.raised.drain(..) {
            let terms = self.machine.kernel_mut().nic(nic).moderation();
            let interrupts = &mut self.ports[nic as usize].interrupts;
            match interrupts.decide(self.now_ns, &terms) {
                Verdict::Now => {
                    let (frames, sent) = interrupts.take();
                    self.rx.extend(frames.map(|frame| Received::new(nic, frame)));
                    if sent {
                        events.tx_done = true;
                        self.touched.push(nic);
                    }
                }
                Verdict::At(at_ns) => self.queue.push(Event {
                    key: self.source.key(at_ns),
                    body: Body::Interrupt { nic },
                }),
                Verdict::Nothing => {}
            }
        }
    }

    /// Enters the kernel at the current time and takes everything that comes out.
    fn enter(&mut self, events: Events, outbox: &mut Outbox<Body>) -> Result<(), EngineError> {
        self.requests_wait = false;
        self.machine.kernel_mut().host_mut().now_ns = self.now_ns;
        if self.isolation.is_some() {
            self.open_memory()?;
        }
        self.shared.going_inside(self.number);
        let entered = self.machine.kernel_mut().enter(self.now_ns, &mut self.rx, events);
        self.shared.outside();
        self.rx.clear();
        if let Err(crash) = entered {
            return Err(self.crashed(crash));
        }
        self.take_sent(outbox)?;
        self.take_news()?;
        if self.isolation.is_some() {
            self.look_for_wild()?;
        }
        Ok(())
    }

    /// What its kernel knows now, in the order of its tables, in place of `records`. Its run is the same afterwards.
    ///
    /// # Errors
    /// When the kernel crashes.
    pub fn sample<T: Record>(&mut self, records: &mut Vec<T>) -> Result<(), EngineError> {
        if !self.is_up() {
            records.clear();
            return Ok(());
        }
        if self.isolation.is_some() {
            self.open_memory()?;
        }
        self.shared.going_inside(self.number);
        let sampled = self.machine.kernel_mut().sample(records);
        self.shared.outside();
        sampled.map_err(|crash| self.crashed(crash))
    }

    /// Hands the frames that left the NICs to their links.
    fn take_sent(&mut self, outbox: &mut Outbox<Body>) -> Result<(), EngineError> {
        self.sent.extend(self.machine.kernel_mut().drain_tx());
        let Self {
            sent,
            ports,
            source,
            queue,
            machine,
            touched,
            number,
            now_ns,
            frames_untold,
            leaving,
            ..
        } = self;
        let instance = machine.kernel_mut();
        *frames_untold += sent.len() as u64;
        for Transmitted { frame, nic, irq } in sent.drain(..) {
            let port = &mut ports[nic as usize];
            let peer = port.peer;
            let departure_ns = port.transmit(*now_ns, frame, |at_ns, frame| {
                let (to, nic) = match peer {
                    Peer::Node { number, nic } => (number, nic),
                    Peer::Outside(port) => return leaving.push(Leaving { at_ns, port, frame }),
                };
                let event = Event {
                    key: source.key(at_ns),
                    body: Body::Deliver { nic, frame },
                };
                if to == *number {
                    queue.push(event);
                } else {
                    outbox.send(to, event);
                }
            })?;
            instance.nic(nic).push_done(departure_ns);
            if irq {
                schedule_done(port, nic, departure_ns, source, queue);
            }
            if touched.last() != Some(&nic) {
                touched.push(nic);
            }
        }
        for nic in touched.drain(..) {
            let mut state = instance.nic(nic);
            let Some(index) = state.take_want() else { continue };
            if index >= state.done_known() {
                let problem = format!("NIC {nic} waits for frame {index}, which was not sent");
                return Err(EngineError::Internal(problem));
            }
            // A departure too long ago to be known is past.
            let at_ns = state.done_ns(index).unwrap_or(0).max(*now_ns);
            schedule_done(&mut ports[nic as usize], nic, at_ns, source, queue);
        }
        Ok(())
    }

    /// Looks at what happened to programs and requests during the entry.
    #[inline]
    fn take_news(&mut self) -> Result<(), EngineError> {
        let host = self.machine.kernel_mut().host_mut();
        if let Some(error) = host.take_error() {
            return Err(error.into());
        }
        if let Some(error) = host.programs.take_write_error() {
            let node = self.name().to_owned();
            return Err(EngineError::Output {
                node,
                problem: error.to_string(),
            });
        }
        if let Some(limit) = windtunnel_process::take_map_limit() {
            return Err(limit.into());
        }
        if let Some(failure) = windtunnel_process::take_host_failure() {
            return Err(failure.into());
        }
        host.take_news(&mut self.news);
        while let Some(done) = self.machine.kernel_mut().pop_completed() {
            self.request_done(done)?;
        }
        if self.news.is_empty() {
            return Ok(());
        }
        let mut news = std::mem::take(&mut self.news);
        for step in news.drain(..) {
            self.process_step(step)?;
        }
        self.news = news;
        self.keep_requests_going();
        self.update_busy();
        Ok(())
    }

    /// A request of the engine is finished. Signals may meet a process that has ended; starts must not fail.
    fn request_done(&mut self, done: Completed) -> Result<(), EngineError> {
        let Some(done) = self.interaction.take_completed(done) else {
            return Ok(());
        };
        if let Request::Spawn(spec) = done.request
            && done.result < 0
        {
            self.news.push(ProcessNews {
                event: abi::PROC_FAILED,
                key: spec.key,
                pid: 0,
                value: done.result.unsigned_abs(),
            });
        }
        Ok(())
    }

    fn process_step(&mut self, step: ProcessNews) -> Result<(), EngineError> {
        let pid = step.pid as u32;
        if self.programs.family.note(self.now_ns, &step) {
            return Ok(());
        }
        if step.key & CLIENT_KEY != 0 {
            let host = self.machine.kernel_mut().host_mut();
            let why = || {
                let told = host.programs.take_exec_errors().pop();
                told.map_or_else(|| errno_text(step.value as i64), |error| error.to_string())
            };
            self.interaction.process_step(step, self.now_ns, why);
            return Ok(());
        }
        // Key 0 is a program's own child.
        let Some(index) = step.key.checked_sub(1) else {
            return Ok(());
        };
        let index = index as usize;
        let lifecycle = &mut self.programs.lifecycle;
        let actions = match step.event {
            abi::PROC_STARTED => lifecycle.started(index, pid, self.now_ns),
            abi::PROC_EXITED => lifecycle.exited(index, step.value as u32, self.now_ns),
            abi::PROC_FAILED => {
                let why = self.machine.kernel_mut().host_mut().programs.take_exec_errors().pop();
                let cwd = self.programs.cwd(index);
                let reason = why.map_or_else(
                    || format!("{} (in folder {cwd})", errno_text(step.value as i64)),
                    |error| error.to_string(),
                );
                self.programs.lifecycle.failed(index, step.value as i32, &reason)
            }
            other => return Err(EngineError::Internal(format!("process event {other} is not known"))),
        };
        self.act(actions)?;
        self.programs.keep_books(index, self.number, &self.shared);
        Ok(())
    }

    /// Carries out what the lives of the programs ask for.
    fn act(&mut self, actions: Vec<Action>) -> Result<(), EngineError> {
        for action in actions {
            match action {
                Action::Spawn(index) => {
                    let spec = self
                        .programs
                        .spawn_spec(index, &mut self.machine.kernel_mut().host_mut().programs)?;
                    self.submit(Request::Spawn(spec));
                }
                Action::Signal { pid, signal } => {
                    let args = vec![Argument::Value(pid.into()), Argument::Value(signal as u64)];
                    self.submit(Request::Syscall {
                        nr: libc::SYS_kill as u64,
                        args,
                    });
                }
                Action::Wake(at_ns) => {
                    let key = self.source.key(at_ns);
                    self.queue.push(Event { key, body: Body::Wake });
                }
                Action::Warn(code, program, text) => {
                    let number = Some(self.number);
                    self.shared
                        .warn_of(self.now_ns, code, number, program.as_deref(), &text);
                }
                Action::SetupFailed(index, problem) => {
                    return Err(EngineError::Setup {
                        node: self.name().to_owned(),
                        command: self.programs.lifecycle.plan(index).command.join(" "),
                        problem,
                        stderr: self.programs.stderr_tail(index),
                    });
                }
            }
        }
        Ok(())
    }

    fn submit(&mut self, request: Request) {
        self.machine.kernel_mut().submit(vec![request]);
        self.requests_wait = true;
    }

    /// Sees to an entry for requests made after one.
    fn keep_requests_going(&mut self) {
        if self.requests_wait {
            let key = self.source.key(self.now_ns);
            self.queue.push(Event {
                key,
                body: Body::Requests,
            });
        }
    }

    /// Tells the run when the last process has ended.
    fn update_busy(&mut self) {
        if self.was_busy && self.programs.lifecycle.all_over() {
            self.was_busy = false;
            self.shared.busy_nodes.fetch_sub(1, Ordering::Relaxed);
        }
    }

    #[cold]
    fn crashed(&self, crash: Box<Crash>) -> EngineError {
        EngineError::Crash {
            node: self.name().to_owned(),
            at: SimTime(self.now_ns),
            seed: self.shared.seed,
            elsewhere: match crash.kind {
                CrashKind::Fault { address, .. } => self.elsewhere(address),
                _ => None,
            },
            isolated: self.isolation.is_some(),
            crash,
            log_tail: self.machine.kernel().host().log_tail(),
        }
    }

    /// A window begins: how late it is.
    #[cold]
    fn note_lateness(&mut self) {
        let at_ns = self.next_ns();
        if let Some(lateness) = &mut self.lateness {
            lateness.note(at_ns);
        }
    }

    /// Adds what happened to the progress for a display.
    fn tell_progress(&mut self) {
        let Machine::On(kernel) = &self.machine else {
            return;
        };
        let syscalls = kernel.syscalls();
        self.shared
            .progress
            .syscalls
            .fetch_add(syscalls - self.syscalls_told, Ordering::Relaxed);
        self.syscalls_told = syscalls;
        self.shared
            .progress
            .frames
            .fetch_add(std::mem::take(&mut self.frames_untold), Ordering::Relaxed);
    }
}

/// Schedules an entry for a departure, unless there is one for that time.
#[inline]
fn schedule_done(port: &mut Port, nic: u32, at_ns: u64, source: &mut Source, queue: &mut EventQueue<Body>) {
    if port.tx_done_ns != at_ns {
        port.tx_done_ns = at_ns;
        queue.push(Event {
            key: source.key(at_ns),
            body: Body::TxDone { nic },
        });
    }
}

impl Kernel for Node {
    type Message = Body;
    type Error = EngineError;

    #[inline]
    fn next_ns(&self) -> u64 {
        let Machine::On(kernel) = &self.machine else {
            return u64::MAX;
        };
        let timer_ns = kernel.next_timer().unwrap_or(u64::MAX);
        // A timer that was due before is due now.
        self.queue.next_ns().min(timer_ns.max(self.now_ns))
    }

    fn run_window(&mut self, end_ns: u64, outbox: &mut Outbox<Body>) -> Result<(), EngineError> {
        if let Some(debug) = self.debug {
            debug(self.name());
        }
        if self.lateness.is_some() {
            self.note_lateness();
        }
        loop {
            let at_ns = self.next_ns();
            if at_ns >= end_ns {
                break;
            }
            self.run_instant(at_ns, outbox)?;
        }
        self.tell_progress();
        Ok(())
    }

    fn accept(&mut self, event: Event<Body>) {
        if self.is_up() {
            self.queue.push(event);
        } else {
            self.lose(&event.body);
        }
    }
}

/// System calls in a node, at the current time, for its configuration.
pub struct NodeCalls<'a> {
    /// The node.
    pub node: &'a mut Node,
    /// Takes the frames it sends meanwhile.
    pub outbox: &'a mut Outbox<Body>,
}

impl Calls for NodeCalls<'_> {
    fn call(&mut self, nr: i64, args: Vec<Argument>) -> Result<(i64, Vec<Argument>), EngineError> {
        let request = Request::Syscall {
            nr: nr.cast_unsigned(),
            args,
        };
        let done = self.node.call_all(vec![request], self.outbox)?.pop();
        match done {
            Some(Completed {
                result,
                request: Request::Syscall { args, .. },
                ..
            }) => Ok((result, args)),
            _ => Err(EngineError::Internal(format!(
                "node {}: system call {nr} of process 1 did not come back",
                self.node.name()
            ))),
        }
    }
}
