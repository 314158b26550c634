// SPDX-License-Identifier: MIT OR Apache-2.0
//! The terminal of `ibex top`: the alternate screen, redrawn at each sample and restored at the end, and the keys.
//! Grade: setup. Tests: the table's, in `table.rs`.

use super::look::Look;
use anyhow::{Context, Result, ensure};
use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{self, Event, KeyCode, KeyModifiers};
use crossterm::style::Print;
use crossterm::terminal::{self, Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen};
use crossterm::{execute, queue};
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// The alternate screen, left on drop.
struct Screen;

impl Screen {
    fn enter() -> io::Result<Screen> {
        terminal::enable_raw_mode()?;
        let screen = Screen;
        execute!(io::stdout(), EnterAlternateScreen, Hide)?;
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // If the terminal has gone, nothing can be done.
        let _ = execute!(io::stdout(), Show, LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}

enum Asked {
    End,
    Scroll(isize),
    /// Switch between peers and ports.
    Turn,
    Nothing,
}

/// Samples and draws until the user quits.
pub(super) fn show(look: impl Fn() -> Look, pause: Duration, mut by_peer: bool) -> Result<()> {
    ensure!(io::stdout().is_terminal(), "standard output is no terminal: use --once, or --json");
    let _screen = Screen::enter().context("the terminal cannot be used")?;
    let (mut before, mut top) = (look(), 0_usize);
    loop {
        let now = look();
        let mut found = now.since(&before);
        let until = Instant::now() + pause;
        loop {
            found.by_peer = by_peer;
            let text = found.to_string();
            top = draw(&text.lines().collect::<Vec<_>>(), top)?;
            match asked(until.saturating_duration_since(Instant::now()))? {
                Asked::End => return Ok(()),
                Asked::Scroll(by) => top = top.saturating_add_signed(by),
                Asked::Turn => (by_peer, top) = (!by_peer, 0),
                Asked::Nothing if Instant::now() < until => {}
                Asked::Nothing => break,
            }
        }
        before = now;
    }
}

/// Draws the rows that fit, from row `top` on, below the heads; returns the first row drawn.
fn draw(lines: &[&str], top: usize) -> io::Result<usize> {
    let (width, height) = terminal::size()?;
    let (width, room) = (usize::from(width), usize::from(height).saturating_sub(2));
    let (head, rows) = lines.split_first().unwrap_or((&"", &[]));
    let top = top.min(rows.len().saturating_sub(room));
    let mut out = io::stdout().lock();
    queue!(out, MoveTo(0, 0), Clear(ClearType::All))?;
    for (line, text) in std::iter::once(head).chain(rows.iter().skip(top).take(room)).enumerate() {
        queue!(out, MoveTo(0, line as u16), Print(text.chars().take(width).collect::<String>()))?;
    }
    out.flush()?;
    Ok(top)
}

fn asked(at_most: Duration) -> io::Result<Asked> {
    if !event::poll(at_most)? {
        return Ok(Asked::Nothing);
    }
    let Event::Key(key) = event::read()? else { return Ok(Asked::Nothing) };
    Ok(match key.code {
        KeyCode::Char('q') | KeyCode::Esc => Asked::End,
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Asked::End,
        KeyCode::Char('p') => Asked::Turn,
        KeyCode::Up => Asked::Scroll(-1),
        KeyCode::Down => Asked::Scroll(1),
        KeyCode::PageUp => Asked::Scroll(-10),
        KeyCode::PageDown => Asked::Scroll(10),
        _ => Asked::Nothing,
    })
}
