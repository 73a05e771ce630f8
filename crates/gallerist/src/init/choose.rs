//! The values of a run file for images that are known.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use gallerist_data::{ImageSet, Size};
use gallerist_nn::OnnxConfig;
use gallerist_train::{DataConfig, RunConfig};
use gallerist_util::registry::Named;
use gallerist_weights::{Preprocessing, check_layout, network_of};
use toml::Value;

use super::findings::{Findings, TestPart};
use super::options::{DEFAULT_MINUTES, InitOptions};
use super::pace::step_seconds;
use super::preset::{Preset, Recipe};
use super::run_file::RunFile;
use crate::text::{count, duration, grouped};
use crate::{Error, Observer, Result, onnx_model};

/// Side of the images of a network with random weights, for photographs.
const SIDE_FROM_SCRATCH: i64 = 64;

/// Learning rate of a head on fixed features (experiments/cub200.md).
const RATE_OF_HEAD: f64 = 0.001;

/// Most images of a class in a batch of few classes.
const MOST_IMAGES_PER_CLASS: usize = 10;

/// Fewer training images or classes than these are few.
const FEW_IMAGES: usize = 500;
const FEW_CLASSES: usize = 20;

/// A run file that is being made.
pub(super) struct Choice<'a> {
    pub(super) findings: &'a Findings,
    pub(super) preset: Preset,
    pub(super) file: RunFile,
    pub(super) warnings: Vec<String>,
    /// The images that train, without those held out for test and validation.
    trained: ImageSet,
    /// Whether classes are held out for validation.
    is_validated: bool,
    /// The network is an ONNX model: only a head on its features is trained.
    is_frozen: bool,
    /// The recipe of augmentation and batch.
    recipe: Recipe,
    /// The recipe of network, optimiser, schedule and number of steps.
    training: Recipe,
}

impl<'a> Choice<'a> {
    /// Chooses everything but the number of steps.
    pub(super) fn new(findings: &'a Findings, options: &InitOptions) -> Result<Self> {
        check(findings)?;
        let is_frozen = options.weights.as_deref().is_some_and(is_onnx);
        if is_frozen && options.minutes.is_some() {
            return Err(Error::new(
                "the time of training is given for an ONNX model, of which only a head is trained: its steps take \
                 milliseconds once the features of the images are computed",
                Some("leave out --minutes, or give a number of steps: --steps 300"),
            ));
        }
        let (preset, why) = match options.preset {
            Some(preset) => (preset, "as given".to_owned()),
            None => Preset::suiting(&findings.survey, findings.layout, findings.cameras),
        };
        if preset == Preset::Features && options.weights.is_none() {
            return Err(Error::new(
                "the preset `features` uses a pretrained network as it is, and no weights are given",
                Some(
                    "give --weights FILE; `gallerist weights fetch mobilenet_v2-v2 --out weights.pth` gets one",
                ),
            ));
        }
        let training = match options.weights {
            Some(_) => preset.fine_tuning(),
            None => Recipe::from_scratch(),
        };
        let mut file = RunFile::default();
        let mut warnings = findings.notes.clone();
        warnings.extend(findings.unused_splits());
        warnings.extend(broken(findings));
        let data = data(findings, &mut file, &mut warnings);
        let (rest, _) = data.open_train()?;
        let classes = rest.class_names().len();
        let trained = hold_out(rest, &training, &mut file)?;
        let is_validated = trained.class_names().len() < classes;
        let recipe = preset.recipe();
        let section = if is_frozen {
            "sampler"
        } else if preset == Preset::Features {
            "network"
        } else {
            "augment"
        };
        file.because(section, format!("preset {}: {why}; values of {}", preset.name(), recipe.name));
        let mut choice =
            Choice { findings, preset, file, warnings, trained, is_validated, is_frozen, recipe, training };
        choice.choose_batch();
        match &options.weights {
            Some(model) if is_frozen => choice.choose_model(model)?,
            Some(weights) => choice.choose_pretrained(weights)?,
            None => choice.choose_fresh(),
        }
        choice.choose_training(options);
        choice.warn_of_little_data(options);
        Ok(choice)
    }

