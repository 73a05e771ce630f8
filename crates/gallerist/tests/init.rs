//! `gallerist init`: run files for folders as users have them.

mod common;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use common::{program, root, text};
use gallerist::network::{HeadInit, InputShape, NetworkConfig, VitConfig};
use gallerist::train::RunConfig;
use gallerist::{InitOptions, Preset};
use serde_json::Value;

/// A BMP of `side` x `side` with the colours of `pixel`.
fn bitmap(side: u32, pixel: impl Fn(u32, u32) -> [u8; 3]) -> Vec<u8> {
    assert_eq!(side % 4, 0, "rows without padding");
    let mut file = b"BM".to_vec();
    let bytes = side * side * 3;
    for word in [54 + bytes, 0, 54, 40, side, side, 24 << 16 | 1, 0, bytes, 0, 0, 0, 0u32] {
        file.extend(word.to_le_bytes());
    }
    for y in 0..side {
        (0..side).for_each(|x| file.extend(pixel(x, y)));
    }
    file
}

fn put(path: &Path, bytes: &[u8]) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}

/// A photograph in colour.
fn photograph(class: usize, number: usize) -> Vec<u8> {
    let tint = (class * 23 + number) as u8;
    bitmap(16, |x, y| [tint.wrapping_mul(7), (x as u8).wrapping_mul(tint), 40 + y as u8])
}

/// A black bar on white.
fn drawing(class: usize, number: usize) -> Vec<u8> {
    let at = (class + number) as u32 % 16;
    bitmap(16, |x, y| if x == at || y == class as u32 { [0; 3] } else { [255; 3] })
}

/// A picture of something in colour with a white border.
fn product(class: usize, number: usize) -> Vec<u8> {
    let tint = (class * 20 + number) as u8;
    let inside = |v: u32| (3..13).contains(&v);
    bitmap(16, |x, y| if inside(x) && inside(y) { [tint, 90, x as u8] } else { [255; 3] })
}

/// `classes` folders of `images` pictures each in `folder`.
fn classes(folder: &Path, classes: usize, images: usize, picture: impl Fn(usize, usize) -> Vec<u8>) {
    for class in 0..classes {
        for number in 0..images {
            put(&folder.join(format!("class{class}/{number}.bmp")), &picture(class, number));
        }
    }
}

/// The program in `dir`; its exit code must be `code`. Returns stdout and stderr.
fn run(dir: &Path, args: &[&str], code: i32) -> (String, String) {
    let out = program(dir, args);
    let (stdout, stderr) = (text(&out.stdout), text(&out.stderr));
    assert_eq!(out.status.code(), Some(code), "{args:?}: {stderr}");
    (stdout, stderr)
}

#[test]
fn a_folder_of_classes_gets_a_run_file_that_says_why_and_trains() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    classes(&dir.join("photos"), 8, 4, photograph);
    let (stdout, stderr) = run(dir, &["init", "--images", "photos", "--steps", "3"], 0);
    assert!(stdout.is_empty());
    let written = std::fs::read_to_string(dir.join("photos.toml")).unwrap();
    insta::assert_snapshot!("run_file", written);
    insta::assert_snapshot!("init", stderr);
    run(dir, &["train", "photos.toml", "--out", "run"], 0);
    let metrics: Value =
        serde_json::from_slice(&std::fs::read(dir.join("run/metrics.json")).unwrap()).unwrap();
    // Two classes are held out, and every test image is embedded.
    assert_eq!(metrics["class_overlap"]["shared"], 0);
    assert_eq!(metrics["class_overlap"]["test"], 2);
    assert!(dir.join("run/embeddings.safetensors").exists());
    let (again, _) = run(dir, &["evaluate", "--run", "run", "--json"], 0);
    let again: Value = serde_json::from_str(&again).unwrap();
    assert_eq!(again["metrics"], metrics["metrics"]);

    // The run's checkpoint names its own network and its preparation of images.
    let weights = "run/checkpoints/last.safetensors";
    let args =
        ["init", "--images", "photos", "--weights", weights, "--steps", "2", "--out", "more.toml", "--json"];
    let (json, _) = run(dir, &args, 0);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["file"], "more.toml");
    let config = RunConfig::load(&dir.join("more.toml"), &[]).unwrap();
    assert_eq!((config.network.name(), config.image.size.height), ("conv_blocks", 64));
    run(dir, &["train", "more.toml", "--out", "run2"], 0);
}

