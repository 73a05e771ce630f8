//! `gallerist data`.

use std::path::Path;

use gallerist::data::ImageSet;
use gallerist::retrieval::columns::{Column, Columns};
use gallerist::retrieval::{EmbeddingSet, Matrix};

use crate::common::{bitmap, small_run, text};
use crate::program::{error, gallerist};

#[test]
fn data_info_counts_warns_of_leaks_and_broken_files_and_says_so_by_its_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    let put = |path: &str, bytes: &[u8]| {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    };
    for (i, path) in ["train/a/1.bmp", "train/a/2.bmp", "train/b/1.bmp", "test/c/1.bmp"].iter().enumerate() {
        put(path, &bitmap(i as u8));
    }
    let path = dir.path().to_str().unwrap();
    let shown = |args: &[&str]| {
        let out = gallerist(&[&["data", "info", path], args].concat());
        let all = format!("{}{}", text(&out.stdout), text(&out.stderr));
        (all.replace(path, "DIR").replace('\\', "/"), out.status.code())
    };
    let (clean, code) = shown(&[]);
    assert_eq!(code, Some(0), "{clean}");
    assert!(clean.contains("next: gallerist init --images DIR"), "{clean}");
    // The next command has the test set, and there is none where `init` cannot take an option.
    let (train, test) = (format!("{path}/train"), format!("{path}/test"));
    let of_train = |args: &[&str]| {
        let out = gallerist(&[&["data", "info", &train], args].concat());
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
        text(&out.stderr).replace(path, "DIR")
    };
    let tested = of_train(&["--test", &test]);
    assert!(tested.contains("next: gallerist init --images DIR/train --test DIR/test\n"), "{tested}");
    let other = tempfile::tempdir().unwrap();
    let corrections = other.path().join("fix.csv");
    std::fs::write(&corrections, "image,action,new_label\na/1.bmp,drop,\n").unwrap();
    let corrections = corrections.to_str().unwrap();
    for option in [["--relabel", corrections], ["--label-from", "leaf"], ["--layout", "folders"]] {
        let printed = of_train(&option);
        assert!(!printed.contains("next:"), "{option:?}: {printed}");
    }
    put("test/c/2.bmp", &bitmap(1));
    put("test/c/3.bmp", &bitmap(9)[..20]);
    let (found, code) = shown(&[]);
    assert_eq!(code, Some(1));
    insta::assert_snapshot!("data_info", found);
    let (json, code) = shown(&["--json", "--split", "test"]);
    let json: serde_json::Value = serde_json::from_str(json.split_once("\nwarning").unwrap().0).unwrap();
    assert_eq!((json["images"].as_u64(), code), (Some(3), Some(1)));
    assert_eq!(json["broken"].as_array().unwrap().len(), 1);
    let (train, code) = shown(&["--split", "train", "--layout", "folders"]);
    assert_eq!(code, Some(0), "{train}");
    assert!(!train.contains("next:"), "`init` takes all splits: {train}");

    let market = error(&["data", "info", path, "--layout", "market1501"]);
    assert!(market.contains("it is not laid out as Market-1501"), "{market}");
    assert!(error(&["data", "info", path, "--layout", "market"]).contains("there is no layout `market`"));
}

/// Two classes of six images on two lines; the last image of the second class is on the first line.
fn line(dir: &std::path::Path) -> EmbeddingSet {
    let mut rows = Vec::new();
    let (mut labels, mut paths) = (Vec::new(), Vec::new());
    let mut add = |class: &str, x: f32, y: f32| {
        rows.extend([x, y]);
        labels.push(class.to_owned());
        let path = format!("{class}/{}.bmp", paths.len());
        let file = dir.join(&path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, bitmap(paths.len() as u8 * 9)).unwrap();
        paths.push(path);
    };
    for i in 0..6u8 {
        add("heron", 10.0, f32::from(i * i) / 10.0);
    }
    for i in 0..6u8 {
        add("wren", f32::from(i * i) / 10.0, 10.0);
    }
    add("wren", 10.0, 0.6);
    let matrix = Matrix::new(13, 2, rows).unwrap();
    EmbeddingSet {
        labels: Some(labels),
        paths: Some(paths),
        source: Some(dir.display().to_string()),
        ..matrix.into()
    }
}

