//! The links of a run as a whole: changes while it goes on, the time that they give windows, and what they counted.

use std::cell::RefCell;

use windtunnel_base::{IfaceId, SimDuration};
use windtunnel_links::LinkChange;
use windtunnel_results::{ChangedBy, DirectionSummary, Event, EventLog, LinkSummary, LinkValues};
use windtunnel_scenario::{Action, LinkSpec};

use crate::build;
use crate::error::EngineError;
use crate::event::Source;
use crate::live::Network;
use crate::node::Node;
use crate::window::{Kernel, Outbox};
use crate::wire::{Peer, Port};

/// Length of a window when no frame can get from one kernel to another, ns.
const UNLINKED_WINDOW_NS: u64 = 100_000_000;

/// All links, in scenario order.
#[derive(Debug)]
pub struct Links {
    specs: Vec<LinkSpec>,
    /// Names of their ends: "node:interface".
    ends: Vec<(String, String)>,
    /// Changes so far, with their times, ns.
    changes: RefCell<Vec<(u64, Event)>>,
}

impl Links {
    /// These links, with the names of their ends.
    pub fn new(specs: Vec<LinkSpec>, ends: Vec<(String, String)>) -> Self {
        Self {
            specs,
            ends,
            changes: RefCell::default(),
        }
    }

    /// Sending end, receiving end, and their names, of each direction.
    pub fn directions(&self) -> impl Iterator<Item = (IfaceId, IfaceId, (&str, &str))> {
        self.specs.iter().zip(&self.ends).flat_map(|(link, (a, b))| {
            let (a, b) = (a.as_str(), b.as_str());
            [(link.a, link.b, (a, b)), (link.b, link.a, (b, a))]
        })
    }

    /// The least time a frame needs from one kernel to another, ns.
    pub fn lookahead_ns(nodes: &[Node]) -> u64 {
        let leaving = |node: &Node| {
            let away = node
                .ports
                .iter()
                .filter(|port| matches!(port.peer, Peer::Node { number, .. } if number != node.number));
            away.map(|port| port.link.params().lookahead().as_ns()).min()
        };
        nodes.iter().filter_map(leaving).min().unwrap_or(UNLINKED_WINDOW_NS)
    }

    /// The jitter and the delay that a direction would have after this change, if the jitter were the greater.
    pub fn too_much_jitter(&self, nodes: &[Node], action: &Action) -> Option<(SimDuration, SimDuration)> {
        let Action::SetLink { link, a_to_b, b_to_a } = action else {
            return None;
        };
        let spec = self.specs[*link];
        [(spec.a, a_to_b), (spec.b, b_to_a)]
            .into_iter()
            .find_map(|(from, change)| {
                let mut params = *port(nodes, from).link.params();
                params.apply(change);
                (params.jitter > params.delay).then_some((params.jitter, params.delay))
            })
    }

    /// Changes a link or a node at `at_ns`, between two windows. `source` numbers the events this makes.
    ///
    /// # Errors
    /// As [`Links::switch`].
    pub fn change(
        &self,
        network: &mut Network<'_>,
        source: &mut Source,
        at_ns: u64,
        action: &Action,
        by: ChangedBy,
    ) -> Result<(), EngineError> {
        let (link, a_to_b, b_to_a) = match action {
            Action::SetLink { link, a_to_b, b_to_a } => (link, a_to_b, b_to_a),
            Action::SetOutside { port, outward, inward } => {
                let outside = network.outside.as_mut().expect("it has ports");
                let ends = outside.change(network.nodes, network.windows, (source, at_ns), *port, outward, inward);
                self.note(at_ns, ends, by, (outward, inward));
                return Ok(());
            }
            Action::SetPower { node, up } => return self.switch(network, source, at_ns, node.index(), *up, by),
        };
        self.note(at_ns, self.ends[*link].clone(), by, (a_to_b, b_to_a));
        let LinkSpec { a, b, .. } = self.specs[*link];
        let ends = [(a, b, a_to_b), (b, a, b_to_a)];
        for (from, to, change) in ends {
            change_direction(network.nodes, from, to, change);
        }
        for (from, ..) in ends {
            self.tell_carrier(network, source, at_ns, *link, from);
        }
        Ok(())
    }

    /// Whether the NICs at the ends of a link have a carrier: it is up in both directions, as a cable is, and so are both nodes.
    fn has_carrier(&self, nodes: &[Node], link: usize) -> bool {
        let LinkSpec { a, b, .. } = self.specs[link];
        let works = |end: IfaceId| nodes[end.node.index()].is_up() && port(nodes, end).link.is_up();
        works(a) && works(b)
    }

    /// Has the NIC at an end of a link see its carrier and speed, at `at_ns`.
    fn tell_carrier(&self, network: &mut Network<'_>, source: &mut Source, at_ns: u64, link: usize, end: IfaceId) {
        let up = self.has_carrier(network.nodes, link);
        let speed_mbps = build::speed_mbps(port(network.nodes, end).link.params());
        let node = &mut network.nodes[end.node.index()];
        if node.is_up() {
            node.set_link(end.index, up, speed_mbps, source.key(at_ns));
            network.windows.note(end.node.0, at_ns);
        }
    }

    /// Links with an end at a node.
    fn links_of(&self, node: usize) -> impl Iterator<Item = (usize, LinkSpec)> {
        let of_node = move |spec: &LinkSpec| [spec.a, spec.b].iter().any(|end| end.node.index() == node);
        let specs = self.specs.iter().cloned().enumerate();
        specs.filter(move |(_, spec)| of_node(spec))
    }

