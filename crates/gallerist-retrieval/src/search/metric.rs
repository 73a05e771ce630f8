//! How two rows are compared: the list of metrics and their names.

use serde::{Deserialize, Serialize};

/// How two rows are compared.
///
/// The list is closed. The fast kernels of exact search multiply rows, and every part that uses their
/// products depends on the relation of product and distance: the error bounds of compact rows, the
/// graph's closeness, re-ranking, the ties of an evaluation. A new metric that is an inner product with
/// a bias per row is a variant here with an arm in the functions of this file and of the parts that
/// match on it, and an entry in the table of words. Another distance can be used without
/// a change of this crate in two ways: by a transformation of the rows (a Mahalanobis distance is the Euclidean distance
/// of rows times the square root of its matrix), or by an [`Index`](crate::index::Index) of its own, whose lists
/// [`evaluate_index`](crate::eval::evaluate_index) measures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// The inner product: larger is closer.
    InnerProduct,
    /// The inner product of the rows divided by their lengths: larger is closer. A row of zeros
    /// has the cosine 0 with every row.
    #[default]
    Cosine,
    /// The Euclidean distance: smaller is closer.
    ///
    /// Computed as `sqrt(|a|^2 + |b|^2 - 2ab)`, or from the differences where that loses too much:
    /// where the squared distance is below 1/16 of `|a|^2 + |b|^2`. Equal rows have distance 0.
    Euclidean,
}

/// What a metric is called.
struct Words {
    name: &'static str,
    option: &'static str,
    sentence: &'static str,
    score: &'static str,
    help: &'static str,
}

impl Metric {
    /// All metrics, in the order in which options list them.
    pub const ALL: [Self; 3] = [Self::Cosine, Self::Euclidean, Self::InnerProduct];

    const fn words(self) -> Words {
        match self {
            Self::Cosine => Words {
                name: "cosine",
                option: "cosine",
                sentence: "cosine",
                score: "cosine",
                help: "Cosine similarity: inner product of rows scaled to length 1",
            },
            Self::Euclidean => Words {
                name: "euclidean",
                option: "euclidean",
                sentence: "Euclidean distance",
                score: "distance",
                help: "Euclidean distance of the unchanged rows",
            },
            Self::InnerProduct => Words {
                name: "inner_product",
                option: "inner-product",
                sentence: "inner product",
                score: "inner product",
                help: "Inner product of the unchanged rows",
            },
        }
    }

    /// The name in run files, in headers and on the command line.
    ///
    /// ```
    /// use gallerist_retrieval::search::Metric;
    /// assert_eq!(Metric::named(Metric::Euclidean.name()), Some(Metric::Euclidean));
    /// ```
    pub const fn name(self) -> &'static str {
        self.words().name
    }

    /// The name as the value of an option.
    pub const fn option(self) -> &'static str {
        self.words().option
    }

    /// The help of the value of an option.
    pub const fn help(self) -> &'static str {
        self.words().help
    }

    /// What a user calls a score: `cosine`, `distance`, `inner product`.
    pub const fn score(self) -> &'static str {
        self.words().score
    }

    /// The metric called `name`, as files or as options of commands spell it: `inner_product` or `inner-product`.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|metric| metric.name() == name || metric.option() == name)
    }

    /// The metric that a file names, or what is wrong with the name.
    pub(crate) fn of_file(name: &str) -> std::result::Result<Self, String> {
        let known = || Self::ALL.map(|metric| format!("`{}`", metric.name())).join(", ");
        Self::named(name).ok_or_else(|| format!("its metric must be one of {}, `{name}` found", known()))
    }
}

/// The name in a sentence: `cosine`, `Euclidean distance`, `inner product`.
impl std::fmt::Display for Metric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.words().sentence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_files_and_of_options_are_both_read() {
        for metric in Metric::ALL {
            assert_eq!(Metric::named(metric.name()), Some(metric));
            assert_eq!(Metric::named(metric.option()), Some(metric));
        }
        let wanted = "its metric must be one of `cosine`, `euclidean`, `inner_product`, `l2` found";
        assert_eq!(Metric::of_file("l2").unwrap_err(), wanted);
    }
}