#[test]
fn data_issues_writes_a_page_a_table_and_json() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let photos = dir.path().join("photos");
    let set = line(&photos);
    set.save(path("all.safetensors")).unwrap();
    let (all, out) = (path("all.safetensors"), path("issues"));
    let run = gallerist(&["data", "issues", "--embeddings", &all, "--out", &out, "--json"]);
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    let json: serde_json::Value = serde_json::from_str(&text(&run.stdout)).unwrap();
    let wrong = json["wrong_labels"].as_array().unwrap();
    assert_eq!(wrong.len(), 1, "{json}");
    assert_eq!(
        (&wrong[0]["image"]["name"], &wrong[0]["suggested"]),
        (&"wren/12.bmp".into(), &"heron".into())
    );
    let written = |name: &str| std::fs::read_to_string(dir.path().join("issues").join(name)).unwrap();
    let from_file: serde_json::Value = serde_json::from_str(&written("issues.json")).unwrap();
    assert_eq!(from_file, json);
    let table = written("issues.csv");
    let mut lines = table.lines();
    assert_eq!(lines.next(), Some("kind,image,label,suggested_label,score,detail,action,new_label"));
    let line = lines.next().unwrap();
    assert!(line.starts_with("wrong_label,wren/12.bmp,wren,heron,") && line.ends_with(",,"), "{table}");
    let page = written("issues.html");
    assert!(page.contains("Suggested: heron") && page.contains("data:image/"), "{page}");

    // The same image in a second file is a near-duplicate across files.
    set.select(&[0]).save(path("test.safetensors")).unwrap();
    let test = path("test.safetensors");
    let run = gallerist(&["data", "issues", "--embeddings", &all, &test, "--out", &out]);
    let shown =
        format!("{}{}", text(&run.stdout), text(&run.stderr)).replace(dir.path().to_str().unwrap(), "DIR");
    insta::assert_snapshot!("data_issues", shown.replace('\\', "/"));
}

