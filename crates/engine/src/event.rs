//! The event queue of one kernel: a total order without ties.
//!
//! An event's key is (time, source, sequence). The source is whoever made the event, the sequence counts that
//! source's events, so a key depends on what happened in the simulation and never on the order in which events were
//! pushed. Two events with one key are a bug and are asserted against when they meet at the head of the queue.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

/// Bits of the sequence number within [`Key::order`]; the rest holds the source.
const SEQUENCE_BITS: u32 = 42;
/// Sources a run can have: one per kernel and one for the scenario.
pub const SOURCES_MAX: u32 = 1 << (64 - SEQUENCE_BITS);

/// The place of an event in the total order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Virtual time of the event, ns since the start of the run.
    pub at_ns: u64,
    /// Source in the upper bits, its sequence number in the lower [`SEQUENCE_BITS`].
    order: u64,
}

/// Numbers the events of one source.
#[derive(Debug)]
pub struct Source {
    /// Source number and the next sequence number, packed as in [`Key::order`].
    next: u64,
    /// First value of `next` that belongs to another source.
    end: u64,
}

impl Source {
    /// The source with this number. Each number must be given out once per run.
    ///
    /// # Panics
    /// If `number` is not below [`SOURCES_MAX`].
    pub fn new(number: u32) -> Self {
        assert!(number < SOURCES_MAX, "event source {number} is out of range");
        let next = u64::from(number) << SEQUENCE_BITS;
        Self {
            next,
            end: next + (1 << SEQUENCE_BITS) - 1,
        }
    }

    /// The key of this source's next event, at `at_ns`.
    pub fn key(&mut self, at_ns: u64) -> Key {
        assert!(self.next < self.end, "an event source ran out of sequence numbers");
        let key = Key {
            at_ns,
            order: self.next,
        };
        self.next += 1;
        key
    }
}

/// Something that happens to one kernel at one time.
#[derive(Debug)]
pub struct Event<B> {
    /// When, and in which order among events of the same time.
    pub key: Key,
    /// What.
    pub body: B,
}

impl<B> PartialEq for Event<B> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}
impl<B> Eq for Event<B> {}
impl<B> PartialOrd for Event<B> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<B> Ord for Event<B> {
    /// Reversed, because the standard heap keeps its greatest element on top.
    fn cmp(&self, other: &Self) -> Ordering {
        other.key.cmp(&self.key)
    }
}

/// Queues of events that came in order, next to the heap: one for each neighbour of a router, and one for departures.
const LANES: usize = 3;

/// Pending events of one kernel.
///
/// Frames of one link arrive in the order they were sent, so most events are later than those of the same origin before
/// them. They line up in a few lanes, each in order, and the earliest event is the least of the lanes' heads and the top
/// of a heap for those that fit nowhere. The order of events is that of their keys, wherever they waited.
#[derive(Debug)]
pub struct EventQueue<B> {
    lanes: [VecDeque<Event<B>>; LANES],
    heap: BinaryHeap<Event<B>>,
}

/// Where an event waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Lane(usize),
    Heap,
}

impl<B> Default for EventQueue<B> {
    fn default() -> Self {
        Self {
            lanes: Default::default(),
            heap: BinaryHeap::new(),
        }
    }
}

impl<B> EventQueue<B> {
    /// Adds an event.
    #[inline]
    pub fn push(&mut self, event: Event<B>) {
        for lane in &mut self.lanes {
            if lane.back().is_none_or(|last| last.key < event.key) {
                lane.push_back(event);
                return;
            }
        }
        self.heap.push(event);
    }

    /// All events, in no particular order.
    pub fn into_events(self) -> impl Iterator<Item = Event<B>> {
        self.lanes.into_iter().flatten().chain(self.heap)
    }

    /// The earliest event and where it waits.
    #[inline]
    fn head(&self) -> Option<(Place, &Event<B>)> {
        let mut head = self.heap.peek().map(|event| (Place::Heap, event));
        for (index, lane) in self.lanes.iter().enumerate() {
            if let Some(event) = lane.front()
                && head.is_none_or(|(_, least)| event.key < least.key)
            {
                head = Some((Place::Lane(index), event));
            }
        }
        head
    }

    /// Time of the earliest event, ns; `u64::MAX` when the queue is empty.
    #[inline]
    pub fn next_ns(&self) -> u64 {
        self.head().map_or(u64::MAX, |(_, event)| event.key.at_ns)
    }

