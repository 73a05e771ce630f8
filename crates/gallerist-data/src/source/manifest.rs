//! CSV and TSV manifests: `path,label[,camera][,split]` and further columns; a label `a|b` is a set of labels.

use std::path::{Component, Path, PathBuf};

use super::names::extension;
use super::record::ListedColumn;
use crate::error::Error;

/// The limits of embeddings files, so that a manifest is refused before its images are embedded.
const MAX_COLUMNS: usize = 1000;
const MAX_NAME_BYTES: usize = 256;
const MAX_VALUE_BYTES: usize = 1 << 16;

/// A manifest.
#[derive(Debug, PartialEq)]
pub(super) struct Manifest {
    pub(super) rows: Vec<Row>,
    /// The further columns, in their order.
    pub(super) columns: Vec<ListedColumn>,
}

/// One row.
#[derive(Debug, PartialEq)]
pub(super) struct Row {
    /// One-based line in the file.
    pub(super) line: u64,
    /// Relative to the manifest.
    pub(super) path: String,
    /// The path with the spaces around it, if there are some: a file may be called so.
    pub(super) spaced_path: Option<String>,
    pub(super) label: Option<String>,
    pub(super) camera: Option<String>,
    pub(super) split: Option<String>,
}

/// Parses a manifest. `name` is for messages; values are separated by tabs if it ends in `.tsv`, else by commas.
///
/// Spaces around a value are left out unless it is in quotes; around labels, cameras and splits always.
///
/// The header is required. Columns of other names are kept as they are, and those without a name are
/// ignored. Without a column `label`, other columns are refused: one of them may be a misspelt `label`, and
/// leaving all labels out in silence would be worse than asking.
pub(super) fn parse(bytes: &[u8], name: &str) -> Result<Manifest, Error> {
    let fault = |line: Option<u64>, problem: String| Error::Manifest { path: name.to_owned(), line, problem };
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    let delimiter = if extension(name) == "tsv" { b'\t' } else { b',' };
    let mut reader =
        csv::ReaderBuilder::new().delimiter(delimiter).trim(csv::Trim::Headers).from_reader(bytes);
    let csv_fault = |e: csv::Error| {
        let (line, problem) = fault_of(&e, bytes);
        fault(line, problem)
    };
    let header = reader.headers().map_err(csv_fault)?.clone();
    let column = |wanted: &str| -> Result<Option<usize>, Error> {
        let mut found = header.iter().enumerate().filter(|(_, name)| *name == wanted);
        let first = found.next().map(|(i, _)| i);
        match found.next() {
            Some(_) => Err(fault(Some(1), format!("two columns are called `{wanted}`"))),
            None => Ok(first),
        }
    };
    let columns = || header.iter().map(|c| format!("`{c}`")).collect::<Vec<_>>().join(", ");
    let path = column("path")?
        .ok_or_else(|| fault(Some(1), format!("no column `path`; its columns are {}", columns())))?;
    let (label, camera, split) = (column("label")?, column("camera")?, column("split")?);
    if label.is_none() && header.iter().any(is_further) {
        return Err(fault(Some(1), format!("no column `label`; its columns are {}", columns())));
    }
    let mut further = further_columns(&header).map_err(|problem| fault(Some(1), problem))?;
    let mut rows = Vec::new();
    let mut lines = Lines::default();
    let mut record = csv::StringRecord::new();
    while reader.read_record(&mut record).map_err(csv_fault)? {
        let start = record.position().map_or(0, csv::Position::byte);
        let line = lines.at(bytes, start);
        let text = &bytes[start as usize..reader.position().byte() as usize];
        let value = |column: Option<usize>, what: &str| -> Result<Option<String>, Error> {
            match column.map(|c| record[c].trim().to_owned()) {
                Some(v) if v.is_empty() => Err(fault(Some(line), format!("the {what} is empty"))),
                v => Ok(v),
            }
        };
        let label = value(label, "label")?;
        if let Some(label) = label.as_deref().filter(|l| super::labels::canonical(l).is_none()) {
            return Err(fault(Some(line), format!("the label `{label}` has an empty part")));
        }
        rows.push(Row {
            line,
            path: value(Some(path), "path")?.expect("the column is there"),
            spaced_path: Some(&record[path]).filter(|path| path.trim() != *path).map(str::to_owned),
            label,
            camera: value(camera, "camera")?,
            split: value(split, "split")?,
        });
        for (at, column) in &mut further {
            let value = if is_quoted(&record[*at], text) { &record[*at] } else { record[*at].trim() };
            if value.len() > MAX_VALUE_BYTES {
                let (name, bytes) = (&column.name, value.len());
                let problem = format!("`{name}` has {bytes} bytes; at most {MAX_VALUE_BYTES} are permitted");
                return Err(fault(Some(line), problem));
            }
            column.values.push(value.to_owned());
        }
    }
    Ok(Manifest { rows, columns: further.into_iter().map(|(_, column)| column).collect() })
}

