//! Which segment of one trace is which of the other.
//!
//! Those of one direction with the same bytes of the stream (of bare acknowledgements: with the same numbers) are the same, the n-th of
//! them in one trace that in the other. That takes time linear in their number, whatever the traces are, and knows a segment again that
//! another one overtook. The longest sequence of pairs that are in order in both traces says which were overtaken.

use crate::normal::{Normal, Relative};
use crate::packet::flag;
use std::collections::{HashMap, VecDeque};

/// Pairs and leftovers of one direction: indexes of segments.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Alignment {
    /// The same segment in both, in the order of the first trace.
    pub pairs: Vec<(usize, usize)>,
    /// Without a partner.
    pub only_a: Vec<usize>,
    /// Likewise.
    pub only_b: Vec<usize>,
    /// So many of the pairs are in another order.
    pub moved: u64,
}

/// What makes a segment the one that it is: first byte, length, acknowledgement if there are no bytes, and what opens or closes.
type Identity = (u32, u32, u32, u16);

fn identity(one: &Relative<'_>) -> Identity {
    let segment = one.segment;
    let ack = if segment.span() == 0 { one.ack } else { 0 };
    let control = segment.flags & (flag::SYN | flag::FIN | flag::RST);
    (one.seq, segment.payload_length, ack, control)
}

/// Aligns what one side sent.
pub fn align(a: &Normal<'_>, b: &Normal<'_>, from_client: bool) -> Alignment {
    let of = |trace: &Normal<'_>| -> Vec<usize> {
        let segments = trace.connection.segments.iter().enumerate();
        let own = segments.filter(|(_, segment)| segment.from_client == from_client);
        own.map(|(index, _)| index).collect()
    };
    let of_b = of(b);
    let mut waiting: HashMap<Identity, VecDeque<usize>> = HashMap::new();
    for index in &of_b {
        waiting.entry(identity(&b.get(*index))).or_default().push_back(*index);
    }
    let mut found = Alignment::default();
    for index in of(a) {
        match waiting.get_mut(&identity(&a.get(index))).and_then(VecDeque::pop_front) {
            Some(partner) => found.pairs.push((index, partner)),
            None => found.only_a.push(index),
        }
    }
    // In the order of the trace, not of the map.
    found.only_b = waiting.into_values().flatten().collect();
    found.only_b.sort_unstable();
    found.moved = found.pairs.len() as u64 - longest_increase(found.pairs.iter().map(|pair| pair.1));
    found
}

/// Length of the longest increasing subsequence.
fn longest_increase(values: impl Iterator<Item = usize>) -> u64 {
    // The least last value of increasing subsequences of each length.
    let mut ends: Vec<usize> = Vec::new();
    for value in values {
        let place = ends.partition_point(|end| *end < value);
        match ends.get_mut(place) {
            Some(end) => *end = value,
            None => ends.push(value),
        }
    }
    ends.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn increases() {
        assert_eq!(longest_increase([].into_iter()), 0);
        assert_eq!(longest_increase([0, 1, 2, 3].into_iter()), 4);
        assert_eq!(longest_increase([1, 2, 0, 3].into_iter()), 3);
        assert_eq!(longest_increase([3, 2, 1].into_iter()), 1);
    }
}
