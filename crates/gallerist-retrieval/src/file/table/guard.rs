//! Sizes that a file claims, checked before memory is taken.

use arrow_ipc::{Message, MessageHeader, root_as_footer, root_as_message};

use super::fault::Fault;

/// The most bytes that the rows of a file of this length may take: a file may be compressed, but not without limit. They may be
/// in memory four times: a page, its values, the values of the set, and while a list grows.
pub(super) fn limit(file: u64) -> usize {
    const LEAST: u64 = 1 << 28;
    const FACTOR: u64 = 256;
    usize::try_from(file.saturating_mul(FACTOR).max(LEAST)).unwrap_or(usize::MAX)
}

/// The first bytes of an Arrow file, and the last.
pub(super) const MAGIC: &[u8] = b"ARROW1";
/// The first bytes of a message of a stream.
pub(super) const CONTINUATION: &[u8] = &[0xff; 4];

/// The bytes that were claimed so far.
pub(super) struct Claims {
    bytes: usize,
    limit: usize,
}

impl Claims {
    pub(super) fn new(limit: usize) -> Self {
        Self { bytes: 0, limit }
    }

    /// Refuses a file whose claims are more than the limit.
    pub(super) fn add(&mut self, bytes: usize) -> Result<(), Fault> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.limit {
            let problem =
                format!("its rows claim more than {} MiB, far more than the file", self.limit >> 20);
            return Err((problem, Some("write it without compression".to_owned())));
        }
        Ok(())
    }
}

fn damaged() -> Fault {
    ("it is cut short or damaged".to_owned(), Some("copy or write the file again".to_owned()))
}

fn place(value: i64) -> Result<usize, Fault> {
    usize::try_from(value).map_err(|_| damaged())
}

/// Refuses an Arrow file whose batches claim to be larger than `limit` once they are decompressed, or to lie outside of
/// the file. The reader of the library takes the memory that a buffer claims to need. Returns the rows of all batches.
pub(super) fn check_arrow(bytes: &[u8], limit: usize) -> Result<usize, Fault> {
    if bytes.len() < 20 || !bytes.starts_with(MAGIC) || !bytes.ends_with(MAGIC) {
        return Err(damaged());
    }
    let end = bytes.len() - MAGIC.len() - 4;
    let length = u32::from_le_bytes(*bytes[end..].first_chunk().expect("four bytes")) as usize;
    let footer = end.checked_sub(length).and_then(|start| bytes.get(start..end)).ok_or_else(damaged)?;
    let footer = root_as_footer(footer).map_err(|_| damaged())?;
    let blocks = footer.recordBatches().into_iter().chain(footer.dictionaries()).flatten();
    let mut all = Messages { claims: Claims::new(limit), rows: 0 };
    for block in blocks {
        let start = place(block.offset())?;
        let header = place(i64::from(block.metaDataLength()))?;
        let body = start.checked_add(header).ok_or_else(damaged)?;
        let end = body.checked_add(place(block.bodyLength())?).ok_or_else(damaged)?;
        let message = bytes.get(start..body).ok_or_else(damaged)?;
        let body = bytes.get(body..end).ok_or_else(damaged)?;
        // A continuation marker and the length come before the message.
        let skipped = if message.starts_with(CONTINUATION) { 8 } else { 4 };
        let message = message.get(skipped..).ok_or_else(damaged)?;
        let message = root_as_message(message).map_err(|_| damaged())?;
        if !all.add(&message, body)? {
            return Err(damaged());
        }
    }
    Ok(all.rows)
}

/// As [`check_arrow`] for a stream. Its end must be marked: a stream that is cut after a batch would lose rows without a word.
pub(super) fn check_stream(bytes: &[u8], limit: usize) -> Result<usize, Fault> {
    let mut all = Messages { claims: Claims::new(limit), rows: 0 };
    let mut rest = bytes;
    loop {
        rest = rest.strip_prefix(CONTINUATION).ok_or_else(damaged)?;
        let (&length, after) = rest.split_first_chunk().ok_or_else(damaged)?;
        let length = place(i64::from(i32::from_le_bytes(length)))?;
        if length == 0 {
            return if after.is_empty() { Ok(all.rows) } else { Err(damaged()) };
        }
        let (message, after) = after.split_at_checked(length).ok_or_else(damaged)?;
        let message = root_as_message(message).map_err(|_| damaged())?;
        let (body, after) = after.split_at_checked(place(message.bodyLength())?).ok_or_else(damaged)?;
        all.add(&message, body)?;
        rest = after;
    }
}

/// What the messages that were checked so far claim.
struct Messages {
    claims: Claims,
    rows: usize,
}

impl Messages {
    /// Adds what a message with this body claims. False for a message that is no batch.
    fn add(&mut self, message: &Message, body: &[u8]) -> Result<bool, Fault> {
        let (batch, is_dictionary) = match message.header_type() {
            MessageHeader::RecordBatch => (message.header_as_record_batch(), false),
            MessageHeader::DictionaryBatch => {
                (message.header_as_dictionary_batch().and_then(|batch| batch.data()), true)
            }
            _ => return Ok(false),
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
            self.claims.add(size)?;
        }
        let rows = place(batch.length())?;
        // Rows of empty lists of a fixed size have no buffers.
        self.claims.add(rows)?;
        if !is_dictionary {
            self.rows += rows;
        }
        Ok(true)
    }
}
