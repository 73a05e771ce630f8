//! The log as TensorBoard's event file: every number of a record as a scalar.
//!
//! The format: a TFRecord is a length (u64), the checksum of the length, the bytes, and their checksum,
//! all little endian; a checksum is a masked CRC-32C. The bytes are the protocol buffer `Event` (wall
//! time, step, and the file's version or a `Summary` of tags and values); see tensorboard's
//! `compat/proto/event.proto` and `summary.proto`.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use gallerist_util::protobuf::Message;
use serde_json::Value;

use crate::record::Record;
use crate::{Error, Result};

/// The file's name; TensorBoard looks for `tfevents`.
const NAME: &str = "events.out.tfevents.gallerist";

/// An event file, appended to event by event.
#[derive(Debug)]
pub(super) struct Events {
    path: PathBuf,
    file: File,
}

impl Events {
    /// Opens the event file in `folder`, keeping of an older one only what was written up to `step`, so
    /// that steps which are done again are not there twice.
    pub(super) fn open(folder: &Path, step: usize) -> Result<Self> {
        let path = folder.join(NAME);
        let open = || -> io::Result<File> {
            std::fs::create_dir_all(folder)?;
            let mut file =
                OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            let kept = kept(&bytes, step);
            file.set_len(kept as u64)?;
            file.seek(SeekFrom::End(0))?;
            if kept == 0 {
                file.write_all(&record(&event(0).text(3, "brain.Event:2").into_bytes()))?;
            }
            Ok(file)
        };
        let file = open().map_err(|source| Error::Io { action: "write", path: path.clone(), source })?;
        Ok(Self { path, file })
    }

    /// Appends the numbers of a record; one without numbers leaves nothing.
    pub(super) fn write(&mut self, of: &Record) -> Result<()> {
        let values = scalars(of);
        if values.is_empty() {
            return Ok(());
        }
        let value = |summary: Message, (tag, value): (String, f32)| {
            summary.message(1, Message::default().text(1, &tag).float(2, value))
        };
        let summary = Message::default().all(values, value);
        let bytes = record(&event(of.step() as u64).message(5, summary).into_bytes());
        (self.file.write_all(&bytes)).map_err(|source| Error::Io {
            action: "write",
            path: self.path.clone(),
            source,
        })
    }
}

/// Tags and values: `train/loss`, `validation/recall@1`. A number that is not finite is `null` in JSON.
fn scalars(record: &Record) -> Vec<(String, f32)> {
    fn collect(tag: String, value: &Value, all: &mut Vec<(String, f32)>) {
        match value {
            Value::Number(number) => all.push((tag, number.as_f64().unwrap_or(f64::NAN) as f32)),
            Value::Null => all.push((tag, f32::NAN)),
            Value::Array(items) => {
                items.iter().enumerate().for_each(|(i, item)| collect(format!("{tag}/{i}"), item, all));
            }
            Value::Object(fields) => {
                fields.iter().for_each(|(name, item)| collect(format!("{tag}/{name}"), item, all));
            }
            Value::Bool(_) | Value::String(_) => {}
        }
    }
    let mut all = Vec::new();
    match record {
        Record::Step(step) => {
            let mut value = serde_json::to_value(step).expect("plain data");
            value.as_object_mut().expect("a struct").remove("step");
            collect("train".into(), &value, &mut all);
        }
        Record::Validation { metrics, .. } => {
            metrics.iter().for_each(|(name, &value)| all.push((format!("validation/{name}"), value as f32)));
        }
        Record::BrokenImage { .. } | Record::Warning { .. } | Record::Resumed { .. } => {}
    }
    all
}

/// The bytes of the whole records at the beginning whose steps do not exceed `step`.
fn kept(bytes: &[u8], step: usize) -> usize {
    let mut at = 0;
    while let Some(event) = next(&bytes[at..])
        && step_of(event).is_some_and(|found| found <= step as u64)
    {
        at += FRAME + event.len();
    }
    at
}

/// Overhead of a record in bytes.
const FRAME: usize = 16;

