//! What happens when the host refuses: each case in a child process, because limits and user ids are per process.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use windtunnel_results::{ExistingFiles, Manifest, OutDir, ResultsError, ScenarioRecord};

const CHILD_DIR: &str = "WINDTUNNEL_TEST_DIR";

/// Runs one `#[ignore]`d test of this file in a child process, with `dir` for it to work in.
fn in_child(test: &str, dir: &Path) -> std::process::Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", test, "--ignored", "--nocapture"])
        .env(CHILD_DIR, dir);
    command.output().unwrap()
}

fn assert_passed(output: std::process::Output) {
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn child_dir() -> std::path::PathBuf {
    std::env::var_os(CHILD_DIR).expect("run by its parent test only").into()
}

#[test]
fn a_size_limit_keeps_what_was_written() {
    let dir = tempfile::tempdir().unwrap();
    assert_passed(in_child("child_with_size_limit", dir.path()));
    let out = dir.path().join("out");
    // The manifest of before is whole although its replacement did not fit.
    assert_eq!(Manifest::read(&out).unwrap().seed, 1);
    let capture = std::fs::metadata(out.join("pcap/h1-eth0.pcap")).unwrap().len();
    assert_eq!(capture, LIMIT_BYTES, "everything that fitted is there");
}

const LIMIT_BYTES: u64 = 8192;

#[test]
#[ignore = "run by a_size_limit_keeps_what_was_written"]
fn child_with_size_limit() {
    use nix::sys::resource::{Resource, setrlimit};
    use nix::sys::signal::{SigSet, Signal};
    let out = OutDir::create(&child_dir().join("out"), ExistingFiles::Refuse).unwrap();
    let mut manifest = Manifest::starting("0.0.0", ScenarioRecord::default(), 1);
    out.write_manifest(&manifest).unwrap();

    // Over the limit the host sends SIGXFSZ, which kills unless it is blocked, and answers EFBIG.
    let mut blocked = SigSet::empty();
    blocked.add(Signal::SIGXFSZ);
    blocked.thread_block().unwrap();
    setrlimit(Resource::RLIMIT_FSIZE, LIMIT_BYTES, LIMIT_BYTES).unwrap();

    let mut pcap = out.pcap("h1", "eth0", 0).unwrap();
    let error = (0..200)
        .find_map(|time_ns| pcap.write(time_ns, &[1; 1500]).err())
        .expect("128 KiB are soon full");
    assert!(matches!(error, ResultsError::FileTooLarge { .. }), "{error}");
    assert!(
        error.to_string().contains("h1-eth0.pcap") && error.hint().unwrap().contains("ulimit -f"),
        "{error}"
    );

    manifest.seed = 2;
    manifest.error = Some("x".repeat(LIMIT_BYTES as usize));
    let error = out.write_manifest(&manifest).unwrap_err();
    assert!(matches!(error, ResultsError::FileTooLarge { .. }), "{error}");
}

#[test]
fn an_unwritable_folder_is_named() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o555)).unwrap();
    assert_passed(in_child("child_without_permission", dir.path()));
}

#[test]
#[ignore = "run by an_unwritable_folder_is_named"]
fn child_without_permission() {
    if nix::unistd::geteuid().is_root() {
        // The superuser may write anywhere, so become somebody else first.
        nix::unistd::setuid(65534.into()).unwrap();
    }
    let error = OutDir::create(&child_dir().join("out"), ExistingFiles::Refuse).unwrap_err();
    assert!(matches!(error, ResultsError::NotWritable { .. }), "{error}");
    assert!(error.hint().unwrap().contains("folder you may write to"));
}

#[test]
fn summary_and_manifest_survive_a_round_trip() {
    use windtunnel_results::*;
    let dir = tempfile::tempdir().unwrap();
    let out = OutDir::create(dir.path(), ExistingFiles::Refuse).unwrap();
    let summary = Summary {
        summary_version: SUMMARY_VERSION,
        scenario: "demo".into(),
        seed: u64::MAX,
        ended: Ended::AllDone,
        digest: Some("ab".repeat(32)),
        virtual_time_ns: 1,
        syscalls: 2,
        frames: 3,
        processes: vec![ProcessSummary {
            node: "h1".into(),
            pid: Some(2),
            command: vec!["ping".into(), "ü \"quoted\"".into()],
            exit: None,
            signal: Some(9),
            start_ns: Some(0),
            end_ns: None,
            stdout: "h1/ping-0.stdout".into(),
            stderr: "h1/ping-0.stderr".into(),
            client: false,
            life: 1,
            power_off: false,
        }],
        links: vec![LinkSummary {
            a: "h1:eth0".into(),
            b: "h2:eth0".into(),
            a_to_b: DirectionSummary {
                frames: 9,
                drops: [("loss".to_string(), 1)].into(),
                ..Default::default()
            },
            b_to_a: DirectionSummary::default(),
        }],
        ports: Vec::new(),
        lateness: None,
        warnings: vec![Warning {
            code: "partial_call".into(),
            nodes: vec!["h1".into()],
            programs: vec!["p".into()],
            text: "t".into(),
            count: 4,
            time_ns: 7,
        }],
        failed_expectations: vec!["h1: ping exited with 1, expected 0".into()],
        delivery_lateness: None,
    };
    out.write_summary(&summary).unwrap();
    assert_eq!(Summary::read(dir.path()).unwrap(), summary);
    assert!(summary.to_json().contains("\"ended\": \"all_done\""));

    let mut manifest = Manifest::starting("0.1.0", ScenarioRecord::default(), 7);
    assert_eq!((manifest.ended, manifest.generator.as_str()), (None, GENERATOR));
    manifest.ended = Some(Ended::Interrupted);
    manifest.cost = Cost::of_this_process(5);
    assert!(manifest.cost.peak_memory_bytes > 0);
    out.write_manifest(&manifest).unwrap();
    assert_eq!(Manifest::read(dir.path()).unwrap(), manifest);

    std::fs::write(dir.path().join("summary.json"), "{\"summary_version\": 1}").unwrap();
    let error = Summary::read(dir.path()).unwrap_err();
    assert!(error.to_string().contains("missing field"), "{error}");
}
