//! Images that two sources have.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::image_source::ImageSource;
use super::record::ImageRecord;
use crate::error::Error;
use crate::text::counted;

/// Refuses an image that two sources have: the same source twice, one folder inside another, two manifests that list
/// the same file. Links to folders are followed, links to single files are not.
pub(super) fn refuse(sources: &[Arc<dyn ImageSource>], records: &[(u32, ImageRecord)]) -> Result<(), Error> {
    if sources.len() < 2 {
        return Ok(());
    }
    let mut folders: HashMap<(u32, &str), PathBuf> = HashMap::new();
    let mut first: HashMap<PathBuf, u32> = HashMap::with_capacity(records.len());
    // By the later and the earlier source: the images of both, and one of them.
    let mut repeated: HashMap<(u32, u32), (usize, &str)> = HashMap::new();
    for (source, record) in records {
        let (folder, name) = record.path.rsplit_once('/').unwrap_or(("", &record.path));
        let folder = folders
            .entry((*source, folder))
            .or_insert_with(|| real_folder(sources[*source as usize].root(), folder));
        let earlier = *first.entry(folder.join(name)).or_insert(*source);
        if earlier != *source {
            repeated.entry((*source, earlier)).or_insert((0, &record.path)).0 += 1;
        }
    }
    let Some((&(later, earlier), &(count, example))) = repeated.iter().min_by_key(|(pair, _)| **pair) else {
        return Ok(());
    };
    let name = |source: u32| sources[source as usize].name().to_owned();
    let images = records.iter().filter(|(source, _)| *source == later).count();
    let is = if count == 1 { "is" } else { "are" };
    Err(Error::Source {
        name: name(later),
        problem: format!(
            "{count} of its {} {is} also in `{}`, `{example}` for one; an image that is there twice is its own best \
             match",
            counted(images, "image", "images"),
            name(earlier)
        ),
        hint: Some("give every folder, archive and list once, and no folder inside another".to_owned()),
    })
}

/// The folder of images below the root of a source, with links resolved; the same for all spellings of a path. Of an
/// archive, the path in it follows that of the archive.
fn real_folder(root: &Path, folder: &str) -> PathBuf {
    let root = if root.as_os_str().is_empty() { Path::new(".") } else { root };
    let joined = root.join(folder);
    joined.canonicalize().or_else(|_| root.canonicalize().map(|root| root.join(folder))).unwrap_or(joined)
}
