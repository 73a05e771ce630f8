//! Collections of version 1, which have no field for the source of an item, on a real server.

use gallerist_database::Client;
use gallerist_retrieval::columns::{Column, Columns};
use gallerist_retrieval::index::{Index, ItemFilter, Items, stable_id};
use gallerist_retrieval::search::Metric;
use gallerist_retrieval::{EmbeddingSet, Matrix};
use prost::Message;

use crate::layout;
use crate::wire::messages as wire;
use crate::wire::status::Status;
use crate::{Address, CollectionLayout, ConnectOptions, MilvusIndex, Search};

/// Makes a collection as the programs of version 1 made it.
fn make(address: &Address, layout: &CollectionLayout) {
    let client = Client::new(address, ConnectOptions::default());
    let mut schema = layout::schema(layout, address.collection());
    schema.fields.retain(|field| field.name != layout::SOURCE && field.name != layout::COLUMNS);
    let mut properties = layout::properties();
    for property in properties.iter_mut().filter(|property| property.key == layout::VERSION_KEY) {
        property.value = layout::WITHOUT_SOURCES.to_owned();
    }
    let request = wire::CreateCollectionRequest {
        schema: schema.encode_to_vec(),
        collection_name: address.collection().to_owned(),
        shards_num: 1,
        consistency_level: wire::SESSION,
        properties,
    };
    let _: Status = client.call("CreateCollection", &request, "make the collection").unwrap();
    let request = wire::CreateIndexRequest {
        collection_name: address.collection().to_owned(),
        field_name: layout::EMBEDDING.to_owned(),
        extra_params: layout::index_params(layout),
        index_name: layout::EMBEDDING.to_owned(),
    };
    let _: Status = client.call("CreateIndex", &request, "make the index").unwrap();
}

#[test]
fn a_collection_of_version_1_keeps_ids_of_paths_and_no_sources() {
    let Some(server) = gallerist_testkit::milvus::shared() else { return };
    let address: Address = server.address("of_version_1").parse().unwrap();
    let layout = CollectionLayout { dimensions: 2, metric: Metric::Euclidean, search: Search::Flat };
    make(&address, &layout);
    let mut index = MilvusIndex::open(&address, ConnectOptions::default()).unwrap();
    assert_eq!(index.collection().kept, layout::Kept { sources: false, columns: false });
    assert_eq!(index.layout(), &layout);

    let paths = Some((0..20).map(|i| format!("{i}.jpg")).collect());
    let values = (0..40).map(|i| i as f32).collect();
    let mut set = EmbeddingSet { paths, ..Matrix::new(20, 2, values).unwrap().into() };
    set.name_source("/photos");
    let items = Items::from_set(set).unwrap();
    for sent in [20, 0] {
        let pushed = index.push(&items, false, &mut |_| {}).unwrap();
        assert_eq!((pushed.sent, pushed.unchanged), (sent, 20 - sent));
    }
    let id = stable_id("7.jpg");
    let item = index.get(&[id]).unwrap().pop().flatten().unwrap();
    assert_eq!((item.path.as_deref(), item.source), (Some("7.jpg"), None));
    let lists = index.search(items.set().embeddings.select(&[7]).view(), 1, &ItemFilter::default()).unwrap();
    assert_eq!(lists.ids(0), [id]);
    let shop = Columns::new(vec![Column::infer("shop", ["x"; 20]).unwrap()]).unwrap();
    let set = EmbeddingSet { columns: shop, ..items.set().clone() };
    let error = index.push(&Items::from_set(set).unwrap(), true, &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("the collection was made by an older program"), "{error}");
    index.drop_collection().unwrap();
}
