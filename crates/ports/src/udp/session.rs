//! What two UDP ports say to each other: datagrams in, frames and answers out. Knows no socket.
//!
//! | bytes | |
//! |---|---|
//! | 4 | `WTUP` |
//! | 1 | version of the protocol |
//! | 1 | kind: 1 hello, 2 frame |
//! | 1 | 1 if sealed, else 0 |
//! | 1 | 0 |
//! | 16 | session of the sender: random, new with every start |
//! | 8 | number, big endian: frames from 0, hellos from 2^63 |
//! | rest | the frame, or the hello; sealed: encrypted, and 16 bytes of authentication behind it |
//!
//! Sealed is by XChaCha20-Poly1305 with session and number as the nonce, which is never used twice, and the 32 bytes of header
//! authenticated as well. Frames are taken from a session only once it has proven to be alive by a hello that repeats our own session, so
//! that what was recorded from an earlier one is worth nothing; then each number is taken once.

use std::time::{Duration, Instant};

use chacha20poly1305::aead::{AeadInOut, KeyInit};
use chacha20poly1305::{Tag, XChaCha20Poly1305, XNonce};

use crate::{DropCause, FRAME_BYTES_MAX, FRAME_BYTES_MIN, PeerState};

/// The version of the protocol; datagrams of another one are not looked at.
pub(crate) const VERSION: u8 = 1;
/// Bytes before a frame, and behind one that is sealed.
pub(crate) const HEADER_BYTES: usize = 32;
pub(crate) const SEAL_BYTES: usize = 16;
/// A peer that has not been heard of for so long is gone.
pub(crate) const SILENCE: Duration = Duration::from_secs(5);

const MAGIC: [u8; 4] = *b"WTUP";
const HELLO: u8 = 1;
const FRAME: u8 = 2;
/// Hellos are numbered from here, so that gaps in the numbers of frames are lost frames.
const HELLOS_FROM: u64 = 1 << 63;
/// Longest name and version in a hello, bytes.
const TEXT_BYTES_MAX: usize = 64;
/// Answers to hellos of unknown sessions come at most so often.
const ANSWER_GAP: Duration = Duration::from_millis(20);

pub(crate) type SessionId = [u8; 16];

/// Which numbers have been seen: the highest, and those shortly before it.
#[derive(Debug, Default)]
struct Window {
    /// One above the highest number.
    end: u64,
    seen: [u64; 16],
}

impl Window {
    const NUMBERS: u64 = 16 * 64;

    /// Whether a number is new; it is not from then on. Those before the window may have been seen.
    fn take(&mut self, number: u64) -> bool {
        if number >= self.end {
            let skipped = number - self.end;
            if skipped >= Self::NUMBERS {
                self.seen = [0; 16];
            } else {
                (self.end..number).for_each(|skipped| self.set(skipped, false));
            }
            self.end = number + 1;
            self.set(number, true);
            return true;
        }
        let (word, bit) = Self::place(number);
        if self.end - number > Self::NUMBERS || self.seen[word] & bit != 0 {
            return false;
        }
        self.seen[word] |= bit;
        true
    }

    fn place(number: u64) -> (usize, u64) {
        ((number / 64 % 16) as usize, 1 << (number % 64))
    }

    fn set(&mut self, number: u64, seen: bool) {
        let (word, bit) = Self::place(number);
        if seen {
            self.seen[word] |= bit;
        } else {
            self.seen[word] &= !bit;
        }
    }
}

/// The other end, once it has proven to be alive.
#[derive(Debug)]
struct Peer {
    session: SessionId,
    frames: Window,
    hellos: Window,
    /// Frames that it had sent before it was known.
    before: u64,
    /// Frames that it has sent, as far as known.
    sent: u64,
    /// Those of them that arrived.
    arrived: u64,
    /// Frames of ours that it misses.
    missed: u64,
    name: String,
    version: String,
    seen: Instant,
}

impl Peer {
    fn lost(&self) -> u64 {
        (self.sent - self.before.min(self.sent)).saturating_sub(self.arrived)
    }
}

/// What a datagram was.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arrival<'a> {
    Frame(&'a [u8]),
    /// A hello, which is to be answered by one or not.
    Hello {
        answer: bool,
    },
}

