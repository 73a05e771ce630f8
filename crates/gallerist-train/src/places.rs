//! Where the files of a run are: found again from another folder, and after the run was moved.
//!
//! The run file in a run directory has absolute paths; the run directory's own is in `place.toml` next to it, and in
//! runs of earlier versions in the run file (`data.run_directory`). Where a path is gone, it is looked for at the same
//! place relative to where the run directory is now: a project that was moved as a whole still works.

use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::RunConfig;
use crate::{Error, Result};

impl RunConfig {
    /// The keys that name files, with the files.
    fn files(&mut self) -> Vec<(&'static str, &mut PathBuf)> {
        let data = &mut self.data;
        let lists = [
            ("data.train", &mut data.train),
            ("data.test", &mut data.test),
            ("data.query", &mut data.query),
            ("data.gallery", &mut data.gallery),
            ("data.relabel", &mut data.relabel),
        ];
        let mut files: Vec<(&'static str, &mut PathBuf)> =
            lists.into_iter().flat_map(|(key, list)| list.iter_mut().map(move |path| (key, path))).collect();
        files.extend(self.network.weights.iter_mut().map(|path| ("network.weights", path)));
        files.extend(self.network.file.iter_mut().map(|path| ("network.file", path)));
        if let Some(text) = &mut self.text {
            files.extend([("text.file", &mut text.file), ("text.tokenizer", &mut text.tokenizer)]);
        }
        files.extend(data.cache_folder.iter_mut().map(|path| ("data.cache_folder", path)));
        // The address of a source, such as `cells://plate-7`, is no file.
        files.retain(|(_, path)| path.to_str().and_then(gallerist_util::text::address).is_none());
        files
    }

    /// The same run file with absolute paths, for a place of its own.
    pub fn with_absolute_paths(&self) -> RunConfig {
        self.with_paths(absolute)
    }

    /// The same run file with another path for each file that it names. Addresses of image sources stay.
    pub fn with_paths(&self, path_of: impl Fn(&Path) -> PathBuf) -> RunConfig {
        let mut config = self.clone();
        for (_, path) in config.files() {
            *path = path_of(path);
        }
        config
    }

    /// Finds the files of a run file that was read from the folder `here`.
    ///
    /// A relative path starts at `here`. In a run directory of earlier versions it may also start at a folder above. If nothing is
    /// found, it is unchanged: it starts at the current folder. A path from `settings`, which are given in a command, is first
    /// looked up in the current folder.
    /// An absolute path that does not exist is looked up relative to the new place of the run directory.
    pub(super) fn find_files(&mut self, here: &Path, settings: &[String]) {
        let now = absolute(here);
        let was = self.data.run_directory.clone().or_else(|| read_place(here)).filter(|was| *was != now);
        for (key, path) in self.files() {
            let is_relative = path.is_relative();
            if path.exists() && (!is_relative || is_set(key, settings)) {
                continue;
            }
            let found = match (is_relative, &was) {
                (true, _) => next_to_run(path, here, &now),
                (false, Some(was)) => moved(path, was, &now),
                (false, None) => None,
            };
            if let Some(found) = found.filter(|found| found.exists()) {
                *path = found;
            }
        }
    }

    /// Refuses a run whose files are gone; `config` is its run file, `keys` are the keys that are needed.
    ///
    /// # Errors
    ///
    /// [`Error::Moved`] with the file looked for, and the key that names it.
    pub fn check_files(&self, config: &Path, keys: &[&str]) -> Result<()> {
        let mut files = self.clone();
        let missing = files.files().into_iter().find(|(key, path)| keys.contains(key) && !path.exists());
        match missing {
            Some((key, path)) => Err(Error::Moved { path: path.clone(), key, config: config.into() }),
            None => Ok(()),
        }
    }
}

/// The file with the place of a run directory.
pub(crate) const PLACE: &str = "place.toml";

/// The content of [`PLACE`].
#[derive(Serialize, Deserialize)]
struct Place {
    /// Where the run was started; files that its run file names are looked for relative to it.
    directory: PathBuf,
}

/// The text of [`PLACE`] for a run that is started in `directory`.
pub(crate) fn place_of(directory: &Path) -> String {
    toml::to_string(&Place { directory: absolute(directory) }).expect("a path is plain data")
}

/// Where the run in the folder `here` was started, as far as its [`PLACE`] says.
fn read_place(here: &Path) -> Option<PathBuf> {
    let text = gallerist_retrieval::file::read_regular_to_string(here.join(PLACE)).ok()?;
    toml::from_str::<Place>(&text).ok().map(|place| place.directory)
}

/// The path from the root of the file system, with symbolic links and `..` left in where the file is not there.
fn absolute(path: &Path) -> PathBuf {
    let plain = gallerist_util::text::absolute(path);
    match plain.components().any(|part| part == Component::ParentDir) {
        true => plain.canonicalize().unwrap_or(plain),
        false => plain,
    }
}

/// The file of a relative path in the run file: in the folder `here` of the run file, whose absolute path is `now`, or in a folder above.
fn next_to_run(path: &Path, here: &Path, now: &Path) -> Option<PathBuf> {
    let is_run = now.join("checkpoints").is_dir();
    // The run itself, or a folder that it is in, is no file of it: `runs/photos` is not the images `photos`.
    let above = now.ancestors().skip(1).filter(|_| is_run).map(|folder| folder.join(path));
    let above = above.filter(|found| !now.starts_with(found));
    std::iter::once(here.join(path)).chain(above).find(|path| path.exists())
}

/// Whether one of the `key=value` settings has this key, or the section of the key.
fn is_set(key: &str, settings: &[String]) -> bool {
    settings.iter().filter_map(|setting| setting.split_once('=')).any(|(name, _)| {
        let rest = key.strip_prefix(name.trim());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    })
}

/// Where `path` is when the folder `was` is now `now`: at the same place relative to it. All are absolute.
fn moved(path: &Path, was: &Path, now: &Path) -> Option<PathBuf> {
    let common = path.components().zip(was.components()).take_while(|(a, b)| a == b).count();
    let mut found = now.to_path_buf();
    for _ in was.components().skip(common) {
        if !found.pop() {
            return None;
        }
    }
    found.extend(path.components().skip(common));
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_keeps_its_place_relative_to_a_folder_that_was_moved() {
        let of = |path: &str, was: &str, now: &str| {
            moved(Path::new(path), Path::new(was), Path::new(now)).map(|found| found.display().to_string())
        };
        assert_eq!(of("/a/p/data/x", "/a/p/runs/one", "/b/q/runs/one").unwrap(), "/b/q/data/x");
        assert_eq!(of("/a/p/runs/one/x", "/a/p/runs/one", "/b").unwrap(), "/b/x");
        // The run directory is nearer to the root than its files were.
        assert_eq!(of("/a/p/data/x", "/a/p/runs/deep/one", "/b"), None);
    }

    #[test]
    fn a_run_file_finds_its_files_after_the_project_was_moved_and_names_those_that_are_gone() {
        let folder = tempfile::tempdir().unwrap();
        let (before, after) = (folder.path().join("before"), folder.path().join("after"));
        std::fs::create_dir_all(before.join("data")).unwrap();
        std::fs::create_dir_all(before.join("runs/one")).unwrap();
        let mut config = RunConfig::default();
        config.data.train = vec![before.join("data")];
        let run = before.join("runs/one");
        std::fs::write(run.join("config.toml"), config.with_absolute_paths().to_toml()).unwrap();
        std::fs::write(run.join(PLACE), place_of(&run)).unwrap();
        std::fs::rename(&before, &after).unwrap();

        let file = after.join("runs/one/config.toml");
        let found = RunConfig::load(&file, &[]).unwrap();
        assert_eq!(found.data.train, [after.join("data")]);
        found.check_files(&file, &["data.train"]).unwrap();
        std::fs::remove_dir(after.join("data")).unwrap();
        let gone = RunConfig::load(&file, &[]).unwrap();
        gone.check_files(&file, &["data.test"]).unwrap();
        let error = gone.check_files(&file, &["data.train"]).unwrap_err();
        assert!(
            error.to_string().contains(&format!("cannot find `{}`", before.join("data").display())),
            "{error}"
        );
        let hint = error.hint().unwrap();
        assert!(hint.contains("`data.train`") && hint.contains(&file.display().to_string()), "{hint}");
    }

    #[test]
    fn relative_paths_start_at_the_run_file_and_those_of_settings_at_the_current_folder() {
        // Tests run in the folder of the crate, which has `src` and `tests`.
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("src")).unwrap();
        let here = folder.path().join("src");
        let found = |file: &str, settings: &[&str]| {
            let settings: Vec<String> = settings.iter().map(|setting| (*setting).to_owned()).collect();
            RunConfig::load(&folder.path().join(file), &settings).unwrap().data
        };
        std::fs::write(folder.path().join("run.toml"), "[data]\ntrain = [\"src\"]\ntest = [\"tests\"]")
            .unwrap();
        let data = found("run.toml", &[]);
        assert_eq!((data.train, data.test), (vec![here.clone()], vec!["tests".into()]));
        for setting in ["data.train=[\"src\"]", "data={train=[\"src\"]}"] {
            assert_eq!(found("run.toml", &[setting]).train, [Path::new("src")], "{setting}");
        }
        assert_eq!(found("run.toml", &["data.train_split=\"train\""]).train, [here.as_path()]);

        // The run file of a run of an earlier version, in a folder below.
        std::fs::create_dir_all(folder.path().join("runs/one/checkpoints")).unwrap();
        std::fs::write(folder.path().join("runs/one/config.toml"), "[data]\ntrain = [\"src\"]").unwrap();
        assert_eq!(found("runs/one/config.toml", &[]).train, [here.as_path()]);
        // A run that is named like its images.
        std::fs::create_dir_all(folder.path().join("runs/src/checkpoints")).unwrap();
        std::fs::write(folder.path().join("runs/src/config.toml"), "[data]\ntrain = [\"src\"]").unwrap();
        assert_eq!(found("runs/src/config.toml", &[]).train, [here]);
    }
}
