//! One line chart as SVG: a picture that needs no other program to be made.

use std::fmt::Write;

const WIDTH: f64 = 820.0;
const HEIGHT: f64 = 420.0;
/// Left, right, top and bottom of the lines' area.
const AREA: [f64; 4] = [64.0, 740.0, 48.0, 364.0];
/// Least distance of two names.
const NAME_HEIGHT: f64 = 16.0;
/// About how many ticks an axis has.
const TICKS: f64 = 6.0;

/// A chart of lines over one horizontal axis; both axes begin at 0.
pub struct Chart<'a> {
    /// What it shows.
    pub title: &'a str,
    /// Quantity and unit.
    pub x_label: &'a str,
    /// Quantity and unit.
    pub y_label: &'a str,
    /// At least one with at least one point.
    pub lines: Vec<Line<'a>>,
    /// A part of the horizontal axis that is set off.
    pub span: Span<'a>,
}

/// One line; its name stands at its end.
pub struct Line<'a> {
    pub name: &'a str,
    /// As in SVG.
    pub colour: &'a str,
    /// In the axes' units, from left to right, none negative.
    pub points: Vec<(f64, f64)>,
}

/// From one x to another.
pub struct Span<'a> {
    pub label: &'a str,
    pub from: f64,
    pub to: f64,
}

/// A distance of ticks of 1, 2 or 5 times a power of ten, so that there are about TICKS up to `max`.
fn tick_step(max: f64) -> f64 {
    let rough = (max / TICKS).max(f64::MIN_POSITIVE);
    let power = 10_f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= rough);
    factor.unwrap_or(10.0) * power
}

/// `text` between tags.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

impl Chart<'_> {
    /// The picture.
    pub fn svg(&self) -> String {
        let scale = Scale::of(&self.lines);
        let mut picture = Picture(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"13\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        ));
        self.draw_span(&mut picture, &scale);
        self.draw_axes(&mut picture, &scale);
        self.draw_lines(&mut picture, &scale);
        picture.0 + "</svg>\n"
    }

    fn draw_span(&self, picture: &mut Picture, scale: &Scale) {
        let [_, right, top, bottom] = AREA;
        let (from, to) = (scale.x(self.span.from).min(right), scale.x(self.span.to).min(right));
        picture.put(format_args!(
            "<rect x=\"{from:.1}\" y=\"{top}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"#eeeeee\"/>",
            to - from,
            bottom - top
        ));
        picture.text(((from + to) / 2.0, top + 16.0), "middle", self.span.label);
    }

    fn draw_axes(&self, picture: &mut Picture, scale: &Scale) {
        let [left, right, top, bottom] = AREA;
        for tick in 0..=(scale.x_max / scale.x_step).floor() as u32 {
            let value = f64::from(tick) * scale.x_step;
            picture.text((scale.x(value), bottom + 18.0), "middle", &number(value, scale.x_step));
        }
        for tick in 0..=(scale.y_max / scale.y_step).round() as u32 {
            let value = f64::from(tick) * scale.y_step;
            let y = scale.y(value);
            picture.put(format_args!(
                "<path d=\"M{left} {y:.1}H{right}\" stroke=\"#cccccc\" fill=\"none\"/>"
            ));
            picture.text((left - 8.0, y + 4.0), "end", &number(value, scale.y_step));
        }
        picture.text(((left + right) / 2.0, HEIGHT - 14.0), "middle", self.x_label);
        picture.put(format_args!(
            "<text transform=\"translate(18 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            (top + bottom) / 2.0,
            escape(self.y_label)
        ));
        picture.put(format_args!(
            "<text x=\"{left}\" y=\"26\" font-size=\"16\">{}</text>",
            escape(self.title)
        ));
    }

    fn draw_lines(&self, picture: &mut Picture, scale: &Scale) {
        let [_, right, _, bottom] = AREA;
        let mut name_places: Vec<f64> = Vec::new();
        for line in &self.lines {
            let places = line
                .points
                .iter()
                .map(|(x, y)| format!("{:.1} {:.1}", scale.x(*x), scale.y(*y)));
            picture.put(format_args!(
                "<path d=\"M{}\" stroke=\"{}\" stroke-width=\"2\" stroke-linejoin=\"round\" fill=\"none\"/>",
                places.collect::<Vec<_>>().join("L"),
                line.colour
            ));
            // Names stand where lines end, but not on one another.
            let end = line.points.last().map_or(bottom, |(_, y)| scale.y(*y)) + 4.0;
            let taken = |place: &f64| name_places.iter().any(|other| (place - other).abs() < NAME_HEIGHT);
            let candidates = (0..).flat_map(|n| [f64::from(n), -f64::from(n)]);
            let place = candidates
                .map(|n| end + n * NAME_HEIGHT / 2.0)
                .find(|place| !taken(place));
            let place = place.expect("there is no end of places");
            name_places.push(place);
            picture.put(format_args!(
                "<text x=\"{:.1}\" y=\"{place:.1}\" fill=\"{}\" font-weight=\"bold\">{}</text>",
                right + 8.0,
                line.colour,
                escape(line.name)
            ));
        }
    }
}

