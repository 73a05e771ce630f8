//! What the footer and the pages of a Parquet file claim, checked before they are read.
//!
//! The library takes the memory that the header of a page asks for, and decompresses gzip to its end. The sizes in the
//! footer say nothing about it: no reader compares them.

mod delta;
mod footer;
mod header;
mod thrift;

use std::fs::File;
use std::io::{Read as _, copy, sink};
use std::ops::Range;
use std::sync::Arc;

use flate2::read::MultiGzDecoder;
use parquet::arrow::ProjectionMask;
use parquet::basic::{Compression, Type};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use parquet::file::reader::{ChunkReader as _, SerializedPageReader};

use super::fault::{Fault, damaged};
use super::guard::Claims;
use super::kind::check_compression;
pub(super) use footer::check_footer;
use header::Header;
use thrift::Unread;

/// Bytes that are read at a time; most headers are shorter than 100.
const WINDOW: u64 = 4096;
/// Bytes of the levels of a value, in a column of lists.
const LEVELS: usize = 4;

/// Refuses columns whose pages claim more than `limit` bytes, lie outside of the file, or have a compression that is not
/// read.
pub(super) fn check_pages(
    file: &Arc<File>,
    metadata: &ParquetMetaData,
    columns: &ProjectionMask,
    limit: usize,
) -> Result<(), Fault> {
    let length = file.metadata().map_err(damaged)?.len();
    let mut claims = Claims::new(limit);
    for group in metadata.row_groups() {
        let chunks = group.columns().iter().enumerate().filter(|(leaf, _)| columns.leaf_included(*leaf));
        for (_, chunk) in chunks {
            check_compression(chunk.compression())?;
            let (start, size) = chunk.byte_range();
            let end = start.checked_add(size).filter(|&end| end <= length).ok_or_else(outside)?;
            let has_delta_texts = check_chunk(file, chunk, start..end, &mut claims)?;
            if has_delta_texts {
                check_texts(file, chunk, &mut claims)?;
            }
        }
    }
    Ok(())
}

fn outside() -> Fault {
    damaged("a page that is not in the file")
}

/// Adds what the pages of a column in a row group claim. Returns whether they have texts that must be looked at.
fn check_chunk(
    file: &File,
    chunk: &ColumnChunkMetaData,
    place: Range<u64>,
    claims: &mut Claims,
) -> Result<bool, Fault> {
    let of_value = bytes_of_value(chunk)?;
    let is_gzip = matches!(chunk.compression(), Compression::GZIP(_));
    let mut has_delta_texts = false;
    each_page(file, place, |header, length, body| {
        // A header counts as well: another row group may have the same pages.
        claims.add(header.uncompressed.max(header.values.saturating_mul(of_value)).saturating_add(length))?;
        has_delta_texts |= header.is_delta_text && chunk.column_type() == Type::BYTE_ARRAY;
        let decompressed = header.uncompressed - header.levels;
        if is_gzip && !header.is_plain && decompressed > 0 {
            check_gzip(file, header, body)?;
        }
        Ok(())
    })?;
    Ok(has_delta_texts)
}

/// Calls `page` with the header of each page, its length, and the place of the page.
fn each_page(
    file: &File,
    place: Range<u64>,
    mut page: impl FnMut(Header, usize, Range<u64>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let read =
        |at: u64, length: u64| file.get_bytes(at, length.min(place.end - at) as usize).map_err(damaged);
    let mut at = place.start;
    // Bytes of the file from `start` on.
    let (mut window, mut start) = (read(at, WINDOW)?, at);
    while at < place.end {
        let known =
            usize::try_from(at - start).ok().and_then(|passed| window.get(passed..)).unwrap_or_default();
        match Header::read(known) {
            Ok((header, length)) => {
                let body = at + length as u64..at + length as u64 + header.compressed as u64;
                if body.end > place.end {
                    return Err(outside());
                }
                at = body.end;
                page(header, length, body)?;
            }
            Err(Unread::Short) if (known.len() as u64) < place.end - at => {
                window = read(at, WINDOW.max(2 * known.len() as u64))?;
                start = at;
            }
            Err(_) => return Err(damaged("the header of a page")),
        }
    }
    Ok(())
}

/// Refuses a page of gzip that has another length than its header says.
fn check_gzip(file: &File, header: Header, body: Range<u64>) -> Result<(), Fault> {
    let bytes = file.get_bytes(body.start, header.compressed).map_err(damaged)?;
    let wanted = (header.uncompressed - header.levels) as u64;
    let mut content = MultiGzDecoder::new(&bytes[header.levels..]).take(wanted + 1);
    match copy(&mut content, &mut sink()).map_err(damaged)? == wanted {
        true => Ok(()),
        false => Err(damaged("a page of another length than its header says")),
    }
}

/// Adds what the texts of a column in a row group repeat. What the pages claim has been checked.
fn check_texts(file: &Arc<File>, chunk: &ColumnChunkMetaData, claims: &mut Claims) -> Result<(), Fault> {
    let column = chunk.column_descr();
    let levels = (column.max_rep_level(), column.max_def_level());
    let pages = SerializedPageReader::new(Arc::clone(file), chunk, 0, None).map_err(damaged)?;
    for page in pages {
        let repeated = delta::repeated(&page.map_err(damaged)?, levels);
        claims.add(repeated.ok_or_else(|| damaged("the lengths of texts"))?)?;
    }
    Ok(())
}

/// The bytes that a value takes in memory, without the bytes of a text.
fn bytes_of_value(chunk: &ColumnChunkMetaData) -> Result<usize, Fault> {
    let column = chunk.column_descr();
    let value = match column.physical_type() {
        Type::BOOLEAN => 1,
        Type::INT32 | Type::FLOAT => 4,
        Type::INT64 | Type::DOUBLE => 8,
        Type::INT96 => 12,
        // A view of a text.
        Type::BYTE_ARRAY => 16,
        Type::FIXED_LEN_BYTE_ARRAY => usize::try_from(column.type_length()).map_err(damaged)?,
    };
    Ok(if column.max_rep_level() > 0 { value.saturating_add(LEVELS) } else { value })
}
