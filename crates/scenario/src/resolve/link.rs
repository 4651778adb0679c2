//! Links, their ends, and what happens to them while the run goes on.

use windtunnel_base::{IfaceId, NodeId, SimDuration, SimTime};
use windtunnel_links::{LinkChange, LinkParams};

use super::{leaf, process};
use crate::document::{Document, EventDoc, LinkDoc, LinkValuesDoc};
use crate::error::{Mark, Problem};
use windtunnel_ports::PortSpec;

use crate::model::{Action, Event, LinkSpec, Node, PortEnd, Run};
use crate::text::{Text, Words};

/// Longest name of an interface in bytes (Linux: IFNAMSIZ less the final NUL).
const INTERFACE_NAME_MAX: usize = 15;

/// A light-year.
const DELAY_MAX: SimDuration = SimDuration::from_s(8_760 * 3_600);

/// What Linux has other uses for: `all` and `default` are folders of sysctls, the last one is a file among the interfaces.
const RESERVED_INTERFACES: &[&str] = &["lo", "all", "default", ".", "..", "bonding_masters"];

/// The interfaces that links imply.
pub(super) struct Ends {
    /// Node names in the order of the file.
    names: Vec<String>,
    /// Interface names by node, in natural order.
    pub by_node: Vec<Vec<String>>,
    /// Ports in the order of the file.
    ports: Vec<(Text, PortSpec)>,
}

impl Ends {
    fn find(&self, node: usize, interface: &str) -> Option<IfaceId> {
        let index = self.by_node[node].iter().position(|name| name == interface)?;
        Some(IfaceId {
            node: NodeId(node as u32),
            index: index as u32,
        })
    }

    /// The port that an end names.
    fn port(&self, end: &Text) -> Option<usize> {
        self.ports.iter().position(|(name, _)| name.value == end.value)
    }

    fn node(&self, name: &str, at: Mark) -> Result<usize, Problem> {
        self.names.iter().position(|known| known == name).ok_or_else(|| {
            Problem::new(at, format!("there is no node `{name}`")).known(name, self.names.iter().map(String::as_str))
        })
    }
}

/// The two texts of a link's ends.
fn pair(words: &Words) -> Result<[Text; 2], Problem> {
    let items: Result<[Text; 2], _> = words.items().try_into();
    items.map_err(|items| {
        Problem::new(words.at, format!("a link has two ends, not {}", items.len()))
            .allowed("a list of two, as in [a, b]")
    })
}

/// Node and interface of `h1:eth0`.
fn split(text: &Text) -> Result<(&str, &str), Problem> {
    let (node, interface) = text.value.split_once(':').ok_or_else(|| {
        Problem::new(text.at, format!("`{}` is not an end of a link", text.value))
            .allowed("node and interface, as in h1:eth0")
            .hint(format!("write `{}:eth0`", text.value))
    })?;
    let usable = |c: char| c.is_ascii_graphic() && !matches!(c, '/' | ':' | '%');
    if interface.is_empty()
        || interface.len() > INTERFACE_NAME_MAX
        || !interface.chars().all(usable)
        || RESERVED_INTERFACES.contains(&interface)
    {
        return Err(
            Problem::new(text.at, format!("`{interface}` cannot be the name of an interface"))
                .allowed("1 to 15 characters, neither space, `/`, `:` nor `%`, and none of `lo`, `all`, `default`"),
        );
    }
    Ok((node, interface))
}

