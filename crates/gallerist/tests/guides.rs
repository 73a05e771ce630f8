//! The guides in `docs/guides`: their commands run, in their order, on small data.
//!
//! Every `sh` block of a guide runs, unless an HTML comment before it says otherwise:
//!
//! - `<!-- not run: REASON -->`: the block is left out;
//! - `<!-- test: A => B -->`: `A` is replaced by `B` in the block, for example a time by a shorter one;
//! - `<!-- server -->`: the block is one `gallerist serve`, which runs in the background until the end of the guide.
//!   Later blocks reach it at the address that the guide names.
#![cfg(unix)]

mod common;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use common::{program, root, text};
use gallerist::report::Picture;
use gallerist::retrieval::Matrix;
use gallerist::retrieval::file::npy;

/// The address that the guides name.
const ADDRESS: &str = "127.0.0.1:8080";

/// What a guide assumes to exist.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Given {
    /// `photos/`, and further pictures.
    Photos,
    /// A run on the photographs, `runs/photos`, and their embeddings.
    Run,
    /// A set in the layout of Market-1501: `Market-1501-v15.09.15/`.
    Persons,
    /// `dinov2.onnx`. The guide is left out in a build without the feature `onnx`.
    Model,
    /// `x.npy`, `query.npy` and `gallery.npy`, each with labels.
    Rows,
}

/// A block of a guide.
#[derive(Debug, PartialEq)]
struct Block {
    line: usize,
    code: String,
    is_server: bool,
}

/// The blocks that run.
fn blocks(guide: &str) -> Vec<Block> {
    let (mut found, mut skipped, mut is_server, mut changes) = (Vec::new(), false, false, Vec::new());
    let mut lines = guide.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let comment = line.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->"));
        match comment {
            Some(comment) if comment.starts_with("not run: ") => skipped = true,
            Some("server") => is_server = true,
            Some(comment) => {
                let change = comment.strip_prefix("test: ").and_then(|change| change.split_once(" => "));
                let (from, to) = change.unwrap_or_else(|| panic!("line {}: `{comment}`", at + 1));
                changes.push((from.to_owned(), to.to_owned()));
            }
            None if line.starts_with("```") => {
                let mut code = String::new();
                for (_, inner) in lines.by_ref().take_while(|(_, inner)| *inner != "```") {
                    code += inner;
                    code.push('\n');
                }
                for (from, to) in std::mem::take(&mut changes) {
                    assert!(code.contains(&from), "line {}: no `{from}` in the block", at + 1);
                    code = code.replace(&from, &to);
                }
                if line == "```sh" && !skipped {
                    found.push(Block { line: at + 1, code, is_server });
                }
                (skipped, is_server) = (false, false);
            }
            None => {}
        }
    }
    found
}

#[test]
fn comments_change_the_block_that_follows() {
    let guide = "# A\n```sh\na\n```\n<!-- not run: slow -->\n```sh\nb\n```\n<!-- test: 10 => 1 -->\n\n```sh\nc 10\nd\n```\n```text\ne\n```\n<!-- server -->\n```sh\nf\n```\n";
    let block = |line, code: &str, is_server| Block { line, code: code.into(), is_server };
    assert_eq!(blocks(guide), [block(2, "a\n", false), block(11, "c 1\nd\n", false), block(19, "f\n", true)]);
}

/// A server that is killed at the end of its guide.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The guides, and what they assume.
const GUIDES: [(&str, &[Given]); 10] = [
    ("your-photographs.md", &[Given::Photos]),
    ("reid.md", &[Given::Persons]),
    ("own-embeddings.md", &[Given::Rows]),
    ("report.md", &[Given::Photos, Given::Run]),
    ("choosing-a-loss.md", &[Given::Photos]),
    ("changing-gallery.md", &[Given::Photos, Given::Run]),
    ("duplicates-and-label-errors.md", &[Given::Photos, Given::Run]),
    ("deploying-serve.md", &[Given::Photos, Given::Run]),
    ("own-model.md", &[Given::Photos, Given::Model]),
    ("from-pytorch-metric-learning.md", &[Given::Photos, Given::Rows]),
];

