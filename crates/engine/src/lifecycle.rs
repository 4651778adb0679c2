//! The programs of one node from first to last: what to start, to signal and to wait for. Pure: times and events go in,
//! [`Action`]s come out.
//!
//! Set-up commands run one after the other from time 0 on; each must exit with 0. Then come the processes: each starts
//! at its start time, or when the set-up is over if that is later. At its stop time a process gets its stop signal, and
//! SIGKILL if it is still there [`KILL_AFTER_NS`] later.

use windtunnel_scenario::{Expect, Outcome};

/// How long a program may take to end after its stop signal, ns of virtual time.
pub const KILL_AFTER_NS: u64 = 5_000_000_000;
const SIGKILL: i32 = 9;

/// A program to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Program and arguments.
    pub command: Vec<String>,
    /// When it starts, ns; 0 for set-up commands.
    pub start_ns: u64,
    /// When it is sent `stop_signal`, ns.
    pub stop_ns: Option<u64>,
    /// Signal number.
    pub stop_signal: i32,
    /// What must become of it; not looked at for set-up commands.
    pub expect: Expect,
}

/// Where a program is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Its time has not come.
    Waiting,
    /// Asked for, not running yet.
    Starting,
    /// Running.
    Running {
        /// Process id in the node.
        pid: u32,
        /// When it started, ns.
        start_ns: u64,
    },
    /// Ended.
    Ended {
        /// Process id in the node.
        pid: u32,
        /// When it started, ns.
        start_ns: u64,
        /// When it ended, ns.
        end_ns: u64,
        /// How.
        how: Outcome,
    },
    /// Could not be started.
    Failed {
        /// Linux error number.
        errno: i32,
    },
    /// Ran when the power of the node went.
    Cut {
        /// Process id in the node.
        pid: u32,
        /// When it started, ns.
        start_ns: u64,
        /// When the power went, ns.
        end_ns: u64,
    },
    /// Will not start: the power of the node went before, or its time to stop was over when the node was booted.
    Skipped,
}

/// Something the node has to do, or to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Start program number `.0`.
    Spawn(usize),
    /// Send a signal.
    Signal {
        /// Process id in the node.
        pid: u32,
        /// Signal number.
        signal: i32,
    },
    /// Call [`Lifecycle::due`] at this time, ns.
    Wake(u64),
    /// Warn: code, the command that did it, and the rest of the sentence.
    Warn(&'static str, Option<String>, String),
    /// A set-up command failed: its number and what became of it. The run cannot go on.
    SetupFailed(usize, String),
}

#[derive(Debug)]
struct Program {
    plan: Plan,
    state: State,
    /// When the stop signal was sent, ns.
    stop_sent_ns: Option<u64>,
    killed: bool,
}

/// The programs of one node: set-up commands first, then processes.
#[derive(Debug)]
pub struct Lifecycle {
    programs: Vec<Program>,
    setup_count: usize,
    /// When all this begins, ns.
    begin_ns: u64,
    /// When the set-up was over, ns.
    setup_end_ns: Option<u64>,
}

impl Lifecycle {
    /// Programs of a node, none started.
    pub fn new(setup: Vec<Plan>, processes: Vec<Plan>) -> Self {
        let setup_count = setup.len();
        let programs = setup
            .into_iter()
            .chain(processes)
            .map(|plan| Program {
                plan,
                state: State::Waiting,
                stop_sent_ns: None,
                killed: false,
            })
            .collect();
        Self {
            programs,
            setup_count,
            begin_ns: 0,
            setup_end_ns: None,
        }
    }

    /// The node is there: at time 0, or at that of a later boot. Processes whose start time is past then start as soon as the set-up is
    /// over, but for those that should have stopped by then.
    pub fn begin(&mut self, now_ns: u64) -> Vec<Action> {
        self.begin_ns = now_ns;
        for program in &mut self.programs[self.setup_count..] {
            if now_ns > 0 && program.plan.stop_ns.is_some_and(|stop_ns| stop_ns <= now_ns) {
                program.state = State::Skipped;
            }
        }
        let mut actions = Vec::new();
        self.next_setup(now_ns, &mut actions);
        actions
    }

