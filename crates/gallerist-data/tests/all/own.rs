//! Sources, samplers and steps of a program's own, through everything that the built-in ones go through.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gallerist_data::*;
use serde::{Deserialize, Serialize};

/// Squares of one brightness: image `i` has brightness `i`. Three classes, two cameras, two splits.
struct Squares {
    count: usize,
    reads: Arc<AtomicUsize>,
    version: Option<u64>,
}

impl ImageSource for Squares {
    fn name(&self) -> &str {
        "squares://test"
    }

    fn list(&mut self) -> Result<ImageListing, Error> {
        let record = |i: usize| {
            let split = if i < 6 { "train" } else { "test" };
            ImageRecord::new(format!("{i:03}"))
                .with_label(["a", "b|c", "c"][i % 3])
                .with_camera((i % 2).to_string())
                .with_split(split)
        };
        Ok((0..self.count).map(record).collect::<Vec<_>>().into())
    }

    fn read(&self, number: usize, path: &str) -> Result<ImageContent, Error> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        assert_eq!(path.parse(), Ok(number), "the number is that of the whole list");
        match number {
            7 => Err(Error::Decode { path: self.location(path), problem: "it is broken".to_owned() }),
            _ => Ok(ImageContent::Decoded(Image::new(4, 4, 1, vec![number as u8; 16]))),
        }
    }

    fn version(&self, number: usize, _path: &str) -> Option<[u64; 3]> {
        self.version.map(|version| [version, number as u64, 0])
    }
}

fn squares(version: Option<u64>) -> (Squares, Arc<AtomicUsize>) {
    let reads = Arc::new(AtomicUsize::new(0));
    (Squares { count: 12, reads: reads.clone(), version }, reads)
}

fn split(name: &str) -> OpenOptions {
    OpenOptions { split: Some(name.into()), ..OpenOptions::default() }
}

#[test]
fn a_set_of_an_own_source_knows_labels_cameras_and_splits_without_reading() {
    let (source, reads) = squares(None);
    let set = ImageSet::from_source(source).unwrap();
    assert_eq!((set.len(), set.name(), set.layout()), (12, "squares://test", None));
    assert_eq!(set.class_names(), ["a", "b|c", "c"]);
    assert_eq!(set.label_sets().unwrap()[1], [1, 2]);
    assert_eq!(set.cameras().unwrap()[..2], ["0", "1"]);
    assert!(set.has_split("train") && !set.has_split("query"));
    assert_eq!(set.location(3), "squares://test/003");
    assert_eq!(set.source_root(0).to_str(), Some("squares://test"));
    assert_eq!(reads.load(Ordering::Relaxed), 0);
    assert_eq!(set.decode(5).unwrap().pixels()[0], 5);
    assert_eq!(set.read(5).unwrap(), [5; 16]);
}

#[test]
fn splits_of_an_own_source_are_chosen_as_those_of_files_and_images_keep_their_numbers() {
    let open = |options: &OpenOptions| ImageSet::from_sources(vec![Box::new(squares(None).0)], options);
    let test = open(&split("test")).unwrap();
    assert_eq!((test.len(), test.decode(0).unwrap().pixels()[0]), (6, 6));
    let by_default = OpenOptions { default_split: Some("train".into()), ..OpenOptions::default() };
    assert_eq!(open(&by_default).unwrap().len(), 6);
    let error = open(&split("query")).unwrap_err().to_string();
    assert_eq!(
        error,
        "cannot select from `squares://test`: no image has the split `query`; there are `test` (6), `train` (6)"
    );
    let turned = test.with_rotation_classes().unwrap();
    assert_eq!(turned.len(), 24);
}

#[test]
fn an_own_source_is_loaded_with_broken_images_reported_and_cached_by_its_version() {
    let folder = tempfile::tempdir().unwrap();
    let pass = |version: Option<u64>| {
        let (source, reads) = squares(version);
        let set = Arc::new(ImageSet::from_source(source).unwrap());
        let transform = Transform::evaluation(&ImageConfig::new(4, 1)).unwrap();
        let store = ImageStore::new(set, transform, 0).with_disk_cache(folder.path()).unwrap();
        let plan = BatchPlan::in_order(12, 5);
        let mut values = Vec::new();
        let mut broken = Vec::new();
        for batch in Loader::new(Arc::new(store), plan, LoaderOptions::evaluation(2)).unwrap() {
            let batch = batch.unwrap();
            values.extend(batch.images.iter().step_by(16).map(|v| (v * 255.0).round() as usize));
            broken.extend(batch.broken.iter().map(ToString::to_string));
        }
        assert_eq!(values, [0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11]);
        assert_eq!(broken, ["cannot decode `squares://test/007`: it is broken"]);
        reads.load(Ordering::Relaxed)
    };
    assert_eq!(pass(None), 12);
    assert_eq!(pass(None), 12, "without a version nothing is kept");
    assert_eq!(pass(Some(1)), 12);
    assert_eq!(pass(Some(1)), 1, "all but the broken one come from the cache");
    assert_eq!(pass(Some(2)), 12, "they have changed");
}

