//! Reads what may be compressed by gzip, zstd or xz; which one, its first bytes say.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// Of buffers, bytes.
const BUFFER_BYTES: usize = 256 << 10;
/// Largest window of zstd that is read, bytes: what `zstd --ultra` uses without `--long`.
const WINDOW_MAX: u64 = 128 << 20;

/// How bytes are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    None,
    Gzip,
    Zstd,
    Xz,
}

impl Compression {
    /// Of something that begins with `head`.
    pub(crate) fn of(head: &[u8]) -> Self {
        match head {
            [0x1f, 0x8b, ..] => Self::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Self::Zstd,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Self::Xz,
            _ => Self::None,
        }
    }
}

/// The plain bytes of `source`. `scratch` gives a file without name, which xz needs.
pub(crate) fn plain<'a>(
    source: impl Read + 'a,
    scratch: &dyn Fn() -> io::Result<File>,
) -> io::Result<Box<dyn Read + 'a>> {
    let mut source = BufReader::with_capacity(BUFFER_BYTES, source);
    Ok(match Compression::of(source.fill_buf()?) {
        Compression::None => Box::new(source),
        Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(source)),
        Compression::Zstd => Box::new(ZstdFrames::new(source)),
        Compression::Xz => {
            let mut file = scratch()?;
            let decoded = lzma_rs::xz_decompress(&mut source, &mut io::BufWriter::new(&mut file));
            decoded.map_err(|error| invalid(format!("its xz data is damaged: {error:?}")))?;
            file.flush()?;
            file.seek(SeekFrom::Start(0))?;
            Box::new(BufReader::with_capacity(BUFFER_BYTES, file))
        }
    })
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// All frames of a zstd stream; the decoder itself knows one.
struct ZstdFrames<R: BufRead> {
    source: R,
    decoder: FrameDecoder,
    in_frame: bool,
}

impl<R: BufRead> ZstdFrames<R> {
    fn new(source: R) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(WINDOW_MAX);
        Self {
            source,
            decoder,
            in_frame: false,
        }
    }

    /// Begins the next frame; false: there is none.
    fn next_frame(&mut self) -> io::Result<bool> {
        while !self.source.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                    let length = u64::from(length);
                    if io::copy(&mut (&mut self.source).take(length), &mut io::sink())? != length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(invalid(format!("its zstd data is damaged: {error}"))),
            }
        }
        Ok(false)
    }

    fn check_frame(&self) -> io::Result<()> {
        let stored = self.decoder.get_checksum_from_data();
        if stored.is_some() && stored != self.decoder.get_calculated_checksum() {
            return Err(invalid("its zstd data is damaged: a checksum differs".into()));
        }
        Ok(())
    }
}

impl<R: BufRead> Read for ZstdFrames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while !buffer.is_empty() {
            if !self.in_frame {
                if !self.next_frame()? {
                    return Ok(0);
                }
                self.in_frame = true;
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let step = BlockDecodingStrategy::UptoBlocks(1);
                let decoded = self.decoder.decode_blocks(&mut self.source, step);
                decoded.map_err(|error| invalid(format!("its zstd data is damaged: {error}")))?;
            }
            let count = self.decoder.read(buffer)?;
            if count > 0 {
                return Ok(count);
            }
            self.check_frame()?;
            self.in_frame = false;
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        plain(bytes, &tempfile::tempfile)?.read_to_end(&mut all)?;
        Ok(all)
    }

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn all_parts_of_a_stream_are_read() {
        let (one, two) = ([7; 300_000], *b"the end");
        let both = [&one[..], &two[..]].concat();
        // As builders of images write it: frames one after the other, with some that hold notes of theirs.
        let note = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
        let frames = [note.clone(), zstd(&one), note.clone(), zstd(&two), note].concat();
        assert_eq!(read(&frames).unwrap(), both);
        assert_eq!(read(&[gzip(&one), gzip(&two)].concat()).unwrap(), both);
        let mut xz = Vec::new();
        lzma_rs::xz_compress(&mut &both[..], &mut xz).unwrap();
        assert_eq!(read(&xz).unwrap(), both);
        assert_eq!(read(&both).unwrap(), both);
        assert_eq!(read(b"").unwrap(), b"");
    }

    #[test]
    fn what_is_cut_off_or_changed_is_an_error() {
        let text: Vec<u8> = (0..100_000_u32).flat_map(|n| n.wrapping_mul(n).to_le_bytes()).collect();
        for whole in [zstd(&text), gzip(&text)] {
            assert_eq!(read(&whole).unwrap(), text);
            assert!(read(&whole[..whole.len() - 9]).is_err());
            let mut changed = whole.clone();
            changed[whole.len() / 2] ^= 0x10;
            assert!(read(&changed).map_or(true, |found| found != text));
        }
    }
}
