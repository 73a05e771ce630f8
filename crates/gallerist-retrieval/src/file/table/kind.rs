//! Tables of other formats than their names say, and compressions that are not read.

use parquet::basic::Compression;

use super::TableFormat;
use super::fault::Fault;
use super::guard::{CONTINUATION, MAGIC};

/// The bytes that tell the formats apart.
pub(super) const FIRST_BYTES: usize = 6;

/// What a file with these first bytes is, if it is a table of another format than `format`.
pub(super) fn other_than(first: &[u8], format: TableFormat) -> Option<Fault> {
    let called = |name: &str, ending: &str| {
        Some((format!("it is {name}"), Some(format!("give it a name that ends in {ending}"))))
    };
    let is_arrow = first.starts_with(MAGIC) || first.starts_with(CONTINUATION);
    match format {
        _ if first.starts_with(b"FEA1") => Some((
            "it is a file of Feather version 1, which is not read".to_owned(),
            Some(
                "write it again, in Python: pyarrow.parquet.write_table(pyarrow.feather.read_table(FILE), \"FILE.parquet\")"
                    .to_owned(),
            ),
        )),
        TableFormat::Parquet if is_arrow => called("an Arrow file", ".arrow"),
        TableFormat::Arrow if first.starts_with(b"PAR1") => called("a Parquet file", ".parquet"),
        TableFormat::Parquet if first.starts_with(b"PARE") => Some((
            "it is an encrypted Parquet file".to_owned(),
            Some("write it without encryption".to_owned()),
        )),
        _ => None,
    }
}

/// Refuses a compression that is not read.
pub(super) fn check_compression(compression: Compression) -> Result<(), Fault> {
    let name = match compression {
        Compression::BROTLI(_) => "Brotli",
        Compression::LZO => "LZO",
        _ => return Ok(()),
    };
    Err((
        format!("its columns are compressed with {name}, which is not read"),
        Some(
            "write it with another compression, in Python: pyarrow.parquet.write_table(pyarrow.parquet.read_table(FILE), \"FILE.parquet\", \
             compression=\"zstd\")"
                .to_owned(),
        ),
    ))
}
