//! What any server may answer.

use gallerist_database::scripted;
use gallerist_retrieval::index::{Index, ItemFilter};
use gallerist_retrieval::search::Metric;
use prost::Message;

use crate::layout;
use crate::wire::messages as wire;
use crate::wire::schema::FieldData;
use crate::wire::status::Status;
use crate::{CollectionLayout, Error, MilvusIndex, Result, Search};

fn open(answers: Vec<Vec<u8>>, most: usize) -> Result<MilvusIndex> {
    scripted::open(answers, most)
}

/// The answers to the calls of opening a collection of these dimensions.
fn opening(dimensions: usize) -> Vec<Vec<u8>> {
    let layout = CollectionLayout { dimensions, metric: Metric::Cosine, search: Search::Flat };
    let description = wire::DescribeCollectionResponse {
        schema: Some(layout::schema(&layout, "gallery")),
        properties: layout::properties(),
        ..Default::default()
    };
    let index = wire::IndexDescription {
        params: layout::index_params(&layout),
        field_name: layout::EMBEDDING.to_owned(),
        ..Default::default()
    };
    vec![
        wire::GetVersionResponse { version: "v2.3.5".to_owned(), ..Default::default() }.encode_to_vec(),
        description.encode_to_vec(),
        wire::DescribeIndexResponse { index_descriptions: vec![index], ..Default::default() }.encode_to_vec(),
        Status::default().encode_to_vec(),
        wire::GetLoadStateResponse { state: wire::LOADED, ..Default::default() }.encode_to_vec(),
        wire::AllocTimestampResponse { timestamp: 7, ..Default::default() }.encode_to_vec(),
    ]
}

#[test]
fn a_server_that_returns_the_same_items_again_and_again_is_refused() {
    let labels = vec!["a".to_owned(), "b".to_owned()];
    let rows = wire::QueryResults {
        fields_data: vec![
            FieldData::longs(layout::ID, vec![1, 2]),
            FieldData::strings(layout::LABEL, labels),
        ],
        ..Default::default()
    };
    let index = open([opening(2), vec![rows.encode_to_vec()]].concat(), 20).unwrap();
    let error = index.labels(&ItemFilter::default()).unwrap_err().to_string();
    assert!(error.contains("it returned items again"), "{error}");
}

#[test]
fn a_collection_of_no_or_too_many_dimensions_is_refused() {
    for dimensions in [0, 32_769, usize::MAX] {
        let error = open(opening(dimensions), 20).err().unwrap();
        assert!(matches!(error, Error::Foreign { .. }), "{error}");
        assert!(error.to_string().contains(&format!("1 to 32768 dimensions, found {dimensions}")), "{error}");
    }
    assert!(open(opening(1), 20).is_ok());
}
