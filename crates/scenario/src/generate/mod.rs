//! Scenarios of regular, random and real topologies: nodes with positions, links with values, addresses and routes left to
//! `addressing` and `routing`. What runs on them is the user's.

mod build;
mod graphml;
mod random;
mod shapes;
mod write;

use windtunnel_base::{Rate, SimDuration};
use windtunnel_links::QueueLimit;

use build::Builder;

/// Most nodes of a generated network.
const NODES_MAX: u64 = 10_000;
/// Most links: 10.0.0.0/8 has 65,536 networks of 24 bits.
const LINKS_MAX: u64 = 60_000;

/// What connects with what.
#[derive(Clone, Debug, PartialEq)]
pub enum Topology {
    /// Routers in a line, r1 to rN.
    Chain {
        /// How many routers.
        routers: u32,
        /// Hosts at each of them; none: one at each end, h1 and h2.
        hosts_per_router: Option<u32>,
    },
    /// Hosts h1 to hN around one switch or router.
    Star {
        /// How many hosts.
        hosts: u32,
    },
    /// Routers r1 to rN in a ring.
    Ring {
        /// How many routers, 3 or more.
        routers: u32,
        /// Hosts at each of them.
        hosts_per_router: u32,
    },
    /// A tree of switches or routers whose leaves are hosts.
    Tree {
        /// Links from the root to each host.
        depth: u32,
        /// Children of each switch.
        fanout: u32,
    },
    /// The fat-tree of Al-Fares, Loukissas and Vahdat (SIGCOMM 2008) of switches with `k` ports, here routers.
    FatTree {
        /// Ports of a switch, an even number.
        k: u32,
        /// Hosts at each edge switch; none: k/2.
        hosts_per_edge: Option<u32>,
    },
    /// Each leaf is connected with each spine.
    LeafSpine {
        /// How many leaves.
        leaves: u32,
        /// How many spines.
        spines: u32,
        /// Hosts at each leaf.
        hosts_per_leaf: u32,
    },
    /// Routers in rows and columns, rR-C.
    Grid {
        /// Rows.
        rows: u32,
        /// Columns.
        columns: u32,
        /// Whether the last of each row and column is connected with the first.
        torus: bool,
        /// Hosts at each router.
        hosts_per_router: u32,
    },
    /// Hosts on both sides of one link, the bottleneck.
    Dumbbell {
        /// Hosts left1 ... of router r1.
        left: u32,
        /// Hosts right1 ... of router r2.
        right: u32,
        /// Of the bottleneck, where it differs from other links.
        bottleneck: Values,
    },
    /// The random graph of Waxman (1988): routers at random places in a square; two at a distance d are connected with the
    /// probability alpha exp(-d / (beta L)), L being the square's diagonal. Parts that are not connected then are, by their
    /// shortest links.
    Waxman {
        /// How many routers.
        routers: u32,
        /// More links for more of it; above 0, at most 1.
        alpha: f64,
        /// Longer links for more of it; above 0, at most 1.
        beta: f64,
        /// Length of a side of the square, km.
        side_km: f64,
        /// Hosts at each router.
        hosts_per_router: u32,
    },
    /// A file in GraphML, as the Internet Topology Zoo has them: each node is a router.
    Graphml {
        /// What is in the file.
        text: String,
        /// Name of the scenario unless one is given.
        name: String,
        /// Whether only the largest part of a graph that is not connected is taken.
        largest: bool,
        /// Hosts at each router.
        hosts_per_router: u32,
    },
}

/// Values of links; what is none is as of other links, or the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Values {
    /// Bits per second.
    pub rate: Option<Rate>,
    /// Propagation delay.
    pub delay: Option<SimDuration>,
    /// Where frames wait.
    pub queue: Option<QueueLimit>,
}

impl Values {
    /// These, and where they say nothing, those.
    fn or(self, below: Self) -> Self {
        Self {
            rate: self.rate.or(below.rate),
            delay: self.delay.or(below.delay),
            queue: self.queue.or(below.queue),
        }
    }
}

/// What connects hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forwarder {
    /// Nodes that forward IPv4 and IPv6.
    Router,
    /// Bridges.
    Switch,
}

/// How routes are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routing {
    /// They are not: `none`.
    None,
    /// One shortest path: `auto`.
    Auto,
    /// All paths of the fewest hops: `ecmp`.
    Ecmp,
}

/// What all topologies have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Name of the scenario; that of the topology with its numbers unless given.
    pub name: Option<String>,
    /// Of all links; 1 Gb/s unless given, and 1 ms, or 10 us in data centres, or by distance.
    pub links: Values,
    /// Of links to hosts, where they differ.
    pub host_links: Values,
    /// What connects hosts; none: switches in stars and trees, routers elsewhere.
    pub forwarder: Option<Forwarder>,
    /// None: `ecmp` for fat-tree and leaf-spine, else `auto`.
    pub routing: Option<Routing>,
    /// Of the run, and of what is random in the topology.
    pub seed: u64,
    /// When the run ends; 10 s unless given.
    pub stop: Option<SimDuration>,
}

