//! `gallerist embed --shards` and `gallerist merge`: the shards of a manifest are the rows of one `embed`.

mod common;

use std::fs;
use std::path::Path;

use common::{bitmap, done, gallerist, refused, root, text};
use gallerist::retrieval::EmbeddingSet;
use gallerist::retrieval::shards::JoinedShards;
use serde_json::Value;

/// A run, 23 images, one of which is broken, and their manifest with two splits and a price.
fn start(dir: &Path) {
    let copy = |from: &Path, to: &Path| assert!(fs::copy(from, to).unwrap() > 0);
    let run = root().join("fixtures/compat/0.1.0/run");
    fs::create_dir_all(dir.join("run/checkpoints")).unwrap();
    copy(&run.join("config.toml"), &dir.join("run/config.toml"));
    copy(&run.join("checkpoints/last.safetensors"), &dir.join("run/checkpoints/last.safetensors"));
    fs::create_dir_all(dir.join("photos")).unwrap();
    let mut manifest = "path,label,split,price\n".to_owned();
    for image in 0..23u8 {
        let bytes = if image == 8 { b"no image".to_vec() } else { bitmap(11 * image) };
        fs::write(dir.join(format!("photos/{image}.bmp")), bytes).unwrap();
        let (label, split) =
            (["wren", "grey heron"][usize::from(image % 2)], ["a", "b"][usize::from(image / 12)]);
        manifest.push_str(&format!("photos/{image}.bmp,{label},{split},{image}.50\n"));
    }
    fs::write(dir.join("list.csv"), manifest).unwrap();
}

const EMBED: &str = "embed --run run --checkpoint last";

fn embed_shards(dir: &Path, count: usize, options: &str) {
    for shard in 0..count {
        done(dir, &format!("{EMBED} --shards list.csv --shard {shard}/{count} {options}"));
    }
}

fn tree(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())
        })
        .collect();
    found.sort();
    found
}

#[test]
fn the_joined_shards_are_the_rows_of_one_embed() {
    let folder = tempfile::tempdir().unwrap();
    let dir = &folder.path().canonicalize().unwrap();
    start(dir);
    let out = gallerist(dir, &format!("{EMBED} --images list.csv --out whole.safetensors"));
    assert_eq!(out.status.code(), Some(1), "one image is broken: {}", text(&out.stderr));
    let whole = EmbeddingSet::load(dir.join("whole.safetensors")).unwrap();
    assert_eq!(whole.embeddings.rows(), 22);
    for count in [1, 4, 40] {
        let out = format!("shards-{count}");
        embed_shards(dir, count, &format!("--out {out} --part 2"));
        let merged = gallerist(dir, &format!("merge {out} --out {out}.json"));
        assert_eq!(merged.status.code(), Some(1), "{}", text(&merged.stderr));
        assert!(text(&merged.stderr).contains("photos/8.bmp"), "{}", text(&merged.stderr));
        let all = EmbeddingSet::load(dir.join(format!("{out}.json"))).unwrap();
        let bits =
            |set: &EmbeddingSet| set.embeddings.as_slice().iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&all), bits(&whole), "{count} shards");
        assert_eq!(all, whole, "{count} shards");
        // Parts are removed.
        assert!(fs::read_dir(dir.join(&out)).unwrap().all(|entry| entry.unwrap().path().is_file()));
    }
    // What reads embeddings reads the list.
    let info: Value = serde_json::from_str(&done(dir, "info shards-4.json --json")).unwrap();
    assert_eq!((&info["kind"], &info["facts"]["embeddings"]), (&"shards".into(), &22.into()));
    let found = done(
        dir,
        "search --run run --checkpoint last --gallery shards-4.json --query photos/3.bmp -k 1 --json",
    );
    assert!(found.contains("photos/3.bmp"), "{found}");
    let measured = |file: &str| done(dir, &format!("evaluate --embeddings {file} --metrics recall@1 --json"));
    let metrics = |text: &str| serde_json::from_str::<Value>(text).unwrap()["metrics"].clone();
    assert_eq!(metrics(&measured("shards-4.json")), metrics(&measured("whole.safetensors")));
    done(dir, "convert shards-4.json --out copy.safetensors");
    assert_eq!(EmbeddingSet::load(dir.join("copy.safetensors")).unwrap(), whole);
    done(dir, "index build shards-4.json --out all.index --kind exact");
    // A list that is moved finds its shards only at their place.
    fs::create_dir(dir.join("moved")).unwrap();
    fs::rename(dir.join("shards-4.json"), dir.join("moved/all.json")).unwrap();
    assert!(refused(dir, "convert moved/all.json --out x.npy").contains("shard-00000-of-00004.safetensors"));
    fs::rename(dir.join("shards-4"), dir.join("moved/shards-4")).unwrap();
    done(dir, "convert moved/all.json --out x.npy");
}

