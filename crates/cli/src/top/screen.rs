//! The terminal of `windtunnel top`: keys in, pictures out. It is given back however this ends.

use std::io;
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::model::Model;
use super::view::{self, Choice, PAGES, Page};
use super::watcher::Watcher;
use crate::failure::Failure;

/// How the view ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The user had seen enough.
    Quit,
    /// The run is over.
    Over,
}

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Nothing,
    Quit,
    /// Time shall go on.
    GoOn,
}

/// Shows what the run is like each `interval`, until the user quits or it is over.
///
/// # Errors
/// When the terminal fails, or the run cannot be asked.
pub fn show(mut model: Model, interval: Duration, watcher: &mut Watcher) -> Result<End, Failure> {
    let failed = |error: io::Error| Failure::user("the terminal cannot be used").because(error);
    let mut terminal = ratatui::try_init().map_err(failed)?;
    let mut choice = Choice::default();
    let mut due = Instant::now() + interval;
    let end = loop {
        if let Err(error) = terminal.draw(|frame| view::draw(frame, &model, &choice)) {
            break Err(failed(error));
        }
        match event::poll(due.saturating_duration_since(Instant::now())) {
            Err(error) => break Err(failed(error)),
            Ok(true) => match event::read() {
                Ok(Event::Key(key)) if key.kind == KeyEventKind::Press => match press(key, &model, &mut choice) {
                    Wish::Nothing => {}
                    Wish::Quit => break Ok(End::Quit),
                    Wish::GoOn => {
                        if let Err(failure) = watcher.go_on() {
                            break Err(failure);
                        }
                        model.broken = None;
                    }
                },
                Ok(_) => {}
                Err(error) => break Err(failed(error)),
            },
            Ok(false) => {
                due = Instant::now() + interval;
                match watcher.look() {
                    Ok(Some(state)) => {
                        if !choice.frozen {
                            model.take(state, Instant::now());
                        }
                        model.broken = watcher.broken().cloned();
                    }
                    Ok(None) => break Ok(End::Over),
                    Err(failure) => break Err(failure),
                }
                choice.row = choice.row.min(view::rows(&model, &choice).saturating_sub(1));
            }
        }
    };
    ratatui::restore();
    end
}

/// A key was pressed.
fn press(key: KeyEvent, model: &Model, choice: &mut Choice) -> Wish {
    if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
        return Wish::Quit;
    }
    if choice.typing {
        match key.code {
            KeyCode::Enter => choice.typing = false,
            KeyCode::Esc => (choice.typing, choice.filter) = (false, String::new()),
            KeyCode::Backspace => drop(choice.filter.pop()),
            KeyCode::Char(letter) => choice.filter.push(letter),
            _ => {}
        }
        choice.row = 0;
        return Wish::Nothing;
    }
    let rows = view::rows(model, choice);
    let turn = |choice: &mut Choice, by: usize| {
        let at = PAGES.iter().position(|page| *page == choice.page).unwrap_or(0);
        go_to(choice, PAGES[(at + by) % PAGES.len()]);
    };
    match key.code {
        KeyCode::Char('q') => return Wish::Quit,
        KeyCode::Char('c') => return Wish::GoOn,
        KeyCode::Esc if choice.open.is_some() => choice.open = None,
        KeyCode::Esc if !choice.filter.is_empty() => choice.filter.clear(),
        KeyCode::Esc => return Wish::Quit,
        KeyCode::Tab | KeyCode::Right => turn(choice, 1),
        KeyCode::BackTab | KeyCode::Left => turn(choice, PAGES.len() - 1),
        KeyCode::Char('1') => go_to(choice, Page::Links),
        KeyCode::Char('2') => go_to(choice, Page::Connections),
        KeyCode::Char('3') => go_to(choice, Page::Nodes),
        KeyCode::Char('4') => go_to(choice, Page::Ports),
        KeyCode::Down | KeyCode::Char('j') => choice.row = (choice.row + 1).min(rows.saturating_sub(1)),
        KeyCode::Up | KeyCode::Char('k') => choice.row = choice.row.saturating_sub(1),
        KeyCode::Home => choice.row = 0,
        KeyCode::End => choice.row = rows.saturating_sub(1),
        KeyCode::Char(' ') => choice.frozen = !choice.frozen,
        KeyCode::Char('/') => choice.typing = true,
        KeyCode::Enter if choice.page == Page::Connections => {
            let shown = view::connections(model, choice);
            choice.open = shown.get(choice.row).map(|connection| connection.key());
        }
        _ => {}
    }
    Wish::Nothing
}

fn go_to(choice: &mut Choice, page: Page) {
    (choice.page, choice.row, choice.open) = (page, 0, None);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::model::tests::model;

    fn press_all(codes: &[KeyCode], choice: &mut Choice) -> Wish {
        let model = model();
        let press_one = |code: &KeyCode| press(KeyEvent::new(*code, KeyModifiers::NONE), &model, choice);
        codes.iter().map(press_one).fold(Wish::Nothing, |_, wish| wish)
    }

    #[test]
    fn keys_lead_to_a_connection_and_back() {
        let mut choice = Choice::default();
        assert_eq!(press_all(&[KeyCode::Tab, KeyCode::Enter], &mut choice), Wish::Nothing);
        assert_eq!(choice.open, Some(model().connections[0].key()));
        assert_eq!(press_all(&[KeyCode::Esc], &mut choice), Wish::Nothing);
        assert_eq!((choice.page, choice.open.clone()), (Page::Connections, None));
        assert_eq!(press_all(&[KeyCode::Char('c')], &mut choice), Wish::GoOn);
        assert_eq!(press_all(&[KeyCode::Char('q')], &mut choice), Wish::Quit);
    }

    #[test]
    fn while_a_filter_is_typed_letters_are_letters() {
        let mut choice = Choice::default();
        let typed = ['/', 'q', 'h', '2'].map(KeyCode::Char);
        assert_eq!(press_all(&typed, &mut choice), Wish::Nothing);
        assert_eq!(choice.filter, "qh2");
        assert_eq!(press_all(&[KeyCode::Enter, KeyCode::Esc], &mut choice), Wish::Nothing);
        assert_eq!((choice.filter.as_str(), choice.typing), ("", false));
    }

    #[test]
    fn the_marked_row_stays_among_the_rows() {
        let mut choice = Choice::default();
        assert_eq!(press_all(&[KeyCode::Down; 9], &mut choice), Wish::Nothing);
        assert_eq!(choice.row, 1);
        assert_eq!(press_all(&[KeyCode::Up; 9], &mut choice), Wish::Nothing);
        assert_eq!(choice.row, 0);
    }
}
