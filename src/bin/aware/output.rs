//! Where results go: a table for a person, or JSON.

use std::io::{self, BufWriter, IsTerminal, Stdout, Write};

use anstyle::{AnsiColor, Style};
use comfy_table::{
    Attribute, Cell, CellAlignment, Color, ColumnConstraint, ContentArrangement, presets,
};
use serde::Serialize;

use crate::args::When;
use crate::failure::Failure;
use crate::text;

/// Below so many columns a terminal does not say how wide it is.
const NARROWEST: u16 = 40;

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

/// A text of a table, made safe, and how it looks.
pub struct Text(pub String, pub Look);

impl<T: AsRef<str>> From<T> for Text {
    fn from(text: T) -> Text {
        Text(text::safe(text.as_ref()), Look::Plain)
    }
}

impl Look {
    pub fn of(self, text: impl AsRef<str>) -> Text {
        Text(text::safe(text.as_ref()), self)
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
        for Text(text, look) in texts {
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
        let wraps = self.terminal && table.width().is_some_and(|width| width >= NARROWEST);
        table.set_content_arrangement(if wraps {
            ContentArrangement::Dynamic
        } else {
            ContentArrangement::Disabled
        });
        table.set_header(columns.iter().map(|column| {
            let (Column::Left(name) | Column::Right(name) | Column::Long(name)) = column;
            Look::Faint.cell(name)
        }));
        for row in rows {
            table.add_row(row.iter().map(|Text(text, look)| look.cell(text)));
        }
        for (at, column) in columns.iter().enumerate() {
            if let Some(set) = table.column_mut(at) {
                set.set_padding((0, 2));
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
