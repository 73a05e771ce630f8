//! How far a job is, from the log of its run.

use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::Path;

use gallerist_train::log::Record;

/// The state of a job.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// Not started yet.
    Waiting,
    /// Another process works on it.
    Elsewhere,
    /// Its process runs.
    Running {
        /// Steps done; all of them: the test images are measured.
        step: usize,
        /// Steps of the run.
        steps: usize,
        /// Seconds of training that are left, as fast as the last steps; `None` before the second step.
        seconds_left: Option<f64>,
    },
    /// Done, now or before.
    Done,
    /// Failed, with the reason.
    Failed(String),
    /// Stopped before its end.
    Stopped,
}

/// Reads the lines that are appended to a log.
#[derive(Debug, Default)]
pub(super) struct Progress {
    read: u64,
    step: usize,
    /// Seconds of a step, a moving average.
    seconds: Option<f64>,
}

impl Progress {
    /// Reads the new lines of a log; a log that is not there yet has none. Returns whether a step was added.
    pub(super) fn update(&mut self, log: &Path) -> bool {
        let before = self.step;
        // A log that cannot be read gives no progress; the process reports the reason.
        let _ = self.read_from(log);
        self.step != before
    }

    fn read_from(&mut self, log: &Path) -> std::io::Result<()> {
        let mut file = BufReader::new(File::open(log)?);
        file.seek(SeekFrom::Start(self.read))?;
        let mut line = Vec::new();
        while file.read_until(b'\n', &mut line)? > 0 && line.ends_with(b"\n") {
            self.read += line.len() as u64;
            match serde_json::from_slice(&line) {
                Ok(Record::Step(step)) => {
                    self.step = step.step;
                    let average = self.seconds.map_or(step.seconds, |old| 0.9 * old + 0.1 * step.seconds);
                    self.seconds = Some(average);
                }
                Ok(Record::Resumed { step }) => self.step = step,
                _ => {}
            }
            line.clear();
        }
        Ok(())
    }

    pub(super) fn state(&self, steps: usize) -> State {
        let left = steps.saturating_sub(self.step) as f64;
        State::Running { step: self.step, steps, seconds_left: self.seconds.map(|seconds| seconds * left) }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use gallerist_train::log::Step;

    use super::*;

    #[test]
    fn a_log_is_read_line_by_line_while_it_grows() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.jsonl");
        let mut progress = Progress::default();
        assert!(!progress.update(&path));
        let mut file = File::create(&path).unwrap();
        let line = |step, seconds| {
            let record = Record::Step(Step { step, seconds, ..Step::default() });
            serde_json::to_string(&record).unwrap() + "\n"
        };
        let second = line(2, 0.5);
        write!(file, "{}{}", line(1, 0.5), &second[..20]).unwrap();
        assert!(progress.update(&path));
        assert_eq!(progress.state(10), State::Running { step: 1, steps: 10, seconds_left: Some(4.5) });
        assert!(!progress.update(&path), "half a line is no step");
        write!(file, "{}", &second[20..]).unwrap();
        assert!(progress.update(&path));
        assert_eq!(progress.state(10), State::Running { step: 2, steps: 10, seconds_left: Some(4.0) });
    }
}
