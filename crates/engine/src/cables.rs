//! All links of a run, direction by direction: those between nodes, then those to ports. What looks at links (series, summary, clients)
//! does so here, so that nothing leaves out a part of them.

use windtunnel_base::IfaceId;
use windtunnel_links::Link;
use windtunnel_results::LinkSummary;

use crate::links::Links;
use crate::node::Node;
use crate::outside::Outside;
use crate::wire::Port;

/// The links of a run.
#[derive(Debug)]
pub struct Cables<'a> {
    links: &'a Links,
    outside: Option<&'a mut Outside>,
}

/// A direction of a link, while it is looked at.
#[derive(Debug)]
pub struct Direction<'a> {
    /// Names of the sending and of the receiving end: "node:interface", or that of a port.
    pub names: (&'a str, &'a str),
    /// The link that leads away from the sending end.
    pub link: &'a mut Link,
    /// What it has counted.
    pub counts: Counts,
    /// Whether there are kernels at those of its ends that are nodes.
    pub powered: bool,
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Frames that the sender handed to the link, and their bytes.
    pub offered: (u64, u64),
    /// Those that reached the receiver.
    pub delivered: (u64, u64),
    /// Lost on the wire by chance.
    pub lost: u64,
    /// Found the link's queue full.
    pub queue_full: u64,
    /// Lost as the link was down, or went down.
    pub link_down: u64,
    /// Came when the receiving NIC's ring was full.
    pub ring_full: u64,
    /// Frames that were put on the wire.
    pub sent: u64,
    /// How long these had waited for it, ns.
    pub waited_ns: u64,
}

impl Counts {
    /// Of what a port has sent to another.
    pub fn of(sender: &Port, receiver: &Port) -> Self {
        let counters = sender.link.counters();
        Self {
            offered: (counters.frames, counters.bytes),
            delivered: (receiver.received_frames, receiver.received_bytes),
            lost: counters.dropped.loss,
            queue_full: counters.dropped.queue,
            link_down: counters.dropped.down,
            ring_full: receiver.missed_frames,
            sent: counters.sent,
            waited_ns: counters.waited_ns,
        }
    }
}

impl<'a> Cables<'a> {
    /// Links between nodes, and those to ports, if the run has any.
    pub fn new(links: &'a Links, outside: Option<&'a mut Outside>) -> Self {
        Self { links, outside }
    }

    /// How many directions there are.
    pub fn count(&self) -> usize {
        self.links.directions().count() + self.outside.as_ref().map_or(0, |outside| outside.directions())
    }

    /// Shows each direction, always in the same order. All that is due before `at_ns` has happened; it counts what has arrived at
    /// ports by then.
    ///
    /// # Errors
    /// The first one of `each`.
    pub fn each<E>(
        &mut self,
        nodes: &mut [Node],
        at_ns: u64,
        mut each: impl FnMut(Direction<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        for (from, to, names) in self.links.directions() {
            let counts = Counts::of(port(nodes, from), port(nodes, to));
            let powered = [from, to].iter().all(|end| nodes[end.node.index()].is_up());
            each(Direction {
                names,
                link: &mut nodes[from.node.index()].ports[from.index as usize].link,
                counts,
                powered,
            })?;
        }
        match &mut self.outside {
            Some(outside) => outside.each_direction(nodes, at_ns, each),
            None => Ok(()),
        }
    }

    /// What all of them counted so far, in the order of [`Self::each`].
    pub fn summaries(&self, nodes: &[Node]) -> Vec<LinkSummary> {
        summaries(self.links, self.outside.as_deref(), nodes)
    }
}

/// As [`Cables::summaries`].
pub fn summaries(links: &Links, outside: Option<&Outside>, nodes: &[Node]) -> Vec<LinkSummary> {
    let outward = outside.into_iter().flat_map(|outside| outside.links(nodes));
    links.summaries(nodes).into_iter().chain(outward).collect()
}

fn port(nodes: &[Node], end: IfaceId) -> &Port {
    &nodes[end.node.index()].ports[end.index as usize]
}