#[test]
fn a_shard_is_embedded_once_and_continued_after_its_last_part() {
    let folder = tempfile::tempdir().unwrap();
    let dir = &folder.path().canonicalize().unwrap();
    start(dir);
    let line = format!("{EMBED} --shards list.csv --shard 1/2 --out shards --part 2");
    done(dir, &line);
    let whole = tree(&dir.join("shards"));
    let summary: Value = serde_json::from_str(&done(dir, &format!("{line} --json"))).unwrap();
    assert_eq!((&summary["was_whole"], &summary["broken"]), (&true.into(), &0.into()));
    assert_eq!(tree(&dir.join("shards")), whole);
    // A damaged file, or one that is cut short, is made again.
    let name = "shards/shard-00001-of-00002.safetensors";
    for damage in
        [|bytes: &mut Vec<u8>| *bytes.last_mut().unwrap() ^= 1, |bytes: &mut Vec<u8>| bytes.truncate(99)]
    {
        let mut bytes = fs::read(dir.join(name)).unwrap();
        damage(&mut bytes);
        fs::write(dir.join(name), bytes).unwrap();
        let out = gallerist(dir, &line);
        assert!(text(&out.stderr).contains("is embedded again"), "{}", text(&out.stderr));
        assert_eq!(tree(&dir.join("shards")), whole);
    }
}

#[test]
fn shards_of_another_network_or_with_other_options_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let dir = &folder.path().canonicalize().unwrap();
    start(dir);
    embed_shards(dir, 2, "--out shards");
    let line = format!("{EMBED} --shards list.csv --shard 1/2 --out shards");
    let message = refused(dir, &format!("{line} --precision bf16"));
    assert!(message.contains("has shard 1/2 already, with precision f32, not bf16"), "{message}");
    let message = refused(dir, &format!("{line} --normalize no"));
    assert!(message.contains("with normalize default, not no"), "{message}");
    let message = refused(dir, &format!("{line} --products f32-direct"));
    assert!(message.contains("with products f32, not f32-direct"), "{message}");
    done(dir, &format!("{line} --products f32"));
    fs::write(dir.join("other.csv"), "path\nphotos/1.bmp\n").unwrap();
    let message = refused(dir, &line.replace("list.csv", "other.csv"));
    assert!(message.contains("a manifest of") && message.contains("remove the files"), "{message}");
    // Another network.
    let set =
        "train configs/smoke.toml --set train.steps=2 --set validation.every=2 --set data.max_test_classes=2";
    done(&root(), &format!("{set} --set image.size=28 --out {}", dir.join("run2").display()));
    let message = refused(dir, &line.replace("--run run ", "--run run2 "));
    assert!(message.contains("with the network"), "{message}");
    let message = refused(dir, &line.replace("list.csv", "photos"));
    assert!(message.contains("wanted a manifest"), "{message}");
    assert!(refused(dir, &format!("{line} --layout folders")).contains("leave out --layout"));
    assert!(refused(dir, &line.replace("1/2", "2/2")).contains("numbered from 0 to 1"));
}

