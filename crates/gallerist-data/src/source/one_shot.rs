//! The runs of Omniglot's 20-way one-shot test.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use super::set::ImageSet;
use super::tree::Tree;
use crate::error::Error;

/// The file of a run with the training image that each test image belongs to.
const ANSWERS: &str = "class_labels.txt";

/// A larger file is not a file of answers.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// Trials of N-way one-shot classification, each a folder of a zip archive or of a folder:
///
/// ```text
/// run01/class_labels.txt      a line per test image: its path, a blank, the path of the training
///                             image of the same class, both with `run01/` in front
/// run01/training/class01.png  one image of each class
/// run01/test/item01.png       the images to be named
/// ```
///
/// So `all_runs.zip` of Omniglot is laid out (Lake, Salakhutdinov, Tenenbaum, 2015).
///
/// ```no_run
/// use gallerist_data::OneShotRuns;
/// let runs = OneShotRuns::open("all_runs.zip")?;
/// for run in &runs.runs {
///     println!("{}: {} of {} classes", run.name, run.tests.len(), run.training.len());
/// }
/// # Ok::<(), gallerist_data::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct OneShotRuns {
    /// The images of all runs.
    pub images: ImageSet,
    /// The runs, in the order of their names.
    pub runs: Vec<OneShotRun>,
}

/// One trial, its images named by their index in [`OneShotRuns::images`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OneShotRun {
    /// The folder's name, such as `run01`.
    pub name: String,
    /// One image per class, in the order of the paths.
    pub training: Vec<u32>,
    /// The images to be named, in the order of the paths.
    pub tests: Vec<u32>,
    /// For each of `tests` the place in `training` of the image of its class.
    pub answers: Vec<usize>,
}

impl OneShotRuns {
    /// Reads the lists of a zip archive or a folder; no image is decoded.
    ///
    /// # Errors
    ///
    /// As [`ImageSet::open`]; [`Error::Answers`] for a line of the answers that names no two images of
    /// the run, or a test image twice or not at all; [`Error::Selection`] where there are no runs.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let images = ImageSet::open(path.as_ref())?;
        // Folder of a run -> its training and test images.
        let mut folders: BTreeMap<&str, [Vec<u32>; 2]> = BTreeMap::new();
        for i in 0..images.len() {
            let folder = images.path(i).rsplit_once('/').map_or("", |(folder, _)| folder);
            for (part, name) in ["training", "test"].into_iter().enumerate() {
                if let Some(run) = folder.strip_suffix(name).and_then(|run| run.strip_suffix('/')) {
                    folders.entry(run).or_default()[part].push(i as u32);
                }
            }
        }
        folders.retain(|_, [training, tests]| !training.is_empty() && !tests.is_empty());
        if folders.is_empty() {
            return Err(Error::Selection {
                path: images.name().to_owned(),
                problem: "there is no run, a folder with the folders `training` and `test`".to_owned(),
                hint: Some("give Omniglot's `all_runs.zip`, or the folder of its contents".to_owned()),
            });
        }
        let root = images.source_root(0);
        let tree = match root.is_dir() {
            true => Tree::unlisted(root.to_owned(), root, None),
            false => Tree::archive(root)?,
        };
        let runs = folders.into_iter().map(|(folder, [training, tests])| {
            let answers = answers(&images, &tree, folder, &training, &tests)?;
            let name = folder.rsplit_once('/').map_or(folder, |(_, name)| name).to_owned();
            Ok(OneShotRun { name, training, tests, answers })
        });
        let runs = runs.collect::<Result<_, Error>>()?;
        Ok(OneShotRuns { images, runs })
    }
}

/// For each test image the place of its class's training image.
fn answers(
    images: &ImageSet,
    tree: &Tree,
    folder: &str,
    training: &[u32],
    tests: &[u32],
) -> Result<Vec<usize>, Error> {
    let file = format!("{folder}/{ANSWERS}");
    let bytes = tree.read(&file)?;
    let origin = format!("{}/{file}", images.name());
    let fault = |line: Option<usize>, problem: String| Error::Answers {
        path: origin.clone(),
        line: line.map(|line| line as u64 + 1),
        problem,
    };
    if bytes.len() > MAX_ANSWER_BYTES {
        let found = bytes.len();
        return Err(fault(None, format!("it has {found} bytes; a list of answers has at most 1 MiB")));
    }
    let text = std::str::from_utf8(&bytes).map_err(|_| fault(None, "it is not UTF-8 text".to_owned()))?;
    let places = |of: &[u32]| -> HashMap<&str, usize> {
        of.iter().enumerate().map(|(place, &i)| (images.path(i as usize), place)).collect()
    };
    let (training, test_places) = (places(training), places(tests));
    // The paths start at the folder that holds the runs.
    let above = folder.rsplit_once('/').map_or(String::new(), |(above, _)| format!("{above}/"));
    let mut answers = vec![None; tests.len()];
    for (number, line) in text.lines().enumerate() {
        let mut paths = line.split_ascii_whitespace();
        let (test, class) = match (paths.next(), paths.next(), paths.next()) {
            (None, ..) => continue,
            (Some(test), Some(class), None) => (test, class),
            _ => return Err(fault(Some(number), format!("wanted two paths, found `{line}`"))),
        };
        let find = |of: &HashMap<&str, usize>, path: &str, what| {
            let unknown = || fault(Some(number), format!("`{path}` is no {what} image of this run"));
            of.get(format!("{above}{path}").as_str()).copied().ok_or_else(unknown)
        };
        let answer = &mut answers[find(&test_places, test, "test")?];
        if answer.is_some() {
            return Err(fault(Some(number), format!("`{test}` is listed already")));
        }
        *answer = Some(find(&training, class, "training")?);
    }
    let missing = |place: usize| images.path(tests[place] as usize);
    answers
        .into_iter()
        .enumerate()
        .map(|(place, answer)| {
            answer.ok_or_else(|| fault(None, format!("`{}` is not in it", missing(place))))
        })
        .collect()
}
