//! Links that lead outside: what a node sends to a port leaves at its time by the wall clock, and what comes in through a port gets a
//! virtual time and crosses its link like any frame.
//!
//! A frame from outside gets the time that it is heard, which no window has reached yet, so it arrives at its node after all that has
//! happened there. All of them are written down ([`record`]); a replay takes them from there instead of from ports, each when all before
//! its time has happened and nothing at its time has, as it was then. So the replay is the same run, at any speed.
//!
//! No more comes in than the link can carry: while frames wait [`WAIT_MAX_NS`] for the wire, the rest stays in the port's socket,
//! which drops and counts what it cannot hold.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use windtunnel_base::{IfaceId, Rng, SimTime};
use windtunnel_control::{PeerState, PortState};
use windtunnel_kernel::Frame;
use windtunnel_links::{Link, LinkChange};
use windtunnel_ports::{HostInterface, Port, PortError, PortSpec};
use windtunnel_results::{DirectionSummary, LinkSummary, PortSummary};
use windtunnel_scenario::{NodeKind, PortEnd, Scenario};

use crate::build;
use crate::cables::{Counts, Direction};
use crate::error::EngineError;
use crate::event::{Event, Source};
use crate::flows::Flows;
use crate::links::direction_summary;
use crate::node::{Body, Node};
use crate::run::Books;
use crate::shared::Shared;
use crate::window::Windows;
use crate::wire;

pub mod record;

/// Frames taken from a port before others are looked at.
const FRAMES_MOST: usize = 256;
/// So often more is taken from a port that was closed: sockets hold less, and who sends without end shall not hold up the run.
const EARLY_ROUNDS: usize = 64;
/// Nothing more is taken from a port while its frames wait so long for the wire, ns.
const WAIT_MAX_NS: u64 = 20_000_000;
/// What an Ethernet frame has besides the packet: a header and two VLAN tags, bytes.
const FRAME_EXTRA: u32 = 14 + 8;
/// A recording is handed to the host this often, ns of virtual time.
const FLUSH_EVERY_NS: u64 = 1_000_000_000;

/// A frame on its way from a node to a port.
#[derive(Debug)]
pub struct Leaving {
    /// When it arrives there, ns.
    pub at_ns: u64,
    /// Number of the port.
    pub port: u32,
    /// The frame.
    pub frame: Frame,
}

/// One in the queue of all ports: by time, then in the order of sending.
#[derive(Debug)]
struct Queued {
    order: (u64, u64),
    port: u32,
    frame: Frame,
}

impl PartialEq for Queued {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}
impl Eq for Queued {}
impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Queued {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.order.cmp(&other.order)
    }
}

/// A port with its side of the link.
#[derive(Debug)]
struct End {
    name: String,
    /// None: this is a replay.
    port: Option<Box<dyn Port>>,
    what: String,
    /// The way in, and what has arrived on the way out.
    wire: wire::Port,
    inside: IfaceId,
    /// Its name, "node:interface".
    inside_name: String,
    /// Longest frame that its NIC takes, bytes.
    frame_max: u32,
    /// Frames from outside that were longer.
    too_long: u64,
    frames_in: u64,
    bytes_in: u64,
    /// More may wait in the port than its descriptor shows.
    more: bool,
    /// Something was sent since the last flush.
    unflushed: bool,
    /// Frames of nodes, and from outside, that came while ports were closed.
    before_live: (u64, u64),
}

/// All ports of a run.
#[derive(Debug)]
pub struct Outside {
    ends: Vec<End>,
    leaving: BinaryHeap<Reverse<Queued>>,
    sequence: u64,
    source: Source,
    /// The next frame that comes in is not before, ns.
    last_ns: u64,
    writer: Option<record::Writer>,
    flushed_ns: u64,
    /// The run does not go with the wall clock yet.
    closed: bool,
    replay: Option<(record::Reader, Option<record::Arrival>)>,
    shared: Arc<Shared>,
}

