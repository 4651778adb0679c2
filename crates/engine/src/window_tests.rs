//! The windows against a plain sequential simulation, with made-up kernels.

use super::*;
use crate::event::{EventQueue, Source};
use proptest::prelude::*;

/// A link of a made-up kernel: where it leads and how long it takes.
#[derive(Clone, Copy, Debug)]
struct Port {
    to: u32,
    delay_ns: u64,
}

/// A kernel whose behaviour is a hash of all it has seen: any difference in order or time spreads to everything after.
struct Fake {
    number: u32,
    ports: Vec<Port>,
    queue: EventQueue<u64>,
    source: Source,
    timer_ns: u64,
    now_ns: u64,
    state: u64,
    /// What happened: time and state after each instant.
    trace: Vec<(u64, u64)>,
}

fn mix(state: u64, value: u64) -> u64 {
    let mixed = (state ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}

impl Fake {
    /// Runs everything at `at_ns`; returns what it sends.
    fn run_instant(&mut self, at_ns: u64) -> Vec<(u32, Event<u64>)> {
        assert!(at_ns >= self.now_ns);
        self.now_ns = at_ns;
        let mut seen = 0;
        while let Some(event) = self.queue.pop_at(at_ns) {
            self.state = mix(self.state, event.body);
            seen += 1;
        }
        if self.timer_ns == at_ns {
            self.timer_ns = u64::MAX;
            self.state = mix(self.state, 1);
        }
        self.state = mix(self.state, at_ns);
        self.trace.push((at_ns, self.state));
        let mut sent = Vec::new();
        // Each event makes less than one other on average, and nothing goes on for ever.
        let makes = if self.trace.len() < 200 { (seen + 1).min(3) } else { 0 };
        for _ in 0..makes {
            self.state = mix(self.state, 2);
            match self.state % 8 {
                0..=2 => {
                    let port = self.ports[(self.state >> 8) as usize % self.ports.len()];
                    let later_ns = if self.state & 64 == 0 {
                        0
                    } else {
                        (self.state >> 16) % 50
                    };
                    let key = self.source.key(at_ns + port.delay_ns + later_ns);
                    sent.push((port.to, Event { key, body: self.state }));
                }
                3 => self.timer_ns = self.timer_ns.min(at_ns + (self.state >> 16) % 300),
                4 => {
                    let key = self.source.key(at_ns + (self.state >> 16) % 20);
                    self.queue.push(Event { key, body: self.state });
                }
                _ => {}
            }
        }
        sent
    }
}

impl Kernel for Fake {
    type Message = u64;
    type Error = std::convert::Infallible;

    fn next_ns(&self) -> u64 {
        self.queue.next_ns().min(self.timer_ns)
    }

    fn run_window(&mut self, end_ns: u64, outbox: &mut Outbox<u64>) -> Result<(), Self::Error> {
        while self.next_ns() < end_ns {
            for (to, event) in self.run_instant(self.next_ns()) {
                if to == self.number {
                    self.accept(event);
                } else {
                    outbox.send(to, event);
                }
            }
        }
        Ok(())
    }

    fn accept(&mut self, event: Event<u64>) {
        self.queue.push(event);
    }
}

/// A network to simulate: for each kernel its ports and its first timer.
type Network = Vec<(Vec<Port>, u64)>;

fn build(network: &Network) -> Vec<Fake> {
    network
        .iter()
        .enumerate()
        .map(|(number, (ports, timer_ns))| {
            let mut source = Source::new(number as u32);
            let mut queue = EventQueue::default();
            for at_ns in [0, *timer_ns / 2, 1000] {
                queue.push(Event {
                    key: source.key(at_ns),
                    body: number as u64,
                });
            }
            Fake {
                number: number as u32,
                ports: ports.clone(),
                queue,
                source,
                timer_ns: *timer_ns,
                now_ns: 0,
                state: number as u64,
                trace: Vec::new(),
            }
        })
        .collect()
}

fn lookahead_ns(network: &Network) -> u64 {
    let between = network.iter().enumerate().flat_map(|(number, (ports, _))| {
        ports
            .iter()
            .filter(move |port| port.to != number as u32)
            .map(|port| port.delay_ns)
    });
    between.min().unwrap_or(u64::MAX)
}

/// The reference: one instant of one kernel at a time, the earliest first, messages handed over at once.
fn run_naively(network: &Network, stop_ns: u64) -> Vec<Vec<(u64, u64)>> {
    let mut kernels = build(network);
    while let Some(number) = (0..kernels.len()).min_by_key(|&number| (kernels[number].next_ns(), number)) {
        let at_ns = kernels[number].next_ns();
        if at_ns >= stop_ns {
            break;
        }
        for (to, event) in kernels[number].run_instant(at_ns) {
            kernels[to as usize].accept(event);
        }
    }
    kernels.into_iter().map(|kernel| kernel.trace).collect()
}

/// The windows; `order` rearranges the kernels of each window.
fn run_in_windows(network: &Network, stop_ns: u64, order: impl Fn(&mut Vec<u32>)) -> Vec<Vec<(u64, u64)>> {
    let mut kernels = build(network);
    let lookahead_ns = lookahead_ns(network);
    let mut windows = Windows::new(&kernels);
    while let Some((start_ns, end_ns)) = windows.open(lookahead_ns, stop_ns) {
        windows.ready.sort_unstable();
        let mut once = windows.ready.clone();
        once.dedup();
        assert_eq!(once, windows.ready, "a kernel is in a window twice");
        order(&mut windows.ready);
        let Ok(()) = windows.run_ready(&mut kernels, end_ns);
        windows.close(&mut kernels, start_ns.saturating_add(lookahead_ns).min(end_ns));
    }
    kernels.into_iter().map(|kernel| kernel.trace).collect()
}

fn networks(delays: std::ops::Range<u64>) -> impl Strategy<Value = Network> {
    (1u32..7).prop_flat_map(move |count| {
        let port = (0..count, delays.clone()).prop_map(|(to, delay_ns)| Port { to, delay_ns });
        let kernel = (proptest::collection::vec(port, 1..4), 0u64..500);
        proptest::collection::vec(kernel, count as usize)
    })
}

proptest! {
    #[test]
    fn windows_do_what_a_sequential_simulation_does(network in networks(1..200)) {
        prop_assert_eq!(run_in_windows(&network, 20_000, |_| {}), run_naively(&network, 20_000));
    }

    #[test]
    fn the_order_of_kernels_in_a_window_does_not_matter(network in networks(0..60), turn in 0usize..7) {
        let in_node_order = run_in_windows(&network, 20_000, |_| {});
        let reversed = run_in_windows(&network, 20_000, |ready| ready.reverse());
        let turned = run_in_windows(&network, 20_000, |ready| {
            let by = turn % ready.len();
            ready.rotate_left(by);
        });
        prop_assert_eq!(&reversed, &in_node_order);
        prop_assert_eq!(&turned, &in_node_order);
    }
}

#[test]
fn made_up_kernels_keep_busy() {
    // The properties above say little if the kernels fall silent at once.
    let network: Network = (0..6)
        .map(|number| {
            (
                vec![
                    Port {
                        to: (number + 1) % 6,
                        delay_ns: 40,
                    },
                    Port {
                        to: (number + 5) % 6,
                        delay_ns: 7,
                    },
                ],
                9,
            )
        })
        .collect();
    let traces = run_in_windows(&network, 20_000, |_| {});
    let instants: usize = traces.iter().map(Vec::len).sum();
    assert!(instants > 100, "{instants} instants only");
}

#[test]
fn an_idle_kernel_is_not_visited() {
    let network: Network = vec![
        (vec![Port { to: 0, delay_ns: 10 }], 5),
        (vec![Port { to: 0, delay_ns: 10 }], u64::MAX),
    ];
    let mut kernels = build(&network);
    kernels[1].queue = EventQueue::default();
    let mut windows = Windows::new(&kernels);
    while windows.step(&mut kernels, 10, 5000).unwrap() != Step::Idle {}
    assert!(!kernels[0].trace.is_empty());
    assert!(kernels[1].trace.is_empty());
}

#[test]
fn a_window_ends_at_the_limit() {
    let network: Network = vec![(vec![Port { to: 0, delay_ns: 10 }], 5)];
    let mut kernels = build(&network);
    let mut windows = Windows::new(&kernels);
    assert_eq!(windows.step(&mut kernels, 1000, 3).unwrap(), Step::Ran(0, 3));
    assert!(kernels[0].trace.iter().all(|&(at_ns, _)| at_ns < 3));
    assert!(windows.earliest_ns() >= 3);
}

#[test]
#[should_panic(expected = "arrives at 15 ns, before 20 ns")]
fn a_message_that_breaks_the_lookahead_is_a_bug() {
    let network: Network = vec![
        (vec![Port { to: 0, delay_ns: 10 }], 5),
        (vec![Port { to: 0, delay_ns: 10 }], 5),
    ];
    let mut kernels = build(&network);
    let mut windows = Windows::new(&kernels);
    let mut outbox = Outbox::default();
    outbox.send(
        1,
        Event {
            key: Source::new(9).key(15),
            body: 0,
        },
    );
    windows.distribute(&mut kernels, outbox, 20);
}
