//! Contents in memory behave as a file of Linux's tmpfs does, wherever they are kept.

use std::os::fd::AsRawFd;

use proptest::prelude::*;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::pwrite;

use super::*;
use crate::sys::PAGE;

fn budget() -> FdBudget {
    FdBudget::with_limits(8, 1 << 20).unwrap()
}

fn is_small(content: &Content) -> bool {
    matches!(&*content.state.lock().unwrap(), State::Small(_))
}

/// Writes the engine's own bytes, as a program would.
fn write(content: &Content, budget: &FdBudget, bytes: &[u8], offset: u64) -> Result<u64, Errno> {
    content.write(budget, bytes.as_ptr() as u64, bytes.len() as u64, offset)
}

#[test]
fn a_copy_has_the_wanted_size_and_leaves_the_source() {
    let budget = budget();
    let source = Content::fixed("/x", b"hello", &budget).unwrap();
    let copy = source.copy(&budget, 3).unwrap();
    assert_eq!(copy.bytes(&budget).unwrap(), b"hel");
    assert_eq!(source.copy(&budget, 7).unwrap().bytes(&budget).unwrap(), b"hello\0\0");
    let large = source.copy(&budget, SLOT + 1).unwrap().bytes(&budget).unwrap();
    assert_eq!((&large[..6], large.len()), (&b"hello\0"[..], SLOT as usize + 1));
    copy.truncate(&budget, 1).unwrap();
    assert_eq!(source.bytes(&budget).unwrap(), b"hello");
    assert_eq!(source.truncate(&budget, 1), Err(Errno::BADF));
    assert_eq!(source.punch(&budget, 0, 1), Err(Errno::BADF));
    assert_eq!(write(&source, &budget, b"x", 0), Err(Errno::BADF));
}

#[test]
fn a_bad_address_is_an_error_and_changes_nothing() {
    let budget = budget();
    let content = Content::memory("/x", true, &budget).unwrap();
    write(&content, &budget, b"abc", 0).unwrap();
    assert_eq!(content.read(&budget, 0x10, 3, 0), Err(Errno::FAULT));
    assert_eq!(content.write(&budget, 0x10, 3, 1), Err(Errno::FAULT));
    assert_eq!(content.bytes(&budget).unwrap(), b"abc");
    assert_eq!(
        content.read(&budget, 0x10, 3, 3),
        Ok(0),
        "there is nothing to be written"
    );
}

#[test]
fn a_small_file_gets_a_memory_file_of_its_own_only_when_it_is_mapped_or_grows() {
    let budget = budget();
    let fill = |content: &Content| {
        write(content, &budget, b"abc", 0).unwrap();
        write(content, &budget, b"def", 5 * PAGE).unwrap();
    };
    let check = |content: &Content, size| {
        assert!(!is_small(content));
        assert_eq!(content.size(&budget), Ok(size));
        assert_eq!(content.storage(&budget).map(|bytes| bytes >= 2 * PAGE), Ok(true));
        assert_eq!(content.seek(&budget, 0, SEEK_HOLE), Ok(PAGE));
        assert_eq!(content.seek(&budget, PAGE, SEEK_DATA), Ok(5 * PAGE));
        assert_eq!(&content.bytes(&budget).unwrap()[..4], b"abc\0");
    };
    let written = Content::memory("/written", true, &budget).unwrap();
    fill(&written);
    write(&written, &budget, b"x", SLOT - 1).unwrap();
    assert!(is_small(&written));
    write(&written, &budget, b"x", SLOT).unwrap();
    check(&written, SLOT + 1);
    let longer = Content::memory("/longer", true, &budget).unwrap();
    fill(&longer);
    longer.truncate(&budget, SLOT + 1).unwrap();
    check(&longer, SLOT + 1);
    let mapped = Content::memory("/mapped", true, &budget).unwrap();
    fill(&mapped);
    // What is written to the file shows in the mapping from now on.
    let fd = mapped.with_backing(&budget, PAGE, PAGE, |fd, offset| Ok((fd.as_raw_fd(), offset)));
    assert!(fd.is_ok_and(|(_, offset)| offset == PAGE));
    check(&mapped, 5 * PAGE + 3);
}

#[test]
fn thousands_of_small_files_take_no_descriptors() {
    let budget = budget();
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = open();
    let files: Vec<_> = (0..5000)
        .map(|number: u32| {
            let content = Content::memory("/x", true, &budget).unwrap();
            write(&content, &budget, &number.to_le_bytes(), 0).unwrap();
            content
        })
        .collect();
    // Other tests run at the same time.
    assert!(open() < before + 1000);
    for (number, file) in (0_u32..).zip(&files) {
        assert!(is_small(file));
        assert_eq!(file.bytes(&budget).unwrap(), number.to_le_bytes());
    }
}

/// A change of a file.
#[derive(Clone, Debug)]
enum Step {
    Write { offset: u64, len: u64, value: u8 },
    Truncate(u64),
    Punch { offset: u64, len: u64 },
    Map,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let offset = 0..SLOT + PAGE;
    let len = prop_oneof![1..10_u64, 1..3 * PAGE, Just(PAGE)];
    let near = prop_oneof![offset.clone(), (0..65_u64).prop_map(|page| page * PAGE)];
    prop::collection::vec(
        prop_oneof![
            6 => (near.clone(), len.clone(), 1..255_u8).prop_map(|(offset, len, value)| Step::Write { offset, len, value }),
            3 => near.clone().prop_map(Step::Truncate),
            3 => (near, prop_oneof![len, 1..SLOT]).prop_map(|(offset, len)| Step::Punch { offset, len }),
            1 => Just(Step::Map),
        ],
        1..30,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// A content and a memory file of the host's go through the same, and are the same.
    #[test]
    fn it_is_as_a_memory_file_after_whatever_happens_to_it(steps in steps()) {
        let budget = budget();
        let content = Content::memory("/x", true, &budget).unwrap();
        let model = memfd_create("model", MemfdFlags::CLOEXEC).unwrap();
        for step in steps {
            match step {
                Step::Write { offset, len, value } => {
                    let bytes = vec![value; len as usize];
                    prop_assert_eq!(write(&content, &budget, &bytes, offset), Ok(len));
                    pwrite(&model, &bytes, offset).unwrap();
                }
                Step::Truncate(size) => {
                    content.truncate(&budget, size).unwrap();
                    ftruncate(&model, size).unwrap();
                }
                Step::Punch { offset, len } => {
                    content.punch(&budget, offset, len).unwrap();
                    fallocate(&model, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, len).unwrap();
                }
                Step::Map => content.with_backing(&budget, 0, PAGE, |_, _| Ok(())).unwrap(),
            }
            let stat = fstat(&model).unwrap();
            prop_assert_eq!(content.size(&budget), Ok(stat.st_size as u64));
            prop_assert_eq!(content.storage(&budget), Ok(stat.st_blocks as u64 * BLOCK));
            let mut bytes = vec![0; stat.st_size as usize];
            pread(&model, &mut bytes, 0).unwrap();
            prop_assert!(content.bytes(&budget).unwrap() == bytes);
            for offset in (0..SLOT + 2 * PAGE).step_by(PAGE as usize - 1) {
                prop_assert_eq!(content.seek(&budget, offset, SEEK_DATA), seek(&model, SeekFrom::Data(offset)));
                prop_assert_eq!(content.seek(&budget, offset, SEEK_HOLE), seek(&model, SeekFrom::Hole(offset)));
            }
        }
        prop_assert_eq!(content.seek(&budget, 0, 0), Err(Errno::INVAL));
    }
}
