//! Folders as users have them: splits next to other folders, classes of several parts, and files that are
//! replaced while a run reads them.

mod common;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{gallerist, text};
use serde_json::Value;

/// A BMP of 12 x 12 whose colours depend on `tint`.
fn bitmap(tint: u8) -> Vec<u8> {
    let mut file = b"BM".to_vec();
    file.extend([[0; 4], [0; 4], [54, 0, 0, 0], [40, 0, 0, 0], [12, 0, 0, 0], [12, 0, 0, 0]].concat());
    file.extend([1, 0, 24, 0]);
    file.extend([0; 24]);
    file.extend((0..12 * 12).flat_map(|i| [tint, (i as u8).wrapping_mul(tint), i as u8]));
    file
}

fn put(dir: &Path, path: &str, tint: u8) {
    let path = dir.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bitmap(tint)).unwrap();
}

/// Splits of nested classes next to a folder of icons and a list, as the grocery store's set has them: of the two
/// test classes one is a training class.
fn grocery(dir: &Path) {
    let mut tint = 0;
    for class in ["Fruit/Apple", "Fruit/Pear", "Juice/Apple", "Milk/Oat"] {
        for i in 0..6 {
            tint += 1;
            put(dir, &format!("set/train/{class}/{i}.bmp"), tint);
        }
        put(dir, &format!("set/icons/{class}/icon.bmp"), 100 + tint);
    }
    for class in ["Fruit/Pear", "Milk/Soy"] {
        (0..3).for_each(|i| put(dir, &format!("set/test/{class}/{i}.bmp"), 50 + tint + i));
        tint += 3;
    }
    put(dir, "set/test/Milk/Single/0.bmp", 99);
    std::fs::write(dir.join("set/classes.csv"), "id,name\n").unwrap();
}

const CONFIG: &str = r#"
[train]
steps = 6
loader_threads = 1
prefetch = 1
[data]
train = ["set"]
train_split = "train"
test = ["set"]
test_split = "test"
cache_mib = 0
[validation]
fraction = 0.0
[image]
size = 8
channels = 3
[sampler]
kind = "classes_images"
classes_per_batch = 3
images_per_class = 3
[network]
kind = "conv_blocks"
channels = [4]
dimensions = 4
[loss]
name = "rll"
margin = 0.4
t_neg = 10.0
"#;

#[test]
fn splits_next_to_other_folders_are_found_and_classes_of_both_are_said() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    grocery(dir);
    let out = gallerist(dir, "data info set");
    let (stdout, stderr) = (text(&out.stdout), text(&out.stderr));
    assert_eq!(out.status.code(), Some(0), "{stderr}");
    assert!(stdout.contains("1 of 3 classes of `test` have training images, too"), "{stdout}");
    let note = "the folders `test`, `train` are taken as splits, and what lies next to them is left out: `icons` (4 \
                images)";
    assert!(stderr.contains(note), "{stderr}");

    let json = |line: &str| -> Value { serde_json::from_slice(&gallerist(dir, line).stdout).unwrap() };
    let found = json("data info set --json");
    assert_eq!(found["left_out"], serde_json::json!([{ "folder": "icons", "images": 4 }]));
    assert_eq!(found["splits"][0]["trained_classes"], 1);
    let train = json("data info set --json --split train");
    assert_eq!((&train["images"], &train["classes"]), (&24.into(), &4.into()));
    let leaves = json("data info set --json --split train --label-from leaf");
    assert_eq!(leaves["classes"], 3);
    let joined = leaves["notes"][1].as_str().unwrap();
    assert!(joined.ends_with("one class joins several: `Apple` (`Fruit/Apple`, `Juice/Apple`)"), "{joined}");
}