/// Why a datagram was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Drop(DropCause),
    /// Of this version of the protocol.
    Version(u8),
}

impl From<DropCause> for Refusal {
    fn from(cause: DropCause) -> Self {
        Self::Drop(cause)
    }
}

/// One end.
pub(crate) struct Session {
    name: String,
    ours: SessionId,
    cipher: Option<XChaCha20Poly1305>,
    next_hello: u64,
    next_frame: u64,
    /// The session of the last hello.
    heard: SessionId,
    peer: Option<Peer>,
    /// What earlier sessions of the peer have lost.
    lost_before: u64,
    answered: Option<Instant>,
    alive: bool,
}

impl std::fmt::Debug for Session {
    /// Without the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

/// A hello, read.
struct Hello<'a> {
    echo: SessionId,
    sent: u64,
    missed: u64,
    name: &'a [u8],
    version: &'a [u8],
}

impl<'a> Hello<'a> {
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (echo, rest) = bytes.split_first_chunk::<16>()?;
        let (sent, rest) = rest.split_first_chunk::<8>()?;
        let (missed, rest) = rest.split_first_chunk::<8>()?;
        let text = |bytes: &'a [u8]| {
            let (length, rest) = bytes.split_first()?;
            let length = usize::from(*length);
            (length <= TEXT_BYTES_MAX && length <= rest.len()).then(|| rest.split_at(length))
        };
        let (name, rest) = text(rest)?;
        // What a later release may add is not looked at.
        let (version, _) = text(rest)?;
        Some(Self {
            echo: *echo,
            sent: u64::from_be_bytes(*sent).min(HELLOS_FROM),
            missed: u64::from_be_bytes(*missed),
            name,
            version,
        })
    }
}

/// Text from outside that may be shown to users.
fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().filter(|c| !c.is_control()).collect()
}

fn cut(text: &str) -> &[u8] {
    let end = (0..=TEXT_BYTES_MAX.min(text.len()))
        .rev()
        .find(|&at| text.is_char_boundary(at));
    &text.as_bytes()[..end.unwrap_or(0)]
}

impl Session {
    pub fn new(name: &str, ours: SessionId, key: Option<&[u8; 32]>) -> Self {
        Self {
            name: name.into(),
            ours,
            cipher: key.map(|key| XChaCha20Poly1305::new(key.into())),
            next_hello: HELLOS_FROM,
            next_frame: 0,
            heard: [0; 16],
            peer: None,
            lost_before: 0,
            answered: None,
            alive: false,
        }
    }

    /// The peer is there and takes frames.
    pub fn is_alive(&self) -> bool {
        self.alive
    }

    /// Looks whether the peer has been silent for too long; true if that has just come out.
    pub fn tick(&mut self, now: Instant) -> bool {
        let gone = self
            .peer
            .as_ref()
            .is_none_or(|peer| now.duration_since(peer.seen) > SILENCE);
        gone && std::mem::replace(&mut self.alive, false)
    }

    /// Frames of the peer that did not arrive.
    pub fn lost(&self) -> u64 {
        self.lost_before + self.peer.as_ref().map_or(0, Peer::lost)
    }

    pub fn state(&self, now: Instant) -> PeerState {
        let Some(peer) = &self.peer else {
            return PeerState::default();
        };
        PeerState {
            connected: self.alive,
            name: Some(peer.name.clone()),
            version: Some(peer.version.clone()),
            seen_ago: Some(now.duration_since(peer.seen)),
            lost_in: Some(self.lost()),
            lost_out: Some(peer.missed),
        }
    }

    /// Appends the datagram with a frame.
    pub fn pack_frame(&mut self, frame: &[u8], to: &mut Vec<u8>) {
        let number = self.next_frame;
        self.next_frame += 1;
        self.pack(FRAME, number, frame, to);
    }

    /// Appends the datagram with a hello.
    pub fn pack_hello(&mut self, version: &str, to: &mut Vec<u8>) {
        let mut body = Vec::with_capacity(128);
        body.extend(self.heard);
        body.extend(self.next_frame.to_be_bytes());
        body.extend(self.lost().to_be_bytes());
        for text in [cut(&self.name), cut(version)] {
            body.push(text.len() as u8);
            body.extend(text);
        }
        let number = self.next_hello;
        self.next_hello += 1;
        self.pack(HELLO, number, &body, to);
    }