    /// Classes and images in a batch.
    fn choose_batch(&mut self) {
        let number = |key: &str| self.recipe.number("sampler", key).expect("a recipe has a batch");
        let (most_classes, images) = (number("classes_per_batch"), number("images_per_class"));
        let classes = self.trained.class_names().len();
        let [_, median, _] = self.findings.training.images_per_class;
        let chosen = most_classes.min(classes);
        // A batch of fewer classes has more images of each, as many as most classes have.
        let wanted = (most_classes * images).div_ceil(chosen).min(MOST_IMAGES_PER_CLASS);
        let per_class = wanted.max(images).min(median.max(2));
        let file = &mut self.file;
        file.set("sampler", "kind", "classes_images");
        file.set("sampler", "classes_per_batch", chosen as i64);
        file.set("sampler", "images_per_class", per_class as i64);
        let recipe = format!("{} has {most_classes} x {images}", self.recipe.name);
        let why = match (chosen, per_class) {
            (a, b) if (a, b) == (most_classes, images) => format!("as {}", self.recipe.name),
            _ => format!(
                "{recipe}; here {} train, with a median of {}",
                count(classes, "class"),
                count(median, "image")
            ),
        };
        file.because("sampler", format!("a batch has {chosen} classes x {per_class} images: {why}"));
    }

    /// Network and preprocessing of pretrained weights.
    fn choose_pretrained(&mut self, weights: &Path) -> Result<()> {
        let Some(network) = network_of(weights)? else {
            return Err(Error::new(
                format!("the weights `{}` belong to none of the networks", weights.display()),
                Some(
                    "`gallerist weights list` shows weights that fit, `gallerist weights inspect FILE` the tensors of \
                     this file, and docs/networks.md the networks; a run file for another naming is written by hand",
                ),
            ));
        };
        check_layout(weights)?;
        let kind = network.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        // Our own files also say how long their embeddings are.
        let own = network.contains_key("dimensions");
        let file = &mut self.file;
        file.set_all("network", &network);
        file.set("network", "weights", text(weights));
        // A vision transformer has no batch norm.
        if kind != "vit" {
            file.set("network", "freeze_batch_norm", "statistics");
        }
        let from = if own { "the file names its network" } else { "the names of its tensors are those of" };
        if own {
            file.because("network", format!("{from}, {kind}; its embedding is trained further"));
        } else {
            file.because("network", format!("{from} {kind}; other values as {}", self.training.name));
            self.choose_head();
        }
        let known = Preprocessing::of_weights(weights, &kind, None);
        let Some(known) = known else {
            let unknown = "the file does not say how its images were prepared; check these values";
            self.file.because("image", unknown);
            self.choose_plain_images();
            return Ok(());
        };
        let of_recipe = self.recipe.keys.get("image").and_then(|image| image.get("size"));
        let file = &mut self.file;
        // BN-Inception takes few sizes, a vision transformer multiples of its patch.
        let fixed = ["bn_inception", "vit"].contains(&kind.as_str());
        let narrow =
            of_recipe.filter(|size| self.preset == Preset::Reid && size.is_array() && !fixed && !own);
        let size = narrow.cloned().unwrap_or_else(|| size_value(known.size));
        file.because("image", format!("of the weights: {known}"));
        if narrow.is_some() {
            file.because("image", format!("the size is that of {}", self.recipe.name));
        }
        self.prepare_images(size, &known);
        self.choose_view();
        Ok(())
    }