#[test]
fn splits_without_a_use_are_named_and_a_test_split_in_capitals_does_not_train() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    classes(&dir.join("photos"), 8, 4, photograph);
    let manifest = |splits: [&str; 4]| {
        let row = |i: usize| format!("photos/class{}/{}.bmp,c{0},{}\n", i / 4, i % 4, splits[i % 4]);
        let rows: String = (0..32).map(row).collect();
        std::fs::write(dir.join("list.csv"), format!("path,label,split\n{rows}")).unwrap();
        run(dir, &["init", "--images", "list.csv", "--steps", "3", "--out", "run.toml", "--force"], 0).1
    };
    let stderr = manifest(["Train", "training", "Test", "val"]);
    assert!(stderr.contains("list.csv (a manifest): 16 images of 8 classes, 2 each"), "{stderr}");
    assert!(stderr.contains("the split `val` (8 images) is neither trained nor tested on"), "{stderr}");
    let config = RunConfig::load(&dir.join("run.toml"), &[]).unwrap();
    let splits = (config.data.train_split.as_deref(), config.data.test_split.as_deref());
    assert_eq!(splits, (Some("train"), Some("test")));
    let stderr = manifest(["a", "a", "a", "Test"]);
    let note = "no split is called `train`: the splits `a` (24 images), `test` (8 images) are trained on";
    assert!(stderr.contains(note), "{stderr}");
}

#[test]
fn distractors_are_no_class_and_pictures_that_are_not_read_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    for (folder, identities) in [
        ("bounding_box_train", &["0002", "0007", "0010", "0011"][..]),
        ("query", &["0001", "0003"]),
        ("bounding_box_test", &["0001", "0003", "0000", "-1"]),
    ] {
        for (at, identity) in identities.iter().enumerate() {
            for number in 0..3 {
                let name = format!("persons/{folder}/{identity}_c{}s1_00000{number}_00.bmp", 1 + number % 2);
                put(&dir.join(name), &photograph(at, number));
            }
        }
    }
    put(&dir.join("persons/bounding_box_train/0002.heic"), b"");
    let (_, stderr) = run(dir, &["init", "--images", "persons", "--steps", "3"], 0);
    assert!(stderr.contains("split gallery: 12 images of 2 classes, 3 each"), "{stderr}");
    assert!(stderr.contains("`persons` has 1 picture of formats that are not read (1 .heic)"), "{stderr}");
}

/// Writes the weights of a small vision transformer without a head.
fn vision_transformer(file: &Path) {
    let sizes =
        VitConfig { width: 64, depth: 2, patch: 14, registers: 1, layer_scale: true, ..Default::default() };
    let network = NetworkConfig::from(VitConfig { dimensions: 0, ..sizes });
    let input = InputShape { channels: 3, height: 28, width: 28 };
    let network = network.init(input, 1, &gallerist::burn::tensor::Device::flex()).unwrap();
    gallerist::weights::save_safetensors(&network, file, Default::default()).unwrap();
}

#[test]
fn a_discriminant_head_is_chosen_only_if_a_class_that_trains_has_two_images() {
    let dir = tempfile::tempdir().unwrap();
    let weights = dir.path().join("vit.safetensors");
    vision_transformer(&weights);
    let options = InitOptions { weights: Some(weights), steps: Some(2), ..InitOptions::default() };
    let mut found = [0; 2];
    for class in 0..16 {
        // One class has two images. Some of the classes are held out.
        let images = dir.path().join(format!("photos{class}"));
        classes(&images, 16, 1, photograph);
        put(&images.join(format!("class{class}/1.bmp")), &photograph(class, 1));
        let made = gallerist::init(&[images], &options, &mut (), &AtomicBool::new(false)).unwrap();
        let (train, _) = made.config.data.open_train().unwrap();
        let has_pair = train.len() > train.class_names().len();
        assert_eq!(made.config.network.head_init == HeadInit::Lda, has_pair);
        let is_explained = made.reasons.iter().any(|(_, why)| why.contains("no class has two images"));
        assert_eq!(is_explained, !has_pair, "{:?}", made.reasons);
        found[usize::from(has_pair)] += 1;
    }
    assert!(found.iter().all(|&count| count > 0), "{found:?}");
}