#[test]
fn merge_names_every_shard_that_cannot_be_used_and_its_command() {
    let folder = tempfile::tempdir().unwrap();
    let dir = &folder.path().canonicalize().unwrap();
    start(dir);
    embed_shards(dir, 6, "--out shards --precision bf16");
    fs::remove_file(dir.join("shards/shard-00001-of-00006.json")).unwrap();
    fs::remove_file(dir.join("shards/shard-00002-of-00006.safetensors")).unwrap();
    let cut = dir.join("shards/shard-00003-of-00006.safetensors");
    fs::write(&cut, &fs::read(&cut).unwrap()[..400]).unwrap();
    let record = dir.join("shards/shard-00005-of-00006.json");
    let other = fs::read_to_string(&record).unwrap().replace("bf16", "int8");
    fs::write(&record, other).unwrap();
    let message = refused(dir, "merge shards --out all.json");
    for part in [
        "4 of 6 shards in `shards` cannot be used",
        "shard 1/6: it is missing",
        "shard 2/6: there is no file `shard-00002-of-00006.safetensors`",
        "shard 3/6: `shard-00003-of-00006.safetensors` has 400 bytes",
        "shard 5/6: it has precision int8, not bf16 as the others",
        "1-3,5",
        "--shard 3/6 --out shards --checkpoint last --precision bf16",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert!(!dir.join("all.json").exists());
    // The commands make it whole, once the shard with other options is removed.
    fs::remove_file(&record).unwrap();
    embed_shards(dir, 6, "--out shards --precision bf16");
    done_with_broken(dir, "merge shards --out all.json");
    // A shard that is replaced by another one is found.
    let list = JoinedShards::read(dir.join("all.json")).unwrap();
    assert_eq!(list.shards.iter().map(|shard| shard.rows).sum::<u64>(), 22);
    let [first, second] = [0, 1].map(|i| dir.join(&list.shards[i].file));
    let bytes = fs::read(&first).unwrap();
    fs::write(&second, bytes).unwrap();
    assert!(refused(dir, "convert all.json --out x.npy").contains("shard-00001-of-00006"));
    // Of two numbers of shards.
    embed_shards(dir, 2, "--out shards --precision bf16");
    assert!(refused(dir, "merge shards --out all.json").contains("several numbers of shards"));
    assert!(refused(dir, "merge photos --out all.json").contains("no record such as"));
}

#[test]
fn the_command_of_a_missing_shard_has_the_checkpoint_heads_and_products_of_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let dir = &folder.path().canonicalize().unwrap();
    start(dir);
    let options = "--head embedding --combine normalize-then-concat --products f32-direct";
    embed_shards(dir, 2, &format!("--out shards {options}"));
    let whole = tree(&dir.join("shards"));
    for name in ["shard-00001-of-00002.json", "shard-00001-of-00002.safetensors"] {
        fs::remove_file(dir.join("shards").join(name)).unwrap();
    }
    let message = refused(dir, "merge shards --out all.json");
    let command = message.lines().find_map(|line| line.trim().strip_prefix("gallerist "));
    done(dir, command.unwrap_or_else(|| panic!("{message}")));
    assert_eq!(tree(&dir.join("shards")), whole);
    done_with_broken(dir, "merge shards --out all.json");
}

#[test]
fn shards_of_a_record_without_checkpoint_and_products_are_continued() {
    let folder = tempfile::tempdir().unwrap();
    let dir = &folder.path().canonicalize().unwrap();
    start(dir);
    embed_shards(dir, 2, "--out shards --products f32");
    let record = dir.join("shards/shard-00000-of-00002.json");
    let mut of_before: Value = serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
    let options = of_before["origin"]["options"].as_object_mut().unwrap();
    for name in ["checkpoint", "products"] {
        assert!(options.remove(name).is_some(), "{name}");
    }
    fs::write(&record, of_before.to_string()).unwrap();
    let line = format!("{EMBED} --shards list.csv --shard 0/2 --out shards --products f32 --json");
    let summary: Value = serde_json::from_str(&done(dir, &line)).unwrap();
    assert_eq!(summary["was_whole"], true);
    done_with_broken(dir, "merge shards --out all.json");
}

