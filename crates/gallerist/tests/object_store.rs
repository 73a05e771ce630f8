//! Images, manifests and shards in a real S3 server.
//!
//! The server is `s3s-fs` (`cargo install s3s-fs --version 0.14.1 --locked --features binary`), found by `GALLERIST_S3_SERVER` or in the PATH. Without it
//! the tests are skipped with a message, or fail if `GALLERIST_REQUIRE_S3=1`.

mod common;

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use common::{bitmap, root, text};
use gallerist::retrieval::EmbeddingSet;
use gallerist::retrieval::shards::ShardFolder;

/// A server of the folder `buckets` in `dir`.
struct Server {
    process: Child,
    endpoint: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    /// `None` without a server.
    fn start(dir: &Path) -> Option<Server> {
        let program = std::env::var("GALLERIST_S3_SERVER").unwrap_or_else(|_| "s3s-fs".to_owned());
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let buckets = dir.join("buckets");
        fs::create_dir_all(buckets.join("photos")).unwrap();
        let process = Command::new(&program)
            .args(["--host", "127.0.0.1", "--port", &port.to_string()])
            .args(["--access-key", "KEY", "--secret-key", "SECRET"])
            .arg(&buckets)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let process = match process {
            Ok(process) => process,
            Err(error) => {
                let text = format!("cannot start `{program}`: {error}; see the head of this file");
                gallerist_testkit::missing("GALLERIST_REQUIRE_S3", &text);
                return None;
            }
        };
        let server = Server { process, endpoint: format!("http://127.0.0.1:{port}") };
        for _ in 0..400 {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Some(server);
            }
            std::thread::sleep(Duration::from_millis(25));
        }
        panic!("the server does not listen on port {port}");
    }

    fn run(&self, dir: &Path, line: &str) -> Output {
        let program = Path::new(env!("CARGO_BIN_EXE_gallerist"));
        self.command(program, dir).args(line.split_whitespace()).output().unwrap()
    }

    /// A program with the credentials of the server.
    fn command(&self, program: &Path, dir: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(dir)
            .env("AWS_ENDPOINT_URL", &self.endpoint)
            .env("AWS_ACCESS_KEY_ID", "KEY")
            .env("AWS_SECRET_ACCESS_KEY", "SECRET")
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ALLOW_HTTP", "true");
        command
    }

    fn done(&self, dir: &Path, line: &str) -> String {
        let out = self.run(dir, line);
        assert_eq!(out.status.code(), Some(0), "{line}: {}", text(&out.stderr));
        text(&out.stderr) + &text(&out.stdout)
    }
}

/// Where the child of `a_file_of_several_parts_comes_back` writes: a client takes its credentials from the environment of its
/// process.
#[test]
#[ignore = "started by another test"]
fn in_a_process_with_credentials() {
    let folder = ShardFolder::open("s3://photos/large").unwrap();
    let bytes: Vec<u8> = (0..40u32 << 20).map(|i| (i ^ i >> 11) as u8).collect();
    folder.create("").unwrap();
    let file = folder.save("shard.bin", |path| Ok(fs::write(path, &bytes).unwrap())).unwrap();
    assert_eq!(file.bytes, bytes.len() as u64);
    assert_eq!(folder.verify(&file).unwrap(), None);
}

#[test]
fn a_file_of_several_parts_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let Some(server) = Server::start(dir) else { return };
    let out = server
        .command(&std::env::current_exe().unwrap(), dir)
        .args(["--ignored", "--exact", "in_a_process_with_credentials"])
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", text(&out.stdout));
    let stored = fs::read(dir.join("buckets/photos/large/shard.bin")).unwrap();
    assert_eq!(stored.len(), 40 << 20);
}

const EMBED: &str = "embed --run run --checkpoint last";

/// A run, and the images of a bucket: the folder `animals`, a manifest of it, and archives.
fn start(dir: &Path) {
    let run = root().join("fixtures/compat/0.1.0/run");
    fs::create_dir_all(dir.join("run/checkpoints")).unwrap();
    for file in ["config.toml", "checkpoints/last.safetensors"] {
        assert!(fs::copy(run.join(file), dir.join("run").join(file)).unwrap() > 0);
    }
    let bucket = dir.join("buckets/photos");
    let mut manifest = "path,label\n".to_owned();
    let mut archive = tar::Builder::new(fs::File::create(bucket.join("animals.tar")).unwrap());
    for image in 0..14u8 {
        let label = ["heron", "wren"][usize::from(image % 2)];
        let path = format!("animals/{label}/{image:02}.bmp");
        fs::create_dir_all(bucket.join("animals").join(label)).unwrap();
        fs::write(bucket.join(&path), bitmap(15 * image)).unwrap();
        archive.append_path_with_name(bucket.join(&path), &path).unwrap();
        manifest.push_str(&format!("{path},{label}\n"));
    }
    archive.finish().unwrap();
    fs::write(bucket.join("list.csv"), manifest).unwrap();
}