    /// An ONNX model as it is, with a head on its features.
    fn choose_model(&mut self, model: &Path) -> Result<()> {
        // A run file may name a model that is elsewhere; here it is needed, and to open it is the error.
        if !model.is_file() {
            OnnxConfig::default().open(model)?;
        }
        self.file.set("network", "kind", OnnxConfig::NAME);
        self.file.set("network", "file", text(model));
        // With what the model, and the files beside it, say of its images.
        let settings = onnx_model::settings(model);
        let config = RunConfig::complete("", "the settings", Path::new(""), &settings)?;
        let features =
            config.network.architecture.downcast_ref::<OnnxConfig>().map_or(0, |network| network.features);
        self.file.because(
            "network",
            format!(
                "the model gives {} for each image, computed once, and stays as it is; a linear layer on them is trained",
                count(features, "feature")
            ),
        );
        self.choose_head();
        let image = &config.image;
        if onnx_model::is_unprepared(image) {
            let unknown = "nothing says how images are prepared for this model: set image.mean and image.std, or put its \
                           preprocessor_config.json or config.json beside it";
            self.warnings.push(unknown.into());
        } else {
            self.file.because("image", "of the model, and of the files beside it");
        }
        self.prepare_images(size_value(image.size), &Preprocessing::from(image));
        self.choose_view();
        Ok(())
    }

    /// The layer after a network that others have trained.
    fn choose_head(&mut self) {
        let (file, images) = (&mut self.file, self.trained.len());
        let dimensions = dimensions(self.training.number("network", "dimensions").unwrap_or(128), images);
        file.set("network", "dimensions", dimensions as i64);
        if images <= dimensions {
            file.because("network", format!("{images} images are too few for head_init = \"lda\""));
        } else if images == self.trained.class_names().len() {
            file.because("network", "no class has two images to train on, which head_init = \"lda\" needs");
        } else {
            file.set("network", "head_init", "lda");
        }
    }

    /// The keys of images that a network was trained with.
    fn prepare_images(&mut self, size: Value, known: &Preprocessing) {
        let file = &mut self.file;
        file.set("image", "size", size);
        file.set("image", "channels", known.channels as i64);
        file.set("image", "mean", floats(&known.mean));
        file.set("image", "std", floats(&known.std));
        if known.range != 1.0 {
            file.set("image", "range", float(known.range));
        }
        if known.bgr {
            file.set("image", "bgr", true);
        }
        if known.invert {
            file.set("image", "invert", true);
        }
    }

    /// A small network with random weights.
    fn choose_fresh(&mut self) {
        self.file.copy(&self.training, "network");
        match self.preset {
            Preset::Drawings => {
                self.file.because("network", format!("a small network from random weights, as {}", self.training.name))
            }
            _ => self.file.because(
                "network",
                format!(
                    "no weights are given: the small network of {}, which was measured on drawings; for photographs, \
                     pretrained weights are far better",
                    self.training.name
                ),
            ),
        }
        self.choose_plain_images();
        self.choose_view();
    }

    /// Images for a network whose preprocessing is not given.
    fn choose_plain_images(&mut self) {
        let survey = &self.findings.survey;
        let coloured = 2 * survey.coloured > survey.decoded;
        let file = &mut self.file;
        match self.preset {
            Preset::Drawings => {
                file.copy(&self.training, "image");
                let inverted = !coloured && 2 * survey.on_black < survey.decoded;
                file.set("image", "invert", inverted);
                let ground = if inverted { "black ink on white: inverted, ink is 1" } else { "not inverted" };
                file.because("image", format!("as {}; {ground}", self.training.name));
            }
            Preset::Reid => {
                let size = [SIDE_FROM_SCRATCH, SIDE_FROM_SCRATCH / 2].map(Value::Integer).to_vec();
                file.set("image", "size", size);
            }
            _ => file.set("image", "size", SIDE_FROM_SCRATCH),
        }
        file.set("image", "channels", if coloured { 3 } else { 1 });
        file.because("image", if coloured { "the images are in colour" } else { "the images are grey" });
    }

