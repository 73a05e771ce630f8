//! Sizes that a file claims, checked before memory is taken.

use arrow_ipc::{MessageHeader, root_as_footer, root_as_message};

use super::build::Fault;

/// The most bytes that the rows of a file of this length may take: a file may be compressed, but not without limit.
pub(super) fn limit(file: u64) -> usize {
    const LEAST: u64 = 1 << 30;
    const FACTOR: u64 = 256;
    usize::try_from(file.saturating_mul(FACTOR).max(LEAST)).unwrap_or(usize::MAX)
}

const MAGIC: &[u8] = b"ARROW1";

/// Refuses an Arrow file whose batches claim to be larger than `limit` once they are decompressed, or to lie outside of
/// the file. The reader of the library takes the memory that a buffer claims to need.
pub(super) fn check_arrow(bytes: &[u8], limit: usize) -> Result<(), Fault> {
    let damaged =
        || ("it is cut short or damaged".to_owned(), Some("copy or write the file again".to_owned()));
    if bytes.len() < 20 || !bytes.starts_with(MAGIC) || !bytes.ends_with(MAGIC) {
        return Err(damaged());
    }
    let end = bytes.len() - MAGIC.len() - 4;
    let length = u32::from_le_bytes(*bytes[end..].first_chunk().expect("four bytes")) as usize;
    let footer = end.checked_sub(length).and_then(|start| bytes.get(start..end)).ok_or_else(damaged)?;
    let footer = root_as_footer(footer).map_err(|_| damaged())?;
    let blocks = footer.recordBatches().into_iter().chain(footer.dictionaries()).flatten();
    let mut all = 0usize;
    for block in blocks {
        let place = |value: i64| usize::try_from(value).map_err(|_| damaged());
        let start = place(block.offset())?;
        let header = place(i64::from(block.metaDataLength()))?;
        let body = start.checked_add(header).ok_or_else(damaged)?;
        let end = body.checked_add(place(block.bodyLength())?).ok_or_else(damaged)?;
        let message = bytes.get(start..body).ok_or_else(damaged)?;
        let body = bytes.get(body..end).ok_or_else(damaged)?;
        // A continuation marker and the length come before the message.
        let skipped = if message.starts_with(&[0xff; 4]) { 8 } else { 4 };
        let message = message.get(skipped..).ok_or_else(damaged)?;
        let message = root_as_message(message).map_err(|_| damaged())?;
        let batch = match message.header_type() {
            MessageHeader::RecordBatch => message.header_as_record_batch(),
            MessageHeader::DictionaryBatch => {
                message.header_as_dictionary_batch().and_then(|batch| batch.data())
            }
            _ => None,
        };
        let batch = batch.ok_or_else(damaged)?;
        let compressed = batch.compression().is_some();
        for buffer in batch.buffers().into_iter().flatten() {
            let at = place(buffer.offset())?;
            let length = place(buffer.length())?;
            let buffer = at.checked_add(length).and_then(|end| body.get(at..end)).ok_or_else(damaged)?;
            let size = match buffer.first_chunk() {
                Some(&claimed) if compressed => match i64::from_le_bytes(claimed) {
                    -1 => length,
                    claimed => place(claimed)?,
                },
                _ => length,
            };
            all = all.saturating_add(size);
        }
        if all > limit {
            let problem = format!("its rows claim more than {} MiB, far more than the file", limit >> 20);
            return Err((problem, Some("write it without compression".to_owned())));
        }
    }
    Ok(())
}