#[test]
fn near_duplicates_across_splits_are_a_group_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let set = line(&dir.path().join("photos"));
    // Row 13 is row 0 again in another split, row 14 is row 5 again in the same split; row 15, row 2 again, has none.
    let rows: Vec<usize> = (0..13).chain([0, 5, 2]).collect();
    let splits: Vec<&str> = [["train"].repeat(13), vec!["test", "train", ""]].concat();
    let fold: Vec<String> = (0..16).map(|row| (row % 2).to_string()).collect();
    let columns = vec![Column::infer("split", &splits).unwrap(), Column::infer("fold", &fold).unwrap()];
    let set = EmbeddingSet { columns: Columns::new(columns).unwrap(), ..set.select(&rows) };
    set.save(path("all.safetensors")).unwrap();
    let (all, out) = (path("all.safetensors"), path("issues"));
    let found = |more: &[&str]| -> serde_json::Value {
        let line = [&["data", "issues", "--embeddings", &all, "--out", &out, "--json"], more].concat();
        let run = gallerist(&line);
        assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
        serde_json::from_str(&text(&run.stdout)).unwrap()
    };
    let group_of = |json: &serde_json::Value, row: u64| {
        let has = |group: &&serde_json::Value| {
            group["images"].as_array().unwrap().iter().any(|image| image["row"] == row)
        };
        json["duplicates"].as_array().unwrap().iter().find(has).cloned().unwrap_or_default()
    };
    let json = found(&[]);
    let (leak, inside, unknown) = (group_of(&json, 13), group_of(&json, 14), group_of(&json, 15));
    assert_eq!(
        (&leak["leak"], &leak["across_splits"], &leak["across_files"]),
        (&true.into(), &true.into(), &false.into())
    );
    assert_eq!((&inside["leak"], &inside["across_splits"]), (&false.into(), &false.into()));
    assert_eq!((&unknown["leak"], &unknown["across_splits"]), (&false.into(), &true.into()));
    assert_eq!(leak["images"][1]["split"], "test");
    let written = |name: &str| std::fs::read_to_string(dir.path().join("issues").join(name)).unwrap();
    let table = written("issues.csv");
    let kinds = |kind: &str| table.lines().filter(|line| line.starts_with(&format!("{kind},"))).count();
    assert_eq!((kinds("duplicate_across"), kinds("duplicate")), (4, 2), "{table}");
    assert!(table.contains(", across splits, split test\""), "{table}");
    let page = written("issues.html");
    let places =
        ["<h2>Near-duplicates across splits and files", ": 1 in train, 1 in test", "<h2>Likely wrong labels"];
    let places = places.map(|part| page.find(part).unwrap_or_else(|| panic!("{part}")));
    assert!(places.is_sorted(), "{places:?}");

    // The same table with tabs, which is read as a table of corrections.
    let tabs = path("issues.tsv");
    found(&["--table", &tabs]);
    let lines = std::fs::read_to_string(&tabs).unwrap();
    assert!(lines.contains("group 1, across splits, split test\t"), "{lines}");
    assert_eq!(lines.replace('\t', ","), table.replace('"', ""));
    let filled = lines.replace("split test\t\t", "split test\tdrop\t");
    std::fs::write(&tabs, filled).unwrap();
    let photos = path("photos");
    let info = gallerist(&["data", "info", &photos, "--relabel", &tabs]);
    assert!(
        text(&info.stderr).contains("1 image left out") || text(&info.stderr).contains("left out"),
        "{}",
        text(&info.stderr)
    );
    let refused = error(&["data", "issues", "--embeddings", &all, "--out", &out, "--table", "issues.txt"]);
    assert!(refused.contains("cannot tell the format of `issues.txt`: wanted `.csv` or `.tsv`"), "{refused}");

    // Another column; and the rows of one split, which keep their numbers.
    let json = found(&["--split-column", "fold"]);
    assert_eq!(group_of(&json, 13)["across_splits"], true);
    assert_eq!(group_of(&json, 15)["across_splits"], true);
    let json = found(&["--where", "split = 'train'"]);
    assert_eq!((&json["images"], &json["narrowed"]["of"]), (&14.into(), &16.into()));
    assert_eq!(group_of(&json, 14)["images"][0]["row"], 5);
    assert_eq!(group_of(&json, 13), serde_json::Value::Null);
    assert!(written("issues.html").contains("(of 16 images)"));
    let refused = error(&["data", "issues", "--embeddings", &all, "--out", &out, "--split-column", "part"]);
    assert!(refused.contains("there is no column `part`") && refused.contains("split, fold"), "{refused}");
    let refused = error(&["data", "issues", "--embeddings", &all, "--out", &out, "--where", "fold = 3"]);
    assert!(refused.contains("no row of the embeddings meets the condition `fold = 3`"), "{refused}");
}

#[test]
fn data_issues_says_what_it_needs() {
    let dir = tempfile::tempdir().unwrap();
    let photos = dir.path().join("photos");
    let mut set = line(&photos);
    let out = dir.path().join("out").display().to_string();
    let photos = photos.to_str().unwrap();
    let refused = error(&["data", "issues", "--embeddings", photos, "--out", &out]);
    assert!(refused.contains("as embeddings: it is a folder"), "{refused}");
    assert!(refused.contains("gallerist embed --run RUN --images"), "{refused}");
    let file = dir.path().join("rows.safetensors").display().to_string();
    let sets = EmbeddingSet { labels: Some(vec!["a|b".to_owned(); 13]), ..set.clone() };
    sets.save(&file).unwrap();
    let refused = error(&["data", "issues", "--embeddings", &file, "--out", &out]);
    assert!(refused.contains("13 images have several labels"), "{refused}");
    assert!(!Path::new(&out).exists(), "a folder is made only for results");
    set.labels = None;
    set.save(&file).unwrap();
    let run = gallerist(&["data", "issues", "--embeddings", &file, "--out", &out]);
    assert_eq!(run.status.code(), Some(0));
    assert!(text(&run.stderr).contains("the embeddings have no labels"), "{}", text(&run.stderr));
    let refused = error(&["data", "issues", "--embeddings", &file, "--out", &out, "--probability", "2"]);
    assert!(refused.contains("probability must be from 0 to 1, 2 given"), "{refused}");
}

