//! SHA-256 of large contents, remembered from run to run.
//!
//! The manifest names the kernel and all programs by SHA-256, which for the same few files would cost every run more than a
//! dozen boots. A memo file maps (XXH3-128, length) of contents to their SHA-256: it goes by the bytes, which were
//! read anyway, and not by names or times, so it cannot be out of date. XXH3 does not resist an adversary, but whoever can
//! write the memo of a user can change the manifest as well. A memo that cannot be read or written is only slower.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock};

use sha2::{Digest, Sha256};
use twox_hash::xxhash3_128::Hasher as Xxh3;

/// Smaller contents are not worth a line, bytes.
const WORTH_BYTES: usize = 64 << 10;
/// Larger contents are not held in memory as a whole, bytes.
const PIECE_BYTES: usize = 1 << 20;
/// A larger memo is begun anew, bytes: nobody has that many programs, but some build one in every run.
const MEMO_MAX_BYTES: u64 = 1 << 20;

static MEMO: OnceLock<Memo> = OnceLock::new();

/// Keeps what [`sha256`] finds in `file` from now on, and takes what it holds. The first call counts.
pub fn remember_in(file: PathBuf) {
    MEMO.get_or_init(|| Memo::open(file));
}

/// SHA-256 of `bytes`.
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    match MEMO.get() {
        Some(memo) if bytes.len() >= WORTH_BYTES => memo.sha256(bytes),
        _ => Sha256::digest(bytes).into(),
    }
}

/// SHA-256 of all that `reader` gives from its start on, read in pieces.
///
/// # Errors
/// When it cannot be read.
pub fn sha256_of(reader: &mut (impl Read + Seek)) -> io::Result<[u8; 32]> {
    // Room for a byte more than there should be: most files are small, and clearing a whole piece costs more than they do.
    let room = reader.seek(SeekFrom::End(0))?.saturating_add(1);
    let mut piece = vec![0; room.min(PIECE_BYTES as u64) as usize];
    let mut filled = 0;
    reader.rewind()?;
    loop {
        match read(reader, &mut piece[filled..])? {
            // All of it, or more than fits.
            0 if filled < piece.len() => return Ok(sha256(&piece[..filled])),
            0 => break,
            count => filled += count,
        }
    }
    let mut xxh3 = Xxh3::default();
    let mut len = 0;
    each_piece(reader, &mut piece, |bytes| {
        xxh3.write(bytes);
        len += bytes.len() as u64;
    })?;
    let key = (xxh3.finish_128(), len);
    if let Some(known) = MEMO.get().and_then(|memo| memo.get(&key)) {
        return Ok(known);
    }
    let (mut whole, mut again) = (Sha256::new(), Xxh3::default());
    each_piece(reader, &mut piece, |bytes| {
        whole.update(bytes);
        again.write(bytes);
    })?;
    let hash = whole.finalize().into();
    // Unless it changed in between.
    if let Some(memo) = MEMO.get().filter(|_| again.finish_128() == key.0) {
        memo.learn(key, hash);
    }
    Ok(hash)
}

fn each_piece(reader: &mut (impl Read + Seek), piece: &mut [u8], mut work: impl FnMut(&[u8])) -> io::Result<()> {
    reader.rewind()?;
    loop {
        match read(reader, piece)? {
            0 => return Ok(()),
            count => work(&piece[..count]),
        }
    }
}

fn read(reader: &mut impl Read, piece: &mut [u8]) -> io::Result<usize> {
    loop {
        match reader.read(piece) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// XXH3-128 of `bytes`, which shows damage, but no malice.
pub fn checksum(bytes: &[u8]) -> u128 {
    Xxh3::oneshot(bytes)
}

/// Lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        write!(text, "{byte:02x}").expect("writing to a String");
    }
    text
}

/// XXH3-128 and length of contents.
type Key = (u128, u64);

#[derive(Debug)]
struct Memo {
    path: PathBuf,
    known: Mutex<BTreeMap<Key, [u8; 32]>>,
}

impl Memo {
    fn open(path: PathBuf) -> Self {
        let mut text = String::new();
        // Damaged from some byte on: the lines before that count.
        let _ = File::open(&path).and_then(|file| file.take(MEMO_MAX_BYTES + 1).read_to_string(&mut text));
        if text.len() as u64 > MEMO_MAX_BYTES {
            text.clear();
            let _ = std::fs::remove_file(&path);
        }
        Self {
            path,
            known: Mutex::new(text.split_inclusive('\n').filter_map(parse_line).collect()),
        }
    }

