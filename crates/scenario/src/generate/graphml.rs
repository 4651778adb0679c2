//! Graphs from GraphML files, in the dialect of the Internet Topology Zoo: nodes have `label`, `Latitude` and `Longitude`, edges
//! `LinkSpeedRaw`, or `LinkSpeed` and `LinkSpeedUnits`.

use std::collections::{BTreeMap, BTreeSet};

use roxmltree::{Document, Node as Element};
use windtunnel_base::Rate;

use super::build::{Builder, Id, Point, SPACE};
use super::random::{Parts, delay_of_km};
use super::shapes::PORTS_MAX;
use super::{GenerateError, Values, check_count, check_size};

/// Mean radius of the earth, km.
const EARTH_KM: f64 = 6_371.0;
/// Longest name taken from a label; that of a host is a little longer.
const NAME_MAX: usize = 48;
/// Rates that a link may have, bit/s.
const RATE_RANGE: std::ops::RangeInclusive<f64> = 1.0..=1e15;

/// Names of the things that nodes and edges may have, by the id that the file gives them.
type Keys<'a> = BTreeMap<&'a str, String>;

struct Place {
    /// As in the file.
    id: String,
    label: String,
    /// Degrees north and east.
    coordinates: Option<[f64; 2]>,
}

struct Edge {
    ends: [usize; 2],
    rate: Option<Rate>,
}

struct Graph {
    places: Vec<Place>,
    edges: Vec<Edge>,
}

pub(super) fn graph(build: &mut Builder, text: &str, largest: bool, per_router: u32) -> Result<(), GenerateError> {
    check_count(per_router, "hosts per router", 0, PORTS_MAX)?;
    let document = Document::parse(text).map_err(|error| {
        GenerateError::new(format!("this is no XML: {error}")).hint("GraphML files begin with `<?xml`")
    })?;
    let mut graph = read(&document, &mut build.warnings)?;
    keep_connected(&mut graph, largest)?;
    let hosts = graph.places.len() as u64 * u64::from(per_router);
    check_size(graph.places.len() as u64 + hosts, graph.edges.len() as u64 + hosts)?;
    let positions = positions(&graph);
    let names: Vec<String> = graph.places.iter().map(name).collect();
    let mut routers: Vec<Id> = Vec::new();
    for (name, position) in names.iter().zip(positions) {
        let name = build.free_name(name);
        routers.push(build.forwarder(name, position));
    }
    for (name, &router) in names.iter().zip(&routers) {
        build.hosts(&format!("h-{name}"), router, per_router);
    }
    for edge in &graph.edges {
        let [a, b] = edge.ends.map(|end| &graph.places[end]);
        let km = a.coordinates.zip(b.coordinates).map(|(a, b)| great_circle_km(a, b));
        let values = Values {
            rate: edge.rate,
            delay: km.filter(|_| !build.delay_is_given).map(delay_of_km),
            queue: None,
        };
        build.link(routers[edge.ends[0]], routers[edge.ends[1]], values);
    }
    let unknown = graph.places.iter().filter(|place| place.coordinates.is_none()).count();
    if unknown > 0 && !build.delay_is_given {
        build.warnings.push(format!(
            "nodes without coordinates, whose links have the delay of all links: {unknown} of {}",
            graph.places.len()
        ));
    }
    Ok(())
}

