//! `windtunnel generate KIND`

use crate::failure::{EXIT_OK, Failure, Outcome};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use windtunnel_base::input_file::{self, Kind};
use windtunnel_base::{Rate, SimDuration, UnitError};
use windtunnel_links::QueueLimit;
use windtunnel_scenario::generate::{Forwarder, Options, Routing, Topology, Values, generate};

/// Write a scenario of a regular, random or real topology
///
/// It has nodes with positions and links with rates and delays; addresses and routes come by themselves. What runs on its nodes
/// is for you to add.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    topology: Shape,
}

#[derive(Debug, clap::Subcommand)]
enum Shape {
    /// Routers r1 to rN in a line, with hosts h1 and h2 at its ends
    Chain {
        /// How many routers
        #[arg(value_name = "N")]
        routers: u32,
        /// Hosts at each router, in place of those at the ends
        #[arg(long, value_name = "N")]
        hosts_per_router: Option<u32>,
        #[command(flatten)]
        kind: KindArgs,
        #[command(flatten)]
        common: Common,
    },
    /// Hosts h1 to hN around a switch
    Star {
        /// How many hosts
        #[arg(value_name = "N")]
        hosts: u32,
        #[command(flatten)]
        kind: KindArgs,
        #[command(flatten)]
        common: Common,
    },
    /// Routers r1 to rN in a ring, with hosts
    Ring {
        /// How many routers
        #[arg(value_name = "N")]
        routers: u32,
        #[command(flatten)]
        hosts: Hosts,
        #[command(flatten)]
        common: Common,
    },
    /// A tree of switches whose leaves are hosts
    Tree {
        /// Links from the root to each host
        #[arg(long, value_name = "N", default_value_t = 2)]
        depth: u32,
        /// Children of each switch
        #[arg(long, value_name = "N", default_value_t = 2)]
        fanout: u32,
        #[command(flatten)]
        kind: KindArgs,
        #[command(flatten)]
        common: Common,
    },
    /// The fat-tree of Al-Fares and others (2008) of switches with K ports, which are routers here
    ///
    /// Names have the numbers of that paper's addresses: edge-P-S and aggr-P-S are 10.P.S.1, host-P-S-ID is 10.P.S.ID, core-J-I is
    /// 10.K.J.I. Routes take all shortest paths (--routing ecmp).
    FatTree {
        /// Ports of a switch, an even number
        k: u32,
        /// Hosts at each edge switch [default: K/2]
        #[arg(long, value_name = "N")]
        hosts_per_edge: Option<u32>,
        #[command(flatten)]
        common: Common,
    },
    /// Routers leaf1 ... and spine1 ..., each leaf connected with each spine
    ///
    /// Hosts of leaf1 are h1-1, h1-2 ... Routes take all shortest paths (--routing ecmp).
    LeafSpine {
        /// How many leaves
        leaves: u32,
        /// How many spines
        spines: u32,
        /// Hosts at each leaf
        #[arg(long, value_name = "N", default_value_t = 4)]
        hosts_per_leaf: u32,
        #[command(flatten)]
        common: Common,
    },
    /// Routers rR-C in rows and columns, with hosts
    Grid {
        /// How many rows
        rows: u32,
        /// How many columns
        columns: u32,
        /// Connect the last of each row and column with the first
        #[arg(long)]
        torus: bool,
        #[command(flatten)]
        hosts: Hosts,
        #[command(flatten)]
        common: Common,
    },
    /// Hosts left1 ... and right1 ... on both sides of a bottleneck from r1 to r2
    Dumbbell {
        /// Hosts on the left
        left: u32,
        /// Hosts on the right; as many as on the left by default
        right: Option<u32>,
        /// Rate of the bottleneck [default: 10Mbit]
        #[arg(long, value_name = "RATE", value_parser = unit::<Rate>)]
        bottleneck_rate: Option<Rate>,
        /// Its delay [default: 10ms]
        #[arg(long, value_name = "TIME", value_parser = unit::<SimDuration>)]
        bottleneck_delay: Option<SimDuration>,
        /// Its queue, as in 100p or 64kB [default: that of all links]
        #[arg(long, value_name = "QUEUE", value_parser = unit::<QueueLimit>)]
        bottleneck_queue: Option<QueueLimit>,
        #[command(flatten)]
        kind: KindArgs,
        #[command(flatten)]
        common: Common,
    },
    /// The random graph of Waxman (1988): routers r1 to rN in a square, the nearer two are the likelier is a link
    ///
    /// Its probability is alpha exp(-d / (beta L)), d being their distance and L the square's diagonal. A graph in several parts is
    /// connected: the part of r1 gets the shortest link to another, until there is one. Delays are those of light in
    /// fibre, 5 us a kilometre, unless --delay says otherwise.
    Waxman {
        /// How many routers
        #[arg(value_name = "N")]
        routers: u32,
        /// More of it: more links; above 0, at most 1
        #[arg(long, default_value_t = 0.4)]
        alpha: f64,
        /// More of it: longer links; above 0, at most 1
        #[arg(long, default_value_t = 0.15)]
        beta: f64,
        /// Length of a side of the square, km
        #[arg(long, value_name = "KM", default_value_t = 1_000.0)]
        side: f64,
        #[command(flatten)]
        hosts: Hosts,
        #[command(flatten)]
        common: Common,
    },
    /// A network of the Internet Topology Zoo, or another GraphML file; its nodes are routers
    ///
    /// Names come from labels, rates from LinkSpeedRaw or LinkSpeed and LinkSpeedUnits. Between two nodes with Latitude and Longitude the
    /// delay is that of light in fibre along the great circle, 5 us a kilometre, unless --delay says otherwise. Of several
    /// links between two nodes each is one; links from a node to itself are left out. The host of London is h-London.
    Graphml {
        /// The file
        file: PathBuf,
        /// Take the largest part of a graph that is not connected
        #[arg(long)]
        largest: bool,
        #[command(flatten)]
        hosts: Hosts,
        #[command(flatten)]
        common: Common,
    },
}

