//! ONNX models as networks, through the real program: imported as they are, and with a trained head.

mod common;

use std::path::Path;

use common::{done, gallerist, refused, text};
use gallerist::retrieval::EmbeddingSet;
use gallerist::train::{Observer, RunConfig, Trainer};

/// A colour bitmap of 16 x 16 pixels.
fn bitmap(class: usize, number: usize) -> Vec<u8> {
    let mut file = b"BM".to_vec();
    let bytes = 16 * 16 * 3;
    for word in [54 + bytes, 0, 54, 40, 16, 16, 24 << 16 | 1, 0, bytes, 0, 0, 0, 0u32] {
        file.extend(word.to_le_bytes());
    }
    for at in 0..16 * 16 * 3 {
        file.push((at * (3 * class + 1) / 7 + 11 * number * (at % 5)) as u8);
    }
    file
}

/// A project with eight classes of six images in `data`, a network without training in `native`, and the same network as
/// `model.onnx`.
fn project() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    for class in 0..8 {
        let images = dir.join(format!("data/{class}"));
        std::fs::create_dir_all(&images).unwrap();
        for number in 0..6 {
            std::fs::write(images.join(format!("{number}.bmp")), bitmap(class, number)).unwrap();
        }
    }
    let text = "[image]\nsize = 16\nmean = [0.4, 0.5, 0.3]\nstd = [0.2, 0.3, 0.4]\n\
                [network]\nkind = \"conv_blocks\"\nchannels = [8, 12]\ndimensions = 10\n[train]\ndevice = \"cpu\"";
    std::fs::write(dir.join("native.toml"), text).unwrap();
    let config = RunConfig::load(&dir.join("native.toml"), &[]).unwrap();
    let model = gallerist::model::Model::untrained(&config).unwrap();
    model.save_run(&dir.join("native")).unwrap();
    done(dir, "weights export --run native --out model.onnx");
    folder
}

fn embeddings(dir: &Path, run: &str) -> EmbeddingSet {
    let line = format!("embed --run {run} --images data --out {run}.safetensors");
    done(dir, &line);
    EmbeddingSet::load(dir.join(format!("{run}.safetensors"))).unwrap()
}

/// A run file that trains a head on the features of `model.onnx`.
fn run_file(dir: &Path, network: &str, more: &str) {
    let text = format!(
        "[data]\ntrain = \"data\"\ntest = \"data\"\n{more}\n\
         [train]\nsteps = 8\ncheckpoint_every = 3\ndevice = \"cpu\"\n\
         [validation]\nfraction = 0.25\nevery = 4\n\
         [sampler]\nclasses_per_batch = 4\nimages_per_class = 3\n\
         [network]\nkind = \"onnx\"\nfile = \"model.onnx\"\n{network}"
    );
    std::fs::write(dir.join("run.toml"), text).unwrap();
}

#[test]
fn an_exported_network_has_the_same_embeddings_when_it_is_imported() {
    let project = project();
    let dir = project.path();
    done(dir, "model import model.onnx --out imported");
    let config = RunConfig::load(&dir.join("imported/config.toml"), &[]).unwrap();
    assert_eq!((config.image.size.height, &config.image.std[..]), (16, &[0.2, 0.3, 0.4][..]));
    let (native, imported) = (embeddings(dir, "native"), embeddings(dir, "imported"));
    assert_eq!((imported.embeddings.rows(), imported.embeddings.cols()), (48, 10));
    for (a, b) in native.embeddings.as_slice().iter().zip(imported.embeddings.as_slice()) {
        assert!((a - b).abs() < 1e-5, "{a} of the network, {b} of its ONNX model");
    }
    assert_ne!(native.model, imported.model, "fingerprints are of the network as it is computed");
    // Every command takes the run.
    let found = done(dir, "search --gallery imported.safetensors --query data/3/2.bmp -k 1");
    assert!(found.contains("3/2.bmp"), "{found}");
    done(dir, "evaluate --embeddings imported.safetensors --json");
}

#[test]
fn a_head_is_trained_on_features_that_are_computed_once() {
    let project = project();
    let dir = project.path();
    run_file(dir, "dimensions = 4\nhidden = 6", "");
    done(dir, "train run.toml --out whole --json");
    let file = std::fs::read_dir(dir.join("whole/features")).unwrap().count();
    assert_eq!(file, 2, "one file of features for the images to train with, one for those held out");
    // The same bits with an interruption, after which the features are read again.
    struct Stop<'a>(&'a std::sync::atomic::AtomicBool);
    impl Observer for Stop<'_> {
        fn step(&mut self, step: &gallerist::train::log::Step) {
            self.0.store(step.step == 5, std::sync::atomic::Ordering::Relaxed);
        }
    }
    let config = RunConfig::load(&dir.join("run.toml"), &[]).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let mut trainer = Trainer::start(&config, &dir.join("cut")).unwrap();
    trainer.run(&mut Stop(&stop), &stop).unwrap();
    drop(trainer);
    done(dir, "train --resume cut --json");
    let rows = |run: &str| embeddings(dir, run).embeddings.as_slice().to_vec();
    let whole = rows("whole");
    assert_eq!(whole, rows("cut"));
    // With images instead of features, which is what a random change of images asks for, the network is the same one.
    let text = std::fs::read_to_string(dir.join("run.toml")).unwrap();
    std::fs::write(dir.join("run.toml"), text + "\n[augment]\nflip = 0.5\n").unwrap();
    done(dir, "train run.toml --out augmented --json");
    assert!(!dir.join("augmented/features").exists());
    assert_ne!(whole, rows("augmented"));
}

