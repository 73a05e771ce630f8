//! What any server may answer.

use gallerist_database::scripted;
use gallerist_retrieval::Matrix;
use gallerist_retrieval::index::{Index, ItemFilter, Items};
use gallerist_retrieval::search::Metric;
use prost::Message;

use crate::layout::{self, EMBEDDING};
use crate::payload::DIGEST;
use crate::wire::collections as wire;
use crate::wire::filters::{Id, PointId};
use crate::wire::points::{self, NamedVectors, RetrievedPoint, ScoredPoint, Vector, Vectors};
use crate::wire::value::Value;
use crate::{CollectionLayout, Error, QdrantIndex, Result, Search};

fn open(answers: Vec<Vec<u8>>, most: usize) -> Result<QdrantIndex> {
    scripted::open(answers, most)
}

/// The answers to the calls of opening a collection of two dimensions.
fn opening(version: &str) -> Vec<Vec<u8>> {
    let layout = CollectionLayout { dimensions: 2, metric: Metric::InnerProduct, search: Search::Flat };
    let config = wire::CollectionConfig {
        params: Some(wire::CollectionParams { vectors_config: Some(layout::vectors(&layout)) }),
        metadata: layout::metadata(),
    };
    let info = wire::CollectionInfo { config: Some(config), ..Default::default() };
    vec![
        wire::HealthCheckReply { version: version.to_owned() }.encode_to_vec(),
        wire::GetCollectionInfoResponse { result: Some(info) }.encode_to_vec(),
    ]
}

/// An index whose server gives these answers after those to opening.
fn index(answers: &[&dyn Fn() -> Vec<u8>]) -> QdrantIndex {
    open(opening("1.19.0").into_iter().chain(answers.iter().map(|answer| answer())).collect(), 20).unwrap()
}

fn point(id: u64, values: &[f32]) -> RetrievedPoint {
    let vector = Vector { data: values.to_vec(), dense: None };
    RetrievedPoint {
        id: Some(PointId::new(id)),
        payload: [(DIGEST.to_owned(), Value::integer(1)), ("label".to_owned(), Value::text("a"))].into(),
        vectors: Some(Vectors {
            named: Some(NamedVectors { vectors: [(EMBEDDING.to_owned(), vector)].into() }),
        }),
    }
}

fn scroll(ids: &[u64], next: Option<u64>) -> Vec<u8> {
    points::ScrollResponse {
        next_page_offset: next.map(PointId::new),
        result: ids.iter().map(|&id| point(id, &[])).collect(),
    }
    .encode_to_vec()
}

#[test]
fn a_server_that_is_too_old_is_refused() {
    let error = open(opening("1.15.5"), 20).err().unwrap();
    assert!(matches!(error, Error::Version { .. }), "{error:?}");
    assert_eq!(error.to_string(), "the Qdrant at localhost:6334 is 1.15.5; wanted 1.16 or newer");
    assert!(open(opening("1.16.0"), 20).is_ok());
}

#[test]
fn a_server_that_returns_the_same_items_again_and_again_is_refused() {
    let all = ItemFilter::default();
    let labels = index(&[&|| scroll(&[1, 2], Some(3)), &|| scroll(&[3], None)]).labels(&all).unwrap();
    assert_eq!(labels.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1, 2, 3]);
    let again = index(&[&|| scroll(&[1, 2], Some(1))]).labels(&all).unwrap_err().to_string();
    assert!(again.contains("a next id that is higher than the one before"), "{again}");
}

#[test]
fn an_answer_that_does_not_fit_the_question_is_refused() {
    let get =
        |points: Vec<RetrievedPoint>| move || points::GetResponse { result: points.clone() }.encode_to_vec();
    let fault = |points: Vec<RetrievedPoint>| index(&[&get(points)]).get(&[7, 8]).unwrap_err().to_string();
    assert_eq!(index(&[&get(vec![point(7, &[1.0, 2.0])])]).get(&[7]).unwrap()[0].as_ref().unwrap().id, 7);
    assert!(fault(vec![point(7, &[1.0, 2.0, 3.0])]).contains("embedding"), "three values of two");
    assert!(fault(vec![point(7, &[1.0, 2.0]); 3]).contains("at most 2 items, found 3"));
    let uuid = PointId { id: Some(Id::Uuid("x".to_owned())) };
    let foreign = RetrievedPoint { id: Some(uuid), ..point(7, &[1.0, 2.0]) };
    assert!(fault(vec![foreign]).contains("a number as id"));

    let query = Matrix::new(1, 2, vec![1.0, 0.0]).unwrap();
    let search = |lists: &[&[(u64, f32)]]| {
        let list = |list: &&[(u64, f32)]| points::BatchResult {
            result: list
                .iter()
                .map(|&(id, score)| ScoredPoint { id: Some(PointId::new(id)), score })
                .collect(),
        };
        let answer = points::QueryBatchResponse { result: lists.iter().map(list).collect() };
        let found = get(vec![point(1, &[1.0, 0.0])]);
        index(&[&|| answer.encode_to_vec(), &found]).search(query.view(), 1, &ItemFilter::default())
    };
    assert_eq!(search(&[&[(1, 1.0)]]).unwrap().ids(0), [1]);
    let many: Vec<(u64, f32)> = (0..18).map(|id| (id, 1.0)).collect();
    let wrong: [&[&[(u64, f32)]]; 4] = [&[], &[&[(1, 1.0)], &[(2, 1.0)]], &[&many], &[&[(1, f32::NAN)]]];
    for lists in wrong {
        let error = search(lists).unwrap_err().to_string();
        assert!(error.contains("at most 17 ids and scores for each of 1 queries"), "{error}");
    }
}

#[test]
fn a_change_that_is_not_applied_is_not_taken_for_one_that_is() {
    let set = Matrix::new(1, 2, vec![1.0, 0.0]).unwrap().into();
    let items = Items::new(vec![7], set).unwrap();
    let info = || opening("1.19.0").pop().unwrap();
    let status = |status| {
        let result = Some(points::UpdateResult { status });
        points::PointsOperationResponse { result }.encode_to_vec()
    };
    for (code, holds) in [(0, false), (1, false), (2, true), (3, false), (4, false)] {
        let upserted = index(&[&info, &info, &|| status(code)]).upsert(&items);
        assert_eq!(upserted.is_ok(), holds, "{code}: {upserted:?}");
    }
}