#[test]
fn shards_of_two_manifests_of_equal_length_are_not_merged() {
    let folder = tempfile::tempdir().unwrap();
    let dir = &folder.path().canonicalize().unwrap();
    start(dir);
    let embed = |shard: u32| {
        let line = format!("{EMBED} --shards list.csv --shard {shard}/2 --out shards");
        assert!(gallerist(dir, &line).status.success());
    };
    embed(0);
    let manifest = fs::read_to_string(dir.join("list.csv")).unwrap();
    let mut lines: Vec<&str> = manifest.lines().collect();
    lines[1..].reverse();
    fs::write(dir.join("list.csv"), lines.join("\n") + "\n").unwrap();
    embed(1);
    let message = refused(dir, "merge shards --out all.json");
    assert!(message.contains("shard 0/2: it is of other lines than"), "{message}");
    // Without the manifest, the images show it.
    fs::remove_file(dir.join("list.csv")).unwrap();
    let message = refused(dir, "merge shards --out all.json");
    assert!(message.contains("images are in it more than once: `photos/"), "{message}");
    assert!(message.contains("is in the shards 0 and 1"), "{message}");
    assert!(!dir.join("all.json").exists());
}

#[test]
fn merge_replaces_lists_of_shards_only() {
    let folder = tempfile::tempdir().unwrap();
    let dir = &folder.path().canonicalize().unwrap();
    start(dir);
    embed_shards(dir, 1, "--out shards");
    done_with_broken(dir, "merge shards --out all.json");
    done_with_broken(dir, "merge shards --out all.json");
    fs::write(dir.join("metrics.json"), "{}").unwrap();
    assert!(refused(dir, "merge shards --out metrics.json").contains("is no list of shards"));
    let record = "shards/shard-00000-of-00001.json";
    assert!(refused(dir, &format!("merge shards --out {record}")).contains("the record of a shard"));
    assert_eq!(fs::read_to_string(dir.join("metrics.json")).unwrap(), "{}");
    assert!(fs::read_to_string(dir.join(record)).unwrap().contains("gallerist-shard\""));
    let embed = EMBED.replace("embed ", "");
    let message = refused(dir, &format!("embed {embed} --shards list.csv --shard 0/1 --out oss://bucket/x"));
    assert!(message.contains("there is no object store `oss://`"), "{message}");
    assert!(!dir.join("oss:").exists());
}

#[test]
fn a_missing_image_is_left_out_of_its_shard_unless_all_are_missing() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    start(dir);
    fs::remove_file(dir.join("photos/3.bmp")).unwrap();
    done(dir, &format!("{EMBED} --shards list.csv --shard 0/1 --out shards"));
    let merged = gallerist(dir, "merge shards --out all.json");
    assert_eq!(merged.status.code(), Some(1), "{}", text(&merged.stderr));
    assert!(text(&merged.stderr).contains("photos/3.bmp"), "{}", text(&merged.stderr));
    assert_eq!(JoinedShards::read(dir.join("all.json")).unwrap().rows, 21);
    fs::create_dir(dir.join("elsewhere")).unwrap();
    fs::rename(dir.join("list.csv"), dir.join("elsewhere/list.csv")).unwrap();
    let message = refused(dir, &format!("{EMBED} --shards elsewhere/list.csv --shard 0/1 --out other"));
    assert!(message.contains("there is no file `photos/0.bmp`; 22 further files are missing"), "{message}");
}

fn done_with_broken(dir: &Path, line: &str) {
    let out = gallerist(dir, line);
    assert_eq!(out.status.code(), Some(1), "{line}: {}", text(&out.stderr));
}

#[cfg(feature = "arrow")]
#[test]
fn shards_are_parquet_files_if_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let dir = &folder.path().canonicalize().unwrap();
    start(dir);
    embed_shards(dir, 3, "--out tables --format parquet");
    embed_shards(dir, 3, "--out files");
    for folder in ["tables", "files"] {
        done_with_broken(dir, &format!("merge {folder} --out {folder}.json"));
    }
    let load = |name: &str| EmbeddingSet::load(dir.join(name)).unwrap();
    assert_eq!(load("tables.json"), load("files.json"));
    let table = dir.join("tables/shard-00001-of-00003.parquet");
    let mut bytes = fs::read(&table).unwrap();
    bytes[40] ^= 1;
    fs::write(&table, bytes).unwrap();
    assert!(refused(dir, "convert tables.json --out x.npy").contains("SHA-256"));
}