#[test]
fn runs_share_features_in_a_cache_folder_and_notice_changed_images() {
    let project = project();
    let dir = project.path();
    run_file(dir, "dimensions = 4\nhead_init = \"lda\"", "cache_folder = \"cache\"");
    std::fs::create_dir(dir.join("cache")).unwrap();
    let files = || {
        let entries = std::fs::read_dir(dir.join("cache")).unwrap().map(|entry| entry.unwrap().path());
        let mut found: Vec<_> =
            entries.filter(|path| path.extension().is_some_and(|e| e == "features")).collect();
        found.sort();
        found.into_iter().map(|path| std::fs::read(path).unwrap()).collect::<Vec<_>>()
    };
    done(dir, "train run.toml --out first --json");
    let before = files();
    assert_eq!(before.len(), 2);
    assert!(!dir.join("first/features").exists());
    done(dir, "train run.toml --set loss.margin=0.3 --out second --json");
    assert_eq!(files(), before);
    // Another image under the same name.
    let image = dir.join("data/0/0.bmp");
    std::fs::write(&image, bitmap(5, 9)).unwrap();
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(5);
    std::fs::File::options().write(true).open(&image).unwrap().set_modified(later).unwrap();
    done(dir, "train run.toml --out third --json");
    assert_ne!(files(), before);
    // A broken image is counted and has no features.
    std::fs::write(&image, b"BM, no more").unwrap();
    let out = gallerist(dir, "train run.toml --out fourth --json");
    let all = text(&out.stdout) + &text(&out.stderr);
    assert!(out.status.code() == Some(1) && all.contains("0/0.bmp"), "{all}");
}

#[test]
fn a_model_that_changed_or_is_gone_is_refused() {
    let project = project();
    let dir = project.path();
    run_file(dir, "dimensions = 4", "");
    done(dir, "train run.toml --out run --json");
    // The whole project is moved.
    let other = tempfile::tempdir().unwrap();
    let moved = other.path().join("moved");
    std::fs::rename(dir, &moved).unwrap();
    embeddings(&moved, "run");
    // One bit of the model's weights.
    let mut bytes = std::fs::read(moved.join("model.onnx")).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(moved.join("model.onnx"), bytes).unwrap();
    let message = refused(&moved, "embed --run run --images data --out x.safetensors");
    assert!(message.contains("another model than before") && message.contains("network.file"), "{message}");
    std::fs::remove_file(moved.join("model.onnx")).unwrap();
    let message = refused(&moved, "embed --run run --images data --out x.safetensors");
    assert!(message.contains("model.onnx") && message.contains("cannot read it"), "{message}");
}

#[test]
fn mistakes_are_named() {
    let project = project();
    let dir = project.path();
    run_file(dir, "", "");
    let text = |setting: &str| refused(dir, &format!("train run.toml --set {setting} --out x"));
    let message = text("network.output=embeddings");
    assert!(message.contains("no output `embeddings`") && message.contains("`embedding`"), "{message}");
    let message = text("image.size=32");
    assert!(message.contains("3 x 16 x 16") && message.contains("image.size"), "{message}");
    let message = refused(dir, "train run.toml --out x");
    assert!(message.contains("nothing to train") && message.contains("network.dimensions"), "{message}");
    let message = text("network.hidden=8");
    assert!(message.contains("network.dimensions"), "{message}");
    let message = text("network.file=none.onnx");
    assert!(message.contains("none.onnx"), "{message}");
    let message =
        refused(dir, "train native.toml --set network.file=model.onnx --set data.train=[\"data\"] --out x");
    assert!(message.contains("kind = \"onnx\""), "{message}");
    let message = refused(dir, "weights export --run x --out y.onnx");
    assert!(message.contains('x'), "{message}");
    done(dir, "model import model.onnx --out frozen");
    let message = refused(dir, "weights export --run frozen --out y.onnx");
    assert!(message.contains("no list of layers"), "{message}");
    let unknown = common::root().join("crates/gallerist-onnx/fixtures/unknown.onnx");
    let out = gallerist(dir, &format!("model inspect {}", unknown.display()));
    assert_eq!(out.status.code(), Some(1));
    assert!(common::text(&out.stderr).contains("Gargle (2 x), example.org.Hum (1 x)"));
    let message = refused(dir, &format!("model import {} --out x", unknown.display()));
    assert!(message.contains("not supported: Gargle (2 x)"), "{message}");
}