/// Finds all interfaces, and that each of them and each port is on one link only.
pub(super) fn ends(document: &Document, ports: Vec<(Text, PortSpec)>) -> Result<Ends, Problem> {
    let names: Vec<String> = document
        .nodes
        .value
        .0
        .iter()
        .map(|(name, _)| name.value.clone())
        .collect();
    let mut ends = Ends {
        by_node: vec![Vec::new(); names.len()],
        names,
        ports,
    };
    let mut linked = vec![false; ends.ports.len()];
    for link in &document.links {
        let both = pair(&link.endpoints)?;
        if both.iter().all(|end| ends.port(end).is_some()) {
            let text = format!("{} and {} are both ports", both[0].value, both[1].value);
            return Err(Problem::new(link.endpoints.at, text)
                .hint("a link has at least one end inside; a node of kind `switch` between two ports joins them"));
        }
        for end in both {
            if let Some(port) = ends.port(&end) {
                if std::mem::replace(&mut linked[port], true) {
                    return Err(Problem::new(end.at, format!("port `{}` is on two links", end.value))
                        .hint("a port is the end of one link; a node of kind `switch` there joins more"));
                }
                continue;
            }
            let (node, interface) = split(&end)?;
            let node = ends.node(node, end.at)?;
            if ends.find(node, interface).is_some() {
                return Err(
                    Problem::new(end.at, format!("interface `{}` is on two links", end.value))
                        .hint("an interface is one end of one link; give this one another name"),
                );
            }
            ends.by_node[node].push(interface.to_owned());
        }
    }
    if let Some((_, (name, _))) = linked.iter().zip(&ends.ports).find(|(linked, _)| !**linked) {
        return Err(
            Problem::new(name.at, format!("port `{}` is on no link", name.value)).hint(format!(
                "join it to an interface, as in `endpoints: [h1:eth0, {}]`",
                name.value
            )),
        );
    }
    for interfaces in &mut ends.by_node {
        interfaces.sort_by_cached_key(|name| natural(name));
    }
    Ok(ends)
}

/// Sorts eth2 before eth10.
fn natural(name: &str) -> (String, u64, String) {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    (
        stem.to_owned(),
        name[stem.len()..].parse().unwrap_or(0),
        name.to_owned(),
    )
}

/// All links with their values: those between interfaces in the order of the file, and those to ports in the order of these.
pub(super) fn all(
    docs: &[LinkDoc],
    defaults: Option<&LinkValuesDoc>,
    ends: &Ends,
) -> Result<(Vec<LinkSpec>, Vec<PortEnd>), Problem> {
    let (mut links, mut outside) = (Vec::new(), Vec::new());
    for doc in docs {
        match one(doc, defaults, ends)? {
            Cable::Inside(link) => links.push(link),
            Cable::Outside(port, end) => outside.push((port, end)),
        }
    }
    outside.sort_by_key(|(port, _)| *port);
    Ok((links, outside.into_iter().map(|(_, end)| end).collect()))
}

/// A link by what its ends are.
enum Cable {
    Inside(LinkSpec),
    /// To the port of this number.
    Outside(usize, PortEnd),
}

fn one(doc: &LinkDoc, defaults: Option<&LinkValuesDoc>, ends: &Ends) -> Result<Cable, Problem> {
    let [a, b] = pair(&doc.endpoints)?;
    let find = |end: &Text| -> Result<IfaceId, Problem> {
        let (node, interface) = split(end)?;
        Ok(ends
            .find(ends.node(node, end.at)?, interface)
            .expect("collected from the same links"))
    };
    let direction = |own: &Option<LinkValuesDoc>, from: &Text, to: &Text| -> Result<LinkParams, Problem> {
        let layers = [defaults, doc.both.as_ref(), own.as_ref()];
        params(&layers, doc.endpoints.at, &format!("{} to {}", from.value, to.value))
    };
    let (a_to_b, b_to_a) = (direction(&doc.a_to_b, &a, &b)?, direction(&doc.b_to_a, &b, &a)?);
    let to_port = |inside: &Text, port: usize, outward, inward| {
        let (name, spec) = &ends.ports[port];
        let end = PortEnd {
            name: name.value.clone(),
            spec: spec.clone(),
            end: find(inside)?,
            outward,
            inward,
        };
        Ok(Cable::Outside(port, end))
    };
    match (ends.port(&a), ends.port(&b)) {
        (Some(port), _) => to_port(&b, port, b_to_a, a_to_b),
        (None, Some(port)) => to_port(&a, port, a_to_b, b_to_a),
        (None, None) => Ok(Cable::Inside(LinkSpec {
            a: find(&a)?,
            b: find(&b)?,
            a_to_b,
            b_to_a,
        })),
    }
}