    /// What the network sees of an image.
    fn choose_view(&mut self) {
        let file = &mut self.file;
        if let Some(average) = self.recipe.keys.get("image").and_then(|image| image.get("flip_average")) {
            file.set("image", "flip_average", average.clone());
        }
        if self.preset == Preset::Products && self.findings.survey.white_borders > 0 {
            let trim = toml::Table::from_iter(
                [("threshold", 250), ("padding", 0)].map(|(k, v)| (k.to_owned(), Value::Integer(v))),
            );
            file.set("image", "trim", trim);
            file.because("image", "white borders are trimmed");
        }
    }

    /// Augmentation, loss, optimiser and schedule.
    fn choose_training(&mut self, options: &InitOptions) {
        let file = &mut self.file;
        file.set("train", "seed", 1);
        file.copy(&self.training, "loss");
        file.because("loss", format!("RLL-Simpler, as {}", self.training.name));
        file.copy(&self.training, "optimizer");
        file.copy(&self.training, "schedule");
        if self.preset == Preset::Features {
            file.set("optimizer", "learning_rate", 0.0);
            file.because("optimizer", "the weights stay as they are");
            file.set("schedule", "warmup_steps", 0);
            return;
        }
        file.because("optimizer", format!("as {}", self.training.name));
        if self.is_frozen {
            // Without augmentation: changed images would have features to compute in every step.
            file.set("optimizer", "learning_rate", RATE_OF_HEAD);
            file.because("optimizer", "a layer alone takes a higher learning rate (experiments/cub200.md)");
        } else {
            file.copy(&self.recipe, "augment");
        }
        if options.weights.is_some()
            && let Some(decay) = self.training.keys.get("train").and_then(|train| train.get("average_decay"))
        {
            file.set("train", "average_decay", decay.clone());
        }
    }

    /// What the user should expect.
    fn warn_of_little_data(&mut self, options: &InitOptions) {
        let (images, classes) = (self.trained.len(), self.trained.class_names().len());
        let single = self.findings.class_sizes.iter().filter(|&&n| n == 1).count();
        if single > 0 {
            self.warnings.push(format!(
                "{} of {} have one image: as their own positives they serve only through augmentation, and as queries \
                 they find nothing",
                grouped(single),
                count(self.findings.training.classes, "class")
            ));
        }
        if options.weights.is_none() && self.preset != Preset::Drawings {
            self.warnings.push(format!(
                "no weights are given: a network that starts from random weights learns little from {}; `gallerist \
                 weights fetch mobilenet_v2-v2 --out weights.pth`, then --weights weights.pth, starts from ImageNet",
                count(images, "photograph")
            ));
        } else if images < FEW_IMAGES || classes < FEW_CLASSES {
            self.warnings.push(format!(
                "{} of {} train: that is few, and the metrics of so small a test vary by several points",
                count(images, "image"),
                count(classes, "class")
            ));
        }
    }

    /// The number of steps. Returns the seconds of a step where they are measured.
    pub(super) fn choose_steps(
        &mut self,
        options: &InitOptions,
        observer: &mut dyn Observer,
        stop: &AtomicBool,
    ) -> Result<Option<f64>> {
        let recipe = self.training.number("train", "steps").expect("a recipe has steps");
        let name = self.training.name;
        let (steps, why, measured) = if self.preset == Preset::Features {
            (1, "one step, which changes nothing: the first head is the result".to_owned(), None)
        } else if let Some(steps) = options.steps {
            (steps, format!("{} as given; {name} has {}", count(steps, "step"), grouped(recipe)), None)
        } else if self.is_frozen {
            (recipe, format!("{} as {name}; they take milliseconds each", count(recipe, "step")), None)
        } else {
            self.set_steps(1);
            let mut config = RunConfig::parse(&self.file.text(self.findings, &[]), "the run file", &[])?;
            config.train.device = options.device;
            config.validate()?;
            let seconds = step_seconds(&config, self.trained.clone(), observer, stop)?;
            let minutes = options.minutes.unwrap_or(DEFAULT_MINUTES);
            let fitting = ((60.0 * minutes / seconds) as usize).clamp(1, 1_000_000_000);
            let steps = if options.minutes.is_some() { fitting } else { fitting.min(recipe) };
            let why = format!(
                "{} take about {}: a step takes {} on this machine (measured); {name} has {} steps",
                count(steps, "step"),
                duration(steps as f64 * seconds),
                if seconds < 1.0 { format!("{:.0} ms", 1000.0 * seconds) } else { duration(seconds) },
                grouped(recipe)
            );
            (steps, why, Some(seconds))
        };
        self.set_steps(steps);
        self.file.because("train", why);
        Ok(measured)
    }

