//! The examples, on small data.

#![allow(unreachable_pub, dead_code, reason = "the examples are programs; their `main` is not called here")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use gallerist::TrainingEnd;
use gallerist::prelude::*;

#[path = "../examples/embedded_server.rs"]
mod embedded_server;
#[path = "../examples/evaluate_embeddings.rs"]
mod evaluate_embeddings;
#[path = "../examples/own_data.rs"]
mod own_data;
#[path = "../examples/own_loop.rs"]
mod own_loop;
#[path = "../examples/own_loss.rs"]
mod own_loss;
#[path = "../examples/own_network.rs"]
mod own_network;
#[path = "../examples/train_and_search.rs"]
mod train_and_search;

/// A bitmap of 16 x 16 pixels, 24 bits each: a pattern per class, shifted by the number.
fn bitmap(class: usize, number: usize) -> Vec<u8> {
    let mut file = b"BM".to_vec();
    let bytes = 16 * 16 * 3;
    for word in [54 + bytes, 0, 54, 40, 16, 16, 24 << 16 | 1, 0, bytes, 0, 0, 0, 0u32] {
        file.extend(word.to_le_bytes());
    }
    for at in 0..16 * 16 {
        let value = ((at * (class + 1) + 7 * number) % 251) as u8;
        file.extend([value; 3]);
    }
    file
}

/// A folder of six classes with four images each.
fn photos() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for class in 0..6 {
        let of_class = folder.path().join(format!("class-{class}"));
        std::fs::create_dir_all(&of_class).unwrap();
        for number in 0..4 {
            std::fs::write(of_class.join(format!("{number}.bmp")), bitmap(class, number)).unwrap();
        }
    }
    folder
}

#[test]
fn train_and_search_finds_the_query_itself() {
    let (photos, out) = (photos(), tempfile::tempdir().unwrap());
    let query = photos.path().join("class-2/1.bmp");
    let found = train_and_search::run(photos.path(), &query, &out.path().join("run"), 3).unwrap();
    assert_eq!((found.len(), Path::new(&found[0])), (3, Path::new("class-2/1.bmp")));
}

#[test]
fn evaluate_embeddings_measures_memory_and_file_alike() {
    // Of the three herons two have a heron next to them; the wren has none, and the third heron finds the wren.
    assert_eq!(evaluate_embeddings::run().unwrap(), 0.5);
}

#[test]
fn own_loop_takes_steps() {
    let (first, last) = own_loop::run(photos().path(), 10).unwrap();
    assert!(first.is_finite() && last < first, "{first} {last}");
}

#[test]
fn embedded_server_answers_and_stops() {
    let answer = embedded_server::run(0, |address| {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET /api/v1/gallery HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    });
    let answer = answer.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("birds"), "{answer}");
}

/// A run file of a few steps on 16 x 16 pixels.
const RUN_FILE: &str = r#"
[train]
steps = 3
device = "cpu"
[validation]
fraction = 0
[image]
size = 16
channels = 1
[sampler]
classes_per_batch = 4
images_per_class = 3
"#;

#[test]
fn own_network_is_trained_by_its_name() {
    own_network::registry().install().unwrap();
    let (photos, out) = (photos(), tempfile::tempdir().unwrap());
    let text = format!(
        "{RUN_FILE}[data]\ntrain = {:?}\n[network]\nkind = \"tiny\"\ndimensions = 4\n",
        photos.path()
    );
    let config = RunConfig::parse(&text, "a test", &[]).unwrap();
    let run = out.path().join("run");
    let trained = gallerist::train(&config, &run, &mut (), &AtomicBool::new(false)).unwrap();
    assert_eq!(trained.end, TrainingEnd::Finished);
    let options = EmbedOptions { checkpoint: Some(CheckpointKind::Last), ..EmbedOptions::default() };
    let embedded = gallerist::embed(&run, &[photos.path().into()], &options, &mut ()).unwrap();
    assert_eq!((embedded.set.embeddings.rows(), embedded.set.embeddings.cols()), (24, 4));
}

#[test]
fn own_data_is_trained_on_and_measured_by_its_address() {
    own_data::registry().install().unwrap();
    let out = tempfile::tempdir().unwrap();
    let text = format!("{RUN_FILE}[data]\ntrain = \"squares://6\"\ntest = \"squares://4\"\n");
    let config = RunConfig::parse(&text, "a test", &[]).unwrap();
    let trained =
        gallerist::train(&config, &out.path().join("run"), &mut (), &AtomicBool::new(false)).unwrap();
    assert_eq!(trained.metrics.unwrap().evaluation.queries, 4 * 12);
    assert!(std::fs::read_to_string(trained.report.unwrap()).unwrap().contains("squares://4"));
}

#[test]
fn own_loss_is_trained_by_its_name() {
    own_loss::registry().install().unwrap();
    let (photos, out) = (photos(), tempfile::tempdir().unwrap());
    let text =
        format!("{RUN_FILE}[data]\ntrain = {:?}\n[loss]\nname = \"hinge\"\nmargin = 0.7\n", photos.path());
    let config = RunConfig::parse(&text, "a test", &[]).unwrap();
    let run = out.path().join("run");
    let trained = gallerist::train(&config, &run, &mut (), &AtomicBool::new(false)).unwrap();
    let resolved = std::fs::read_to_string(trained.directory.config()).unwrap();
    assert!(resolved.contains("margin = 0.7"), "{resolved}");
    let log = gallerist::train::log::read(&trained.directory.log()).unwrap();
    let steps = log.iter().filter_map(|record| match record {
        gallerist::train::log::Record::Step(step) => Some(step.loss),
        _ => None,
    });
    let steps: Vec<f32> = steps.collect();
    assert!(steps.len() == 3 && steps.iter().all(|loss| (0.0..2.0).contains(loss)), "{steps:?}");
}