    /// The power goes: what runs is gone, and nothing else starts.
    pub fn cut(&mut self, now_ns: u64) {
        for program in &mut self.programs {
            program.state = match program.state {
                State::Waiting | State::Starting => State::Skipped,
                State::Running { pid, start_ns } => State::Cut {
                    pid,
                    start_ns,
                    end_ns: now_ns,
                },
                over => over,
            };
        }
    }

    /// Starts the next set-up command, or the time of processes.
    fn next_setup(&mut self, now_ns: u64, actions: &mut Vec<Action>) {
        let waiting = self.programs[..self.setup_count]
            .iter()
            .position(|p| p.state == State::Waiting);
        if let Some(index) = waiting {
            self.programs[index].state = State::Starting;
            actions.push(Action::Spawn(index));
            return;
        }
        self.setup_end_ns = Some(now_ns);
        let processes = &self.programs[self.setup_count..];
        let late = processes
            .iter()
            .filter(|program| (self.begin_ns..now_ns).contains(&program.plan.start_ns))
            .count();
        if late > 0 {
            let text = format!(
                "set-up took until {}, after the start of {late} of its processes; they start then",
                windtunnel_base::SimTime(now_ns)
            );
            actions.push(Action::Warn("late_start", None, text));
        }
        for program in processes {
            let times = [Some(program.plan.start_ns), program.plan.stop_ns];
            actions.extend(
                times
                    .into_iter()
                    .flatten()
                    .filter(|&at_ns| at_ns > now_ns)
                    .map(Action::Wake),
            );
        }
        actions.extend(self.due(now_ns));
    }

    /// It is `now_ns`: starts and stops what is due.
    pub fn due(&mut self, now_ns: u64) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.setup_end_ns.is_none() {
            return actions;
        }
        for index in self.setup_count..self.programs.len() {
            let program = &mut self.programs[index];
            if program.state == State::Waiting && program.plan.start_ns <= now_ns {
                program.state = State::Starting;
                actions.push(Action::Spawn(index));
            }
            program.stop_if_due(now_ns, &mut actions);
        }
        actions
    }

    /// Program `index` runs now, as process `pid`.
    pub fn started(&mut self, index: usize, pid: u32, now_ns: u64) -> Vec<Action> {
        let mut actions = Vec::new();
        let program = &mut self.programs[index];
        program.state = State::Running { pid, start_ns: now_ns };
        program.stop_if_due(now_ns, &mut actions);
        actions
    }

    /// Program `index` could not be started.
    pub fn failed(&mut self, index: usize, errno: i32, reason: &str) -> Vec<Action> {
        self.programs[index].state = State::Failed { errno };
        if index < self.setup_count {
            return vec![Action::SetupFailed(index, format!("could not be started: {reason}"))];
        }
        let command = self.programs[index].plan.command.join(" ");
        vec![Action::Warn(
            "program_not_started",
            Some(command),
            format!("could not be started: {reason}"),
        )]
    }

    /// Program `index` has ended with `wait_status` as of wait(2).
    pub fn exited(&mut self, index: usize, wait_status: u32, now_ns: u64) -> Vec<Action> {
        let mut actions = Vec::new();
        let program = &mut self.programs[index];
        // A program that failed to start ends as a process, too; that is no news.
        let State::Running { pid, start_ns } = program.state else {
            return actions;
        };
        let how = outcome_of(wait_status);
        program.state = State::Ended {
            pid,
            start_ns,
            end_ns: now_ns,
            how,
        };
        if index < self.setup_count {
            match how {
                Outcome::Exited(0) => self.next_setup(now_ns, &mut actions),
                how => actions.push(Action::SetupFailed(index, describe(how))),
            }
        }
        actions
    }

    /// Whether no process of the scenario runs or is still to start.
    pub fn all_over(&self) -> bool {
        let under_way =
            |program: &Program| matches!(program.state, State::Waiting | State::Starting | State::Running { .. });
        !self.programs.iter().any(under_way)
    }

    /// Number of the set-up command that has been started and has not ended.
    pub fn in_setup(&self) -> Option<usize> {
        let under_way = |program: &Program| matches!(program.state, State::Starting | State::Running { .. });
        self.programs[..self.setup_count].iter().position(under_way)
    }

    /// When the set-up was over, ns; none: it is not yet.
    pub fn setup_end_ns(&self) -> Option<u64> {
        self.setup_end_ns
    }

    /// Number of set-up commands: processes follow them.
    pub fn setup_count(&self) -> usize {
        self.setup_count
    }

    /// Number of set-up commands and processes.
    pub fn len(&self) -> usize {
        self.programs.len()
    }

    /// What was planned for program `index`.
    pub fn plan(&self, index: usize) -> &Plan {
        &self.programs[index].plan
    }

    /// Where program `index` is in its life.
    pub fn state(&self, index: usize) -> State {
        self.programs[index].state
    }

    /// Checks what was expected of process `index` against what became of it and what it printed.
    ///
    /// # Errors
    /// A sentence for each part that did not hold.
    pub fn check(&self, index: usize, stdout: &[u8]) -> Result<(), Vec<String>> {
        let program = &self.programs[index];
        let outcome = match program.state {
            State::Waiting | State::Starting | State::Failed { .. } => Outcome::NotStarted,
            State::Running { .. } => Outcome::Running,
            State::Ended { how, .. } => how,
            // Whoever cuts the power wants to see what comes of that.
            State::Cut { .. } | State::Skipped => return Ok(()),
        };
        let stop_signal = program.stop_sent_ns.map(|_| program.plan.stop_signal);
        program.plan.expect.check(outcome, stop_signal, stdout)
    }
}

