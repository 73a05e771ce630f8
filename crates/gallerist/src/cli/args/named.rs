//! Option values that the library names: what it adds to its lists is an option value at once.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use crate::retrieval::eval::Measure;
use crate::retrieval::index::{IndexKind, index_kinds};
use crate::retrieval::search::Metric;

/// The kinds of index on this machine.
pub(super) fn kinds() -> impl TypedValueParser<Value = IndexKind> {
    PossibleValuesParser::new(index_kinds().map(|kind| PossibleValue::new(kind.name).help(kind.help)))
        .map(|name| index_kinds().find(|kind| kind.name == name).expect("the parser admits only kinds"))
}

/// How rows are compared.
pub(super) fn metrics() -> impl TypedValueParser<Value = Metric> {
    let value = |metric: Metric| PossibleValue::new(metric.option()).help(metric.help());
    PossibleValuesParser::new(Metric::ALL.map(value)).map(|name| {
        let named = Metric::ALL.into_iter().find(|metric| metric.option() == name);
        named.expect("the parser admits only metrics")
    })
}

/// The help of `--metrics`.
pub(super) fn help_of_measures() -> String {
    let names = Measure::names().join(", ");
    let names = names.replace("precision_at_recall@K", "precision_at_recall@K (K in percent)");
    format!(
        "Metrics: {names} [default: those of the protocol, else recall@1,2,4,8, precision@1, map@r, r_precision]"
    )
}