#[derive(Debug, clap::Args)]
struct Hosts {
    /// Hosts at each router
    #[arg(long, value_name = "N", default_value_t = 1)]
    hosts_per_router: u32,
}

#[derive(Debug, clap::Args)]
struct KindArgs {
    /// What connects hosts
    #[arg(long)]
    kind: Option<KindName>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum KindName {
    Router,
    Switch,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum RoutingName {
    /// No routes
    None,
    /// One shortest path
    Auto,
    /// All paths of the fewest hops, flow by flow
    Ecmp,
}

#[derive(Debug, clap::Args)]
struct Common {
    /// Rate of links [default: 1Gbit]
    #[arg(long, value_name = "RATE", value_parser = unit::<Rate>)]
    rate: Option<Rate>,
    /// Delay of links [default: 1ms; fat-tree, leaf-spine: 10us; waxman, graphml: by distance]
    #[arg(long, value_name = "TIME", value_parser = unit::<SimDuration>)]
    delay: Option<SimDuration>,
    /// Queue of links, as in 100p or 64kB [default: nic, the sender's own]
    #[arg(long, value_name = "QUEUE", value_parser = unit::<QueueLimit>)]
    queue: Option<QueueLimit>,
    /// Rate of links to hosts, if it is another
    #[arg(long, value_name = "RATE", value_parser = unit::<Rate>)]
    host_rate: Option<Rate>,
    /// Delay of links to hosts, if it is another
    #[arg(long, value_name = "TIME", value_parser = unit::<SimDuration>)]
    host_delay: Option<SimDuration>,
    /// How routes are found [default: auto; fat-tree, leaf-spine: ecmp]
    #[arg(long)]
    routing: Option<RoutingName>,
    /// Seed of the run, and of what is random in the topology
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Virtual time at which a run ends
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = unit::<SimDuration>)]
    stop: SimDuration,
    /// Name of the scenario [default: as in fat-tree-4]
    #[arg(long)]
    name: Option<String>,
    /// Print JSON in place of YAML
    #[arg(long)]
    json: bool,
    /// File to write; standard output by default
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// A value with its unit, as scenarios have it.
fn unit<T: FromStr<Err = UnitError>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: UnitError| error.to_string())
}

