//! How `windtunnel top` shows what it knows: on a terminal, and as text.

use std::fmt::Write;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Row, Sparkline, Table, TableState, Tabs};

use super::model::{Connection, KEPT, LinkRow, Model, si, span};
use windtunnel_control::{PeerState, PortState};
use windtunnel_results::LatenessSummary;

/// What is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    Links,
    Connections,
    Nodes,
    Ports,
}

pub const PAGES: [Page; 4] = [Page::Links, Page::Connections, Page::Nodes, Page::Ports];

impl Page {
    fn title(self) -> &'static str {
        match self {
            Self::Links => "1 links",
            Self::Connections => "2 TCP connections",
            Self::Nodes => "3 nodes and programs",
            Self::Ports => "4 ports",
        }
    }
}

/// What the user chose.
#[derive(Clone, Debug)]
pub struct Choice {
    pub page: Page,
    /// Number of the row that is marked.
    pub row: usize,
    /// Key of the connection that is looked into.
    pub open: Option<String>,
    /// Only rows with this text.
    pub filter: String,
    /// The filter is being typed.
    pub typing: bool,
    /// New states are not shown.
    pub frozen: bool,
}

impl Default for Choice {
    fn default() -> Self {
        Self {
            page: Page::Links,
            row: 0,
            open: None,
            filter: String::new(),
            typing: false,
            frozen: false,
        }
    }
}

/// A page as a table: heads with the least widths of their columns, and rows.
struct Sheet {
    heads: Vec<(&'static str, u16)>,
    rows: Vec<Vec<String>>,
}

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const MARKED: Style = Style::new().add_modifier(Modifier::REVERSED);

/// Draws all of it.
pub fn draw(frame: &mut Frame<'_>, model: &Model, choice: &Choice) {
    let [head, tabs, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(3),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Line::styled(headline(model), BOLD), head);
    let selected = PAGES.iter().position(|page| *page == choice.page);
    let titles = PAGES.iter().map(|page| page.title());
    frame.render_widget(Tabs::new(titles).select(selected).highlight_style(MARKED), tabs);
    let open = choice.open.as_ref().and_then(|key| find(model, key));
    match open {
        Some(connection) => draw_connection(frame, model, connection, body),
        None => {
            let sheet = sheet(model, choice);
            let mut state = TableState::default().with_selected((!sheet.rows.is_empty()).then_some(choice.row));
            frame.render_stateful_widget(table(&sheet), body, &mut state);
        }
    }
    frame.render_widget(Line::from(footline(model, choice)), foot);
}

fn headline(model: &Model) -> String {
    let state = &model.state;
    let stands = match state.held {
        Some(ended) => format!("held at its end ({})", ended.as_str()),
        None => format!("of {} s", state.stop_ns as f64 / 1e9),
    };
    let late = state
        .lateness
        .as_ref()
        .map_or_else(String::new, |lateness| format!("  {}", lateness_line(lateness)));
    let running: usize = state.nodes.iter().map(|node| node.programs.len()).sum();
    format!(
        "{}  {:.3} s {stands}  {:.2} x the wall clock  {} nodes  {running} programs run{late}",
        model.scenario,
        state.at_ns as f64 / 1e9,
        model.speed,
        state.nodes.len()
    )
}

/// How late a run is that goes with the wall clock.
pub fn lateness_line(lateness: &LatenessSummary) -> String {
    let mut line = format!(
        "late: 99 % within {}, most {}, {} of {} windows beyond {}, {} slips",
        span(lateness.p99_ns as f64),
        span(lateness.max_ns as f64),
        lateness.late_windows,
        lateness.windows,
        span(lateness.limit_ns as f64),
        lateness.slips
    );
    if lateness.preempted_by_wall_clock > 0 {
        let _ = write!(line, ", programs preempted {} times", lateness.preempted_by_wall_clock);
    }
    line
}

fn footline(model: &Model, choice: &Choice) -> Vec<Span<'static>> {
    let mut spans = Vec::new();
    if let Some(broken) = &model.broken {
        let connection = Connection(broken.connection.clone()).key();
        let text = format!(
            "TIME STANDS at {} s: {connection} (c: go on) ",
            broken.at_ns as f64 / 1e9
        );
        spans.push(Span::styled(text, MARKED));
    }
    if choice.frozen {
        spans.push(Span::styled("FROZEN ", MARKED));
    }
    if choice.typing || !choice.filter.is_empty() {
        let cursor = if choice.typing { "_" } else { "" };
        spans.push(Span::styled(format!("/{}{cursor} ", choice.filter), BOLD));
    }
    let keys = match &choice.open {
        Some(_) => "Esc back  Space freeze  q quit",
        None => "Tab page  Up/Down row  Enter look into  / filter  Space freeze  q quit",
    };
    spans.push(Span::raw(keys));
    spans
}