impl Outside {
    /// The ports of a scenario, open, or those of a run to be repeated; none: it has no ports. `source` numbers the events.
    ///
    /// # Errors
    /// When the host refuses a port, or the recording is not of such a run.
    pub fn new(
        scenario: &Scenario,
        replay: Option<&Path>,
        books: &Books,
        source: Source,
    ) -> Result<Option<Box<Self>>, EngineError> {
        if scenario.ports.is_empty() {
            return Ok(None);
        }
        let seed = books.manifest.seed;
        let header = record::Header {
            scenario_sha256: scenario.sha256.clone(),
            seed,
            ports: scenario.ports.iter().map(|port| port.name.clone()).collect(),
        };
        let (mut writer, mut reader) = (None, None);
        match replay {
            Some(path) => {
                let mut opened = record::Reader::open(path).map_err(EngineError::Recording)?;
                check_header(&opened.header, &header)?;
                let first = opened.next().map_err(EngineError::Recording)?;
                reader = Some((opened, first));
            }
            None if scenario.run.realtime.record => {
                let file = books.out.outside_log()?;
                writer = Some(record::Writer::new(file, &header).map_err(EngineError::OutsideLog)?);
            }
            None => {}
        }
        let ends = scenario.ports.iter().map(|spec| {
            let port = match replay {
                Some(_) => None,
                None => Some(open(scenario, spec).map_err(EngineError::Port)?),
            };
            Ok(End::new(scenario, spec, port, books))
        });
        Ok(Some(Box::new(Self {
            ends: ends.collect::<Result<_, EngineError>>()?,
            leaving: BinaryHeap::new(),
            sequence: 0,
            source,
            last_ns: 0,
            writer,
            flushed_ns: 0,
            closed: scenario.run.realtime.live_at.as_ns() > 0 && reader.is_none(),
            replay: reader,
            shared: books.shared.clone(),
        })))
    }