    /// A node's power goes, or it is booted, at `at_ns` between two windows. What is on its links is lost, as if they went down, and
    /// the NICs at their other ends have no carrier while it is down. Nothing happens if it is so already.
    ///
    /// # Errors
    /// When the node does not come up, or a result cannot be written.
    pub fn switch(
        &self,
        network: &mut Network<'_>,
        source: &mut Source,
        at_ns: u64,
        node: usize,
        up: bool,
        by: ChangedBy,
    ) -> Result<(), EngineError> {
        if network.nodes[node].is_up() == up {
            return Ok(());
        }
        if up {
            let mut outbox = Outbox::default();
            let mut carriers = vec![true; network.nodes[node].ports.len()];
            for (_, spec) in self.links_of(node) {
                let both = [spec.a, spec.b];
                let works = |end: &IfaceId| {
                    port(network.nodes, *end).link.is_up()
                        && (end.node.index() == node || network.nodes[end.node.index()].is_up())
                };
                let carrier = both.iter().all(works);
                for end in both.iter().filter(|end| end.node.index() == node) {
                    carriers[end.index as usize] = carrier;
                }
            }
            let outside = network.outside.as_ref();
            let outside = outside.into_iter().flat_map(|outside| outside.carriers(network.nodes));
            for (end, carrier) in outside.filter(|(end, _)| end.node.index() == node) {
                carriers[end.index as usize] = carrier;
            }
            network.nodes[node].power_on(network.machines, at_ns, &carriers, &mut outbox)?;
            network.windows.distribute(network.nodes, outbox, at_ns);
            network.windows.note(node as u32, network.nodes[node].next_ns());
        } else {
            network.nodes[node].power_off(&network.machines.files, at_ns, by)?;
            network.windows.forget(node as u32);
            for (_, LinkSpec { a, b, .. }) in self.links_of(node) {
                for (from, to) in [(a, b), (b, a)] {
                    port_mut(network.nodes, from).link.cut();
                    let lost = network.nodes[to.node.index()].lose_frames(to.index).len();
                    port_mut(network.nodes, to).cut_frames += lost as u64;
                }
            }
        }
        if !up && let Some(outside) = &mut network.outside {
            outside.cut(network.nodes, node, at_ns);
        }
        for (link, LinkSpec { a, b, .. }) in self.links_of(node) {
            for end in [a, b].into_iter().filter(|end| end.node.index() != node) {
                self.tell_carrier(network, source, at_ns, link, end);
            }
        }
        Ok(())
    }

    fn note(&self, at_ns: u64, (a, b): (String, String), by: ChangedBy, (a_to_b, b_to_a): (&LinkChange, &LinkChange)) {
        let event = Event::LinkChanged {
            a,
            b,
            by,
            a_to_b: values(a_to_b),
            b_to_a: values(b_to_a),
        };
        self.changes.borrow_mut().push((at_ns, event));
    }

    /// Adds all changes so far.
    pub fn tell(&self, events: &mut EventLog) {
        for (at_ns, event) in self.changes.borrow().iter() {
            events.add(*at_ns, event.clone());
        }
    }

    /// What they counted so far.
    pub fn summaries(&self, nodes: &[Node]) -> Vec<LinkSummary> {
        let both = self.specs.iter().zip(&self.ends);
        let summary = |(link, (a, b)): (&LinkSpec, &(String, String))| {
            let (near, far) = (port(nodes, link.a), port(nodes, link.b));
            LinkSummary {
                a: a.clone(),
                b: b.clone(),
                a_to_b: direction_summary(near, far),
                b_to_a: direction_summary(far, near),
            }
        };
        both.map(summary).collect()
    }
}

fn port(nodes: &[Node], end: IfaceId) -> &Port {
    &nodes[end.node.index()].ports[end.index as usize]
}

fn port_mut(nodes: &mut [Node], end: IfaceId) -> &mut Port {
    &mut nodes[end.node.index()].ports[end.index as usize]
}

fn change_direction(nodes: &mut [Node], from: IfaceId, to: IfaceId, change: &LinkChange) {
    let port = port_mut(nodes, from);
    let was_up = port.link.is_up();
    port.link.set(change);
    if was_up && !port.link.is_up() {
        for due_ns in nodes[to.node.index()].lose_frames(to.index) {
            port_mut(nodes, from).lost_on_the_way(due_ns);
        }
    }
}

fn values(change: &LinkChange) -> LinkValues {
    LinkValues {
        rate_bps: change.rate.map(|rate| rate.0),
        delay_ns: change.delay.map(|delay| delay.as_ns()),
        jitter_ns: change.jitter.map(|jitter| jitter.as_ns()),
        reorder: change.reorder,
        loss_ppb: change.loss.map(|chance| chance.as_ppb()),
        duplicate_ppb: change.duplicate.map(|chance| chance.as_ppb()),
        corrupt_ppb: change.corrupt.map(|chance| chance.as_ppb()),
        queue: change.queue.map(|queue| queue.to_string()),
        up: change.up,
    }
}

/// What a direction counted.
pub(crate) fn direction_summary(sender: &Port, receiver: &Port) -> DirectionSummary {
    let counters = sender.link.counters();
    let dropped = counters.dropped;
    let causes = [
        ("loss", dropped.loss),
        ("queue_full", dropped.queue),
        ("link_down", dropped.down),
        ("rx_ring_full", receiver.missed_frames),
        ("node_down", receiver.cut_frames),
    ];
    DirectionSummary {
        frames: counters.frames,
        bytes: counters.bytes,
        delivered_frames: receiver.received_frames,
        delivered_bytes: receiver.received_bytes,
        duplicated_frames: counters.duplicated,
        corrupted_frames: counters.corrupted,
        drops: causes
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .map(|(cause, count)| (cause.into(), count))
            .collect(),
    }
}
