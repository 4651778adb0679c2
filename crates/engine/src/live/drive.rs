//! A run whose time is in the hands of one client, its driver.
//!
//! The driver's commands are carried out one after the other. What does something to a node is an event at the time where the
//! run stands; then the run goes on for one nanosecond, so that the next command finds what came of it, and no two of them share
//! a time. So the log of them is enough to repeat the run, in which time goes on by itself.

use std::collections::{BTreeSet, VecDeque};

use windtunnel_control::{
    Answer, Client, Command, Input, Measured, NodePower, Numbered, Outcome, Pause, ProgramEnd, Refusal, Reply,
    Run as RunCommand,
};
use windtunnel_results::Ended;

use super::{Live, NAP, Network, Question, SLICE_NS, Session, look};
use crate::cables::Cables;
use crate::error::EngineError;
use crate::measure::Measure;
use crate::node::{Node, What};
use crate::terminal::refusal;

/// Output that the driver has not taken at which time waits for it, bytes.
const UNTAKEN_MAX: usize = 64 << 20;

/// The client that drives a run.
#[derive(Debug)]
pub struct Driver {
    client: Client,
    /// What it sent, and what has not begun.
    todo: VecDeque<Todo>,
    current: Option<Current>,
    /// Its programs that have printed something since the answer to its last run or step.
    printed: BTreeSet<u64>,
    /// Its programs that have ended.
    ended_programs: BTreeSet<u64>,
    /// Why time cannot go on.
    ended: Option<Ended>,
}

#[derive(Debug)]
enum Todo {
    Command(Numbered),
    Input { program: u64, bytes: Vec<u8> },
}

/// A command that is being carried out.
#[derive(Debug)]
enum Current {
    Run {
        id: u64,
        until_ns: u64,
        /// Those of which all have to end.
        programs: Option<BTreeSet<u64>>,
        /// Those of which one has to print.
        output: Option<BTreeSet<u64>>,
        /// Why it goes no further, as soon as that is so.
        broken_off: Option<Pause>,
    },
    Step {
        id: u64,
        /// End of the last window when it began, ns.
        done_ns: u64,
    },
    Instant {
        id: u64,
        /// Number of the program or question; 0: it is no node's.
        number: u64,
        at_ns: u64,
        answered: bool,
    },
    /// It begins when its node is set up.
    Setup {
        command: Numbered,
        node: usize,
        /// The node is set up.
        ready: bool,
        /// It is not to begin any more.
        paused: bool,
    },
}

impl Driver {
    /// Whether the run may end when nothing is left to do.
    pub fn goes_to_the_end(&self) -> bool {
        matches!(
            self.current,
            Some(Current::Run {
                until_ns: u64::MAX,
                programs: None,
                output: None,
                ..
            })
        )
    }

    /// Says goodbye.
    pub fn run_over(self) {
        self.client.reply(&Reply::RunOver);
    }

    fn answer(&self, id: u64, at_ns: u64, outcome: Outcome) {
        self.client.reply(&Reply::Answer(Answer { id, at_ns, outcome }));
    }

    fn refuse(&self, id: u64, at_ns: u64, message: impl Into<String>) {
        self.answer(id, at_ns, Outcome::Refused(refusal(message, 2)));
    }

    /// Whether time may stand still again.
    fn is_reached(&self, next_ns: u64, done_ns: u64) -> bool {
        match &self.current {
            None => true,
            Some(Current::Run {
                until_ns,
                programs,
                broken_off,
                ..
            }) => next_ns >= *until_ns || broken_off.is_some() || programs.as_ref().is_some_and(BTreeSet::is_empty),
            Some(Current::Step { done_ns: began_ns, .. }) => done_ns > *began_ns,
            Some(Current::Instant { at_ns, .. }) => next_ns > *at_ns,
            Some(Current::Setup { ready, paused, .. }) => *ready || *paused,
        }
    }

