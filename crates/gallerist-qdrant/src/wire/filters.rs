//! `qdrant_common.proto`: ids and filters.

use prost::{Message, Oneof};

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PointId {
    #[prost(oneof = "Id", tags = "1, 2")]
    pub(crate) id: Option<Id>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Id {
    #[prost(uint64, tag = "1")]
    Number(u64),
    #[prost(string, tag = "2")]
    Uuid(String),
}

impl PointId {
    pub(crate) fn new(id: u64) -> Self {
        Self { id: Some(Id::Number(id)) }
    }

    /// The id, unless it is one of another program.
    pub(crate) fn number(&self) -> Option<u64> {
        match self.id {
            Some(Id::Number(id)) => Some(id),
            _ => None,
        }
    }
}

/// All of `must`, none of `must_not`, and at least one of `should` if there is one.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Filter {
    #[prost(message, repeated, tag = "1")]
    pub(crate) should: Vec<Condition>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) must: Vec<Condition>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) must_not: Vec<Condition>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Condition {
    #[prost(oneof = "OneCondition", tags = "1, 2, 3, 4")]
    pub(crate) one: Option<OneCondition>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum OneCondition {
    #[prost(message, tag = "1")]
    Field(FieldCondition),
    #[prost(message, tag = "2")]
    IsEmpty(IsEmptyCondition),
    #[prost(message, tag = "3")]
    HasId(HasIdCondition),
    #[prost(message, tag = "4")]
    Filter(Filter),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct IsEmptyCondition {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct HasIdCondition {
    #[prost(message, repeated, tag = "1")]
    pub(crate) has_id: Vec<PointId>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct FieldCondition {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) matches: Option<Match>,
    #[prost(message, optional, tag = "3")]
    pub(crate) range: Option<Range>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Match {
    /// The value, or one of a list of values, is one of these.
    #[prost(message, optional, tag = "5")]
    pub(crate) keywords: Option<RepeatedStrings>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RepeatedStrings {
    #[prost(string, repeated, tag = "1")]
    pub(crate) strings: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Range {
    #[prost(double, optional, tag = "1")]
    pub(crate) lt: Option<f64>,
    #[prost(double, optional, tag = "2")]
    pub(crate) gt: Option<f64>,
    #[prost(double, optional, tag = "3")]
    pub(crate) gte: Option<f64>,
    #[prost(double, optional, tag = "4")]
    pub(crate) lte: Option<f64>,
}

impl From<OneCondition> for Condition {
    fn from(one: OneCondition) -> Self {
        Self { one: Some(one) }
    }
}

impl Condition {
    /// The number lies in this range.
    pub(crate) fn range(key: &str, range: Range) -> Self {
        OneCondition::Field(FieldCondition { key: key.to_owned(), range: Some(range), matches: None }).into()
    }

    /// The text, or one of the tags, is one of these.
    pub(crate) fn one_of(key: &str, strings: Vec<String>) -> Self {
        let matches = Some(Match { keywords: Some(RepeatedStrings { strings }) });
        OneCondition::Field(FieldCondition { key: key.to_owned(), range: None, matches }).into()
    }

    /// There is no value.
    pub(crate) fn missing(key: &str) -> Self {
        OneCondition::IsEmpty(IsEmptyCondition { key: key.to_owned() }).into()
    }

    /// The id is one of these.
    pub(crate) fn has_id(ids: &[u64]) -> Self {
        OneCondition::HasId(HasIdCondition { has_id: ids.iter().map(|&id| PointId::new(id)).collect() })
            .into()
    }

    pub(crate) fn filter(filter: Filter) -> Self {
        OneCondition::Filter(filter).into()
    }

    /// None of these holds.
    pub(crate) fn none(conditions: Vec<Self>) -> Self {
        Self::filter(Filter { must_not: conditions, ..Filter::default() })
    }

    /// All of these hold.
    pub(crate) fn all(conditions: Vec<Self>) -> Self {
        Self::filter(Filter { must: conditions, ..Filter::default() })
    }

    /// One of these holds; there is at least one.
    pub(crate) fn any(conditions: Vec<Self>) -> Self {
        Self::filter(Filter { should: conditions, ..Filter::default() })
    }
}