impl Shape {
    fn into_parts(self) -> Result<(Topology, Option<Forwarder>, Common), Failure> {
        let forwarder = |kind: KindArgs| {
            kind.kind.map(|kind| match kind {
                KindName::Router => Forwarder::Router,
                KindName::Switch => Forwarder::Switch,
            })
        };
        Ok(match self {
            Self::Chain {
                routers,
                hosts_per_router,
                kind,
                common,
            } => (
                Topology::Chain {
                    routers,
                    hosts_per_router,
                },
                forwarder(kind),
                common,
            ),
            Self::Star { hosts, kind, common } => (Topology::Star { hosts }, forwarder(kind), common),
            Self::Ring {
                routers,
                hosts: Hosts { hosts_per_router },
                common,
            } => (
                Topology::Ring {
                    routers,
                    hosts_per_router,
                },
                None,
                common,
            ),
            Self::Tree {
                depth,
                fanout,
                kind,
                common,
            } => (Topology::Tree { depth, fanout }, forwarder(kind), common),
            Self::FatTree {
                k,
                hosts_per_edge,
                common,
            } => (Topology::FatTree { k, hosts_per_edge }, None, common),
            Self::LeafSpine {
                leaves,
                spines,
                hosts_per_leaf,
                common,
            } => (
                Topology::LeafSpine {
                    leaves,
                    spines,
                    hosts_per_leaf,
                },
                None,
                common,
            ),
            Self::Grid {
                rows,
                columns,
                torus,
                hosts: Hosts { hosts_per_router },
                common,
            } => (
                Topology::Grid {
                    rows,
                    columns,
                    torus,
                    hosts_per_router,
                },
                None,
                common,
            ),
            Self::Dumbbell {
                left,
                right,
                bottleneck_rate,
                bottleneck_delay,
                bottleneck_queue,
                kind,
                common,
            } => {
                let bottleneck = Values {
                    rate: Some(bottleneck_rate.unwrap_or(Rate::from_mbps(10))),
                    delay: Some(bottleneck_delay.unwrap_or(SimDuration::from_ms(10))),
                    queue: bottleneck_queue,
                };
                let right = right.unwrap_or(left);
                (
                    Topology::Dumbbell {
                        left,
                        right,
                        bottleneck,
                    },
                    forwarder(kind),
                    common,
                )
            }
            Self::Waxman {
                routers,
                alpha,
                beta,
                side,
                hosts: Hosts { hosts_per_router },
                common,
            } => (
                Topology::Waxman {
                    routers,
                    alpha,
                    beta,
                    side_km: side,
                    hosts_per_router,
                },
                None,
                common,
            ),
            Self::Graphml {
                file,
                largest,
                hosts: Hosts { hosts_per_router },
                common,
            } => {
                let text = read(&file)?;
                let name = file
                    .file_stem()
                    .map(|stem| stem.to_string_lossy().into_owned())
                    .unwrap_or_default();
                (
                    Topology::Graphml {
                        text,
                        name,
                        largest,
                        hosts_per_router,
                    },
                    None,
                    common,
                )
            }
        })
    }
}

/// Largest GraphML file, bytes; those of the Zoo have up to 1 MB.
const GRAPHML_MAX_BYTES: u64 = 64 << 20;

fn read(path: &Path) -> Result<String, Failure> {
    super::check_current_dir(path)?;
    input_file::read_text(path, Kind::Any, GRAPHML_MAX_BYTES).map_err(|error| Failure::unreadable(path, &error))
}

/// Makes and prints or writes the scenario.
pub fn run(args: Args) -> Outcome {
    let file = match &args.topology {
        Shape::Graphml { file, .. } => Some(file.clone()),
        _ => None,
    };
    let (topology, forwarder, common) = args.topology.into_parts()?;
    let options = Options {
        name: common.name,
        links: Values {
            rate: common.rate,
            delay: common.delay,
            queue: common.queue,
        },
        host_links: Values {
            rate: common.host_rate,
            delay: common.host_delay,
            queue: None,
        },
        forwarder,
        routing: common.routing.map(|routing| match routing {
            RoutingName::None => Routing::None,
            RoutingName::Auto => Routing::Auto,
            RoutingName::Ecmp => Routing::Ecmp,
        }),
        seed: common.seed,
        stop: Some(common.stop),
    };
    let place = file.map(|file| format!("{}: ", file.display())).unwrap_or_default();
    let made = generate(&topology, &options).map_err(|error| {
        let failure = Failure::user(format!("{place}{error}"));
        match error.hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    })?;
    for warning in &made.warnings {
        eprintln!("warning: {place}{warning}");
    }
    let text = if common.json { made.to_json() } else { made.to_yaml() };
    let Some(output) = &common.output else {
        return super::print(&text);
    };
    super::check_current_dir(output)?;
    std::fs::write(output, text)
        .map_err(|error| Failure::user(format!("cannot write {}", output.display())).because(error))?;
    Ok(EXIT_OK)
}
