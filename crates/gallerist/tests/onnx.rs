//! ONNX models as networks, through the real program: imported as they are, and with a trained head.

mod common;
#[path = "../../gallerist-onnx/tests/common/mod.rs"]
mod engines;

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
fn an_exported_transformer_with_rotary_positions_and_gated_mlps_has_the_same_embeddings() {
    let project = project();
    let dir = project.path();
    let text = "[image]\nsize = 16\n[network]\nkind = \"vit\"\nwidth = 16\ndepth = 3\nattention_heads = 2\npatch = 4\n\
                registers = 2\npositions = \"rotary\"\nkey_bias = false\ngated_mlp = true\ndimensions = 10\n[train]\ndevice = \"cpu\"";
    std::fs::write(dir.join("rotary.toml"), text).unwrap();
    let config = RunConfig::load(&dir.join("rotary.toml"), &[]).unwrap();
    gallerist::model::Model::untrained(&config).unwrap().save_run(&dir.join("rotary")).unwrap();
    done(dir, "weights export --run rotary --out rotary.onnx");
    done(dir, "model import rotary.onnx --out exported");
    let (native, exported) = (embeddings(dir, "rotary"), embeddings(dir, "exported"));
    for (a, b) in native.embeddings.as_slice().iter().zip(exported.embeddings.as_slice()) {
        assert!((a - b).abs() < 1e-5, "{a} of the network, {b} of its ONNX model");
    }
}

#[test]
fn init_takes_a_model_in_place_of_weights() {
    let project = project();
    let dir = project.path();
    done(dir, "init --images data --weights model.onnx --out made.toml");
    let config = RunConfig::load(&dir.join("made.toml"), &[]).unwrap();
    assert_eq!((config.network.name(), config.network.dimensions()), ("onnx", 16));
    assert_eq!((config.image.size.height, &config.image.std[..]), (16, &[0.2, 0.3, 0.4][..]));
    done(dir, "train made.toml --set train.steps=3 --out made --json");
    assert!(
        dir.join("made/features").exists(),
        "nothing changes the images: their features are computed once"
    );
    done(dir, "init --images data --weights model.onnx --preset features --out features.toml");
    done(dir, "train features.toml --out features --json");
    let told = refused(dir, "init --images data --weights model.onnx --minutes 5 --out other.toml");
    assert!(told.contains("--steps 300"), "{told}");
    let told = refused(dir, "init --images data --weights absent.onnx --out other.toml");
    assert!(told.contains("`absent.onnx`") && told.contains("No such file"), "{told}");
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
fn a_run_that_was_killed_after_its_features_were_kept_is_started_again_and_resumed() {
    let project = project();
    let dir = project.path();
    run_file(dir, "dimensions = 4", "");
    done(dir, "train run.toml --out whole --json");
    let whole = embeddings(dir, "whole").embeddings;
    let (from, cut) = (dir.join("whole"), dir.join("cut"));
    for line in ["train run.toml --out cut --json", "train --resume cut --json"] {
        std::fs::create_dir_all(cut.join("checkpoints")).unwrap();
        std::fs::create_dir(cut.join("features")).unwrap();
        std::fs::copy(from.join("config.toml"), cut.join("config.toml")).unwrap();
        for entry in std::fs::read_dir(from.join("features")).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), cut.join("features").join(entry.file_name())).unwrap();
        }
        done(dir, line);
        assert_eq!(embeddings(dir, "cut").embeddings.as_slice(), whole.as_slice(), "{line}");
        std::fs::remove_dir_all(&cut).unwrap();
    }
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
    assert_eq!(before.len(), 3, "of images to train with, held out, and to test");
    assert!(!dir.join("first/features").exists());
    done(dir, "train run.toml --set loss.margin=0.3 --out second --json");
    assert_eq!(files(), before);
    // The embeddings are those of a run without the folder.
    done(dir, "embed --run second --images data --out again.safetensors");
    assert_eq!(files(), before);
    let rows = |file: &str| EmbeddingSet::load(dir.join(file)).unwrap().embeddings.as_slice().to_vec();
    let again = rows("again.safetensors");
    std::fs::rename(dir.join("cache"), dir.join("elsewhere")).unwrap();
    done(dir, "embed --run second --images data --out alone.safetensors");
    for (a, b) in again.iter().zip(rows("alone.safetensors")) {
        assert!((a - b).abs() < 1e-5, "{a} from features, {b} from images");
    }
    std::fs::rename(dir.join("elsewhere"), dir.join("cache")).unwrap();
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
    for (name, problem) in [("folded", "not two together"), ("mixed", "if a second image is computed")] {
        let file = common::root().join(format!("crates/gallerist-onnx/fixtures/{name}.onnx"));
        let message = refused(dir, &format!("model import {} --out x", file.display()));
        assert!(message.contains(problem) && message.contains("dynamic_axes"), "{message}");
    }
}

