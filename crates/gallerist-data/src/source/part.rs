//! The part of a manifest that belongs to a shard, read without the rest of the file.

use std::ops::Range;
use std::path::Path;

use gallerist_util::shard::Shard;

use super::names::is_manifest;
use crate::error::Error;
use crate::positioned::read_whole_at;

/// Bytes that the line with the names of the columns may have.
const MAX_HEADER_BYTES: u64 = 1 << 20;
/// Bytes that the lines of a shard may have.
const MAX_PART_BYTES: u64 = 1 << 30;
/// Bytes that are read at a time to find the end of a line.
const BLOCK: u64 = 1 << 16;

/// The first line of a manifest and the lines of a shard.
#[derive(Debug)]
pub(super) struct Lines {
    /// All these lines.
    pub(super) bytes: Vec<u8>,
    /// Bytes of the whole manifest.
    pub(super) manifest_bytes: u64,
}

impl Lines {
    /// The lines of a shard of the manifest at `path`.
    pub(super) fn of_file(path: &Path, shard: Shard) -> Result<Lines, Error> {
        let name = path.display().to_string();
        check_is_manifest(&name)?;
        let failed = |e| Error::io("read", name.clone(), e);
        let file = gallerist_util::files::open_regular(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        let read = |range: Range<u64>| {
            let mut bytes = vec![0; (range.end - range.start) as usize];
            match read_whole_at(&file, &mut bytes, range.start).map_err(failed)? {
                true => Ok(bytes),
                false => Err(Error::Changed { path: name.clone() }),
            }
        };
        Lines::of(&name, length, shard, &read)
    }

    /// The lines of a shard of a manifest of `length` bytes, which `read` reads.
    pub(super) fn of(
        name: &str,
        length: u64,
        shard: Shard,
        read: &dyn Fn(Range<u64>) -> Result<Vec<u8>, Error>,
    ) -> Result<Lines, Error> {
        let fault = |line, problem: String| Error::Manifest { path: name.to_owned(), line, problem };
        let header_end = end_of_line(0, length.min(MAX_HEADER_BYTES), read)?;
        if header_end == MAX_HEADER_BYTES && header_end < length {
            return Err(fault(Some(1), format!("it has more than {MAX_HEADER_BYTES} bytes")));
        }
        // The first line that begins at `position` or later.
        let next_line = |position: u64| match position <= header_end || position >= length {
            true => Ok(position.clamp(header_end, length)),
            // One byte before, which may end a line.
            false => end_of_line(position - 1, length, read),
        };
        let part = shard.part_of(length - header_end);
        let (start, end) = (next_line(header_end + part.start)?, next_line(header_end + part.end)?);
        if end - start > MAX_PART_BYTES {
            let mib = (end - start) >> 20;
            let problem =
                format!("shard {shard} has {mib} MiB of lines; at most {} are read", MAX_PART_BYTES >> 20);
            return Err(fault(None, format!("{problem}: divide the manifest into more shards")));
        }
        let mut bytes = read(0..header_end)?;
        bytes.extend(read(start..end)?);
        // A value with a line break may be cut at the end of a shard.
        for (number, line) in (1..).zip(bytes.split(|&byte| byte == b'\n')) {
            if line.iter().filter(|&&byte| byte == b'"').count() % 2 != 0 {
                let problem = format!(
                    "line {number} of shard {shard}, which begins at byte {start}, has an odd number of quotes; in a \
                     manifest with shards, a row is one line, and a quote in a value is written twice"
                );
                return Err(fault(None, problem));
            }
        }
        Ok(Lines { bytes, manifest_bytes: length })
    }
}

/// Refuses a name that is not of a CSV or TSV file.
pub(super) fn check_is_manifest(name: &str) -> Result<(), Error> {
    match is_manifest(name) {
        true => Ok(()),
        false => Err(Error::Source {
            name: name.to_owned(),
            problem: "wanted a manifest, whose name ends in .csv or .tsv, to divide into shards".to_owned(),
            hint: Some("write one line per image, with the header `path` or `path,label`".to_owned()),
        }),
    }
}

/// The error of a manifest of which a shard is read: its lines are counted from the beginning of the shard.
pub(super) fn of_shard(error: Error, shard: Option<Shard>) -> Error {
    match (error, shard) {
        (Error::Manifest { path, line: Some(line), problem }, Some(shard)) if line > 1 => {
            let problem = format!("line {line} of shard {shard} (line 1 is the header): {problem}");
            Error::Manifest { path, line: None, problem }
        }
        (error, _) => error,
    }
}

/// The position after the first line break at `from` or later; `until` if there is none before.
fn end_of_line(
    from: u64,
    until: u64,
    read: &dyn Fn(Range<u64>) -> Result<Vec<u8>, Error>,
) -> Result<u64, Error> {
    let mut start = from;
    while start < until {
        let end = until.min(start + BLOCK);
        if let Some(at) = read(start..end)?.iter().position(|&byte| byte == b'\n') {
            return Ok(start + at as u64 + 1);
        }
        start = end;
    }
    Ok(until)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str, shard: &str) -> Result<String, Error> {
        let read = |range: Range<u64>| Ok(text.as_bytes()[range.start as usize..range.end as usize].to_vec());
        let lines = Lines::of("m.csv", text.len() as u64, shard.parse().unwrap(), &read)?;
        Ok(String::from_utf8(lines.bytes).unwrap())
    }

    #[test]
    fn the_shards_have_every_line_once_and_in_order() {
        let header = "path,label\r\n";
        for ending in ["\n", "\r\n"] {
            for last in ["", ending] {
                for rows in 0..12usize {
                    let row = |i: usize| format!("{}.png,\"a,{i}\"", "x".repeat(i * 7 % 5));
                    let body = (0..rows).map(row).collect::<Vec<_>>().join(ending) + last;
                    let text = format!("{header}{body}");
                    for count in 1..=rows + 3 {
                        let all: String = (0..count)
                            .map(|i| {
                                let part = lines(&text, &format!("{i}/{count}")).unwrap();
                                part.strip_prefix(header).unwrap().to_owned()
                            })
                            .collect();
                        assert_eq!(all, body, "{rows} rows in {count} shards");
                    }
                }
            }
        }
    }

    #[test]
    fn a_line_longer_than_a_block_belongs_to_the_shard_where_it_begins() {
        let long = "y".repeat(200_000);
        let text = format!("path\na.png\n{long}.png\nb.png\n");
        assert_eq!(lines(&text, "0/3").unwrap(), format!("path\na.png\n{long}.png\n"));
        assert_eq!(lines(&text, "1/3").unwrap(), "path\n");
        assert_eq!(lines(&text, "2/3").unwrap(), "path\nb.png\n");
    }

    #[test]
    fn a_value_with_a_line_break_and_an_endless_header_are_refused() {
        let error = lines("path,label\n1.png,\"a\nb\"\n", "0/1").unwrap_err().to_string();
        assert!(error.contains("line 2 of shard 0/1") && error.contains("odd number of quotes"), "{error}");
        let error = lines(&"x".repeat(2 << 20), "0/1").unwrap_err().to_string();
        assert!(error.contains("line 1: it has more than 1048576 bytes"), "{error}");
        let error = Lines::of_file(Path::new("photos.zip"), "0/1".parse().unwrap()).unwrap_err();
        assert!(error.to_string().contains("wanted a manifest"), "{error}");
    }
}