    fn pack(&self, kind: u8, number: u64, body: &[u8], to: &mut Vec<u8>) {
        let start = to.len();
        to.extend(MAGIC);
        to.extend([VERSION, kind, u8::from(self.cipher.is_some()), 0]);
        to.extend(self.ours);
        to.extend(number.to_be_bytes());
        to.extend(body);
        if let Some(cipher) = &self.cipher {
            let (header, body) = to[start..].split_at_mut(HEADER_BYTES);
            // It fails for more than 256 GiB only, which no datagram has.
            if let Ok(tag) = cipher.encrypt_inout_detached(&nonce(header), header, body.into()) {
                to.extend(tag);
            }
        }
    }

    /// Looks at a datagram.
    pub fn take<'a>(&mut self, datagram: &'a mut [u8], now: Instant) -> Result<Arrival<'a>, Refusal> {
        let (header, body) = datagram
            .split_at_mut_checked(HEADER_BYTES)
            .ok_or(DropCause::InMalformed)?;
        let (magic, version, kind, sealed) = (&header[..4], header[4], header[5], header[6]);
        if magic != MAGIC {
            return Err(DropCause::InMalformed.into());
        }
        if version != VERSION {
            return Err(Refusal::Version(version));
        }
        let body = self.unseal(header, sealed, body)?;
        let session = SessionId::try_from(&header[8..24]).unwrap_or_default();
        let number = header[24..]
            .iter()
            .fold(0, |number, byte| number << 8 | u64::from(*byte));
        match kind {
            FRAME if number < HELLOS_FROM => Ok(Arrival::Frame(self.take_frame(session, number, body, now)?)),
            HELLO if number >= HELLOS_FROM => {
                let hello = Hello::parse(body).ok_or(DropCause::InMalformed)?;
                let answer = self.take_hello(session, number - HELLOS_FROM, &hello, now)?;
                Ok(Arrival::Hello { answer })
            }
            _ => Err(DropCause::InMalformed.into()),
        }
    }

    fn unseal<'a>(&self, header: &[u8], sealed: u8, body: &'a mut [u8]) -> Result<&'a [u8], DropCause> {
        let Some(cipher) = &self.cipher else {
            return if sealed == 0 {
                Ok(body)
            } else {
                Err(DropCause::InForged)
            };
        };
        let length = body.len().checked_sub(SEAL_BYTES).ok_or(DropCause::InForged)?;
        let (body, tag) = body.split_at_mut(length);
        let tag = Tag::try_from(&*tag).map_err(|_| DropCause::InForged)?;
        if sealed != 1 {
            return Err(DropCause::InForged);
        }
        let opened = cipher.decrypt_inout_detached(&nonce(header), header, (&mut *body).into(), &tag);
        opened.map(|()| &*body).map_err(|_| DropCause::InForged)
    }

    fn take_frame<'a>(
        &mut self,
        session: SessionId,
        number: u64,
        body: &'a [u8],
        now: Instant,
    ) -> Result<&'a [u8], DropCause> {
        let peer = self
            .peer
            .as_mut()
            .filter(|peer| peer.session == session)
            .ok_or(DropCause::InEarly)?;
        if !peer.frames.take(number) {
            return Err(DropCause::InReplayed);
        }
        (peer.seen, self.alive) = (now, true);
        peer.sent = peer.sent.max(number + 1);
        peer.arrived += u64::from(number >= peer.before);
        match body.len() {
            ..FRAME_BYTES_MIN => Err(DropCause::InMalformed),
            FRAME_BYTES_MIN..=FRAME_BYTES_MAX => Ok(body),
            _ => Err(DropCause::InTooLong),
        }
    }

    /// Whether to answer.
    fn take_hello(
        &mut self,
        session: SessionId,
        number: u64,
        hello: &Hello<'_>,
        now: Instant,
    ) -> Result<bool, DropCause> {
        let is_known = self.peer.as_ref().is_some_and(|peer| peer.session == session);
        if hello.echo != self.ours {
            // It may be an old one: only tell it who we are.
            self.heard = session;
            let due = self.answered.is_none_or(|last| now.duration_since(last) >= ANSWER_GAP);
            if due {
                self.answered = Some(now);
            }
            return Ok(due);
        }
        if !is_known {
            self.lost_before = self.lost();
            self.peer = Some(Peer {
                session,
                frames: Window::default(),
                hellos: Window::default(),
                before: hello.sent,
                sent: hello.sent,
                arrived: 0,
                missed: 0,
                name: String::new(),
                version: String::new(),
                seen: now,
            });
        }
        let Some(peer) = &mut self.peer else {
            return Err(DropCause::InEarly);
        };
        if !peer.hellos.take(number) {
            return Err(DropCause::InReplayed);
        }
        self.heard = session;
        self.alive = true;
        peer.seen = now;
        peer.sent = peer.sent.max(hello.sent);
        peer.missed = hello.missed;
        (peer.name, peer.version) = (shown(hello.name), shown(hello.version));
        Ok(!is_known)
    }
}

