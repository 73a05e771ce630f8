//! Output to the terminal: data on stdout, everything else on stderr.
//!
//! File names and labels may contain any characters, including control sequences of the terminal. All output goes
//! through this module, which escapes invisible characters.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::Write;

use serde::Serialize;

pub(crate) use crate::text::{count, duration, grouped};

/// Prints `error: …`, an empty line and `hint: …`.
pub(crate) fn error(message: &dyn Display, hint: Option<String>) {
    // If stderr is closed, there is nowhere to report it.
    let mut err = anstream::stderr().lock();
    let _ = writeln!(err, "{BOLD_RED}error:{RESET} {}", lines(&message.to_string()));
    if let Some(hint) = hint {
        let _ = writeln!(err, "\n{BOLD_CYAN}hint:{RESET} {}", lines(&hint));
    }
}

/// Prints `warning: …`.
pub(crate) fn warning(message: &dyn Display) {
    let _ =
        writeln!(anstream::stderr().lock(), "{BOLD_YELLOW}warning:{RESET} {}", lines(&message.to_string()));
}

/// Prints a message to stderr.
pub(crate) fn note(message: &dyn Display) {
    let _ = writeln!(anstream::stderr().lock(), "{}", lines(&message.to_string()));
}

/// Writes text to stdout. A closed pipe is not an error.
pub(crate) fn out(text: &str) -> std::io::Result<()> {
    let text = escaped(text, |c| hidden(c) && !matches!(c, '\n' | '\t'), |c| c.escape_default().to_string());
    let mut stdout = anstream::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Writes a value to stdout as indented JSON.
pub(crate) fn json(value: &impl Serialize) -> std::io::Result<()> {
    let text = serde_json::to_string_pretty(value).expect("plain data");
    // JSON does not escape characters above 0x7e; newlines are part of the layout.
    let text = escaped(
        &text,
        |c| hidden(c) && c != '\n',
        |c| c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect(),
    );
    out(&format!("{text}\n"))
}

/// A name as one line with escapes such as `\u{1b}` for control characters, characters that change the direction of
/// text, and characters of zero width.
pub(crate) fn shown(name: &str) -> Cow<'_, str> {
    escaped(name, hidden, |c| c.escape_default().to_string())
}

/// A message. Its own line breaks are before indented text, an empty line or the end; all others come from names and are
/// escaped.
fn lines(message: &str) -> String {
    let mut text = String::with_capacity(message.len());
    let mut rest = message.chars().peekable();
    while let Some(c) = rest.next() {
        let breaks =
            c == '\n' && (rest.peek().is_none_or(|next| matches!(next, ' ' | '\n')) || text.is_empty());
        match breaks || (!hidden(c) && c != '\n') {
            true => text.push(c),
            false => text.extend(c.escape_default()),
        }
    }
    text
}

fn escaped<'a>(text: &'a str, hides: impl Fn(char) -> bool, escape: impl Fn(char) -> String) -> Cow<'a, str> {
    if !text.chars().any(&hides) {
        return Cow::Borrowed(text);
    }
    let all = text.chars().map(|c| if hides(c) { escape(c) } else { c.to_string() });
    Cow::Owned(all.collect())
}

/// Characters that a terminal does not show.
fn hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

const BOLD_RED: &str = "\x1b[1;31m";
const BOLD_YELLOW: &str = "\x1b[1;33m";
const BOLD_CYAN: &str = "\x1b[1;36m";
const RESET: &str = "\x1b[0m";

/// Writes names and values to stdout, one pair per line.
pub(crate) fn facts(facts: &[(&str, String)]) -> std::io::Result<()> {
    let mut table = Table::new(&["", ""], &[false, false]);
    for (name, value) in facts {
        table.row(vec![(*name).to_owned(), value.clone()]);
    }
    let text = table.to_string();
    // The table has no header.
    out(text.split_once('\n').map_or("", |(_, rows)| rows))
}

/// Columns of text, the first left-aligned, numbers right-aligned.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    right: Vec<bool>,
}

impl Table {
    /// A table with a header; `right` selects the right-aligned columns.
    pub(crate) fn new(header: &[&str], right: &[bool]) -> Self {
        Table { rows: vec![header.iter().map(|s| s.to_string()).collect()], right: right.to_vec() }
    }

    /// Adds a row with as many cells as the header.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        assert_eq!(
            cells.len(),
            self.right.len(),
            "a table row of {} cells for {} columns",
            cells.len(),
            self.right.len()
        );
        self.rows.push(cells.iter().map(|cell| shown(cell).into_owned()).collect());
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let width =
            |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.right.len()).map(width).collect();
        for row in &self.rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let gap = " ".repeat(widths[column] - cell.chars().count());
                let cell = if self.right[column] { format!("{gap}{cell}") } else { format!("{cell}{gap}") };
                line.push_str("  ");
                line.push_str(&cell);
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_steer_a_terminal_are_escaped() {
        let name = "a\u{1b}[2J\u{202e}gnp.\u{9b}31m\nerror: no\u{7f}";
        let escaped = "a\\u{1b}[2J\\u{202e}gnp.\\u{9b}31m\\nerror: no\\u{7f}";
        assert_eq!(shown(name), escaped);
        assert_eq!(
            lines(&format!("cannot read `{name}`\n  no such file\n\nhint")),
            format!("cannot read `{escaped}`\n  no such file\n\\nhint")
        );
        assert_eq!(shown("Müller/鳥 \u{1f426}.jpg"), "Müller/鳥 \u{1f426}.jpg");
        let mut table = Table::new(&["name"], &[false]);
        table.row(vec!["a\nb".into()]);
        assert_eq!(table.to_string(), "  name\n  a\\nb\n");
    }

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["name", "n"], &[false, true]);
        table.row(vec!["a".into(), "10".into()]);
        assert_eq!(table.to_string(), "  name   n\n  a     10\n");
    }
}
