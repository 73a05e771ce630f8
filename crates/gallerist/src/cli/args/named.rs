//! Option values that the library names: what it adds to its lists is an option value at once.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use serde::Serialize;

use crate::network::Combine;
use crate::retrieval::cluster::Preset;
use crate::retrieval::eval::{Measure, Over, Pooling};
use crate::retrieval::index::{IndexKind, index_kinds};
use crate::retrieval::search::Metric;
use crate::train::CheckpointKind;

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

/// The values of an enum, by their names in run files.
fn values<T>(all: &'static [(T, &'static str)]) -> impl TypedValueParser<Value = T>
where
    T: Clone + Send + Sync + Serialize + 'static,
{
    fn name(value: &impl Serialize) -> String {
        let name = serde_json::to_value(value).expect("plain data");
        name.as_str().expect("a variant without fields").replace('_', "-")
    }
    PossibleValuesParser::new(all.iter().map(|(value, help)| PossibleValue::new(name(value)).help(*help)))
        .map(|given| {
            let named = all.iter().find(|(value, _)| name(value) == given);
            named.expect("the parser admits only these").0.clone()
        })
}

/// The checkpoints of a run.
pub(super) fn checkpoints() -> impl TypedValueParser<Value = CheckpointKind> {
    values(&[
        (CheckpointKind::Best, "The one with the best validation result"),
        (CheckpointKind::Last, "The one of the last step"),
    ])
}

/// How the outputs of several heads are combined.
pub(super) fn combinations() -> impl TypedValueParser<Value = Combine> {
    values(&[
        (Combine::ConcatThenNormalize, "Concatenate the outputs, then scale to length 1"),
        (Combine::NormalizeThenConcat, "Scale each output to length 1, then concatenate"),
    ])
}

/// How several query images become one query.
pub(super) fn poolings() -> impl TypedValueParser<Value = Pooling> {
    values(&[(Pooling::Average, "Mean of each dimension"), (Pooling::Max, "Maximum of each dimension")])
}

/// The variants of k-means.
pub(super) fn kmeans_presets() -> impl TypedValueParser<Value = Preset> {
    values(&[
        (Preset::Faiss20, "One random start, 20 iterations"),
        (Preset::Sklearn10, "Best of 10 k-means++ starts, up to 300 iterations each"),
    ])
}

/// The units of resampling.
pub(super) fn resampled() -> impl TypedValueParser<Value = Over> {
    values(&[(Over::Queries, "Single queries"), (Over::Classes, "Classes with all their queries")])
}