    fn sha256(&self, bytes: &[u8]) -> [u8; 32] {
        let key = (Xxh3::oneshot(bytes), bytes.len() as u64);
        self.get(&key).unwrap_or_else(|| {
            let sha256 = Sha256::digest(bytes).into();
            self.learn(key, sha256);
            sha256
        })
    }

    fn get(&self, key: &Key) -> Option<[u8; 32]> {
        self.lock().get(key).copied()
    }

    fn learn(&self, key: Key, sha256: [u8; 32]) {
        if self.lock().insert(key, sha256).is_some() {
            return;
        }
        // One write, so that lines of runs at the same time do not mix.
        let line = format_line(&key, &sha256);
        let file = OpenOptions::new().append(true).create(true).open(&self.path);
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, [u8; 32]>> {
        self.known.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

fn format_line((xxh3, len): &Key, sha256: &[u8; 32]) -> String {
    format!("{xxh3:032x} {len:016x} {}\n", hex(sha256))
}

/// The entry of a whole line; None for anything else.
fn parse_line(line: &str) -> Option<(Key, [u8; 32])> {
    let [xxh3, len, hex] = line.split(' ').collect::<Vec<_>>().try_into().ok()?;
    let hex = hex.strip_suffix('\n')?;
    let whole = (xxh3.len(), len.len(), hex.len()) == (32, 16, 64) && hex.is_ascii();
    if !whole {
        return None;
    }
    let mut sha256 = [0; 32];
    for (byte, at) in sha256.iter_mut().zip((0..64).step_by(2)) {
        *byte = u8::from_str_radix(&hex[at..at + 2], 16).ok()?;
    }
    let key = (u128::from_str_radix(xxh3, 16).ok()?, u64::from_str_radix(len, 16).ok()?);
    Some((key, sha256))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn direct(bytes: &[u8]) -> [u8; 32] {
        Sha256::digest(bytes).into()
    }

    #[test]
    fn a_memo_answers_like_sha256_and_outlives_its_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sha256");
        let contents = [vec![1; 100_000], vec![1; 100_001], vec![2; 100_000]];
        for _ in 0..2 {
            let memo = Memo::open(path.clone());
            for bytes in &contents {
                assert_eq!(memo.sha256(bytes), direct(bytes));
            }
        }
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), contents.len(), "{text}");
        assert_eq!(Memo::open(path).known.into_inner().unwrap().len(), contents.len());
    }

    #[test]
    fn a_file_is_hashed_as_its_bytes_are() {
        for len in [
            0,
            1,
            70_000,
            PIECE_BYTES - 1,
            PIECE_BYTES,
            PIECE_BYTES + 1,
            3 * PIECE_BYTES + 5,
        ] {
            let bytes: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            let mut file = io::Cursor::new(bytes.clone());
            file.set_position(7);
            assert_eq!(sha256_of(&mut file).unwrap(), direct(&bytes), "{len}");
        }
    }

    #[test]
    fn what_is_no_line_is_passed_over() {
        let key = (7, 9);
        let line = format_line(&key, &[0xab; 32]);
        assert_eq!(parse_line(&line), Some((key, [0xab; 32])));
        assert_eq!(parse_line(line.trim_end()), None, "cut off");
        assert_eq!(parse_line(&line.replace("ab", "xy")), None);
        assert_eq!(parse_line(&line[1..]), None);
        assert_eq!(parse_line(&format!("é{}", &line[2..])), None);

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sha256");
        std::fs::write(&path, format!("nonsense\n{line}half a li")).unwrap();
        let memo = Memo::open(path.clone());
        assert_eq!(memo.known.lock().unwrap().len(), 1);
        assert_eq!(memo.sha256(&[3; 70_000]), direct(&[3; 70_000]));
    }

    #[test]
    fn a_memo_nobody_can_write_only_takes_longer() {
        let memo = Memo::open(PathBuf::from("/nonexistent/sha256"));
        assert_eq!(memo.sha256(b"bytes"), direct(b"bytes"));
    }

    #[test]
    fn an_overlong_memo_is_begun_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sha256");
        let line = format_line(&(1, 2), &[3; 32]);
        std::fs::write(&path, line.repeat(MEMO_MAX_BYTES as usize / line.len() + 1)).unwrap();
        assert!(Memo::open(path.clone()).known.into_inner().unwrap().is_empty());
        assert!(!path.exists());
    }
}
