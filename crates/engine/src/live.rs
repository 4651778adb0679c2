//! The simulation's side of a live run: turns what clients do into events with a virtual time, keeps the log of them,
//! and decides when time waits: for the wall clock, for clients, or for those who may still come.
//!
//! Clients are only heard between windows. What they do gets a time that no window has reached yet, so it is an event like
//! any other; a recording of these events, replayed, gives the same run. All of it is behind [`Live::is_wanted`], which
//! costs one load per window while nobody is there.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

mod breaks;
mod drive;
mod look;
mod realtime;

use windtunnel_control::{
    Bell, Client, INPUT_VERSION, Inbox, Incoming, Input, InputHeader, InputLog, InputRecord, Open, Outcome, Process,
    Recording, Refusal, Reply, Request, signal_problem,
};
use windtunnel_process::trap::host_clock_ns;
use windtunnel_results::{ChangedBy, Ended, LatenessSummary, OutDir};
use windtunnel_scenario::{Action, Scenario};

use crate::cables::Cables;
use crate::error::EngineError;
use crate::event::Source;
use crate::lateness::{self, Clock};
use crate::links::Links;
use crate::machine::Machines;
use crate::measure::Measure;
use crate::node::{Arrived, Body, News, Node, What};
use crate::outside::Outside;
use crate::pacer::Pacer;
use crate::slices::Slicer;
use crate::terminal::refusal;
use crate::urgency::Urgency;
use crate::window::Windows;
use breaks::Breaks;
use drive::Driver;
use realtime::WallClock;

/// Longest window while somebody watches, ns: so much output at most is on its way when they have seen enough.
const SLICE_NS: u64 = 1_000_000;
/// How long to sleep before looking at the stop flag again.
const NAP: Duration = Duration::from_millis(50);
/// Output queued for a client at which its program is no longer read, and is read again, bytes.
const QUEUED_MAX: usize = 256 << 10;
const QUEUED_FEW: usize = 64 << 10;

/// How a run deals with those who watch it.
#[derive(Debug, Default)]
pub struct LiveOptions {
    /// Where clients come from; none: nobody can come.
    pub inbox: Option<Inbox>,
    /// Whether to wait for clients at the end instead of ending.
    pub hold: bool,
    /// Whether virtual time goes with the wall clock even when nobody watches.
    pub realtime: bool,
    /// Whether time stands still until a client drives the run, which ends when that client goes.
    pub drive: bool,
    /// What happened to another run and shall happen to this one.
    pub replay: Option<Recording>,
    /// What came into that run through its ports.
    pub outside: Option<PathBuf>,
    /// What makes that run hard to repeat, a sentence each, as its manifest has it.
    pub not_deterministic: Vec<String>,
    /// Rings when a client has come or the stop flag is set.
    pub bell: Option<Bell>,
    /// In real time: until this virtual time the run goes as fast as it can, ns.
    pub live_at_ns: u64,
    /// The last part of each wait for the wall clock, which is spent awake, ns.
    pub spin_ns: u64,
    /// Whether it goes before ordinary programs of the host in real time; to be tried before.
    pub priority: bool,
}

/// What a run knows of itself, for its log.
#[derive(Debug)]
pub struct Identity {
    /// Where results go.
    pub out: OutDir,
    /// Hash of the scenario.
    pub scenario_sha256: String,
    /// Seed of the run.
    pub seed: u64,
    /// Names of the nodes.
    pub nodes: Vec<String>,
    /// What was planned.
    pub scenario: Scenario,
}

/// The live part of a run.
#[derive(Debug)]
pub struct Live {
    inbox: Option<Inbox>,
    hold: bool,
    realtime: bool,
    drive: bool,
    driver: Option<Driver>,
    /// Why a run that was driven ends, if that is settled.
    driver_ended: Option<Ended>,
    /// Links have changed since anybody asked.
    links_changed: bool,
    source: Source,
    identity: Identity,
    log: Option<InputLog>,
    replay: Option<Replay>,
    /// Whether there is more to do than to look into the inbox.
    busy: bool,
    sessions: BTreeMap<u64, Session>,
    questions: BTreeMap<u64, Question>,
    breaks: Breaks,
    /// Those who want the run to end, and wait for it.
    stoppers: Vec<Client>,
    bell: Option<Bell>,
    stop_flag: Arc<AtomicBool>,
    wall: WallClock,
    /// The end is written down whether anything else was or not.
    end_counts: bool,
    next_number: u64,
    pacer: Option<Pacer>,
    /// Time of the last event of a client, ns.
    last_ns: u64,
    /// Why the run would have ended.
    held: Option<Ended>,
}

