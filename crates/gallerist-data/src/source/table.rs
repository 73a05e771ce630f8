//! Annotation files of text: a record a line, its fields divided by blanks.

use std::str::FromStr;

use crate::error::Error;

/// A text file being read.
pub(super) struct Table<'a> {
    name: String,
    text: &'a str,
}

/// One line of it.
#[derive(Clone, Copy)]
pub(super) struct Line<'a> {
    table: &'a str,
    /// One-based.
    pub(super) number: u64,
    pub(super) text: &'a str,
}

impl<'a> Table<'a> {
    /// The text in `bytes`; `name` is for messages.
    pub(super) fn new(bytes: &'a [u8], name: String) -> Result<Table<'a>, Error> {
        let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Table { name, text }),
            Err(e) => {
                let line = bytes[..e.valid_up_to()].iter().filter(|&&b| b == b'\n').count() as u64 + 1;
                Err(Error::Annotation { path: name, line: Some(line), problem: "not UTF-8".to_owned() })
            }
        }
    }

    /// The lines that are not blank.
    pub(super) fn lines(&self) -> impl Iterator<Item = Line<'_>> {
        let line =
            |(i, text): (usize, &'a str)| Line { table: &self.name, number: i as u64 + 1, text: text.trim() };
        self.text.lines().enumerate().map(line).filter(|line| !line.text.is_empty())
    }

    /// The rows of a DeepFashion list: a line with their number, a line with the columns' names, the rows.
    pub(super) fn counted_rows(&self) -> Result<Vec<Line<'_>>, Error> {
        let mut lines = self.lines();
        let fault = |problem| Error::Annotation { path: self.name.clone(), line: Some(1), problem };
        let first = lines.next().ok_or_else(|| fault("the file is empty".to_owned()))?;
        let promised: usize = first.parse(first.text, "the number of rows")?;
        lines.next();
        let rows: Vec<Line> = lines.collect();
        if rows.len() != promised {
            return Err(fault(format!("it promises {promised} rows, and there are {}", rows.len())));
        }
        Ok(rows)
    }
}

impl<'a> Line<'a> {
    /// Exactly so many fields.
    pub(super) fn fields<const N: usize>(&self) -> Result<[&'a str; N], Error> {
        let fields: Vec<&str> = self.text.split_whitespace().collect();
        let count = fields.len();
        fields.try_into().map_err(|_| self.fault(format!("{count} fields where there should be {N}")))
    }

    /// A field as a number; `what` names it in the error.
    pub(super) fn parse<T: FromStr>(&self, field: &str, what: &str) -> Result<T, Error> {
        field.parse().map_err(|_| self.fault(format!("{what} is `{field}`")))
    }

    pub(super) fn fault(&self, problem: String) -> Error {
        Error::Annotation { path: self.table.to_owned(), line: Some(self.number), problem }
    }
}
