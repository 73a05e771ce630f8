//! The run directory: its files, and who may write into it.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gallerist_collective::Collective;
use gallerist_data::DataRecord;
use gallerist_retrieval::file::{is_stray, read_regular_to_string, sweep_stray_files, write_atomically};
use gallerist_util::files;
use gallerist_util::text::shell_word;

use super::{CheckpointKind, RunConfig};
use crate::checkpoint::Checkpoint;
use crate::places::{self, PLACE};
use crate::{Error, Result};

/// A run directory.
#[derive(Clone, Debug)]
pub struct RunDirectory {
    path: PathBuf,
    /// Held while a run is written, so that no other process writes into it.
    _lock: Option<Arc<File>>,
}

/// The content of a directory in which a run is to start or to resume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// There is nothing at the path, or an empty folder.
    Empty,
    /// A run was started and stopped before its first checkpoint: nothing was learned yet. `configured`: whether
    /// its run file exists.
    Begun {
        /// Whether the run file is whole, so that the run can also be resumed.
        configured: bool,
    },
    /// A run with a checkpoint to resume from.
    Started,
    /// A run whose last checkpoint is gone.
    Incomplete,
    /// Anything else: files that are not a run's, or no folder.
    Other,
}

impl State {
    /// The state of `path`, which is not changed.
    ///
    /// # Errors
    ///
    /// When a folder cannot be listed.
    ///
    /// ```
    /// use gallerist_train::State;
    /// let folder = tempfile::tempdir().unwrap();
    /// assert_eq!(State::of(folder.path())?, State::Empty);
    /// # Ok::<(), gallerist_train::Error>(())
    /// ```
    pub fn of(path: &Path) -> Result<State> {
        if !path.exists() {
            return Ok(State::Empty);
        }
        if !path.is_dir() {
            return Ok(State::Other);
        }
        if path.join("checkpoints").join(CheckpointKind::Last.file_name()).exists() {
            return Ok(State::Started);
        }
        let names = names(path)?;
        if names.is_empty() {
            return Ok(State::Empty);
        }
        let config = names.iter().any(|name| name == CONFIG);
        let begun = |name: &String| {
            Ok::<_, Error>(match name.as_str() {
                CONFIG => true,
                // A step is logged after the first checkpoint.
                LOG => fs::metadata(path.join(LOG)).map_err(|e| io("read", path, e))?.len() == 0,
                "checkpoints" => self::names(&path.join(name))?.iter().all(|name| is_stray(name)),
                // Written before the first checkpoint.
                "tensorboard" | PLACE | IMAGES => true,
                // The same, but after the run file.
                FEATURES => config,
                name => is_stray(name),
            })
        };
        let mut all = true;
        for name in &names {
            all &= begun(name)?;
        }
        Ok(match (all, config) {
            (true, _) => State::Begun { configured: config || whole_run_file(path)?.is_some() },
            (false, true) => State::Incomplete,
            (false, false) => State::Other,
        })
    }
}

const CONFIG: &str = "config.toml";
const GIVE: &str = "give the directory that `gallerist train` named at its end";
const LOG: &str = "log.jsonl";
const IMAGES: &str = "images.csv";
const FEATURES: &str = "features";

fn io(action: &'static str, path: &Path, source: std::io::Error) -> Error {
    Error::Io { action, path: path.into(), source }
}

/// The names of what a folder holds.
fn names(path: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(path).map_err(|e| io("read", path, e))?;
    entries
        .map(|entry| Ok(entry.map_err(|e| io("read", path, e))?.file_name().to_string_lossy().into_owned()))
        .collect()
}

/// The temporary file of a run file that was written completely and not renamed. A run file names every key, so a
/// part of one does not read back as the same text.
fn whole_run_file(path: &Path) -> Result<Option<PathBuf>> {
    let candidates =
        names(path)?.into_iter().filter(|name| is_stray(name) && name.starts_with(".config.toml."));
    for name in candidates {
        let file = path.join(name);
        let Ok(text) = read_regular_to_string(&file) else { continue };
        if RunConfig::parse(&text, "", &[]).is_ok_and(|config| config.to_toml() == text) {
            return Ok(Some(file));
        }
    }
    Ok(None)
}

impl RunDirectory {
    /// Refuses a directory in which no run can be started: one that holds a run with a checkpoint, or something else.
    ///
    /// # Errors
    ///
    /// [`Error::RunDirectory`] with the reason.
    pub fn check(path: &Path) -> Result<()> {
        let (reason, hint) = match State::of(path)? {
            State::Empty | State::Begun { .. } => return Ok(()),
            State::Started => (
                "it holds another run",
                format!(
                    "give another --out, or continue that run: --resume {}",
                    shell_word(&path.to_string_lossy())
                ),
            ),
            State::Incomplete => {
                ("it holds another run, whose last checkpoint is gone", "give another --out".into())
            }
            State::Other if !path.is_dir() => ("it is a file", "give another --out".into()),
            State::Other => ("it is not empty", "give another --out".into()),
        };
        Err(Error::RunDirectory { path: path.into(), reason: reason.into(), hint: Some(hint) })
    }

