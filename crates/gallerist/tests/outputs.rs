//! What an output file may replace.
#![cfg(unix)]

mod common;

use std::os::unix::fs::{FileTypeExt, symlink};
use std::process::Command;

use common::{gallerist, refused, text};

/// Every command that writes a file, with OUT for its name. What else they ask for need not be there: the
/// output is looked at first.
const COMMANDS: [(&str, &str); 15] = [
    ("embed --run none --images none --out OUT", "safetensors"),
    ("convert none.safetensors --out OUT", "safetensors"),
    ("convert none.npy --out OUT", "npy"),
    ("evaluate --embeddings none.safetensors --html OUT", "html"),
    ("search --gallery none --query none --html OUT", "html"),
    ("index build none.safetensors --out OUT", "index"),
    ("index add OUT none.safetensors", "index"),
    ("index remove OUT --label a", "index"),
    ("plot map --embeddings none.safetensors --out OUT", "svg"),
    ("plot ranked --embeddings none.safetensors --out OUT", "png"),
    ("plot report none --out OUT", "html"),
    ("weights fetch http://127.0.0.1:9/none --sha256 0123456789abcdef --out OUT", "pth"),
    ("weights export --run none --out OUT", "onnx"),
    ("loss --loss rll --embeddings none.npy --gradient OUT", "npy"),
    ("loss --loss proxy_nca --embeddings none.npy --save-parameters OUT", "safetensors"),
];

#[test]
fn no_command_replaces_a_pipe_or_a_link() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    for (command, extension) in COMMANDS {
        let pipe = dir.join(format!("pipe.{extension}"));
        if !pipe.exists() {
            assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
            std::fs::write(dir.join(format!("file.{extension}")), b"kept").unwrap();
            symlink(format!("file.{extension}"), dir.join(format!("link.{extension}"))).unwrap();
        }
        let message = refused(dir, &command.replace("OUT", &format!("pipe.{extension}")));
        assert!(
            message.contains("it is a named pipe, and only a regular file is replaced"),
            "{command}: {message}"
        );
        // A file of weights that is there is only compared.
        if !command.starts_with("weights fetch") {
            let message = refused(dir, &command.replace("OUT", &format!("link.{extension}")));
            assert!(message.contains("it is a symbolic link"), "{command}: {message}");
            assert!(
                message.contains(&format!("file.{extension}"))
                    && message.contains("hint: name the file itself"),
                "{command}: {message}"
            );
        }
        assert!(std::fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo());
        assert_eq!(std::fs::read(dir.join(format!("file.{extension}"))).unwrap(), b"kept");
    }
    let left = std::fs::read_dir(dir)
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().ends_with("-tmp"));
    assert_eq!(left.count(), 0);
}

#[test]
fn what_killed_writers_left_is_swept_by_the_next_command_that_writes_there() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let set = gallerist::retrieval::EmbeddingSet::from(
        gallerist::retrieval::Matrix::new(3, 2, vec![1.0, 0.0, 0.5, 0.5, 0.0, 1.0]).unwrap(),
    );
    set.save(dir.join("x.safetensors")).unwrap();
    let strays = || -> usize {
        let names = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().ends_with(".gallerist-tmp")).count()
    };
    for line in [
        "convert x.safetensors --out y.npy",
        "index build x.safetensors --out g.index",
        "index add g.index x.safetensors --ids rows",
        "index remove g.index --id 0",
    ] {
        for at in 0..16 {
            std::fs::write(dir.join(format!(".g.index.{}-{at}.gallerist-tmp", 4_000_000 + at)), b"half")
                .unwrap();
        }
        let out = gallerist(dir, line);
        assert_eq!(out.status.code(), Some(0), "{line}: {}", text(&out.stderr));
        assert_eq!(strays(), 0, "{line}");
    }
}
