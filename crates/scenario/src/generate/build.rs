//! Nodes and links as they are added, one by one.

use std::collections::BTreeSet;

use windtunnel_base::{Rate, SimDuration};

use super::write::{Defaults, Link, Node, Place, Run, Scenario};
use super::{Forwarder, Generated, Options, Routing, Values, write};
use crate::resolve::memory_for_interfaces;

/// Space between two nodes of a drawing, and between a router and its hosts.
pub(super) const SPACE: f64 = 120.0;
pub(super) const HOST_SPACE: f64 = 70.0;
const DEFAULT_RATE: Rate = Rate::from_mbps(1000);
const DEFAULT_STOP: SimDuration = SimDuration::from_s(10);

/// Where something is drawn: x to the right, y downwards.
pub(super) type Point = [f64; 2];

/// A node, by the order in which they were added.
pub(super) type Id = usize;

struct Draft {
    name: String,
    kind: Option<Forwarder>,
    position: Option<Point>,
    interfaces: u32,
}

/// Collects nodes and links of a scenario.
pub(super) struct Builder {
    nodes: Vec<Draft>,
    names: BTreeSet<String>,
    links: Vec<Link>,
    /// Of links that say nothing themselves.
    defaults: Values,
    host_links: Values,
    /// Whether the user named a delay.
    pub delay_is_given: bool,
    forwarder: Forwarder,
    pub seed: u64,
    stop: SimDuration,
    pub warnings: Vec<String>,
}

impl Builder {
    pub fn new(options: &Options, forwarder: Forwarder, default_delay: SimDuration) -> Self {
        Self {
            nodes: Vec::new(),
            names: BTreeSet::new(),
            links: Vec::new(),
            defaults: options.links.or(Values {
                rate: Some(DEFAULT_RATE),
                delay: Some(default_delay),
                queue: None,
            }),
            host_links: options.host_links,
            delay_is_given: options.links.delay.is_some(),
            forwarder,
            seed: options.seed,
            stop: options.stop.unwrap_or(DEFAULT_STOP),
            warnings: Vec::new(),
        }
    }

    /// The letter that names of routers or switches begin with.
    pub fn letter(&self) -> char {
        match self.forwarder {
            Forwarder::Router => 'r',
            Forwarder::Switch => 's',
        }
    }

    /// A router or switch.
    pub fn forwarder(&mut self, name: impl Into<String>, position: impl Into<Option<Point>>) -> Id {
        self.add(name.into(), Some(self.forwarder), position.into())
    }

    /// A host, with its link to a router or switch.
    pub fn host(&mut self, name: impl Into<String>, at: Id, position: impl Into<Option<Point>>) -> Id {
        let host = self.add(name.into(), None, position.into());
        self.link(host, at, self.host_links);
        host
    }

    /// Hosts of a router, beneath it, with names that begin with `name`: `h3`, or `h3-1`, `h3-2` of several.
    pub fn hosts(&mut self, name: &str, at: Id, count: u32) {
        let place = self.nodes[at].position;
        for number in 0..count {
            let shift = (f64::from(number) - f64::from(count - 1) / 2.0) * HOST_SPACE;
            // Beneath it, and a little to the right, so that links to a router beneath stay visible.
            let position = place.map(|[x, y]| [x + shift + HOST_SPACE / 2.0, y + HOST_SPACE]);
            let name = if count == 1 {
                name.to_owned()
            } else {
                format!("{name}-{}", number + 1)
            };
            let name = self.free_name(&name);
            self.host(name, at, position);
        }
    }

    /// The name itself, or with the first number that makes it one nobody has.
    pub fn free_name(&self, name: &str) -> String {
        let mut candidates =
            std::iter::once(name.to_owned()).chain((2..).map(|number: u32| format!("{name}-{number}")));
        candidates
            .find(|candidate| !self.names.contains(candidate))
            .expect("endless")
    }

    fn add(&mut self, name: String, kind: Option<Forwarder>, position: Option<Point>) -> Id {
        let is_new = self.names.insert(name.clone());
        debug_assert!(is_new, "{name} is there twice");
        self.nodes.push(Draft {
            name,
            kind,
            position,
            interfaces: 0,
        });
        self.nodes.len() - 1
    }

    /// A link, from the next interface of each.
    pub fn link(&mut self, a: Id, b: Id, values: Values) {
        let endpoints = [a, b].map(|id| {
            let node = &mut self.nodes[id];
            node.interfaces += 1;
            format!("{}:eth{}", node.name, node.interfaces - 1)
        });
        self.links.push(Link {
            endpoints,
            both: values.beyond(&self.defaults),
        });
    }

    /// A link with the values of all.
    pub fn plain_link(&mut self, a: Id, b: Id) {
        self.link(a, b, Values::default());
    }

    pub fn finish(self, name: String, routing: Routing) -> Generated {
        let nodes = self.nodes.into_iter().map(|draft| (draft.name.clone(), draft.finish()));
        Generated {
            scenario: Scenario {
                version: 1,
                name,
                run: Run {
                    stop: self.stop.to_string(),
                    seed: self.seed,
                },
                addressing: "auto",
                routing: match routing {
                    Routing::None => "none",
                    Routing::Auto => "auto",
                    Routing::Ecmp => "ecmp",
                },
                defaults: Defaults {
                    link: self.defaults.beyond(&Values::default()),
                },
                nodes: nodes.collect(),
                links: self.links,
            },
            warnings: self.warnings,
        }
    }
}

impl Draft {
    fn finish(self) -> Node {
        let sysctls = match self.kind {
            Some(Forwarder::Router) => no_detection(self.interfaces),
            _ => Vec::new(),
        };
        Node {
            kind: self.kind.map(|kind| match kind {
                Forwarder::Router => "router",
                Forwarder::Switch => "switch",
            }),
            position: self.position.map(|place| place.map(Place)),
            memory: memory_for_interfaces(self.interfaces as usize).map(|size| size.to_string()),
            sysctls,
        }
    }
}

/// A router does not ask whether its link-local addresses are free. They are, and until it knew, for some two seconds, it would
/// pass on no IPv6.
fn no_detection(interfaces: u32) -> Vec<(String, u32)> {
    let scopes = std::iter::once("all".to_owned()).chain((0..interfaces).map(|number| format!("eth{number}")));
    scopes
        .map(|scope| (format!("net.ipv6.conf.{scope}.accept_dad"), 0))
        .collect()
}

impl Values {
    /// What of it is not as in `below` already.
    fn beyond(&self, below: &Self) -> write::Values {
        fn new<T: PartialEq + ToString + Copy>(own: Option<T>, below: Option<T>) -> Option<String> {
            own.filter(|_| own != below).map(|value| value.to_string())
        }
        write::Values {
            rate: new(self.rate, below.rate),
            delay: new(self.delay, below.delay),
            queue: new(self.queue, below.queue),
        }
    }
}
