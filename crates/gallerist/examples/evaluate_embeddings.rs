//! Measures embeddings from anywhere: in memory, and from files.
//!
//! ```text
//! cargo run --release --example evaluate_embeddings
//! ```

use std::error::Error;

use gallerist::prelude::*;

/// Returns Recall@1 of the rows, each compared with the others.
pub fn run() -> Result<f64, Box<dyn Error>> {
    // Four embeddings of two dimensions: rows of any network, `n x d`.
    let rows = Matrix::new(4, 2, vec![1.0, 0.0, 0.9, 0.1, 0.0, 1.0, 0.6, 0.7])?;
    let labels = ["heron", "heron", "wren", "heron"].map(String::from).to_vec();
    let set = EmbeddingSet { labels: Some(labels), ..rows.into() };

    // In memory.
    let config = EvaluationConfig {
        metrics: ["recall@1", "map@r"].map(String::from).to_vec(),
        ..EvaluationConfig::default()
    };
    let report = Measured::new(set.clone(), None, &config)?.report()?;
    for (name, value) in report.evaluation.metrics.iter() {
        println!("{name} {value:.4}");
    }

    // From a file, with a page that shows metrics, curves and ranked lists.
    let folder = std::env::temp_dir().join(format!("evaluate-embeddings-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let file = folder.join("birds.safetensors");
    set.save(&file)?;
    let options = EvaluateOptions {
        metrics: config.metrics,
        page: Some(folder.join("report.html")),
        ..EvaluateOptions::default()
    };
    let measured = gallerist::evaluate(&EvaluateInput::Embeddings(file.into()), &options, &mut ())?;
    assert_eq!(measured.report.evaluation.metrics, report.evaluation.metrics);
    std::fs::remove_dir_all(&folder)?;
    Ok(report.evaluation.metrics["recall@1"])
}

fn main() -> Result<(), Box<dyn Error>> {
    run()?;
    Ok(())
}
