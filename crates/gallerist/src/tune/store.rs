//! The folder of a search: its run file, its space file and its trials.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use gallerist_data::DataRecord;
use gallerist_util::files;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::space::Space;
use super::study::Trial;
use crate::file::{io, write_text};
use crate::{Error, Result};

/// The list of the training images.
const IMAGES: &str = "images.csv";

/// The SHA-256 of the weights that the trials start from; without such weights there is no file.
const WEIGHTS: &str = "weights.sha256";

/// The files of a search.
#[derive(Debug)]
pub(super) struct Store {
    path: PathBuf,
    _lock: Option<File>,
}

#[derive(Default, Serialize, Deserialize)]
struct Trials {
    #[serde(default)]
    trial: Vec<Trial>,
}

impl Store {
    /// Makes the folder, or opens it if it has a search of the same run file, space, training images and weights.
    pub(super) fn open(
        path: &Path,
        run_file: &str,
        space: &Space,
        images: &DataRecord,
        weights: Option<String>,
    ) -> Result<Self> {
        let another = |reason: String, hint: &str| {
            let message = format!("cannot tune in `{}`\n  {reason}", path.display());
            Err(Error::new(message, Some(hint)))
        };
        let there = path.join("space.toml").exists() || path.join("run.toml").exists();
        if !there && path.is_dir() {
            for entry in fs::read_dir(path).map_err(|e| io("read", path, e))? {
                let name = entry.map_err(|e| io("read", path, e))?.file_name();
                // A search that was killed at its start leaves a temporary file.
                if !name.to_str().is_some_and(files::is_stray) {
                    return another("the folder has other files".into(), "give another --out");
                }
            }
        }
        if path.exists() && !path.is_dir() {
            return another("it is a file".into(), "give another --out");
        }
        files::create_dir_all(path).map_err(|e| io("create", path, e))?;
        // Where the system cannot lock folders nothing is held.
        let lock = File::open(path).ok();
        if lock.as_ref().is_some_and(|folder| matches!(folder.try_lock(), Err(TryLockError::WouldBlock))) {
            return another("another process works on it".into(), "wait for it, or give another --out");
        }
        let store = Store { path: path.into(), _lock: lock };
        let texts =
            [("run.toml", run_file.to_owned()), ("space.toml", space.to_toml()), (IMAGES, images.to_csv())];
        for (name, text) in texts.into_iter().chain(weights.map(|weights| (WEIGHTS, weights))) {
            let file = store.path.join(name);
            if !file.exists() {
                write_text(&file, &text)?;
                continue;
            }
            let before = files::read_regular_to_string(&file).map_err(|e| io("read", &file, e))?;
            if before == text {
                continue;
            }
            let reason = match name {
                "run.toml" => {
                    format!("its search has another run file: {}", first_difference(&before, &text))
                }
                IMAGES if let Some(before) = DataRecord::parse(&before) => {
                    format!("the training images have changed since: {}", images.changes_since(&before))
                }
                WEIGHTS => "the weights that its trials start from have changed since".to_owned(),
                IMAGES => format!("`{}` was changed by hand", file.display()),
                _ => format!("its search has another space file: {}", first_difference(&before, &text)),
            };
            return another(reason, "give another --out, or undo the change to continue that search");
        }
        Ok(store)
    }

    /// The trials so far.
    pub(super) fn trials(&self) -> Result<Vec<Trial>> {
        let path = self.path.join("trials.toml");
        if !path.exists() {
            return Ok(Vec::new());
        }
        Ok(read::<Trials>(&path)?.trial)
    }

    pub(super) fn save(&self, trials: &[Trial]) -> Result<()> {
        let trials = Trials { trial: trials.to_vec() };
        write_text(&self.path.join("trials.toml"), &toml::to_string(&trials).expect("trials are plain data"))
    }
}

/// The first line of two texts that differs, in both forms.
fn first_difference(before: &str, now: &str) -> String {
    let (mut before, mut now) = (before.lines(), now.lines());
    loop {
        match (before.next(), now.next()) {
            (Some(a), Some(b)) if a == b => {}
            (a, b) => return format!("`{}` before, `{}` now", a.unwrap_or_default(), b.unwrap_or_default()),
        }
    }
}

/// Reads a TOML file that the program has written.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = files::read_regular_to_string(path).map_err(|e| io("read", path, e))?;
    toml::from_str(&text).map_err(|e| {
        let message = format!("cannot read `{}`\n  {}", path.display(), e.message());
        Error::new(message, Some("the file was changed by hand; restore it, or give another --out"))
    })
}