    /// What to wait for: ports that can be taken from at `now_ns`.
    pub fn poll_fds(&self, now_ns: u64) -> impl Iterator<Item = std::os::fd::BorrowedFd<'_>> {
        let willing = self.ends.iter().filter(move |end| !end.is_full(now_ns));
        willing.filter_map(|end| end.port.as_ref()).map(|port| port.poll_fd())
    }

    /// When something is to be done at the latest, ns, though nothing comes in; `u64::MAX`: never.
    pub fn next_ns(&self, now_ns: u64) -> u64 {
        let leaves_ns = self.leaving.peek().map_or(u64::MAX, |Reverse(next)| next.order.0);
        let more = self.ends.iter().any(|end| end.more && !end.is_full(now_ns));
        let full = self.ends.iter().filter(|end| end.is_full(now_ns));
        let drains = full.map(|end| now_ns + end.wait_ns(now_ns) - WAIT_MAX_NS + 1);
        let drains_ns = drains.min().unwrap_or(u64::MAX);
        if more { now_ns } else { leaves_ns.min(drains_ns) }
    }

    /// Takes what nodes have sent to ports.
    pub fn collect(&mut self, nodes: &mut [Node]) {
        for end in &self.ends {
            for Leaving { at_ns, port, frame } in nodes[end.inside.node.index()].leaving.drain(..) {
                self.sequence += 1;
                let order = (at_ns, self.sequence);
                self.leaving.push(Reverse(Queued { order, port, frame }));
            }
        }
    }

    /// Whether what comes in is that of a recording.
    pub fn is_replay(&self) -> bool {
        self.replay.is_some()
    }

    /// Whether frames are on their way out.
    pub fn has_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Sends what has arrived at ports before `done_ns`.
    pub fn send(&mut self, done_ns: u64) {
        while self.leaving.peek().is_some_and(|Reverse(next)| next.order.0 < done_ns) {
            let Some(Reverse(Queued { port, frame, .. })) = self.leaving.pop() else {
                break;
            };
            let end = &mut self.ends[port as usize];
            end.wire.received_frames += 1;
            end.wire.received_bytes += u64::from(frame.len());
            if self.closed {
                end.before_live.0 += 1;
            } else if let Some(port) = &mut end.port {
                end.unflushed = true;
                if let Err(news) = port.send(frame.data()) {
                    tell(&self.shared, self.last_ns, &news);
                }
            }
        }
        for end in self.ends.iter_mut().filter(|end| end.unflushed) {
            end.unflushed = false;
            if let Some(Err(news)) = end.port.as_mut().map(|port| port.flush()) {
                tell(&self.shared, self.last_ns, &news);
            }
        }
    }

    /// The wall clock begins. What came until now came too early.
    pub fn open_up(&mut self) {
        self.closed = false;
        for end in &mut self.ends {
            let Some(port) = &mut end.port else { continue };
            for _ in 0..EARLY_ROUNDS {
                let mut early = 0;
                let taken = port.receive(FRAMES_MOST, &mut |_| early += 1);
                end.before_live.1 += early;
                if let Err(news) = &taken {
                    tell(&self.shared, self.last_ns, news);
                }
                if !matches!(taken, Ok(FRAMES_MOST)) {
                    break;
                }
            }
        }
    }

    /// Lets come in what waits outside. It is `at_ns`, which no window has reached.
    ///
    /// # Errors
    /// When the recording cannot be written.
    pub fn receive(&mut self, nodes: &mut [Node], windows: &mut Windows<Body>, at_ns: u64) -> Result<(), EngineError> {
        let at_ns = at_ns.max(self.last_ns);
        let mut result = Ok(());
        for (number, end) in self.ends.iter_mut().enumerate() {
            if end.is_full(at_ns) {
                end.more = true;
                continue;
            }
            let Some(mut port) = end.port.take() else { continue };
            let (writer, source) = (&mut self.writer, &mut self.source);
            let mut each = |bytes: &[u8]| {
                let written = writer
                    .as_mut()
                    .map_or(Ok(()), |writer| writer.add(at_ns, number as u16, bytes));
                if result.is_ok() {
                    result = written
                        .map_err(EngineError::OutsideLog)
                        .and_then(|()| end.come_in(at_ns, bytes, source, nodes, windows));
                }
            };
            let taken = port.receive(FRAMES_MOST, &mut each);
            end.more = matches!(taken, Ok(FRAMES_MOST));
            if let Err(news) = taken {
                tell(&self.shared, self.last_ns, &news);
            }
            end.port = Some(port);
        }
        self.last_ns = at_ns;
        if at_ns - self.flushed_ns >= FLUSH_EVERY_NS {
            self.flushed_ns = at_ns;
            self.flush()?;
        }
        result
    }

    /// Changes the link of a port at `at_ns`, between two windows; the names of its ends. What came in at that time came before.
    pub fn change(
        &mut self,
        nodes: &mut [Node],
        windows: &mut Windows<Body>,
        (source, at_ns): (&mut Source, u64),
        port: usize,
        outward: &LinkChange,
        inward: &LinkChange,
    ) -> (String, String) {
        // Until now the link was as before, however long it is since the last window.
        windows.pass(at_ns);
        self.send(windows.done_ns());
        self.last_ns = self.last_ns.max(at_ns + 1);
        let (end, leaving) = (&mut self.ends[port], &mut self.leaving);
        let (node, nic) = (end.inside.node.index(), end.inside.index);
        let near = &mut nodes[node].ports[nic as usize];
        let were_up = (near.link.is_up(), end.wire.link.is_up());
        near.link.set(outward);
        end.wire.link.set(inward);
        if were_up.0 && !near.link.is_up() {
            let (lost, kept) = leaving
                .drain()
                .partition::<Vec<_>, _>(|Reverse(queued)| queued.port as usize == port);
            leaving.extend(kept);
            for Reverse(queued) in lost {
                near.lost_on_the_way(queued.order.0);
            }
        }
        let up = near.link.is_up() && end.wire.link.is_up();
        let speed_mbps = build::speed_mbps(near.link.params());
        if were_up.1 && !end.wire.link.is_up() {
            for due_ns in nodes[node].lose_frames(nic) {
                end.wire.lost_on_the_way(due_ns);
            }
        }
        if nodes[node].is_up() {
            nodes[node].set_link(nic, up, speed_mbps, source.key(at_ns));
            windows.note(node as u32, at_ns);
        }
        (end.inside_name.clone(), end.name.clone())
    }

    /// The power of a node went at `at_ns`: what is on its links to ports is lost. What was on its way to the node is lost already.
    pub fn cut(&mut self, nodes: &mut [Node], node: usize, at_ns: u64) {
        self.collect(nodes);
        self.send(at_ns);
        let Self { ends, leaving, .. } = self;
        let of_node = |end: &End| end.inside.node.index() == node;
        let (lost, kept) = leaving
            .drain()
            .partition::<Vec<_>, _>(|Reverse(queued)| of_node(&ends[queued.port as usize]));
        leaving.extend(kept);
        for Reverse(queued) in lost {
            ends[queued.port as usize].wire.cut_frames += 1;
        }
        for end in ends.iter_mut().filter(|end| of_node(end)) {
            nodes[node].ports[end.inside.index as usize].link.cut();
            end.wire.link.cut();
        }
    }

    /// NICs at links to the outside, and whether these work in both directions.
    pub fn carriers(&self, nodes: &[Node]) -> impl Iterator<Item = (IfaceId, bool)> {
        self.ends.iter().map(|end| {
            let near = &nodes[end.inside.node.index()].ports[end.inside.index as usize];
            (end.inside, near.link.is_up() && end.wire.link.is_up())
        })
    }

    /// Time of the next frame of the recording, ns; `u64::MAX`: none.
    pub fn replay_ns(&self) -> u64 {
        let next = self.replay.as_ref().and_then(|(_, next)| next.as_ref());
        next.map_or(u64::MAX, |next| next.at_ns)
    }

    /// Lets the frames of the recording come in whose time is not after `at_ns`.
    ///
    /// # Errors
    /// When the recording is damaged.
    pub fn replay(&mut self, nodes: &mut [Node], windows: &mut Windows<Body>, at_ns: u64) -> Result<(), EngineError> {
        while self.replay_ns() <= at_ns
            && let Some((reader, next)) = &mut self.replay
            && let Some(arrival) = next.take()
        {
            *next = reader.next().map_err(EngineError::Recording)?;
            let end = &mut self.ends[arrival.port as usize];
            end.come_in(arrival.at_ns, &arrival.frame, &mut self.source, nodes, windows)?;
        }
        Ok(())
    }

    /// Hands the recording to the host.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn flush(&mut self) -> Result<(), EngineError> {
        let flushed = self.writer.as_mut().map_or(Ok(()), record::Writer::flush);
        flushed.map_err(EngineError::OutsideLog)
    }

    /// What the links to ports counted so far.
    pub fn links(&self, nodes: &[Node]) -> Vec<LinkSummary> {
        let summary = |end: &End| {
            let near = &nodes[end.inside.node.index()].ports[end.inside.index as usize];
            let mut inward: DirectionSummary = direction_summary(&end.wire, near);
            if end.too_long > 0 {
                inward.drops.insert("longer_than_mtu".into(), end.too_long);
            }
            LinkSummary {
                a: end.inside_name.clone(),
                b: end.name.clone(),
                a_to_b: direction_summary(near, &end.wire),
                b_to_a: inward,
            }
        };
        self.ends.iter().map(summary).collect()
    }

    /// How many directions the links to ports have.
    pub fn directions(&self) -> usize {
        2 * self.ends.len()
    }

    /// Shows each direction of the links to ports, the way out first, as [`Cables::each`] does.
    ///
    /// [`Cables::each`]: crate::cables::Cables::each
    ///
    /// # Errors
    /// The first one of `each`.
    pub fn each_direction<E>(
        &mut self,
        nodes: &mut [Node],
        at_ns: u64,
        mut each: impl FnMut(Direction<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        // What has arrived before counts as sent by the wall clock, too: it is at least as late.
        self.collect(nodes);
        self.send(at_ns);
        for end in &mut self.ends {
            let inside = &mut nodes[end.inside.node.index()];
            let powered = inside.is_up();
            let near = &mut inside.ports[end.inside.index as usize];
            let (outward, inward) = (Counts::of(near, &end.wire), Counts::of(&end.wire, near));
            each(Direction {
                names: (&end.inside_name, &end.name),
                link: &mut near.link,
                counts: outward,
                powered,
            })?;
            each(Direction {
                names: (&end.name, &end.inside_name),
                link: &mut end.wire.link,
                counts: inward,
                powered,
            })?;
        }
        Ok(())
    }

    /// The flows that came in, where they are looked for, with the names of their ports.
    pub fn flows(&self) -> impl Iterator<Item = (&str, &Flows)> {
        let flows = self
            .ends
            .iter()
            .map(|end| (end.name.as_str(), end.wire.flows.as_deref()));
        flows.filter_map(|(name, flows)| Some((name, flows?)))
    }

    /// What the ports counted so far.
    pub fn summaries(&self) -> Vec<PortSummary> {
        let summary = |end: &End| {
            let counters = end.port.as_ref().map(|port| port.counters()).unwrap_or_default();
            let drops = counters.drops.iter().map(|(cause, count)| (cause.as_str(), *count));
            let early = [
                ("in_before_live", end.before_live.1),
                ("out_before_live", end.before_live.0),
            ];
            let drops = drops.chain(early).filter(|(_, count)| *count > 0);
            PortSummary {
                name: end.name.clone(),
                what: end.what.clone(),
                frames_in: end.frames_in,
                bytes_in: end.bytes_in,
                frames_out: counters.frames_out,
                bytes_out: counters.bytes_out,
                drops: drops.map(|(cause, count)| (cause.into(), count)).collect(),
            }
        };
        self.ends.iter().map(summary).collect()
    }

    /// The same, and what is known of the programs at their other ends.
    pub fn states(&self) -> Vec<PortState> {
        let peer = |end: &End| {
            let peer = end.port.as_ref()?.peer()?;
            Some(PeerState {
                connected: peer.connected,
                name: peer.name,
                version: peer.version,
                seen_ago_ns: peer.seen_ago.map(|ago| ago.as_nanos() as u64),
                lost_in_frames: peer.lost_in,
                lost_out_frames: peer.lost_out,
            })
        };
        let state = |(counters, end)| PortState {
            counters,
            peer: peer(end),
        };
        self.summaries().into_iter().zip(&self.ends).map(state).collect()
    }
}

