//! Images of the shards of a manifest.

use gallerist_data::{Error, ImageSet, ManifestPart, OpenOptions, Shard};

/// A manifest of `rows` images with two classes, two splits and a price.
fn manifest(folder: &std::path::Path, rows: usize) -> std::path::PathBuf {
    let row = |i: usize| {
        let split = if i < rows / 2 { "train" } else { "test" };
        format!("{i}.png,{},{split},{}.50\n", ["wren", "grey heron"][i % 2], i * 7)
    };
    let path = folder.join("list.csv");
    let rows: Vec<String> = (0..rows).map(row).collect();
    for i in 0..rows.len() {
        std::fs::write(folder.join(format!("{i}.png")), "").unwrap();
    }
    std::fs::write(&path, format!("path,label,split,price\n{}", rows.concat())).unwrap();
    path
}

fn shard(index: u32, count: u32) -> OpenOptions {
    OpenOptions { shard: Shard::new(index, count), ..OpenOptions::default() }
}

fn lines(set: &ImageSet) -> Vec<String> {
    let columns = set.columns();
    let value = |name: &str, i: usize| {
        let column = columns.iter().find(|(found, _)| *found == name);
        column.map(|(_, values)| values[i].to_owned()).unwrap_or_default()
    };
    let label = |i: usize| set.class_names()[set.labels().unwrap()[i] as usize].clone();
    (0..set.len())
        .map(|i| format!("{} {} {} {}", set.path(i), label(i), set.split(i).unwrap(), value("price", i)))
        .collect()
}

#[test]
fn the_shards_of_a_manifest_are_its_images_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = manifest(folder.path(), 23);
    let whole = lines(&ImageSet::open(&path).unwrap());
    for count in [1, 2, 5, 23, 60] {
        let mut all = Vec::new();
        for index in 0..count {
            match ImageSet::open_with(&[&path], &shard(index, count)) {
                Ok(set) => {
                    assert_eq!(set.source_root(0), folder.path());
                    assert!(set.columns().iter().any(|(name, _)| *name == "split"));
                    all.extend(lines(&set));
                }
                Err(Error::NoImages { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(all, whole, "{count} shards");
    }
    // Of a chosen split, some shards have no image.
    let test = |index| {
        let options = OpenOptions { split: Some("test".into()), ..shard(index, 4) };
        ImageSet::open_with(&[&path], &options)
    };
    assert!(matches!(test(0), Err(Error::NoImages { .. })));
    let last = test(3).unwrap();
    assert!(last.columns().iter().all(|(name, _)| *name != "split"));
}

#[test]
fn a_part_is_known_by_its_lines_and_faults_name_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = manifest(folder.path(), 10);
    let parts: Vec<_> =
        (0..3).map(|i| ManifestPart::read(&path, Shard::new(i, 3).unwrap()).unwrap()).collect();
    assert!(parts[0] != parts[1] && parts[1] != parts[2]);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("9.png", "8.png")).unwrap();
    let now = |i| ManifestPart::read(&path, Shard::new(i, 3).unwrap()).unwrap();
    assert!(now(0) == parts[0] && now(1) == parts[1] && now(2) != parts[2]);
    let error = ImageSet::open_with(&[&path], &shard(2, 3)).unwrap_err().to_string();
    assert!(error.contains("of shard 2/3 (line 1 is the header): `8.png` is listed already"), "{error}");
    let error = ImageSet::open_with(&[folder.path()], &shard(2, 3)).unwrap_err();
    assert!(error.to_string().contains("wanted a manifest") && error.hint().is_some(), "{error}");
}