/// Later layers win, value by value.
fn params(layers: &[Option<&LinkValuesDoc>], at: Mark, direction: &str) -> Result<LinkParams, Problem> {
    let mut merged = LinkChange::default();
    for layer in layers.iter().flatten() {
        merged = over(merged, change(layer)?);
    }
    let missing = |what: &str, example: &str| {
        Problem::new(at, format!("the link from {direction} has no {what}")).hint(format!(
            "give it under `both`, or for all links as in `defaults: {{link: {{{what}: {example}}}}}`"
        ))
    };
    let rate = merged.rate.ok_or_else(|| missing("rate", "1Gbit"))?;
    let delay = merged.delay.ok_or_else(|| missing("delay", "1ms"))?;
    let mut params = LinkParams::new(rate, delay);
    params.apply(&merged);
    if params.jitter > params.delay {
        let jitter = layers
            .iter()
            .rev()
            .flatten()
            .find_map(|layer| layer.jitter.as_ref())
            .map_or(at, |text| text.at);
        return Err(too_much_jitter(jitter, &params));
    }
    Ok(params)
}

fn too_much_jitter(at: Mark, params: &LinkParams) -> Problem {
    Problem::new(
        at,
        format!("jitter `{}` is more than the delay of {}", params.jitter, params.delay),
    )
    .allowed("delays are uniform from delay - jitter to delay + jitter, and none is negative")
}

fn over(below: LinkChange, above: LinkChange) -> LinkChange {
    LinkChange {
        rate: above.rate.or(below.rate),
        delay: above.delay.or(below.delay),
        jitter: above.jitter.or(below.jitter),
        reorder: above.reorder.or(below.reorder),
        loss: above.loss.or(below.loss),
        duplicate: above.duplicate.or(below.duplicate),
        corrupt: above.corrupt.or(below.corrupt),
        queue: above.queue.or(below.queue),
        up: above.up.or(below.up),
    }
}

/// A delay; jitter is not more, so that no sum of times overflows.
fn delay(text: &Text) -> Result<SimDuration, Problem> {
    let delay: SimDuration = leaf::quantity(text)?;
    if delay > DELAY_MAX {
        return Err(
            Problem::new(text.at, format!("`{}` is not the delay of a link", text.value))
                .allowed("at most 8760h, which is a year"),
        );
    }
    Ok(delay)
}

fn change(doc: &LinkValuesDoc) -> Result<LinkChange, Problem> {
    Ok(LinkChange {
        rate: leaf::optional(&doc.rate)?,
        delay: doc.delay.as_ref().map(delay).transpose()?,
        jitter: leaf::optional(&doc.jitter)?,
        reorder: doc.reorder,
        loss: leaf::optional(&doc.loss)?,
        duplicate: leaf::optional(&doc.duplicate)?,
        corrupt: leaf::optional(&doc.corrupt)?,
        queue: leaf::optional(&doc.queue)?,
        up: doc.up,
    })
}

/// All events by time. Those that run a program add it to its node instead.
pub(super) fn events(
    docs: &[EventDoc],
    nodes: &mut [Node],
    (links, ports): (&[LinkSpec], &[PortEnd]),
    run: &Run,
) -> Result<Vec<Event>, Problem> {
    let mut changes = Vec::new();
    let end = SimTime::ZERO + run.stop;
    for doc in docs {
        let at = leaf::time(&doc.at)?;
        if at >= end {
            return Err(Problem::new(
                doc.at.at,
                format!(
                    "the event at {} never comes: the run stops at {}",
                    doc.at.value, run.stop
                ),
            ));
        }
        match (&doc.link, &doc.node) {
            (Some(link), None) => changes.push((at, doc.at.at, set_link(doc, link, nodes, links, ports)?)),
            (None, Some(node)) => {
                let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
                let unknown = || Problem::new(node.at, format!("there is no node `{}`", node.value));
                let index = names.iter().position(|name| *name == node.value);
                let index = index.ok_or_else(|| unknown().known(&node.value, names.iter().copied()))?;
                if doc.exec.is_none() && (doc.up.is_some() || doc.down.is_some()) {
                    changes.push((at, doc.at.at, set_power(doc, index)?));
                    continue;
                }
                let process = process::of_event(doc, at)?;
                nodes[index].processes.push(process);
            }
            _ => {
                return Err(Problem::new(
                    doc.at.at,
                    "an event changes a link or a node, or runs a program on a node: this does not say which",
                )
                .allowed(
                    "`link` with `set`, `a_to_b`, `b_to_a`, `up` or `down`; or `node` with `exec`, `up` or `down`",
                ));
            }
        }
    }
    check_jitter(&mut changes, links, ports)?;
    check_power(&changes, nodes)?;
    Ok(changes
        .into_iter()
        .map(|(at, _, action)| Event { at, action })
        .collect())
}

