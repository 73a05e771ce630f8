//! What is in a set: counts, broken files, duplicates.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::parallel::each_in_parallel;
use crate::source::{DatasetLayout, ImageSet, is_training_split};

/// What [`inspect`] found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Inspection {
    /// What the set was opened from.
    pub source: String,
    /// How it is laid out, where all sources are laid out alike.
    pub layout: Option<DatasetLayout>,
    /// Images, broken ones among them.
    pub images: usize,
    /// Classes; where images have several labels, the different sets of labels. Junk and distractors of
    /// person re-identification are none ([`DatasetLayout::is_class`]).
    pub classes: usize,
    /// Images whose label is no class: junk and distractors.
    pub images_of_no_class: usize,
    /// Labels, where images have several.
    pub labels: Option<usize>,
    /// Cameras, where they are known.
    pub cameras: Option<usize>,
    /// Images with a bounding box.
    pub bounding_boxes: usize,
    /// Files that are no images by their extension.
    pub skipped_files: usize,
    /// The splits in the order of their names; empty where there are none.
    pub splits: Vec<Split>,
    /// Classes by their number of images; empty without classes.
    pub histogram: Vec<Bin>,
    /// Classes with images both for training and for anything else; `None` without splits or classes.
    pub shared_classes: Option<usize>,
    /// Folders with images that are no part of the set, because the folders next to them are splits.
    pub left_out: Vec<LeftOut>,
    /// Counts that differ from the published ones, and other remarks on the source.
    pub notes: Vec<String>,
    /// Annotated images that are not there.
    pub missing: Vec<String>,
    /// Images that cannot be read or decoded, and why.
    pub broken: Vec<String>,
    /// Images that have the same pixels as one before them.
    pub duplicates: usize,
    /// Groups of images with the same pixels and different classes. Images without a class, junk among them, do not count.
    pub conflicts: usize,
    /// Images outside the training split with the same pixels as a training image.
    pub leaks: Vec<Leak>,
}

/// One split of a set.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Split {
    /// Its name.
    pub name: String,
    /// Its images.
    pub images: usize,
    /// Classes that it has an image of.
    pub classes: usize,
    /// Images of the smallest and the largest class; 0 without classes.
    pub images_per_class: [usize; 2],
    /// Its classes that have training images, too; `None` for the training split itself, where there is none, and
    /// without classes.
    pub trained_classes: Option<usize>,
}

/// A folder that is no part of the set.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LeftOut {
    /// Its path in the source.
    pub folder: String,
    /// The images in it.
    pub images: usize,
}

/// A line of the histogram.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bin {
    /// Least and largest number of images of a class.
    pub images: [usize; 2],
    /// Classes with so many.
    pub classes: usize,
}

/// The same picture in training and elsewhere.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Leak {
    /// Where the training image is.
    pub training: String,
    /// Where the other is.
    pub other: String,
    /// The other's split.
    pub split: String,
    /// The files are the same to the byte; else only their pixels.
    pub same_file: bool,
}

impl Inspection {
    /// Whether nothing is broken or missing, and no test image is a training image.
    pub fn is_clean(&self) -> bool {
        self.broken.is_empty() && self.missing.is_empty() && self.leaks.is_empty()
    }
}

