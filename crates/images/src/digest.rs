//! SHA-256 of what is read.

use std::io::{self, Read};

use sha2::{Digest, Sha256};

use crate::error::ImageError;

/// Computes the SHA-256 of all that passes through it.
#[derive(Debug)]
pub(crate) struct Hashing<R> {
    inner: R,
    hash: Sha256,
}

impl<R: Read> Hashing<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self {
            inner,
            hash: Sha256::new(),
        }
    }

    /// Reads what is left, and says the digest of everything.
    pub(crate) fn finish(mut self) -> io::Result<String> {
        io::copy(&mut self, &mut io::sink())?;
        Ok(hex(&self.hash.finalize()))
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.hash.update(&buffer[..count]);
        Ok(count)
    }
}

/// Digest in lower-case hexadecimal.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The hexadecimal part of `sha256:...`.
pub(crate) fn parse(digest: &str) -> Result<&str, ImageError> {
    let hex = digest.strip_prefix("sha256:").filter(|hex| is_hex(hex));
    hex.ok_or_else(|| {
        ImageError::format(format!(
            "`{digest}` is not a SHA-256 digest, the only kind that is read"
        ))
    })
}

/// Whether `text` is a SHA-256 in lower-case hexadecimal.
pub(crate) fn is_hex(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'))
}

/// Compares; `what` names the part.
pub(crate) fn expect(what: &str, expected: &str, found: String) -> Result<(), ImageError> {
    if expected == found {
        return Ok(());
    }
    Err(ImageError::Digest {
        what: what.into(),
        expected: expected.into(),
        found,
    })
}