    /// How far the next window may go, ns.
    fn limit_ns(&self, due_ns: u64, earliest_ns: u64) -> u64 {
        match &self.current {
            None | Some(Current::Step { .. }) => due_ns,
            Some(Current::Instant { at_ns, .. }) => due_ns.min(at_ns + 1),
            Some(Current::Setup { .. }) => due_ns.min(earliest_ns.saturating_add(SLICE_NS)),
            Some(Current::Run {
                until_ns,
                programs,
                output,
                ..
            }) => {
                let watches = programs.is_some() || output.is_some();
                let slice_ns = if watches {
                    earliest_ns.saturating_add(SLICE_NS)
                } else {
                    u64::MAX
                };
                due_ns.min(*until_ns).min(slice_ns)
            }
        }
    }
}

impl Live {
    pub(super) fn is_driver(&self, client: u64) -> bool {
        self.driver
            .as_ref()
            .is_some_and(|driver| driver.client.number == client)
    }

    /// Whether the driver waits for word of this program or question.
    pub(super) fn is_of_driver(&self, number: u64) -> bool {
        let asked =
            |driver: &Driver| matches!(driver.current, Some(Current::Instant { number: of, .. }) if of == number);
        let session = self.sessions.get(&number);
        session.is_some_and(|session| self.is_driver(session.number_of_client))
            || self.driver.as_ref().is_some_and(asked)
    }

    /// A client wants to drive.
    pub(super) fn take_driver(&mut self, client: Client, network: &mut Network<'_>, due_ns: u64) {
        if self.driver.is_some() {
            client.reply(&Reply::Refused(refusal("somebody else drives this run", 2)));
            return;
        }
        if self.replay.is_some() || self.realtime {
            let why = if self.realtime {
                "follows the wall clock"
            } else {
                "is a replay"
            };
            client.reply(&Reply::Refused(refusal(
                format!("a run that {why} cannot be driven"),
                2,
            )));
            return;
        }
        let at_ns = self.now_ns(network, due_ns);
        self.pacer = None;
        self.busy = true;
        client.reply(&Reply::Driving { at_ns });
        self.driver = Some(Driver {
            client,
            todo: VecDeque::new(),
            current: None,
            printed: BTreeSet::new(),
            ended_programs: BTreeSet::new(),
            ended: self.held,
        });
    }

    /// The driver has closed its connection.
    pub(super) fn lose_driver(&mut self, network: &mut Network<'_>, at_ns: u64) -> Result<(), EngineError> {
        let driver = self.driver.take().expect("it was asked for");
        if self.drive {
            self.driver_ended = Some(driver.ended.unwrap_or(Ended::Interrupted));
            return Ok(());
        }
        let of_driver = |session: &Session| session.number_of_client == driver.client.number;
        self.sessions
            .retain(|_, session| !(session.hung_up && of_driver(session)));
        let left: Vec<_> = self
            .sessions
            .iter_mut()
            .filter(|(_, session)| of_driver(session))
            .collect();
        let left: Vec<(u64, usize)> = left
            .into_iter()
            .map(|(&number, session)| {
                session.client = None;
                (number, session.node)
            })
            .collect();
        for (number, node) in left {
            self.happen(network, at_ns, node, number, Input::HangUp(true))?;
        }
        Ok(())
    }

    /// A command comes in. Those that overtake others are carried out at once.
    pub(super) fn hear_command(&mut self, client: &Client, Numbered { id, command }: Numbered) {
        let Some(driver) = self
            .driver
            .as_mut()
            .filter(|driver| driver.client.number == client.number)
        else {
            client.reply(&Reply::Refused(refusal(
                "commands are for the driver: `drive` comes first",
                2,
            )));
            return;
        };
        match command {
            Command::Stop {} => self.driver_ended = Some(driver.ended.unwrap_or(Ended::Driver)),
            Command::Pause {} => {
                // Done when the run before it has stopped, which is its turn.
                match &mut driver.current {
                    Some(Current::Run { broken_off, .. }) => {
                        broken_off.get_or_insert(Pause::Paused);
                    }
                    Some(Current::Setup { paused, .. }) => *paused = true,
                    _ => {}
                }
                driver.todo.push_front(Todo::Command(Numbered { id, command }));
            }
            command => driver.todo.push_back(Todo::Command(Numbered { id, command })),
        }
    }

