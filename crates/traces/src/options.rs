//! Options of TCP, and what is compared of them.

/// Kinds of options (IANA's registry of TCP parameters).
mod kind {
    pub const END: u8 = 0;
    pub const NOP: u8 = 1;
    pub const MSS: u8 = 2;
    pub const WINDOW_SCALE: u8 = 3;
    pub const SACK_PERMITTED: u8 = 4;
    pub const SACK: u8 = 5;
    pub const TIMESTAMPS: u8 = 8;
}

/// The largest shift of windows (RFC 7323, 2.3).
const SHIFT_MAX: u8 = 14;

/// Options of one segment. Their order and padding are not kept: they are of no consequence.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Largest segment that the sender takes, bytes.
    pub mss: Option<u16>,
    /// Windows of the sender are shifted by so much.
    pub window_scale: Option<u8>,
    /// The sender takes selective acknowledgements.
    pub sack_permitted: bool,
    /// Selectively acknowledged: first byte, and the one after the last.
    pub sack: Vec<(u32, u32)>,
    /// All others but time stamps: kind and contents.
    pub others: Vec<(u8, Vec<u8>)>,
    /// They end amid an option.
    pub damaged: bool,
}

/// The next option: its kind, and where its contents lie. None: there is none; an error: it does not fit.
fn next(bytes: &[u8], at: &mut usize) -> Result<Option<(u8, std::ops::Range<usize>)>, ()> {
    loop {
        match bytes.get(*at..).unwrap_or_default() {
            [] | [kind::END, ..] => return Ok(None),
            [kind::NOP, ..] => *at += 1,
            [kind, length, rest @ ..] if (2..=rest.len() + 2).contains(&usize::from(*length)) => {
                let start = *at + 2;
                *at += usize::from(*length);
                return Ok(Some((*kind, start..*at)));
            }
            _ => return Err(()),
        }
    }
}

/// Where the values of the time stamps option start: the sender's, and the one that it echoes.
pub fn timestamps_at(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Ok(Some((kind, body))) = next(bytes, &mut at) {
        if kind == kind::TIMESTAMPS && body.len() == 8 {
            return Some(body.start);
        }
    }
    None
}

/// Takes options apart.
pub fn parse(bytes: &[u8]) -> Options {
    let (mut options, mut at) = (Options::default(), 0);
    loop {
        match next(bytes, &mut at) {
            Ok(Some((kind, body))) => options.add(kind, &bytes[body]),
            Ok(None) => return options,
            Err(()) => {
                options.damaged = true;
                return options;
            }
        }
    }
}

impl Options {
    fn add(&mut self, kind: u8, body: &[u8]) {
        let number = |at: usize| u32::from_be_bytes(body[at..at + 4].try_into().expect("four bytes"));
        match (kind, body) {
            (kind::MSS, [a, b]) => self.mss = Some(u16::from_be_bytes([*a, *b])),
            (kind::WINDOW_SCALE, [shift]) => self.window_scale = Some((*shift).min(SHIFT_MAX)),
            (kind::SACK_PERMITTED, []) => self.sack_permitted = true,
            (kind::SACK, _) if body.len().is_multiple_of(8) => {
                let starts = (0..body.len()).step_by(8);
                self.sack.extend(starts.map(|at| (number(at), number(at + 4))));
            }
            (kind::TIMESTAMPS, body) if body.len() == 8 => {}
            _ => self.others.push((kind, body.to_vec())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_of_a_first_segment() {
        let bytes = [
            2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7, 34, 2, 0, 9,
        ];
        let expected = Options {
            mss: Some(1460),
            window_scale: Some(7),
            sack_permitted: true,
            others: vec![(34, vec![])],
            ..Options::default()
        };
        assert_eq!((parse(&bytes), timestamps_at(&bytes)), (expected, Some(8)));
    }

    #[test]
    fn damaged_ones_are_said_to_be() {
        for bytes in [&[2, 40, 1][..], &[8], &[5, 0], &[3, 1]] {
            assert!(parse(bytes).damaged, "{bytes:?}");
        }
    }
}