#[test]
fn the_embeddings_of_both_engines_are_comparable() {
    if engines::engines().len() < 2 {
        return;
    }
    let project = project();
    let dir = project.path();
    std::fs::create_dir(dir.join("cache")).unwrap();
    let import = |engine: &str| {
        let line = format!(
            "model import model.onnx --engine {engine} --set data.cache_folder=\"cache\" --out {engine}"
        );
        done(dir, &line);
        let config = std::fs::read_to_string(dir.join(engine).join("config.toml")).unwrap();
        assert_eq!(config.contains("engine = \"onnxruntime\""), engine == "onnxruntime", "{config}");
        embeddings(dir, engine)
    };
    let (rten, onnxruntime) = (import("rten"), import("onnxruntime"));
    for (a, b) in rten.embeddings.as_slice().iter().zip(onnxruntime.embeddings.as_slice()) {
        assert!((a - b).abs() < 1e-5, "{a} of rten, {b} of onnxruntime");
    }
    assert_eq!(rten.model, onnxruntime.model, "the fingerprint does not depend on the engine");
    let files = std::fs::read_dir(dir.join("cache")).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|e| e == "features"));
    assert_eq!(files.count(), 2, "each engine has its own features");
    done(dir, "search --gallery onnxruntime.safetensors --query data/3/2.bmp -k 1");
}

