//! The files of TensorBoard's Embedding Projector: rows, labels, thumbnails.

use std::path::Path;

use gallerist_retrieval::write_atomically;
use gallerist_train::RunDirectory;
use gallerist_train::{Error, Result};

use crate::plots::{Point, Points, Side, Source, sprite};

/// Possible sides of a thumbnail in pixels, the largest first.
const TILES: [usize; 6] = [64, 48, 32, 24, 16, 8];
/// The longest side of a sprite that the projector supports.
const LONGEST: usize = 8192;

/// Writes `tensors.tsv`, `metadata.tsv`, `sprite.png` and `projector_config.pbtxt` of a run's test
/// embeddings into its folder `tensorboard`.
///
/// Labels and thumbnails are omitted if there are none.
///
/// # Errors
///
/// When the run has no embeddings, or when a file cannot be written.
pub fn write_projector(run: &RunDirectory) -> Result<()> {
    let folder = run.tensorboard();
    std::fs::create_dir_all(&folder).map_err(|source| Error::Io {
        action: "create",
        path: folder.clone(),
        source,
    })?;
    let source = Source::of_run(run.path())?;
    let points = source.points(Points::All)?;
    let embeddings = source.rows_of(&points, false);
    let rows = points.len();
    write_atomically(folder.join("tensors.tsv"), |file| {
        for row in 0..rows {
            let values: Vec<String> = embeddings.row(row).iter().map(f32::to_string).collect();
            writeln!(file, "{}", values.join("\t"))?;
        }
        Ok(())
    })?;
    let mut config =
        String::from("embeddings {\n  tensor_name: \"test images\"\n  tensor_path: \"tensors.tsv\"\n");
    if write_metadata(&source, &points, &folder.join("metadata.tsv"))? {
        config.push_str("  metadata_path: \"metadata.tsv\"\n");
    }
    let fits = |&side: &usize| (side * (rows as f64).sqrt().ceil() as usize) <= LONGEST;
    let sprite = TILES.into_iter().find(fits).and_then(|side| sprite(&source, &points, side));
    if let Some(sprite) = sprite {
        write_atomically(folder.join("sprite.png"), |file| file.write_all(sprite.picture.bytes()))?;
        let side = format!("single_image_dim: {}", sprite.tile);
        config.push_str(&format!(
            "  sprite {{\n    image_path: \"sprite.png\"\n    {side}\n    {side}\n  }}\n"
        ));
    }
    config.push_str("}\n");
    write_atomically(folder.join("projector_config.pbtxt"), |file| file.write_all(config.as_bytes()))?;
    Ok(())
}

/// One line per row: its label, its path, or both with a header. Empty if there is neither.
fn write_metadata(source: &Source, points: &[Point], path: &Path) -> Result<bool> {
    let plain = |text: &String| text.replace(['\t', '\n', '\r'], " ");
    let both = |has: fn(&Side) -> bool| has(&source.queries) && has(source.items());
    let (labels, paths) = (both(|side| side.labels().is_some()), both(|side| side.paths.is_some()));
    let two_sides = source.gallery.is_some();
    let columns: Vec<&str> = [("label", labels), ("path", paths), ("set", two_sides)]
        .into_iter()
        .filter_map(|(name, there)| there.then_some(name))
        .collect();
    if columns.is_empty() {
        return Ok(false);
    }
    write_atomically(path, |file| {
        // The projector treats the first line as a header only if there are several columns.
        if columns.len() > 1 {
            writeln!(file, "{}", columns.join("\t"))?;
        }
        for &point in points {
            let side = source.side(point);
            let label = side.labels().filter(|_| labels).map(|all| plain(&all[point.row]));
            let path = side.paths.as_ref().filter(|_| paths).map(|all| plain(&all[point.row]));
            let set = two_sides.then(|| if point.gallery { "gallery" } else { "query" }.to_owned());
            let line: Vec<String> = [label, path, set].into_iter().flatten().collect();
            writeln!(file, "{}", line.join("\t"))?;
        }
        Ok(())
    })?;
    Ok(true)
}