fn read(document: &Document<'_>, warnings: &mut Vec<String>) -> Result<Graph, GenerateError> {
    let root = document.root_element();
    let graph = children(root, "graph").next();
    let graph = graph.filter(|_| root.tag_name().name() == "graphml").ok_or_else(|| {
        let message = format!(
            "this is no GraphML: it has no `graph` in a `graphml`, but <{}>",
            root.tag_name().name()
        );
        GenerateError::new(message)
            .hint("the Topology Zoo has each network as GraphML and as GML: take the .graphml file")
    })?;
    let keys: Keys<'_> = children(root, "key")
        .filter_map(|key| Some((key.attribute("id")?, key.attribute("attr.name")?.to_ascii_lowercase())))
        .collect();
    let mut places = Vec::new();
    let mut numbers = BTreeMap::new();
    for node in children(graph, "node") {
        let id = node.attribute("id").ok_or_else(|| wrong(&node, "a node has no `id`"))?;
        if numbers.insert(id, places.len()).is_some() {
            return Err(wrong(&node, &format!("there are two nodes `{id}`")));
        }
        places.push(place(&node, id, &keys)?);
    }
    if places.is_empty() {
        return Err(wrong(&graph, "the graph has no nodes"));
    }
    let mut edges = Vec::new();
    let (mut loops, mut odd) = (Vec::new(), 0);
    for element in children(graph, "edge") {
        let mut ends = [0; 2];
        for (end, name) in ends.iter_mut().zip(["source", "target"]) {
            let id = element
                .attribute(name)
                .ok_or_else(|| wrong(&element, &format!("an edge has no `{name}`")))?;
            let known = numbers.get(id).copied();
            *end =
                known.ok_or_else(|| wrong(&element, &format!("an edge leads to `{id}`, and there is no such node")))?;
        }
        if ends[0] == ends[1] {
            loops.push(places[ends[0]].label.clone());
            continue;
        }
        let rate = rate(&values(&element, &keys));
        odd += usize::from(rate == Speed::NotOne);
        edges.push(Edge {
            ends,
            rate: rate.known(),
        });
    }
    if !loops.is_empty() {
        warnings.push(format!(
            "links from a node to itself are left out: {}",
            loops.join(", ")
        ));
    }
    if odd > 0 {
        warnings.push(format!(
            "links whose speed is none, and which have the rate of all links: {odd}"
        ));
    }
    let others = graph
        .children()
        .filter(|child| matches!(child.tag_name().name(), "hyperedge" | "port"))
        .count();
    let nested = graph
        .descendants()
        .filter(|element| element.has_tag_name("graph") && *element != graph)
        .count();
    if others + nested > 0 {
        warnings.push(format!(
            "hyperedges, ports and nested graphs, which are left out: {}",
            others + nested
        ));
    }
    Ok(Graph { places, edges })
}

/// By their name, whatever namespace the file gives them.
fn children<'a, 'd>(parent: Element<'a, 'd>, name: &'static str) -> impl Iterator<Item = Element<'a, 'd>> {
    parent
        .children()
        .filter(move |child| child.is_element() && child.tag_name().name() == name)
}

fn wrong(element: &Element<'_, '_>, what: &str) -> GenerateError {
    let at = element.document().text_pos_at(element.range().start);
    GenerateError::new(format!("{what} (line {} of the file)", at.row))
}

/// What a node or edge has, by name in lower-case letters.
fn values<'a>(element: &Element<'a, '_>, keys: &Keys<'_>) -> BTreeMap<String, &'a str> {
    let data = children(*element, "data");
    data.filter_map(|data| Some((keys.get(data.attribute("key")?)?.clone(), data.text()?.trim())))
        .collect()
}

fn place(node: &Element<'_, '_>, id: &str, keys: &Keys<'_>) -> Result<Place, GenerateError> {
    let values = values(node, keys);
    let degrees = |name: &str, most: f64| -> Result<Option<f64>, GenerateError> {
        let Some(text) = values.get(name) else {
            return Ok(None);
        };
        let value: Option<f64> = text.parse().ok();
        let value = value.filter(|value| (-most..=most).contains(value));
        value
            .map(Some)
            .ok_or_else(|| wrong(node, &format!("`{text}` is no {name}; allowed: -{most} to {most}")))
    };
    Ok(Place {
        id: id.to_owned(),
        label: values.get("label").copied().unwrap_or_default().to_owned(),
        coordinates: degrees("latitude", 90.0)?
            .zip(degrees("longitude", 180.0)?)
            .map(<[f64; 2]>::from),
    })
}

/// What a file says of a link's speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speed {
    Known(Rate),
    Unknown,
    /// Something that is no speed.
    NotOne,
}

impl Speed {
    fn known(self) -> Option<Rate> {
        match self {
            Self::Known(rate) => Some(rate),
            _ => None,
        }
    }
}

fn rate(values: &BTreeMap<String, &str>) -> Speed {
    let number = |name: &str| values.get(name).map(|text| text.parse::<f64>().ok());
    let bps = match (number("linkspeedraw"), number("linkspeed")) {
        (Some(raw), _) => raw,
        (None, Some(speed)) => {
            let unit = match values.get("linkspeedunits").copied().unwrap_or_default() {
                "" => Some(1.0),
                "K" | "k" => Some(1e3),
                "M" => Some(1e6),
                "G" => Some(1e9),
                "T" => Some(1e12),
                _ => None,
            };
            speed.zip(unit).map(|(speed, unit)| speed * unit)
        }
        (None, None) => return Speed::Unknown,
    };
    match bps.filter(|bps| RATE_RANGE.contains(bps)) {
        Some(bps) => Speed::Known(Rate::from_bps(bps.round() as u64)),
        None => Speed::NotOne,
    }
}