    /// Makes a new run directory and writes the resolved run file into it. A directory in which a run was stopped
    /// before its first checkpoint is taken over.
    ///
    /// # Errors
    ///
    /// When `path` already holds something else, another process writes into it, or it cannot be made or written.
    pub fn create(path: &Path, config: &RunConfig) -> Result<Self> {
        Self::check(path)?;
        files::create_dir_all(path.join("checkpoints")).map_err(|e| io("create", path, e))?;
        let directory = RunDirectory { path: path.into(), _lock: None }.locked()?;
        // Another process may have started a run here before this one got the lock.
        Self::check(path)?;
        directory.sweep()?;
        let place = places::place_of(path);
        write_atomically(path.join(PLACE), |file| std::io::Write::write_all(file, place.as_bytes()))?;
        directory.write_config(config)?;
        Ok(directory)
    }

    /// Makes a new run directory for a run that differs from a finished one only in what follows the training, such as
    /// the heads of the embedding: it takes checkpoints and log of `trained`, with the run file `config`. To resume it
    /// then only measures.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create), and when a file of `trained` cannot be read.
    pub fn create_trained(path: &Path, config: &RunConfig, trained: &RunDirectory) -> Result<Self> {
        let config = config.with_absolute_paths();
        let directory = Self::create(path, &config)?;
        let copies = [
            (trained.images(), directory.images()),
            (trained.log(), directory.log()),
            (trained.timing(), directory.timing()),
        ];
        for (from, to) in copies.into_iter().filter(|(from, _)| from.exists()) {
            let bytes = fs::read(&from).map_err(|e| io("read", &from, e))?;
            write_atomically(to, |file| std::io::Write::write_all(file, &bytes))?;
        }
        // The last checkpoint comes last: with it the directory is that of a run.
        for which in [CheckpointKind::Best, CheckpointKind::Last] {
            let from = trained.checkpoint(which);
            if from.exists() {
                let mut checkpoint = Checkpoint::load(&from)?;
                checkpoint.header.config = config.to_toml();
                checkpoint.save(&directory.checkpoint(which))?;
            }
        }
        Ok(directory)
    }

    /// Writes the run file of a run that is locked.
    pub(super) fn write_config(&self, config: &RunConfig) -> Result<()> {
        let text = config.to_toml();
        write_atomically(self.config(), |file| std::io::Write::write_all(file, text.as_bytes()))?;
        Ok(())
    }

    /// Opens the directory of an earlier run and removes temporary files of interrupted writes. Where they cannot be removed,
    /// because the directory may only be read, they stay.
    ///
    /// # Errors
    ///
    /// When there is no run in it.
    pub fn open(path: &Path) -> Result<Self> {
        let directory = Self::existing(path)?;
        let _ = directory.sweep();
        Ok(directory)
    }

    /// The directory of an earlier run.
    fn existing(path: &Path) -> Result<Self> {
        let directory = RunDirectory { path: path.into(), _lock: None };
        if !directory.config().exists() {
            let (reason, hint) = match State::of(path)? {
                State::Begun { .. } => (
                    "the run was stopped before its run file was written",
                    format!(
                        "start it again with the same command, --out {}",
                        shell_word(&path.to_string_lossy())
                    ),
                ),
                _ if path.exists() => ("there is no config.toml in it", GIVE.into()),
                _ => ("no such directory", GIVE.into()),
            };
            return Err(Error::RunDirectory { path: path.into(), reason: reason.into(), hint: Some(hint) });
        }
        Ok(directory)
    }

    /// Opens the directory of an earlier run to continue it: as [`open`](Self::open), and no other process writes into
    /// it as long as this value is alive. A run file that a killed start has written but not renamed is put in place.
    ///
    /// # Errors
    ///
    /// When there is no run in it, another process writes into it, or a temporary file cannot be removed.
    pub fn open_to_write(path: &Path) -> Result<Self> {
        let waiting = RunDirectory { path: path.into(), _lock: None };
        if path.is_dir() && !waiting.config().exists() {
            let locked = waiting.clone().locked()?;
            if let Some(file) = whole_run_file(path)? {
                // Its writer was killed perhaps before it synced the file.
                let synced = || {
                    File::open(&file)?.sync_all()?;
                    fs::rename(&file, locked.config())?;
                    files::sync_folder(path)
                };
                synced().map_err(|e| io("rename", &file, e))?;
            }
        }
        let directory = Self::existing(path)?.locked()?;
        directory.sweep()?;
        Ok(directory)
    }

    /// The directory for a rank that does not write into it.
    pub(super) fn of_rank(path: &Path) -> Self {
        RunDirectory { path: path.into(), _lock: None }
    }

