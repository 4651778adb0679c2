//! Random topologies, and delays by distance.

use windtunnel_base::{Rng, SimDuration};

use super::build::{Builder, Id, SPACE};
use super::shapes::PORTS_MAX;
use super::{GenerateError, LINKS_MAX, Values, check_count, check_size};

/// Light in fibre takes two thirds of its speed in vacuum: kilometres per nanosecond.
const FIBRE_KM_PER_NS: f64 = 299_792.458e-9 * 2.0 / 3.0;
/// About a kilometre: the least delay by distance, so that neighbours in one town are not at one place.
const DELAY_MIN: SimDuration = SimDuration::from_us(5);

/// How long light takes for that many kilometres of fibre; 5 us at least.
pub(super) fn delay_of_km(km: f64) -> SimDuration {
    let ns = (km / FIBRE_KM_PER_NS).round() as u64;
    // Whole microseconds: more would not be known.
    SimDuration::from_us((ns + 500) / 1_000).max(DELAY_MIN)
}

/// `numbers` are alpha, beta, and the length of a side in km.
pub(super) fn waxman(
    build: &mut Builder,
    count: u32,
    numbers: [f64; 3],
    per_router: u32,
) -> Result<String, GenerateError> {
    let [alpha, beta, side_km] = numbers;
    check_count(count, "routers", 2, 10_000)?;
    check_count(per_router, "hosts per router", 0, PORTS_MAX)?;
    for (value, name) in [(alpha, "alpha"), (beta, "beta")] {
        if !(value > 0.0 && value <= 1.0) {
            return Err(GenerateError::new(format!(
                "{name} cannot be {value}; allowed: above 0, at most 1"
            )));
        }
    }
    if !(1.0..=40_000.0).contains(&side_km) {
        let message = format!("a square with sides of {side_km} km is not possible; allowed: 1 to 40000");
        return Err(GenerateError::new(message));
    }
    let hosts = u64::from(count) * u64::from(per_router);
    check_size(u64::from(count) + hosts, hosts)?;
    let mut rng = Rng::new(build.seed, "topology/waxman");
    let places: Vec<[f64; 2]> = (0..count)
        .map(|_| [uniform(&mut rng) * side_km, uniform(&mut rng) * side_km])
        .collect();
    let edges = draw_edges(
        &mut rng,
        &places,
        (alpha, beta * side_km * 2f64.sqrt()),
        LINKS_MAX - hosts,
    )?;
    let scale = SPACE * f64::from(count).sqrt() / side_km;
    let routers: Vec<Id> = (0..count as usize)
        .map(|index| build.forwarder(format!("r{}", index + 1), places[index].map(|value| value * scale)))
        .collect();
    for (index, &router) in routers.iter().enumerate() {
        build.hosts(&format!("h{}", index + 1), router, per_router);
    }
    for (a, b) in edges {
        let delay = (!build.delay_is_given).then(|| delay_of_km(distance(places[a], places[b])));
        let values = Values {
            delay,
            ..Values::default()
        };
        build.link(routers[a], routers[b], values);
    }
    Ok(format!("waxman-{count}"))
}

/// A number from 0 to less than 1, of 53 bits.
fn uniform(rng: &mut Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

fn distance(a: [f64; 2], b: [f64; 2]) -> f64 {
    let (x, y) = (a[0] - b[0], a[1] - b[1]);
    (x * x + y * y).sqrt()
}

/// Pairs of places with a link, by their numbers: with the probability alpha exp(-distance / reach), and then as many of the
/// shortest as connect all.
fn draw_edges(
    rng: &mut Rng,
    places: &[[f64; 2]],
    (alpha, reach): (f64, f64),
    most: u64,
) -> Result<Vec<(usize, usize)>, GenerateError> {
    let too_many =
        || GenerateError::new(format!("that would be more than {most} links")).hint("choose a smaller alpha or beta");
    let mut edges = Vec::new();
    let mut parts = Parts::new(places.len());
    for a in 0..places.len() {
        for b in a + 1..places.len() {
            // One number for each pair, so that a larger alpha or beta only adds links.
            if uniform(rng) < alpha * libm::exp(-distance(places[a], places[b]) / reach) {
                edges.push((a, b));
                parts.join(a, b);
            }
        }
        if edges.len() as u64 > most {
            return Err(too_many());
        }
    }
    edges.extend(connect(places, &mut parts));
    if edges.len() as u64 > most {
        return Err(too_many());
    }
    Ok(edges)
}

/// The shortest links by which the part of the first place grows to the whole.
fn connect(places: &[[f64; 2]], parts: &mut Parts) -> Vec<(usize, usize)> {
    let leader: Vec<usize> = (0..places.len()).map(|at| parts.find(at)).collect();
    let mut members = vec![Vec::new(); places.len()];
    for (at, &leader) in leader.iter().enumerate() {
        members[leader].push(at);
    }
    // Of each place outside: how far the nearest one inside is, and which.
    let mut nearest = vec![(f64::INFINITY, 0); places.len()];
    let mut inside = vec![false; places.len()];
    let mut edges = Vec::new();
    let mut joining = leader[0];
    loop {
        for &new in &members[joining] {
            inside[new] = true;
            for (at, nearest) in nearest.iter_mut().enumerate() {
                let there = distance(places[new], places[at]);
                if there < nearest.0 {
                    *nearest = (there, new);
                }
            }
        }
        let outside = (0..places.len()).filter(|&at| !inside[at]);
        let Some(next) = outside.min_by(|&a, &b| nearest[a].0.total_cmp(&nearest[b].0)) else {
            return edges;
        };
        let from = nearest[next].1;
        edges.push((from.min(next), from.max(next)));
        joining = leader[next];
    }
}

/// Which nodes hang together.
pub(super) struct Parts(Vec<usize>);

impl Parts {
    pub fn new(count: usize) -> Self {
        Self((0..count).collect())
    }

    /// The node that stands for a node's part.
    pub fn find(&mut self, mut at: usize) -> usize {
        while self.0[at] != at {
            self.0[at] = self.0[self.0[at]];
            at = self.0[at];
        }
        at
    }

    pub fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.find(a), self.find(b));
        self.0[a.max(b)] = a.min(b);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn light_takes_five_us_for_a_kilometre() {
        assert_eq!(delay_of_km(0.0), SimDuration::from_us(5));
        // 1000 km at 199,861.64 km/s.
        assert_eq!(delay_of_km(1_000.0), SimDuration::from_us(5_003));
    }

    #[test]
    fn parts_are_connected_by_their_shortest_links() {
        let places = [[0.0, 0.0], [0.0, 1.0], [5.0, 0.0], [5.0, 3.0], [9.0, 0.0]];
        let mut parts = Parts::new(5);
        parts.join(0, 1);
        parts.join(2, 3);
        assert_eq!(connect(&places, &mut parts), [(0, 2), (2, 4)]);
    }
}