#[test]
fn the_filled_table_of_issues_corrects_a_set() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let photos = dir.path().join("photos");
    line(&photos).save(path("all.safetensors")).unwrap();
    let (all, out) = (path("all.safetensors"), path("issues"));
    let run = gallerist(&["data", "issues", "--embeddings", &all, "--out", &out]);
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    let csv = path("issues/issues.csv");
    let table = std::fs::read_to_string(&csv).unwrap();
    let filled: String = table
        .lines()
        .map(|line| match line.strip_prefix("wrong_label,").and_then(|line| line.strip_suffix(",,")) {
            Some(line) => format!("wrong_label,{line},relabel,heron\n"),
            None => format!("{line}\n"),
        })
        .collect();
    std::fs::write(&csv, &filled).unwrap();
    let photos = photos.to_str().unwrap();
    let run = gallerist(&["data", "info", photos, "--relabel", &csv]);
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    assert!(text(&run.stderr).contains("corrections: 1 image relabelled, 0 images left out"));

    // A filled table is not replaced by another call.
    let again = ["data", "issues", "--embeddings", &all, "--out", &out];
    let refused = error(&again);
    assert!(
        refused.contains("issues.csv` exists, and its columns `action` and `new_label` are filled"),
        "{refused}"
    );
    assert!(refused.contains("hint: give another --table FILE, or --force to overwrite it"), "{refused}");
    assert_eq!(std::fs::read_to_string(&csv).unwrap(), filled);
    std::fs::write(&csv, "path,label\n1.png,a\n").unwrap();
    let refused = error(&again);
    assert!(refused.contains("exists, and it cannot be read as a table of issues"), "{refused}");
    let run = gallerist(&[&again[..], &["--force"]].concat());
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    assert_eq!(std::fs::read_to_string(&csv).unwrap(), table);

    std::fs::write(&csv, filled.replace("wren/12.bmp", "wren/99.bmp")).unwrap();
    let refused = error(&["data", "info", photos, "--relabel", &csv]);
    assert!(refused.contains("has no image `wren/99.bmp`") && refused.contains("line 2"), "{refused}");
    std::fs::write(&csv, filled.replace("new_label", "newlabel")).unwrap();
    let refused = error(&["data", "info", photos, "--relabel", &csv]);
    assert!(refused.contains("no column is called `newlabel`"), "{refused}");
}

#[test]
fn a_run_keeps_its_corrections() {
    let dir = tempfile::tempdir().unwrap();
    let csv = dir.path().join("issues.csv");
    let images = crate::common::root().join("data/omniglot/omniglot_images_background.zip");
    let set = ImageSet::open(images).unwrap();
    let [first, second] =
        [0, 1].map(|class| format!("image,label,action\n,{},drop\n", set.class_names()[class]));
    std::fs::write(&csv, &first).unwrap();
    let setting = format!("data.relabel=[{:?}]", csv.to_str().unwrap());
    let run = small_run(dir.path(), &[&setting]);
    let config = std::fs::read_to_string(run.join("config.toml")).unwrap();
    assert!(config.contains("relabel_sha256 = \""), "{config}");
    // A finished run with more steps to take.
    std::fs::write(run.join("config.toml"), config.replace("steps = 12", "steps = 14")).unwrap();
    std::fs::write(&csv, second).unwrap();
    let refused = error(&["train", "--resume", run.to_str().unwrap()]);
    assert!(
        refused.contains("the corrections of `data.relabel` have changed since the run started"),
        "{refused}"
    );
    std::fs::write(&csv, first).unwrap();
    let resumed = gallerist(&["train", "--resume", run.to_str().unwrap()]);
    assert_eq!(resumed.status.code(), Some(0), "{}", text(&resumed.stderr));
}