impl End {
    fn new(scenario: &Scenario, spec: &PortEnd, port: Option<Box<dyn Port>>, books: &Books) -> Self {
        let label = format!("link/{}/{}", spec.name, scenario.iface_name(spec.end));
        let link = Link::new(spec.inward, Rng::new(books.manifest.seed, &label));
        let inside = wire::Peer::Node {
            number: spec.end.node.0,
            nic: spec.end.index,
        };
        let mtu = scenario.node(spec.end.node).interfaces[spec.end.index as usize].mtu;
        // Its digest goes nowhere: with one, frames carry the hash that the NIC's digest is made of.
        let mut wire = wire::Port::new(link, inside, books.digest, None);
        wire.flows = scenario.run.measure.links.map(|_| Box::default());
        Self {
            name: spec.name.clone(),
            what: port.as_ref().map_or("replay".into(), |port| port.describe()),
            port,
            wire,
            inside: spec.end,
            inside_name: scenario.iface_name(spec.end),
            frame_max: mtu + FRAME_EXTRA,
            too_long: 0,
            frames_in: 0,
            bytes_in: 0,
            more: false,
            unflushed: false,
            before_live: (0, 0),
        }
    }

    /// How long a frame that comes at `now_ns` would wait for the wire, ns.
    fn wait_ns(&self, now_ns: u64) -> u64 {
        self.wire.wait_ns(SimTime(now_ns))
    }