fn find<'a>(model: &'a Model, key: &str) -> Option<&'a Connection> {
    model.connections.iter().find(|connection| connection.key() == key)
}

/// Connections that pass the filter, the busiest first.
pub fn connections<'a>(model: &'a Model, choice: &Choice) -> Vec<&'a Connection> {
    let mut rows: Vec<_> = model.connections.iter().collect();
    rows.retain(|connection| passes(&connection_cells(connection), choice));
    let rate = |connection: &Connection| connection.number("delivery_rate_bps").unwrap_or(0.0);
    rows.sort_by(|a, b| rate(b).total_cmp(&rate(a)).then_with(|| a.key().cmp(&b.key())));
    rows
}

fn passes(cells: &[String], choice: &Choice) -> bool {
    choice.filter.is_empty() || cells.iter().any(|cell| cell.contains(&choice.filter))
}

fn sheet(model: &Model, choice: &Choice) -> Sheet {
    match choice.page {
        Page::Links => links_sheet(model, choice),
        Page::Connections => Sheet {
            heads: vec![
                ("NODE", 6),
                ("LOCAL", 14),
                ("REMOTE", 14),
                ("STATE", 11),
                ("CC", 6),
                ("CWND", 6),
                ("FLIGHT", 6),
                ("SRTT", 9),
                ("DELIVERY", 11),
                ("RETRANS", 7),
            ],
            rows: connections(model, choice).into_iter().map(connection_cells).collect(),
        },
        Page::Nodes => nodes_sheet(model, choice),
        Page::Ports => ports_sheet(model, choice),
    }
}

/// How many rows the page has.
pub fn rows(model: &Model, choice: &Choice) -> usize {
    sheet(model, choice).rows.len()
}

fn links_sheet(model: &Model, choice: &Choice) -> Sheet {
    let mut rows: Vec<(&LinkRow, Vec<String>)> = model.links.iter().map(|link| (link, link_cells(link))).collect();
    rows.retain(|(_, cells)| passes(cells, choice));
    rows.sort_by(|(a, _), (b, _)| b.throughput_bps.total_cmp(&a.throughput_bps));
    Sheet {
        heads: vec![
            ("FROM", 14),
            ("TO", 14),
            ("THROUGHPUT", 11),
            ("OF", 5),
            ("FRAMES/s", 9),
            ("QUEUE", 7),
            ("WAIT", 9),
            ("DELAY", 9),
            ("DROPS", 20),
        ],
        rows: rows.into_iter().map(|(_, cells)| cells).collect(),
    }
}

fn link_cells(link: &LinkRow) -> Vec<String> {
    let causes: Vec<String> = link
        .drops
        .iter()
        .map(|(cause, count)| format!("{cause} {count}"))
        .collect();
    let drops = match (link.now.up, link.new_drops) {
        (false, _) => format!("DOWN {}", causes.join(", ")),
        (true, 0) => causes.join(", "),
        (true, new) => format!("{} (+{new})", causes.join(", ")),
    };
    vec![
        link.from.clone(),
        link.to.clone(),
        format!("{}bit/s", si(link.throughput_bps)),
        format!("{:.0} %", link.utilisation() * 100.0),
        si(link.frames_per_s),
        link.now.queue_frames.to_string(),
        span(link.now.wait_ns as f64),
        span(link.now.delay_ns as f64),
        drops,
    ]
}

fn connection_cells(connection: &Connection) -> Vec<String> {
    let number = |column: &str| {
        connection
            .number(column)
            .map_or_else(|| "-".into(), |value| format!("{value}"))
    };
    let srtt_ns = connection.number("srtt_us").unwrap_or(0.0) * 1e3;
    vec![
        connection.text("node").to_owned(),
        connection.end("local"),
        connection.end("remote"),
        connection.text("state").to_owned(),
        connection.text("congestion_control").to_owned(),
        number("cwnd_packets"),
        number("in_flight_packets"),
        span(srtt_ns),
        format!("{}bit/s", si(connection.number("delivery_rate_bps").unwrap_or(0.0))),
        number("retransmits_total"),
    ]
}

fn nodes_sheet(model: &Model, choice: &Choice) -> Sheet {
    let mut rows = Vec::new();
    for (node, calls_per_s) in model.state.nodes.iter().zip(&model.calls_per_s) {
        let calls = format!("{}/s", si(*calls_per_s));
        let mut first = vec![node.node.clone(), calls, node.ended.to_string()];
        if node.programs.is_empty() {
            first.extend(["-".into(), String::new(), String::new()]);
            rows.push(first);
            continue;
        }
        for program in &node.programs {
            let mut cells = std::mem::replace(&mut first, vec![node.node.clone(), String::new(), String::new()]);
            cells.extend([
                program.pid.to_string(),
                format!("{:.3} s", program.start_ns as f64 / 1e9),
                program.command.join(" "),
            ]);
            rows.push(cells);
        }
    }
    rows.retain(|cells| passes(cells, choice));
    Sheet {
        heads: vec![
            ("NODE", 6),
            ("CALLS", 9),
            ("ENDED", 6),
            ("PID", 6),
            ("START", 12),
            ("COMMAND", 30),
        ],
        rows,
    }
}

