//! Writes the seeds of all targets: small files of every kind that a reader knows, made here or from the fixtures of the
//! repository.
//!
//! ```sh
//! cargo run --release -p gallerist-fuzz --example seeds -- DIR        # DIR/TARGET/NAME
//! ```

mod cache;
mod milvus;
mod models;
mod pictures;
mod qdrant;
mod retrieval;
mod server;
mod sources;

use std::path::{Path, PathBuf};

/// The folder of the seeds.
struct Seeds(PathBuf);

impl Seeds {
    /// Writes a seed of a target.
    fn add(&self, target: &str, name: &str, bytes: &[u8]) {
        let folder = self.0.join(target);
        std::fs::create_dir_all(&folder).expect("the folder of the target");
        std::fs::write(folder.join(name), bytes).expect("the seed");
    }

    /// Adds a file of the repository.
    fn fixture(&self, target: &str, path: &str) {
        let bytes = fixture(path);
        let mut parts = path.rsplit('/');
        let (name, folder) = (parts.next().expect("a part"), parts.next().unwrap_or_default());
        self.add(target, &format!("{folder}-{name}"), &bytes);
    }
}

/// The bytes of a file of the repository.
fn fixture(path: &str) -> Vec<u8> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn main() {
    let folder = std::env::args().nth(1).expect("the folder of the seeds");
    let seeds = Seeds(folder.into());
    cache::write(&seeds);
    milvus::write(&seeds);
    models::write(&seeds);
    pictures::write(&seeds);
    qdrant::write(&seeds);
    retrieval::write(&seeds);
    sources::write(&seeds);
    server::write(&seeds);
}