/// The line of an error of the parser of `bytes`, if it has one, and the problem in words.
pub(super) fn fault_of(error: &csv::Error, bytes: &[u8]) -> (Option<u64>, String) {
    let line = error.position().map(|place| Lines::default().at(bytes, place.byte()));
    let problem = match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("{len} values where the header has {expected_len} columns")
        }
        csv::ErrorKind::Utf8 { .. } => "not UTF-8".to_owned(),
        _ => error.to_string(),
    };
    (line, problem)
}

/// Whether a value with spaces around it is in quotes in the text of its line.
fn is_quoted(value: &str, line: &[u8]) -> bool {
    if value.trim() == value {
        return false;
    }
    let quoted = format!("\"{}\"", value.replace('"', "\"\""));
    line.windows(quoted.len()).any(|part| part == quoted.as_bytes())
}

/// The columns that every manifest may have.
const OWN: [&str; 4] = ["path", "label", "camera", "split"];

fn is_further(name: &str) -> bool {
    !name.is_empty() && !OWN.contains(&name)
}

/// The further columns of a header, without values, each with its place.
fn further_columns(header: &csv::StringRecord) -> Result<Vec<(usize, ListedColumn)>, String> {
    let mut columns: Vec<(usize, ListedColumn)> = Vec::new();
    for (at, name) in header.iter().enumerate().filter(|(_, name)| is_further(name)) {
        if name.len() > MAX_NAME_BYTES || name.chars().any(char::is_control) {
            let name: String = name.chars().filter(|c| !c.is_control()).take(30).collect();
            return Err(format!(
                "the column `{name}` has a name of more than {MAX_NAME_BYTES} bytes or with control characters"
            ));
        }
        columns.push((at, ListedColumn { name: name.to_owned(), values: Vec::new() }));
    }
    if columns.len() > MAX_COLUMNS {
        return Err(format!("it has {} further columns; at most {MAX_COLUMNS} are permitted", columns.len()));
    }
    let mut names: Vec<&str> = columns.iter().map(|(_, column)| column.name.as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(format!("two columns are called `{}`", pair[0])),
        None => Ok(columns),
    }
}

/// Line numbers of ascending byte positions. The parser's own count is one too
/// low after a CRLF, and does not see blank lines before a record.
#[derive(Default)]
pub(super) struct Lines {
    counted: usize,
    breaks: u64,
}

impl Lines {
    pub(super) fn at(&mut self, bytes: &[u8], position: u64) -> u64 {
        let start = (position as usize).min(bytes.len());
        let blank = bytes[start..].iter().take_while(|b| matches!(b, b'\r' | b'\n')).count();
        let until = start + blank;
        self.breaks += bytes[self.counted..until].iter().filter(|&&b| b == b'\n').count() as u64;
        self.counted = until;
        self.breaks + 1
    }
}

/// A path of a manifest on disk without parts `.` and doubled `/`, as the paths of every [`ImageSet`](crate::ImageSet) are: an image
/// has one path. Windows's `\` becomes `/`, unless there is an image with it in its name, as `exists` says.
///
/// ```
/// use gallerist_data::tidy_path;
///
/// assert_eq!(tidy_path("./new//a.png", |_| false), "new/a.png");
/// assert_eq!(tidy_path("new\\a.png", |_| false), "new/a.png");
/// assert_eq!(tidy_path("./new\\a.png", |path| path == "new\\a.png"), "new\\a.png");
/// ```
pub fn tidy_path(path: &str, exists: impl Fn(&str) -> bool) -> String {
    let tidied = |path: &str| {
        let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
        format!("{}{}", if path.starts_with('/') { "/" } else { "" }, parts.join("/"))
    };
    let plain = tidied(path);
    match path.contains('\\') && !exists(&plain) {
        true => tidied(&path.replace('\\', "/")),
        false => plain,
    }
}

/// Where the file at `path` in `folder` is, freed of `..` by the names alone: for the comparison of paths.
pub(super) fn absolute(folder: &Path, path: &str) -> PathBuf {
    let joined = folder.join(path);
    let mut plain = PathBuf::new();
    for part in gallerist_util::text::absolute(&joined).components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            part => plain.push(part),
        }
    }
    plain
}

