//! The files of TensorBoard's Embedding Projector: rows, labels, thumbnails.

use std::path::Path;

use gallerist_retrieval::columns::Column;
use gallerist_retrieval::{EmbeddingSet, write_atomically};
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
    gallerist_util::files::create_dir_all(&folder).map_err(|source| Error::Io {
        action: "create",
        path: folder.clone(),
        source,
    })?;
    let source = Source::of_run(run.path())?;
    let points = source.points(Points::All)?;
    let embeddings = source.rows_of(&points, false);
    let rows = points.len();
    write_rows(&folder.join("tensors.tsv"), rows, |row| embeddings.row(row))?;
    let has_metadata = write_metadata(&source, &points, &folder.join("metadata.tsv"))?;
    let fits = |&side: &usize| (side * (rows as f64).sqrt().ceil() as usize) <= LONGEST;
    let sprite = TILES.into_iter().find(fits).and_then(|side| sprite(&source, &points, side));
    if let Some(sprite) = &sprite {
        write_atomically(folder.join("sprite.png"), |file| file.write_all(sprite.picture.bytes()))?;
    }
    write_config(&folder, "test images", has_metadata, sprite.map(|sprite| sprite.tile))
}

/// Writes `tensors.tsv`, `metadata.tsv` and `projector_config.pbtxt` of a set into a folder, for TensorBoard and for
/// <https://projector.tensorflow.org>. The metadata are labels, paths, cameras and further columns.
///
/// # Example
///
/// ```no_run
/// use gallerist::retrieval::EmbeddingSet;
///
/// let set = EmbeddingSet::load("photos.safetensors")?;
/// gallerist::write_projector_files(&set, std::path::Path::new("projector"))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// When a file cannot be written.
pub fn write_projector_files(set: &EmbeddingSet, folder: &Path) -> Result<()> {
    gallerist_util::files::create_dir_all(folder).map_err(|source| Error::Io {
        action: "create",
        path: folder.to_owned(),
        source,
    })?;
    let rows = set.embeddings.rows();
    write_rows(&folder.join("tensors.tsv"), rows, |row| set.embeddings.row(row))?;
    let lists = [("label", &set.labels), ("path", &set.paths), ("camera", &set.cameras)];
    let lists: Vec<_> = lists.into_iter().filter_map(|(name, list)| Some((name, list.as_ref()?))).collect();
    let mut names: Vec<String> = lists.iter().map(|(name, _)| (*name).to_owned()).collect();
    names.extend(set.columns.names().map(plain));
    if !names.is_empty() {
        write_atomically(folder.join("metadata.tsv"), |file| {
            if names.len() > 1 {
                writeln!(file, "{}", names.join("\t"))?;
            }
            for row in 0..rows {
                let of_lists = lists.iter().map(|(_, list)| plain(&list[row]));
                let value = |column: &Column| column.value(row).map(|value| plain(&value.to_string()));
                let of_columns = set.columns.iter().map(|column| value(column).unwrap_or_default());
                writeln!(file, "{}", of_lists.chain(of_columns).collect::<Vec<_>>().join("\t"))?;
            }
            Ok(())
        })?;
    }
    write_config(folder, "embeddings", !names.is_empty(), None)
}

/// Text in one cell of a table.
fn plain(text: &str) -> String {
    text.replace(['\t', '\n', '\r'], " ")
}

fn write_rows<'a>(path: &Path, rows: usize, row: impl Fn(usize) -> &'a [f32]) -> Result<()> {
    Ok(write_atomically(path, |file| {
        for at in 0..rows {
            let values: Vec<String> = row(at).iter().map(f32::to_string).collect();
            writeln!(file, "{}", values.join("\t"))?;
        }
        Ok(())
    })?)
}

/// Names the other files; `sprite` is the side of a thumbnail.
fn write_config(folder: &Path, name: &str, has_metadata: bool, sprite: Option<u32>) -> Result<()> {
    let mut config = format!("embeddings {{\n  tensor_name: \"{name}\"\n  tensor_path: \"tensors.tsv\"\n");
    if has_metadata {
        config.push_str("  metadata_path: \"metadata.tsv\"\n");
    }
    if let Some(side) = sprite {
        let side = format!("single_image_dim: {side}");
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