    /// [`open_to_write`](Self::open_to_write) for a distributed run: rank 0 writes.
    ///
    /// # Errors
    ///
    /// On rank 0, as [`open_to_write`](Self::open_to_write).
    pub fn open_among(path: &Path, ranks: &dyn Collective) -> Result<Self> {
        let opened = match ranks.rank() {
            0 => Self::open_to_write(path)?,
            _ => Self::of_rank(path),
        };
        // The run file may only now be in its place.
        ranks.barrier()?;
        Ok(opened)
    }

    /// The error for a run that cannot be resumed because its last checkpoint is gone.
    pub(super) fn without_checkpoint(&self) -> Error {
        let best = self.checkpoint(CheckpointKind::Best);
        let hint = best
            .exists()
            .then(|| format!("to continue from the best validation, copy `{}` to that name", best.display()));
        Error::Checkpoint { path: self.checkpoint(CheckpointKind::Last), reason: "no such file".into(), hint }
    }

    /// Locks the directory against other writers. On systems that cannot lock folders there is no lock.
    fn locked(self) -> Result<Self> {
        let Ok(folder) = File::open(&self.path) else { return Ok(self) };
        match folder.try_lock() {
            Ok(()) => Ok(RunDirectory { _lock: Some(Arc::new(folder)), ..self }),
            Err(TryLockError::Error(_)) => Ok(self),
            Err(TryLockError::WouldBlock) => Err(Error::RunDirectory {
                path: self.path,
                reason: "another process is training into it".into(),
                hint: Some("wait for it, or give another --out".into()),
            }),
        }
    }

    /// Removes the report and the metrics of a run that takes further steps. Without them it is not finished.
    pub(super) fn remove_results(&self) -> Result<()> {
        let results: Vec<PathBuf> =
            [self.report(), self.metrics()].into_iter().filter(|path| path.exists()).collect();
        if results.is_empty() {
            return Ok(());
        }
        for path in results {
            fs::remove_file(&path).map_err(|e| io("remove", &path, e))?;
        }
        files::sync_folder(&self.path).map_err(|e| io("write", &self.path, e))
    }

    fn sweep(&self) -> Result<()> {
        sweep_stray_files(&self.path)?;
        for folder in [self.path.join("checkpoints"), self.nonfinite()] {
            if folder.is_dir() {
                sweep_stray_files(folder)?;
            }
        }
        Ok(())
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The resolved run file.
    pub fn config(&self) -> PathBuf {
        self.path.join(CONFIG)
    }

    /// The run file with the comments of `gallerist init`, where the run was started for images.
    pub fn init_file(&self) -> PathBuf {
        self.path.join("init.toml")
    }

    /// The log.
    pub fn log(&self) -> PathBuf {
        self.path.join(LOG)
    }

    /// A checkpoint.
    pub fn checkpoint(&self, which: CheckpointKind) -> PathBuf {
        self.path.join("checkpoints").join(which.file_name())
    }

    /// The test images' embeddings, where every image is compared with the others.
    pub fn embeddings(&self) -> PathBuf {
        self.path.join("embeddings.safetensors")
    }

    /// The queries' embeddings, where queries are compared with a gallery.
    pub fn query(&self) -> PathBuf {
        self.path.join("query.safetensors")
    }

    /// The gallery's embeddings, where queries are compared with a gallery.
    pub fn gallery(&self) -> PathBuf {
        self.path.join("gallery.safetensors")
    }

    /// The test metrics.
    pub fn metrics(&self) -> PathBuf {
        self.path.join("metrics.json")
    }

    /// The profile ([`super::Profile`]) of the last call of the run.
    pub fn profile(&self) -> PathBuf {
        self.path.join("profile.json")
    }

    /// The list of the images of training and validation ([`gallerist_data::DataRecord`]), and of the test images that
    /// `data.test_fraction` holds out.
    pub fn images(&self) -> PathBuf {
        self.path.join(IMAGES)
    }

    /// Reads the list [`images`](Self::images); `None` if there is none.
    pub(crate) fn image_list(&self) -> Option<DataRecord> {
        DataRecord::parse(&read_regular_to_string(self.images()).ok()?)
    }

    /// The list of the images that could not be read ([`BrokenImage`](crate::BrokenImage)).
    pub fn broken_images(&self) -> PathBuf {
        self.path.join("broken_images.json")
    }

    /// Times and speed ([`Timing`](crate::Timing)).
    pub fn timing(&self) -> PathBuf {
        self.path.join("timing.json")
    }

    /// The folder for steps whose loss, gradient or weights were not finite.
    pub fn nonfinite(&self) -> PathBuf {
        self.path.join("nonfinite")
    }

    /// The folder for features of a frozen model.
    pub fn features(&self) -> PathBuf {
        self.path.join(FEATURES)
    }

    /// The folder for TensorBoard: events, and the Embedding Projector's files.
    pub fn tensorboard(&self) -> PathBuf {
        self.path.join("tensorboard")
    }

    /// The report.
    pub fn report(&self) -> PathBuf {
        self.path.join("report.html")
    }
}
