//! The command that a user most likely needs next.

use std::path::{Path, PathBuf};

use gallerist_util::named_values::NamedValue;
pub(super) use gallerist_util::text::shell_word as quoted;

use super::output::has_extension;
use super::printer;
use crate::ImageSearchOptions;
use crate::device::DeviceChoice;
use crate::experiments::{Scale, Selection};
use crate::tasks::{FURTHER_IMAGES, is_remote};
use crate::train::{CheckpointKind, RunConfig, RunDirectory};

/// What a command has done.
#[derive(Debug)]
pub(crate) enum Done<'a> {
    /// A run file was written or checked.
    RunFile(&'a Path),
    /// A run is finished.
    Run(&'a RunDirectory),
    /// A run was stopped.
    Stopped(&'a Path),
    /// Embeddings were written.
    Embeddings(&'a Path),
    /// An index or a collection was built or changed, or a gallery was described.
    Gallery(&'a Path),
    /// A gallery was searched with these options.
    Searched(&'a Path, &'a ImageSearchOptions),
    /// The test images of a run were measured.
    MeasuredRun(&'a Path),
    /// Embeddings, with their labels if these are in a file of their own, were measured.
    MeasuredEmbeddings(&'a Path, Option<&'a Path>),
    /// Queries were measured against a gallery.
    MeasuredQueries(&'a Path, &'a Path),
    /// A file of weights was downloaded or inspected.
    Weights(&'a Path),
    /// An ONNX model was inspected.
    Model(&'a Path),
    /// The run directory of a network without training was written.
    Network(&'a Path),
    /// The ranges of a run's network were measured on images.
    Calibrated(&'a Path, &'a [PathBuf]),
    /// The images of all splits of a set with classes were counted, and those of a test set, if there is one.
    Images(&'a [PathBuf], &'a [PathBuf]),
    /// A table of issues to fill was written.
    Issues(&'a Path),
    /// The curves of runs were drawn.
    Curves(&'a [PathBuf]),
    /// The public weights were listed.
    WeightsListed,
    /// The losses were listed.
    LossesListed,
    /// The experiments were listed.
    ExperimentsListed,
    /// The rows of an experiment were shown, with these folders of images, at this scale.
    ExperimentShown(&'a Path, &'a [PathBuf], Scale),
}

impl Done<'_> {
    /// Prints `next: gallerist …`, unless no command follows.
    pub(crate) fn show(&self) {
        if let Some(Line(line)) = self.next() {
            printer::note(&format!("next: {line}"));
        }
    }

    /// The command; names in capitals are those that only the user knows.
    fn next(&self) -> Option<Line> {
        Some(match self {
            Done::RunFile(file) => Line::of("train").path(file),
            Done::Run(run) => return after_training(run),
            Done::Stopped(run) => Line::of("train --resume").path(run),
            Done::Embeddings(file) | Done::Gallery(file) if is_served(file) => {
                Line::of("serve --gallery").path(file)
            }
            // By the same network, and with the same pictures.
            Done::Searched(file, options) if is_served(file) => {
                let device = Some(options.device).filter(|device| *device != DeviceChoice::default());
                Line::of("serve --gallery")
                    .path(file)
                    .option("--run", options.run.as_ref())
                    .option("--checkpoint", options.checkpoint.map(NamedValue::option))
                    .option("--products", options.products.map(NamedValue::option))
                    .option("--device", device.map(|device| device.to_string()))
                    .option("--images", options.images.as_ref())
            }
            Done::Embeddings(file) | Done::Gallery(file) | Done::Searched(file, _) => {
                Line::of("index build").path(file).words("--out").path(file.with_extension("index"))
            }
            Done::MeasuredRun(run) => Line::of("plot ranked").path(run).words("--out ranked.svg"),
            Done::MeasuredEmbeddings(file, labels) => Line::of("plot map --embeddings")
                .path(file)
                .option("--labels", *labels)
                .words("--out map.svg"),
            Done::MeasuredQueries(queries, gallery) => {
                Line::of("serve --gallery").path(gallery).words("--queries").path(queries)
            }
            Done::Weights(file) => Line::of("init --images IMAGES --weights").path(file),
            Done::Model(file) => Line::of("model import")
                .path(file)
                .words("--out")
                .path(Path::new("runs").join(file.file_stem()?)),
            Done::Network(run) => {
                let file = run.join(FURTHER_IMAGES);
                Line::of("embed --run").path(run).words("--images IMAGES --out").path(file)
            }
            // A file of its own, beside that of the embeddings in f32.
            Done::Calibrated(run, images) => Line::of("embed --run")
                .path(run)
                .words("--products int8 --images")
                .paths(images)
                .words("--out")
                .path(run.join("int8.safetensors")),
            Done::Images(paths, test) => {
                let line = Line::of("init --images").paths(paths);
                if test.is_empty() { line } else { line.words("--test").paths(test) }
            }
            Done::Issues(table) => Line::of("data info IMAGES --relabel").path(table),
            Done::Curves(runs) => Line::of("plot report").paths(runs).words("--out report.html"),
            Done::WeightsListed => Line::of("weights fetch NAME --out weights.pth"),
            Done::LossesListed => Line::of("loss --loss NAME --embeddings FILE"),
            Done::ExperimentsListed => Line::of("experiment show NAME"),
            Done::ExperimentShown(name, data, scale) => {
                let line = Line::of("experiment run").path(name);
                let line = match *scale == Selection::default().scale {
                    true => line,
                    false => line.words("--scale").words(scale.name()),
                };
                data.iter().fold(line, |line, folder| line.words("--data").path(folder))
            }
        })
    }
}

/// Whether `serve` is the next command for this gallery; of a `.npy` file, an index is built first.
fn is_served(gallery: &Path) -> bool {
    is_remote(gallery) || !has_extension(gallery, "npy")
}

/// The page of the embeddings that the run has, or the command that makes them: of its test images where it has some, else of its
/// training images.
fn after_training(run: &RunDirectory) -> Option<Line> {
    let config = RunConfig::load(&run.config(), &[]).ok();
    let has_test = config.as_ref().is_some_and(|config| config.data.has_test());
    let is_finished = run.report().exists() && (!has_test || run.metrics().exists());
    // The run directory of a network without training has no log, and cannot be resumed.
    let resumes = !is_finished && run.log().exists() && run.checkpoint(CheckpointKind::Last).exists();
    // The embeddings that it has may be of fewer steps.
    if resumes && has_test {
        return Some(Line::of("train --resume").path(run.path()));
    }
    let (all, queries, gallery) = (run.embeddings(), run.query(), run.gallery());
    if all.exists() {
        return Some(Line::of("serve --gallery").path(all));
    }
    if queries.exists() && gallery.exists() {
        return Some(Line::of("serve --gallery").path(gallery).words("--queries").path(queries));
    }
    let further = run.path().join(FURTHER_IMAGES);
    if further.exists() && !has_test {
        return Some(Line::of("serve --gallery").path(further));
    }
    let config = config?;
    let embeds = run.checkpoint(config.evaluation.checkpoint).exists();
    if !embeds {
        return resumes.then(|| Line::of("train --resume").path(run.path()));
    }
    if has_test {
        return Some(Line::of("evaluate --run").path(run.path()));
    }
    let line = Line::of("embed --run").path(run.path()).words("--images");
    let line = match config.data.train.is_empty() {
        true => line.words("IMAGES"),
        false => line.paths(&config.data.train),
    };
    Some(line.words("--out").path(further))
}

/// A command line that can be pasted into a shell.
#[derive(Debug)]
struct Line(String);

impl Line {
    /// The command `gallerist COMMAND`.
    fn of(command: &str) -> Self {
        Line(format!("gallerist {command}"))
    }

    /// Adds words as they are.
    fn words(self, words: &str) -> Self {
        Line(format!("{} {words}", self.0))
    }

    /// Adds a path, quoted where the shell would take it apart.
    fn path(self, path: impl AsRef<Path>) -> Self {
        let path = path.as_ref().to_string_lossy();
        Line(format!("{} {}", self.0, quoted(&path)))
    }

    /// Adds an option with its value, quoted as a [`path`](Self::path), if it has one.
    fn option(self, name: &str, value: Option<impl AsRef<Path>>) -> Self {
        match value {
            Some(value) => self.words(name).path(value),
            None => self,
        }
    }

    fn paths(self, paths: &[PathBuf]) -> Self {
        paths.iter().fold(self, Line::path)
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_the_path_that_was_meant() {
        let names = [
            "runs/x",
            "my photos/Über uns",
            "it's",
            "a$HOME`b`",
            "-x",
            "a*b?",
            "鳥/ñ",
            "a\"b",
            "~",
            "#1",
            "a;b",
        ];
        for path in names {
            let Line(line) = Line::of("x").path(path);
            let word = line.strip_prefix("gallerist x ").unwrap();
            let out =
                std::process::Command::new("sh").args(["-c", &format!("printf %s {word}")]).output().unwrap();
            let read = String::from_utf8(out.stdout).unwrap();
            assert_eq!(read, if path == "-x" { "./-x" } else { path }, "{word}");
        }
        assert_eq!(Line::of("train").path("runs/鳥/x.toml").0, "gallerist train runs/鳥/x.toml");
    }

    #[test]
    fn every_command_names_the_next_with_its_paths() {
        let path = Path::new;
        let of = |done: Done| done.next().unwrap().0;
        assert_eq!(
            of(Done::Embeddings(path("a b.safetensors"))),
            "gallerist serve --gallery 'a b.safetensors'"
        );
        assert_eq!(of(Done::Embeddings(path("x.npy"))), "gallerist index build x.npy --out x.index");
        assert_eq!(of(Done::Gallery(path("milvus://db:1/x"))), "gallerist serve --gallery milvus://db:1/x");
        assert_eq!(
            of(Done::MeasuredEmbeddings(path("x.npy"), Some(path("y.npy")))),
            "gallerist plot map --embeddings x.npy --labels y.npy --out map.svg"
        );
        assert_eq!(
            of(Done::MeasuredQueries(path("q.safetensors"), path("g.safetensors"))),
            "gallerist serve --gallery g.safetensors --queries q.safetensors"
        );
        assert_eq!(
            of(Done::Network(path("runs/a"))),
            "gallerist embed --run runs/a --images IMAGES --out runs/a/images.safetensors"
        );
        assert_eq!(
            of(Done::Calibrated(path("runs/a"), &["photos".into()])),
            "gallerist embed --run runs/a --products int8 --images photos --out runs/a/int8.safetensors"
        );
        assert_eq!(of(Done::Images(&["a".into(), "b c".into()], &[])), "gallerist init --images a 'b c'");
        assert_eq!(
            of(Done::Images(&["a".into()], &["b c".into(), "d".into()])),
            "gallerist init --images a --test 'b c' d"
        );
        assert_eq!(
            of(Done::Issues(path("my issues/issues.csv"))),
            "gallerist data info IMAGES --relabel 'my issues/issues.csv'"
        );
        assert_eq!(
            of(Done::Curves(&["a".into(), "b".into()])),
            "gallerist plot report a b --out report.html"
        );
        assert_eq!(
            of(Done::ExperimentShown(path("losses"), &[], Scale::Small)),
            "gallerist experiment run losses"
        );
        assert_eq!(
            of(Done::ExperimentShown(path("losses"), &["my images".into(), "b".into()], Scale::Full)),
            "gallerist experiment run losses --scale full --data 'my images' --data b"
        );
    }

    #[test]
    fn a_gallery_is_served_with_the_network_that_searched_it() {
        let of = |gallery: &str, options: &ImageSearchOptions| {
            Done::Searched(Path::new(gallery), options).next().unwrap().0
        };
        let mut options = ImageSearchOptions::default();
        assert_eq!(of("g.safetensors", &options), "gallerist serve --gallery g.safetensors");
        options.run = Some("moved/my run".into());
        assert_eq!(
            of("g.safetensors", &options),
            "gallerist serve --gallery g.safetensors --run 'moved/my run'"
        );
        options.checkpoint = Some(CheckpointKind::Last);
        options.products = Some(crate::network::Products::Int8);
        options.device = DeviceChoice::Cpu;
        options.images = Some("photos".into());
        assert_eq!(
            of("g.index", &options),
            "gallerist serve --gallery g.index --run 'moved/my run' --checkpoint last --products int8 --device cpu --images photos"
        );
        assert_eq!(of("x.npy", &options), "gallerist index build x.npy --out x.index");
    }

    #[test]
    fn a_run_is_served_with_the_embeddings_that_it_has() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join("my run");
        let run = RunDirectory::create(&at, &RunConfig { ..RunConfig::default() }).unwrap();
        let of = || after_training(&run).unwrap().0.replace(&*at.to_string_lossy(), "RUN");
        assert!(after_training(&run).is_none(), "nothing is embedded without a checkpoint");
        std::fs::write(run.checkpoint(CheckpointKind::Last), "").unwrap();
        std::fs::write(run.log(), "").unwrap();
        assert_eq!(of(), "gallerist train --resume 'RUN'");
        std::fs::write(run.checkpoint(CheckpointKind::Best), "").unwrap();
        let further = "'RUN/images.safetensors'";
        assert_eq!(of(), format!("gallerist embed --run 'RUN' --images IMAGES --out {further}"));
        std::fs::write(run.path().join(FURTHER_IMAGES), "").unwrap();
        assert_eq!(of(), format!("gallerist serve --gallery {further}"));
        std::fs::write(run.gallery(), "").unwrap();
        std::fs::write(run.query(), "").unwrap();
        assert_eq!(
            of(),
            "gallerist serve --gallery 'RUN/gallery.safetensors' --queries 'RUN/query.safetensors'"
        );
        std::fs::write(run.embeddings(), "").unwrap();
        assert_eq!(of(), "gallerist serve --gallery 'RUN/embeddings.safetensors'");
    }

    #[test]
    fn the_test_images_of_a_run_are_measured_before_others_are_embedded() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join("run");
        let mut config = RunConfig::default();
        config.data.test = vec!["photos".into()];
        let run = RunDirectory::create(&at, &config).unwrap();
        for kind in [CheckpointKind::Last, CheckpointKind::Best] {
            std::fs::write(run.checkpoint(kind), "").unwrap();
        }
        let of = || after_training(&run).unwrap().0.replace(&*at.to_string_lossy(), "RUN");
        assert_eq!(of(), "gallerist evaluate --run RUN", "a network without training");
        std::fs::write(run.log(), "").unwrap();
        assert_eq!(of(), "gallerist train --resume RUN");
        std::fs::write(run.metrics(), "").unwrap();
        std::fs::write(run.report(), "").unwrap();
        assert_eq!(of(), "gallerist evaluate --run RUN", "there is nothing to resume");
    }
}
