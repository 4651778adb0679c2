//! Conditions on a TCP connection, as in `cwnd < 2*mss && retransmits > 0`.
//!
//! Names are columns of tcp.csv, or the short ones of [`SHORT`]. Comparisons give 1 or 0; `!`, `&&` and `||` take anything but 0 for
//! true. A value that a connection does not have makes the whole condition untrue.

use std::fmt;

/// Short names: the column, and what it is multiplied with.
pub const SHORT: [(&str, &str, Option<&str>); 13] = [
    ("cwnd", "cwnd_packets", Some("mss_bytes")),
    ("ssthresh", "ssthresh_packets", Some("mss_bytes")),
    ("in_flight", "in_flight_packets", Some("mss_bytes")),
    ("mss", "mss_bytes", None),
    ("srtt", "srtt_us", None),
    ("rttvar", "rttvar_us", None),
    ("min_rtt", "min_rtt_us", None),
    ("rto", "rto_us", None),
    ("snd_wnd", "snd_window_bytes", None),
    ("rcv_wnd", "rcv_window_bytes", None),
    ("lost", "lost_packets", None),
    ("sacked", "sacked_packets", None),
    ("retransmits", "retransmits_total", None),
];

/// Longest condition, bytes.
const TEXT_MAX: usize = 1000;
/// Deepest nesting of parentheses and signs.
const DEPTH_MAX: usize = 64;

/// A condition that was understood.
#[derive(Clone, Debug, PartialEq)]
pub struct Predicate {
    text: String,
    root: Term,
}

#[derive(Clone, Debug, PartialEq)]
enum Term {
    Number(f64),
    /// A column, times another.
    Column(String, Option<String>),
    Not(Box<Term>),
    Minus(Box<Term>),
    Pair(Operator, Box<Term>, Box<Term>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Or,
    And,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Equal,
    Unequal,
    Plus,
    Minus,
    Times,
    Over,
}

/// Operators as they are written, the longer before the shorter, with how closely they bind.
const OPERATORS: [(&str, Operator, u8); 12] = [
    ("||", Operator::Or, 1),
    ("&&", Operator::And, 2),
    ("<=", Operator::LessEqual, 3),
    (">=", Operator::GreaterEqual, 3),
    ("==", Operator::Equal, 3),
    ("!=", Operator::Unequal, 3),
    ("<", Operator::Less, 3),
    (">", Operator::Greater, 3),
    ("+", Operator::Plus, 4),
    ("-", Operator::Minus, 4),
    ("*", Operator::Times, 5),
    ("/", Operator::Over, 5),
];

/// Why a text is no condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no condition on a connection: {problem}{}", at(rest))]
pub struct PredicateError {
    text: String,
    problem: &'static str,
    rest: String,
}

fn at(rest: &str) -> String {
    match rest {
        "" => ", and it ends".to_owned(),
        rest => format!(" at `{rest}`"),
    }
}

struct Parser<'a> {
    rest: &'a str,
    depth: usize,
}

type Parsed<T> = Result<T, &'static str>;

impl Predicate {
    /// Understands a text.
    ///
    /// # Errors
    /// When it is no condition.
    pub fn parse(text: &str) -> Result<Self, PredicateError> {
        let mut parser = Parser { rest: text, depth: 0 };
        if text.len() > TEXT_MAX {
            return Err(PredicateError {
                text: text.chars().take(40).collect::<String>() + "...",
                problem: "it is longer than 1000 bytes",
                rest: String::new(),
            });
        }
        let whole = parser.expression(0).and_then(|root| match parser.skip().is_empty() {
            true => Ok(root),
            false => Err("an operator is expected"),
        });
        match whole {
            Ok(root) => Ok(Self {
                text: text.to_owned(),
                root,
            }),
            Err(problem) => Err(PredicateError {
                text: text.to_owned(),
                problem,
                rest: parser.skip().to_owned(),
            }),
        }
    }

    /// The columns that it names, in no order.
    pub fn columns(&self) -> Vec<&str> {
        let mut found = Vec::new();
        self.root.columns(&mut found);
        found
    }

    /// Whether it holds where columns have these values; not where one has none.
    pub fn holds(&self, value: &dyn Fn(&str) -> Option<f64>) -> bool {
        self.root.value(value).is_some_and(|value| value != 0.0)
    }
}