#[derive(Debug)]
struct Replay {
    records: Peekable<std::vec::IntoIter<InputRecord>>,
    end: Option<(u64, Ended)>,
    /// All of it has been replayed, up to its end.
    over: bool,
}

/// A program that a client started.
#[derive(Debug)]
struct Session {
    /// None: it has gone, and the node is still to hear of it.
    client: Option<Client>,
    number_of_client: u64,
    node: usize,
    /// Its process id, once it runs.
    pid: Option<u32>,
    paused: bool,
    /// It has no terminal or pipes any more, and does not keep the run from its end.
    hung_up: bool,
}

/// A list of processes in the making.
#[derive(Debug)]
struct Question {
    /// None: the driver, whose command it is.
    client: Option<Client>,
    nodes_left: usize,
    found: Vec<Process>,
}

/// Where events go.
pub struct Network<'a> {
    /// All nodes.
    pub nodes: &'a mut [Node],
    /// Their windows.
    pub windows: &'a mut Windows<Body>,
    /// The links between them.
    pub links: &'a Links,
    /// What is measured.
    pub measure: &'a mut Option<Measure>,
    /// What boots nodes.
    pub machines: &'a Machines,
    /// The links that lead outside, if there are any.
    pub outside: Option<&'a mut Outside>,
}

impl Network<'_> {
    /// The nodes and all links.
    pub fn cables(&mut self) -> (&mut [Node], Cables<'_>) {
        let cables = Cables::new(self.links, self.outside.as_deref_mut());
        (self.nodes, cables)
    }

    /// Takes the measurements that are due at `at_ns` or before, given that all has happened that is due sooner, and nothing at `at_ns`;
    /// when the next one is due, ns.
    ///
    /// # Errors
    /// When one cannot be written.
    pub fn catch_up(&mut self, at_ns: u64) -> Result<u64, EngineError> {
        let Some(measure) = self.measure else {
            return Ok(u64::MAX);
        };
        let mut cables = Cables::new(self.links, self.outside.as_deref_mut());
        measure.catch_up(self.nodes, &mut cables, at_ns)?;
        Ok(measure.next_ns())
    }
}

impl Live {
    /// A run that nobody has touched. `source` numbers the events; `stop_flag` is set when it shall end.
    ///
    /// # Errors
    /// When the recording to be replayed is not of such a run.
    pub fn new(
        options: LiveOptions,
        identity: Identity,
        source: Source,
        stop_flag: Arc<AtomicBool>,
    ) -> Result<Self, EngineError> {
        let replay = match options.replay {
            None => None,
            Some(recording) => Some(Replay::new(recording, &identity)?),
        };
        let mut live = Self {
            hold: options.hold && options.inbox.is_some(),
            inbox: options.inbox,
            realtime: options.realtime,
            drive: options.drive,
            driver: None,
            driver_ended: None,
            links_changed: false,
            source,
            end_counts: !identity.scenario.ports.is_empty(),
            bell: options.bell,
            stop_flag,
            wall: WallClock::new(options.live_at_ns, options.spin_ns),
            identity,
            log: None,
            busy: options.realtime || options.drive || replay.is_some(),
            replay,
            sessions: BTreeMap::new(),
            questions: BTreeMap::new(),
            breaks: Breaks::default(),
            stoppers: Vec::new(),
            next_number: 1,
            pacer: None,
            last_ns: 0,
            held: None,
        };
        if live.end_counts {
            // A run that is killed can be repeated, too.
            live.begin_log()?;
        }
        Ok(live)
    }

