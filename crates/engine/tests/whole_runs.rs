//! Whole runs of the engine over a made-up kernel: everything but Linux and real programs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use windtunnel_engine::{EngineError, LiveOptions, Options, Progress, Roots, RunOutcome, Simulation};
use windtunnel_images::{Cache, Unpacker};
use windtunnel_results::{Ended, ExistingFiles, Manifest, OutDir};
use windtunnel_scenario::Scenario;

/// Nodes have fixed addresses, so that there is one run at a time.
static ONE_RUN: Mutex<()> = Mutex::new(());

/// The made-up kernel, compiled once.
fn kernel(dir: &Path) -> PathBuf {
    let image = dir.join("fake_kernel.so");
    let here = env!("CARGO_MANIFEST_DIR");
    let compiled = Command::new("cc")
        .args([
            "-shared",
            "-fPIC",
            "-O2",
            "-nostdlib",
            "-ffreestanding",
            "-fvisibility=hidden",
            "-mno-sse",
        ])
        .args([
            "-fno-stack-protector",
            "-Wall",
            "-Werror",
            "-Wl,-Bsymbolic",
            "-Wl,-z,norelro",
            "-Wl,-z,text",
        ])
        .args(["-Wl,-z,pack-relative-relocs", "-I"])
        .arg(format!("{here}/../../kernel/include"))
        .arg("-o")
        .arg(&image)
        .arg(format!("{here}/tests/fake_kernel.c"))
        .output()
        .expect("`cc` runs: a C compiler is needed to build kernels anyway");
    assert!(
        compiled.status.success(),
        "{}",
        String::from_utf8_lossy(&compiled.stderr)
    );
    image
}

/// What a run gave, and the folder with its results.
struct Ran {
    result: Result<RunOutcome, EngineError>,
    dir: tempfile::TempDir,
}

impl Ran {
    fn outcome(&self) -> &RunOutcome {
        self.result.as_ref().unwrap_or_else(|error| panic!("{error}"))
    }

    fn error(&self) -> &EngineError {
        self.result.as_ref().expect_err("the run fails")
    }

    fn manifest(&self) -> Manifest {
        Manifest::read(&self.dir.path().join("out")).unwrap()
    }

    fn file(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.dir.path().join("out").join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }
}

fn run(text: &str, seed: u64) -> Ran {
    run_with(text, seed, true)
}

fn run_with(text: &str, seed: u64, digest: bool) -> Ran {
    let _alone = ONE_RUN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let dir = tempfile::tempdir().unwrap();
    let scenario = Scenario::parse(text, Path::new("test.yaml")).unwrap_or_else(|error| panic!("{error}"));
    let cache = Cache::new(dir.path().join("cache"));
    let unpacker = Unpacker {
        cache: &cache,
        stop: &AtomicBool::new(false),
        say: &|_| {},
    };
    let options = Options {
        out: OutDir::create(&dir.path().join("out"), ExistingFiles::Refuse).unwrap(),
        scenario_path: PathBuf::from("test.yaml"),
        roots: Roots::open(&scenario, &unpacker).unwrap_or_else(|error| panic!("{error}")),
        kernel_image: kernel(dir.path()),
        kernel_build_hash: Some("0123abcd".into()),
        seed,
        stop_flag: Arc::new(AtomicBool::new(false)),
        progress: Arc::new(Progress::default()),
        debug: None,
        digest,
        pcap: true,
        live: LiveOptions::default(),
        write_back: false,
    };
    // The thread of a simulation is its own.
    let thread = std::thread::Builder::new().stack_size(8 << 20);
    let simulate = move || Simulation::new(&scenario, options).and_then(Simulation::run);
    let result = thread.spawn(simulate).unwrap().join().unwrap();
    Ran { result, dir }
}