/// Where values lie in the picture.
struct Scale {
    x_max: f64,
    x_step: f64,
    y_max: f64,
    y_step: f64,
}

impl Scale {
    fn of(lines: &[Line<'_>]) -> Self {
        let points = || lines.iter().flat_map(|line| &line.points);
        let x_max = points().fold(0.0, |max: f64, (x, _)| max.max(*x));
        let y_max = points().fold(0.0, |max: f64, (_, y)| max.max(*y));
        let y_step = tick_step(y_max);
        Self {
            x_max,
            x_step: tick_step(x_max),
            // The highest point keeps away from the title.
            y_max: (y_max / y_step + 0.5).ceil() * y_step,
            y_step,
        }
    }

    fn x(&self, value: f64) -> f64 {
        let [left, right, ..] = AREA;
        left + value / self.x_max * (right - left)
    }

    fn y(&self, value: f64) -> f64 {
        let [_, _, top, bottom] = AREA;
        bottom - value / self.y_max * (bottom - top)
    }
}

/// The text of the picture so far.
struct Picture(String);

impl Picture {
    fn put(&mut self, arguments: std::fmt::Arguments<'_>) {
        self.0
            .write_fmt(arguments)
            .and_then(|()| self.0.write_char('\n'))
            .expect("writing to a String");
    }

    /// Text at a place, which is its start, middle or end.
    fn text(&mut self, (x, y): (f64, f64), anchor: &str, text: &str) {
        self.put(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>",
            escape(text)
        ));
    }
}

/// A tick's number, with as many decimals as the steps need.
fn number(value: f64, step: f64) -> String {
    let decimals = (-step.log10().floor()).max(0.0) as usize;
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_numbers() {
        for (max, step) in [(30.0, 5.0), (18.8, 5.0), (1.0, 0.2), (0.07, 0.02), (1000.0, 200.0)] {
            assert!((tick_step(max) - step).abs() < step * 1e-9, "{max}");
        }
        assert_eq!((number(0.4, 0.2), number(15.0, 5.0)), ("0.4".into(), "15".into()));
    }

    #[test]
    fn points_lie_where_the_axes_say() {
        let line = |name, end| Line {
            name,
            colour: "#000000",
            points: vec![(0.0, 0.0), (10.0, end)],
        };
        let chart = Chart {
            title: "a < b",
            x_label: "time (s)",
            y_label: "rate (Mb/s)",
            lines: vec![line("one", 10.0), line("two", 10.0)],
            span: Span {
                label: "here",
                from: 5.0,
                to: 20.0,
            },
        };
        let svg = chart.svg();
        // 0 to 10 by 2, and half a step more: the top is 12.
        assert!(svg.contains("<path d=\"M64.0 364.0L740.0 100.7\""), "{svg}");
        assert!(svg.contains("<rect x=\"402.0\" y=\"48\" width=\"338.0\""), "{svg}");
        assert!(svg.contains(">a &lt; b<") && svg.contains(">12</text>"), "{svg}");
        let place = |name: &str| svg[..svg.find(name).unwrap()].rsplit_once("y=\"").unwrap().1[..5].to_owned();
        assert_ne!(place(">one<"), place(">two<"));
    }
}