impl fmt::Display for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Term {
    fn columns<'a>(&'a self, found: &mut Vec<&'a str>) {
        match self {
            Self::Number(_) => {}
            Self::Column(column, times) => {
                found.push(column);
                found.extend(times.as_deref());
            }
            Self::Not(term) | Self::Minus(term) => term.columns(found),
            Self::Pair(_, left, right) => {
                left.columns(found);
                right.columns(found);
            }
        }
    }

    fn value(&self, of: &dyn Fn(&str) -> Option<f64>) -> Option<f64> {
        let truth = |holds: bool| if holds { 1.0 } else { 0.0 };
        Some(match self {
            Self::Number(number) => *number,
            Self::Column(column, None) => of(column)?,
            Self::Column(column, Some(times)) => of(column)? * of(times)?,
            Self::Not(term) => truth(term.value(of)? == 0.0),
            Self::Minus(term) => -term.value(of)?,
            Self::Pair(operator, left, right) => {
                let (left, right) = (left.value(of)?, right.value(of)?);
                match operator {
                    Operator::Or => truth(left != 0.0 || right != 0.0),
                    Operator::And => truth(left != 0.0 && right != 0.0),
                    Operator::Less => truth(left < right),
                    Operator::LessEqual => truth(left <= right),
                    Operator::Greater => truth(left > right),
                    Operator::GreaterEqual => truth(left >= right),
                    Operator::Equal => truth(left == right),
                    Operator::Unequal => truth(left != right),
                    Operator::Plus => left + right,
                    Operator::Minus => left - right,
                    Operator::Times => left * right,
                    Operator::Over => left / right,
                }
            }
        })
    }
}

impl<'a> Parser<'a> {
    fn skip(&mut self) -> &'a str {
        self.rest = self.rest.trim_start();
        self.rest
    }

    fn take(&mut self, text: &str) -> bool {
        let rest = self.skip().strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// Terms and operators that bind more closely than `least`.
    fn expression(&mut self, least: u8) -> Parsed<Term> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err("it is nested too deeply");
        }
        let mut left = self.term()?;
        loop {
            let rest = self.skip();
            let next = OPERATORS.iter().find(|(written, ..)| rest.starts_with(written));
            let Some((written, operator, strength)) = next.filter(|(.., strength)| *strength > least) else {
                break;
            };
            self.rest = &rest[written.len()..];
            let right = self.expression(*strength)?;
            left = Term::Pair(*operator, Box::new(left), Box::new(right));
        }
        self.depth -= 1;
        Ok(left)
    }

    fn term(&mut self) -> Parsed<Term> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err("it is nested too deeply");
        }
        let term = if self.take("(") {
            let inner = self.expression(0)?;
            if !self.take(")") {
                return Err("`)` is expected");
            }
            inner
        } else if self.take("!") {
            Term::Not(Box::new(self.term()?))
        } else if self.take("-") {
            Term::Minus(Box::new(self.term()?))
        } else {
            self.word()?
        };
        self.depth -= 1;
        Ok(term)
    }

    fn word(&mut self) -> Parsed<Term> {
        let rest = self.skip();
        let end = rest.find(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_' || letter == '.'));
        let (word, after) = rest.split_at(end.unwrap_or(rest.len()));
        if word.is_empty() {
            return Err("a column, a number or `(` is expected");
        }
        let term = if word.starts_with(|letter: char| letter.is_ascii_digit() || letter == '.') {
            let number: f64 = word.parse().map_err(|_| "a number is expected")?;
            Term::Number(number)
        } else {
            match SHORT.iter().find(|(short, ..)| *short == word) {
                Some((_, column, times)) => Term::Column((*column).to_owned(), times.map(str::to_owned)),
                None => Term::Column(word.to_owned(), None),
            }
        };
        self.rest = after;
        Ok(term)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(column: &str) -> Option<f64> {
        match column {
            "cwnd_packets" => Some(3.0),
            "mss_bytes" => Some(1000.0),
            "srtt_us" => Some(40_000.0),
            _ => None,
        }
    }

    fn holds(text: &str) -> bool {
        Predicate::parse(text).unwrap().holds(&value)
    }

    #[test]
    fn conditions_read_as_arithmetic() {
        assert!(holds("cwnd < 4*mss"));
        assert!(!holds("cwnd<2*mss"));
        assert!(holds("cwnd == 3000 && srtt >= 40000"));
        assert!(holds("!(cwnd > 5000) && (srtt/1000 - 39 == 1 || 0)"));
        assert!(holds("2 + 3 * 4 == 14 && 10 - 4 - 3 == 3"));
        assert!(holds("-cwnd_packets < -2"));
    }

    #[test]
    fn what_a_connection_has_not_does_not_hold() {
        assert!(!holds("ssthresh > 0"));
        assert!(!holds("!(ssthresh > 0)"));
    }

    #[test]
    fn what_is_no_condition_says_where() {
        for (text, fragment) in [
            ("", "a column, a number"),
            ("cwnd <", "a column, a number"),
            ("cwnd < 2 mss", "an operator is expected at `mss`"),
            ("(cwnd", "`)` is expected"),
            ("1.2.3 < 4", "a number is expected at `1.2.3 < 4`"),
            ("cwnd < ü", "at `ü`"),
            (&"(".repeat(999), "nested too deeply"),
            (&"!".repeat(999), "nested too deeply"),
            (&"1+".repeat(999), "longer than"),
        ] {
            let error = Predicate::parse(text).unwrap_err().to_string();
            assert!(error.contains(fragment), "{fragment}: {error}");
        }
    }

    #[test]
    fn columns_are_named_in_full() {
        let predicate = Predicate::parse("cwnd < 2*mss || nonsense").unwrap();
        assert_eq!(
            predicate.columns(),
            ["cwnd_packets", "mss_bytes", "mss_bytes", "nonsense"]
        );
    }
}
