//! Option values from the lists of the library: a value that is added to a list is also a value of the option.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use gallerist_util::named_values::NamedValue;

use crate::retrieval::Code;
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
    // Files spell the inner product as `inner_product`.
    let value = |metric: Metric| PossibleValue::new(metric.option()).alias(metric.name()).help(metric.help());
    PossibleValuesParser::new(Metric::ALL.map(value))
        .map(|name| Metric::named(&name).expect("the parser admits only metrics"))
}

/// The help of `--metrics`.
pub(super) fn help_of_measures() -> String {
    let names = Measure::names().join(", ");
    let names = names.replace("precision_at_recall@K", "precision_at_recall@K (K in percent)");
    format!(
        "Metrics: {names} [default: those of the protocol, else recall@1,2,4,8, precision@1, map@r, r_precision]"
    )
}

/// The values of an enum of the library.
pub(super) fn named<T: NamedValue>() -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(T::ALL.iter().map(possible)).map(|given| {
        let value = T::ALL.iter().find(|value| value.option() == given);
        *value.expect("the parser admits only these")
    })
}

fn possible<T: NamedValue>(value: &T) -> PossibleValue {
    let possible = PossibleValue::new(value.option());
    if value.help().is_empty() { possible } else { possible.help(value.help()) }
}

/// How embeddings are stored: as f32 or compact.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Precision(pub(crate) Option<Code>);

/// The precisions of embeddings in files.
pub(super) fn precisions() -> impl TypedValueParser<Value = Precision> {
    let exact = PossibleValue::new("f32").help("4 bytes per value, exact");
    PossibleValuesParser::new(std::iter::once(exact).chain(Code::ALL.iter().map(possible)))
        .map(|given| Precision(Code::ALL.iter().copied().find(|code| code.option() == given)))
}
