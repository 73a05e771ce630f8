//! Writers that are killed.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const TARGET: &str = "GALLERIST_FILES_TARGET";

/// Not a test of its own: the process that [`a_killed_writer_leaves_nothing_that_the_next_does_not_remove`]
/// starts and kills.
#[test]
fn writer() {
    let Some(path) = std::env::var_os(TARGET) else { return };
    loop {
        gallerist_util::files::write(&path, |file| {
            for _ in 0..40 {
                file.write_all(&[7; 1 << 14])?;
                file.flush()?;
                std::thread::sleep(Duration::from_micros(200));
            }
            Ok(())
        })
        .unwrap();
    }
}

fn names(folder: &Path) -> Vec<String> {
    std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn a_killed_writer_leaves_nothing_that_the_next_does_not_remove() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gallery.index");
    let mut strays = 0;
    for round in 0..16 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "writer", "--nocapture"])
            .env(TARGET, &path)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // It writes from its start to its end, so that most kills come in the middle of a write.
        while names(folder.path()).is_empty() || round > 0 && names(folder.path()) == ["gallery.index"] {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(round % 7));
        child.kill().unwrap();
        child.wait().unwrap();
        strays += names(folder.path()).iter().filter(|name| *name != "gallery.index").count();
        assert!(names(folder.path()).len() <= 2, "the strays of earlier writers were swept");
        if let Ok(bytes) = std::fs::read(&path) {
            assert!(bytes.len() == 40 << 14 && bytes.iter().all(|&byte| byte == 7), "never half a file");
        }
    }
    assert!(strays > 0, "no writer was killed in the middle of a write");
    gallerist_util::files::write(&path, |file| file.write_all(b"whole")).unwrap();
    assert_eq!(names(folder.path()), ["gallery.index"]);
}
