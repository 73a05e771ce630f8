//! Clusters as contact sheets.

use gallerist_report::figure::{self, Cluster, Figure};
use gallerist_retrieval::cluster::{KMeans, kmeans};
use gallerist_train::Result;

use super::source::{Points, Source};
use super::text::fault;

/// Side of a picture in pixels: two per unit of the drawing.
const PICTURE: usize = 104;
/// Rows of pictures of a cluster.
const ROWS: usize = 2;

/// Contact sheets of k-means clusters: as many clusters as classes (or `clusters`), of which
/// the `shown` with the smallest fraction of their most frequent class are drawn. With queries and a gallery, the
/// gallery is clustered, without junk and distractors.
///
/// # Errors
///
/// When there are no labels, for no clusters to draw, or more clusters than rows.
pub fn clusters(source: &Source, clusters: Option<usize>, shown: usize, seed: u64) -> Result<Figure> {
    const WHAT: &str = "a contact sheet of clusters";
    source.check_labels(WHAT)?;
    if shown == 0 {
        return Err(fault(WHAT, "needs 1 cluster or more", None));
    }
    let points = source.points(Points::Gallery)?;
    let Some(encoded) = source.classes_of(&points).filter(|encoded| !encoded.ids.is_empty()) else {
        return Err(fault(WHAT, "needs images that are neither junk nor distractors", None));
    };
    let embeddings = source.rows_of(&points, true);
    let count = clusters.unwrap_or(encoded.names.len());
    let clustering = kmeans(&embeddings, &KMeans::faiss20(count, seed))?;
    let distance = |row: usize| {
        let centre = clustering.centres.row(clustering.assignments[row] as usize);
        embeddings.row(row).iter().zip(centre).map(|(a, b)| (a - b) * (a - b)).sum::<f32>()
    };
    let mut members: Vec<Vec<usize>> = vec![Vec::new(); count];
    clustering.assignments.iter().enumerate().for_each(|(row, &to)| members[to as usize].push(row));
    let mut sheets: Vec<(f64, usize, Vec<usize>, u32)> = Vec::new();
    for (cluster, mut rows) in members.into_iter().enumerate() {
        let Some((class, most)) = most_frequent(rows.iter().map(|&row| encoded.ids[row])) else { continue };
        rows.sort_by(|&a, &b| distance(a).total_cmp(&distance(b)).then(a.cmp(&b)));
        sheets.push((most as f64 / rows.len() as f64, cluster, rows, class));
    }
    let mean = sheets.iter().map(|sheet| sheet.0 * sheet.2.len() as f64).sum::<f64>() / points.len() as f64;
    // Of equally mixed clusters, the larger comes first.
    sheets.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.2.len().cmp(&a.2.len())).then(a.1.cmp(&b.1)));
    let pictures = source.items().pictures();
    let drawn: Vec<Cluster> = sheets
        .iter()
        .take(shown)
        .map(|(purity, cluster, rows, class)| {
            let mut classes: Vec<u32> = rows.iter().map(|&row| encoded.ids[row]).collect();
            classes.sort_unstable();
            classes.dedup();
            Cluster {
                title: format!("Cluster {cluster}: {}", encoded.names[*class as usize]),
                note: format!(
                    "{} images of {} classes, {:.0} % of this one. Nearest to the centre first.",
                    rows.len(),
                    classes.len(),
                    100.0 * purity
                ),
                pictures: (rows.iter().take(ROWS * 20))
                    .map(|&row| {
                        (pictures.thumbnail(points[row].row, PICTURE), Some(encoded.ids[row] == *class))
                    })
                    .collect(),
            }
        })
        .collect();
    let which = match source.gallery {
        None => format!("{} images", points.len()),
        Some(_) => format!("{} images of the gallery (no junk, no distractors)", points.len()),
    };
    let note = format!(
        "{which}; k-means with {count} clusters (20 iterations, seed {seed}), the most mixed first. Tick: of the \
         cluster's most frequent class. Purity of all clusters: {:.1} %.{}",
        100.0 * mean,
        source.part()
    );
    Ok(figure::clusters(&format!("Clusters of {}", source.name), &note, &drawn, ROWS))
}

/// The most frequent class (ties: the lower one) and its count.
fn most_frequent(classes: impl Iterator<Item = u32>) -> Option<(u32, usize)> {
    let mut counts = std::collections::BTreeMap::<u32, usize>::new();
    classes.for_each(|class| *counts.entry(class).or_default() += 1);
    counts.into_iter().rev().max_by_key(|&(_, count)| count)
}