impl Program {
    fn stop_if_due(&mut self, now_ns: u64, actions: &mut Vec<Action>) {
        let (State::Running { pid, .. }, Some(stop_ns)) = (self.state, self.plan.stop_ns) else {
            return;
        };
        match self.stop_sent_ns {
            None if now_ns >= stop_ns => {
                self.stop_sent_ns = Some(now_ns);
                actions.push(Action::Signal {
                    pid,
                    signal: self.plan.stop_signal,
                });
                actions.push(Action::Wake(now_ns + KILL_AFTER_NS));
            }
            Some(sent_ns) if !self.killed && now_ns >= sent_ns + KILL_AFTER_NS => {
                self.killed = true;
                actions.push(Action::Signal { pid, signal: SIGKILL });
                let text = format!(
                    "did not end within 5 s of virtual time after signal {} and was killed",
                    self.plan.stop_signal
                );
                actions.push(Action::Warn("killed", Some(self.plan.command.join(" ")), text));
            }
            _ => {}
        }
    }
}

/// Decodes a status as of wait(2).
pub fn outcome_of(wait_status: u32) -> Outcome {
    match wait_status & 0x7f {
        0 => Outcome::Exited((wait_status >> 8 & 0xff) as i32),
        signal => Outcome::Signaled(signal as i32),
    }
}

