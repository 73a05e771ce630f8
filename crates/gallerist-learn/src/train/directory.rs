//! The run directory: its files, and who may write into it.

use std::path::{Path, PathBuf};

use gallerist_retrieval::file::{sweep_stray_files, write_atomically};

use super::{RunConfig, Which};
use crate::{Error, Result};

/// A run directory.
#[derive(Clone, Debug)]
pub struct RunDirectory {
    path: PathBuf,
}

impl RunDirectory {
    /// Makes a new run directory and writes the resolved run file into it.
    ///
    /// # Errors
    ///
    /// When `path` already holds something, or cannot be made or written.
    pub fn create(path: &Path, config: &RunConfig) -> Result<Self> {
        let io = |source| Error::Io { action: "create", path: path.into(), source };
        if path.exists() {
            let run = path.join("config.toml").exists();
            let reason = if !path.is_dir() {
                Some("it is a file")
            } else if run {
                Some("it holds another run")
            } else if std::fs::read_dir(path).map_err(io)?.next().is_some() {
                Some("it is not empty")
            } else {
                None
            };
            if let Some(reason) = reason {
                let hint = if run {
                    format!("give another --out, or go on with that run: --resume {}", path.display())
                } else {
                    "give another --out".into()
                };
                return Err(Error::RunDirectory {
                    path: path.into(),
                    reason: reason.into(),
                    hint: Some(hint),
                });
            }
        }
        std::fs::create_dir_all(path.join("checkpoints")).map_err(io)?;
        let directory = RunDirectory { path: path.into() };
        let text = config.to_toml();
        write_atomically(directory.config(), |file| std::io::Write::write_all(file, text.as_bytes()))?;
        Ok(directory)
    }

    /// Opens the directory of an earlier run and sweeps what an interrupted write left behind.
    ///
    /// # Errors
    ///
    /// When there is no run in it.
    pub fn open(path: &Path) -> Result<Self> {
        let directory = RunDirectory { path: path.into() };
        if !directory.config().exists() {
            let reason = if path.exists() { "there is no config.toml in it" } else { "no such directory" };
            let hint = Some("give the directory that `gallerist train` named at its end".into());
            return Err(Error::RunDirectory { path: path.into(), reason: reason.into(), hint });
        }
        sweep_stray_files(path)?;
        sweep_stray_files(path.join("checkpoints"))?;
        Ok(directory)
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The resolved run file.
    pub fn config(&self) -> PathBuf {
        self.path.join("config.toml")
    }

    /// The log.
    pub fn log(&self) -> PathBuf {
        self.path.join("log.jsonl")
    }

    /// A checkpoint.
    pub fn checkpoint(&self, which: Which) -> PathBuf {
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

    /// Where the time went ([`super::Profile`]), of the last call of the run.
    pub fn profile(&self) -> PathBuf {
        self.path.join("profile.json")
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