#[test]
fn the_commands_of_every_guide_run() {
    let failed: Vec<String> = GUIDES.iter().flat_map(|(name, given)| run(name, given)).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn no_guide_is_forgotten() {
    let folder = std::fs::read_dir(root().join("docs/guides")).unwrap();
    let mut names: Vec<String> =
        folder.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name.ends_with(".md") && name != "README.md");
    names.sort();
    let mut tested = GUIDES.map(|(name, _)| name);
    tested.sort();
    assert_eq!(names, tested);
    let index = std::fs::read_to_string(root().join("docs/guides/README.md")).unwrap();
    for name in tested {
        assert!(index.contains(&format!("({name})")), "{name} is not in the index");
    }
}

/// Runs the commands of a guide; returns the blocks that fail.
fn run(name: &str, given: &[Given]) -> Vec<String> {
    if given.contains(&Given::Model) && !cfg!(feature = "onnx") {
        return Vec::new();
    }
    let guide = std::fs::read_to_string(root().join("docs/guides").join(name)).unwrap();
    let dir = tempfile::tempdir().unwrap();
    for given in given {
        prepare(dir.path(), *given);
    }
    let mut server: Option<(Server, String)> = None;
    let mut failed = Vec::new();
    let blocks = blocks(&guide);
    assert!(!blocks.is_empty(), "{name} runs nothing");
    for Block { line, mut code, is_server } in blocks {
        if let (Some((_, address)), false) = (&server, is_server) {
            code = code.replace(ADDRESS, address);
        }
        if is_server {
            server = Some(serve(dir.path(), &code));
            continue;
        }
        let out = shell(dir.path(), &code).output().unwrap();
        let (stdout, stderr) = (text(&out.stdout), text(&out.stderr));
        if !out.status.success() {
            failed.push(format!("{name}, line {line}:\n{code}\n{stdout}\n{stderr}"));
        }
    }
    failed
}

/// `sh` with the program on the path.
fn shell(dir: &Path, code: &str) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_gallerist"));
    let path = std::env::var("PATH").unwrap();
    let mut command = Command::new("sh");
    command.args(["-euc", code]).current_dir(dir);
    command.env("PATH", format!("{}:{path}", program.parent().unwrap().display()));
    command
        .env("COLUMNS", "100")
        .env_remove("CLICOLOR_FORCE")
        .env_remove("MILVUS_TOKEN")
        .env_remove("QDRANT_API_KEY");
    command
}

/// Starts `gallerist serve` at a free port; returns it with its address.
fn serve(dir: &Path, code: &str) -> (Server, String) {
    let line = format!("exec {} --port 0", code.trim().split('#').next().unwrap().trim_end());
    let child = shell(dir, &line).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut server = Server(child);
    let mut url = String::new();
    BufReader::new(server.0.stdout.as_mut().unwrap()).read_line(&mut url).unwrap();
    let address = url.trim().strip_prefix("http://").unwrap_or_else(|| panic!("{line}: `{url}`")).to_owned();
    (server, address)
}

fn prepare(dir: &Path, given: Given) {
    match given {
        Given::Photos => photos(dir),
        Given::Run => {
            let line = "train --images photos --minutes 0.02 --set report.map=false --json";
            finish(dir, line);
            finish(dir, "embed --run runs/photos --images photos --out photos.safetensors --json");
        }
        Given::Model => {
            let model = root().join("crates/gallerist-onnx/fixtures/rows.onnx");
            for name in ["dinov2.onnx", "clip-image.onnx"] {
                std::fs::copy(&model, dir.join(name)).unwrap();
            }
            let texts = root().join("crates/gallerist-onnx/fixtures/text");
            std::fs::copy(texts.join("clip.onnx"), dir.join("clip-text.onnx")).unwrap();
            for name in ["tokenizer.json", "tokenizer_config.json"] {
                std::fs::copy(texts.join(name), dir.join(name)).unwrap();
            }
        }
        Given::Persons => persons(&dir.join("Market-1501-v15.09.15")),
        Given::Rows => rows(dir),
    }
}