    /// Takes the earliest event if its time is exactly `at_ns`.
    ///
    /// # Panics
    /// If an event earlier than `at_ns` was left behind, or two events share a key.
    #[inline]
    pub fn pop_at(&mut self, at_ns: u64) -> Option<Event<B>> {
        let (place, head) = self.head()?;
        let head_ns = head.key.at_ns;
        assert!(
            head_ns >= at_ns,
            "an event at {head_ns} ns was left behind; it is {at_ns} ns now"
        );
        if head_ns != at_ns {
            return None;
        }
        let event = match place {
            Place::Lane(index) => self.lanes[index].pop_front(),
            Place::Heap => self.heap.pop(),
        }?;
        if let Some((_, next)) = self.head() {
            assert!(next.key != event.key, "two events share the key {:?}", event.key);
        }
        Some(event)
    }

    /// Drops the events `keep` says no to.
    pub fn retain(&mut self, mut keep: impl FnMut(&Event<B>) -> bool) {
        for lane in &mut self.lanes {
            lane.retain(&mut keep);
        }
        self.heap.retain(keep);
    }

    /// All pending events, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Event<B>> {
        self.lanes.iter().flatten().chain(&self.heap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn drain(queue: &mut EventQueue<u32>) -> Vec<(Key, u32)> {
        let mut order = Vec::new();
        while queue.next_ns() < u64::MAX {
            let now_ns = queue.next_ns();
            while let Some(event) = queue.pop_at(now_ns) {
                order.push((event.key, event.body));
            }
        }
        order
    }

    proptest! {
        /// Whatever the order of pushing, events come out in the order of their keys.
        #[test]
        fn pop_order_does_not_depend_on_push_order(
            made in proptest::collection::vec((0u64..20, 0u32..4), 0..200)
                .prop_flat_map(|made| {
                    let shuffled = Just((0..made.len()).collect::<Vec<_>>()).prop_shuffle();
                    (Just(made), shuffled)
                })
        ) {
            let (made, shuffled) = made;
            let mut sources: Vec<Source> = (0..4).map(Source::new).collect();
            let events: Vec<(Key, u32)> = made
                .iter()
                .enumerate()
                .map(|(index, &(at_ns, source))| (sources[source as usize].key(at_ns), index as u32))
                .collect();
            let mut in_order = EventQueue::default();
            for &(key, body) in &events {
                in_order.push(Event { key, body });
            }
            let mut interleaved = EventQueue::default();
            for &index in &shuffled {
                let (key, body) = events[index];
                interleaved.push(Event { key, body });
            }
            let mut expected = events.clone();
            expected.sort_by_key(|&(key, _)| key);
            prop_assert_eq!(drain(&mut in_order), expected.clone());
            prop_assert_eq!(drain(&mut interleaved), expected);
        }
    }

    #[test]
    fn events_that_do_not_line_up_are_dropped_and_taken_like_others() {
        let mut source = Source::new(0);
        let mut queue = EventQueue::default();
        // Later first: a lane takes one each, the heap the rest.
        let times = (0..LANES as u64 + 5).rev();
        for at_ns in times.clone().chain(times) {
            let key = source.key(at_ns);
            queue.push(Event {
                key,
                body: at_ns as u32,
            });
        }
        assert!(!queue.heap.is_empty() && queue.iter().count() == 2 * (LANES + 5));
        queue.retain(|event| event.body % 3 != 0);
        let left: Vec<u32> = drain(&mut queue).into_iter().map(|(_, body)| body).collect();
        let kept = (0..LANES as u32 + 5).filter(|at| at % 3 != 0);
        assert_eq!(left, kept.flat_map(|at| [at, at]).collect::<Vec<_>>());
    }

    #[test]
    fn time_comes_before_source_and_source_before_sequence() {
        let (mut low, mut high) = (Source::new(1), Source::new(2));
        let high_first = high.key(5);
        let low_first = low.key(5);
        let low_second = low.key(5);
        let earlier = high.key(4);
        assert!(earlier < low_first && low_first < low_second && low_second < high_first);
    }

    #[test]
    #[should_panic(expected = "two events share the key")]
    fn a_tie_is_a_bug() {
        let key = Source::new(3).key(7);
        let mut queue = EventQueue::default();
        queue.push(Event { key, body: 1 });
        queue.push(Event { key, body: 2 });
        queue.pop_at(7);
    }

    #[test]
    #[should_panic(expected = "left behind")]
    fn time_does_not_skip_an_event() {
        let mut queue = EventQueue::default();
        queue.push(Event {
            key: Source::new(0).key(7),
            body: (),
        });
        queue.pop_at(8);
    }

    #[test]
    fn an_event_is_small() {
        // The heap moves events about; a body is a frame handle and a NIC index.
        assert!(size_of::<Event<(u64, u32)>>() <= 32);
    }
}