/// "exited with 1" and the like.
fn describe(outcome: Outcome) -> String {
    match outcome {
        Outcome::Exited(code) => format!("exited with {code}"),
        Outcome::Signaled(signal) => format!("was ended by signal {signal}"),
        Outcome::Running => "still runs".into(),
        Outcome::NotStarted => "never started".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windtunnel_scenario::End;

    const S: u64 = 1_000_000_000;

    fn plan(start_ns: u64, stop_ns: Option<u64>) -> Plan {
        Plan {
            command: vec!["prog".into()],
            start_ns,
            stop_ns,
            stop_signal: 15,
            expect: Expect::default(),
        }
    }

    #[test]
    fn setup_runs_in_turn_before_processes() {
        let mut life = Lifecycle::new(
            vec![plan(0, None), plan(0, None)],
            vec![plan(0, None), plan(3 * S, None)],
        );
        assert_eq!(life.begin(0), [Action::Spawn(0)]);
        assert_eq!(life.started(0, 2, 0), []);
        assert_eq!(life.due(0), []);
        assert_eq!(life.in_setup(), Some(0));
        assert_eq!(life.exited(0, 0, 0), [Action::Spawn(1)]);
        assert_eq!(life.in_setup(), Some(1));
        life.started(1, 3, 0);
        assert_eq!(life.exited(1, 0, 0), [Action::Wake(3 * S), Action::Spawn(2)]);
        assert_eq!(life.in_setup(), None);
        assert_eq!(life.due(3 * S), [Action::Spawn(3)]);
        assert_eq!(life.due(3 * S), [], "nothing is started twice");
    }

    #[test]
    fn a_long_setup_delays_processes_and_warns() {
        let mut life = Lifecycle::new(vec![plan(0, None)], vec![plan(S, None), plan(9 * S, None)]);
        life.begin(0);
        life.started(0, 2, 0);
        let actions = life.exited(0, 0, 2 * S);
        assert!(matches!(&actions[0], Action::Warn("late_start", None, text) if text.contains("1 of its processes")));
        assert_eq!(actions[1..], [Action::Wake(9 * S), Action::Spawn(1)]);
    }

    #[test]
    fn a_power_cut_ends_what_runs_and_a_later_boot_begins_again() {
        let plans = || vec![plan(0, None), plan(0, None), plan(0, Some(2 * S)), plan(9 * S, None)];
        let mut life = Lifecycle::new(vec![plan(0, None)], plans());
        life.begin(0);
        life.started(0, 2, 0);
        life.exited(0, 0, 0);
        life.started(1, 3, 0);
        life.started(2, 4, 0);
        life.exited(2, 1 << 8, S);
        life.cut(3 * S);
        let cut = State::Cut {
            pid: 3,
            start_ns: 0,
            end_ns: 3 * S,
        };
        assert_eq!(
            [life.state(1), life.state(3), life.state(4)],
            [cut, State::Skipped, State::Skipped]
        );
        assert!(life.all_over());
        assert_eq!(life.due(9 * S), [], "nothing starts without power");
        assert_eq!([1, 3, 4].map(|index| life.check(index, b"")), [Ok(()), Ok(()), Ok(())]);
        assert!(life.check(2, b"").is_err(), "what had ended before is judged");

        let mut life = Lifecycle::new(vec![plan(0, None)], plans());
        assert_eq!(life.begin(5 * S), [Action::Spawn(0)]);
        life.started(0, 2, 5 * S);
        let actions = life.exited(0, 0, 6 * S);
        let expected = [Action::Wake(9 * S), Action::Spawn(1), Action::Spawn(2)];
        assert_eq!(
            actions, expected,
            "without a warning, and without the one whose time is over"
        );
        assert_eq!(life.state(3), State::Skipped);
        assert_eq!(life.due(9 * S), [Action::Spawn(4)]);
    }

    #[test]
    fn a_cut_in_the_setup_fails_nothing() {
        let mut life = Lifecycle::new(vec![plan(0, None)], vec![plan(0, None)]);
        life.begin(0);
        life.started(0, 2, 0);
        life.cut(S);
        assert_eq!((life.in_setup(), life.setup_end_ns()), (None, None));
        assert!(life.all_over());
    }

    #[test]
    fn a_failed_setup_ends_the_run() {
        let mut life = Lifecycle::new(vec![plan(0, None)], vec![plan(0, None)]);
        life.begin(0);
        life.started(0, 2, 0);
        assert_eq!(
            life.exited(0, 2 << 8, 7),
            [Action::SetupFailed(0, "exited with 2".into())]
        );
        let mut life = Lifecycle::new(vec![plan(0, None)], vec![]);
        life.begin(0);
        assert_eq!(
            life.failed(0, 2, "not found"),
            [Action::SetupFailed(0, "could not be started: not found".into())]
        );
    }

    #[test]
    fn stop_signals_first_and_kills_later() {
        let mut life = Lifecycle::new(vec![], vec![plan(0, Some(4 * S))]);
        assert_eq!(life.begin(0), [Action::Wake(4 * S), Action::Spawn(0)]);
        life.started(0, 5, 0);
        assert_eq!(
            life.due(4 * S),
            [Action::Signal { pid: 5, signal: 15 }, Action::Wake(9 * S)]
        );
        assert_eq!(life.due(4 * S + 1), []);
        let actions = life.due(9 * S);
        assert_eq!(actions[0], Action::Signal { pid: 5, signal: 9 });
        assert!(matches!(&actions[1], Action::Warn("killed", ..)));
        assert_eq!(life.due(9 * S), []);
        assert!(!life.all_over());
        life.exited(0, 9, 9 * S);
        assert!(life.all_over());
        assert_eq!(
            life.check(0, b""),
            Err(vec!["expected success, but it was ended by signal 9".into()])
        );
    }

    #[test]
    fn a_program_that_ends_by_its_stop_signal_succeeds() {
        let mut life = Lifecycle::new(vec![], vec![plan(0, Some(4 * S))]);
        life.begin(0);
        life.started(0, 5, 0);
        life.due(4 * S);
        life.exited(0, 15, 4 * S);
        assert_eq!(life.check(0, b""), Ok(()));
        let ended = State::Ended {
            pid: 5,
            start_ns: 0,
            end_ns: 4 * S,
            how: Outcome::Signaled(15),
        };
        assert_eq!(life.state(0), ended);
        assert_eq!(life.due(9 * S), [], "nobody is killed after its end");
    }

    #[test]
    fn a_program_started_after_its_stop_time_is_stopped_at_once() {
        let mut life = Lifecycle::new(vec![plan(0, None)], vec![plan(S, Some(2 * S))]);
        life.begin(0);
        life.started(0, 2, 0);
        assert!(life.exited(0, 0, 3 * S).contains(&Action::Spawn(1)));
        assert_eq!(life.started(1, 3, 3 * S)[0], Action::Signal { pid: 3, signal: 15 });
    }

    #[test]
    fn a_process_that_cannot_start_is_told_and_over() {
        let mut life = Lifecycle::new(vec![], vec![plan(0, None)]);
        life.begin(0);
        assert!(
            matches!(&life.failed(0, 8, "wrong machine")[..], [Action::Warn("program_not_started", Some(command), text)]
            if command == "prog" && text == "could not be started: wrong machine")
        );
        assert_eq!(life.exited(0, 127 << 8, 0), []);
        assert_eq!(life.state(0), State::Failed { errno: 8 });
        assert!(life.all_over());
        assert_eq!(
            life.check(0, b""),
            Err(vec!["expected success, but it never started".into()])
        );
    }

    #[test]
    fn expectations_look_at_the_end_and_the_output() {
        let mut expecting = plan(0, None);
        expecting.expect = Expect {
            end: End::Exit(3),
            stdout: vec![windtunnel_scenario::StdoutCheck::Contains("hello".into())],
        };
        let mut life = Lifecycle::new(vec![], vec![expecting]);
        life.begin(0);
        life.started(0, 2, 0);
        assert_eq!(
            life.check(0, b"hello").unwrap_err(),
            ["expected exit code 3, but it still runs"]
        );
        life.exited(0, 3 << 8, 1);
        assert_eq!(life.check(0, b"hello"), Ok(()));
        assert_eq!(life.check(0, b"bye").unwrap_err().len(), 1);
    }

    #[test]
    fn wait_statuses_are_decoded() {
        assert_eq!(outcome_of(0), Outcome::Exited(0));
        assert_eq!(outcome_of(0x0300), Outcome::Exited(3));
        assert_eq!(outcome_of(11), Outcome::Signaled(11));
        assert_eq!(
            outcome_of(0x8b),
            Outcome::Signaled(11),
            "the core flag is no part of the signal"
        );
    }
}
