//! Hashes all code that decides what is patched into images, so that two versions of it never share what they keep in the
//! cache folder (`src/kept.rs`).

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

/// This crate, the boundary whose numbers stand in trampolines, and the versions of the libraries that decode.
const SOURCES: [&str; 3] = ["src", "../kernel/src", "../../Cargo.lock"];

fn main() {
    let mut files = Vec::new();
    for source in SOURCES {
        println!("cargo:rerun-if-changed={source}");
        collect(Path::new(source), &mut files);
    }
    files.sort();
    let mut hasher = DefaultHasher::new();
    for file in &files {
        let bytes = fs::read(file).unwrap_or_else(|error| panic!("cannot read {}: {error}", file.display()));
        (file, bytes).hash(&mut hasher);
    }
    println!("cargo:rustc-env=WINDTUNNEL_ANALYSIS={:016x}", hasher.finish());
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) {
    if path.is_file() {
        files.push(path.to_owned());
        return;
    }
    let entries = fs::read_dir(path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
    for entry in entries {
        let entry = entry.unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
        collect(&entry.path(), files);
    }
}
