//! The log of a run: one JSON object a line in `log.jsonl`.
//!
//! The log is only ever appended to. A run that was killed and resumed has steps twice, those after its last
//! checkpoint: a record `resumed` invalidates the earlier records of later steps. [`read`] leaves them out.
//!
//! Every line has an `event`. The times `seconds` and `waited` of steps differ from run to run; everything else is the same
//! for the same run file.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::events::Events;
pub use crate::record::{Record, Step};
use crate::{Error, Result};

/// The log's file, appended to line by line.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    /// `None`: nothing is written.
    file: Option<File>,
    /// The same for TensorBoard.
    events: Option<Events>,
}

impl Log {
    /// Opens the log for appending. Existing lines are not changed. If a killed process left an incomplete last line, it is
    /// terminated, and [`read`] skips it.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or written.
    pub fn open(path: &Path) -> Result<Self> {
        let error = |action, source| Error::Io { action, path: path.into(), source };
        let is_new = !path.exists();
        let mut file = OpenOptions::new()
            .create(true)
            .read(true)
            .append(true)
            .open(path)
            .map_err(|e| error("create", e))?;
        if ends_within_a_line(&mut file).map_err(|e| error("read", e))? {
            file.write_all(b"\n").map_err(|e| error("write", e))?;
        }
        if is_new {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            gallerist_util::files::sync_folder(folder.unwrap_or(Path::new(".")))
                .map_err(|e| error("create", e))?;
        }
        Ok(Log { path: path.into(), file: Some(file), events: None })
    }

    /// Returns when all records are on disk: before a checkpoint, so that a run that is resumed from it has the records of
    /// all its steps, after a power failure, too.
    ///
    /// # Errors
    ///
    /// When the file cannot be synced.
    pub fn sync(&mut self) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        file.sync_data().map_err(|source| Error::Io { action: "write", path: self.path.clone(), source })
    }

    /// A log that writes nothing: of all ranks of a distributed run, rank 0 writes.
    pub(crate) fn silent() -> Self {
        Log { path: PathBuf::new(), file: None, events: None }
    }

    /// Writes the numbers of every record into an event file for TensorBoard in `folder`, too; of an older
    /// one it keeps what was written up to `step`.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or written.
    pub fn with_events(self, folder: &Path, step: usize) -> Result<Self> {
        Ok(Log { events: Some(Events::open(folder, step)?), ..self })
    }

    /// Appends a record.
    ///
    /// # Errors
    ///
    /// When the file cannot be written, for example because the disk is full.
    pub fn write(&mut self, record: &Record) -> Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let mut line = serde_json::to_vec(record).expect("a record is plain data");
        line.push(b'\n');
        file.write_all(&line).map_err(|source| Error::Io {
            action: "write",
            path: self.path.clone(),
            source,
        })?;
        self.events.as_mut().map_or(Ok(()), |events| events.write(record))
    }
}

fn ends_within_a_line(file: &mut File) -> std::io::Result<bool> {
    if file.seek(SeekFrom::End(0))? == 0 {
        return Ok(false);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

/// The records of a log. Of steps that were done twice, because the run was killed and resumed from an earlier checkpoint,
/// only the later records.
///
/// Incomplete lines are skipped.
///
/// # Errors
///
/// When the file cannot be read.
pub fn read(path: &Path) -> Result<Vec<Record>> {
    let error = |source| Error::Io { action: "read", path: path.into(), source };
    let mut file = BufReader::new(gallerist_retrieval::file::open_regular(path).map_err(error)?);
    let mut records: Vec<Record> = Vec::new();
    let mut line = Vec::new();
    while file.read_until(b'\n', &mut line).map_err(error)? > 0 {
        // A killed writer may have cut a line within a character, too.
        records.extend(serde_json::from_slice::<Record>(&line));
        line.clear();
    }
    // Backwards, because each `resumed` limits the steps of all records before it.
    let mut last_step = usize::MAX;
    let mut valid: Vec<Record> = records
        .into_iter()
        .rev()
        .filter(|record| {
            let is_valid = record.step() <= last_step;
            if let Record::Resumed { step } = *record {
                last_step = last_step.min(step);
            }
            is_valid
        })
        .collect();
    valid.reverse();
    Ok(valid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(step: usize, loss: f32) -> Record {
        Record::Step(Step { step, loss, ..Step::default() })
    }

    fn losses(path: &Path) -> Vec<(usize, f32)> {
        let records = read(path).unwrap();
        let of = |record: &Record| match record {
            Record::Step(step) => Some((step.step, step.loss)),
            _ => None,
        };
        records.iter().filter_map(of).collect()
    }

    #[test]
    fn old_bytes_stay_and_the_later_of_a_step_counts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.jsonl");
        let mut log = Log::open(&path).unwrap();
        // 0.1 f32 written by another program, with more digits than this one writes.
        log.write(&step(1, 0.5)).unwrap();
        log.write(&step(2, 0.25)).unwrap();
        drop(log);
        let mut old = std::fs::read(&path).unwrap();
        old = String::from_utf8(old).unwrap().replace("0.25", "0.250000001").into_bytes();
        old.extend(b"{\"event\":\"step\",\"step\":3,\"lo\xc3");
        std::fs::write(&path, &old).unwrap();

        let mut log = Log::open(&path).unwrap();
        log.write(&Record::Resumed { step: 1 }).unwrap();
        log.write(&step(2, 0.125)).unwrap();
        drop(log);
        let new = std::fs::read(&path).unwrap();
        assert!(new.starts_with(&old), "the old bytes have changed");
        assert_eq!(new[old.len()], b'\n');
        assert_eq!(losses(&path), [(1, 0.5), (2, 0.125)]);
        // Nothing is appended to a log that ends with a whole line.
        drop(Log::open(&path).unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), new);
    }

    #[test]
    fn a_run_that_was_resumed_from_earlier_and_earlier_steps_has_each_step_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.jsonl");
        let mut log = Log::open(&path).unwrap();
        for record in [
            step(1, 0.5),
            step(2, 0.4),
            step(3, 0.3),
            Record::Resumed { step: 2 },
            step(3, 0.2),
            Record::Resumed { step: 1 },
            step(2, 0.1),
        ] {
            log.write(&record).unwrap();
        }
        assert_eq!(losses(&path), [(1, 0.5), (2, 0.1)]);
        assert_eq!(read(&path).unwrap()[1], Record::Resumed { step: 1 });
    }
}
