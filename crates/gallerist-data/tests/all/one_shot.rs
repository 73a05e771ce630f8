//! The runs of a one-shot test.

use std::path::Path;

use gallerist_data::{Error, OneShotRuns};

use crate::common::{picture, png, write_tree, write_zip};

/// A run of `ways` classes in `folder`; test i belongs to the class that `answer` says.
fn run(folder: &str, ways: usize, answer: impl Fn(usize) -> usize) -> Vec<(String, Vec<u8>)> {
    let name = folder.rsplit_once('/').map_or(folder, |(_, name)| name);
    let mut files = Vec::new();
    let mut lines = String::new();
    for i in 0..ways {
        let image = |tint: usize| png(picture(5, 4, tint as u8));
        files.push((format!("{folder}/training/class{i:02}.png"), image(i)));
        files.push((format!("{folder}/test/item{i:02}.png"), image(100 + i)));
        lines += &format!("{name}/test/item{i:02}.png {name}/training/class{:02}.png\n", answer(i));
    }
    files.push((format!("{folder}/class_labels.txt"), lines.into_bytes()));
    files
}

fn write(root: &Path, files: &[(String, Vec<u8>)]) -> std::path::PathBuf {
    let path = root.join("runs.zip");
    write_zip(&path, files);
    path
}

#[test]
fn runs_are_read_from_a_zip_and_from_a_folder() {
    for above in ["", "all_runs/"] {
        let dir = tempfile::tempdir().unwrap();
        let files =
            [run(&format!("{above}run02"), 3, |i| 2 - i), run(&format!("{above}run01"), 4, |i| i)].concat();
        let zip = write(dir.path(), &files);
        let folder = dir.path().join("unpacked");
        write_tree(&folder, &files);
        for path in [zip, folder] {
            let found = OneShotRuns::open(&path).unwrap();
            assert_eq!(found.images.len(), 14);
            let names: Vec<&str> = found.runs.iter().map(|run| run.name.as_str()).collect();
            assert_eq!(names, ["run01", "run02"]);
            assert_eq!(found.runs[0].answers, [0, 1, 2, 3]);
            assert_eq!(found.runs[1].answers, [2, 1, 0]);
            let path = |i: u32| found.images.path(i as usize);
            assert_eq!(path(found.runs[1].tests[2]), format!("{above}run02/test/item02.png"));
            assert_eq!(path(found.runs[1].training[0]), format!("{above}run02/training/class00.png"));
        }
    }
}

#[test]
fn answers_that_say_nothing_are_refused_with_their_line() {
    let dir = tempfile::tempdir().unwrap();
    let cases: [(&[u8], &str); 8] = [
        (b"run01/test/item00.png\n", "line 1: wanted two paths, found `run01/test/item00.png`"),
        (b"a b c\n", "line 1: wanted two paths, found `a b c`"),
        (b"\nrun01/test/item07.png run01/training/class00.png\n", "line 2: `run01/test/item07.png` is no test image"),
        (b"run01/test/item00.png run01/training/class09.png\n", "line 1: `run01/training/class09.png` is no training"),
        (b"run01/test/item00.png run01/test/item01.png\n", "line 1: `run01/test/item01.png` is no training image"),
        (
            b"run01/test/item00.png run01/training/class00.png\nrun01/test/item00.png run01/training/class01.png",
            "line 2: `run01/test/item00.png` is listed already",
        ),
        (b"run01/test/item00.png run01/training/class00.png\n", "`run01/test/item01.png` is not in it"),
        (b"\xff\xfe", "it is not UTF-8 text"),
    ];
    for (text, wanted) in cases {
        let mut files = run("run01", 2, |i| i);
        files.last_mut().unwrap().1 = text.to_vec();
        let error = OneShotRuns::open(write(dir.path(), &files)).unwrap_err();
        assert!(error.to_string().contains(wanted), "{error}");
        assert!(error.to_string().contains("runs.zip/run01/class_labels.txt"), "{error}");
        assert!(error.hint().unwrap().contains("run01/test/item01.png"));
    }
    let mut files = run("run01", 2, |i| i);
    files.last_mut().unwrap().1 = vec![b'\n'; (1 << 20) + 1];
    let error = OneShotRuns::open(write(dir.path(), &files)).unwrap_err();
    assert!(error.to_string().contains("1048577 bytes"), "{error}");
    files.pop();
    assert!(matches!(OneShotRuns::open(write(dir.path(), &files)), Err(Error::Decode { .. })));
}

#[test]
fn a_source_without_runs_and_a_cut_archive_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), &crate::common::class_folders(2, 2));
    let error = OneShotRuns::open(&path).unwrap_err();
    assert!(error.to_string().contains("there is no run"), "{error}");
    let path = write(dir.path(), &run("run01", 2, |i| i));
    let whole = std::fs::read(&path).unwrap();
    for length in (0..whole.len()).step_by(7) {
        std::fs::write(&path, &whole[..length]).unwrap();
        assert!(OneShotRuns::open(&path).is_err(), "cut to {length} bytes");
    }
}
