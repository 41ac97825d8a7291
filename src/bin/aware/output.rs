//! Where results go: a table for a person, or JSON.

use std::io::{self, BufWriter, IsTerminal, Stdout, Write};

use anstyle::{AnsiColor, Style};
use comfy_table::{
    Attribute, Cell, CellAlignment, Color, ColumnConstraint, ContentArrangement, presets,
};
use serde::Serialize;
use unicode_width::UnicodeWidthStr;

use crate::args::When;
use crate::failure::Failure;
use crate::text;

/// Below so many columns a terminal does not say how wide it is.
const NARROWEST: u16 = 40;
/// Between two columns.
const GAP: usize = 2;

pub struct Output {
    pub json: bool,
    colour: bool,
    terminal: bool,
    out: BufWriter<Stdout>,
}

/// How a cell stands out.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum Look {
    #[default]
    Plain,
    Strong,
    Faint,
    Good,
    Warning,
    Bad,
    Name,
}

/// A text of a table, made safe, how it looks, and what is shown of it where a terminal is narrow.
pub struct Text(pub String, Look, Option<String>);

impl Text {
    /// With this in its place where the table is wider than the terminal.
    pub fn or(self, short: impl AsRef<str>) -> Text {
        Text(self.0, self.1, Some(text::safe(short.as_ref())))
    }
}

impl<T: AsRef<str>> From<T> for Text {
    fn from(text: T) -> Text {
        Look::Plain.of(text)
    }
}

impl Look {
    pub fn of(self, text: impl AsRef<str>) -> Text {
        Text(text::safe(text.as_ref()), self, None)
    }

    fn style(self) -> Style {
        match self {
            Look::Plain => Style::new(),
            Look::Strong => Style::new().bold(),
            Look::Faint => Style::new().dimmed(),
            Look::Good => AnsiColor::Green.on_default(),
            Look::Warning => AnsiColor::Yellow.on_default().bold(),
            Look::Bad => AnsiColor::Red.on_default().bold(),
            Look::Name => AnsiColor::Cyan.on_default(),
        }
    }

    fn cell(self, text: &str) -> Cell {
        let cell = Cell::new(text);
        match self {
            Look::Plain => cell,
            Look::Strong => cell.add_attribute(Attribute::Bold),
            Look::Faint => cell.add_attribute(Attribute::Dim),
            Look::Good => cell.fg(Color::DarkGreen),
            Look::Warning => cell.fg(Color::DarkYellow).add_attribute(Attribute::Bold),
            Look::Bad => cell.fg(Color::DarkRed).add_attribute(Attribute::Bold),
            Look::Name => cell.fg(Color::DarkCyan),
        }
    }
}