    fn is_full(&self, now_ns: u64) -> bool {
        self.wait_ns(now_ns) > WAIT_MAX_NS
    }

    /// A frame comes from outside at `at_ns`, and crosses the link.
    fn come_in(
        &mut self,
        at_ns: u64,
        bytes: &[u8],
        source: &mut Source,
        nodes: &mut [Node],
        windows: &mut Windows<Body>,
    ) -> Result<(), EngineError> {
        self.frames_in += 1;
        self.bytes_in += bytes.len() as u64;
        if bytes.len() > self.frame_max as usize {
            self.too_long += 1;
            return Ok(());
        }
        let (node, nic) = (self.inside.node.0, self.inside.index);
        let inside = &mut nodes[node as usize];
        if !inside.is_up() {
            inside.ports[nic as usize].cut_frames += 1;
            return Ok(());
        }
        self.wire.transmit(at_ns, Frame::new(bytes), |arrives_ns, frame| {
            let event = Event {
                key: source.key(arrives_ns),
                body: Body::Deliver { nic, frame },
            };
            nodes[node as usize].take_in(event);
            windows.note(node, arrives_ns);
        })?;
        Ok(())
    }
}

/// Opens a port. The addresses of nodes at its cable must not be the host's as well.
fn open(scenario: &Scenario, spec: &PortEnd) -> Result<Box<dyn Port>, PortError> {
    let port = windtunnel_ports::open(&spec.spec, &spec.name)?;
    if let PortSpec::Interface { name, .. } = &spec.spec
        // What cannot be read is not compared.
        && let Ok(host) = HostInterface::read(name)
    {
        let near = at_cable(scenario, spec.end);
        let near: Vec<(String, IpAddr)> = near
            .iter()
            .flat_map(|end| {
                let interface = &scenario.node(end.node).interfaces[end.index as usize];
                let addresses = interface.addresses.iter();
                addresses.map(|net| (scenario.iface_name(*end), net.addr()))
            })
            .collect();
        host.check_apart(
            &spec.name,
            name,
            near.iter().map(|(end, address)| (end.as_str(), *address)),
        )?;
    }
    Ok(port)
}