/// A chain of `nodes`, the first one sending; `link` is added to each link's values, `more` to the scenario.
fn chain(nodes: usize, send: &str, link: &str, more: &str) -> String {
    use std::fmt::Write;
    let mut text = String::from("version: 1\nname: chain\nrun: {stop: 10s, capture: all}\nnodes:\n");
    for node in 0..nodes {
        let process = if node == 0 {
            format!("{{processes: [{{exec: /bin/true {send}}}]}}")
        } else {
            "{}".into()
        };
        writeln!(text, "  n{node}: {process}").unwrap();
    }
    text += "links:\n";
    for node in 1..nodes {
        // A node's NICs are sorted by name: its left one comes first but at the left end of the chain.
        let left = if node == 1 { "eth0" } else { "eth1" };
        writeln!(text, "  - endpoints: [\"n{}:{left}\", \"n{node}:eth0\"]", node - 1).unwrap();
        writeln!(text, "    both: {{rate: 1Gbit, delay: 1ms{link}}}").unwrap();
    }
    text + more
}

#[test]
fn frames_cross_a_chain_on_time_and_equal_runs_are_equal() {
    let text = chain(4, "send 50 100000", "", "");
    let first = run(&text, 1);
    let summary = &first.outcome().summary;
    assert_eq!(summary.ended, Ended::AllDone);
    assert_eq!(summary.links.len(), 3);
    for link in &summary.links {
        assert_eq!(
            (link.a_to_b.frames, link.a_to_b.delivered_frames),
            (50, 50),
            "{}",
            link.a
        );
        assert_eq!((link.a_to_b.bytes, link.b_to_a.frames), (50_000, 0));
    }
    // The last frame leaves at 5 ms and takes three times 1 ms and 1024 bytes of wire time.
    assert_eq!(summary.virtual_time_ns, 5_000_000 + 3 * (1_000_000 + 1024 * 8));
    assert_eq!(summary.frames, 150);
    let process = &summary.processes[0];
    assert_eq!(
        (process.exit, process.start_ns, process.end_ns),
        (Some(0), Some(0), Some(5_000_000))
    );
    // 24 bytes, then for each frame 16 and its own; n1 sees each twice, on two interfaces.
    assert_eq!(first.file("pcap/n3-eth0.pcap").len(), 24 + 50 * 1016);
    assert_eq!(first.file("pcap/n1-eth1.pcap").len(), 24 + 50 * 1016);
    assert!(
        String::from_utf8(first.file("n2/kernel.log"))
            .unwrap()
            .ends_with("made-up kernel\n")
    );

    let second = run(&text, 1);
    assert_eq!(second.file("summary.json"), first.file("summary.json"));
    assert_eq!(second.file("pcap/n3-eth0.pcap"), first.file("pcap/n3-eth0.pcap"));
    let manifest = first.manifest();
    assert_eq!(manifest.digest, summary.digest);
    assert_eq!((manifest.ended, manifest.error), (Some(Ended::AllDone), None));
    assert_eq!(manifest.kernels[0].release, "0.0.0-made-up");
    assert_eq!(manifest.kernels[0].build_hash.as_deref(), Some("0123abcd"));
    assert_eq!(manifest.scenario.path, "test.yaml");
}

#[test]
fn without_a_digest_the_rest_is_the_same() {
    let text = chain(2, "send 50 100000", ", loss: 10%", "");
    let (with, without) = (run(&text, 1), run_with(&text, 1, false));
    assert_eq!(
        (without.manifest().digest, &without.outcome().summary.digest),
        (None, &None)
    );
    assert!(with.manifest().digest.is_some());
    assert_eq!(without.outcome().summary.links, with.outcome().summary.links);
    assert_eq!(without.file("pcap/n1-eth0.pcap"), with.file("pcap/n1-eth0.pcap"));
}

#[test]
fn loss_follows_the_seed_and_is_accounted_for() {
    let text = chain(2, "send 1000 100000", ", loss: 10%", "");
    let runs: Vec<Ran> = [1, 1, 2].into_iter().map(|seed| run(&text, seed)).collect();
    let digests: Vec<_> = runs.iter().map(|ran| ran.outcome().summary.digest.clone()).collect();
    assert_eq!(digests[0], digests[1]);
    assert_ne!(digests[0], digests[2]);
    let link = &runs[0].outcome().summary.links[0].a_to_b;
    let lost = link.drops["loss"];
    assert!((60..140).contains(&lost), "{lost}");
    assert_eq!(link.delivered_frames + lost, 1000);
}