fn record(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    [&length[..], &masked(crc32c(&length)).to_le_bytes(), data, &masked(crc32c(data)).to_le_bytes()].concat()
}

/// The data of the record that `bytes` begin with; `None` where it is cut short or damaged.
fn next(bytes: &[u8]) -> Option<&[u8]> {
    let checksum = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?));
    let length = bytes.get(..8)?;
    if checksum(8)? != masked(crc32c(length)) {
        return None;
    }
    let length = usize::try_from(u64::from_le_bytes(length.try_into().ok()?)).ok()?;
    let end = length.checked_add(12)?;
    let data = bytes.get(12..end)?;
    (checksum(end)? == masked(crc32c(data))).then_some(data)
}

/// The wire type of a varint in a protocol buffer.
const VARINT: u8 = 0;

/// An `Event` with its wall time (field 1) and its step (field 2).
fn event(step: u64) -> Message {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64());
    Message::default().double(1, now).int(2, step as i64)
}

/// The step of an event as [`event`] writes it: after nine bytes of wall time.
fn step_of(event: &[u8]) -> Option<u64> {
    let (&tag, rest) = event.get(9..)?.split_first()?;
    let mut step = 0;
    for (i, &byte) in rest.iter().enumerate().take(9) {
        step |= u64::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            return (tag == 2 << 3 | VARINT).then_some(step);
        }
    }
    None
}

fn masked(checksum: u32) -> u32 {
    checksum.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Castagnoli's CRC, bit by bit: a few hundred bytes a step need no table.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Step;

    fn step(step: usize) -> Record {
        Record::Step(Step { step, loss: 0.5, losses: vec![1.0, 2.0], ..Step::default() })
    }

    /// The steps of the whole records of a file.
    fn steps(folder: &Path) -> Vec<u64> {
        let bytes = std::fs::read(folder.join(NAME)).unwrap();
        let mut at = 0;
        let mut steps = Vec::new();
        while let Some(event) = next(&bytes[at..]) {
            steps.push(step_of(event).unwrap());
            at += FRAME + event.len();
        }
        assert_eq!(at, bytes.len());
        steps
    }

    #[test]
    fn the_checksum_is_castagnolis() {
        // The check value of CRC-32C, and RFC 3720, B.4: 32 bytes of zeros.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    }

    #[test]
    fn every_number_of_a_step_is_a_scalar() {
        let scalars = scalars(&step(3));
        let value = |tag: &str| scalars.iter().find(|(name, _)| name == tag).map(|(_, value)| *value);
        assert_eq!(value("train/loss"), Some(0.5));
        assert_eq!(value("train/losses/1"), Some(2.0));
        assert_eq!(value("train/step"), None);
    }

    #[test]
    fn a_resumed_run_has_every_step_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut events = Events::open(folder.path(), 0).unwrap();
        (1..=300).for_each(|i| events.write(&step(i)).unwrap());
        drop(events);
        let mut events = Events::open(folder.path(), 200).unwrap();
        events.write(&Record::Resumed { step: 200 }).unwrap();
        (201..=210).for_each(|i| events.write(&step(i)).unwrap());
        drop(events);
        assert_eq!(steps(folder.path()), (0..=210).collect::<Vec<_>>());
    }

    #[test]
    fn a_damaged_or_cut_end_is_dropped() {
        for damage in ["cut", "flip", "length"] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join(NAME);
            let mut events = Events::open(folder.path(), 0).unwrap();
            events.write(&step(1)).unwrap();
            let whole = std::fs::metadata(&path).unwrap().len() as usize;
            events.write(&step(2)).unwrap();
            let mut bytes = std::fs::read(&path).unwrap();
            match damage {
                "cut" => bytes.truncate(whole + 40),
                "flip" => bytes[whole + 40] ^= 1,
                _ => bytes[whole..whole + 8].fill(0xff),
            }
            std::fs::write(&path, bytes).unwrap();
            drop(Events::open(folder.path(), 5).unwrap());
            assert_eq!(steps(folder.path()), [0, 1], "{damage}");
        }
    }
}