    pub(super) fn hear_input(&mut self, client: u64, program: u64, bytes: Vec<u8>) {
        if let Some(driver) = self.driver.as_mut().filter(|driver| driver.client.number == client) {
            driver.todo.push_back(Todo::Input { program, bytes });
        }
    }

    /// As [`Live::attend`], with a driver or while one is waited for.
    pub(super) fn attend_driver(&mut self, network: &mut Network<'_>, due_ns: u64) -> Result<Option<u64>, EngineError> {
        if self.inbox.as_ref().is_some_and(|inbox| inbox.has_something()) {
            while let Some(incoming) = self.take(std::time::Duration::ZERO) {
                self.hear(incoming, network, due_ns)?;
            }
        }
        loop {
            if self.is_stopped() {
                return Ok(None);
            }
            let Some(driver) = &mut self.driver else {
                if self.drive {
                    self.nap(NAP, network, due_ns)?;
                    return Ok(None);
                }
                return Ok(Some(due_ns));
            };
            if let Some(Current::Setup { node, ready, .. }) = &mut driver.current {
                *ready = network.nodes[*node].is_set_up();
            }
            let earliest_ns = network.windows.earliest_ns();
            if !driver.is_reached(earliest_ns.min(due_ns), network.windows.done_ns()) {
                let full = driver.client.queued_bytes() > UNTAKEN_MAX;
                let limit_ns = driver.limit_ns(due_ns, earliest_ns);
                if full {
                    self.nap(NAP, network, due_ns)?;
                    return Ok(None);
                }
                return Ok(Some(limit_ns));
            }
            self.stand_still(network)?;
            let next = self.driver.as_mut().and_then(|driver| driver.todo.pop_front());
            match next {
                Some(Todo::Command(command)) => self.begin(command, network, due_ns)?,
                Some(Todo::Input { program, bytes }) => {
                    // What a program that has ended does not read is lost, as in a pipe.
                    if let Some(node) = self.node_of(program) {
                        let at_ns = self.now_ns(network, due_ns);
                        self.happen(network, at_ns, node, program, Input::bytes(bytes))?;
                    }
                }
                None => {
                    self.nap(NAP, network, due_ns)?;
                    return Ok(None);
                }
            }
        }
    }

    /// What was to be done is done: time stands still, and the driver hears of it.
    ///
    /// # Errors
    /// When a measurement cannot be written.
    fn stand_still(&mut self, network: &mut Network<'_>) -> Result<(), EngineError> {
        self.answer_that_time_stands(network.windows.done_ns());
        let driver = self.driver.as_ref().expect("time stands still for it");
        // Now, before a command changes what they look at. A run that is over has its last ones written at its end.
        if driver.ended.is_none() {
            let at_ns = self.last_ns.min(network.windows.earliest_ns());
            network.catch_up(at_ns)?;
        }
        Ok(())
    }