/// The change of a link that an event by itself means.
pub(super) fn change_alone(doc: &EventDoc, nodes: &[Node], links: &[LinkSpec]) -> Result<Action, Problem> {
    match (&doc.link, &doc.node) {
        // Whoever changes links so drives the run, which a run with ports does not allow.
        (Some(link), None) => set_link(doc, link, nodes, links, &[]),
        _ => Err(Problem::new(doc.at.at, "this does not say which link to change")
            .allowed("`link` with `set`, `a_to_b`, `b_to_a`, `up` or `down`")),
    }
}

/// With each change in its turn, jitter stays within the delay.
fn check_jitter(changes: &mut [(SimTime, Mark, Action)], links: &[LinkSpec], ports: &[PortEnd]) -> Result<(), Problem> {
    changes.sort_by_key(|(at, ..)| *at);
    let mut links = links.to_vec();
    let mut ports = ports.to_vec();
    for (_, mark, action) in changes {
        let both = match action {
            Action::SetLink { link, a_to_b, b_to_a } => {
                let link = &mut links[*link];
                [(&mut link.a_to_b, a_to_b), (&mut link.b_to_a, b_to_a)]
            }
            Action::SetPower { .. } => continue,
            Action::SetOutside { port, outward, inward } => {
                let port = &mut ports[*port];
                [(&mut port.outward, outward), (&mut port.inward, inward)]
            }
        };
        for (params, change) in both {
            params.apply(change);
            if params.jitter > params.delay {
                return Err(too_much_jitter(*mark, params));
            }
        }
    }
    Ok(())
}

/// With each change in its turn, what goes down is up, and what goes up is down.
fn check_power(changes: &[(SimTime, Mark, Action)], nodes: &[Node]) -> Result<(), Problem> {
    let mut are_up = vec![true; nodes.len()];
    for (_, mark, action) in changes {
        if let Action::SetPower { node, up } = action
            && std::mem::replace(&mut are_up[node.index()], *up) == *up
        {
            let (name, state) = (&nodes[node.index()].name, if *up { "up" } else { "down" });
            return Err(Problem::new(*mark, format!("node `{name}` is {state} already then")));
        }
    }
    Ok(())
}

/// What an event without `exec` does to node number `index`.
fn set_power(doc: &EventDoc, index: usize) -> Result<Action, Problem> {
    if doc.set.is_some() || doc.a_to_b.is_some() || doc.b_to_a.is_some() || doc.expect.is_some() {
        return Err(Problem::new(
            doc.at.at,
            "a node that goes up or down has no `set`, `a_to_b`, `b_to_a` or `expect`",
        ));
    }
    let up = match (doc.up, doc.down) {
        (Some(true), None) => true,
        (None, Some(true)) => false,
        _ => {
            return Err(
                Problem::new(doc.at.at, "`up` and `down` exclude each other").allowed("`up: true` or `down: true`")
            );
        }
    };
    let node = NodeId(index as u32);
    Ok(Action::SetPower { node, up })
}

/// The port that one of the two names is, and whether it is the first one.
fn find_port(words: &Words, nodes: &[Node], ports: &[PortEnd]) -> Result<Option<(usize, bool)>, Problem> {
    let both = pair(words)?;
    for (index, port) in ports.iter().enumerate() {
        let Some(place) = both.iter().position(|text| text.value == port.name) else {
            continue;
        };
        let other = &both[1 - place];
        let node = &nodes[port.end.node.index()];
        let full = format!("{}:{}", node.name, node.interfaces[port.end.index as usize].name);
        if other.value != node.name && other.value != full {
            return Err(Problem::new(
                other.at,
                format!("port `{}` is not joined to `{}`", port.name, other.value),
            )
            .hint(format!("its link is [{full}, {}]", port.name)));
        }
        return Ok(Some((index, place == 0)));
    }
    Ok(None)
}