fn finish(dir: &Path, line: &str) {
    let out = program(dir, &line.split(' ').collect::<Vec<_>>());
    assert_eq!(out.status.code(), Some(0), "{line}: {}", text(&out.stderr));
}

/// A picture of a class: stripes whose direction and distance are those of the class, moved in each picture.
fn picture(class: usize, number: usize, (width, height): (usize, usize)) -> Picture {
    let (step, slope, colour) = (4 + class % 5, class % 3, [40 * (class % 6) as u8, 60, 200]);
    let pixels: Vec<u8> = (0..height * width)
        .flat_map(|at| {
            let (y, x) = (at / width, at % width);
            if (x + slope * y + number) % (2 * step) < step { colour } else { [230, 220 - number as u8, 210] }
        })
        .collect();
    Picture::from_pixels(width as u32, height as u32, 3, &pixels).unwrap()
}

fn photos(dir: &Path) {
    for class in 0..24 {
        let name = ["heron", "wren"].get(class).map_or_else(|| format!("bird{class}"), |&name| name.into());
        let folder = dir.join("photos").join(name);
        std::fs::create_dir_all(&folder).unwrap();
        for number in 0..6 {
            let file = folder.join(format!("{number}.jpg"));
            std::fs::write(file, picture(class, number, (32, 32)).bytes()).unwrap();
        }
    }
    for (file, class) in [("new.jpg", 0), ("new2.jpg", 1)] {
        std::fs::write(dir.join(file), picture(class, 7, (32, 32)).bytes()).unwrap();
    }
    let more = dir.join("more/heron");
    std::fs::create_dir_all(&more).unwrap();
    std::fs::write(more.join("7.jpg"), picture(0, 8, (32, 32)).bytes()).unwrap();
}

/// Names as those of Market-1501: identity, camera and sequence, frame, box.
fn persons(folder: &Path) {
    let put = |split: &str, identity: usize, camera: usize| {
        let folder = folder.join(split);
        std::fs::create_dir_all(&folder).unwrap();
        for number in 0..2 {
            let name = format!("{identity:04}_c{camera}s1_{:06}_00.jpg", 10 * camera + number);
            std::fs::write(folder.join(name), picture(identity, camera + number, (32, 64)).bytes()).unwrap();
        }
    };
    for identity in 1..=8 {
        for camera in 1..=3 {
            put("bounding_box_train", identity, camera);
        }
    }
    for identity in 9..=14 {
        put("query", identity, 1);
        for camera in 1..=3 {
            put("bounding_box_test", identity, camera);
        }
    }
}

/// Rows around one centre for each class, and labels as numbers.
fn rows(dir: &Path) {
    let save = |name: &str, rows: usize, camera: usize| {
        let value = |row: usize, col: usize| {
            let class = row % 10;
            let noise = ((row * 31 + col * 17 + camera) % 23) as f32 / 23.0;
            noise + if col % 10 == class { 2.0 } else { 0.0 }
        };
        let values = (0..rows * 16).map(|at| value(at / 16, at % 16)).collect();
        npy::write_f32(dir.join(format!("{name}.npy")), &Matrix::new(rows, 16, values).unwrap()).unwrap();
        let labels: String = (0..rows).map(|row| format!("class{}\n", row % 10)).collect();
        std::fs::write(dir.join(format!("{name}-labels.txt")), labels).unwrap();
    };
    save("x", 200, 0);
    save("query", 20, 1);
    save("gallery", 100, 2);
}
