//! `layout EMBEDDINGS OUT.npy [STEPS]`: t-SNE of the rows of a file, the seconds on stderr.

use std::time::Instant;

use gallerist_map::{MapMethod, Tsne, layout};
use gallerist_retrieval::{EmbeddingSet, Matrix, file};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, embeddings, out, steps @ ..] = &arguments[..] else {
        return Err("wanted EMBEDDINGS OUT.npy [STEPS]".into());
    };
    let mut options = Tsne::default();
    if let [steps] = steps {
        options.steps = steps.parse()?;
    }
    let rows = EmbeddingSet::load(embeddings)?.embeddings;
    let start = Instant::now();
    let map = layout(&rows, &MapMethod::Tsne(options), &mut |_, _| ())?;
    eprintln!("{:.3}", start.elapsed().as_secs_f64());
    let points = Matrix::new(rows.rows(), 2, map.points.into_iter().flatten().collect())?;
    file::npy::write_f32(out, &points)?;
    Ok(())
}
