//! The list of measures. Adding one means a file, a variant here and its tests.

use std::fmt;
use std::str::FromStr;

use super::{
    Gain, RelevantRanks, average_precision, average_precision_trapezoid, cmc_at_k, map_at_r, ndcg_at,
    precision_at_k, precision_at_recall, r_precision, recall_at_k, reciprocal_rank,
};
use crate::{Error, Result};

/// One number per query, from the ranks of its relevant items.
///
/// The text form is the name in reports: `recall@1`, `precision@1`, `map@r`, `r_precision`,
/// `map`, `map_trapezoid`, `mrr`, `ndcg`, `ndcg@10`, `ndcg_exp`, `ndcg_exp@10`, `cmc@1`, `precision_at_recall@50`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Measure {
    /// [`recall_at_k`].
    Recall(usize),
    /// [`precision_at_k`].
    Precision(usize),
    /// [`map_at_r`].
    MapAtR,
    /// [`r_precision`].
    RPrecision,
    /// [`average_precision`], the form called `sum`.
    Map,
    /// [`average_precision_trapezoid`], that of the Market-1501 script.
    MapTrapezoid,
    /// [`reciprocal_rank`].
    ReciprocalRank,
    /// [`ndcg_at`]: the gain of a grade, and the last rank that counts, where there is one.
    Ndcg(Gain, Option<usize>),
    /// [`cmc_at_k`].
    Cmc(usize),
    /// [`precision_at_recall`], at a recall in per cent.
    PrecisionAtRecall(usize),
}

impl Measure {
    /// The value for one query; 0 where nothing is relevant.
    pub fn of(self, ranks: &RelevantRanks) -> f64 {
        match self {
            Self::Recall(k) => recall_at_k(ranks, k),
            Self::Precision(k) => precision_at_k(ranks, k),
            Self::MapAtR => map_at_r(ranks),
            Self::RPrecision => r_precision(ranks),
            Self::Map => average_precision(ranks),
            Self::MapTrapezoid => average_precision_trapezoid(ranks),
            Self::ReciprocalRank => reciprocal_rank(ranks),
            Self::Ndcg(gain, k) => ndcg_at(ranks, gain, k),
            Self::Cmc(k) => cmc_at_k(ranks, k),
            Self::PrecisionAtRecall(percent) => precision_at_recall(ranks, percent),
        }
    }

    /// Whether a query without any relevant item counts as 0 in the mean, or is left out of it.
    pub fn counts_queries_without_match(self) -> bool {
        matches!(self, Self::Recall(_) | Self::Precision(_) | Self::ReciprocalRank)
    }

    /// The names of all measures, `K` standing for a number of 1 or more.
    pub const NAMES: [&str; 13] = [
        "recall@K",
        "precision@K",
        "map@r",
        "r_precision",
        "map",
        "map_trapezoid",
        "mrr",
        "ndcg",
        "ndcg@K",
        "ndcg_exp",
        "ndcg_exp@K",
        "cmc@K",
        "precision_at_recall@K",
    ];

    pub(super) fn check(self) -> Result<()> {
        match self {
            Self::Recall(0) | Self::Precision(0) | Self::Cmc(0) | Self::Ndcg(_, Some(0)) => {
                Err(Error::Option {
                    option: "the K of a metric",
                    wanted: "at least 1",
                    found: self.to_string(),
                })
            }
            Self::PrecisionAtRecall(percent) if !(1..=100).contains(&percent) => Err(Error::Option {
                option: "the recall of a metric, in per cent,",
                wanted: "from 1 to 100",
                found: self.to_string(),
            }),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Recall(k) => write!(f, "recall@{k}"),
            Self::Precision(k) => write!(f, "precision@{k}"),
            Self::MapAtR => f.write_str("map@r"),
            Self::RPrecision => f.write_str("r_precision"),
            Self::Map => f.write_str("map"),
            Self::MapTrapezoid => f.write_str("map_trapezoid"),
            Self::ReciprocalRank => f.write_str("mrr"),
            Self::Ndcg(gain, k) => {
                f.write_str(if *gain == Gain::Linear { "ndcg" } else { "ndcg_exp" })?;
                k.map_or(Ok(()), |k| write!(f, "@{k}"))
            }
            Self::Cmc(k) => write!(f, "cmc@{k}"),
            Self::PrecisionAtRecall(percent) => write!(f, "precision_at_recall@{percent}"),
        }
    }
}

impl FromStr for Measure {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let at = |name: &str| text.strip_prefix(name)?.parse::<usize>().ok();
        let measure = match text {
            "map@r" => Some(Self::MapAtR),
            "r_precision" => Some(Self::RPrecision),
            "map" => Some(Self::Map),
            "map_trapezoid" => Some(Self::MapTrapezoid),
            "mrr" => Some(Self::ReciprocalRank),
            "ndcg" => Some(Self::Ndcg(Gain::Linear, None)),
            "ndcg_exp" => Some(Self::Ndcg(Gain::Exponential, None)),
            _ => None
                .or_else(|| at("recall@").map(Self::Recall))
                .or_else(|| at("precision@").map(Self::Precision))
                .or_else(|| at("cmc@").map(Self::Cmc))
                .or_else(|| at("precision_at_recall@").map(Self::PrecisionAtRecall))
                .or_else(|| at("ndcg@").map(|k| Self::Ndcg(Gain::Linear, Some(k))))
                .or_else(|| at("ndcg_exp@").map(|k| Self::Ndcg(Gain::Exponential, Some(k)))),
        };
        let measure = measure.ok_or_else(|| Error::Option {
            option: "a metric",
            wanted: "one of recall@K, precision@K, map@r, r_precision, map, map_trapezoid, mrr, \
                     ndcg, ndcg@K, ndcg_exp, ndcg_exp@K, cmc@K, precision_at_recall@K",
            found: format!("`{text}`"),
        })?;
        measure.check()?;
        Ok(measure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_reads_back_as_its_measure() {
        for measure in [
            Measure::Recall(1000),
            Measure::Precision(1),
            Measure::MapAtR,
            Measure::RPrecision,
            Measure::Map,
            Measure::MapTrapezoid,
            Measure::ReciprocalRank,
            Measure::Ndcg(Gain::Linear, None),
            Measure::Ndcg(Gain::Linear, Some(10)),
            Measure::Ndcg(Gain::Exponential, None),
            Measure::Ndcg(Gain::Exponential, Some(3)),
            Measure::Cmc(5),
            Measure::PrecisionAtRecall(50),
        ] {
            assert_eq!(measure.to_string().parse::<Measure>().unwrap(), measure);
        }
        for name in Measure::NAMES {
            assert!(name.replace('K', "7").parse::<Measure>().is_ok(), "{name}");
        }
        for name in [
            "recall",
            "ndcg@0",
            "recall@",
            "recall@0",
            "recall@x",
            "cmc@-1",
            "MAP@R",
            "precision_at_recall@101",
            "",
        ] {
            assert!(name.parse::<Measure>().is_err(), "{name}");
        }
    }

    #[test]
    fn a_query_without_a_relevant_item_measures_zero() {
        let none = RelevantRanks::new(&[]);
        for name in [
            "recall@3",
            "precision@3",
            "map@r",
            "r_precision",
            "map",
            "map_trapezoid",
            "mrr",
            "ndcg",
            "ndcg_exp@3",
            "cmc@3",
            "precision_at_recall@3",
        ] {
            assert_eq!(name.parse::<Measure>().unwrap().of(&none), 0.0, "{name}");
        }
    }
}