    fn answer_that_time_stands(&mut self, done_ns: u64) {
        let driver = self.driver.as_mut().expect("time stands still for it");
        if matches!(driver.current, Some(Current::Run { .. } | Current::Step { .. })) {
            driver.printed.clear();
        }
        match driver.current.take() {
            None => {}
            Some(Current::Run {
                id,
                until_ns,
                broken_off,
                programs,
                ..
            }) => {
                let ended = programs.is_some_and(|programs| programs.is_empty());
                let broken_off = if ended { Some(Pause::Programs) } else { broken_off };
                let at_ns = broken_off.map_or(done_ns.max(until_ns), |_| done_ns);
                self.last_ns = self.last_ns.max(at_ns);
                let why = broken_off.unwrap_or(Pause::Until);
                driver.answer(id, self.last_ns, Outcome::Time { why, ended: None });
            }
            Some(Current::Step { id, .. }) => {
                self.last_ns = self.last_ns.max(done_ns);
                let (why, ended) = (Pause::Window, None);
                driver.answer(id, self.last_ns, Outcome::Time { why, ended });
            }
            Some(Current::Instant {
                id, at_ns, answered, ..
            }) => {
                self.last_ns = self.last_ns.max(at_ns + 1);
                if !answered {
                    driver.answer(id, at_ns, Outcome::Done {});
                }
            }
            Some(Current::Setup {
                command, node, ready, ..
            }) => {
                self.last_ns = self.last_ns.max(done_ns);
                if ready {
                    driver.todo.push_front(Todo::Command(command));
                } else {
                    let name = &self.identity.nodes[node];
                    let text = format!("it was paused before node `{name}` was set up: nothing was done");
                    driver.refuse(command.id, self.last_ns, text);
                }
            }
        }
    }

    /// The run would end now: time stays there, and the driver has the last word.
    pub(super) fn driven_to_the_end(&mut self, ended: Ended, at_ns: u64) {
        self.last_ns = self.last_ns.max(at_ns);
        let driver = self.driver.as_mut().expect("it was asked for");
        driver.ended.get_or_insert(ended);
        if self.hold {
            self.held.get_or_insert(ended);
        }
        match driver.current.take() {
            None => {}
            Some(Current::Run { id, .. } | Current::Step { id, .. }) => {
                let (why, ended) = (Pause::End, driver.ended);
                driver.answer(id, self.last_ns, Outcome::Time { why, ended });
            }
            Some(Current::Instant { id, at_ns, .. }) => driver.refuse(id, at_ns, OVER),
            Some(Current::Setup { command, node, .. }) => {
                let name = &self.identity.nodes[node];
                let text = format!("the run has come to its end while node `{name}` was being set up: {SETUP_GOES_ON}");
                driver.refuse(command.id, self.last_ns, text);
            }
        }
    }

    fn node_of(&self, program: u64) -> Option<usize> {
        let session = self.sessions.get(&program)?;
        self.is_driver(session.number_of_client).then_some(session.node)
    }

    /// Begins what has no other before it.
    fn begin(&mut self, command: Numbered, network: &mut Network<'_>, due_ns: u64) -> Result<(), EngineError> {
        let Numbered { id, command } = command;
        let at_ns = self.now_ns(network, due_ns);
        if let Some(node) = self.needs_set_up(&command, network.nodes) {
            let driver = self.driver.as_mut().expect("its command begins");
            let (command, ready, paused) = (Numbered { id, command }, false, false);
            driver.current = Some(Current::Setup {
                command,
                node,
                ready,
                paused,
            });
            return Ok(());
        }
        if let Err(refused) = self.carry_out(id, command, network, at_ns)? {
            let driver = self.driver.as_ref().expect("its command began");
            driver.answer(id, at_ns, Outcome::Refused(refused));
        }
        Ok(())
    }

    /// The node that has to be set up before this can be done, and is not yet. As for the scenario's own programs: who uses a node
    /// finds it as the scenario describes it. Whatever happened would be beside a set-up command, before or after.
    fn needs_set_up(&self, command: &Command, nodes: &[Node]) -> Option<usize> {
        let (Command::Start { node, .. } | Command::ReadFile { node, .. } | Command::WriteFile { node, .. }) = command
        else {
            return None;
        };
        let over = self.driver.as_ref().is_some_and(|driver| driver.ended.is_some());
        let node = self.find_up(node, nodes).ok()?;
        (!over && command.problem().is_none() && !nodes[node].is_set_up()).then_some(node)
    }