/// A column and its heading.
pub enum Column {
    Left(&'static str),
    /// Numbers and ages.
    Right(&'static str),
    /// Texts of any length, which go on in a second line where a terminal is narrow.
    Long(&'static str),
    /// Texts that are left out where a terminal is narrow, the last such column first.
    Spare(&'static str),
}

impl Column {
    fn name(&self) -> &'static str {
        match self {
            Column::Left(name) | Column::Right(name) | Column::Long(name) | Column::Spare(name) => {
                name
            }
        }
    }
}

/// How wide the columns are when nothing goes on in a second line.
fn whole_width(columns: &[&Column], rows: &[Vec<Text>]) -> usize {
    let of_column = |at: usize| rows.iter().map(|row| row[at].0.width()).max().unwrap_or(0);
    let widths = columns
        .iter()
        .enumerate()
        .map(|(at, column)| of_column(at).max(column.name().len()) + GAP);
    widths.sum()
}

/// What is left of a table for a terminal of this width: first the shorter texts
/// do, then spare columns go.
fn narrowed(
    columns: &[Column],
    rows: Vec<Vec<Text>>,
    width: usize,
) -> (Vec<&Column>, Vec<Vec<Text>>) {
    let (mut columns, mut rows): (Vec<&Column>, _) = (columns.iter().collect(), rows);
    if whole_width(&columns, &rows) <= width {
        return (columns, rows);
    }
    for Text(text, _, short) in rows.iter_mut().flatten() {
        if let Some(short) = short.take() {
            *text = short;
        }
    }
    while whole_width(&columns, &rows) > width
        && let Some(at) = columns
            .iter()
            .rposition(|column| matches!(column, Column::Spare(_)))
    {
        columns.remove(at);
        rows.iter_mut().for_each(|row| drop(row.remove(at)));
    }
    (columns, rows)
}

impl Output {
    pub fn new(json: bool, when: When) -> Output {
        let terminal = io::stdout().is_terminal();
        let refused = std::env::var_os("NO_COLOR").is_some_and(|set| !set.is_empty())
            || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Output {
            json,
            colour: match when {
                When::Always => true,
                When::Never => false,
                When::Auto => terminal && !refused,
            },
            terminal,
            out: BufWriter::new(io::stdout()),
        }
    }

    /// Writes one JSON document.
    pub fn document(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let json = serde_json::to_string_pretty(value)?;
        writeln!(self.out, "{}", text::safe_json(&json))?;
        Ok(())
    }

    /// Writes one JSON document on a line, at once.
    pub fn line_document(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let json = serde_json::to_string(value)?;
        writeln!(self.out, "{}", text::safe_json(&json))?;
        self.flush()
    }

    /// Writes a line of texts.
    pub fn line(&mut self, texts: &[Text]) -> Result<(), Failure> {
        for Text(text, look, _) in texts {
            let style = look.style();
            if self.colour && *look != Look::Plain {
                write!(self.out, "{}{text}{}", style.render(), style.render_reset())?;
            } else {
                write!(self.out, "{text}")?;
            }
        }
        writeln!(self.out)?;
        Ok(())
    }

    /// Writes a table, or `none` when it has no rows.
    pub fn table(
        &mut self,
        columns: &[Column],
        rows: Vec<Vec<Text>>,
        none: &str,
    ) -> Result<(), Failure> {
        if rows.is_empty() {
            return self.line(&[Look::Faint.of(none)]);
        }
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING);
        if self.colour {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        // In a pipe a row is a line, however long; so it is on what is hardly a terminal.
        let width = table
            .width()
            .filter(|width| self.terminal && *width >= NARROWEST);
        let wraps = width.is_some();
        let (columns, rows) = narrowed(columns, rows, width.map_or(usize::MAX, usize::from));
        table.set_content_arrangement(if wraps {
            ContentArrangement::Dynamic
        } else {
            ContentArrangement::Disabled
        });
        table.set_header(columns.iter().map(|column| Look::Faint.cell(column.name())));
        for row in rows {
            table.add_row(row.iter().map(|Text(text, look, _)| look.cell(text)));
        }
        for (at, column) in columns.iter().enumerate() {
            if let Some(set) = table.column_mut(at) {
                set.set_padding((0, GAP as u16));
                if matches!(column, Column::Right(_)) {
                    set.set_cell_alignment(CellAlignment::Right);
                }
                if !matches!(column, Column::Long(_)) {
                    set.set_constraint(ColumnConstraint::ContentWidth);
                }
            }
        }
        for line in table.lines() {
            writeln!(self.out, "{}", line.trim_end())?;
        }
        Ok(())
    }

    pub fn flush(&mut self) -> Result<(), Failure> {
        Ok(self.out.flush()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_terminal_gets_the_short_texts_then_fewer_columns() {
        let columns = [
            Column::Right("N"),
            Column::Spare("KIND"),
            Column::Long("KEY"),
            Column::Spare("MORE"),
        ];
        let left = |width| {
            let row = vec![
                "1".into(),
                "human".into(),
                Text::from("agent:main:main").or("main"),
                "日本".into(),
            ];
            let (columns, rows) = narrowed(&columns, vec![row], width);
            let names: Vec<&str> = columns.iter().map(|column| column.name()).collect();
            let texts: Vec<String> = rows[0].iter().map(|Text(text, ..)| text.clone()).collect();
            (names.join(" "), texts.join(" "))
        };
        let whole = (
            "N KIND KEY MORE".to_owned(),
            "1 human agent:main:main 日本".to_owned(),
        );
        assert_eq!(left(usize::MAX), whole);
        assert_eq!(left(3 + 7 + 17 + 6), whole);
        assert_eq!(
            left(3 + 7 + 17 + 5),
            ("N KIND KEY MORE".into(), "1 human main 日本".into())
        );
        assert_eq!(
            left(3 + 7 + 6 + 5),
            ("N KIND KEY".into(), "1 human main".into())
        );
        // What is no spare stays, and goes on in further lines.
        assert_eq!(left(1), ("N KEY".into(), "1 main".into()));
    }
}
