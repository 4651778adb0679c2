//! Interfaces without captures: the marks of their digests say between which frames the first difference is.

use super::{Event, Kind, NONE, Run, captures};
use std::collections::{BTreeMap, BTreeSet};
use windtunnel_results::{InterfaceTrail, Mark};

/// Adds the first difference of each interface whose capture is not among `captured`.
pub fn differences(a: &Run, b: &Run, captured: &BTreeSet<String>, events: &mut Vec<Event>) {
    let (Some(trail_a), Some(trail_b)) = (&a.trail, &b.trail) else {
        return;
    };
    let by_name = |trails: &'_ [InterfaceTrail]| -> BTreeMap<(String, String), InterfaceTrail> {
        let named = trails
            .iter()
            .map(|trail| ((trail.node.clone(), trail.interface.clone()), trail.clone()));
        named.collect()
    };
    let (of_a, of_b) = (by_name(&trail_a.interfaces), by_name(&trail_b.interfaces));
    let end_ns = a.summary.virtual_time_ns.max(b.summary.virtual_time_ns);
    for key @ (node, interface) in of_a.keys().chain(of_b.keys()).collect::<BTreeSet<_>>() {
        if captured.contains(&captures::file_name(node, interface)) {
            continue;
        }
        let name = format!("{node}:{interface}");
        match (of_a.get(key), of_b.get(key)) {
            (Some(a), Some(b)) => events.extend(first_difference(&name, a, b, end_ns)),
            (a, b) => {
                let frames = |trail: Option<&InterfaceTrail>| {
                    trail.map_or(NONE.to_owned(), |trail| format!("{} frames", trail.frames))
                };
                events.push(Event {
                    kind: Kind::Interval,
                    what: format!("{name}: the interface"),
                    from_ns: 0,
                    to_ns: 0,
                    a: frames(a),
                    b: frames(b),
                });
            }
        }
    }
}

fn first_difference(name: &str, a: &InterfaceTrail, b: &InterfaceTrail, end_ns: u64) -> Option<Event> {
    if (a.frames, &a.digest) == (b.frames, &b.digest) {
        return None;
    }
    let of_b: BTreeMap<u64, &Mark> = b.marks.iter().map(|mark| (mark.0, mark)).collect();
    let common = a.marks.iter().filter_map(|mark| Some((mark, *of_b.get(&mark.0)?)));
    // (0, 0): before the first frame.
    let (mut equal, mut differing) = ((0, 0), None);
    for (mark_a, mark_b) in common {
        if mark_a.2 == mark_b.2 {
            equal = (mark_a.0, mark_a.1);
        } else {
            differing = Some((mark_a, mark_b));
            break;
        }
    }
    let event = |what: String, from_ns: u64, to_ns: u64| {
        let describe = |trail: &InterfaceTrail, mark: Option<&Mark>| match mark {
            Some(Mark(frame, time_ns, _)) => {
                format!(
                    "frame {frame} at {}, {} frames in all",
                    super::time(*time_ns),
                    trail.frames
                )
            }
            None => format!("{} frames in all", trail.frames),
        };
        Event {
            kind: Kind::Interval,
            what,
            from_ns,
            to_ns,
            a: describe(a, differing.map(|(mark, _)| mark)),
            b: describe(b, differing.map(|(_, mark)| mark)),
        }
    };
    Some(match differing {
        Some((mark_a, mark_b)) if mark_a.0 == equal.0 + 1 => {
            let at_ns = mark_a.1.min(mark_b.1);
            event(format!("{name}: frame {}", mark_a.0), at_ns, at_ns)
        }
        Some((mark_a, mark_b)) => event(
            format!("{name}: a frame from {} to {}", equal.0 + 1, mark_a.0),
            equal.1,
            mark_a.1.max(mark_b.1),
        ),
        None => event(format!("{name}: a frame from {} on", equal.0 + 1), equal.1, end_ns),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trail(frames: u64, stride: u64, from: u64, late_ns: u64) -> InterfaceTrail {
        let mark = |frame: u64| {
            let other = frame >= from;
            let time_ns = frame * 100 + if other { late_ns } else { 0 };
            Mark(frame, time_ns, format!("{frame} {other}"))
        };
        InterfaceTrail {
            node: "h1".into(),
            interface: "eth0".into(),
            frames,
            digest: format!("{frames} {from}"),
            marks: (1..=frames / stride).map(|index| mark(index * stride)).collect(),
        }
    }

    fn found(a: &InterfaceTrail, b: &InterfaceTrail) -> (String, u64, u64) {
        let event = first_difference("h1:eth0", a, b, 9999).unwrap();
        (event.what, event.from_ns, event.to_ns)
    }

    #[test]
    fn the_first_frame_is_found_as_exactly_as_marks_allow() {
        let base = trail(40, 1, 1000, 0);
        assert_eq!(first_difference("h1:eth0", &base, &base.clone(), 0), None);
        assert_eq!(
            found(&base, &trail(40, 1, 7, 50)),
            ("h1:eth0: frame 7".into(), 700, 700)
        );
        assert_eq!(found(&base, &trail(40, 1, 1, 0)), ("h1:eth0: frame 1".into(), 100, 100));
        let coarse = trail(40, 8, 18, 50);
        assert_eq!(
            found(&trail(40, 8, 1000, 0), &coarse),
            ("h1:eth0: a frame from 17 to 24".into(), 1600, 2450)
        );
        assert_eq!(
            found(&base, &coarse),
            ("h1:eth0: a frame from 17 to 24".into(), 1600, 2450)
        );
    }

    #[test]
    fn a_run_that_goes_on_longer_differs_at_its_end() {
        let found = found(&trail(40, 8, 1000, 0), &trail(45, 8, 1000, 0));
        assert_eq!(found, ("h1:eth0: a frame from 41 on".into(), 4000, 9999));
    }
}