/// Adds a random value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Shade {
    most: f64,
    normalized: bool,
}

impl Named for Shade {
    const NAME: &'static str = "test_shade";
}

impl Augmentation for Shade {
    fn apply(&self, image: &mut Planes<'_>, random: &mut Random) {
        let by = random.between(0.0, self.most) as f32;
        image.values().iter_mut().for_each(|v| *v += by);
    }

    fn stage(&self) -> AugmentationStage {
        match self.normalized {
            true => AugmentationStage::Normalized,
            false => AugmentationStage::Colors,
        }
    }
}

/// Halves all pixels.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Halve {}

impl Named for Halve {
    const NAME: &'static str = "test_halve";
}

impl Preparation for Halve {
    fn apply(&self, image: Image) -> Image {
        let (width, height, channels) = (image.width(), image.height(), image.channels());
        Image::new(width, height, channels, image.into_pixels().into_iter().map(|v| v / 2).collect())
    }
}

fn augmented(augment: &AugmentConfig, seed: u64) -> Vec<f32> {
    let transform = Transform::training(&ImageConfig::new(6, 3), augment).unwrap();
    let pixels = (0..6 * 6 * 3).map(|i| (i * 2) as u8).collect();
    let mut tensor = vec![0.0; transform.tensor_len()];
    transform.apply(&Image::new(6, 6, 3, pixels), &mut Random::new(seed, "augment", 0, 0), &mut tensor);
    tensor
}

#[test]
fn an_own_step_does_not_change_what_the_others_draw() {
    AugmentationConfig::register::<Shade>().unwrap();
    let text =
        "rotation_degrees = 20.0\nflip = 0.5\njitter = { brightness = 0.4 }\nerase = { probability = 0.7 }";
    let plain: AugmentConfig = toml::from_str(text).unwrap();
    for kind in ["most = 0.0", "most = 0.0, normalized = true"] {
        let with: AugmentConfig =
            toml::from_str(&format!("{text}\nsteps = [{{ kind = \"test_shade\", {kind} }}]")).unwrap();
        assert_eq!(toml::from_str::<AugmentConfig>(&toml::to_string(&with).unwrap()).unwrap(), with);
        for seed in 0..20 {
            assert_eq!(augmented(&plain, seed), augmented(&with, seed));
        }
    }
    let steps = "steps = [{ kind = \"test_shade\", most = 1.0 }, { kind = \"test_shade\", most = 1.0 }]";
    let two: AugmentConfig = toml::from_str(steps).unwrap();
    let one: AugmentConfig = toml::from_str("steps = [{ kind = \"test_shade\", most = 1.0 }]").unwrap();
    assert_eq!(augmented(&two, 1), augmented(&two, 1));
    assert_ne!(augmented(&two, 1), augmented(&two, 2));
    let none = augmented(&AugmentConfig::default(), 0)[0];
    let [first, both] =
        [&one, &two].map(|config| (0..20).map(|seed| augmented(config, seed)[0] - none).collect());
    let (first, both): (Vec<f32>, Vec<f32>) = (first, both);
    let second = first.iter().zip(&both).map(|(first, both)| both - first);
    let farthest = first.iter().zip(second).map(|(first, second)| (first - second).abs()).fold(0.0, f32::max);
    assert!(farthest > 0.1, "each step has numbers of its own: {farthest}");
}

#[test]
fn steps_by_name_do_what_the_keys_of_the_same_name_do() {
    let key: AugmentConfig =
        toml::from_str("jitter = { hue = 0.0, contrast = 0.0, brightness = 0.0 }").unwrap();
    let step: AugmentConfig = toml::from_str("steps = [{ kind = \"jitter\" }]").unwrap();
    assert_eq!(augmented(&key, 3), augmented(&step, 3));
    let error = toml::from_str::<AugmentConfig>("steps = [{ kind = \"jiter\" }]").unwrap_err();
    assert!(error.message().contains("unknown variant `jiter`, expected"), "{error}");
    let error =
        toml::from_str::<AugmentConfig>("steps = [{ kind = \"erase\", probabilty = 1 }]").unwrap_err();
    assert!(error.message().contains("unknown field `probabilty`"), "{error}");
    let step: AugmentConfig = toml::from_str("steps = [{ kind = \"erase\", probability = 2.0 }]").unwrap();
    let error = Transform::training(&ImageConfig::new(6, 3), &step).unwrap_err();
    assert_eq!(error.to_string(), "`erase.probability` must be a probability, not 2");
}