fn set_link(
    doc: &EventDoc,
    link: &Words,
    nodes: &[Node],
    links: &[LinkSpec],
    ports: &[PortEnd],
) -> Result<Action, Problem> {
    let outside = find_port(link, nodes, ports)?;
    let (index, swapped) = match outside {
        Some(found) => found,
        None => find_link(link, nodes, links)?,
    };
    let carrier = match (doc.up, doc.down) {
        (Some(true), None) => Some(true),
        (None, Some(true)) => Some(false),
        (None, None) => None,
        _ => {
            return Err(
                Problem::new(doc.at.at, "`up` and `down` exclude each other").allowed("`up: true` or `down: true`")
            );
        }
    };
    if doc.exec.is_some() || doc.expect.is_some() {
        return Err(Problem::new(
            doc.at.at,
            "`exec` and `expect` belong to an event of a node, not of a link",
        ));
    }
    let layer = |own: &Option<LinkValuesDoc>| -> Result<LinkChange, Problem> {
        let mut merged = LinkChange {
            up: carrier,
            ..LinkChange::default()
        };
        for layer in [&doc.set, own].into_iter().flatten() {
            merged = over(merged, change(layer)?);
        }
        Ok(merged)
    };
    let (first, second) = (layer(&doc.a_to_b)?, layer(&doc.b_to_a)?);
    if first == LinkChange::default() && second == LinkChange::default() {
        return Err(
            Problem::new(doc.at.at, "the event changes nothing").allowed("`set`, `a_to_b`, `b_to_a`, `up` or `down`")
        );
    }
    let (a_to_b, b_to_a) = if swapped { (second, first) } else { (first, second) };
    Ok(match outside {
        Some((port, _)) => Action::SetOutside {
            port,
            outward: a_to_b,
            inward: b_to_a,
        },
        None => Action::SetLink {
            link: index,
            a_to_b,
            b_to_a,
        },
    })
}

/// The link between two nodes or two ends, and whether they are named in the other order.
fn find_link(words: &Words, nodes: &[Node], links: &[LinkSpec]) -> Result<(usize, bool), Problem> {
    let [first, second] = pair(words)?;
    let name = |id: IfaceId, like: &Text| {
        let node = &nodes[id.node.index()];
        let full = format!("{}:{}", node.name, node.interfaces[id.index as usize].name);
        if like.value.contains(':') {
            full
        } else {
            node.name.clone()
        }
    };
    let joins = |a, b| name(a, &first) == first.value && name(b, &second) == second.value;
    let mut found = Vec::new();
    for (index, link) in links.iter().enumerate() {
        if joins(link.a, link.b) {
            found.push((index, false));
        } else if joins(link.b, link.a) {
            found.push((index, true));
        }
    }
    if let [one] = found[..] {
        return Ok(one);
    }
    if found.len() > 1 {
        return Err(Problem::new(
            words.at,
            format!("{} links join {} and {}", found.len(), first.value, second.value),
        )
        .hint("name the interfaces, as in [h1:eth0, h2:eth0]"));
    }
    for text in [&first, &second] {
        let known: Vec<String> = links
            .iter()
            .flat_map(|link| [name(link.a, text), name(link.b, text)])
            .collect();
        if !known.contains(&text.value) {
            let mut known: Vec<&str> = known.iter().map(String::as_str).collect();
            known.sort_unstable();
            known.dedup();
            return Err(Problem::new(text.at, format!("no link ends at `{}`", text.value)).known(&text.value, known));
        }
    }
    Err(Problem::new(
        words.at,
        format!("no link joins {} and {}", first.value, second.value),
    ))
}

#[cfg(test)]
mod tests {
    use super::natural;

    #[test]
    fn interfaces_sort_by_number() {
        let mut names = ["eth10", "eth2", "wan", "eth0"];
        names.sort_by_cached_key(|name| natural(name));
        assert_eq!(names, ["eth0", "eth2", "eth10", "wan"]);
    }
}
