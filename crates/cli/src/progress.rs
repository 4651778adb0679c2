//! The line that shows how a run gets on: redrawn in place on a terminal, one line every ten seconds elsewhere.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};

const REDRAW: Duration = Duration::from_millis(200);
const LINE_EVERY: Duration = Duration::from_secs(10);
/// Runs shorter than this need no bar.
const QUIET_AT_FIRST: Duration = Duration::from_secs(1);
const BAR_CHARS: usize = 20;

/// How far a run is.
#[derive(Debug, Clone, Copy)]
pub struct Position {
    /// Virtual time, nanoseconds.
    pub virtual_ns: u64,
    /// Virtual time at which it stops, nanoseconds; 0: not known yet.
    pub stop_ns: u64,
    /// Frames sent so far.
    pub frames: u64,
    /// How long it took to go live after a beginning in virtual time, ns of the host's clock; 0: it has not.
    pub live_after_ns: u64,
    /// It has come to its end, and waits for clients.
    pub held: bool,
    /// It is on the host's kernel: its time is the host's.
    pub on_host: bool,
}

/// Draws on standard error.
#[derive(Debug)]
pub struct ProgressLine {
    started: Instant,
    next: Instant,
    every: Duration,
    on_terminal: bool,
    drawn: bool,
    silent: bool,
    /// To be shown before the first progress.
    heading: Option<String>,
    live: bool,
    held: bool,
}

impl ProgressLine {
    /// Starts the clock; a `silent` one never draws. The first thing it shows is the `socket` where the run can be reached,
    /// `at_once` if people are meant to come.
    pub fn new(silent: bool, socket: Option<&Path>, at_once: bool) -> Self {
        let on_terminal = std::io::stderr().is_terminal();
        let started = Instant::now();
        let (first, every) = if on_terminal {
            (QUIET_AT_FIRST, REDRAW)
        } else {
            (LINE_EVERY, LINE_EVERY)
        };
        let heading = socket.map(|socket| format!("control socket: {}", socket.display()));
        let heading = heading.filter(|_| !silent);
        let heading = match (heading, at_once) {
            (Some(text), true) => {
                eprintln!("{text}");
                None
            }
            (heading, _) => heading,
        };
        Self {
            heading,
            live: false,
            held: false,
            started,
            next: started + first,
            every,
            on_terminal,
            drawn: false,
            silent,
        }
    }

    /// How long to sleep before [`Self::update`] has something to do.
    pub fn wait(&self) -> Duration {
        self.next
            .saturating_duration_since(Instant::now())
            .clamp(Duration::from_millis(10), REDRAW)
    }

    /// Prints a line of its own.
    fn say(&mut self, text: &str) {
        self.clear();
        if !self.silent {
            // As below.
            let _ = writeln!(std::io::stderr(), "{text}");
        }
    }

    /// Draws if it is time to.
    pub fn update(&mut self, position: Position) {
        if position.live_after_ns > 0 && !self.live {
            self.live = true;
            let after = position.live_after_ns as f64 / 1e9;
            self.say(&format!(
                "live: from here on time goes with the wall clock; {after:.1} s after the start"
            ));
        }
        if position.held && !self.held {
            self.held = true;
            self.say("the run has come to its end and waits for `windtunnel shell NODE` and others; Ctrl-C ends it");
        }
        let now = Instant::now();
        if now < self.next {
            return;
        }
        self.next = now + self.every;
        if self.silent {
            return;
        }
        if let Some(heading) = self.heading.take() {
            let _ = writeln!(std::io::stderr(), "{heading}");
        }
        let text = describe(position, now - self.started);
        // Progress is a courtesy: nothing to do when nobody can see it.
        let _ = if self.on_terminal {
            self.drawn = true;
            write!(std::io::stderr(), "\r\x1b[K{text}")
        } else {
            writeln!(std::io::stderr(), "{text}")
        };
    }

    /// Removes the line from a terminal, so that what follows starts on a clean one.
    pub fn clear(&mut self) {
        if self.drawn {
            self.drawn = false;
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

fn describe(position: Position, wall: Duration) -> String {
    let virtual_s = position.virtual_ns as f64 / 1e9;
    let stop_s = position.stop_ns as f64 / 1e9;
    let share = if position.stop_ns == 0 {
        0.0
    } else {
        (virtual_s / stop_s).clamp(0.0, 1.0)
    };
    let full = (share * BAR_CHARS as f64) as usize;
    let bar = format!("[{}{}]", "#".repeat(full), "-".repeat(BAR_CHARS - full));
    let (frames, wall_s) = (position.frames, wall.as_secs_f64());
    if position.on_host {
        return match position.stop_ns {
            0 => format!("{bar} making nodes, {wall_s:.0} s"),
            _ => format!("{bar} {virtual_s:.1} of {stop_s:.1} s on the host's kernel, {frames} frames"),
        };
    }
    let speed = virtual_s / wall_s.max(1e-3);
    format!("{bar} {virtual_s:.1} of {stop_s:.1} s virtual, {wall_s:.0} s wall, speed {speed:.1}x, {frames} frames")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_share_times_and_speed() {
        let position = Position {
            virtual_ns: 15_000_000_000,
            stop_ns: 60_000_000_000,
            frames: 12,
            live_after_ns: 0,
            held: false,
            on_host: false,
        };
        assert_eq!(
            describe(position, Duration::from_secs(5)),
            "[#####---------------] 15.0 of 60.0 s virtual, 5 s wall, speed 3.0x, 12 frames"
        );
        let beyond = Position {
            virtual_ns: 2,
            stop_ns: 1,
            ..position
        };
        assert!(describe(beyond, Duration::ZERO).starts_with("[####################]"));
    }

    #[test]
    fn the_hosts_kernel_has_no_speed() {
        let making = Position {
            virtual_ns: 0,
            stop_ns: 0,
            frames: 0,
            live_after_ns: 0,
            held: false,
            on_host: true,
        };
        assert_eq!(
            describe(making, Duration::from_secs(2)),
            "[--------------------] making nodes, 2 s"
        );
        let position = Position {
            virtual_ns: 30_000_000_000,
            stop_ns: 60_000_000_000,
            frames: 12,
            ..making
        };
        assert_eq!(
            describe(position, Duration::from_secs(32)),
            "[##########----------] 30.0 of 60.0 s on the host's kernel, 12 frames"
        );
    }
}