    fn set_steps(&mut self, steps: usize) {
        self.file.set("train", "steps", steps as i64);
        if let Some(warmup) = self.training.number("schedule", "warmup_steps") {
            let warmup = warmup.min(steps / 10);
            self.file.set("schedule", "warmup_steps", warmup as i64);
        }
        if self.is_validated
            && let Some(every) = self.training.number("validation", "every")
        {
            self.file.set("validation", "every", every.min(steps.div_ceil(4)) as i64);
        }
    }
}

fn is_onnx(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("onnx"))
}

/// Refuses images that nothing can be trained on.
fn check(findings: &Findings) -> Result<()> {
    let source = findings.images[0].display();
    let sizes = &findings.class_sizes;
    if sizes.len() < 2 {
        return Err(Error::new(
            format!("training needs two or more classes, and `{source}` has {}", sizes.len()),
            Some(
                "put the images of each class into a folder of their own: photos/heron/1.jpg, photos/wren/7.jpg",
            ),
        ));
    }
    if sizes.iter().all(|&n| n < 2) {
        return Err(Error::new(
            format!(
                "training needs classes of two or more images, and each of the {} classes of `{source}` has one",
                sizes.len()
            ),
            Some(
                "put all images of the same object into one folder; images without classes are embedded and searched \
                 with a network that is trained on others: gallerist embed --run DIR",
            ),
        ));
    }
    if findings.survey.decoded == 0 {
        let first = findings.survey.broken.first().map_or(String::new(), |broken| format!("\n  {broken}"));
        return Err(Error::new(
            format!("none of {} looked at can be read{first}", count(findings.survey.broken.len(), "image")),
            Some("`gallerist data info PATH` checks every image"),
        ));
    }
    Ok(())
}

fn broken(findings: &Findings) -> Option<String> {
    let broken = &findings.survey.broken;
    let first = broken.first()?;
    let are = if broken.len() == 1 { "is" } else { "are" };
    Some(format!(
        "{} of those looked at {are} broken, the first: {first}; in training, another image of the class takes the \
         place of a broken one; `gallerist data info` checks all",
        count(broken.len(), "image")
    ))
}