fn bits(set: &EmbeddingSet) -> Vec<u32> {
    set.embeddings.as_slice().iter().map(|value| value.to_bits()).collect()
}

#[test]
fn images_are_read_from_a_bucket_as_from_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let dir = &folder.path().canonicalize().unwrap();
    let Some(server) = Server::start(dir) else { return };
    start(dir);
    let bucket = dir.join("buckets/photos");
    let load = |name: &str| EmbeddingSet::load(dir.join(name)).unwrap();
    let embed = |images: &str, out: &str| {
        server.done(dir, &format!("{EMBED} --images {images} --out {out}"));
        load(out)
    };
    for (remote, local) in [
        ("animals", "animals"),
        ("list.csv", "list.csv"),
        ("animals.tar", "animals.tar"),
        ("animals/wren/01.bmp", "animals/wren/01.bmp"),
    ] {
        let here = embed(&bucket.join(local).display().to_string(), "here.safetensors");
        let there = embed(&format!("s3://photos/{remote}"), "there.safetensors");
        assert_eq!(bits(&there), bits(&here), "{remote}");
        assert_eq!((&there.labels, &there.paths), (&here.labels, &here.paths), "{remote}");
        let source = there.source_of(0).unwrap().to_owned();
        assert!(source.starts_with("s3://photos"), "{source}");
    }
    // What is not there, and what is no image, is named and left out.
    fs::write(bucket.join("bad.csv"), "path\nanimals/wren/01.bmp\nanimals/gone.bmp\nlist.csv\n").unwrap();
    let out = server.run(dir, &format!("{EMBED} --images s3://photos/bad.csv --out bad.safetensors"));
    let message = text(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{message}");
    assert!(
        message.contains("s3://photos/animals/gone.bmp") && message.contains("s3://photos/list.csv"),
        "{message}"
    );
    assert_eq!(load("bad.safetensors").embeddings.rows(), 1);
}

#[test]
fn shards_are_written_to_a_bucket_and_joined_from_it() {
    let folder = tempfile::tempdir().unwrap();
    let dir = &folder.path().canonicalize().unwrap();
    let Some(server) = Server::start(dir) else { return };
    start(dir);
    let line = |shard: usize| {
        format!("{EMBED} --shards s3://photos/list.csv --shard {shard}/3 --out s3://photos/shards --part 2")
    };
    for shard in 0..3 {
        server.done(dir, &line(shard));
    }
    assert!(server.done(dir, &line(1)).contains("is whole already"));
    let shards = dir.join("buckets/photos/shards");
    let names = || {
        let names = fs::read_dir(&shards).unwrap().map(|entry| entry.unwrap());
        let files = names.filter(|entry| entry.path().is_file());
        files
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| name.starts_with("shard"))
            .count()
    };
    assert_eq!(names(), 6, "parts are removed");
    server.done(dir, "merge s3://photos/shards --out all.json");
    server.done(dir, "convert all.json --out all.safetensors");
    server.done(dir, &format!("{EMBED} --images s3://photos/list.csv --out whole.safetensors"));
    let load = |name: &str| EmbeddingSet::load(dir.join(name)).unwrap();
    assert_eq!(load("all.safetensors"), load("whole.safetensors"));
    server.done(dir, "info all.json");
    // A shard that was changed is found, and embedded again.
    let file = shards.join("shard-00001-of-00003.safetensors");
    let whole = fs::read(&file).unwrap();
    let mut changed = whole.clone();
    *changed.last_mut().unwrap() ^= 1;
    fs::write(&file, changed).unwrap();
    for command in ["merge s3://photos/shards --out all.json", "convert all.json --out x.npy"] {
        let out = server.run(dir, command);
        assert_eq!(out.status.code(), Some(2), "{command}");
        assert!(text(&out.stderr).contains("shard-00001-of-00003.safetensors"), "{}", text(&out.stderr));
    }
    assert!(server.done(dir, &line(1)).contains("is embedded again"));
    assert_eq!(fs::read(&file).unwrap(), whole);
}

