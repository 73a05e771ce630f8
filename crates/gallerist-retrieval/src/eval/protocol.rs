//! The benchmarks' protocols by name.

use super::measure::Measure;
use crate::search::Metric;

/// Which images are queries, and what they are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Every image against all the others.
    EveryImage,
    /// Queries against a gallery.
    Split,
    /// Queries against a gallery; images of the query's identity from its own camera are skipped.
    Cameras,
}

/// The rules of a benchmark.
///
/// ```
/// use gallerist_retrieval::eval::{Protocol, Setting};
/// let market = Protocol::named("market1501").unwrap();
/// assert_eq!((market.setting, market.junk), (Setting::Cameras, Some("-1")));
/// let measures: Vec<String> = market.measures().iter().map(ToString::to_string).collect();
/// assert_eq!(measures, ["map_trapezoid", "map", "cmc@1", "cmc@5", "cmc@10"]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Protocol {
    /// The name on the command line.
    pub name: &'static str,
    /// The benchmark.
    pub title: &'static str,
    /// What is compared with what.
    pub setting: Setting,
    /// How rows are compared. On rows of length 1 the cosine ranks as the Euclidean distance does. Rows that a run or
    /// a file declares to be compared otherwise are compared that way.
    pub metric: Metric,
    /// The label of gallery images that are skipped for every query.
    pub junk: Option<&'static str>,
    /// The label of gallery images of other things, which no query looks for. They are of no common identity.
    pub distractors: Option<&'static str>,
    /// The sizes of the benchmark's test sets: queries and gallery.
    pub sizes: &'static [(usize, usize)],
    measures: &'static [&'static str],
}

impl Protocol {
    /// The protocol called `name`.
    pub fn named(name: &str) -> Option<&'static Self> {
        PROTOCOLS.iter().find(|protocol| protocol.name == name)
    }

    /// What is measured.
    pub fn measures(&self) -> Vec<Measure> {
        self.measures.iter().map(|name| name.parse().expect("a measure's name")).collect()
    }

    /// A remark where the sizes are not those of the benchmark's test set: figures on another set are
    /// not the benchmark's.
    pub fn size_note(&self, queries: usize, gallery: usize) -> Option<String> {
        if self.sizes.is_empty() || self.sizes.contains(&(queries, gallery)) {
            return None;
        }
        let sizes = self.sizes.iter().map(|&(queries, gallery)| match self.setting {
            Setting::EveryImage => format!("{queries} images"),
            Setting::Split | Setting::Cameras => format!("{queries} queries and a gallery of {gallery}"),
        });
        let wanted = sizes.collect::<Vec<_>>().join(" or ");
        let found = match self.setting {
            Setting::EveryImage => format!("{queries}"),
            Setting::Split | Setting::Cameras => format!("{queries} and {gallery}"),
        };
        Some(format!(
            "the test set of {} has {wanted}, this one {found}; the figures are not those of the benchmark",
            self.title
        ))
    }
}

const FIRST_TO_EIGHTH: &[&str] =
    &["recall@1", "recall@2", "recall@4", "recall@8", "precision@1", "map@r", "r_precision"];
const CAMERAS: &[&str] = &["map_trapezoid", "map", "cmc@1", "cmc@5", "cmc@10"];

const fn every_image(
    name: &'static str,
    title: &'static str,
    sizes: &'static [(usize, usize)],
    measures: &'static [&'static str],
) -> Protocol {
    Protocol {
        name,
        title,
        setting: Setting::EveryImage,
        metric: Metric::Cosine,
        junk: None,
        distractors: None,
        sizes,
        measures,
    }
}

const fn cameras(
    name: &'static str,
    title: &'static str,
    junk: Option<&'static str>,
    sizes: &'static [(usize, usize)],
) -> Protocol {
    Protocol { setting: Setting::Cameras, junk, ..every_image(name, title, sizes, CAMERAS) }
}

/// The label of junk in the protocols that have junk.
pub const JUNK: &str = "-1";

/// All protocols.
pub const PROTOCOLS: &[Protocol] = &[
    every_image("cub200", "CUB-200-2011", &[(5_924, 5_924)], FIRST_TO_EIGHTH),
    every_image("cars196", "Cars196", &[(8_131, 8_131)], FIRST_TO_EIGHTH),
    every_image(
        "sop",
        "Stanford Online Products",
        &[(60_502, 60_502)],
        &["recall@1", "recall@10", "recall@100", "recall@1000", "precision@1", "map@r", "r_precision"],
    ),
    Protocol {
        setting: Setting::Split,
        ..every_image(
            "inshop",
            "In-shop Clothes",
            &[(14_218, 12_612)],
            &["recall@1", "recall@10", "recall@20", "recall@30", "recall@40", "recall@50"],
        )
    },
    Protocol {
        setting: Setting::Split,
        ..every_image(
            "consumer_to_shop",
            "DeepFashion consumer-to-shop",
            &[],
            &["recall@1", "recall@20", "map"],
        )
    },
    // The folder has 19,732 gallery images; 3,819 of them are junk.
    Protocol {
        distractors: Some("0000"),
        ..cameras("market1501", "Market-1501", Some(JUNK), &[(3_368, 19_732), (3_368, 15_913)])
    },
    cameras("duke", "DukeMTMC-reID", None, &[(2_228, 17_661)]),
    cameras("cuhk03", "CUHK03-NP", None, &[(1_400, 5_332), (1_400, 5_328)]),
    // Image to image. The benchmark also knows tracks of images.
    cameras("veri", "VeRi-776", None, &[(1_678, 11_579)]),
    every_image("omniglot", "Omniglot", &[(13_180, 13_180)], FIRST_TO_EIGHTH),
    every_image("mnist", "MNIST", &[(10_000, 10_000)], FIRST_TO_EIGHTH),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_measures_exist() {
        for (at, protocol) in PROTOCOLS.iter().enumerate() {
            assert!(!protocol.measures().is_empty());
            assert!(protocol.junk.is_none_or(|junk| junk == JUNK), "shards are asked for this label only");
            assert_eq!(PROTOCOLS.iter().position(|other| other.name == protocol.name), Some(at));
        }
    }

    #[test]
    fn other_sizes_than_the_benchmarks_are_remarked() {
        let cub = Protocol::named("cub200").unwrap();
        assert_eq!(cub.size_note(5_924, 5_924), None);
        assert_eq!(
            cub.size_note(3_043, 3_043).unwrap(),
            "the test set of CUB-200-2011 has 5924 images, this one 3043; the figures are not those of \
             the benchmark"
        );
        assert!(Protocol::named("inshop").unwrap().size_note(10, 20).unwrap().contains("10 and 20"));
        assert_eq!(Protocol::named("consumer_to_shop").unwrap().size_note(1, 1), None);
    }
}