#[test]
fn a_run_says_which_test_classes_were_trained_on_and_which_have_no_match() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    grocery(dir);
    std::fs::write(dir.join("run.toml"), CONFIG).unwrap();
    let out = gallerist(dir, "train run.toml --out run");
    let stderr = text(&out.stderr);
    assert_eq!(out.status.code(), Some(0), "{stderr}");
    assert!(stderr.contains("1 of 3 test classes was trained on: "), "{stderr}");
    assert!(stderr.contains("1 query has no relevant item in the gallery: `Milk/Single`"), "{stderr}");
    let metrics: Value =
        serde_json::from_slice(&std::fs::read(dir.join("run/metrics.json")).unwrap()).unwrap();
    assert_eq!(metrics["class_overlap"], serde_json::json!({ "shared": 1, "test": 3 }));
    let report = std::fs::read_to_string(dir.join("run/report.html")).unwrap();
    assert!(report.contains("Test classes that were trained on: 1 of 3 test classes was trained on."));
    // By the last part of their labels: 3 training classes.
    let out = gallerist(dir, "train run.toml --out leaves --set data.label=leaf");
    let stderr = text(&out.stderr);
    assert!(stderr.contains("training on 24 images of 3 classes"), "{stderr}");
    assert!(stderr.contains("one class joins several: `Apple`"), "{stderr}");
}

#[cfg(unix)]
#[test]
fn a_named_pipe_that_takes_an_image_s_place_during_training_is_one_broken_image() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    grocery(dir);
    std::fs::write(dir.join("run.toml"), CONFIG).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_gallerist"))
        .args(["train", "run.toml", "--out", "run", "--set", "train.steps=400", "--set", "data.test=[]"])
        .current_dir(dir)
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    let mut in_time = |what: &str| {
        std::thread::sleep(Duration::from_millis(2));
        if start.elapsed() > Duration::from_secs(300) {
            child.kill().unwrap();
            panic!("{what} does not come");
        }
    };
    let log = dir.join("run/log.jsonl");
    while !std::fs::read_to_string(&log).is_ok_and(|log| log.contains("\"step\"")) {
        in_time("the first step");
    }
    let image = dir.join("set/train/Fruit/Apple/3.bmp");
    // Renamed over the image: there is no moment without a file.
    let pipe = dir.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    std::fs::rename(&pipe, &image).unwrap();
    let metrics = dir.join("run/report.html");
    while !metrics.exists() {
        in_time("the end of the run");
    }
    let out = child.wait_with_output().unwrap();
    let stderr = text(&out.stderr);
    // Done, with something to warn of.
    assert_eq!(out.status.code(), Some(1), "{stderr}");
    let line = "set/train/Fruit/Apple/3.bmp`: it is a named pipe, not a file";
    assert_eq!(stderr.matches(line).count(), 1, "{stderr}");
}

#[test]
fn a_single_class_folder_is_one_class_which_cannot_be_trained_on() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    (0..12).for_each(|i| put(dir, &format!("shop/shoes/{i}.bmp"), i));
    let refused = |line: &str| {
        let out = gallerist(dir, line);
        assert_eq!(out.status.code(), Some(2), "{line}: {}", text(&out.stderr));
        text(&out.stderr)
    };
    let out = gallerist(dir, "data info shop --json");
    let info: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((&info["classes"], &info["images"]), (&1.into(), &12.into()));
    assert!(text(&out.stderr).contains("12 images of the class `shoes`"), "{}", text(&out.stderr));
    let out = gallerist(dir, "data info shop/shoes --json");
    let info: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((&info["classes"], text(&out.stderr)), (&0.into(), String::new()));
    for line in ["init --images shop --out shop.toml", "train --images shop --minutes 0.01 --out run"] {
        let error = refused(line);
        assert!(
            error.contains("training needs two or more classes") && error.contains("shop` has 1"),
            "{error}"
        );
    }
    std::fs::write(
        dir.join("one.toml"),
        CONFIG
            .replace("\"set\"", "\"shop\"")
            .replace("train_split = \"train\"\n", "")
            .replace("test_split = \"test\"\n", ""),
    )
    .unwrap();
    let error = refused("train one.toml --out run");
    assert!(error.contains("there is one class, `shoes`, with 12 images"), "{error}");
}