    /// Whether [`Live::attend`] has something to do.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.busy || self.inbox.as_ref().is_some_and(Inbox::has_something)
    }

    /// When the run ends at the latest, ns, given its own time.
    pub fn stop_ns(&self, stop_ns: u64) -> u64 {
        match &self.replay {
            Some(Replay {
                end: Some((end_ns, _)), ..
            }) => *end_ns,
            _ => stop_ns,
        }
    }

    /// Time of the next event of the recording, ns; `u64::MAX`: none.
    pub fn replay_ns(&mut self) -> u64 {
        let next = self.replay.as_mut().and_then(|replay| replay.records.peek());
        next.map_or(u64::MAX, |record| record.at_ns)
    }

    /// Whether the run must go on though its programs are over.
    pub fn keeps_running(&mut self) -> bool {
        let more_to_replay = match &mut self.replay {
            Some(Replay { end: Some(_), .. }) => true,
            Some(replay) => replay.records.peek().is_some(),
            None => false,
        };
        let driven_on = match &self.driver {
            Some(driver) => !driver.goes_to_the_end(),
            None => self.drive,
        };
        let watched = self.sessions.values().any(|session| !session.hung_up);
        more_to_replay || driven_on || self.held.is_some() || watched || !self.questions.is_empty()
    }

    /// The run would end at `at_ns`, for this reason. None: it goes on, without a time to stop.
    pub fn at_end(&mut self, ended: Ended, at_ns: u64) -> Option<Ended> {
        if let Some(Replay {
            end: Some((_, ended)),
            over,
            ..
        }) = &mut self.replay
        {
            *over = true;
            return Some(*ended);
        }
        if self.driver.is_some() {
            self.driven_to_the_end(ended, at_ns);
            return None;
        }
        if !self.hold {
            return Some(ended);
        }
        self.held.get_or_insert(ended);
        self.busy = true;
        None
    }

    /// The wall clock, if the run goes with it.
    pub fn clock(&self) -> Option<Clock> {
        self.realtime.then(|| self.wall.clock.clone())
    }

    /// Programs that compute make way by the wall clock.
    pub fn slice_programs(&mut self, slicer: Slicer) {
        self.wall.slicer = Some(slicer);
    }

    /// The run goes before ordinary programs of the host.
    pub fn go_first(&mut self, urgency: Urgency) {
        self.wall.urgency = Some(urgency);
    }

    /// Time goes on no more.
    pub fn stop_clock(&mut self) {
        if let Some(urgency) = &self.wall.urgency {
            urgency.end();
        }
        if let Some(slicer) = &mut self.wall.slicer {
            slicer.rest();
        }
    }

    /// How late the run was, if it goes with the wall clock.
    pub fn lateness(&self, nodes: &[Node]) -> Option<LatenessSummary> {
        self.clock()?;
        let slicer = self.wall.slicer.as_ref();
        let preempted = |node: &Node| slicer.map_or(0, |slicer| slicer.times(node.number));
        let nodes = nodes
            .iter()
            .filter_map(|node| Some((node.name(), &**node.lateness.as_ref()?, preempted(node))));
        let limit_ns = self.identity.scenario.run.realtime.late_limit.as_ns();
        Some(lateness::summary(nodes, limit_ns, self.wall.slips))
    }

    fn stop_flag_is_set(&self) -> bool {
        self.stop_flag.load(Ordering::Relaxed)
    }

    /// Whether a client wants the run to end.
    #[inline]
    pub fn is_stopped(&self) -> bool {
        !self.stoppers.is_empty() || self.driver_ended.is_some()
    }

    /// Whether links have changed since the last call.
    #[inline]
    pub fn take_links_changed(&mut self) -> bool {
        std::mem::take(&mut self.links_changed)
    }

    /// The user wants the run to end: why it ended, then. One that was only held has come to its end before.
    pub fn interrupted(&self) -> Ended {
        self.held.or(self.driver_ended).unwrap_or(Ended::Interrupted)
    }

    /// Hears clients and waits as long as time has to. How far the run may go in its next window, ns, at most `due_ns`; none:
    /// look at everything again.
    ///
    /// # Errors
    /// When the log cannot be written.
    pub fn attend(&mut self, network: &mut Network<'_>, due_ns: u64) -> Result<Option<u64>, EngineError> {
        let slice_ns = network.windows.earliest_ns().saturating_add(SLICE_NS);
        if self.inbox.is_none() && !self.realtime {
            return Ok(Some(due_ns.min(slice_ns)));
        }
        if !network.windows.is_settled() {
            return Ok(Some(due_ns));
        }
        if self.drive || self.driver.is_some() {
            return self.attend_driver(network, due_ns);
        }
        while let Some(incoming) = self.take(Duration::ZERO) {
            self.hear(incoming, network, due_ns)?;
        }
        self.ease_congestion(network, due_ns)?;
        if self.attend_breaks(network, due_ns)? {
            return Ok(None);
        }
        let due_ns = due_ns.min(self.breaks.next_ns());
        let watched = !self.sessions.is_empty();
        self.busy =
            watched || self.realtime || self.held.is_some() || !self.questions.is_empty() || !self.breaks.is_empty();
        if !watched && !self.realtime {
            self.pacer = None;
            if !self.questions.is_empty() {
                return Ok(Some(due_ns.min(slice_ns)));
            }
            if self.held.is_none() {
                return Ok(Some(due_ns));
            }
            self.nap(NAP, network, due_ns)?;
            return Ok(None);
        }
        if self.realtime {
            return self.attend_realtime(network, due_ns);
        }
        let (wall, next_ns) = (host_clock_ns(), network.windows.earliest_ns().min(due_ns));
        let pacer = self
            .pacer
            .get_or_insert_with(|| Pacer::new(wall, network.windows.done_ns()));
        let wait = pacer.wait_for(next_ns, wall);
        if !wait.is_zero() {
            self.nap(wait.min(NAP), network, due_ns)?;
            return Ok(None);
        }
        pacer.fall_behind(next_ns, wall);
        Ok(Some(due_ns.min(slice_ns)))
    }

    /// Waits for a client, and hears it.
    fn nap(&mut self, patience: Duration, network: &mut Network<'_>, due_ns: u64) -> Result<(), EngineError> {
        match self.take(patience) {
            Some(incoming) => self.hear(incoming, network, due_ns),
            None => Ok(()),
        }
    }

    fn take(&mut self, patience: Duration) -> Option<Incoming> {
        match &self.inbox {
            Some(inbox) => inbox.take(patience),
            None => {
                std::thread::sleep(patience);
                None
            }
        }
    }

    /// Lets the events of the recording happen whose time is `at_ns`.
    ///
    /// # Errors
    /// When the log cannot be written.
    pub fn replay(&mut self, network: &mut Network<'_>, at_ns: u64) -> Result<(), EngineError> {
        while let Some(record) = self
            .replay
            .as_mut()
            .and_then(|replay| replay.records.next_if(|record| record.at_ns == at_ns))
        {
            if let Input::Link(change) = record.input {
                let action = self.identity.scenario.link_change(&change);
                let action = action.expect("it was looked at at the start");
                self.change_link(network, at_ns, record.session, change, &action)?;
                continue;
            }
            let up = match record.input {
                Input::Power(up) => Some(up),
                _ => None,
            };
            let named = |name: &String| self.identity.nodes.iter().position(|node| node == name);
            let node = record
                .node
                .as_ref()
                .and_then(named)
                .expect("it was looked for at the start");
            if let Some(up) = up {
                self.switch_node(network, at_ns, node, record.session, up)?;
                continue;
            }
            self.happen(network, at_ns, node, record.session, record.input)?;
        }
        Ok(())
    }

    /// Passes on what nodes have to tell clients.
    #[inline]
    pub fn deliver(&mut self, nodes: &mut [Node]) {
        if !self.busy {
            return;
        }
        for node in nodes {
            for News { session, what } in node.take_client_news() {
                self.tell(session, what);
            }
        }
    }

    fn tell(&mut self, number: u64, what: What) {
        if let What::Processes(found) = what {
            self.answer(number, found);
            return;
        }
        if self.is_of_driver(number) {
            self.tell_driver(number, what);
            return;
        }
        let Some(session) = self.sessions.get_mut(&number) else {
            return;
        };
        if let What::Started { pid } = what {
            session.pid = Some(pid);
        }
        let over = matches!(what, What::Ended(_) | What::Refused(_) | What::HungUp);
        if let Some(client) = &session.client {
            match what {
                What::Started { pid } => client.reply(&Reply::Started { pid }),
                What::Output(stream, bytes) => client.output(stream, bytes),
                What::InputTaken(bytes) => client.input_taken(bytes),
                What::Ended(end) => client.reply(&Reply::Ended(end)),
                What::Refused(refusal) => client.reply(&Reply::Refused(refusal)),
                What::HungUp | What::Processes(_) | What::Done(_) => {}
            }
        }
        if over {
            self.sessions.remove(&number);
        }
    }

    fn answer(&mut self, number: u64, found: Vec<Process>) {
        let Some(question) = self.questions.get_mut(&number) else {
            return;
        };
        question.found.extend(found);
        question.nodes_left -= 1;
        if question.nodes_left == 0 {
            let found = std::mem::take(&mut question.found);
            match &question.client {
                Some(client) => client.reply(&Reply::Processes(found)),
                None => self.tell_driver(number, What::Done(Outcome::Processes(found))),
            }
            self.questions.remove(&number);
        }
    }

    /// The run is over: writes down when, and tells everybody.
    ///
    /// # Errors
    /// When the log cannot be written.
    pub fn finish(&mut self, ended: Ended, done_ns: u64) -> Result<(), EngineError> {
        for session in std::mem::take(&mut self.sessions).into_values() {
            if let Some(client) = session.client {
                client.reply(&Reply::RunOver);
            }
        }
        for question in std::mem::take(&mut self.questions).into_values() {
            if let Some(client) = question.client {
                client.reply(&Reply::RunOver);
            }
        }
        // Time may stand beyond the last window.
        let stands_ns = if self.drive || self.driver.is_some() {
            self.last_ns
        } else {
            0
        };
        if let Some(driver) = self.driver.take() {
            driver.run_over();
        }
        for client in std::mem::take(&mut self.stoppers) {
            client.reply(&Reply::RunOver);
        }
        if self.log.is_none() && !self.end_counts {
            return Ok(());
        }
        // A recording ends between windows, too; where its replay ends is where it did.
        let at_ns = match &self.replay {
            Some(Replay {
                end: Some((end_ns, _)),
                over: true,
                ..
            }) => *end_ns,
            _ => done_ns.max(stands_ns),
        };
        self.write_down(InputRecord {
            at_ns,
            node: None,
            session: 0,
            input: Input::End(ended),
        })
    }

    /// When something that a client does now happens, ns: after all that has happened, and in order. A run that is behind
    /// the wall clock hears it at once.
    fn now_ns(&mut self, network: &mut Network<'_>, due_ns: u64) -> u64 {
        let paced_ns = self.pacer.map_or(0, |pacer| pacer.virtual_ns(host_clock_ns()));
        let next_ns = network.windows.earliest_ns().min(due_ns);
        self.last_ns = self.last_ns.max(paced_ns.min(next_ns)).max(network.windows.done_ns());
        self.last_ns
    }

    fn hear(&mut self, incoming: Incoming, network: &mut Network<'_>, due_ns: u64) -> Result<(), EngineError> {
        let at_ns = self.now_ns(network, due_ns);
        let of_client = |number: u64, sessions: &BTreeMap<u64, Session>| {
            let mut found = sessions
                .iter()
                .filter(|(_, session)| session.number_of_client == number);
            found.next().map(|(&session, _)| session)
        };
        let (number, input) = match incoming {
            Incoming::Request {
                client,
                request: Request::Open { node, program },
            } => return self.open(client, &node, program, network, at_ns),
            Incoming::Request {
                client,
                request: Request::Processes { node },
            } => return self.ask(client, node.as_deref(), network, at_ns),
            Incoming::Request {
                client,
                request: Request::Look(look),
            } => {
                let state = self.state(network, at_ns, &look)?;
                client.reply(&Reply::State(Box::new(state)));
                return Ok(());
            }
            Incoming::Request {
                client,
                request: Request::BreakWhen(wanted),
            } => {
                self.add_break(client, &wanted, at_ns);
                return Ok(());
            }
            Incoming::Request {
                client,
                request: Request::GoOn,
            } => {
                self.breaks.go_on(client.number);
                return Ok(());
            }
            Incoming::Request {
                client,
                request: Request::Stop,
            } => {
                self.stoppers.push(client);
                return Ok(());
            }
            Incoming::Request {
                client,
                request: Request::Resize(size),
            } => (client.number, Input::Resize(size)),
            Incoming::Request {
                client,
                request: Request::EndInput,
            } => (client.number, Input::EndInput(true)),
            Incoming::Request {
                client,
                request: Request::Signal { signal, group },
            } => return self.pass_signal(&client, signal, group, network, at_ns),
            Incoming::Request {
                client,
                request: Request::Drive,
            } => {
                self.take_driver(client, network, due_ns);
                return Ok(());
            }
            Incoming::Request {
                client,
                request: Request::Command(command),
            } => {
                self.hear_command(&client, command);
                return Ok(());
            }
            Incoming::InputFor { client, program, bytes } => {
                self.hear_input(client, program, bytes);
                return Ok(());
            }
            Incoming::Input { client, bytes } => (client, Input::bytes(bytes)),
            Incoming::Gone { client } if self.is_driver(client) => return self.lose_driver(network, at_ns),
            Incoming::Gone { client } => {
                let asks = |question: &Question| question.client.as_ref().is_some_and(|asker| asker.number == client);
                self.questions.retain(|_, question| !asks(question));
                self.breaks.forget(client);
                (client, Input::HangUp(true))
            }
        };
        let Some(session_number) = of_client(number, &self.sessions) else {
            return Ok(());
        };
        let session = self.sessions.get_mut(&session_number).expect("it was found just now");
        if matches!(input, Input::HangUp(_)) {
            session.client = None;
        }
        let node = session.node;
        self.happen(network, at_ns, node, session_number, input)
    }

    fn open(
        &mut self,
        client: Client,
        node: &str,
        program: Open,
        network: &mut Network<'_>,
        at_ns: u64,
    ) -> Result<(), EngineError> {
        let node = match self.find_up(node, network.nodes) {
            Ok(node) => node,
            Err(refused) => {
                client.reply(&Reply::Refused(refused));
                return Ok(());
            }
        };
        if let Some(problem) = program.problem() {
            client.reply(&Reply::Refused(refusal(problem, 2)));
            return Ok(());
        }
        if self
            .sessions
            .values()
            .any(|session| session.number_of_client == client.number)
        {
            client.reply(&Reply::Refused(refusal("one connection has one program", 2)));
            return Ok(());
        }
        let session = Session {
            number_of_client: client.number,
            client: Some(client),
            node,
            pid: None,
            paused: false,
            hung_up: false,
        };
        let number = self.number();
        self.sessions.insert(number, session);
        self.happen(network, at_ns, node, number, Input::Open(program))
    }

    /// A signal for the program of a client; one that does not run, or not any more, does not hear it.
    fn pass_signal(
        &mut self,
        client: &Client,
        signal: i32,
        group: bool,
        network: &mut Network<'_>,
        at_ns: u64,
    ) -> Result<(), EngineError> {
        let of_client = |session: &&Session| session.number_of_client == client.number;
        let Some((node, pid)) = self
            .sessions
            .values()
            .find(of_client)
            .and_then(|session| Some((session.node, i32::try_from(session.pid?).ok()?)))
        else {
            return Ok(());
        };
        let pid = if group { -pid } else { pid };
        if let Some(problem) = signal_problem(pid, signal) {
            client.reply(&Reply::Refused(refusal(problem, 2)));
            return Ok(());
        }
        // A number of its own: what came of it is no news to the program's session.
        let number = self.number();
        self.happen(network, at_ns, node, number, Input::Signal { pid, signal })
    }

    fn ask(
        &mut self,
        client: Client,
        node: Option<&str>,
        network: &mut Network<'_>,
        at_ns: u64,
    ) -> Result<(), EngineError> {
        let asked = match self.asked(node, network.nodes) {
            Ok(asked) if asked.is_empty() => {
                client.reply(&Reply::Processes(Vec::new()));
                return Ok(());
            }
            Ok(asked) => asked,
            Err(refused) => {
                client.reply(&Reply::Refused(refused));
                return Ok(());
            }
        };
        let question = Question {
            client: Some(client),
            nodes_left: asked.len(),
            found: Vec::new(),
        };
        let number = self.number();
        self.questions.insert(number, question);
        for node in asked {
            self.happen(network, at_ns, node, number, Input::Processes(true))?;
        }
        Ok(())
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number - 1
    }

    fn find(&self, name: &str) -> Result<usize, Refusal> {
        let found = self.identity.nodes.iter().position(|node| node == name);
        found.ok_or_else(|| refusal(format!("there is no node `{name}`"), 2))
    }

    /// As [`Live::find`], a node that has power.
    fn find_up(&self, name: &str, nodes: &[Node]) -> Result<usize, Refusal> {
        let node = self.find(name)?;
        match nodes[node].is_up() {
            true => Ok(node),
            false => Err(Refusal {
                hint: Some("a driver boots it with `power`, in Python with `up()`".to_owned()),
                ..refusal(format!("node `{name}` is down"), 2)
            }),
        }
    }

    /// Whom a question is for: a node, or all that are up.
    fn asked(&self, name: Option<&str>, nodes: &[Node]) -> Result<Vec<usize>, Refusal> {
        match name {
            Some(name) => Ok(vec![self.find_up(name, nodes)?]),
            None => Ok((0..nodes.len()).filter(|&node| nodes[node].is_up()).collect()),
        }
    }

    /// Stops reading programs whose clients do not take what they have, and reads them again when they do.
    fn ease_congestion(&mut self, network: &mut Network<'_>, due_ns: u64) -> Result<(), EngineError> {
        let mut changed = Vec::new();
        for (&number, session) in &mut self.sessions {
            let queued = session.client.as_ref().map_or(0, Client::queued_bytes);
            let change = if session.paused {
                queued < QUEUED_FEW
            } else {
                queued > QUEUED_MAX
            };
            if change && session.client.is_some() {
                session.paused = !session.paused;
                changed.push((number, session.node, session.paused));
            }
        }
        for (number, node, paused) in changed {
            let at_ns = self.now_ns(network, due_ns);
            self.happen(network, at_ns, node, number, Input::Pause(paused))?;
        }
        Ok(())
    }

    /// Something happens to a node at `at_ns`.
    fn happen(
        &mut self,
        network: &mut Network<'_>,
        at_ns: u64,
        node: usize,
        session: u64,
        input: Input,
    ) -> Result<(), EngineError> {
        self.busy = true;
        self.write_down(InputRecord {
            at_ns,
            node: Some(self.identity.nodes[node].clone()),
            session,
            input: input.clone(),
        })?;
        let key = self.source.key(at_ns);
        network.nodes[node].client_input(key, Arrived { session, input });
        network.windows.note(node as u32, at_ns);
        Ok(())
    }

    /// A node goes down or is booted at `at_ns`.
    fn switch_node(
        &mut self,
        network: &mut Network<'_>,
        at_ns: u64,
        node: usize,
        session: u64,
        up: bool,
    ) -> Result<(), EngineError> {
        self.busy = true;
        self.write_down(InputRecord {
            at_ns,
            node: Some(self.identity.nodes[node].clone()),
            session,
            input: Input::Power(up),
        })?;
        let links = network.links;
        links.switch(network, &mut self.source, at_ns, node, up, ChangedBy::Client)?;
        self.deliver(network.nodes);
        Ok(())
    }

    /// A link changes at `at_ns`.
    fn change_link(
        &mut self,
        network: &mut Network<'_>,
        at_ns: u64,
        session: u64,
        change: serde_json::Map<String, serde_json::Value>,
        action: &Action,
    ) -> Result<(), EngineError> {
        self.write_down(InputRecord {
            at_ns,
            node: None,
            session,
            input: Input::Link(change),
        })?;
        let links = network.links;
        links.change(network, &mut self.source, at_ns, action, ChangedBy::Client)?;
        self.links_changed = true;
        Ok(())
    }

    fn write_down(&mut self, record: InputRecord) -> Result<(), EngineError> {
        self.begin_log()?;
        let log = self.log.as_mut().expect("it was made just now");
        log.append(&record).map_err(EngineError::InputLog)
    }

    /// Sees to a log, in which nothing may be.
    fn begin_log(&mut self) -> Result<(), EngineError> {
        if self.log.is_none() {
            let header = InputHeader {
                input_version: INPUT_VERSION,
                scenario_sha256: self.identity.scenario_sha256.clone(),
                seed: self.identity.seed,
            };
            let file = self.identity.out.input_log()?;
            self.log = Some(InputLog::new(file, &header).map_err(EngineError::InputLog)?);
        }
        Ok(())
    }
}

impl Replay {
    fn new(recording: Recording, identity: &Identity) -> Result<Self, EngineError> {
        let header = &recording.header;
        if header.seed != identity.seed {
            let text = format!(
                "it was recorded with seed {}, and this run has {}",
                header.seed, identity.seed
            );
            return Err(EngineError::Recording(text));
        }
        let unknown = |record: &&InputRecord| record.node.as_ref().is_some_and(|node| !identity.nodes.contains(node));
        if let Some(record) = recording.records.iter().find(unknown) {
            let name = record.node.as_deref().unwrap_or_default();
            return Err(EngineError::Recording(format!(
                "it has input for node `{name}`, which is not there"
            )));
        }
        for record in &recording.records {
            if let Input::Link(change) = &record.input
                && let Err(problem) = identity.scenario.link_change(change)
            {
                let text = format!("it has a change of a link that cannot be made here: {problem}");
                return Err(EngineError::Recording(text));
            }
        }
        Ok(Self {
            records: recording.records.into_iter().peekable(),
            over: false,
            end: recording.end,
        })
    }
}
