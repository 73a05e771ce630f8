//! Further columns of the items: shown, filtered, sorted.

use crate::common::{CLASSES, Fixture, PER_CLASS, Running, ids, options, shade, square};
use gallerist_retrieval::columns::{Column, Columns};
use gallerist_retrieval::index::{ExactIndex, IndexKind, IndexSettings, Items, create_index, index_kinds};
use gallerist_retrieval::search::Metric;
use gallerist_retrieval::{Code, EmbeddingSet};
use gallerist_serve::Gallery;
use serde_json::{Value, json};

const ROWS: usize = CLASSES.len() * PER_CLASS;

/// Prices 0 to 11 in a mixed order, none for row 5; two shops; tags for every other row.
fn with_columns(fixture: &Fixture) -> EmbeddingSet {
    let texts = |of: fn(usize) -> String| (0..ROWS).map(of).collect::<Vec<_>>();
    let columns = vec![
        Column::infer(
            "price",
            texts(|row| if row == 5 { String::new() } else { (row * 5 % 12).to_string() }),
        ),
        Column::infer("shop", texts(|row| ["x", "y z"][row % 2].to_owned())),
        Column::infer("colour", texts(|row| ["red|<b>", ""][row % 2].to_owned())),
    ];
    let columns = columns.into_iter().collect::<Result<_, _>>().unwrap();
    EmbeddingSet { columns: Columns::new(columns).unwrap(), ..fixture.set.clone() }
}

fn serve(fixture: &Fixture, code: Option<Code>) -> Running {
    let (set, path) = (with_columns(fixture), fixture.path("columns.safetensors"));
    match code {
        None => set.save(&path).unwrap(),
        Some(code) => set.save_compact(&path, code).unwrap(),
    }
    Running::start(fixture.contents_of(Gallery::open(&path, false).unwrap()), options())
}

/// The same items in an index, which keeps its own copy of the columns.
fn serve_index(fixture: &Fixture, kind: IndexKind) -> Running {
    let items = Items::from_set(with_columns(fixture)).unwrap();
    let mut index =
        create_index(kind, items.set().embeddings.cols(), Metric::Cosine, &IndexSettings::default());
    let path = fixture.path("columns.index");
    let index = index.as_mut().unwrap();
    index.upsert(&items).unwrap();
    index.save(&path).unwrap();
    Running::start(fixture.contents_of(Gallery::open(&path, false).unwrap()), options())
}

fn prices(answer: &Value, list: &str) -> Vec<Option<u64>> {
    answer[list].as_array().unwrap().iter().map(|item| item["columns"]["price"].as_u64()).collect()
}

#[test]
fn items_have_their_columns_and_are_filtered_and_sorted_by_them() {
    let fixture = Fixture::new();
    let server = serve(&fixture, None);
    let kinds = json!([
        {"name": "price", "kind": "number"}, {"name": "shop", "kind": "text"}, {"name": "colour", "kind": "tags"}
    ]);
    assert_eq!(server.json("/api/v1/gallery")["columns"], kinds);
    let all = server.json("/api/v1/items?limit=500");
    assert_eq!(all["items"][2]["columns"], json!({"price": 10, "shop": "x", "colour": ["<b>", "red"]}));
    assert_eq!(all["items"][5]["columns"], json!({"shop": "y z"}));

    let few = server.json("/api/v1/items?where=price%20%3C%203%20and%20shop%20=%20%22x%22&order=-price");
    assert_eq!((few["total"].as_u64(), prices(&few, "items")), (Some(2), vec![Some(2), Some(0)]));
    let sorted = server.json("/api/v1/items?order=price&limit=500");
    let wanted: Vec<Option<u64>> = (0..12).filter(|&price| price != 1).map(Some).chain([None]).collect();
    assert_eq!(prices(&sorted, "items"), wanted);
    let part = server.json("/api/v1/items?order=-price&limit=2&offset=1&label=blue");
    assert_eq!((part["total"].as_u64(), prices(&part, "items")), (Some(4), vec![Some(5), Some(3)]));
    let labelled = server.json("/api/v1/items?where=label%20=%20%22red%22%20and%20path%20under%20%222%22");
    assert_eq!(labelled["total"], 4);
}