    fn carry_out(
        &mut self,
        id: u64,
        command: Command,
        network: &mut Network<'_>,
        at_ns: u64,
    ) -> Result<Result<(), Refusal>, EngineError> {
        if let Some(problem) = command.problem() {
            return Ok(Err(refusal(problem, 2)));
        }
        let driver = self.driver.as_mut().expect("its command begins");
        let over = driver.ended.is_some();
        match command {
            Command::Pause {} | Command::Stop {} => driver.answer(id, at_ns, Outcome::Done {}),
            Command::Counters {} => {
                let (nodes, cables) = network.cables();
                let summaries = cables.summaries(nodes);
                driver.answer(id, at_ns, Outcome::Links(summaries));
            }
            Command::Sample { what, node, skip } => {
                let node = match node.map(|node| self.find(&node)).transpose() {
                    Ok(node) => node,
                    Err(refused) => return Ok(Err(refused)),
                };
                let sample = look::sample(network.nodes, node, what, skip, at_ns)?;
                let driver = self.driver.as_ref().expect("its command begins");
                driver.answer(id, at_ns, Outcome::Sample(sample));
            }
            Command::Series { series } => {
                let found = match network.measure {
                    Some(measure) => measure.so_far(series)?,
                    None => None,
                };
                let Some((file, bytes, complete_ns)) = found else {
                    return Ok(Err(not_measured()));
                };
                let file = file.to_owned();
                driver.answer(
                    id,
                    at_ns,
                    Outcome::Series {
                        file,
                        bytes,
                        complete_ns,
                    },
                );
            }
            Command::Nodes {} => {
                let state = |node: &Node| NodePower {
                    node: node.name().to_owned(),
                    up: node.is_up(),
                    ready: node.is_up() && node.is_set_up(),
                    life: node.programs.life.number,
                };
                let states = network.nodes.iter().map(state).collect();
                driver.answer(id, at_ns, Outcome::Nodes(states));
            }
            Command::Run(_) | Command::Step {} if over => {
                let (why, ended) = (Pause::End, driver.ended);
                driver.answer(id, at_ns, Outcome::Time { why, ended });
            }
            Command::Run(run) => return Ok(self.begin_run(id, run, at_ns)),
            Command::Step {} => {
                let done_ns = network.windows.done_ns();
                driver.current = Some(Current::Step { id, done_ns });
            }
            Command::EndInput { program } => {
                return self.at_program(id, program, Input::EndInput(true), network, at_ns);
            }
            Command::Resize { program, size } => {
                return self.at_program(id, program, Input::Resize(size), network, at_ns);
            }
            Command::HangUp { program } => return self.at_program(id, program, Input::HangUp(true), network, at_ns),
            _ if over => return Ok(Err(refusal(OVER, 2))),
            Command::Power { node, up } => {
                let name = node;
                let node = match self.find(&name) {
                    Ok(node) => node,
                    Err(refused) => return Ok(Err(refused)),
                };
                if network.nodes[node].is_up() == up {
                    let state = if up { "up" } else { "down" };
                    return Ok(Err(refusal(format!("node `{name}` is {state} already"), 2)));
                }
                let number = self.instant(id, at_ns);
                self.switch_node(network, at_ns, node, number, up)?;
            }
            Command::Start { node, program } => {
                let node = match self.find_up(&node, network.nodes) {
                    Ok(node) => node,
                    Err(refused) => return Ok(Err(refused)),
                };
                let number = self.instant(id, at_ns);
                let driver = self.driver.as_ref().expect("its command begins");
                let session = Session {
                    number_of_client: driver.client.number,
                    client: Some(driver.client.clone()),
                    node,
                    pid: None,
                    paused: false,
                    hung_up: false,
                };
                self.sessions.insert(number, session);
                self.happen(network, at_ns, node, number, Input::Open(program))?;
            }
            Command::Measure { interval_ns, series } => {
                let series: BTreeSet<_> = series.into_iter().collect();
                let has = |what: &Measured| network.measure.as_ref().is_some_and(|measure| measure.has(*what));
                if let Some(what) = series.iter().copied().find(has) {
                    let text = format!("{what:?} is measured already").to_lowercase();
                    return Ok(Err(refusal(text, 2)));
                }
                for what in series {
                    let (asked, out) = ((what, interval_ns), &self.identity.out);
                    let mut cables = Cables::new(network.links, network.outside.as_deref_mut());
                    Measure::start(network.measure, asked, out, network.nodes, &mut cables, at_ns)?;
                }
                let driver = self.driver.as_ref().expect("its command begins");
                driver.answer(id, at_ns, Outcome::Done {});
            }
            Command::Signal { node, pid, signal } => {
                return self.ask_node(id, &node, Input::Signal { pid, signal }, network, at_ns);
            }
            Command::ReadFile { node, path } => {
                return self.ask_node(id, &node, Input::ReadFile(path), network, at_ns);
            }
            Command::WriteFile {
                node,
                path,
                content,
                mode,
            } => {
                return self.ask_node(id, &node, Input::WriteFile { path, content, mode }, network, at_ns);
            }
            Command::Processes { node } => return self.ask_processes(id, node.as_deref(), network, at_ns),
            Command::Link { change } => {
                let action = match self.identity.scenario.link_change(&change) {
                    Ok(action) => action,
                    Err(problem) => {
                        let hint = problem.hint.clone();
                        return Ok(Err(Refusal {
                            hint,
                            ..refusal(problem.to_string(), 2)
                        }));
                    }
                };
                if let Some((jitter, delay)) = network.links.too_much_jitter(network.nodes, &action) {
                    let text = format!("jitter `{jitter}` is more than the delay of {delay}");
                    return Ok(Err(refusal(text, 2)));
                }
                let number = self.instant(id, at_ns);
                self.change_link(network, at_ns, number, change, &action)?;
            }
        }
        Ok(Ok(()))
    }