/// Refuses a graph in several parts, or takes the one with the most nodes.
fn keep_connected(graph: &mut Graph, largest: bool) -> Result<(), GenerateError> {
    let mut parts = Parts::new(graph.places.len());
    for edge in &graph.edges {
        parts.join(edge.ends[0], edge.ends[1]);
    }
    let leader: Vec<usize> = (0..graph.places.len()).map(|at| parts.find(at)).collect();
    let mut sizes: BTreeMap<usize, usize> = BTreeMap::new();
    for &leader in &leader {
        *sizes.entry(leader).or_default() += 1;
    }
    if sizes.len() == 1 {
        return Ok(());
    }
    // Of equally large ones the first.
    let (&kept, &size) = sizes
        .iter()
        .rev()
        .max_by_key(|(_, size)| **size)
        .expect("there are nodes");
    if !largest {
        let stray = (0..leader.len())
            .find(|&at| leader[at] != kept)
            .expect("there are other parts");
        return Err(GenerateError::new(format!(
            "the graph is in {} parts, of which the largest has {size} of {} nodes; `{}` is not in it",
            sizes.len(),
            leader.len(),
            name(&graph.places[stray])
        ))
        .hint("--largest takes the largest part alone"));
    }
    let mut number = 0;
    let new: Vec<usize> = leader
        .iter()
        .map(|&leader| {
            number += usize::from(leader == kept);
            number.saturating_sub(1)
        })
        .collect();
    graph.edges.retain(|edge| leader[edge.ends[0]] == kept);
    for edge in &mut graph.edges {
        edge.ends = edge.ends.map(|end| new[end]);
    }
    let mut kept_or_not = leader.iter().map(|&leader| leader == kept);
    graph.places.retain(|_| kept_or_not.next().expect("one for each"));
    Ok(())
}

/// Letters of Latin alphabets without their marks.
const PLAIN: &[(&str, &str)] = &[
    ("ÀÁÂÃÄÅĀĂĄ", "A"),
    ("àáâãäåāăą", "a"),
    ("ÇĆĈĊČ", "C"),
    ("çćĉċč", "c"),
    ("ĎĐÐ", "D"),
    ("ďđð", "d"),
    ("ÈÉÊËĒĔĖĘĚ", "E"),
    ("èéêëēĕėęě", "e"),
    ("ĜĞĠĢ", "G"),
    ("ĝğġģ", "g"),
    ("ÌÍÎÏĪĮİ", "I"),
    ("ìíîïīįı", "i"),
    ("ŁĹĻĽ", "L"),
    ("łĺļľ", "l"),
    ("ÑŃŅŇ", "N"),
    ("ñńņň", "n"),
    ("ÒÓÔÕÖØŌŐ", "O"),
    ("òóôõöøōő", "o"),
    ("ŔŘ", "R"),
    ("ŕř", "r"),
    ("ŚŜŞŠȘ", "S"),
    ("śŝşšș", "s"),
    ("ŢŤȚ", "T"),
    ("ţťț", "t"),
    ("ÙÚÛÜŪŮŰŲ", "U"),
    ("ùúûüūůűų", "u"),
    ("ÝŸ", "Y"),
    ("ýÿ", "y"),
    ("ŹŻŽ", "Z"),
    ("źżž", "z"),
    ("Æ", "AE"),
    ("æ", "ae"),
    ("Œ", "OE"),
    ("œ", "oe"),
    ("ß", "ss"),
];

/// A name that a node may have, of its label, or its id if nothing is left of that. Others may have the same.
fn name(place: &Place) -> String {
    let words = usable(&place.label);
    if !words.is_empty() && words != "None" {
        return words;
    }
    format!("n{}", usable(&place.id))
}

fn usable(text: &str) -> String {
    let mut name = String::new();
    for c in text.chars() {
        let plain = PLAIN
            .iter()
            .find(|(marked, _)| marked.contains(c))
            .map(|(_, plain)| *plain);
        match plain {
            Some(plain) => name += plain,
            None if c.is_ascii_alphanumeric() => name.push(c),
            None if name.ends_with('-') || name.is_empty() || c == '\'' => {}
            None => name.push('-'),
        }
    }
    name.truncate(NAME_MAX);
    name.trim_end_matches('-').to_owned()
}

/// By the formula of haversines, which is exact enough for close ones, too.
fn great_circle_km(a: [f64; 2], b: [f64; 2]) -> f64 {
    let [a_north, a_east, b_north, b_east] = [a[0], a[1], b[0], b[1]].map(f64::to_radians);
    let half = |angle: f64| libm::sin(angle / 2.0) * libm::sin(angle / 2.0);
    let chord = half(b_north - a_north) + libm::cos(a_north) * libm::cos(b_north) * half(b_east - a_east);
    2.0 * EARTH_KM * libm::asin(chord.sqrt().min(1.0))
}