/// The section `[data]`.
fn data(findings: &Findings, file: &mut RunFile, warnings: &mut Vec<String>) -> DataConfig {
    let paths = |paths: &[PathBuf]| Value::Array(paths.iter().map(|path| text(path)).collect());
    file.set("data", "train", paths(&findings.images));
    if let Some(split) = &findings.train_split {
        file.set("data", "train_split", split.as_str());
    }
    let mut data = DataConfig {
        train: findings.images.clone(),
        train_split: findings.train_split.clone(),
        ..DataConfig::default()
    };
    match &findings.test {
        TestPart::Paths(test) => {
            file.set("data", "test", paths(test));
            file.because("data", "the test images are as given");
        }
        TestPart::Published => {
            file.set("data", "test", paths(&findings.images));
            file.because("data", "training and test are the published parts");
        }
        TestPart::Split(split) => {
            file.set("data", "test", paths(&findings.images));
            if let Some(split) = split {
                file.set("data", "test_split", split.as_str());
            }
            let test = split.as_ref().map_or("query and gallery".to_owned(), String::clone);
            file.because("data", format!("the split train is trained on, {test} is tested on"));
        }
        TestPart::Missing => match test_fraction(findings.training.classes) {
            Some(fraction) => {
                file.set("data", "test_fraction", fraction);
                data.test_fraction = Some(fraction);
                let held_out = (findings.training.classes as f64 * fraction).round() as usize;
                file.because(
                    "data",
                    format!(
                        "there are no test images: {} of {} are held out for the test",
                        grouped(held_out),
                        count(findings.training.classes, "class")
                    ),
                );
            }
            None => {
                file.set("data", "test", paths(&findings.images));
                if let Some(split) = &findings.train_split {
                    file.set("data", "test_split", split.as_str());
                }
                file.because(
                    "data",
                    "too few classes to hold any out: the test images are the training images",
                );
                warnings.push(format!(
                    "{} are too few to hold any out: the test uses the training images, and its metrics say nothing \
                     about new classes; give other images with --test PATH",
                    count(findings.training.classes, "class")
                ));
            }
        },
    }
    data
}

/// The smallest usual share of the classes that holds out enough of them: five, or a quarter of fewer than twenty, and
/// two or more on both sides.
fn test_fraction(classes: usize) -> Option<f64> {
    let wanted = (classes / 4).clamp(2, 5);
    [0.2, 0.3, 0.4, 0.5].into_iter().find(|fraction| {
        let held_out = (classes as f64 * fraction).round() as usize;
        held_out >= wanted && classes - held_out >= 2
    })
}

/// The section `[validation]`, and the images that train.
fn hold_out(images: ImageSet, training: &Recipe, file: &mut RunFile) -> Result<ImageSet> {
    let of_recipe = training.keys.get("validation").and_then(|validation| validation.get("fraction"));
    let fraction = of_recipe.and_then(Value::as_float).unwrap_or(0.0);
    let held_out = (images.class_names().len() as f64 * fraction).round();
    if fraction == 0.0 || held_out < 2.0 {
        file.set("validation", "fraction", 0.0);
        file.because("validation", "all classes train; the last checkpoint is the result");
        return Ok(images);
    }
    let metric = format!("{held_out} classes choose the best checkpoint, as in {}", training.name);
    file.set("validation", "fraction", fraction);
    file.because("validation", metric);
    Ok(images.split_classes(fraction, 0)?.0)
}

/// The length of an embedding: that of the recipe, less where there are few images.
fn dimensions(recipe: usize, images: usize) -> usize {
    std::iter::successors(Some(recipe), |d| Some(d / 2))
        .find(|d| 2 * d <= images || *d <= 8)
        .expect("halves reach 8")
}

fn text(path: &Path) -> Value {
    Value::String(path.to_str().expect("checked before").to_owned())
}

/// A number of a 32-bit type with the digits that it is written with.
fn float(value: f32) -> Value {
    Value::Float(value.to_string().parse().expect("a number"))
}

fn floats(values: &[f32]) -> Value {
    Value::Array(values.iter().map(|value| float(*value)).collect())
}

fn size_value(Size { height, width }: Size) -> Value {
    match height == width {
        true => Value::Integer(height as i64),
        false => Value::Array([height, width].map(|side| Value::Integer(side as i64)).to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_classes_or_more_stay_on_both_sides() {
        let of = |classes| test_fraction(classes);
        assert_eq!([of(2), of(3), of(4), of(5)], [None, None, Some(0.4), Some(0.3)]);
        assert_eq!([of(6), of(8), of(12), of(100)], [Some(0.3), Some(0.2), Some(0.3), Some(0.2)]);
    }

    #[test]
    fn embeddings_of_few_images_are_short() {
        assert_eq!([dimensions(128, 1000), dimensions(128, 200), dimensions(128, 40)], [128, 64, 16]);
        assert_eq!(dimensions(128, 3), 8);
    }
}