/// Counts a set, decodes every image, and looks for exact duplicates.
///
/// With `test`, every image of `set` counts as training and every image of `test` as test; otherwise
/// the set's own splits decide. Images are read on `threads` threads (0 counts as 1); `progress` gets
/// the number of images done. Duplicates are found by SHA-256 of the decoded pixels, cut to 128 bits.
///
/// ```no_run
/// let set = gallerist_data::ImageSet::open("CUB_200_2011")?;
/// let found = gallerist_data::inspect(&set, None, 2, &|done| eprint!("\r{done}"));
/// println!("{} images, {} broken, {} leaks", found.images, found.broken.len(), found.leaks.len());
/// # Ok::<(), gallerist_data::Error>(())
/// ```
pub fn inspect(
    set: &ImageSet,
    test: Option<&ImageSet>,
    threads: usize,
    progress: &(dyn Fn(usize) + Sync),
) -> Inspection {
    let parts: Vec<(Option<&str>, &ImageSet)> = match test {
        None => vec![(None, set)],
        Some(test) => vec![(Some("train"), set), (Some("test"), test)],
    };
    let images: Vec<Entry> = parts
        .iter()
        .flat_map(|&(part, set)| {
            (0..set.len()).map(move |index| Entry {
                set,
                index,
                split: part.or(set.split(index)),
                class: set
                    .labels()
                    .map(|labels| set.class_names()[labels[index] as usize].as_str())
                    .filter(|label| is_class(set, label)),
            })
        })
        .collect();
    let prints = each_in_parallel(images.len(), threads, progress, |i| fingerprint(&images[i]));
    let per_split = per_split(&images);
    let class_sizes = sizes(images.iter());
    let sets = || parts.iter().map(|(_, set)| *set);
    let names = |of: fn(&ImageSet) -> &[String]| sets().flat_map(of).collect::<BTreeSet<_>>().len();
    let (duplicates, conflicts, leaks) = compare(&images, &prints);
    Inspection {
        source: sets().map(ImageSet::name).collect::<Vec<_>>().join(" and "),
        layout: sets().map(ImageSet::layout).reduce(|a, b| a.filter(|_| a == b)).flatten(),
        images: images.len(),
        classes: sets()
            .flat_map(|set| set.class_names().iter().filter(|label| is_class(set, label)))
            .collect::<BTreeSet<_>>()
            .len(),
        images_of_no_class: images.iter().filter(|e| e.class.is_none() && e.set.labels().is_some()).count(),
        labels: sets().any(|s| s.label_sets().is_some()).then(|| names(ImageSet::label_names)),
        cameras: sets().all(|s| s.cameras().is_some()).then(|| names(|s| s.cameras().unwrap_or(&[]))),
        bounding_boxes: images.iter().filter(|e| e.set.bounding_box(e.index).is_some()).count(),
        skipped_files: sets().map(ImageSet::skipped).sum(),
        shared_classes: (per_split.len() > 1 && !class_sizes.is_empty()).then(|| shared_classes(&images)),
        splits: per_split,
        left_out: sets()
            .flat_map(ImageSet::left_out)
            .map(|(folder, images)| LeftOut { folder: folder.clone(), images: *images })
            .collect(),
        histogram: histogram(class_sizes.values().copied()),
        notes: sets().flat_map(|s| s.notes().to_vec()).collect(),
        missing: sets().flat_map(|s| s.missing().to_vec()).collect(),
        broken: prints.into_iter().filter_map(Result::err).collect(),
        duplicates,
        conflicts,
        leaks,
    }
}

/// Whether a label of the set is a class.
fn is_class(set: &ImageSet, label: &str) -> bool {
    set.layout().is_none_or(|layout| layout.is_class(label))
}

struct Entry<'a> {
    set: &'a ImageSet,
    index: usize,
    split: Option<&'a str>,
    /// `None` also for a label that is no class.
    class: Option<&'a str>,
}

impl Entry<'_> {
    fn is_training(&self) -> bool {
        self.split.is_some_and(is_training_split)
    }
}

/// What two images have in common if they are the same.
struct Print {
    pixels: u128,
    file: u128,
}

fn fingerprint(entry: &Entry) -> Result<Print, String> {
    let short = |hash: Sha256| {
        let digest = hash.finalize();
        u128::from_le_bytes(digest[..16].try_into().expect("16 of 32 bytes"))
    };
    let content = entry.set.load(entry.index).map_err(|e| e.to_string())?;
    let file = Sha256::new_with_prefix(content.bytes());
    let image = entry.set.decode_loaded(entry.index, content, None).map_err(|e| e.to_string())?;
    let mut hash = Sha256::new();
    for side in [image.width(), image.height(), image.channels()] {
        hash.update((side as u64).to_le_bytes());
    }
    hash.update(image.pixels());
    Ok(Print { pixels: short(hash), file: short(file) })
}

