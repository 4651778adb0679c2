//! The command as a user meets it: help, error texts, exit codes. Runs of scenarios are tested end to end elsewhere.

mod snapshot;

use snapshot::Assert;
use std::path::{Path, PathBuf};
use std::process::Command;

const PROGRAM: &str = env!("CARGO_BIN_EXE_windtunnel");

/// The program in an environment without the user's caches.
fn windtunnel(home: &Path) -> Command {
    let kernel_dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernel");
    let mut command = Command::new(PROGRAM);
    command
        .env_remove("XDG_CACHE_HOME")
        .env("HOME", home)
        .env("WINDTUNNEL_CACHE", home.join("cache"))
        .env("WINDTUNNEL_KERNEL_DIR", kernel_dir)
        .env("COLUMNS", "100")
        .current_dir(home);
    command
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

const NET: &str = "\
version: 1
name: net
run: {stop: 1s}
nodes:
  h1: {addresses: {eth0: 10.0.0.1/24}}
  h2: {addresses: {eth0: 10.0.0.2/24}}
links:
  - endpoints: [\"h1:eth0\", \"h2:eth0\"]
    both: {rate: 1Gbit, delay: 5ms}
";

fn net(home: &Path) -> PathBuf {
    let path = home.join("net.yaml");
    std::fs::write(&path, NET).unwrap();
    path
}

/// A cache with a kernel that is there, though nothing more.
fn pretend_kernel(home: &Path) {
    let folder = home.join("cache/kernels/6.12");
    std::fs::create_dir_all(folder.join("0123abcd")).unwrap();
    std::fs::write(folder.join("0123abcd/liblinux-6.12.so"), "no ELF file").unwrap();
    std::fs::write(folder.join("current"), "0123abcd\n").unwrap();
}

#[test]
fn help_of_every_verb() {
    // Refresh with SNAPSHOTS=overwrite.
    let home = folder();
    let help = |arguments: &[&str], expected| {
        windtunnel(home.path())
            .args(arguments)
            .arg("--help")
            .assert()
            .success()
            .stdout_eq_file(expected);
    };
    help(&[], "help/windtunnel.txt");
    help(&["run"], "help/run.txt");
    help(&["demo"], "help/demo.txt");
    help(&["attach"], "help/attach.txt");
    help(&["shell"], "help/shell.txt");
    help(&["exec"], "help/exec.txt");
    help(&["export"], "help/export.txt");
    help(&["plot"], "help/plot.txt");
    help(&["prompt"], "help/prompt.txt");
    help(&["sweep"], "help/sweep.txt");
    help(&["ps"], "help/ps.txt");
    help(&["logs"], "help/logs.txt");
    help(&["stop"], "help/stop.txt");
    help(&["diff"], "help/diff.txt");
    help(&["compare"], "help/compare.txt");
    help(&["validate"], "help/validate.txt");
    help(&["generate"], "help/generate.txt");
    help(&["generate", "chain"], "help/generate-chain.txt");
    help(&["generate", "star"], "help/generate-star.txt");
    help(&["generate", "ring"], "help/generate-ring.txt");
    help(&["generate", "tree"], "help/generate-tree.txt");
    help(&["generate", "fat-tree"], "help/generate-fat-tree.txt");
    help(&["generate", "leaf-spine"], "help/generate-leaf-spine.txt");
    help(&["generate", "grid"], "help/generate-grid.txt");
    help(&["generate", "dumbbell"], "help/generate-dumbbell.txt");
    help(&["generate", "waxman"], "help/generate-waxman.txt");
    help(&["generate", "graphml"], "help/generate-graphml.txt");
    help(&["kernel"], "help/kernel.txt");
    help(&["kernel", "build"], "help/kernel-build.txt");
    help(&["kernel", "list"], "help/kernel-list.txt");
    help(&["image"], "help/image.txt");
    help(&["image", "build"], "help/image-build.txt");
    help(&["image", "list"], "help/image-list.txt");
    help(&["image", "prune"], "help/image-prune.txt");
    help(&["syscalls"], "help/syscalls.txt");
    help(&["broker"], "help/broker.txt");
    help(&["doctor"], "help/doctor.txt");
    help(&["schema"], "help/schema.txt");
    help(&["gdb"], "help/gdb.txt");
    help(&["completions"], "help/completions.txt");
    help(&["man"], "help/man.txt");
}

#[test]
fn missing_file() {
    let home = folder();
    windtunnel(home.path())
        .args(["validate", "none.yaml"])
        .assert()
        .code(2)
        .stdout_eq("")
        .stderr_eq(
            r#"
error: cannot read none.yaml
  because: No such file or directory (os error 2)
"#,
        );
}

#[test]
fn validate_says_what_is_in_a_scenario_or_wrong_with_it() {
    let home = folder();
    net(home.path());
    windtunnel(home.path())
        .args(["validate", "net.yaml"])
        .assert()
        .success()
        .stdout_eq(
            r#"
net.yaml: valid; 2 nodes, 1 links, 0 processes, 0 events
"#,
        );
    std::fs::write(home.path().join("bad.yaml"), NET.replace("delay: 5ms", "delay: 5")).unwrap();
    let bad = windtunnel(home.path())
        .args(["validate", "bad.yaml"])
        .assert()
        .code(2)
        .stdout_eq("");
    let text = String::from_utf8_lossy(&bad.get_output().stderr).into_owned();
    assert!(
        text.starts_with("error: bad.yaml:9:") && text.contains("\nallowed: ") && text.contains("\nhint: "),
        "{text}"
    );

    let bad = windtunnel(home.path())
        .args(["validate", "--json", "bad.yaml"])
        .assert()
        .code(2)
        .stderr_eq("");
    let json: serde_json::Value = serde_json::from_slice(&bad.get_output().stdout).unwrap();
    assert_eq!(
        (json["valid"].as_bool(), json["errors"][0]["line"].as_u64()),
        (Some(false), Some(9))
    );
}

#[test]
fn kernel_not_built() {
    let home = folder();
    net(home.path());
    windtunnel(home.path())
        .args(["run", "net.yaml", "--out", "out"])
        .assert()
        .code(2)
        .stdout_eq("")
        .stderr_eq(
            r#"
error: kernel 6.12 is not built
  because: no current build in [..]/cache/kernels/6.12
hint: windtunnel kernel build --series 6.12
"#,
        );
    assert!(!home.path().join("out").exists());
    windtunnel(home.path())
        .args(["kernel", "list"])
        .assert()
        .success()
        .stdout_eq(
            r#"
6.12    6.12.[..]  missing    windtunnel kernel build --series 6.12
"#,
        );
}

#[test]
fn kernel_list_shows_the_current_build() {
    let home = folder();
    pretend_kernel(home.path());
    windtunnel(home.path())
        .args(["kernel", "list"])
        .assert()
        .success()
        .stdout_eq(
            r#"
6.12    6.12.[..]  built      [..]/cache/kernels/6.12/0123abcd/liblinux-6.12.so
"#,
        );
    let listed = windtunnel(home.path())
        .args(["kernel", "list", "--json"])
        .assert()
        .success();
    let json: serde_json::Value = serde_json::from_slice(&listed.get_output().stdout).unwrap();
    assert_eq!(
        (&json[0]["series"], &json[0]["current"]["hash"]),
        (&"6.12".into(), &"0123abcd".into())
    );
}

#[test]
fn output_folder_in_use_is_left_alone() {
    let home = folder();
    net(home.path());
    pretend_kernel(home.path());
    std::fs::create_dir(home.path().join("out")).unwrap();
    std::fs::write(home.path().join("out/mine"), "1").unwrap();
    windtunnel(home.path())
        .args(["run", "net.yaml", "--out", "out"])
        .assert()
        .code(2)
        .stderr_eq(
            r#"
error: output folder out is not empty
hint: name a new folder, or pass --force to replace the results of an earlier run
"#,
        );
    windtunnel(home.path())
        .args(["run", "net.yaml", "--out", "out", "--force"])
        .assert()
        .code(2)
        .stderr_eq(
            r#"
error: output folder out holds files that are not results of an earlier run (no manifest.json by windtunnel)
hint: --force replaces only what windtunnel wrote; name a new folder
"#,
        );
    assert_eq!(std::fs::read_to_string(home.path().join("out/mine")).unwrap(), "1");
}

#[test]
fn a_broken_kernel_image_is_named() {
    let home = folder();
    net(home.path());
    pretend_kernel(home.path());
    let run = windtunnel(home.path())
        .args(["run", "net.yaml", "--out", "out", "--json"])
        .assert()
        .code(2)
        .stdout_eq("");
    let text = String::from_utf8_lossy(&run.get_output().stderr).into_owned();
    assert!(text.contains("liblinux-6.12.so") && text.contains("hint: "), "{text}");
}

#[test]
fn kernel_dir_must_be_one() {
    let home = folder();
    windtunnel(home.path())
        .env("WINDTUNNEL_KERNEL_DIR", "/")
        .args(["kernel", "build"])
        .assert()
        .code(2)
        .stderr_eq(
            r#"
error: $WINDTUNNEL_KERNEL_DIR is /, which has no versions.toml
hint: it must name the folder kernel/ of a checkout
"#,
        );
}

#[test]
fn bad_arguments_say_what_is_allowed() {
    let home = folder();
    net(home.path());
    let run = windtunnel(home.path())
        .args(["run", "net.yaml", "--out", "out", "--stop", "5"])
        .assert()
        .code(2);
    let text = String::from_utf8_lossy(&run.get_output().stderr).into_owned();
    assert!(
        text.contains("the unit is missing") && text.contains("ns, us, ms"),
        "{text}"
    );
    windtunnel(home.path())
        .args(["kernel", "build", "--jobs", "0"])
        .assert()
        .code(2);
}

#[test]
fn doctor_and_syscalls_print_json() {
    let home = folder();
    let doctor = windtunnel(home.path()).args(["doctor", "--json"]).assert().code(2);
    let json: serde_json::Value = serde_json::from_slice(&doctor.get_output().stdout).unwrap();
    let checks = json["checks"].as_array().unwrap();
    let kernel = checks
        .iter()
        .find(|check| check["name"] == "library kernel 6.12")
        .unwrap();
    assert_eq!((&json["ok"], &kernel["state"]), (&false.into(), &"missing".into()));

    let calls = windtunnel(home.path()).args(["syscalls", "--json"]).assert().success();
    let rows: Vec<serde_json::Value> = serde_json::from_slice(&calls.get_output().stdout).unwrap();
    let mmap = rows.iter().find(|row| row["name"] == "mmap").unwrap();
    assert_eq!(mmap["nr"], 9);
    let numbers: Vec<u64> = rows.iter().filter_map(|row| row["nr"].as_u64()).collect();
    assert!(numbers.is_sorted() && numbers.len() == rows.len());
}

#[test]
fn schema_man_and_completions_come_out() {
    let home = folder();
    let schema = windtunnel(home.path()).arg("schema").assert().success();
    let json: serde_json::Value = serde_json::from_slice(&schema.get_output().stdout).unwrap();
    assert!(json["properties"]["nodes"].is_object());
    windtunnel(home.path()).args(["man", "--out", "man"]).assert().success();
    for page in ["windtunnel.1", "windtunnel-run.1", "windtunnel-kernel-build.1"] {
        assert!(home.path().join("man").join(page).is_file(), "{page}");
    }
    windtunnel(home.path()).args(["completions", "bash"]).assert().success();
}

#[test]
fn gdb_conditions_on_the_node_become_calls() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/windtunnel-gdb.py");
    let conditions = [
        r#"break main if $node == "h-2""#,
        r#"break main if $node != "h_2" && 1"#,
        "info breakpoints",
    ];
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-q", "-batch", "-x"]).arg(script);
    conditions.iter().for_each(|command| {
        gdb.args(["-ex", command]);
    });
    let Ok(output) = gdb.arg(PROGRAM).output() else {
        eprintln!("gdb is not installed: not checked");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("stop only if $_node_is_h_2() == 1\n"), "{output:?}");
    // The second name would make the same function name.
    assert!(
        text.contains("stop only if $_node_is_h_2_1() == 0 && 1\n"),
        "{output:?}"
    );
}
