//! Ranked lists as a Parquet or CSV file.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Float32Array, StringArray, UInt32Array};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::parquet::arrow::ArrowWriter;
use gallerist_cluster::shards::name;
use gallerist_cluster::{Error, Lists, Result};
use gallerist_retrieval::{prepare_to_write, write_atomically};
use gallerist_util::text::csv_field;

/// One place of a list.
struct Place<'a> {
    query: u32,
    place: u32,
    row: u32,
    score: f32,
    file: &'a str,
    file_row: u32,
}

/// Refuses a file that cannot be written, before the work begins.
pub(super) fn check(out: &Path) -> Result<()> {
    match out.extension().and_then(|extension| extension.to_str()) {
        Some("parquet" | "csv") => Ok(prepare_to_write(out)?),
        _ => {
            let problem = format!("cannot tell the format of `{}`", out.display());
            Err(Error::input(problem, Some("name a .parquet or a .csv file")))
        }
    }
}

/// Writes the lists: `query`, `place` (from 1), `row`, `score`, and the file and the row in it of each found row.
pub(super) fn write(out: &Path, lists: &Lists) -> Result<()> {
    let names: Vec<String> = lists.gallery.files.iter().map(|file| name(&file.path)).collect();
    let is_csv = out.extension().is_some_and(|extension| extension == "csv");
    let write =
        |file: &mut dyn Write| if is_csv { csv(file, lists, &names) } else { parquet(file, lists, &names) };
    Ok(write_atomically(out, write)?)
}

/// The places of each block of queries, in order.
fn blocks<'a>(lists: &'a Lists, names: &'a [String]) -> impl Iterator<Item = Vec<Place<'a>>> {
    let mut first = 0u32;
    lists.blocks.iter().map(move |block| {
        let queries = first..first + block.len() as u32;
        first = queries.end;
        let list = |(query, (rows, scores)): (u32, (&'a [u32], &'a [f32]))| {
            (1..).zip(rows.iter().zip(scores)).map(move |(place, (&row, &score))| {
                let files = &lists.gallery.files;
                let at = files.partition_point(|file| file.first + file.rows <= row as usize);
                let file_row = row - files[at].first as u32;
                Place { query, place, row, score, file: &names[at], file_row }
            })
        };
        queries.zip(block.iter()).flat_map(list).collect()
    })
}

fn csv(file: &mut dyn Write, lists: &Lists, names: &[String]) -> io::Result<()> {
    writeln!(file, "query,place,row,score,file,file_row")?;
    for found in blocks(lists, names).flatten() {
        let Place { query, place, row, score, file: name, file_row } = found;
        writeln!(file, "{query},{place},{row},{score},{},{file_row}", csv_field(name, ','))?;
    }
    Ok(())
}

fn parquet(file: &mut dyn Write, lists: &Lists, names: &[String]) -> io::Result<()> {
    let field = |name: &str, kind| Field::new(name, kind, false);
    let schema = Arc::new(Schema::new(vec![
        field("query", DataType::UInt32),
        field("place", DataType::UInt32),
        field("row", DataType::UInt32),
        field("score", DataType::Float32),
        field("file", DataType::Utf8),
        field("file_row", DataType::UInt32),
    ]));
    // The writer wants a value that it can send to another thread.
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, schema.clone(), None).map_err(io::Error::other)?;
    for found in blocks(lists, names) {
        let numbers = |of: fn(&Place) -> u32| -> ArrayRef {
            Arc::new(UInt32Array::from_iter_values(found.iter().map(of)))
        };
        let columns = vec![
            numbers(|place| place.query),
            numbers(|place| place.place),
            numbers(|place| place.row),
            Arc::new(Float32Array::from_iter_values(found.iter().map(|place| place.score))),
            Arc::new(StringArray::from_iter_values(found.iter().map(|place| place.file))),
            numbers(|place| place.file_row),
        ];
        let batch = RecordBatch::try_new(schema.clone(), columns).map_err(io::Error::other)?;
        writer.write(&batch).map_err(io::Error::other)?;
    }
    writer.close().map_err(io::Error::other)?;
    file.write_all(&bytes)
}