/// Duplicates, groups of different classes, and leaks.
fn compare(images: &[Entry], prints: &[Result<Print, String>]) -> (usize, usize, Vec<Leak>) {
    let mut groups: BTreeMap<u128, Vec<(&Entry, &Print)>> = BTreeMap::new();
    for (entry, print) in images.iter().zip(prints) {
        if let Ok(print) = print {
            groups.entry(print.pixels).or_default().push((entry, print));
        }
    }
    let mut same: Vec<_> = groups.into_values().filter(|group| group.len() > 1).collect();
    // In the order of the set, not of the hashes.
    same.sort_by_key(|group| {
        let first = group[0].0;
        (first.set.name(), first.index)
    });
    let duplicates = same.iter().map(|group| group.len() - 1).sum();
    let of_several_classes = same.iter().filter(|group| {
        let mut classes = group.iter().filter_map(|(entry, _)| entry.class);
        classes.next().is_some_and(|first| classes.any(|class| class != first))
    });
    let conflicts = of_several_classes.count();
    let mut leaks = Vec::new();
    for group in &same {
        let Some((training, print)) = group.iter().find(|(e, _)| e.is_training()) else { continue };
        for (other, p) in group.iter().filter(|(e, _)| e.split.is_some() && !e.is_training()) {
            leaks.push(Leak {
                training: training.set.location(training.index),
                other: other.set.location(other.index),
                split: other.split.unwrap_or_default().to_owned(),
                same_file: p.file == print.file,
            });
        }
    }
    (duplicates, conflicts, leaks)
}

/// Images of each class.
fn sizes<'a>(images: impl Iterator<Item = &'a Entry<'a>>) -> BTreeMap<&'a str, usize> {
    images.filter_map(|e| e.class).fold(BTreeMap::new(), |mut sizes, class| {
        *sizes.entry(class).or_default() += 1;
        sizes
    })
}

fn per_split(images: &[Entry]) -> Vec<Split> {
    let trained: BTreeSet<&str> = images.iter().filter(|e| e.is_training()).filter_map(|e| e.class).collect();
    let names: BTreeSet<&str> = images.iter().filter_map(|e| e.split).collect();
    names
        .into_iter()
        .map(|name| {
            let of = || images.iter().filter(move |e| e.split == Some(name));
            let sizes = sizes(of());
            let least = sizes.values().min().copied().unwrap_or(0);
            Split {
                name: name.to_owned(),
                images: of().count(),
                classes: sizes.len(),
                images_per_class: [least, sizes.values().max().copied().unwrap_or(0)],
                trained_classes: (!trained.is_empty() && of().any(|e| !e.is_training() && e.class.is_some()))
                    .then(|| sizes.keys().filter(|class| trained.contains(**class)).count()),
            }
        })
        .collect()
}

fn shared_classes(images: &[Entry]) -> usize {
    let classes = |training: bool| -> BTreeSet<&str> {
        let of = images.iter().filter(|e| e.split.is_some() && e.is_training() == training);
        of.filter_map(|e| e.class).collect()
    };
    classes(true).intersection(&classes(false)).count()
}

/// Bins that begin at 1, 2, 3, 4, 5, 10, 20, 50, 100, 200, …, from the smallest class to the largest.
fn histogram(sizes: impl Iterator<Item = usize>) -> Vec<Bin> {
    let sizes: Vec<usize> = sizes.collect();
    let (Some(&least), Some(&most)) = (sizes.iter().min(), sizes.iter().max()) else { return Vec::new() };
    let mut starts = vec![1, 2, 3, 4];
    let mut unit = 1usize;
    while *starts.last().expect("never empty") <= most {
        starts.extend([5, 10, 20].map(|n| n * unit));
        unit = unit.saturating_mul(10);
    }
    let bins = starts.windows(2).map(|edges| Bin {
        images: [edges[0], edges[1] - 1],
        classes: sizes.iter().filter(|&&n| edges[0] <= n && n < edges[1]).count(),
    });
    bins.filter(|bin| bin.images[1] >= least && bin.images[0] <= most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_hold_every_class_once_and_reach_from_the_smallest_to_the_largest() {
        let bins = |sizes: &[usize]| -> Vec<([usize; 2], usize)> {
            histogram(sizes.iter().copied()).into_iter().map(|b| (b.images, b.classes)).collect()
        };
        assert_eq!(bins(&[]), []);
        assert_eq!(bins(&[1]), [([1, 1], 1)]);
        assert_eq!(bins(&[4, 5, 9, 10]), [([4, 4], 1), ([5, 9], 2), ([10, 19], 1)]);
        assert_eq!(bins(&[20, 200]), [([20, 49], 1), ([50, 99], 0), ([100, 199], 0), ([200, 499], 1)]);
        assert_eq!(bins(&[4999, 5000]), [([2000, 4999], 1), ([5000, 9999], 1)]);
    }
}