#[test]
fn without_delay_or_rate_worth_speaking_of_frames_still_arrive_in_order() {
    let text = chain(3, "send 20 1000", ", queue: 5p", "")
        .replace("delay: 1ms", "delay: 0ns")
        .replace("1Gbit", "400Gbit");
    let ran = run(&text, 1);
    assert_eq!(ran.outcome().summary.links[1].a_to_b.delivered_frames, 20);
}

#[test]
fn a_link_that_goes_down_loses_what_is_on_it() {
    // One frame a millisecond from 1 ms on; 5 ms of delay: at 10.5 ms frames 6 to 10 are under way, 5 have arrived.
    let events = "events:\n  - {at: 10500us, link: [n0, n1], set: {up: false}}\n  - {at: 15500us, link: [n0, n1], set: {up: true}}\n";
    let text = chain(2, "send 20 1000000", "", events).replace("delay: 1ms", "delay: 5ms");
    let ran = run(&text, 1);
    let link = &ran.outcome().summary.links[0].a_to_b;
    assert_eq!(link.frames, 20);
    assert_eq!(link.drops["link_down"], 5 + 5, "on the way, and offered while down");
    assert_eq!(link.delivered_frames, 10);
}

fn one_node(processes: &str) -> String {
    format!("version: 1\nname: one\nrun: {{stop: 10s}}\nnodes:\n  h1:\n{processes}")
}

#[test]
fn programs_are_started_stopped_and_judged() {
    let ran = run(
        &one_node(
            "    setup: [/bin/true exit 0, /bin/true say ready]\n    processes:\n\
             \x20     - {exec: /bin/true say hello, expect: {exit: 0, stdout: {contains: hell}}}\n\
             \x20     - {exec: /bin/true say hello, expect: {stdout: {contains: goodbye}}}\n\
             \x20     - {exec: /bin/true stay, start: 1s, stop: 2s}\n\
             \x20     - {exec: /bin/true deaf, stop: 3s}\n\
             \x20     - {exec: /bin/true stay, expect: running}\n\
             \x20     - {exec: /bin/true exit 3}\n",
        ),
        1,
    );
    let summary = &ran.outcome().summary;
    assert_eq!((summary.ended, summary.virtual_time_ns), (Ended::Stop, 10_000_000_000));
    let lives: Vec<_> = summary
        .processes
        .iter()
        .map(|p| (p.exit, p.signal, p.start_ns, p.end_ns))
        .collect();
    let s = 1_000_000_000;
    assert_eq!(
        lives,
        [
            (Some(0), None, Some(0), Some(0)),
            (Some(0), None, Some(0), Some(0)),
            (None, Some(15), Some(s), Some(2 * s)),
            (None, Some(9), Some(0), Some(8 * s)),
            (None, None, Some(0), None),
            (Some(3), None, Some(0), Some(0)),
        ]
    );
    assert_eq!(
        ran.outcome().failed_expectations,
        [
            "h1: `/bin/true say hello`: standard output does not contain `goodbye`",
            "h1: `/bin/true deaf`: expected success, but it was ended by signal 9",
            "h1: `/bin/true exit 3`: expected success, but it exited with 3",
        ]
    );
    assert_eq!(ran.file(&summary.processes[0].stdout), b"hello");
    assert!(
        summary.warnings.iter().any(|warning| warning.code == "killed"),
        "{:?}",
        summary.warnings
    );
}

#[test]
fn a_failed_setup_ends_the_run() {
    let ran = run(&one_node("    setup: [/bin/true exit 4]\n"), 1);
    assert_eq!(
        ran.error().to_string(),
        "node h1: set-up command `/bin/true exit 4` exited with 4"
    );
    assert_eq!(ran.error().exit_code(), 2);
    let manifest = ran.manifest();
    assert_eq!(manifest.ended, Some(Ended::Error));
    assert!(manifest.error.unwrap().contains("exited with 4"));
}