#[test]
fn the_file_of_a_vision_transformer_tells_its_network() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    classes(&dir.join("photos"), 8, 4, photograph);
    vision_transformer(&dir.join("vit.safetensors"));
    let args =
        ["init", "--images", "photos", "--weights", "vit.safetensors", "--steps", "2", "--preset", "birds"];
    run(dir, &args, 0);
    let config = RunConfig::load(&dir.join("photos.toml"), &["image.size=56".into()]).unwrap();
    let made: &VitConfig = config.network.architecture.downcast_ref().unwrap();
    let found = (made.width, made.depth, made.patch, made.registers, made.layer_scale, made.dimensions);
    assert_eq!(found, (64, 2, 14, 1, true, 8));
    assert_eq!((config.network.head_init, config.image.mean[0]), (HeadInit::Lda, 0.485));
    let text = std::fs::read_to_string(dir.join("photos.toml")).unwrap();
    assert!(!text.contains("freeze_batch_norm"), "{text}");
    // Positions of 2 x 2 patches, images of 4 x 4.
    run(dir, &["train", "photos.toml", "--set", "image.size=56", "--out", "run"], 0);
}

#[test]
fn train_on_a_folder_makes_a_run_file_trains_evaluates_and_names_the_page() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    classes(&dir.join("meine Fotos"), 8, 4, photograph);
    let args = ["train", "--images", "meine Fotos", "--set", "train.steps=2"];
    let (stdout, stderr) = run(dir, &args, 0);
    assert!(stdout.contains("recall@1"), "{stdout}");
    assert!(stderr.contains("[data] there are no test images: 2 of 8 classes are held out"), "{stderr}");
    let next = "next: gallerist serve --gallery 'runs/meine Fotos/embeddings.safetensors'\n";
    assert!(stderr.ends_with(next), "{stderr}");
    // The file is kept with the run and trains again, from any folder.
    let kept = dir.join("runs/meine Fotos/init.toml");
    assert!(std::fs::read_to_string(&kept).unwrap().contains("# 2 steps as given"));
    let kept = kept.to_str().unwrap();
    run(
        &dir.join("meine Fotos"),
        &["train", kept, "--out", dir.join("again").to_str().unwrap(), "--json"],
        0,
    );
    // A second call does not write into the first run.
    let (_, stderr) = run(dir, &args, 0);
    assert!(stderr.contains("runs/meine Fotos-2/embeddings.safetensors"), "{stderr}");
    let (_, stderr) = run(dir, &["train", "--images", "meine Fotos", "--out", "runs/meine Fotos"], 2);
    assert!(stderr.contains("it holds another run"), "{stderr}");
    // Options of images without images.
    let (_, stderr) = run(dir, &["train", "x.toml", "--minutes", "3"], 2);
    assert!(stderr.contains("--images"), "{stderr}");
}

#[test]
fn the_library_returns_findings_reasons_and_a_run_file() {
    let dir = tempfile::tempdir().unwrap();
    let of = |name: &str, steps| {
        let options = InitOptions { steps, ..InitOptions::default() };
        gallerist::init(&[dir.path().join(name)], &options, &mut (), &AtomicBool::new(false)).unwrap()
    };
    classes(&dir.path().join("products"), 25, 4, product);
    let made = of("products", Some(10));
    assert_eq!(made.preset, Preset::Products);
    assert!(made.config.image.trim.is_some());
    assert_eq!(made.findings.training.images_per_class, [4; 3]);
    assert_eq!(made.findings.survey.white_borders, 100);
    assert_eq!(made.config.data.test_fraction, Some(0.2));
    assert!(made.reasons.iter().any(|(section, why)| *section == "image" && why.contains("trimmed")));
    assert!(made.warnings.iter().any(|warning| warning.contains("weights fetch")), "{:?}", made.warnings);

    classes(&dir.path().join("drawings"), 5, 3, drawing);
    let made = of("drawings", None);
    assert_eq!(made.preset, Preset::Drawings);
    assert!(made.config.image.invert && made.config.image.channels == 1);
    assert_eq!(made.config.augment.flip, 0.0);
    // The steps come from a measured rate, and are at most those of the recipe.
    let seconds = made.step_seconds.unwrap();
    assert!(seconds > 0.0 && (1..=4000).contains(&made.config.train.steps), "{seconds}");
    let why = &made.reasons.iter().find(|(section, _)| *section == "train").unwrap().1;
    assert!(why.contains("measured"), "{why}");
}

