//! The processes that programs of a node make: what its kernel tells of their births, execs and ends, for the events of the run.
//!
//! Programs of the scenario and of clients are not told here, but for the CPU time that they took, and for other programs that
//! they become.

use std::collections::BTreeMap;

use windtunnel_kernel::abi;
use windtunnel_results::{Event, EventLog};
use windtunnel_scenario::Outcome;

use crate::host::ProcessNews;
use crate::lifecycle::outcome_of;

/// So many children of a node are told of, and so many of its execs: a shell script may run for ever.
const TOLD_MAX: usize = 10_000;
/// Process id of those who make the programs of the scenario and of clients.
const INIT: u32 = 1;

/// What is known of the processes of a node.
#[derive(Debug)]
pub struct Family {
    /// Work takes time on the node.
    has_cpu: bool,
    /// Those that are there, by process id.
    there: BTreeMap<u32, Known>,
    told: Vec<(u64, Step)>,
    children: usize,
    execs: usize,
    /// Children that are not told.
    children_untold: Untold,
    /// Execs that are not told, those of children that are not told among them.
    execs_untold: Untold,
    /// When programs that process 1 started were gone, ns, and the CPU time that they took, by process id.
    spent: BTreeMap<u32, Vec<(u64, CpuTime)>>,
}

/// CPU time, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// In the program.
    pub user_ns: u64,
    /// In the kernel for it.
    pub system_ns: u64,
}

/// What is only counted.
#[derive(Debug, Default)]
struct Untold {
    count: u64,
    /// When the first one was, ns.
    first_ns: u64,
}

impl Untold {
    fn add(&mut self, now_ns: u64) {
        if self.count == 0 {
            self.first_ns = now_ns;
        }
        self.count += 1;
    }
}

#[derive(Debug)]
struct Known {
    name: String,
    /// Process 1 started it.
    spawned: bool,
    /// The program that process 1 started it for has begun.
    begun: bool,
    /// Its birth is told.
    told: bool,
}

#[derive(Debug)]
enum Step {
    Forked {
        pid: u32,
        parent: u32,
        name: String,
    },
    Executed {
        pid: u32,
        name: String,
    },
    Exited {
        pid: u32,
        name: String,
        how: Option<Outcome>,
        cpu: CpuTime,
    },
}