    /// Something that takes an instant begins; its number.
    fn instant(&mut self, id: u64, at_ns: u64) -> u64 {
        let number = self.number();
        let driver = self.driver.as_mut().expect("its command begins");
        driver.current = Some(Current::Instant {
            id,
            number,
            at_ns,
            answered: false,
        });
        number
    }

    fn begin_run(&mut self, id: u64, run: RunCommand, at_ns: u64) -> Result<(), Refusal> {
        let RunCommand {
            until_ns,
            programs,
            output,
        } = run;
        if let Some(until_ns) = until_ns.filter(|&until_ns| until_ns < at_ns) {
            return Err(refusal(format!("{until_ns} ns is past: it is {at_ns} ns"), 2));
        }
        let driver = self.driver.as_ref().expect("its command begins");
        let known = |program: &&u64| driver.ended_programs.contains(program) || self.node_of(**program).is_some();
        if let Some(unknown) = programs.iter().chain(&output).find(|program| !known(program)) {
            return Err(unknown_program(*unknown));
        }
        let ended = |program: &u64| driver.ended_programs.contains(program);
        let current = Current::Run {
            id,
            until_ns: until_ns.unwrap_or(u64::MAX),
            broken_off: output
                .iter()
                .any(|program| ended(program) || driver.printed.contains(program))
                .then_some(Pause::Output),
            output: (!output.is_empty()).then(|| output.into_iter().collect()),
            programs: (!programs.is_empty()).then(|| programs.into_iter().filter(|program| !ended(program)).collect()),
        };
        self.driver.as_mut().expect("its command begins").current = Some(current);
        Ok(())
    }

    /// Something happens to a program as soon as time goes on; one that has ended does not hear of it.
    fn at_program(
        &mut self,
        id: u64,
        program: u64,
        input: Input,
        network: &mut Network<'_>,
        at_ns: u64,
    ) -> Result<Result<(), Refusal>, EngineError> {
        let node = self.node_of(program);
        let driver = self.driver.as_ref().expect("its command begins");
        if node.is_none() && !driver.ended_programs.contains(&program) {
            return Ok(Err(unknown_program(program)));
        }
        driver.answer(id, at_ns, Outcome::Done {});
        if let Some(node) = node {
            self.happen(network, at_ns, node, program, input)?;
        }
        Ok(Ok(()))
    }