/// The interfaces that frames from `end` reach without a router: it, and those behind switches.
fn at_cable(scenario: &Scenario, end: IfaceId) -> Vec<IfaceId> {
    let mut found = vec![end];
    let mut looked = 0;
    while let Some(&here) = found.get(looked) {
        looked += 1;
        let node = scenario.node(here.node);
        if node.kind != NodeKind::Switch {
            continue;
        }
        for (a, b) in scenario
            .links
            .iter()
            .flat_map(|link| [(link.a, link.b), (link.b, link.a)])
        {
            if a.node == here.node && !found.contains(&b) {
                found.push(b);
            }
        }
    }
    found
}

fn check_header(found: &record::Header, wanted: &record::Header) -> Result<(), EngineError> {
    if found.ports != wanted.ports {
        return Err(EngineError::Recording(format!(
            "it is of a run with the ports {}, and this one has {}",
            found.ports.join(", "),
            wanted.ports.join(", ")
        )));
    }
    if found.seed != wanted.seed {
        return Err(EngineError::Recording(format!(
            "outside.bin was recorded with seed {}, and this run has {}",
            found.seed, wanted.seed
        )));
    }
    Ok(())
}

/// A port has lost its interface or its peer: the summary says so, and frames are counted.
fn tell(shared: &Shared, now_ns: u64, news: &PortError) {
    shared.warn(now_ns, "port", None, &news.to_string());
}