/// On a map with the same scale in both directions at its middle; nodes without coordinates between their neighbours. None if
/// no node has any.
fn positions(graph: &Graph) -> Vec<Option<Point>> {
    let known: Vec<[f64; 2]> = graph.places.iter().filter_map(|place| place.coordinates).collect();
    if known.is_empty() {
        return vec![None; graph.places.len()];
    }
    let range = |index: usize| {
        let values = known.iter().map(|at| at[index]);
        (
            values.clone().fold(f64::INFINITY, f64::min),
            values.fold(f64::NEG_INFINITY, f64::max),
        )
    };
    let ((south, north), (west, east)) = (range(0), range(1));
    let shrink = libm::cos(((south + north) / 2.0).to_radians());
    let (width, height) = ((east - west) * shrink, north - south);
    // As much room as in a square grid.
    let side = width.max(height).max(1e-3);
    let scale = 1.5 * SPACE * (graph.places.len() as f64).sqrt() / side;
    let on_map = |[latitude, longitude]: [f64; 2]| [(longitude - west) * shrink * scale, (north - latitude) * scale];
    let mut at: Vec<Option<Point>> = graph.places.iter().map(|place| place.coordinates.map(on_map)).collect();
    place_between_neighbours(graph, &mut at, [width * scale / 2.0, height * scale / 2.0]);
    // Of those in one town each a little further.
    let mut taken = BTreeSet::new();
    for [x, y] in at.iter_mut().flatten() {
        while !taken.insert([*x, *y].map(|value| value.round() as i64)) {
            *x += SPACE / 2.0;
        }
    }
    at
}

fn place_between_neighbours(graph: &Graph, at: &mut [Option<Point>], middle: Point) {
    let mut neighbours = vec![Vec::new(); at.len()];
    for edge in &graph.edges {
        let [a, b] = edge.ends;
        neighbours[a].push(b);
        neighbours[b].push(a);
    }
    loop {
        let mut moved = Vec::new();
        for node in (0..at.len()).filter(|&node| at[node].is_none()) {
            let near: Vec<Point> = neighbours[node].iter().filter_map(|&other| at[other]).collect();
            if !near.is_empty() {
                let mean = |index: usize| near.iter().map(|place| place[index]).sum::<f64>() / near.len() as f64;
                // Beside a single neighbour, not on it, and not all on one heap.
                let shift = SPACE / 2.0 * (1.0 + (node % 4) as f64 / 4.0);
                moved.push((node, [mean(0) + shift, mean(1) + SPACE / 3.0]));
            }
        }
        if moved.is_empty() {
            break;
        }
        for (node, place) in moved {
            at[node] = Some(place);
        }
    }
    for place in at.iter_mut().filter(|place| place.is_none()) {
        *place = Some(middle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_become_names() {
        let named = |label: &str| {
            name(&Place {
                id: "7".into(),
                label: label.into(),
                coordinates: None,
            })
        };
        for (label, expected) in [
            ("Zürich", "Zurich"),
            ("St. John's, NL", "St-Johns-NL"),
            ("São Paulo (2)", "Sao-Paulo-2"),
            ("?", "n7"),
            ("None", "n7"),
            ("北京", "n7"),
            ("-x-", "x"),
        ] {
            assert_eq!(named(label), expected);
        }
    }

    #[test]
    fn speeds_are_read_in_both_ways() {
        let speed = |pairs: &[(&str, &'static str)]| {
            rate(&pairs.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect())
        };
        assert_eq!(
            speed(&[("linkspeedraw", "2.5e9")]),
            Speed::Known(Rate::from_mbps(2_500))
        );
        assert_eq!(
            speed(&[("linkspeed", "155"), ("linkspeedunits", "M")]),
            Speed::Known(Rate::from_mbps(155))
        );
        assert_eq!(speed(&[]), Speed::Unknown);
        for odd in ["0", "-1", "nan", "fast", "1e99"] {
            assert_eq!(rate(&[("linkspeedraw".to_owned(), odd)].into()), Speed::NotOne, "{odd}");
        }
        assert_eq!(speed(&[("linkspeed", "3"), ("linkspeedunits", "X")]), Speed::NotOne);
    }

    // Paris (48.8566 N, 2.3522 E) to New York (40.7128 N, 74.0060 W): 5,837 km on a sphere of this radius.
    #[test]
    fn distances_are_those_of_great_circles() {
        let km = great_circle_km([48.8566, 2.3522], [40.7128, -74.0060]);
        assert!((km - 5_837.0).abs() < 1.0, "{km}");
        assert!(great_circle_km([10.0, 179.5], [10.0, -179.5]) < 110.0);
    }
}
