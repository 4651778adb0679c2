//! Conditions of visitors on TCP connections: time stands still when one begins to hold.
//!
//! Connections are looked at between windows, at multiples of an interval, as measurements are: it changes nothing but when time
//! goes on. A condition that holds already is no news until it has not held.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};
use windtunnel_control::{Break, Broken, Client, Predicate, Reply};

use super::{Live, NAP, Network, look};
use crate::error::EngineError;
use crate::terminal::refusal;

/// Shortest interval, ns: a look costs about what a window does.
const INTERVAL_MIN_NS: u64 = 1000;

/// All conditions, by their clients.
#[derive(Debug, Default)]
pub struct Breaks(BTreeMap<u64, Watch>);

#[derive(Debug)]
struct Watch {
    client: Client,
    predicate: Predicate,
    interval_ns: u64,
    /// When connections are looked at next, ns.
    next_ns: u64,
    /// Connections for which it held when last looked at.
    held: BTreeSet<String>,
    /// It holds, and the client has not said that time shall go on.
    broken: bool,
}

impl Breaks {
    /// Whether there is any.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether time has to stand still.
    pub fn hold_time(&self) -> bool {
        self.0.values().any(|watch| watch.broken)
    }

    /// When connections are looked at next, ns; `u64::MAX`: never.
    pub fn next_ns(&self) -> u64 {
        let next = self.0.values().map(|watch| watch.next_ns).min();
        next.unwrap_or(u64::MAX)
    }

    /// The client has gone.
    pub fn forget(&mut self, client: u64) {
        self.0.remove(&client);
    }

    /// The client has seen enough of where time stands.
    pub fn go_on(&mut self, client: u64) {
        if let Some(watch) = self.0.get_mut(&client) {
            watch.broken = false;
        }
    }
}

impl Live {
    /// A client wants time to stand still.
    pub(super) fn add_break(&mut self, client: Client, wanted: &Break, at_ns: u64) {
        let problem = match Predicate::parse(&wanted.condition) {
            _ if self.drive || self.driver.is_some() => {
                Err("a driven run stands still where its driver says".to_owned())
            }
            _ if wanted.interval_ns < INTERVAL_MIN_NS => Err(format!(
                "an interval of {} ns is too short; least: {INTERVAL_MIN_NS} ns",
                wanted.interval_ns
            )),
            Err(error) => Err(error.to_string()),
            Ok(predicate) => match predicate
                .columns()
                .into_iter()
                .find(|column| !look::is_tcp_number(column))
            {
                Some(column) => Err(format!("connections have no number `{column}`")),
                None => Ok(predicate),
            },
        };
        match problem {
            Err(message) => client.reply(&Reply::Refused(refusal(message, 2))),
            Ok(predicate) => {
                client.reply(&Reply::Watching);
                self.busy = true;
                let watch = Watch {
                    predicate,
                    interval_ns: wanted.interval_ns,
                    next_ns: at_ns,
                    held: BTreeSet::new(),
                    broken: false,
                    client,
                };
                self.breaks.0.insert(watch.client.number, watch);
            }
        }
    }

    /// Looks at connections where that is due, and waits while time has to stand still; whether it has to.
    ///
    /// # Errors
    /// When a kernel crashes that is asked, or the log cannot be written.
    pub(super) fn attend_breaks(&mut self, network: &mut Network<'_>, due_ns: u64) -> Result<bool, EngineError> {
        if self.breaks.is_empty() {
            return Ok(false);
        }
        // Until then nothing happens: what is found is how things stand at that time.
        let quiet_ns = network.windows.earliest_ns().min(due_ns);
        if !self.breaks.hold_time() && self.breaks.next_ns() <= quiet_ns && quiet_ns < u64::MAX {
            let at_ns = self.breaks.next_ns().max(network.windows.done_ns());
            self.look_for_breaks(network, at_ns, quiet_ns)?;
        }
        if !self.breaks.hold_time() {
            return Ok(false);
        }
        // Whoever watches it has to catch up with the wall clock from here.
        self.pacer = None;
        self.nap(NAP, network, due_ns)?;
        Ok(true)
    }

    /// Looks at connections at `at_ns`, after which nothing happens before `quiet_ns`.
    fn look_for_breaks(&mut self, network: &mut Network<'_>, at_ns: u64, quiet_ns: u64) -> Result<(), EngineError> {
        let rows = look::tcp(network.nodes, at_ns)?;
        for watch in self.breaks.0.values_mut().filter(|watch| watch.next_ns <= quiet_ns) {
            watch.next_ns = (quiet_ns / watch.interval_ns + 1).saturating_mul(watch.interval_ns);
            let value = |row: &Map<String, Value>, column: &str| row.get(column).and_then(Value::as_f64);
            let holds = |row: &&Map<String, Value>| watch.predicate.holds(&|column| value(row, column));
            let holding: BTreeMap<String, &Map<String, Value>> =
                rows.iter().filter(holds).map(|row| (name(row), row)).collect();
            let news = holding.iter().find(|(name, _)| !watch.held.contains(*name));
            if let Some((_, row)) = news {
                watch.broken = true;
                watch.client.reply(&Reply::Broken(Box::new(Broken {
                    at_ns,
                    connection: (*row).clone(),
                })));
            }
            watch.held = holding.into_keys().collect();
        }
        Ok(())
    }
}

/// Which connection it is, at which end.
fn name(row: &Map<String, Value>) -> String {
    const COLUMNS: [&str; 6] = [
        "node",
        "netns",
        "local_address",
        "local_port",
        "remote_address",
        "remote_port",
    ];
    let cells = COLUMNS
        .iter()
        .map(|column| row.get(*column).map(Value::to_string).unwrap_or_default());
    cells.collect::<Vec<_>>().join(" ")
}