/// The name in two words of a call out.
fn name_of(first: u64, second: u64) -> String {
    let bytes = [first.to_le_bytes(), second.to_le_bytes()].concat();
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

impl Family {
    /// None yet. `has_cpu`: work takes time on the node.
    pub fn new(has_cpu: bool) -> Self {
        Self {
            has_cpu,
            there: BTreeMap::new(),
            told: Vec::new(),
            children: 0,
            execs: 0,
            children_untold: Untold::default(),
            execs_untold: Untold::default(),
            spent: BTreeMap::new(),
        }
    }

    /// Takes what a kernel told at `now_ns`; false: it is of no birth, exec or end.
    pub fn note(&mut self, now_ns: u64, step: &ProcessNews) -> bool {
        let (pid, upper) = (step.pid as u32, (step.pid >> 32) as u32);
        match step.event {
            abi::PROC_FORKED => self.forked(now_ns, pid, upper, name_of(step.key, step.value)),
            abi::PROC_EXECED => self.execed(now_ns, pid, name_of(step.key, step.value)),
            abi::PROC_GONE => {
                let cpu = CpuTime {
                    user_ns: step.key,
                    system_ns: step.value,
                };
                self.gone(now_ns, pid, upper, cpu);
            }
            _ => return false,
        }
        true
    }

    fn forked(&mut self, now_ns: u64, pid: u32, parent: u32, name: String) {
        if pid == INIT {
            return;
        }
        let spawned = parent == INIT;
        let told = !spawned && self.children < TOLD_MAX;
        if told {
            self.children += 1;
            let name = name.clone();
            self.told.push((now_ns, Step::Forked { pid, parent, name }));
        } else if !spawned {
            self.children_untold.add(now_ns);
        }
        let known = Known {
            name,
            spawned,
            begun: false,
            told,
        };
        self.there.insert(pid, known);
    }

    fn execed(&mut self, now_ns: u64, pid: u32, name: String) {
        let Some(known) = self.there.get_mut(&pid) else { return };
        known.name.clone_from(&name);
        let is_start = known.spawned && !std::mem::replace(&mut known.begun, true);
        if is_start {
            return;
        }
        if (known.told || known.spawned) && self.execs < TOLD_MAX {
            self.execs += 1;
            self.told.push((now_ns, Step::Executed { pid, name }));
        } else {
            self.execs_untold.add(now_ns);
        }
    }

    fn gone(&mut self, now_ns: u64, pid: u32, status: u32, cpu: CpuTime) {
        let Some(known) = self.there.remove(&pid) else { return };
        if known.spawned {
            self.spent.entry(pid).or_default().push((now_ns, cpu));
        } else if known.told {
            let (name, how) = (known.name, Some(outcome_of(status)));
            self.told.push((now_ns, Step::Exited { pid, name, how, cpu }));
        }
    }

    /// The power of the node went at `now_ns`, and all of them with it.
    pub fn cut(&mut self, now_ns: u64) {
        for (pid, known) in std::mem::take(&mut self.there) {
            if known.told {
                let (name, how, cpu) = (known.name, None, CpuTime::default());
                self.told.push((now_ns, Step::Exited { pid, name, how, cpu }));
            }
        }
    }

    /// The CPU time of a program that process 1 started and that was reaped at `end_ns`; none: work takes no time.
    pub fn spent(&self, pid: u32, end_ns: u64) -> Option<CpuTime> {
        if !self.has_cpu {
            return None;
        }
        let ends = self.spent.get(&pid)?;
        let last = ends.iter().rev().find(|(gone_ns, _)| *gone_ns <= end_ns);
        last.map(|&(_, cpu)| cpu)
    }

    /// Of how many children and execs only the number is told, and since when, ns; none: all are told.
    pub fn untold(&self) -> Option<(u64, u64)> {
        let both = [&self.children_untold, &self.execs_untold];
        let first_ns = both
            .iter()
            .filter(|untold| untold.count > 0)
            .map(|untold| untold.first_ns)
            .min()?;
        Some((first_ns, both.iter().map(|untold| untold.count).sum()))
    }

    /// Adds all that is told of the processes of `node`.
    pub fn tell(&self, node: &str, events: &mut EventLog) {
        let node = || node.to_owned();
        for (at_ns, step) in &self.told {
            let event = match step {
                Step::Forked { pid, parent, name } => Event::ProcessForked {
                    node: node(),
                    pid: *pid,
                    parent: *parent,
                    name: name.clone(),
                },
                Step::Executed { pid, name } => Event::ProcessExecuted {
                    node: node(),
                    pid: *pid,
                    name: name.clone(),
                },
                Step::Exited { pid, name, how, cpu } => {
                    let (exit, signal) = match how {
                        Some(Outcome::Exited(code)) => (Some(*code), None),
                        Some(Outcome::Signaled(number)) => (None, Some(*number)),
                        _ => (None, None),
                    };
                    // What it had taken by then went with the power.
                    let cpu = how.as_ref().filter(|_| self.has_cpu).map(|_| cpu);
                    Event::ChildExited {
                        node: node(),
                        pid: *pid,
                        name: name.clone(),
                        exit,
                        signal,
                        power_off: how.is_none(),
                        user_ns: cpu.map(|cpu| cpu.user_ns),
                        system_ns: cpu.map(|cpu| cpu.system_ns),
                    }
                }
            };
            events.add(*at_ns, event);
        }
        let Untold { count, first_ns } = self.children_untold;
        if count > 0 {
            events.add(first_ns, Event::ChildrenNotTold { node: node(), count });
        }
        let Untold { count, first_ns } = self.execs_untold;
        if count > 0 {
            events.add(first_ns, Event::ExecsNotTold { node: node(), count });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: u64 = u64::from_le_bytes(*b"worker\0\0");

    fn forked(family: &mut Family, now_ns: u64, pid: u64, parent: u64) {
        assert!(note(family, now_ns, abi::PROC_FORKED, (NAME, pid | parent << 32, 0)));
    }

    fn note(family: &mut Family, now_ns: u64, event: u32, (key, pid, value): (u64, u64, u64)) -> bool {
        let step = ProcessNews { event, key, pid, value };
        family.note(now_ns, &step)
    }

    fn told(family: &Family) -> String {
        let mut events = EventLog::new("s", 1, [].into_iter());
        family.tell("h1", &mut events);
        events.to_jsonl().split_once('\n').unwrap().1.to_owned()
    }

    #[test]
    fn children_are_told_and_programs_of_process_1_only_if_they_become_others() {
        let mut family = Family::new(true);
        forked(&mut family, 0, 1, 0);
        forked(&mut family, 1, 20, 1);
        note(&mut family, 1, abi::PROC_EXECED, (NAME, 20, 0));
        forked(&mut family, 2, 21, 20);
        note(
            &mut family,
            3,
            abi::PROC_EXECED,
            (u64::from_le_bytes(*b"sleep\0\0\0"), 21, 0),
        );
        note(&mut family, 4, abi::PROC_GONE, (5, 21 | 3 << 40, 6));
        note(&mut family, 5, abi::PROC_EXECED, (NAME, 20, 0));
        note(&mut family, 6, abi::PROC_GONE, (7, 20 | 9 << 32, 8));
        assert!(!note(&mut family, 7, abi::PROC_STARTED, (1, 20, 0)));
        assert_eq!(
            told(&family),
            "{\"time_ns\":2,\"event\":\"process_forked\",\"node\":\"h1\",\"pid\":21,\"parent\":20,\"name\":\"worker\"}\n\
             {\"time_ns\":3,\"event\":\"process_executed\",\"node\":\"h1\",\"pid\":21,\"name\":\"sleep\"}\n\
             {\"time_ns\":4,\"event\":\"child_exited\",\"node\":\"h1\",\"pid\":21,\"name\":\"sleep\",\"exit\":3,\"signal\":null,\
             \"user_ns\":5,\"system_ns\":6}\n\
             {\"time_ns\":5,\"event\":\"process_executed\",\"node\":\"h1\",\"pid\":20,\"name\":\"worker\"}\n"
        );
        let cpu = CpuTime {
            user_ns: 7,
            system_ns: 8,
        };
        assert_eq!(
            (family.spent(20, 6), family.spent(20, 5), family.spent(21, 9)),
            (Some(cpu), None, None)
        );
        family.has_cpu = false;
        assert!(!told(&family).contains("user_ns") && family.spent(20, 6).is_none());
    }

    #[test]
    fn a_power_cut_ends_them_all() {
        let mut family = Family::new(true);
        forked(&mut family, 1, 21, 20);
        family.cut(5);
        let last = "\"pid\":21,\"name\":\"worker\",\"exit\":null,\"signal\":null,\"power_off\":true}\n";
        assert!(told(&family).ends_with(last));
        assert!(family.there.is_empty());
    }

    #[test]
    fn a_hundred_thousand_forks_are_not_all_told() {
        let mut family = Family::new(true);
        assert_eq!(family.untold(), None);
        for number in 0..100_000 {
            forked(&mut family, number, 30, 20);
            note(&mut family, number, abi::PROC_EXECED, (NAME, 30, 0));
            note(&mut family, number, abi::PROC_GONE, (0, 30, 0));
        }
        let text = told(&family);
        assert_eq!(text.lines().count(), 3 * TOLD_MAX + 2);
        let last: Vec<&str> = text.lines().skip(3 * TOLD_MAX).collect();
        assert_eq!(
            last,
            [
                "{\"time_ns\":10000,\"event\":\"children_not_told\",\"node\":\"h1\",\"count\":90000}",
                "{\"time_ns\":10000,\"event\":\"execs_not_told\",\"node\":\"h1\",\"count\":90000}"
            ]
        );
        assert_eq!(family.untold(), Some((10_000, 180_000)));
        assert!(family.there.is_empty());
    }

    #[test]
    fn a_program_that_becomes_others_without_end_is_counted() {
        let mut family = Family::new(false);
        forked(&mut family, 1, 20, 1);
        // The first is its start.
        for number in 0..=TOLD_MAX as u64 + 7 {
            note(&mut family, number, abi::PROC_EXECED, (NAME, 20, 0));
        }
        let text = told(&family);
        assert_eq!(text.lines().count(), TOLD_MAX + 1);
        let last = "{\"time_ns\":10001,\"event\":\"execs_not_told\",\"node\":\"h1\",\"count\":7}";
        assert_eq!(text.lines().last(), Some(last));
        assert_eq!(family.untold(), Some((10_001, 7)));
    }
}