fn ports_sheet(model: &Model, choice: &Choice) -> Sheet {
    let mut rows: Vec<Vec<String>> = model.state.ports.iter().map(port_cells).collect();
    rows.retain(|cells| passes(cells, choice));
    Sheet {
        heads: vec![
            ("PORT", 8),
            ("FRAMES IN", 9),
            ("OUT", 9),
            ("PEER", 30),
            ("DROPS", 12),
            ("WHAT", 30),
        ],
        rows,
    }
}

fn port_cells(port: &PortState) -> Vec<String> {
    let counters = &port.counters;
    let causes: Vec<String> = counters
        .drops
        .iter()
        .map(|(cause, count)| format!("{cause} {count}"))
        .collect();
    vec![
        counters.name.clone(),
        counters.frames_in.to_string(),
        counters.frames_out.to_string(),
        port.peer.as_ref().map_or_else(|| "-".into(), peer_words),
        causes.join(", "),
        counters.what.clone(),
    ]
}

/// What is known of the program at the other end.
fn peer_words(peer: &PeerState) -> String {
    let (Some(name), Some(version)) = (&peer.name, &peer.version) else {
        return "never heard of".into();
    };
    let ago = span(peer.seen_ago_ns.unwrap_or(0) as f64);
    let state = if peer.connected { "heard" } else { "SILENT, heard" };
    let lost = |frames: Option<u64>| frames.unwrap_or(0);
    format!(
        "{name} ({version}), {state} {ago} ago, lost {} in, {} out",
        lost(peer.lost_in_frames),
        lost(peer.lost_out_frames)
    )
}

/// As wide as what is in it, the last column as wide as there is room.
fn table(sheet: &Sheet) -> Table<'static> {
    let widths = sheet.heads.iter().enumerate().map(|(column, (_, least))| {
        let cells = sheet.rows.iter().map(|row| row[column].chars().count() as u16);
        let width = cells.max().unwrap_or(0).max(*least);
        match column + 1 == sheet.heads.len() {
            true => Constraint::Min(*least),
            false => Constraint::Length(width),
        }
    });
    let rows: Vec<Row<'static>> = sheet.rows.iter().map(|cells| Row::new(cells.clone())).collect();
    Table::new(rows, widths)
        .header(Row::new(sheet.heads.iter().map(|(head, _)| *head)).style(BOLD))
        .row_highlight_style(MARKED)
        .column_spacing(2)
}

/// The control block of a connection: what changes as lines over time, all of it as text.
fn draw_connection(frame: &mut Frame<'_>, model: &Model, connection: &Connection, area: Rect) {
    let title = format!(" {} ", connection.key());
    let block = Block::bordered().title(title);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let [lines, text] = Layout::vertical([Constraint::Length(2 * KEPT.len() as u16), Constraint::Min(1)]).areas(inner);
    let strips = Layout::vertical([Constraint::Length(2); KEPT.len()]).split(lines);
    if let Some(series) = model.histories.get(&connection.key()) {
        for ((series, column), strip) in series.iter().zip(KEPT).zip(strips.iter()) {
            draw_series(frame, column, series, *strip);
        }
    }
    let shown: Vec<Line<'_>> = block_lines(connection).into_iter().map(Line::from).collect();
    frame.render_widget(Paragraph::new(shown), text);
}

fn draw_series(frame: &mut Frame<'_>, column: &str, series: &super::model::Series, area: Rect) {
    let [name, line] = Layout::horizontal([Constraint::Length(34), Constraint::Min(10)]).areas(area);
    let (last, most) = (
        series.back().copied().unwrap_or(0),
        series.iter().copied().max().unwrap_or(0),
    );
    let label = format!("{column} {last} (most {most})");
    frame.render_widget(Paragraph::new(label), name);
    let skipped = series.len().saturating_sub(line.width as usize);
    let newest: Vec<u64> = series.iter().skip(skipped).copied().collect();
    frame.render_widget(Sparkline::default().data(&newest).max(most.max(1)), line);
}