#[test]
fn an_own_preparation_takes_part_in_training_and_evaluation_and_in_the_name_of_the_cache() {
    PreparationConfig::register::<Halve>().unwrap();
    let config: ImageConfig =
        toml::from_str("size = 4\nchannels = 1\nprepare = [{ kind = \"test_halve\" }]").unwrap();
    for transform in [
        Transform::evaluation(&config).unwrap(),
        Transform::training(&config, &AugmentConfig::default()).unwrap(),
    ] {
        assert_eq!(transform.fit(Image::new(4, 4, 1, vec![100; 16])).pixels(), [50; 16]);
    }
    let folder = tempfile::tempdir().unwrap();
    let set = Arc::new(ImageSet::from_source(squares(Some(1)).0).unwrap());
    for config in [&config, &ImageConfig::new(4, 1)] {
        let transform = Transform::evaluation(config).unwrap();
        let store = ImageStore::new(set.clone(), transform, 0).with_disk_cache(folder.path()).unwrap();
        store.get(4).unwrap();
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn configurations_without_own_steps_are_written_as_before() {
    let image = ImageConfig { trim: Some(TrimConfig::default()), ..ImageConfig::new(28, 1) };
    assert_eq!(
        toml::to_string(&image).unwrap(),
        "size = 28\nchannels = 1\nmean = [0.0]\nstd = [1.0]\ninvert = false\nfit = \"warp\"\nview = \"whole\"\n\n\
         [trim]\nthreshold = 250\npadding = 0\n"
    );
    let sampler = SamplerConfig::default();
    assert_eq!(
        toml::to_string(&sampler).unwrap(),
        "kind = \"classes_images\"\nclasses_per_batch = 32\nimages_per_class = 4\nsmall_classes = \"repeat\"\n"
    );
}

/// Every image alone, in order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Alone {}

impl Named for Alone {
    const NAME: &'static str = "test_alone";
}

impl SamplerFactory for Alone {
    fn batch_size(&self) -> usize {
        1
    }

    fn build(&self, set: &ImageSet) -> Result<Arc<dyn BatchSampler>, Error> {
        Ok(Arc::new(AloneSampler(set.len() as u32)))
    }
}

struct AloneSampler(u32);

impl BatchSampler for AloneSampler {
    fn epoch(&self, _seed: u64, _epoch: u64) -> Vec<Vec<u32>> {
        (0..self.0).map(|i| vec![i]).collect()
    }

    fn batch_size(&self) -> usize {
        1
    }
}

#[test]
fn a_run_file_names_an_own_sampler_once_it_is_registered() {
    SamplerConfig::register::<Alone>().unwrap();
    let config: SamplerConfig = toml::from_str("kind = \"test_alone\"").unwrap();
    let set = ImageSet::from_source(squares(None).0).unwrap();
    assert_eq!(config.build(&set).unwrap().epoch(1, 0).len(), 12);
    assert_eq!(
        SamplerConfig::names()[..5],
        ["classes_images", "n_group", "random", "hard_identities", "hard_classes"]
    );
}

#[test]
fn samplers_that_use_class_means_say_so() {
    let set = ImageSet::from_source(squares(None).0).unwrap();
    for kind in &SamplerConfig::names()[..5] {
        let sizes = match *kind {
            "random" => "batch_size = 4",
            _ => "classes_per_batch = 2\nimages_per_class = 2",
        };
        let config: SamplerConfig = toml::from_str(&format!("kind = \"{kind}\"\n{sizes}")).unwrap();
        let sampler = config.build(&set).unwrap();
        assert_eq!(config.uses_class_means(), sampler.refresh().is_some(), "{kind}");
    }
}

/// Images with these paths and labels.
struct Listed(&'static [(&'static str, &'static str)]);

impl ImageSource for Listed {
    fn name(&self) -> &str {
        "listed://test"
    }

    fn list(&mut self) -> Result<ImageListing, Error> {
        let record = |&(path, label): &(&str, &str)| ImageRecord::new(path).with_label(label);
        Ok(self.0.iter().map(record).collect::<Vec<_>>().into())
    }

    fn read(&self, _number: usize, _path: &str) -> Result<ImageContent, Error> {
        Ok(ImageContent::Decoded(Image::new(1, 1, 1, vec![0])))
    }
}

#[test]
fn empty_labels_and_repeated_paths_of_an_own_source_are_refused() {
    let problem = |list| ImageSet::from_source(Listed(list)).unwrap_err().to_string();
    let found = problem(&[("1", "a"), ("2", ""), ("3", " "), ("4", "b")]);
    assert_eq!(found, "image source `listed://test`: the label is empty for 2 of 4 images, `2` for one");
    let found = problem(&[("1", "a"), ("2", "b"), ("1", "b")]);
    let wanted = "image source `listed://test`: 1 of 3 images have the path of an earlier one in the list, `1` for one";
    assert_eq!(found, wanted);

    let two = || -> Vec<Box<dyn ImageSource>> {
        vec![Box::new(Listed(&[("1", "a")])), Box::new(Listed(&[("1", "a")]))]
    };
    let error = ImageSet::from_sources(two(), &OpenOptions::default()).unwrap_err().to_string();
    assert!(error.contains("1 of its 1 image is also in `listed://test`"), "{error}");
    let options = OpenOptions { allow_repeats: true, ..OpenOptions::default() };
    assert_eq!(ImageSet::from_sources(two(), &options).unwrap().len(), 2);
}
