//! A run file for images: what they are, and which values of a measured recipe suit them.

mod choose;
mod findings;
mod options;
mod pace;
mod preset;
mod run_file;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use gallerist_data::is_archive_or_manifest;
use gallerist_train::RunConfig;
use serde::Serialize;

pub use findings::{Findings, PartFindings};
pub use options::{DEFAULT_MINUTES, InitOptions};
pub use preset::Preset;

use crate::observer::working;
use crate::tasks::train_keeping;
use crate::{Error, Observer, Result, Trained};
use choose::Choice;

/// A run file for images, and the reasons for its values.
#[derive(Clone, Debug, Serialize)]
pub struct Initialized {
    /// The images.
    pub findings: Findings,
    /// The preset that gives the values.
    pub preset: Preset,
    /// Why the values were chosen, each with the section of the run file.
    pub reasons: Vec<(&'static str, String)>,
    /// What the user should expect or change.
    pub warnings: Vec<String>,
    /// Measured seconds of a training step; `None` where nothing was measured.
    pub step_seconds: Option<f64>,
    /// The run file, with the findings and reasons as comments.
    pub toml: String,
    /// The same, parsed.
    #[serde(skip)]
    pub config: RunConfig,
}

/// Looks at images and writes the text of a run file that trains a network for them.
///
/// At most 256 images are decoded. Network and preprocessing come from the weights; batch, augmentation, optimiser and
/// loss from the recipe of the [preset](Preset), changed to suit the images; the number of steps from a few real
/// training steps on this machine.
///
/// # Example
///
/// ```no_run
/// use std::{path::{Path, PathBuf}, sync::atomic::AtomicBool};
/// use gallerist::InitOptions;
///
/// let options = InitOptions { weights: Some("weights.pth".into()), ..InitOptions::default() };
/// let stop = AtomicBool::new(false);
/// let made = gallerist::init(&[PathBuf::from("photos")], &options, &mut (), &stop)?;
/// println!("{}", made.findings);
/// std::fs::write("photos.toml", &made.toml)?;
/// gallerist::train(&made.config, Path::new("runs/photos"), &mut (), &stop)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// When the images or the weights cannot be read, the images have no classes or no class with two images, or the
/// weights belong to no known network.
pub fn init(
    images: &[PathBuf],
    options: &InitOptions,
    observer: &mut dyn Observer,
    stop: &AtomicBool,
) -> Result<Initialized> {
    check(images, options)?;
    let findings = working(observer, "looking at the images", || Findings::of(images, &options.test))?;
    let mut choice = Choice::new(&findings, options)?;
    let step_seconds = choice.choose_steps(options, observer, stop)?;
    let Choice { preset, file, warnings, .. } = choice;
    let toml = file.text(&findings, &warnings);
    let config = RunConfig::parse(&toml, "the run file that was made", &[])?;
    config.validate()?;
    let reasons = file.into_reasons();
    Ok(Initialized { findings, preset, reasons, warnings, step_seconds, toml, config })
}

impl Initialized {
    /// Trains by [`config`](Self::config) as [`train`](crate::train()) does, and keeps the run file with its comments in
    /// the run directory, as `init.toml`.
    ///
    /// ```no_run
    /// use std::{path::{Path, PathBuf}, sync::atomic::AtomicBool};
    /// use gallerist::InitOptions;
    ///
    /// let stop = AtomicBool::new(false);
    /// let made = gallerist::init(&[PathBuf::from("photos")], &InitOptions::default(), &mut (), &stop)?;
    /// let trained = made.train(Path::new("runs/photos"), &mut (), &stop)?;
    /// println!("{}", trained.directory.init_file().display());
    /// # Ok::<(), gallerist::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`train`](crate::train()).
    pub fn train(&self, directory: &Path, observer: &mut dyn Observer, stop: &AtomicBool) -> Result<Trained> {
        train_keeping(&self.config, Some(&self.toml), directory, observer, stop)
    }
}

/// Refuses options that no run file can have.
fn check(images: &[PathBuf], options: &InitOptions) -> Result<()> {
    if images.is_empty() {
        return Err(Error::new("no images are named", Some("give a folder with one folder for each class")));
    }
    if let Some(minutes) = options.minutes.filter(|minutes| !(minutes.is_finite() && *minutes > 0.0)) {
        return Err(Error::new(
            format!("wanted minutes above 0, found {minutes}"),
            Some("give --minutes 10"),
        ));
    }
    if options.steps == Some(0) {
        return Err(Error::new("wanted 1 step or more, found 0", Some("give --steps 200")));
    }
    let paths = images.iter().chain(&options.test).chain(&options.weights);
    match paths.into_iter().find(|path| path.to_str().is_none()) {
        None => Ok(()),
        Some(path) => Err(Error::new(
            format!("the path `{}` is not UTF-8, and a run file cannot name it", path.display()),
            Some("rename it, or make a link with another name to it"),
        )),
    }
}

/// The name of a run of these images: that of the first folder or file, without an extension of archives and lists.
///
/// ```
/// use std::path::{Path, PathBuf};
///
/// assert_eq!(gallerist::name_of_images(&[PathBuf::from("data/my photos.v2")]), "my photos.v2");
/// assert_eq!(gallerist::name_of_images(&[PathBuf::from("birds.zip")]), "birds");
/// assert_eq!(gallerist::name_of_images(&[PathBuf::from("birds.tar")]), "birds");
/// ```
pub fn name_of_images(images: &[PathBuf]) -> String {
    let first = images.first().map_or(Path::new("."), PathBuf::as_path);
    // `.` and `..` have no name of their own.
    let first = match first.file_name() {
        Some(_) => first.to_path_buf(),
        None => first.canonicalize().unwrap_or_else(|_| first.to_path_buf()),
    };
    let is_list = is_archive_or_manifest(&first.to_string_lossy());
    let name = if is_list { first.file_stem() } else { first.file_name() };
    name.map_or("images".into(), |name| name.to_string_lossy().into_owned())
}