/// `folder` and `path` joined and freed of `.` and `..`, with `/` between the
/// parts; `None` where it leads out of the top folder.
pub(super) fn resolve(folder: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in folder.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> String {
        parse(text.as_bytes(), "m.csv").unwrap_err().to_string()
    }

    #[test]
    fn values_of_a_tsv_are_separated_by_tabs() {
        let of_csv = parse(b"path,label,shop\nx.png,a,\"y, z\"\n", "m.csv").unwrap();
        assert_eq!(parse(b"path\tlabel\tshop\nx.png\ta\ty, z\n", "dir.csv/m.TSV").unwrap(), of_csv);
        assert_eq!(parse(b"path\tlabel\tshop\r\nx.png\ta\t\"y, z\"\r\n", "m.tsv").unwrap(), of_csv);
        let error = parse(b"path,label\nx.png,a\n", "m.tsv").unwrap_err().to_string();
        assert!(error.contains("no column `path`; its columns are `path,label`"), "{error}");
    }

    #[test]
    fn all_columns_in_any_order_with_quotes_and_a_byte_order_mark() {
        let text = "\u{feff}split,label,path,note,camera\r\ntrain,\"a,b|c\", x/1.png ,hello,2\r\n";
        assert_eq!(
            parse(text.as_bytes(), "m.csv").unwrap().rows,
            [Row {
                line: 2,
                path: "x/1.png".to_owned(),
                spaced_path: Some(" x/1.png ".to_owned()),
                label: Some("a,b|c".to_owned()),
                camera: Some("2".to_owned()),
                split: Some("train".to_owned()),
            }]
        );
    }

    #[test]
    fn further_columns_are_kept_as_written() {
        let text = "price,,path,label,shop\n12.50,0,1.png,a,\"x, y\"\n,1,2.png,a,\n";
        let column = |name: &str, values: [&str; 2]| ListedColumn {
            name: name.to_owned(),
            values: values.map(str::to_owned).to_vec(),
        };
        let wanted = [column("price", ["12.50", ""]), column("shop", ["x, y", ""])];
        assert_eq!(parse(text.as_bytes(), "m.csv").unwrap().columns, wanted);
        let line = "manifest `m.csv`, line";
        assert_eq!(message("path,label,a,b,a\n"), format!("{line} 1: two columns are called `a`"));
        let long = message(&format!("path,label,a\n1.png,x,1\n2.png,x,{}\n", "y".repeat(65_537)));
        assert_eq!(long, format!("{line} 3: `a` has 65537 bytes; at most 65536 are permitted"));
        assert!(message(&format!("path,label,{}\n", "n".repeat(257))).contains("more than 256 bytes"));
        assert!(message("path,label,\"a\nb\"\n").contains("control characters"));
        let many = (0..1001).map(|i| format!(",c{i}")).collect::<String>();
        assert!(message(&format!("path,label{many}\n")).contains("1001 further columns"));
    }

    #[test]
    fn a_column_without_a_name_needs_no_label() {
        // As pandas writes the index of its rows.
        let found = parse(b",path\n0,x/1.png\n1,x/2.png\n", "m.csv").unwrap();
        assert_eq!(found.rows[1].path, "x/2.png");
        assert!(found.rows[1].label.is_none() && found.columns.is_empty());
    }

    #[test]
    fn spaces_around_values_are_kept_in_quotes_only() {
        let text = "path, label, price, note\n1.png, a , 12.50 , x\n2.png,\" a\",\" 7\",\" x \"\"y\"\" \"\n";
        let found = parse(text.as_bytes(), "m.csv").unwrap();
        assert!(found.rows.iter().all(|row| row.label.as_deref() == Some("a") && row.spaced_path.is_none()));
        assert_eq!(found.columns[0].values, ["12.50", " 7"]);
        assert_eq!(found.columns[1].values, ["x", " x \"y\" "]);
        assert_eq!(message("path,label\n\"  \",a\n"), "manifest `m.csv`, line 2: the path is empty");
    }

    #[test]
    fn faults_name_the_line() {
        assert_eq!(
            message("path,lable\nx.png,a\n"),
            "manifest `m.csv`, line 1: no column `label`; its columns are `path`, `lable`"
        );
        assert_eq!(
            message("x.png,a\n"),
            "manifest `m.csv`, line 1: no column `path`; its columns are `x.png`, `a`"
        );
        assert_eq!(
            message("path,label\nx.png,a\ny.png\n"),
            "manifest `m.csv`, line 3: 1 values where the header has 2 columns"
        );
        assert_eq!(message("path,label\nx.png,a\ny.png,\n"), "manifest `m.csv`, line 3: the label is empty");
        assert_eq!(message("path,label,path\n"), "manifest `m.csv`, line 1: two columns are called `path`");
        assert_eq!(
            message("path,label\r\n\r\nx.png,a\r\n\r\ny.png,\r\n"),
            "manifest `m.csv`, line 5: the label is empty"
        );
        assert_eq!(
            message("path,label\r\nx.png,a\r\n\r\ny.png\r\n"),
            "manifest `m.csv`, line 4: 1 values where the header has 2 columns"
        );
    }

    #[test]
    fn a_path_has_one_spelling_and_a_file_of_a_strange_name_keeps_it() {
        for path in ["a/./0.png", "a//0.png", "./a/0.png", "a\\0.png", "a\\.\\0.png"] {
            assert_eq!(tidy_path(path, |_| false), "a/0.png");
        }
        assert_eq!(tidy_path("/x//y.png", |_| false), "/x/y.png");
        assert_eq!(tidy_path("../b/0.png", |_| false), "../b/0.png");
        assert_eq!(tidy_path("a\\0.png", |_| true), "a\\0.png");
    }

    #[test]
    fn paths_are_resolved_within_the_top_folder() {
        assert_eq!(resolve("a/b", "./c//d.png").as_deref(), Some("a/b/c/d.png"));
        assert_eq!(resolve("a/b", "../d.png").as_deref(), Some("a/d.png"));
        assert_eq!(resolve("a", "../../d.png"), None);
    }
}
