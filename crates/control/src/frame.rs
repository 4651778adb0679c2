//! Frames of a connection: the length of the payload (4 bytes, big endian), the kind (1 byte), the payload. On a driver's
//! connection, which has several programs, the payload of input and output begins with the program's number (8 bytes, big
//! endian).

/// Longest payload, bytes: enough for any message, and little enough to be kept.
const PAYLOAD_MAX: usize = 16 << 20;
const HEAD_BYTES: usize = 5;
const NUMBER_BYTES: usize = 8;

/// Where output of a program comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stream {
    /// Standard output, or its terminal.
    Output,
    /// Standard error.
    Error,
}

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Kind `m`: a message in JSON.
    Message(Vec<u8>),
    /// Kind `i`: input for a program.
    Input(Vec<u8>),
    /// Kind `o` or `e`: output of a program.
    Output(Stream, Vec<u8>),
    /// Kind `I`: input for one of a driver's programs.
    InputFor(u64, Vec<u8>),
    /// Kind `O` or `E`: output of one of a driver's programs.
    OutputOf(u64, Stream, Vec<u8>),
}

/// What came is not a frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// An unknown kind.
    #[error("a frame has the unknown kind {0:#04x}")]
    Kind(u8),
    /// Longer than allowed.
    #[error("a frame is {0} bytes long; at most {PAYLOAD_MAX} are allowed")]
    Length(usize),
    /// Too short for a program's number.
    #[error("a frame of the kind {0:#04x} has no program number")]
    Number(u8),
    /// A message that is not understood.
    #[error("a message is not understood: {0}")]
    Message(String),
}

impl Frame {
    /// The frame as it is sent.
    pub fn to_bytes(&self) -> Vec<u8> {
        let (kind, number, payload) = match self {
            Self::Message(json) => (b'm', None, json),
            Self::Input(bytes) => (b'i', None, bytes),
            Self::Output(Stream::Output, bytes) => (b'o', None, bytes),
            Self::Output(Stream::Error, bytes) => (b'e', None, bytes),
            Self::InputFor(program, bytes) => (b'I', Some(program), bytes),
            Self::OutputOf(program, Stream::Output, bytes) => (b'O', Some(program), bytes),
            Self::OutputOf(program, Stream::Error, bytes) => (b'E', Some(program), bytes),
        };
        let length = payload.len() + number.map_or(0, |_| NUMBER_BYTES);
        let announced = u32::try_from(length).expect("senders split what is long");
        let mut bytes = Vec::with_capacity(HEAD_BYTES + length);
        bytes.extend_from_slice(&announced.to_be_bytes());
        bytes.push(kind);
        if let Some(number) = number {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        bytes.extend_from_slice(payload);
        bytes
    }

    /// A message as a frame.
    pub fn message(message: &impl serde::Serialize) -> Self {
        Self::Message(serde_json::to_vec(message).expect("string keys only"))
    }
}

/// Makes frames of the bytes of a connection, however they are cut.
#[derive(Debug, Default)]
pub struct Decoder {
    bytes: Vec<u8>,
}

impl Decoder {
    /// Adds what was read.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole frame.
    ///
    /// # Errors
    /// When there can be none any more.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let Some((head, rest)) = self.bytes.split_first_chunk::<HEAD_BYTES>() else {
            return Ok(None);
        };
        let [a, b, c, d, kind] = *head;
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        if length > PAYLOAD_MAX {
            return Err(FrameError::Length(length));
        }
        let Some(payload) = rest.get(..length) else {
            return Ok(None);
        };
        let numbered = || {
            let (number, bytes) = payload.split_first_chunk().ok_or(FrameError::Number(kind))?;
            Ok((u64::from_be_bytes(*number), bytes.to_vec()))
        };
        let of_program = |stream| numbered().map(|(program, bytes)| Frame::OutputOf(program, stream, bytes));
        let frame = match kind {
            b'I' => numbered().map(|(program, bytes)| Frame::InputFor(program, bytes))?,
            b'O' => of_program(Stream::Output)?,
            b'E' => of_program(Stream::Error)?,
            b'm' => Frame::Message(payload.to_vec()),
            b'i' => Frame::Input(payload.to_vec()),
            b'o' => Frame::Output(Stream::Output, payload.to_vec()),
            b'e' => Frame::Output(Stream::Error, payload.to_vec()),
            other => return Err(FrameError::Kind(other)),
        };
        self.bytes.drain(..HEAD_BYTES + length);
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frames() -> impl Strategy<Value = Frame> {
        let bytes = || proptest::collection::vec(any::<u8>(), 0..300);
        prop_oneof![
            bytes().prop_map(Frame::Message),
            bytes().prop_map(Frame::Input),
            bytes().prop_map(|bytes| Frame::Output(Stream::Output, bytes)),
            bytes().prop_map(|bytes| Frame::Output(Stream::Error, bytes)),
            (any::<u64>(), bytes()).prop_map(|(program, bytes)| Frame::InputFor(program, bytes)),
            (any::<u64>(), bytes()).prop_map(|(program, bytes)| Frame::OutputOf(program, Stream::Error, bytes)),
        ]
    }

    proptest! {
        /// Whatever the cuts, the same frames come out.
        #[test]
        fn frames_survive_any_cuts(sent in proptest::collection::vec(frames(), 0..8), cut in 1usize..64) {
            let bytes: Vec<u8> = sent.iter().flat_map(Frame::to_bytes).collect();
            let mut decoder = Decoder::default();
            let mut received = Vec::new();
            for piece in bytes.chunks(cut) {
                decoder.push(piece);
                while let Some(frame) = decoder.next_frame().unwrap() {
                    received.push(frame);
                }
            }
            prop_assert_eq!(received, sent);
        }
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        let mut decoder = Decoder::default();
        decoder.push(&[0, 0, 0, 0, b'?']);
        assert_eq!(decoder.next_frame(), Err(FrameError::Kind(b'?')));
        let mut decoder = Decoder::default();
        decoder.push(b"GET / HTTP/1.1\r\n");
        assert!(matches!(decoder.next_frame(), Err(FrameError::Length(_))));
        let mut decoder = Decoder::default();
        decoder.push(&[0, 0, 0, 1, b'I', 0]);
        assert_eq!(decoder.next_frame(), Err(FrameError::Number(b'I')));
    }
}
