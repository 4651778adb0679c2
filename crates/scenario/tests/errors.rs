//! Every mistake a scenario can make and the exact text it gets, in errors.txt next to this file. After a change run
//! with WINDTUNNEL_BLESS=1 and read the difference.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use windtunnel_scenario::Scenario;

const GOOD: &str = "\
version: 1
run: {stop: 10s}
nodes:
  h1:
    addresses: {eth0: 10.0.0.1/24}
    processes: [{exec: ping 10.0.0.2}]
  h2:
    addresses: {eth0: 10.0.0.2/24}
links:
  - endpoints: [\"h1:eth0\", \"h2:eth0\"]
    both: {rate: 10Mbit, delay: 5ms}
events: [{at: 1s, link: [h1, h2], set: {loss: 1%}}]
";

/// What it is about, what is replaced in the good scenario, and by what.
const CASES: &[(&str, &str, &str)] = &[
    ("unknown key in a link", "delay:", "dely:"),
    (
        "unknown key in a node",
        "addresses: {eth0: 10.0.0.1/24}",
        "adresses: {eth0: 10.0.0.1/24}",
    ),
    ("unknown key far from any other", "run: {stop", "wind: 4\nrun: {stop"),
    ("missing key", "{stop: 10s}", "{seed: 1}"),
    ("missing links' partner", "[\"h1:eth0\", \"h2:eth0\"]", "[\"h1:eth0\"]"),
    ("missing unit", "10Mbit", "100"),
    ("byte rate", "10Mbit", "12MB/s"),
    ("wrong unit", "delay: 5ms", "delay: 5m"),
    ("loss without percent", "loss: 1%", "loss: 0.01"),
    ("queue without unit", "delay: 5ms", "delay: 5ms, queue: 100"),
    ("more jitter than delay", "delay: 5ms", "delay: 5ms, jitter: 6ms"),
    ("no rate", "rate: 10Mbit, ", ""),
    ("unknown node in a link", "\"h2:eth0\"", "\"h3:eth0\""),
    ("endpoint without interface", "\"h2:eth0\"", "h2"),
    (
        "interface name of 16 characters",
        "\"h2:eth0\"",
        "\"h2:eth0123456789abc\"",
    ),
    (
        "unknown model of a NIC",
        "addresses: {eth0: 10.0.0.1/24}\n    processes",
        "interfaces: {eth0: {model: e1000}}\n    processes",
    ),
    (
        "model of a NIC far from any other",
        "addresses: {eth0: 10.0.0.1/24}\n    processes",
        "interfaces: {eth0: {model: 3c905}}\n    processes",
    ),
    (
        "receive ring without an end",
        "addresses: {eth0: 10.0.0.1/24}\n    processes",
        "interfaces: {eth0: {model: igb, rx_ring: 9000}}\n    processes",
    ),
    (
        "transmit ring of nothing",
        "addresses: {eth0: 10.0.0.1/24}\n    processes",
        "interfaces: {eth0: {tx_ring: 0}}\n    processes",
    ),
    (
        "gap between interrupts without unit",
        "addresses: {eth0: 10.0.0.1/24}\n    processes",
        "interfaces: {eth0: {interrupt_gap: 100}}\n    processes",
    ),
    (
        "gap between interrupts of a second",
        "addresses: {eth0: 10.0.0.1/24}\n    processes",
        "interfaces: {eth0: {interrupt_gap: 1s}}\n    processes",
    ),
    (
        "receive buffer of a megabyte",
        "addresses: {eth0: 10.0.0.1/24}\n    processes",
        "interfaces: {eth0: {rx_buffer: 1MiB}}\n    processes",
    ),
    (
        "packets that cannot be cut",
        "addresses: {eth0: 10.0.0.1/24}\n    processes",
        "interfaces: {eth0: {gso_max_size: 1500B}}\n    processes",
    ),
    (
        "cutting without checksums",
        "addresses: {eth0: 10.0.0.1/24}\n    processes",
        "interfaces: {eth0: {tx_checksum: false, tso: true}}\n    processes",
    ),
    (
        "offload that is neither on nor off",
        "addresses: {eth0: 10.0.0.1/24}\n    processes",
        "interfaces: {eth0: {tso: maybe}}\n    processes",
    ),
    (
        "unknown key of an interface",
        "addresses: {eth0: 10.0.0.1/24}\n    processes",
        "interfaces: {eth0: {rx_rings: 3}}\n    processes",
    ),
    (
        "interface name that is a folder of sysctls",
        "\"h2:eth0\"",
        "\"h2:all\"",
    ),
    (
        "interface on two links",
        "events:",
        "  - {endpoints: [\"h1:eth1\", \"h2:eth0\"]}\nevents:",
    ),
    (
        "address on an interface without link",
        "{eth0: 10.0.0.2/24}",
        "{eth1: 10.0.0.2/24}",
    ),
    ("address on lo", "{eth0: 10.0.0.2/24}", "{lo: 10.0.0.2/32}"),
    ("address clash", "10.0.0.2/24", "10.0.0.1/24"),
    ("address without prefix", "10.0.0.2/24", "10.0.0.2"),
    ("bad address", "10.0.0.2/24", "10.0.0.256/24"),
    ("address with leading zeros", "10.0.0.2/24", "010.0.0.2/24"),
    ("multicast as address", "10.0.0.2/24", "224.0.0.2/24"),
    ("no address as address", "10.0.0.2/24", "0.0.0.0/32"),
    ("loopback as address", "10.0.0.2/24", "\"::1/128\""),
    (
        "IPv6 where it does not fit",
        "addresses: {eth0: 10.0.0.2/24}",
        "interfaces: {eth0: {mtu: 1279, addresses: \"fd00::2/64\"}}",
    ),
    ("network as address", "10.0.0.2/24", "10.0.0.0/24"),
    ("broadcast as address", "10.0.0.2/24", "10.0.0.255/24"),
    ("duplicate node", "  h2:\n", "  h1:\n"),
    ("duplicate key", "{stop: 10s}", "{stop: 10s, stop: 11s}"),
    ("bad node name", "  h2:\n", "  h 2:\n"),
    ("node named like a file of the results", "  h2:\n", "  pcap:\n"),
    ("unsupported version", "version: 1", "version: 2"),
    ("unsupported kernel", "  h2:\n", "  h2:\n    kernel: 6.1\n"),
    ("unsupported mode", "{stop: 10s}", "{stop: 10s, mode: real}"),
    ("unsupported kind", "  h2:\n", "  h2:\n    kind: ruter\n"),
    ("bad capture", "{stop: 10s}", "{stop: 10s, capture: yes}"),
    ("bad preempt", "{stop: 10s}", "{stop: 10s, preempt: yes}"),
    ("bad isolate", "{stop: 10s}", "{stop: 10s, isolate: maybe}"),
    ("bad epoch", "{stop: 10s}", "{stop: 10s, epoch: 2026-02-30}"),
    ("epoch before the boot", "{stop: 10s}", "{stop: 10s, epoch: 1970-01-01}"),
    (
        "epoch beyond the kernel's",
        "{stop: 10s}",
        "{stop: 10s, epoch: 2262-05-01}",
    ),
    ("stop beyond pcap's dates", "{stop: 10s}", "{stop: 800000h}"),
    ("delay of centuries", "delay: 5ms", "delay: 5000000h"),
    ("bad seed", "{stop: 10s}", "{stop: 10s, seed: -1}"),
    ("memory too small", "  h2:\n", "  h2:\n    memory: 1MiB\n"),
    (
        "process without exec",
        "  h2:\n",
        "  h2:\n    processes: [{start: 1s}]\n",
    ),
    (
        "args without an image",
        "  h2:\n",
        "  h2:\n    processes: [{args: [8080]}]\n",
    ),
    (
        "args beside exec",
        "  h2:\n",
        "  h2:\n    root: web.tar\n    processes: [{exec: a, args: b}]\n",
    ),
    ("empty root", "  h2:\n", "  h2:\n    root: \"\"\n"),
    ("root without a path", "  h2:\n", "  h2:\n    root: {name: \"web:1\"}\n"),
    (
        "too little memory for programs",
        "  h2:\n",
        "  h2:\n    program_memory: 4kB\n",
    ),
    ("disk without unit", "  h2:\n", "  h2:\n    disk: 10\n"),
    ("disk too large", "  h2:\n", "  h2:\n    disk: 2000GB\n"),
    ("no room for output", "{stop: 10s}", "{stop: 10s, output_limit: 0B}"),
    ("unknown model of a CPU", "  h2:\n", "  h2:\n    cpu: fast\n"),
    ("unknown cost", "  h2:\n", "  h2:\n    cpu: {sycall: 1us}\n"),
    (
        "cost of a call without unit",
        "  h2:\n",
        "  h2:\n    cpu: {syscall: 300}\n",
    ),
    (
        "cost of a call too large",
        "  h2:\n",
        "  h2:\n    cpu: {syscall: 1min}\n",
    ),
    (
        "cost of a byte that is a time",
        "  h2:\n",
        "  h2:\n    cpu: {copy: 0.1ns}\n",
    ),
    (
        "cost of a byte that is a rate",
        "  h2:\n",
        "  h2:\n    cpu: {copy: 10GB/s}\n",
    ),
    ("cost of a byte too large", "  h2:\n", "  h2:\n    cpu: {copy: 2us/B}\n"),
    ("MTU too small", "  h2:\n", "  h2:\n    interfaces: {eth0: {mtu: 60}}\n"),
    (
        "multicast MAC",
        "  h2:\n",
        "  h2:\n    interfaces: {eth0: {mac: \"01:00:5e:00:00:01\"}}\n",
    ),
    (
        "stop before start",
        "ping 10.0.0.2}",
        "ping 10.0.0.2, start: 5s, stop: 2s}",
    ),
    ("start after the run", "ping 10.0.0.2}", "ping 10.0.0.2, start: 10s}"),
    ("empty exec", "exec: ping 10.0.0.2", "exec: \"\""),
    ("open quote in exec", "exec: ping 10.0.0.2", "exec: \"sh -c 'ping\""),
    (
        "shell syntax in exec",
        "exec: ping 10.0.0.2",
        "exec: ping 10.0.0.2 | cat",
    ),
    ("bad signal", "ping 10.0.0.2}", "ping 10.0.0.2, stop: 2s, signal: TREM}"),
    ("signal without stop", "ping 10.0.0.2}", "ping 10.0.0.2, signal: INT}"),
    ("bad user", "ping 10.0.0.2}", "ping 10.0.0.2, user: alice}"),
    (
        "user id that means none",
        "ping 10.0.0.2}",
        "ping 10.0.0.2, user: 4294967295}",
    ),
    (
        "group id that means none",
        "ping 10.0.0.2}",
        "ping 10.0.0.2, user: \"1000:4294967295\"}",
    ),
    ("bad expectation", "ping 10.0.0.2}", "ping 10.0.0.2, expect: runing}"),
    (
        "two endings",
        "ping 10.0.0.2}",
        "ping 10.0.0.2, expect: {exit: 1, signal: INT}}",
    ),
    (
        "bad regular expression",
        "ping 10.0.0.2}",
        "ping 10.0.0.2, expect: {stdout: {matches: \"(\"}}}",
    ),
    ("relative cwd", "ping 10.0.0.2}", "ping 10.0.0.2, cwd: tmp}"),
    ("bad route", "  h2:\n", "  h2:\n    routes: [default thru 10.0.0.1]\n"),
    (
        "route with two next hops",
        "  h2:\n",
        "  h2:\n    routes: [default via 10.0.0.1 via 10.0.0.3]\n",
    ),
    ("route to nowhere", "  h2:\n", "  h2:\n    routes: [default]\n"),
    (
        "route with host bits",
        "  h2:\n",
        "  h2:\n    routes: [10.1.0.1/24 via 10.0.0.1]\n",
    ),
    (
        "route over an unknown interface",
        "  h2:\n",
        "  h2:\n    routes: [{to: default, dev: eth1}]\n",
    ),
    (
        "route of two IP versions",
        "  h2:\n",
        "  h2:\n    routes: [\"fd00::/64 via 10.0.0.1\"]\n",
    ),
    (
        "sysctl as path",
        "  h2:\n",
        "  h2:\n    sysctls: {/proc/sys/net/ipv4/ip_forward: 1}\n",
    ),
    ("relative file", "  h2:\n", "  h2:\n    files: {etc/x: {content: a}}\n"),
    (
        "file without content",
        "  h2:\n",
        "  h2:\n    files: {/etc/x: {mode: 644}}\n",
    ),
    (
        "bad file mode",
        "  h2:\n",
        "  h2:\n    files: {/etc/x: {content: a, mode: 999}}\n",
    ),
    ("event without subject", "link: [h1, h2], set: {loss: 1%}", "up: true"),
    (
        "event that changes nothing",
        "link: [h1, h2], set: {loss: 1%}",
        "link: [h1, h2]",
    ),
    ("event of an unknown link", "link: [h1, h2]", "link: [h1, h22]"),
    (
        "event of an unknown node",
        "link: [h1, h2], set: {loss: 1%}",
        "node: h12, exec: ls",
    ),
    ("event after the run", "at: 1s", "at: 10s"),
    ("event with more jitter than delay", "{loss: 1%}", "{jitter: 6ms}"),
    (
        "event with less delay than the jitter of an earlier one",
        "events: [{at: 1s, link: [h1, h2], set: {loss: 1%}}]",
        "events: [{at: 2s, link: [h1, h2], b_to_a: {delay: 1ms}}, {at: 1s, link: [h1, h2], set: {jitter: 2ms}}]",
    ),
    ("event up and down", "set: {loss: 1%}", "up: true, down: true"),
    (
        "node up and down",
        "link: [h1, h2], set: {loss: 1%}",
        "node: h1, up: true, down: true",
    ),
    (
        "node down with values",
        "link: [h1, h2], set: {loss: 1%}",
        "node: h1, down: true, set: {loss: 1%}",
    ),
    (
        "node up that is up",
        "link: [h1, h2], set: {loss: 1%}",
        "node: h1, up: true",
    ),
    (
        "node down twice",
        "events: [{at: 1s, link: [h1, h2], set: {loss: 1%}}]",
        "events: [{at: 2s, node: h1, down: true}, {at: 1s, node: h1, down: true}]",
    ),
    ("a list for a text", "10Mbit", "[10Mbit]"),
    ("a text for a mapping", "{rate: 10Mbit, delay: 5ms}", "10Mbit"),
    ("a word for a truth value", "delay: 5ms", "delay: 5ms, up: maybe"),
    ("an open bracket", "{stop: 10s}", "{stop: 10s"),
    ("no version", "version: 1\n", "# a comment\n\n"),
    ("no run", "run: {stop: 10s}\n", ""),
    ("two documents", "links:", "---\nversion: 1\nlinks:"),
    ("a tab as indentation", "  h2:\n", "\th2:\n"),
    (
        "a tab after spaces",
        "    addresses: {eth0: 10.0.0.2/24}",
        "  \taddresses: {eth0: 10.0.0.2/24}",
    ),
    (
        "a tab before a key that belongs to the top",
        "run: {stop",
        "\trun: {stop",
    ),
    ("a tab before the first key", "version: 1", "\tversion: 1"),
    ("a tab after a dash", "  - endpoints", "  -\t- endpoints"),
    (
        "a tab in a text of several lines",
        "processes: [{exec: ping 10.0.0.2}]",
        "processes:\n      - exec: cat\n        stdin: |\n\t\thello",
    ),
];

#[test]
fn every_mistake_has_its_text() {
    Scenario::parse(GOOD, Path::new("good.yaml")).unwrap_or_else(|error| panic!("{error}"));
    let mut all = String::new();
    for (title, from, to) in CASES {
        assert_eq!(
            GOOD.matches(from).count(),
            1,
            "{title}: `{from}` must stand once in the good scenario"
        );
        let error = match Scenario::parse(&GOOD.replacen(from, to, 1), Path::new("bad.yaml")) {
            Ok(_) => panic!("{title}: no error"),
            Err(error) => error,
        };
        writeln!(all, "# {title}\n{error}\n").unwrap();
    }
    let empty = Scenario::parse("", Path::new("bad.yaml")).unwrap_err();
    writeln!(all, "# empty file\n{empty}").unwrap();
    let long = "y".repeat(250_000);
    let no_nodes = "version: 1\nrun: {stop: 1s}\nnodes: {}\n".to_owned();
    let others = [
        ("no nodes", no_nodes.clone()),
        ("a long key", no_nodes.replace("{}", &format!("{{a: {{{long}: 1}}}}"))),
        (
            "a mistake in a long line",
            no_nodes.replace("{}", &format!("{{a: {{x: {long}}}}}")),
        ),
        (
            "a mistake at the end of a long line",
            no_nodes.replace("{}", &format!("{{a: {{setup: [{long}], x: 1}}}}")),
        ),
        (
            "a long value",
            no_nodes.replace("version: 1", &format!("version: {long}")),
        ),
        ("control characters", "version: 1\nrun: \u{1b}[31m\u{0}\n".to_owned()),
    ];
    for (title, text) in others {
        let error = Scenario::parse(&text, Path::new("bad.yaml")).unwrap_err();
        assert!(
            error.to_string().len() < 1000,
            "{title}: {} bytes",
            error.to_string().len()
        );
        writeln!(all, "\n# {title}\n{error}").unwrap();
    }
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/errors.txt");
    if std::env::var_os("WINDTUNNEL_BLESS").is_some() {
        fs::write(&golden, &all).unwrap();
    }
    let expected = fs::read_to_string(&golden).unwrap();
    for (is, should) in all.split("\n\n").zip(expected.split("\n\n")) {
        assert_eq!(is, should);
    }
    assert_eq!(all, expected);
}