/// Session and number, which stand side by side.
fn nonce(header: &[u8]) -> XNonce {
    XNonce::try_from(&header[8..HEADER_BYTES]).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const KEY: [u8; 32] = [7; 32];

    fn hello(session: &mut Session) -> Vec<u8> {
        let mut datagram = Vec::new();
        session.pack_hello("0.1", &mut datagram);
        datagram
    }

    fn frame(session: &mut Session, bytes: &[u8]) -> Vec<u8> {
        let mut datagram = Vec::new();
        session.pack_frame(bytes, &mut datagram);
        datagram
    }

    fn give(to: &mut Session, datagram: &[u8]) -> Result<Option<Vec<u8>>, Refusal> {
        match to.take(&mut datagram.to_vec(), Instant::now())? {
            Arrival::Frame(frame) => Ok(Some(frame.to_vec())),
            Arrival::Hello { .. } => Ok(None),
        }
    }

    fn pair(key: Option<&[u8; 32]>) -> (Session, Session) {
        let (mut one, mut other) = (Session::new("one", [1; 16], key), Session::new("other", [2; 16], key));
        give(&mut other, &hello(&mut one)).unwrap();
        give(&mut one, &hello(&mut other)).unwrap();
        give(&mut other, &hello(&mut one)).unwrap();
        assert!(one.is_alive() && other.is_alive());
        (one, other)
    }

    #[test]
    fn two_ends_greet_and_then_frames_pass_once() {
        for key in [None, Some(&KEY)] {
            let (mut one, mut other) = pair(key);
            let datagram = frame(&mut one, &[5; 60]);
            assert_eq!(datagram.len(), HEADER_BYTES + 60 + key.map_or(0, |_| SEAL_BYTES));
            assert_eq!(give(&mut other, &datagram), Ok(Some(vec![5; 60])));
            assert_eq!(give(&mut other, &datagram), Err(DropCause::InReplayed.into()));
            let state = other.state(Instant::now());
            assert_eq!(
                (state.name.as_deref(), state.version.as_deref()),
                (Some("one"), Some("0.1"))
            );
        }
    }

    #[test]
    fn a_recorded_session_cannot_come_back() {
        let (mut one, _) = pair(Some(&KEY));
        let recorded = [hello(&mut one), frame(&mut one, &[5; 60])];
        // The receiver starts again, with another session.
        let mut other = Session::new("other", [3; 16], Some(&KEY));
        for datagram in &recorded {
            let _ = give(&mut other, datagram);
        }
        assert!(!other.is_alive());
        assert_eq!(give(&mut other, &recorded[1]), Err(DropCause::InEarly.into()));
        // The real one is known again after it has heard of the new session.
        give(&mut one, &hello(&mut other)).unwrap();
        give(&mut other, &hello(&mut one)).unwrap();
        assert!(other.is_alive());
        assert!(give(&mut other, &frame(&mut one, &[6; 60])).unwrap().is_some());
    }

    #[test]
    fn lost_frames_are_counted_at_both_ends() {
        let (mut one, mut other) = pair(None);
        let datagrams: Vec<_> = (0..10).map(|_| frame(&mut one, &[0; 60])).collect();
        for number in [0, 1, 5, 3] {
            give(&mut other, &datagrams[number]).unwrap();
        }
        assert_eq!(other.lost(), 2);
        // The hello says how many there were.
        give(&mut other, &hello(&mut one)).unwrap();
        assert_eq!(other.lost(), 6);
        give(&mut one, &hello(&mut other)).unwrap();
        assert_eq!(one.state(Instant::now()).lost_out, Some(6));
        give(&mut other, &datagrams[9]).unwrap();
        assert_eq!(other.lost(), 5);
    }

    #[test]
    fn what_is_not_sealed_with_the_key_is_refused() {
        let (mut one, mut other) = pair(Some(&KEY));
        let mut plain = Session::new("plain", [9; 16], None);
        let mut wrong = Session::new("wrong", [9; 16], Some(&[8; 32]));
        for datagram in [frame(&mut plain, &[0; 60]), hello(&mut plain), hello(&mut wrong)] {
            assert_eq!(give(&mut other, &datagram), Err(DropCause::InForged.into()));
        }
        assert_eq!(give(&mut plain, &hello(&mut one)), Err(DropCause::InForged.into()));
        // Every bit counts, also those of the header.
        let datagram = frame(&mut one, &[5; 20]);
        for bit in 0..datagram.len() * 8 {
            let mut damaged = datagram.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(give(&mut other, &damaged).is_err(), "bit {bit}");
        }
        assert!(give(&mut other, &datagram).is_ok());
    }

    #[test]
    fn another_version_is_named() {
        let (mut one, mut other) = pair(None);
        let mut datagram = frame(&mut one, &[5; 60]);
        datagram[4] = 2;
        assert_eq!(give(&mut other, &datagram), Err(Refusal::Version(2)));
    }

    #[test]
    fn silence_is_noticed_once() {
        let (mut one, mut other) = pair(None);
        let later = Instant::now() + SILENCE + Duration::from_secs(1);
        assert!(one.tick(later) && !one.tick(later) && !one.is_alive());
        give(&mut one, &hello(&mut other)).unwrap();
        assert!(one.is_alive());
    }

    #[test]
    fn text_from_outside_is_shown_without_control_characters() {
        assert_eq!(shown(b"a\x1b[31mb\n\xff"), "a[31mb\u{fffd}");
        assert_eq!(cut(&"ä".repeat(40)).len(), 64);
        assert_eq!(cut(&format!("a{}", "ä".repeat(40))).len(), 63);
    }

    proptest! {
        /// The window against a list of everything seen.
        #[test]
        fn numbers_are_taken_once(steps in vec((any::<bool>(), 0_u64..3000), 1..300)) {
            let (mut window, mut seen, mut end) = (Window::default(), std::collections::BTreeSet::new(), 0);
            for (back, by) in steps {
                let number = if back { end_minus(end, by) } else { end + by / 4 };
                let fresh = !seen.contains(&number) && number + Window::NUMBERS >= end;
                prop_assert_eq!(window.take(number), fresh);
                if fresh {
                    seen.insert(number);
                    end = end.max(number + 1);
                }
            }
        }

        #[test]
        fn any_bytes_do_no_harm(mut bytes in vec(any::<u8>(), 0..200), kind in 0_u8..4, sealed in 0_u8..2) {
            let (_, mut other) = pair(None);
            if bytes.len() > 8 {
                bytes[..4].copy_from_slice(&MAGIC);
                bytes[4..8].copy_from_slice(&[VERSION, kind, sealed, 0]);
            }
            if bytes.len() > 24 {
                bytes[8..24].copy_from_slice(&[1; 16]);
            }
            if bytes.len() > 48 && kind == HELLO {
                bytes[24] |= 0x80;
                bytes[32..48].copy_from_slice(&[2; 16]);
            }
            let _ = other.take(&mut bytes, Instant::now());
            let _ = (other.lost(), other.state(Instant::now()));
        }
    }

    fn end_minus(end: u64, by: u64) -> u64 {
        end.saturating_sub(by)
    }
}