/// What the kernel tells of a connection, grouped by what it is about.
fn block_lines(connection: &Connection) -> Vec<String> {
    const GROUPS: [(&str, &[&str]); 5] = [
        (
            "window",
            &[
                "cwnd_packets",
                "ssthresh_packets",
                "mss_bytes",
                "snd_window_bytes",
                "rcv_window_bytes",
            ],
        ),
        ("time", &["srtt_us", "rttvar_us", "min_rtt_us", "rto_us"]),
        ("rate", &["pacing_rate_bps", "delivery_rate_bps"]),
        (
            "segments",
            &[
                "in_flight_packets",
                "unacked_packets",
                "sacked_packets",
                "lost_packets",
                "retransmitted_packets",
                "retransmits_total",
            ],
        ),
        (
            "bytes",
            &[
                "bytes_acked",
                "bytes_received",
                "bytes_sent",
                "bytes_retransmitted",
                "send_queue_bytes",
                "not_sent_bytes",
                "recv_queue_bytes",
            ],
        ),
    ];
    let (state, control) = (connection.text("state"), connection.text("congestion_control"));
    let mut lines = vec![String::new(), format!("{state}, {control}")];
    for (name, columns) in GROUPS {
        let mut line = format!("{name:<9}");
        for column in columns {
            let value = connection
                .number(column)
                .map_or_else(|| "-".into(), |value| format!("{value}"));
            let _ = write!(line, " {column} {value} ");
        }
        lines.push(line);
    }
    let internals = connection.text("internals");
    if !internals.is_empty() {
        lines.push(format!("{control:<9}  {internals}"));
    }
    lines
}

/// All pages as text, for `--once`.
pub fn text(model: &Model) -> String {
    let mut text = format!("{}\n", headline(model));
    for page in PAGES {
        let sheet = sheet(
            model,
            &Choice {
                page,
                ..Choice::default()
            },
        );
        if sheet.rows.is_empty() {
            continue;
        }
        text.push('\n');
        let widths: Vec<usize> = (0..sheet.heads.len())
            .map(|column| {
                let cells = sheet.rows.iter().map(|row| row[column].chars().count());
                cells.max().unwrap_or(0).max(sheet.heads[column].0.len())
            })
            .collect();
        let heads: Vec<String> = sheet.heads.iter().map(|(head, _)| (*head).to_owned()).collect();
        for row in std::iter::once(&heads).chain(&sheet.rows) {
            let cells: Vec<String> = row
                .iter()
                .zip(&widths)
                .map(|(cell, width)| format!("{cell:<width$}"))
                .collect();
            text += cells.join("  ").trim_end();
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::model::tests::model;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn screen(choice: &Choice) -> String {
        let mut terminal = Terminal::new(TestBackend::new(120, 30)).unwrap();
        terminal.draw(|frame| draw(frame, &model(), choice)).unwrap();
        let buffer = terminal.backend().buffer();
        let lines = buffer.content().chunks(120);
        let text = |line: &[ratatui::buffer::Cell]| line.iter().map(|cell| cell.symbol()).collect::<String>();
        lines
            .map(|line| text(line).trim_end().to_owned() + "\n")
            .collect::<String>()
    }

    #[test]
    fn a_link_that_is_full_shows_it() {
        let text = screen(&Choice::default());
        assert!(
            text.contains("bottleneck  3.000 s of 60 s  4.00 x the wall clock"),
            "{text}"
        );
        let line = text.lines().find(|line| line.starts_with("h1:eth0")).unwrap();
        for part in ["10.0 Mbit/s", "100 %", "7", "5.6 ms", "20.0 ms", "queue_full 35 (+25)"] {
            assert!(line.contains(part), "{part}: {line}");
        }
    }

    #[test]
    fn a_connection_shows_its_control_block() {
        let choice = Choice {
            page: Page::Connections,
            ..Choice::default()
        };
        let list = screen(&choice);
        assert!(list.contains("[fd00::2]:80") && list.contains("9.41 Mbit/s"), "{list}");
        let key = model().connections[0].key();
        let block = screen(&Choice {
            open: Some(key),
            ..choice
        });
        assert!(block.contains("cwnd_packets 24 (most 24)"), "{block}");
        assert!(
            block.contains("ESTABLISHED, cubic") && block.contains("ssthresh_packets -"),
            "{block}"
        );
        assert!(block.contains('█'), "{block}");
    }

    #[test]
    fn a_filter_leaves_what_has_its_text() {
        let of = |filter: &str| Choice {
            page: Page::Nodes,
            filter: filter.into(),
            ..Choice::default()
        };
        assert_eq!(rows(&model(), &of("")), 2);
        assert_eq!(rows(&model(), &of("iperf3")), 1);
        assert_eq!(rows(&model(), &of("nothing")), 0);
    }

    #[test]
    fn the_text_has_all_pages() {
        let text = text(&model());
        let peer = "lan   12         7    wan (windtunnel 0.9.0), heard 400.0 ms ago, lost 3 in, 1 out  in_lost 3  frames in UDP";
        for part in ["THROUGHPUT", "h2:eth0", "CWND", "iperf3 -c h2", peer] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