#[test]
fn splits_are_used_and_test_images_may_be_given() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    classes(&dir.join("set/train"), 4, 3, photograph);
    classes(&dir.join("set/test"), 2, 5, photograph);
    classes(&dir.join("other"), 3, 2, photograph);
    run(dir, &["init", "--images", "set", "--steps", "2"], 0);
    let config = RunConfig::load(&dir.join("set.toml"), &[]).unwrap();
    assert_eq!(config.data.train_split.as_deref(), Some("train"));
    assert_eq!((config.data.test_split.as_deref(), config.data.test_fraction), (Some("test"), None));
    assert_eq!(config.data.open_train().unwrap().0.len(), 12);
    assert_eq!(gallerist::train::open_test(&config).unwrap().unwrap().queries.len(), 10);
    let args =
        ["init", "--images", "set/train", "--test", "other", "--steps", "2", "--out", "deep/given.toml"];
    let (_, stderr) = run(dir, &args, 2);
    assert!(stderr.contains("create the folder first"), "{stderr}");
    std::fs::create_dir(dir.join("deep")).unwrap();
    run(dir, &args, 0);
    // A run file in another folder names its images by absolute paths.
    let config = RunConfig::load(&dir.join("deep/given.toml"), &[]).unwrap();
    assert_eq!(config.data.test, [dir.canonicalize().unwrap().join("other")]);
    assert_eq!(config.data.open_train().unwrap().0.len(), 12);
}

#[test]
fn names_with_blanks_and_other_letters_can_be_pasted() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    classes(&dir.join("Meine Vögel \"1\""), 4, 3, photograph);
    let (_, stderr) = run(dir, &["init", "--images", "Meine Vögel \"1\"", "--steps", "2"], 0);
    assert!(stderr.ends_with("next: gallerist train 'Meine Vögel \"1\".toml'\n"), "{stderr}");
    let config = RunConfig::load(&dir.join("Meine Vögel \"1\".toml"), &[]).unwrap();
    assert_eq!(config.data.train, [dir.join("Meine Vögel \"1\"")]);
}

#[test]
fn broken_images_are_named_and_do_not_end_the_command() {
    let dir = tempfile::tempdir().unwrap();
    classes(&dir.path().join("photos"), 5, 4, photograph);
    put(&dir.path().join("photos/class1/9.jpg"), b"no picture");
    let (_, stderr) = run(dir.path(), &["init", "--images", "photos", "--steps", "2"], 1);
    assert!(stderr.contains("1 image of 21 looked at cannot be read"), "{stderr}");
    assert!(stderr.contains("photos/class1/9.jpg") && stderr.contains("gallerist data info"), "{stderr}");
}

#[test]
fn images_that_cannot_train_get_errors_that_say_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    classes(&dir.join("one"), 1, 3, photograph);
    classes(&dir.join("single"), 5, 1, photograph);
    classes(&dir.join("broken"), 3, 2, |_, _| b"no picture".to_vec());
    classes(&dir.join("photos"), 4, 3, photograph);
    (0..3).for_each(|n| put(&dir.join(format!("flat/{n}.bmp")), &photograph(0, n)));
    put(&dir.join("weights.pth"), b"no weights");
    put(&dir.join("photos.toml"), b"steps = 1");
    let mut all = String::new();
    let mut case = |name: &str, args: &[&str]| {
        let args: Vec<&str> = ["init", "--steps", "2"].iter().chain(args).copied().collect();
        let (stdout, stderr) = run(dir, &args, 2);
        assert!(stdout.is_empty());
        all += &format!("--- {name}\n{stderr}\n");
    };
    case("no such folder", &["--images", "nowhere"]);
    case("photographs without classes", &["--images", "flat"]);
    case("one class", &["--images", "one"]);
    case("one image of each class", &["--images", "single"]);
    case("no image can be read", &["--images", "broken"]);
    case("a run file is there", &["--images", "photos"]);
    case("no weights", &["--images", "photos", "--force", "--weights", "nothing.pth"]);
    case("weights that are none", &["--images", "photos", "--force", "--weights", "weights.pth"]);
    case("features without weights", &["--images", "photos", "--force", "--preset", "features"]);
    case("test images without classes", &["--images", "photos", "--force", "--test", "flat"]);
    insta::assert_snapshot!("init_errors", all);
    assert_eq!(std::fs::read(dir.join("photos.toml")).unwrap(), b"steps = 1");
    assert!(!dir.join("one.toml").exists());
    run(dir, &["init", "--steps", "2", "--images", "photos", "--force"], 0);
    assert!(std::fs::metadata(dir.join("photos.toml")).unwrap().len() > 100);
}

#[test]
fn a_published_data_set_is_recognised() {
    let options = InitOptions { steps: Some(5), ..InitOptions::default() };
    let images = [root().join("data/omniglot/omniglot_images_background.zip")];
    let made = gallerist::init(&images, &options, &mut (), &AtomicBool::new(false)).unwrap();
    assert_eq!(made.preset, Preset::Drawings);
    assert_eq!(made.findings.training.classes, 964);
    let batch = made.config.sampler.batch_size();
    assert_eq!(batch, 180, "the batch of the recipe");
    assert!(made.config.validation.fraction > 0.0);
}