/// A scenario that was made.
#[derive(Clone, Debug)]
pub struct Generated {
    scenario: write::Scenario,
    /// What is not as it may have been meant.
    pub warnings: Vec<String>,
}

/// Why there is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct GenerateError {
    /// What is wrong, with the value and what is allowed.
    pub message: String,
    /// A correction to try.
    pub hint: Option<String>,
}

impl GenerateError {
    fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: None,
        }
    }

    fn hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }
}

/// Makes the scenario of a topology.
///
/// # Errors
/// A number that is out of bounds, or a file that is no graph.
pub fn generate(topology: &Topology, options: &Options) -> Result<Generated, GenerateError> {
    let forwarder = forwarder(topology, options)?;
    let mut builder = Builder::new(options, forwarder, default_delay(topology));
    let name = match topology {
        Topology::Chain {
            routers,
            hosts_per_router,
        } => shapes::chain(&mut builder, *routers, *hosts_per_router)?,
        Topology::Star { hosts } => shapes::star(&mut builder, *hosts)?,
        Topology::Ring {
            routers,
            hosts_per_router,
        } => shapes::ring(&mut builder, *routers, *hosts_per_router)?,
        Topology::Tree { depth, fanout } => shapes::tree(&mut builder, *depth, *fanout)?,
        Topology::FatTree { k, hosts_per_edge } => shapes::fat_tree(&mut builder, *k, *hosts_per_edge)?,
        Topology::LeafSpine {
            leaves,
            spines,
            hosts_per_leaf,
        } => shapes::leaf_spine(&mut builder, *leaves, *spines, *hosts_per_leaf)?,
        Topology::Grid {
            rows,
            columns,
            torus,
            hosts_per_router,
        } => shapes::grid(&mut builder, (*rows, *columns), *torus, *hosts_per_router)?,
        Topology::Dumbbell {
            left,
            right,
            bottleneck,
        } => shapes::dumbbell(&mut builder, *left, *right, *bottleneck)?,
        Topology::Waxman {
            routers,
            alpha,
            beta,
            side_km,
            hosts_per_router,
        } => random::waxman(&mut builder, *routers, [*alpha, *beta, *side_km], *hosts_per_router)?,
        Topology::Graphml {
            text,
            name,
            largest,
            hosts_per_router,
        } => {
            graphml::graph(&mut builder, text, *largest, *hosts_per_router)?;
            name.clone()
        }
    };
    let routing = options.routing.unwrap_or(match topology {
        Topology::FatTree { .. } | Topology::LeafSpine { .. } => Routing::Ecmp,
        _ => Routing::Auto,
    });
    Ok(builder.finish(options.name.clone().unwrap_or(name), routing))
}

fn default_delay(topology: &Topology) -> SimDuration {
    match topology {
        Topology::FatTree { .. } | Topology::LeafSpine { .. } => SimDuration::from_us(10),
        _ => SimDuration::from_ms(1),
    }
}

/// Switches only where no ring comes of it, in which a frame for all would go round for ever.
fn forwarder(topology: &Topology, options: &Options) -> Result<Forwarder, GenerateError> {
    let (usual, rings) = match topology {
        Topology::Star { .. } | Topology::Tree { .. } => (Forwarder::Switch, false),
        Topology::Chain { .. } | Topology::Dumbbell { .. } => (Forwarder::Router, false),
        _ => (Forwarder::Router, true),
    };
    match options.forwarder {
        Some(Forwarder::Switch) if rings => Err(GenerateError::new(
            "switches in rings would pass on frames for all without end; allowed for this topology: router",
        )
        .hint("routers with `--routing ecmp` use all paths")),
        asked => Ok(asked.unwrap_or(usual)),
    }
}

/// A number within bounds; `what` as in "routers".
fn check_count(value: u32, what: &str, least: u32, most: u32) -> Result<(), GenerateError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(GenerateError::new(format!(
        "{value} {what} are not possible; allowed: {least} to {most}"
    )))
}

/// Not too many of them together.
fn check_size(nodes: u64, links: u64) -> Result<(), GenerateError> {
    if nodes <= NODES_MAX && links <= LINKS_MAX {
        return Ok(());
    }
    let many = |count: u64, what: &str| match count {
        0..=1_000_000_000 => format!("{count} {what}"),
        _ => format!("more than 10^9 {what}"),
    };
    Err(GenerateError::new(format!(
        "that would be {} and {}; allowed: at most {NODES_MAX} nodes and {LINKS_MAX} links",
        many(nodes, "nodes"),
        many(links, "links")
    ))
    .hint("choose smaller numbers: each node is a Linux kernel with memory of its own"))
}