#[test]
fn a_kernel_panic_ends_the_run_with_a_report_and_keeps_results() {
    let ran = run(
        &one_node(
            "    processes:\n      - {exec: /bin/true say before}\n      - {exec: /bin/true panic, start: 2500ms}\n",
        ),
        7,
    );
    let text = ran.error().to_string();
    for part in ["node h1 crashed", "2.5", "seed 7", "made up", "made-up kernel"] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
    assert_eq!(ran.error().exit_code(), 3);
    let summary = windtunnel_results::Summary::read(&ran.dir.path().join("out")).unwrap();
    assert_eq!((summary.ended, summary.virtual_time_ns), (Ended::Crash, 2_500_000_000));
    assert_eq!(ran.file(&summary.processes[0].stdout), b"before");
    assert!(
        String::from_utf8(ran.file("h1/kernel.log"))
            .unwrap()
            .contains("made up")
    );
}

/// Where the kernel of node 1 has its RAM (src/layout.rs).
const RAM_OF_NODE_1: u64 = 0x1000_0000_0000 + 0x40_0000_0000 + 0x4000_0000 + 61 * 4096;

#[test]
fn a_kernel_that_reaches_into_a_closed_node_ends_the_run_with_a_report() {
    let text = chain(2, &format!("reach {RAM_OF_NODE_1}"), "", "");
    run(&text, 1).outcome();
    let ran = run(&text.replace("capture: all", "isolate: true"), 1);
    let text = ran.error().to_string();
    let whose = format!("\n  {RAM_OF_NODE_1:#x} is memory of the kernel of node n1, which was not accessible then\n");
    for part in ["the kernel of node n0 crashed", "kernel fault: signal 11", &whose] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
    assert_eq!(ran.error().exit_code(), 3);
    assert!(
        ran.error()
            .hint()
            .unwrap()
            .contains("from which `--isolate` does not keep it")
    );
}

#[test]
fn a_kernel_that_does_not_say_that_a_program_runs_ends_an_isolated_run() {
    let text = chain(2, "say hello", "", "");
    run(&text, 1).outcome();
    let ran = run(&text.replace("capture: all", "isolate: true"), 1);
    assert_eq!(
        ran.error().to_string(),
        "internal error: a program of node n0 ran while others' memory was accessible"
    );
}

#[test]
fn a_program_that_is_not_there_is_told_before_anything_runs() {
    let ran = run(&one_node("    processes: [{exec: no-such-program -x}]\n"), 1);
    let text = ran.error().to_string();
    assert!(
        text.starts_with("node h1: cannot start no-such-program: not found in any folder of PATH"),
        "{text}"
    );
    assert!(ran.error().hint().unwrap().contains("installed"));
    assert_eq!(ran.error().exit_code(), 2);
    assert_eq!(ran.manifest().ended, Some(Ended::Error));
}

/// `cargo test --release -p windtunnel-engine --test whole_runs -- --ignored --nocapture`
#[test]
#[ignore = "a measurement: prints what the engine itself costs per packet-hop, with a kernel that does nothing"]
fn cost_per_packet_hop() {
    for (nodes, frames) in [(2, 400_000), (8, 100_000), (64, 15_000)] {
        let text = chain(nodes, &format!("send {frames} 117600"), "", "").replace(", capture: all", "");
        let text = text.replace("stop: 10s", "stop: 100s");
        let before = windtunnel_results::Cost::of_this_process(0).cpu_time_ns;
        let ran = run(&text, 1);
        let cpu_ns = windtunnel_results::Cost::of_this_process(0).cpu_time_ns - before;
        let hops = ran.outcome().summary.frames;
        println!(
            "N={nodes}: {} ns per packet-hop ({hops} hops, digest on)",
            cpu_ns / hops
        );
    }
}
