//! Images are identified by their source and path, from `embed` to the index.

mod common;

use std::path::Path;

use common::{done, gallerist, refused, root, text};
use gallerist::retrieval::EmbeddingSet;
use gallerist::retrieval::file::Source;
use gallerist::retrieval::index::{Items, item_id};
use serde_json::Value;

fn json(dir: &Path, line: &str) -> Value {
    serde_json::from_str(&done(dir, &format!("{line} --json"))).unwrap()
}

#[test]
fn images_of_one_path_in_two_folders_are_two_items() {
    let folder = tempfile::tempdir().unwrap();
    let dir = &folder.path().canonicalize().unwrap();
    let root = root();
    let run = dir.join("run");
    let train =
        "train configs/smoke.toml --set train.steps=2 --set validation.every=2 --set data.max_test_classes=2";
    done(&root, &format!("{train} --out {}", run.display()));

    // X/train and X/test hold other images under the same relative paths.
    let images =
        gallerist::data::ImageSet::open(root.join("data/omniglot/omniglot_images_evaluation.zip")).unwrap();
    let write = |path: &str, image: usize| {
        let path = dir.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, images.read(image).unwrap()).unwrap();
    };
    for (at, split) in ["train", "test"].into_iter().enumerate() {
        for number in 0..3 {
            write(&format!("X/{split}/a/{number}.png"), 100 * at + number);
            write(&format!("X/{split}/b/{number}.png"), 100 * at + 50 + number);
        }
    }
    let embed = |images: &str, out: &str| {
        done(dir, &format!("embed --run run --images {images} --out {out}"));
        EmbeddingSet::load(dir.join(out)).unwrap()
    };
    let (train, test) = (embed("X/train", "train.safetensors"), embed("X/test", "test.safetensors"));
    assert_eq!(train.paths, test.paths);
    // A single class folder is no class.
    let said = text(&gallerist(dir, "embed --run run --images X/train/a --out a.safetensors").stderr);
    assert!(said.contains("embeddings without labels written to a.safetensors"), "{said}");
    let name = Source::name_of(&dir.join("X/train"));
    assert_eq!(name, format!("{}/X/train", dir.display()));
    let ids = Items::from_set(train.clone()).unwrap().ids().to_vec();
    assert_eq!(ids[0], item_id(Some(&name), "a/0.png"));

    // One folder is one source, however it is written.
    for (images, out) in [("./X/train/", "dot.safetensors"), ("X/test/../train", "up.safetensors")] {
        assert_eq!(embed(images, out).sources, train.sources, "{images}");
    }
    let whole = format!("{}/X/train", dir.display());
    assert_eq!(embed(&whole, "whole.safetensors").sources, train.sources);
    let both = embed("X/train --images X/test", "both.safetensors");
    assert_eq!(both.source, None, "no place has all images");
    assert_eq!(Items::from_set(both.clone()).unwrap().ids()[..6], ids);

    // Every picture is the one of its own folder, also in files as earlier versions wrote them.
    let source = Some(format!("{whole} and 1 more"));
    EmbeddingSet { source, ..both }.save(dir.join("old.safetensors")).unwrap();
    done(dir, "index build both.safetensors --out both.index");
    let pictures = |line: &str, out: &str| {
        let result = gallerist(dir, line);
        let said = text(&result.stderr);
        assert_eq!(result.status.code(), Some(0), "{line}: {said}");
        let page = std::fs::read_to_string(dir.join(out)).unwrap();
        for missing in ["cannot be found", "are not at"] {
            assert!(!said.contains(missing) && !page.contains(missing), "{line}: {said}");
        }
        page.matches("data:image/png").count()
    };
    let queries = "--query X/train/a/0.png --query X/test/a/0.png";
    for gallery in ["both.safetensors", "old.safetensors", "both.index"] {
        let line = format!("search --run run --gallery {gallery} {queries} -k 1 --html page.html");
        assert_eq!(pictures(&line, "page.html"), 2, "{gallery}: each query is its own result");
    }
    let halves = "--query X/train/a/0.png --region 0,0,0.5,1 --query X/train/a/0.png --region 0.5,0,0.5,1";
    let one = "search --run run --gallery train.safetensors --where path='a/0.png'";
    let line = format!("{one} {halves} --html halves.html");
    assert_eq!(pictures(&line, "halves.html"), 3, "two halves and the result");
    for file in ["both.safetensors", "old.safetensors"] {
        let shown = pictures(&format!("plot ranked --embeddings {file} --out ranked.svg"), "ranked.svg");
        assert!(shown > 0, "{file}");
        let line = format!("evaluate --embeddings {file} --metrics recall@1 --html metrics.html");
        assert!(pictures(&line, "metrics.html") > 6, "{file}: images of both folders");
    }
    let away =
        format!("search --run run --gallery both.safetensors {queries} --images away --html away.html");
    done(dir, &away);
    let notice = format!("pictures cannot be found at `{}`.", dir.join("away").display());
    assert!(std::fs::read_to_string(dir.join("away.html")).unwrap().contains(&notice), "{notice}");

    // Built, added, joined: nothing is lost, and the same again changes nothing.
    assert_eq!(json(dir, "index build train.safetensors test.safetensors --out g.index")["items"], 12);
    assert_eq!(json(dir, "index build train.safetensors --out h.index --kind exact")["items"], 6);
    let added = json(dir, "index add h.index test.safetensors");
    assert_eq!((&added["items"], &added["new"], &added["replaced"]), (&12.into(), &6.into(), &0.into()));
    let bytes = std::fs::read(dir.join("h.index")).unwrap();
    let again = json(dir, "index add h.index test.safetensors dot.safetensors");
    assert_eq!((&again["items"], &again["new"], &again["unchanged"]), (&12.into(), &0.into(), &12.into()));
    assert!(std::fs::read(dir.join("h.index")).unwrap() == bytes);
    done(dir, "convert train.safetensors test.safetensors --out joined.safetensors --precision int8");
    done(dir, "convert train.safetensors test.safetensors --out joined.safetensors");
    assert_eq!(json(dir, "index add h.index joined.safetensors")["unchanged"], 12);
    assert_eq!(json(dir, "index build joined.safetensors --out j.index")["items"], 12);
    let own = "evaluate --embeddings test.safetensors --gallery g.index --metrics recall@1";
    assert_eq!(json(dir, own)["queries"], 6);
    let found = json(dir, "index search g.index --queries test.safetensors -k 1");
    assert_eq!(
        (&found[1]["results"][0]["source"], &found[1]["results"][0]["path"]),
        (&format!("{}/X/test", dir.display()).into(), &"a/1.png".into())
    );

    // Another picture under a path that is there: refused with both named, and replaced on purpose.
    write("X/train/a/1.png", 77);
    embed("X/train", "changed.safetensors");
    for line in [
        "index add h.index changed.safetensors",
        "index build train.safetensors changed.safetensors --out never.index",
    ] {
        let message = refused(dir, line);
        let item = format!("`a/1.png` of `{name}`");
        assert!(
            message.contains(&format!("{item} would replace {item}, which has another embedding")),
            "{message}"
        );
        assert!(message.contains("hint: give --replace"), "{message}");
    }
    assert!(!dir.join("never.index").exists() && std::fs::read(dir.join("h.index")).unwrap() == bytes);
    let replaced = json(dir, "index add h.index changed.safetensors --replace");
    assert_eq!(
        (&replaced["items"], &replaced["replaced"], &replaced["unchanged"]),
        (&12.into(), &1.into(), &5.into())
    );

    // With a name of its own a source can be moved.
    let named = embed("X/test --source cameras", "named.safetensors");
    std::fs::rename(dir.join("X/test"), dir.join("moved")).unwrap();
    let moved = embed("moved --source cameras", "moved.safetensors");
    assert_eq!(Items::from_set(moved).unwrap().ids(), Items::from_set(named).unwrap().ids());
    done(dir, "index build named.safetensors --out n.index");
    assert_eq!(json(dir, "index add n.index moved.safetensors")["unchanged"], 6);
    let message =
        refused(dir, "embed --run run --images X/train --images moved --source one --out x.safetensors");
    assert!(message.contains("--source names one source, and the images are of 2"), "{message}");
}
