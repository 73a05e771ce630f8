//! `gallerist data`.

use crate::common::{bitmap, text};
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

    let market = error(&["data", "info", path, "--layout", "market1501"]);
    assert!(market.contains("it is not laid out as Market-1501"), "{market}");
    assert!(error(&["data", "info", path, "--layout", "market"]).contains("there is no layout `market`"));
}