#[test]
fn items_are_sorted_by_label_path_and_camera() {
    let mut fixture = Fixture::new();
    // The first has none.
    fixture.set.cameras = Some((0..ROWS).map(|row| ["", "c2", "c1"][row.min(2)].to_owned()).collect());
    let server = serve(&fixture, None);
    let list = |order: &str, field: &str| {
        let items = server.json(&format!("/api/v1/items?order={order}"));
        let items = items["items"].as_array().unwrap().iter().map(|item| item[field].clone());
        items.collect::<Vec<_>>()
    };
    let text = |values: &[Value]| -> Vec<String> {
        values.iter().map(|value| value.as_str().unwrap_or_default().to_owned()).collect()
    };
    for field in ["label", "path"] {
        let (up, down) = (text(&list(field, field)), text(&list(&format!("-{field}"), field)));
        assert!(up.is_sorted() && down.iter().rev().is_sorted(), "{up:?} {down:?}");
    }
    let cameras = (text(&list("camera", "camera")), text(&list("-camera", "camera")));
    let wanted = |first: &str, second: &str, firsts: usize| {
        let of = |row| {
            if row < firsts {
                first
            } else if row < ROWS - 1 {
                second
            } else {
                ""
            }
        };
        (0..ROWS).map(|row| of(row).to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(cameras, (wanted("c1", "c2", ROWS - 2), wanted("c2", "c1", 1)));
}

#[test]
fn a_search_with_a_condition_finds_exactly_the_items_that_meet_it() {
    let fixture = Fixture::new();
    let of_files = [None, Some(Code::Bf16)].map(|code| serve(&fixture, code));
    let of_indices = index_kinds().map(|kind| serve_index(&fixture, kind));
    for server in of_files.into_iter().chain(of_indices) {
        let items = server.items();
        let condition = "where=price%20%3E=%206";
        for (id, _) in &items {
            let all = server.json(&format!("/api/v1/items/{id}/similar?k=99"));
            let is_wanted = |hit: &&Value| hit["columns"]["price"].as_u64().is_some_and(|price| price >= 6);
            let wanted: Vec<(&Value, &Value)> = all["results"]
                .as_array()
                .unwrap()
                .iter()
                .filter(is_wanted)
                .map(|hit| (&hit["id"], &hit["distance"]))
                .collect();
            let found = server.json(&format!("/api/v1/items/{id}/similar?k=99&{condition}"));
            let found: Vec<(&Value, &Value)> = found["results"]
                .as_array()
                .unwrap()
                .iter()
                .map(|hit| (&hit["id"], &hit["distance"]))
                .collect();
            assert_eq!(found, wanted);
            let two = server.json(&format!("/api/v1/items/{id}/similar?k=2&{condition}"));
            assert_eq!(ids(&two), wanted[..2].iter().map(|(id, _)| id.as_str().unwrap()).collect::<Vec<_>>());
        }
        let none = server.json(&format!("/api/v1/items/{}/similar?where=price%20%3E%2099", items[0].0));
        assert_eq!(none["results"], json!([]));
        let body = json!({"ids": [items[0].0], "k": 99, "where": "price >= 6 and not colour has \"red\""});
        assert_eq!(prices(&server.post_json("/api/v1/search", &body).json(), "results").len(), 3);
        let png = square(shade(CLASSES[0].1, 0), 20);
        let fields = [("image", Some("a.png"), &png[..]), ("k", None, b"99"), ("where", None, b"price = 7")];
        let found = server.post_form("/api/v1/search/upload", &[], &fields).json();
        assert_eq!(prices(&found, "results"), [Some(7)]);
    }
}

#[test]
fn a_search_in_groups_has_the_nearest_item_of_each_and_their_number() {
    let fixture = Fixture::new();
    let of_files = [None, Some(Code::Bf16)].map(|code| serve(&fixture, code));
    let of_indices = index_kinds().map(|kind| serve_index(&fixture, kind));
    for server in of_files.into_iter().chain(of_indices) {
        let id = &server.items()[0].0;
        let similar = format!("/api/v1/items/{id}/similar?k=99");
        let hits = |path: &str| server.json(path)["results"].as_array().unwrap().clone();
        let all = hits(&similar);
        let shop = |hit: &Value| hit["columns"]["shop"].as_str().unwrap().to_owned();
        let groups = hits(&format!("{similar}&group=shop"));
        assert_eq!(groups.len(), 2);
        for (rank, group) in groups.iter().enumerate() {
            let of_group: Vec<&Value> = all.iter().filter(|hit| shop(hit) == shop(group)).collect();
            assert_eq!((&group["id"], &group["distance"]), (&of_group[0]["id"], &of_group[0]["distance"]));
            assert_eq!(group["group_size"], of_group.len());
            assert_eq!(group["rank"], rank + 1);
        }
        assert_eq!(hits(&format!("/api/v1/items/{id}/similar?k=1&group=shop")).len(), 1);
        for group in hits(&format!("{similar}&group=shop&group_score=mean")) {
            let distances: Vec<f64> = (all.iter().filter(|hit| shop(hit) == shop(&group)))
                .map(|hit| hit["distance"].as_f64().unwrap())
                .collect();
            let mean = distances.iter().sum::<f64>() / distances.len() as f64;
            assert!((group["distance"].as_f64().unwrap() - mean).abs() < 1e-6);
            assert_eq!(group["similarity"], Value::Null);
        }
        // Of the items that meet the condition; a row without a price is a group of its own.
        let some = hits(&format!("{similar}&group=shop&where=price%20%3E=%206"));
        let count = |hits: &[Value]| hits.iter().map(|hit| hit["group_size"].as_u64().unwrap()).sum::<u64>();
        let wanted =
            all.iter().filter(|hit| hit["columns"]["price"].as_u64().is_some_and(|price| price >= 6));
        assert_eq!(count(&some), wanted.count() as u64);
        assert_eq!(hits(&format!("{similar}&group=price")).len(), all.len());
        let png = square(shade(CLASSES[0].1, 0), 20);
        let fields =
            [("image", Some("a.png"), &png[..]), ("group", None, b"shop"), ("group_score", None, b"best")];
        let found = server.post_form("/api/v1/search/upload", &[], &fields).json();
        assert_eq!(count(found["results"].as_array().unwrap()), ROWS as u64);
        for (query, hint) in [("group=colour", "group by a column"), ("group=shpo", "did you mean `shop`?")] {
            let answer = server.get(&format!("{similar}&{query}"));
            assert_eq!(answer.status, 400);
            assert!(answer.json()["hint"].as_str().unwrap().contains(hint));
        }
        assert_eq!(server.get(&format!("{similar}&group=shop&group_score=worst")).status, 400);
    }
}

#[test]
fn conditions_and_orders_that_do_not_fit_are_refused() {
    let fixture = Fixture::new();
    let server = serve(&fixture, None);
    let refused = |server: &Running, path: &str| {
        let answer = server.get(path);
        assert_eq!(answer.status, 400, "{path}");
        answer.json()
    };
    let error = refused(&server, "/api/v1/items?where=prise%20%3C%203");
    assert!(error["error"].as_str().unwrap().contains("there is no column `prise`"), "{error}");
    assert_eq!(error["hint"], "did you mean `price`?");
    let error = refused(&server, "/api/v1/items?order=prise");
    assert_eq!(error["hint"], "the columns are `label`, `path`, `camera`, `price`, `shop`, `colour`");
    let id = &server.items()[0].0;
    let similar = format!("/api/v1/items/{id}/similar?where=");
    refused(&server, &format!("{similar}price"));
    let long = refused(&server, &format!("{similar}price%20=%20{}", "1".repeat(4096)));
    assert!(long["error"].as_str().unwrap().contains("at most 4096"), "{long}");
    let index = serve_index(&fixture, ExactIndex::KIND);
    let error = refused(&index, &format!("{similar}prise%20=%201"));
    assert_eq!(error["hint"], "did you mean `price`?");
    assert_eq!(index.json("/api/v1/gallery")["columns"], server.json("/api/v1/gallery")["columns"]);
}

#[test]
fn clusters_of_the_map_are_named_by_labels_and_columns() {
    let fixture = Fixture::new();
    let server = serve(&fixture, None);
    server.ready("/api/v1/map");
    let by = |query: &str| server.json(&format!("/api/v1/map/clusters{query}"));
    let labels = by("");
    assert_eq!(labels["state"], "ready");
    let names: Vec<&str> = CLASSES.iter().map(|(name, _)| *name).collect();
    let clusters = labels["clusters"].as_array().unwrap();
    assert!(!clusters.is_empty());
    for cluster in clusters {
        assert!(names.contains(&cluster["majority"].as_str().unwrap()), "{cluster}");
        assert!(names.contains(&cluster["characteristic"].as_str().unwrap()), "{cluster}");
    }
    let shops = by("?by=shop");
    assert!(
        shops["clusters"]
            .as_array()
            .unwrap()
            .iter()
            .all(|c| ["x", "y z"].contains(&c["majority"].as_str().unwrap()))
    );
    let refused = server.get("/api/v1/map/clusters?by=price");
    assert_eq!(refused.status, 400);
    assert_eq!(refused.json()["hint"], "the columns that can are `label`, `shop`, `colour`");
}