#[test]
fn a_wrong_key_and_a_missing_bucket_say_what_to_set() {
    let folder = tempfile::tempdir().unwrap();
    let dir = &folder.path().canonicalize().unwrap();
    let Some(server) = Server::start(dir) else { return };
    start(dir);
    let line = format!("{EMBED} --images s3://photos/animals --out x.npy");
    let out = Command::new(env!("CARGO_BIN_EXE_gallerist"))
        .args(line.split_whitespace())
        .current_dir(dir)
        .env("AWS_ENDPOINT_URL", &server.endpoint)
        .env("AWS_ACCESS_KEY_ID", "KEY")
        .env("AWS_SECRET_ACCESS_KEY", "WRONG")
        .env("AWS_REGION", "us-east-1")
        .env("AWS_ALLOW_HTTP", "true")
        .output()
        .unwrap();
    let message = text(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{message}");
    assert!(
        message.contains("s3://photos/animals") && message.contains("AWS_SECRET_ACCESS_KEY"),
        "{message}"
    );
    let message = text(&server.run(dir, &format!("{EMBED} --images s3://none/x.csv --out x.npy")).stderr);
    assert!(message.contains("s3://none/x.csv"), "{message}");
    let message = text(&server.run(dir, &format!("{EMBED} --images s3://none/x --out x.npy")).stderr);
    assert!(message.contains("cannot list `s3://none/x`: there is no bucket `s3://none`"), "{message}");
    let message =
        text(&server.run(dir, &format!("{EMBED} --images s3://photos/gone.csv --out x.npy")).stderr);
    assert!(message.contains("cannot read `s3://photos/gone.csv`: there is no such object"), "{message}");
}

#[test]
fn names_of_any_characters_are_read_and_an_address_is_not_cut_at_them() {
    let folder = tempfile::tempdir().unwrap();
    let dir = &folder.path().canonicalize().unwrap();
    let Some(server) = Server::start(dir) else { return };
    start(dir);
    let names = [
        "ü", "u\u{308}", "100%", "a#b", "x[1]", "t~1", "q?", "st*ar", "br{a}", "pi|pe", "qu'ote", "%41",
        "日本", "a b",
    ];
    // An address that is cut at `#` is the one of another folder.
    fs::create_dir_all(dir.join("buckets/photos/old")).unwrap();
    fs::write(dir.join("buckets/photos/old/none.bmp"), bitmap(7)).unwrap();
    let bucket = dir.join("buckets/photos/old#1?50%");
    fs::create_dir_all(bucket.join("sub")).unwrap();
    let mut lines = "path\n".to_owned();
    for (number, name) in (0..).zip(names) {
        fs::write(bucket.join(format!("{name}.bmp")), bitmap(10 * number)).unwrap();
        lines.push_str(&format!("../{name}.bmp\n"));
    }
    fs::write(bucket.join("sub/list.csv"), lines).unwrap();
    let load = |name: &str| EmbeddingSet::load(dir.join(name)).unwrap();
    for images in ["old#1?50%", "old#1?50%/sub/list.csv", "old#1?50%/a#b.bmp", "old#1?50%/%41.bmp"] {
        let local = dir.join("buckets/photos").join(images).display().to_string();
        server.done(dir, &format!("{EMBED} --images {local} --out here.safetensors"));
        server.done(dir, &format!("{EMBED} --images s3://photos/{images} --out there.safetensors"));
        let (here, there) = (load("here.safetensors"), load("there.safetensors"));
        assert_eq!((bits(&there), &there.paths), (bits(&here), &here.paths), "{images}");
    }
    server.done(dir, &format!("{EMBED} --shards s3://photos/list.csv --shard 0/1 --out s3://photos/out#7"));
    assert!(dir.join("buckets/photos/out#7").is_dir() && !dir.join("buckets/photos/out").exists());
}

#[test]
fn addresses_in_manifests_and_of_embeddings_are_refused_with_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    let dir = &folder.path().canonicalize().unwrap();
    let Some(server) = Server::start(dir) else { return };
    start(dir);
    let lines = "path,label\nanimals/wren/01.bmp,a\ns3://photos/animals/wren/03.bmp,a\n";
    fs::write(dir.join("list.csv"), lines).unwrap();
    fs::write(dir.join("buckets/photos/addresses.csv"), lines).unwrap();
    for manifest in ["list.csv", "s3://photos/addresses.csv"] {
        let message = text(&server.run(dir, &format!("{EMBED} --images {manifest} --out x.npy")).stderr);
        let wanted =
            "line 3: `s3://photos/animals/wren/03.bmp` is an address, which is not read from a manifest";
        assert!(message.contains(manifest) && message.contains(wanted), "{message}");
    }
    let file = "s3://photos/x.safetensors";
    for command in [
        format!("evaluate --embeddings {file}"),
        format!("convert {file} --out x.npy"),
        format!("search --gallery {file} --query list.csv"),
        format!("plot cmc --embeddings {file} --out x.svg"),
        format!("index build {file} --out x.index"),
        format!("serve --gallery {file}"),
    ] {
        let message = text(&server.run(dir, &command).stderr);
        assert!(message.contains("copy it here first"), "{command}: {message}");
    }
}
