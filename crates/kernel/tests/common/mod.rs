//! A pretended kernel image, and a host that notes what it is asked.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use windtunnel_kernel::{BootConfig, Host, Image, NicConfig, NicModel, VectorState, Verdict, abi};

/// Also used by the tests of the process crate, beside this one.
const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../kernel/tests/common");
const INCLUDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernel/include");

/// Compiles the pretended kernel with more compiler arguments, and opens it.
///
/// # Panics
/// Without a C compiler: it is one of the build requirements.
pub fn try_image(more: &[&str]) -> Result<Arc<Image>, windtunnel_kernel::ImageError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fake_kernel.so");
    compile(&path, more);
    let image = Image::open(&path)?;
    // The folder goes away, and with it the file that names for reports come from.
    assert!(image.symbols().is_some());
    Ok(image)
}

/// As [`try_image`], linked as the real kernel is.
pub fn image() -> Arc<Image> {
    try_image(&["-Wl,-z,pack-relative-relocs"]).unwrap()
}

fn compile(path: &Path, more: &[&str]) {
    let compiled = Command::new("cc")
        .args([
            "-shared",
            "-fPIC",
            "-O1",
            "-nostdlib",
            "-ffreestanding",
            "-fvisibility=hidden",
            "-fno-stack-protector",
        ])
        .args([
            "-fno-omit-frame-pointer",
            "-fno-optimize-sibling-calls",
            "-fno-asynchronous-unwind-tables",
            "-Wall",
        ])
        .args([
            "-Werror",
            "-Wl,-Bsymbolic",
            "-Wl,-z,norelro",
            "-Wl,-z,text",
            "-I",
            INCLUDE,
            "-o",
        ])
        .arg(path)
        .arg(format!("{HERE}/fake_kernel.c"))
        .args(more)
        .output()
        .expect("`cc` runs: a C compiler is needed to build kernels anyway");
    assert!(
        compiled.status.success(),
        "{}",
        String::from_utf8_lossy(&compiled.stderr)
    );
}

/// Boot arguments with addresses no other test of this process uses.
pub fn config(cmdline: &str) -> BootConfig {
    static NEXT: AtomicU64 = AtomicU64::new(0x1000_0000_0000);
    let region = NEXT.fetch_add(1 << 32, Ordering::Relaxed);
    let nic = |number: u8| NicConfig {
        name: format!("eth{number}"),
        mac: [2, 0, 0, 0, 0, number],
        mtu: 1500,
        ring: 0,
        speed_mbps: 1000,
        model: NicModel::default(),
    };
    BootConfig {
        base: region + 37 * 4096,
        ram_base: region + (1 << 30) + 61 * 4096,
        ram_bytes: 16 << 20,
        seed: [7; 32],
        epoch_s: 1_767_225_600,
        booted_s: 0,
        cmdline: std::ffi::CString::new(cmdline).unwrap(),
        nics: vec![nic(0), nic(1)],
        quantum_calls: 32,
        quantum_ns: 100,
        cpu: abi::Cpu::default(),
        vector_state: VectorState::FXSAVE_ONLY,
    }
}

/// What the kernel said and did.
#[derive(Debug, Default)]
pub struct Notes {
    pub console: Vec<String>,
    pub panics: Vec<String>,
    pub events: Vec<(u32, u64, u64, u64)>,
}

impl Host for Notes {
    fn console(&mut self, text: &[u8]) {
        self.console.push(String::from_utf8_lossy(text).into_owned());
    }
    fn panic(&mut self, text: &[u8]) {
        self.panics.push(String::from_utf8_lossy(text).into_owned());
    }
    fn as_create(&mut self) -> i64 {
        panic!("no address spaces here");
    }
    fn as_fork(&mut self, _: u64) -> i64 {
        -38
    }
    fn as_destroy(&mut self, _: u64) {}
    fn as_activate(&mut self, _: u64) {}
    fn exec_map(&mut self, _: u64, _: &mut abi::Exec) -> i64 {
        -38
    }
    fn mem_call(&mut self, _: u64, _: u32, _: &[u64; 6], _: u64) -> i64 {
        -38
    }
    fn as_key(&mut self, _: u64, _: u64, _: bool, _: &mut abi::MemKey) -> i64 {
        -14
    }
    fn instruction(&mut self, _: u64, _: &mut abi::Regs) -> i64 {
        0
    }

    fn look(&mut self, _: u64, _: &mut abi::Look, _: u64) -> Verdict {
        Verdict::Runs
    }
    fn fs_writers(&mut self, _: u64) -> i64 {
        -9
    }
    fn fs_lookup(&mut self, _: u64, _: &[u8], _: &mut abi::FsAttr) -> i64 {
        -2
    }
    fn fs_readdir(&mut self, _: u64, _: u64, _: &mut abi::FsDirent) -> i64 {
        0
    }
    fn fs_readlink(&mut self, _: u64, _: &mut [u8]) -> i64 {
        -2
    }
    fn fs_open(&mut self, _: u64) -> i64 {
        -2
    }
    fn fs_create(&mut self, _: u64, _: u64) -> i64 {
        -28
    }
    fn fs_read(&mut self, _: u64, _: *mut u8, _: u64, _: u64) -> i64 {
        -9
    }
    fn fs_write(&mut self, _: u64, _: *const u8, _: u64, _: u64) -> i64 {
        -9
    }
    fn fs_truncate(&mut self, _: u64, _: u64) -> i64 {
        -9
    }
    fn fs_size(&mut self, _: u64) -> i64 {
        -9
    }
    fn fs_release(&mut self, _: u64) {}
    fn proc_event(&mut self, event: u32, key: u64, a: u64, b: u64) {
        self.events.push((event, key, a, b));
    }
    fn unsupported(&mut self, _: u32, _: u64, _: &[u8]) {}
    fn as_read(&mut self, _: u64, _: u64, _: *mut u8, _: u64) -> i64 {
        0
    }
    fn as_write(&mut self, _: u64, _: u64, _: *const u8, _: u64) -> i64 {
        0
    }
    fn as_map(&mut self, _: u64, _: u64, _: &mut abi::Map) -> i64 {
        0
    }
    fn fs_name(&mut self, _: u64, _: &windtunnel_kernel::FileName<'_>) {}
    fn fs_seek(&mut self, _: u64, _: u64, _: u32) -> i64 {
        -9
    }
    fn fs_punch(&mut self, _: u64, _: u64, _: u64) -> i64 {
        -9
    }
    fn fs_storage(&mut self, _: u64) -> i64 {
        -9
    }
}