#[test]
fn an_engine_that_is_not_available_says_what_to_do() {
    let project = project();
    for line in [
        "model import model.onnx --engine onnxruntime --out x",
        "model inspect model.onnx --engine onnxruntime",
    ] {
        let out = std::process::Command::new(env!("CARGO_BIN_EXE_gallerist"))
            .args(line.split_whitespace())
            .current_dir(project.path())
            .env("ORT_DYLIB_PATH", "none.so")
            .output()
            .unwrap();
        let message = text(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{message}");
        let (reason, hint) = match cfg!(feature = "onnxruntime") {
            true => ("none.so`: there is no such file", "set ORT_DYLIB_PATH"),
            false => ("built without the engine onnxruntime", "--features onnxruntime"),
        };
        assert!(message.contains(reason) && message.contains(hint), "{message}");
    }
}

/// A project with the images of [`project`], an image tower `image.onnx`, and in `clip` the text tower that belongs to it.
fn towers() -> tempfile::TempDir {
    let project = project();
    let dir = project.path();
    let fixtures = common::root().join("crates/gallerist-onnx/fixtures");
    std::fs::copy(fixtures.join("rows.onnx"), dir.join("image.onnx")).unwrap();
    std::fs::create_dir(dir.join("clip")).unwrap();
    for name in ["clip.onnx", "tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(fixtures.join("text").join(name), dir.join("clip").join(name)).unwrap();
    }
    project
}

const IMPORT: &str = "model import image.onnx --set image.size=16 --set text.file=clip/clip.onnx \
                      --set text.tokenizer=clip/tokenizer.json";

#[test]
fn a_gallery_is_searched_by_words() {
    let project = towers();
    let dir = project.path();
    done(dir, &format!("{IMPORT} --out run"));
    let gallery = embeddings(dir, "run");
    let config = RunConfig::load(&dir.join("run/config.toml"), &[]).unwrap();
    let tower = config.text.unwrap();
    assert_eq!((tower.length, tower.sha256.len()), (16, 64));
    // The long way: the row of onnxruntime, divided by its length.
    let expected = common::root().join("crates/gallerist-onnx/fixtures/text/expected.json");
    let expected: serde_json::Value = serde_json::from_slice(&std::fs::read(expected).unwrap()).unwrap();
    let entry = &expected["towers"]["clip"][1];
    let row: Vec<f64> = serde_json::from_value(entry["row"].clone()).unwrap();
    let length = row.iter().map(|value| value * value).sum::<f64>().sqrt();
    let distance = |of: usize| {
        let pairs = gallery.embeddings.row(of).iter().zip(&row);
        pairs.map(|(&a, b)| (f64::from(a) - b / length).powi(2)).sum::<f64>().sqrt()
    };
    let mut wanted: Vec<f64> = (0..gallery.embeddings.rows()).map(distance).collect();
    wanted.sort_by(f64::total_cmp);
    let words = entry["text"].as_str().unwrap();
    let search = |more: &[&str]| {
        let line = ["search", "--gallery", "run.safetensors", "--json", "-k", "5", "--text", words];
        let out = common::program(dir, &[&line[..], more].concat());
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
        (serde_json::from_slice::<serde_json::Value>(&out.stdout).unwrap(), text(&out.stderr))
    };
    let (found, _) = search(&[]);
    assert_eq!(found[0]["query"], words);
    for (hit, wanted) in found[0]["results"].as_array().unwrap().iter().zip(&wanted) {
        assert!((hit["distance"].as_f64().unwrap() - wanted).abs() < 1e-4, "{hit} where {wanted} is wanted");
    }
    // With images, a second text that is too long, and a page.
    let long = "leather ".repeat(40);
    let (several, warning) = search(&["--text", &long, "--query", "data/3/2.bmp", "--html", "found.html"]);
    let queries: Vec<&str> =
        several.as_array().unwrap().iter().map(|list| list["query"].as_str().unwrap()).collect();
    assert!(queries[0].ends_with("2.bmp") && queries[1..] == [words, &long], "{queries:?}");
    assert_eq!(several[1]["results"], found[0]["results"]);
    assert_eq!(several[0]["results"][0]["distance"].as_f64().unwrap(), 0.0);
    assert!(warning.contains("its first 16 tokens"), "{warning}");
    assert!(std::fs::read_to_string(dir.join("found.html")).unwrap().contains(words));
}

#[test]
fn mistakes_with_texts_are_named() {
    let project = towers();
    let dir = project.path();
    done(dir, "model import image.onnx --set image.size=16 --out plain");
    embeddings(dir, "plain");
    let message = refused(dir, "search --gallery plain.safetensors --text shoe");
    assert!(message.contains("no text tower") && message.contains("`tokenizer`"), "{message}");
    let message = refused(dir, "search --gallery plain.safetensors");
    assert!(message.contains("--query") || message.contains("--text"), "{message}");
    let with = |setting: &str| refused(dir, &format!("{IMPORT} --set {setting} --out no"));
    let message = with("text.tokenizer=none.json");
    assert!(message.contains("none.json") && message.contains("text.tokenizer"), "{message}");
    let message = with("network.dimensions=3");
    assert!(message.contains("trained head"), "{message}");
    let message = with("text.length=12");
    assert!(message.contains("cannot be computed"), "{message}");
    let message = refused(dir, "model import image.onnx --set text.file=clip/clip.onnx --out no");
    assert!(message.contains("text.tokenizer"), "{message}");
    done(dir, &format!("{IMPORT} --out run"));
    embeddings(dir, "run");
    let out = common::program(dir, &["search", "--gallery", "run.safetensors", "--text", " "]);
    assert!(out.status.code() == Some(2) && text(&out.stderr).contains("the text is empty"));
    let message = refused(dir, "search --gallery run.safetensors --text shoe --region 0,0,1,1");
    assert!(message.contains("region"), "{message}");
    // A gallery of another model.
    let message = refused(dir, "search --gallery plain.safetensors --text shoe --run native");
    assert!(message.contains("was embedded with the network"), "{message}");
    // The same embedding of images, whose fingerprint has no text; and a text tower that is added to a run.
    let wanted = done(dir, "search --gallery plain.safetensors --text shoe --run run");
    let file = dir.join("plain/config.toml");
    let added = "\n[text]\nfile = \"clip/clip.onnx\"\ntokenizer = \"clip/tokenizer.json\"\n";
    std::fs::write(&file, std::fs::read_to_string(&file).unwrap() + added).unwrap();
    assert_eq!(done(dir, "search --gallery plain.safetensors --text shoe"), wanted);
    let tokenizer = dir.join("clip/tokenizer.json");
    let changed = std::fs::read_to_string(&tokenizer).unwrap() + " ";
    std::fs::write(&tokenizer, changed).unwrap();
    let message = refused(dir, "search --gallery run.safetensors --text shoe");
    assert!(message.contains("another file than before"), "{message}");
}