    /// Has a node do something that it answers.
    fn ask_node(
        &mut self,
        id: u64,
        node: &str,
        input: Input,
        network: &mut Network<'_>,
        at_ns: u64,
    ) -> Result<Result<(), Refusal>, EngineError> {
        let node = match self.find_up(node, network.nodes) {
            Ok(node) => node,
            Err(refused) => return Ok(Err(refused)),
        };
        let number = self.instant(id, at_ns);
        self.happen(network, at_ns, node, number, input)?;
        Ok(Ok(()))
    }

    fn ask_processes(
        &mut self,
        id: u64,
        node: Option<&str>,
        network: &mut Network<'_>,
        at_ns: u64,
    ) -> Result<Result<(), Refusal>, EngineError> {
        let asked = match self.asked(node, network.nodes) {
            Ok(asked) if asked.is_empty() => {
                let driver = self.driver.as_ref().expect("its command begins");
                driver.answer(id, at_ns, Outcome::Processes(Vec::new()));
                return Ok(Ok(()));
            }
            Ok(asked) => asked,
            Err(refused) => return Ok(Err(refused)),
        };
        let number = self.instant(id, at_ns);
        let question = Question {
            client: None,
            nodes_left: asked.len(),
            found: Vec::new(),
        };
        self.questions.insert(number, question);
        for node in asked {
            self.happen(network, at_ns, node, number, Input::Processes(true))?;
        }
        Ok(Ok(()))
    }

    /// Passes on what a node has to tell the driver.
    pub(super) fn tell_driver(&mut self, number: u64, what: What) {
        let Some(driver) = &mut self.driver else { return };
        let of_current = match &mut driver.current {
            Some(Current::Instant {
                id,
                number: of,
                at_ns,
                answered,
            }) if *of == number => Some((*id, *at_ns, answered)),
            _ => None,
        };
        let outcome = match what {
            What::Started { pid } => Outcome::Started { program: number, pid },
            What::Refused(refused) => {
                self.sessions.remove(&number);
                Outcome::Refused(refused)
            }
            What::Done(outcome) => outcome,
            What::Output(stream, bytes) => {
                driver.printed.insert(number);
                if let Some(Current::Run {
                    output: Some(awaited),
                    broken_off,
                    ..
                }) = &mut driver.current
                    && awaited.contains(&number)
                {
                    broken_off.get_or_insert(Pause::Output);
                }
                driver.client.output_of(number, stream, bytes);
                return;
            }
            What::Ended(end) => {
                driver
                    .client
                    .reply(&Reply::ProgramEnded(ProgramEnd { program: number, end }));
                self.program_is_over(number);
                return;
            }
            What::HungUp => {
                // It may take its time to end, or not end at all.
                if let Some(session) = self.sessions.get_mut(&number) {
                    session.hung_up = true;
                }
                return;
            }
            What::InputTaken(_) | What::Processes(_) => return,
        };
        if let Some((id, at_ns, answered)) = of_current {
            *answered = true;
            driver.answer(id, at_ns, outcome);
        }
    }

    fn program_is_over(&mut self, number: u64) {
        self.sessions.remove(&number);
        let Some(driver) = &mut self.driver else { return };
        driver.ended_programs.insert(number);
        if let Some(Current::Run {
            programs,
            output,
            broken_off,
            ..
        }) = &mut driver.current
        {
            if output.as_ref().is_some_and(|awaited| awaited.contains(&number)) {
                broken_off.get_or_insert(Pause::Output);
            }
            if let Some(programs) = programs {
                programs.remove(&number);
            }
        }
    }
}

const OVER: &str = "the run has come to its end: nothing can happen any more";
const SETUP_GOES_ON: &str = "a `setup` command of it has not ended";

fn not_measured() -> Refusal {
    Refusal {
        hint: Some("the command `measure` begins with it, or `measure` of the scenario's `run`".to_owned()),
        ..refusal("this run does not measure that", 2)
    }
}

fn unknown_program(program: u64) -> Refusal {
    refusal(
        format!("there is no program with the number {program} on this connection"),
        2,
    )
}
