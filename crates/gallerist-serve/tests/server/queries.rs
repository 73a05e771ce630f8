//! A gallery with a set of queries, measured by a protocol.

use crate::common::{Fixture, Running, exact_index, ids, options, square};
use gallerist_retrieval::eval::{Labelled, Plan, Protocol};
use gallerist_retrieval::index::Index;
use gallerist_retrieval::search::Metric;
use gallerist_retrieval::{Code, EmbeddingSet, Matrix};
use gallerist_serve::{Companion, Contents, Error, Gallery, Images, Server};
use serde_json::{Value, json};

/// Rows in the plane at these angles, in degrees, with a person and a camera each.
fn seen(prefix: &str, rows: &[(f64, &str, &str)], protocol: Option<&str>) -> EmbeddingSet {
    let values = rows.iter().flat_map(|(angle, ..)| {
        let (sin, cos) = angle.to_radians().sin_cos();
        [cos as f32, sin as f32]
    });
    EmbeddingSet {
        labels: Some(rows.iter().map(|(_, label, _)| (*label).to_owned()).collect()),
        cameras: Some(rows.iter().map(|(.., camera)| (*camera).to_owned()).collect()),
        paths: Some((0..rows.len()).map(|row| format!("{prefix}/{row}.png")).collect()),
        protocol: protocol.map(str::to_owned),
        ..Matrix::new(rows.len(), 2, values.collect()).unwrap().into()
    }
}

const QUERIES: [(f64, &str, &str); 3] = [(0.0, "0001", "c1"), (50.0, "0002", "c1"), (90.0, "0003", "c2")];

/// The first query sees its person from its own camera, junk, a distractor, and its person from another camera.
const GALLERY: [(f64, &str, &str); 7] = [
    (1.0, "0001", "c1"),
    (2.0, "-1", "c2"),
    (3.0, "0000", "c2"),
    (4.0, "0001", "c2"),
    (52.0, "0001", "c3"),
    (55.0, "0002", "c2"),
    (85.0, "0003", "c2"),
];

fn market() -> (EmbeddingSet, EmbeddingSet) {
    let named = Some("market1501");
    (seen("query", &QUERIES, named), seen("gallery", &GALLERY, named))
}

fn contents(queries: EmbeddingSet, gallery: Gallery) -> Contents {
    Contents { queries: Some(Companion::from_set("query.safetensors", queries)), ..gallery.into() }
}

fn served(queries: EmbeddingSet, gallery: EmbeddingSet) -> Running {
    let gallery = Gallery::from_set("gallery.safetensors", gallery).unwrap();
    Running::start(contents(queries, gallery), options())
}

/// The ids of the queries, in their order.
fn queries_of(server: &Running) -> Vec<String> {
    let items = server.json("/api/v1/items?set=query&limit=500");
    let items = items["items"].as_array().unwrap();
    items.iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
}

/// Paths, and whether each is right, of a ranked list.
fn listed(found: &Value) -> Vec<(String, Value)> {
    let results = found["results"].as_array().unwrap_or_else(|| panic!("{found}"));
    results.iter().map(|hit| (hit["path"].as_str().unwrap().to_owned(), hit["right"].clone())).collect()
}

#[test]
fn a_query_is_answered_by_the_protocol_in_every_kind_of_gallery() {
    let fixture = Fixture::new();
    let (queries, gallery) = market();
    let (file, compact, index) =
        (fixture.path("g.safetensors"), fixture.path("c.safetensors"), fixture.path("g.index"));
    gallery.save(&file).unwrap();
    gallery.save_compact(&compact, Code::Bf16).unwrap();
    exact_index(gallery, Metric::Cosine).save(&index).unwrap();
    for path in [file, compact, index] {
        let gallery = Gallery::open(&path, false).unwrap();
        let server = Running::start(contents(queries.clone(), gallery), options());
        let similar = |query: usize, more: &str| {
            server.json(&format!("/api/v1/items/{}/similar?k=99{more}", queries_of(&server)[query]))
        };
        let first = similar(0, "");
        let wanted = [
            ("gallery/2.png", json!(false)),
            ("gallery/3.png", json!(true)),
            ("gallery/4.png", json!(true)),
            ("gallery/5.png", json!(false)),
            ("gallery/6.png", json!(false)),
        ];
        assert_eq!(
            listed(&first),
            wanted.map(|(path, right)| (path.to_owned(), right)),
            "{}",
            path.display()
        );
        assert_eq!(first["results"][0]["rank"], 1);
        assert_eq!(first["protocol"], json!({"title": "Market-1501", "left_out": 2}));
        // As many as were asked for, though more is near.
        let two = server.json(&format!("/api/v1/items/{}/similar?k=2", queries_of(&server)[0]));
        assert_eq!(listed(&two), listed(&first)[..2]);
        // Of the third query the only item of its person is from its own camera.
        assert!(listed(&similar(2, "")).iter().all(|(_, right)| right == false));

        let all = similar(0, "&view=all");
        let reasons: Vec<_> =
            all["results"].as_array().unwrap().iter().map(|hit| hit["left_out"].clone()).collect();
        assert_eq!(reasons[..3], [json!("same_camera"), json!("junk"), json!(null)]);
        assert_eq!(listed(&all)[..2].iter().map(|(_, right)| right).collect::<Vec<_>>(), [&json!(null); 2]);
        assert_eq!(ids(&all).len(), 7);
        // Filters hold, too.
        assert_eq!(listed(&similar(0, "&label=0001")).len(), 2);
        assert!(listed(&similar(0, "&label=-1")).is_empty());
        assert_eq!(listed(&similar(0, "&not_label=0001&not_label=0000")).len(), 2);
    }
}

#[test]
fn failures_confusions_and_metrics_are_those_of_the_evaluation() {
    let (queries, gallery) = market();
    let server = served(queries.clone(), gallery.clone());
    let failures = server.ready("/api/v1/failures");
    let plan = Plan::of(Protocol::named("market1501").unwrap());
    let side = |set: EmbeddingSet| Labelled::from_set(set, std::path::Path::new("a")).unwrap();
    let evaluation = plan.run(&side(queries), Some(&side(gallery))).unwrap().evaluation;
    for (name, value) in evaluation.metrics.iter() {
        let metrics = failures["metrics"].as_array().unwrap();
        let found = metrics.iter().find(|metric| metric["name"] == name).unwrap()["value"].as_f64().unwrap();
        assert!((found - value).abs() < 1e-15, "{name}: {found} {value}");
    }
    // The third query has nothing to find.
    let first = (1.0 / 2.0 + 2.0 / 3.0) / 2.0;
    let second = 1.0 / 2.0;
    assert_eq!((&failures["total"], failures["queries"].as_array().unwrap().len()), (&json!(2), 2));
    let mean = failures["mean_average_precision"].as_f64().unwrap();
    assert!((mean - (first + second) / 2.0).abs() < 1e-12);
    assert!((mean - evaluation.metrics["map"]).abs() < 1e-12);
    let worst = &failures["queries"][0];
    assert_eq!((&worst["item"]["path"], &worst["item"]["set"]), (&json!("query/1.png"), &json!("query")));
    assert_eq!((&worst["matches"], &worst["first_match_rank"]), (&json!(1), &json!(2)));
    let other = &failures["queries"][1];
    assert_eq!((&other["matches"], &other["first_match_rank"]), (&json!(2), &json!(2)));
    assert_eq!(other["nearest"]["label"], "0000", "the nearest that counts");

    let confusions = server.ready("/api/v1/confusions");
    let pairs: Vec<_> =
        confusions["pairs"].as_array().unwrap().iter().map(|pair| (&pair["a"], &pair["b"])).collect();
    let wanted = [("0001", "0000"), ("0002", "0001"), ("0003", "0002")].map(|(a, b)| (json!(a), json!(b)));
    assert_eq!(pairs, wanted.iter().map(|(a, b)| (a, b)).collect::<Vec<_>>());
    let example = &confusions["pairs"][0]["example"];
    assert_eq!(example["query"], queries_of(&server)[0].as_str());
}

#[test]
fn the_page_is_told_which_rules_hold() {
    let (queries, gallery) = market();
    let rule = |queries: EmbeddingSet, gallery: EmbeddingSet, asked: Option<&str>| {
        let gallery = Gallery::from_set("g", gallery).unwrap();
        let contents = Contents { protocol: asked.map(str::to_owned), ..contents(queries, gallery) };
        let about = Running::start(contents, options()).json("/api/v1/gallery");
        let protocol = &about["protocol"];
        (protocol["name"].clone(), protocol["rule"].as_str().unwrap().to_owned())
    };
    let (name, words) = rule(queries.clone(), gallery.clone(), None);
    assert_eq!(name, "market1501");
    assert_eq!(
        words,
        "Protocol of Market-1501: 3 queries against 6 items. Junk, 1 item with the label -1, does not count. \
         Items of a query's label from its own camera do not count for it."
    );
    // A protocol that only one of the two names holds for neither; cameras that both have count.
    let unnamed = EmbeddingSet { protocol: None, ..gallery.clone() };
    let (name, words) = rule(queries.clone(), unnamed.clone(), None);
    assert_eq!(name, Value::Null);
    assert_eq!(
        words,
        "3 queries against 7 items. Items of a query's label from its own camera do not count for it."
    );
    assert_eq!(rule(queries.clone(), unnamed, Some("duke")).0, "duke");
    let without = EmbeddingSet { cameras: None, ..gallery.clone() };
    assert_eq!(rule(queries.clone(), without, Some("none")).1, "3 queries against 7 items. All items count.");
    assert_eq!(rule(queries, gallery, Some("none")).1, "3 queries against 7 items. All items count.");
}

#[test]
fn a_gallery_of_a_protocol_without_queries_leaves_its_junk_out_and_says_so() {
    let gallery = seen(
        "gallery",
        &[
            (0.0, "0001", "c1"),
            (1.0, "-1", "c1"),
            (2.0, "-1", "c1"),
            (30.0, "0001", "c1"),
            (80.0, "0002", "c1"),
        ],
        Some("market1501"),
    );
    let server = Running::start(Gallery::from_set("g", gallery).unwrap().into(), options());
    let failures = server.ready("/api/v1/failures");
    assert_eq!(failures["total"], 2, "two of the person, none of the junk");
    assert_eq!(failures["mean_average_precision"], 1.0);
    let rule = server.json("/api/v1/gallery")["protocol"]["rule"].as_str().unwrap().to_owned();
    assert!(
        rule.contains("every item is a query") && rule.contains("2 items with the label -1 are left out"),
        "{rule}"
    );
    assert_eq!(server.json("/api/v1/gallery")["queries"], Value::Null);
    assert_eq!(server.get("/api/v1/items?set=query").status, 404);
}

#[test]
fn queries_are_browsed_and_have_ids_and_pictures_of_their_own() {
    let fixture = Fixture::new();
    // The same images as queries and as gallery: each still says which of the two it is.
    let gallery = Gallery::open(&fixture.file(), false).unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("0")).unwrap();
    std::fs::write(folder.path().join("0/0.png"), square([9, 9, 9], 7)).unwrap();
    let images = Images::open(folder.path(), 1 << 20, None).unwrap();
    let queries = Companion::from_set("q.safetensors", fixture.set.select(&[0, 4])).with_images(Some(images));
    let server =
        Running::start(Contents { queries: Some(queries), ..fixture.contents_of(gallery) }, options());
    let about = server.json("/api/v1/gallery");
    assert_eq!(about["queries"], json!({"name": "q.safetensors", "count": 2, "images": true}));
    let asked = queries_of(&server);
    assert_eq!(asked.len(), 2);
    assert!(server.items().iter().all(|(id, _)| !asked.contains(id)));
    assert_eq!(server.get(&format!("/images/{}", asked[0])).body, square([9, 9, 9], 7), "not the gallery's");
    assert_eq!(server.get(&format!("/images/{}", asked[1])).status, 404, "not the gallery's");
    let item = server.json(&format!("/api/v1/items/{}", asked[0]));
    assert_eq!((&item["set"], &item["neighbours_same_label"]), (&json!("query"), &json!(4)));
    let looked =
        server.post_json("/api/v1/items/lookup", &json!({"ids": [asked[1], server.items()[0].0]})).json();
    assert_eq!(
        (&looked["items"][0]["set"], &looked["items"][1]["set"]),
        (&json!("query"), &json!("gallery"))
    );
    // Its own image in the gallery is found: it counts where cameras do not.
    let found = server.json(&format!("/api/v1/items/{}/similar?k=1", asked[0]));
    assert_eq!(
        (&found["results"][0]["path"], &found["results"][0]["right"]),
        (&json!("0/0.png"), &json!(true))
    );
    let filtered = server.json("/api/v1/items?set=query&label=blue");
    assert_eq!((&filtered["total"], &filtered["items"][0]["id"]), (&json!(1), &json!(asked[0])));
    let labels = server.json("/api/v1/labels?contains=blue");
    assert_eq!(labels["labels"][0], json!({"label": "blue", "count": 4, "queries": 1}));
    // The map has both.
    let map = server.ready("/api/v1/map");
    assert_eq!(map["count"], 14);
    let points = server.get("/api/v1/map/points").body;
    let points: Vec<u64> =
        points[..14 * 8].as_chunks::<8>().0.iter().map(|id| u64::from_le_bytes(*id)).collect();
    assert!(asked.iter().all(|id| points.contains(&id.parse().unwrap())));
    // Queries go together with items.
    let body = json!({"ids": [asked[0], server.items()[0].0], "k": 3});
    let together = server.post_json("/api/v1/search", &body).json();
    assert_eq!(ids(&together).len(), 3);
    assert!(!ids(&together).contains(&server.items()[0].0));
}

#[test]
fn training_images_have_pictures_and_can_be_searched_with() {
    let fixture = Fixture::new();
    let gallery = Gallery::open(&fixture.file(), false).unwrap();
    let training = Companion::from_set("t.safetensors", fixture.set.select(&[0, 4, 8]));
    let training = training.with_images(Some(fixture.images()));
    let server =
        Running::start(Contents { training: Some(training), ..fixture.contents_of(gallery) }, options());
    assert_eq!(server.json("/api/v1/gallery")["training_images"], true);
    let leaks = server.ready("/api/v1/leaks?distance=0.0001");
    assert_eq!(leaks["total"], 3);
    let id = leaks["pairs"][0]["b"]["id"].as_str().unwrap();
    let path = leaks["pairs"][0]["b"]["path"].as_str().unwrap();
    let file = std::fs::read(fixture.path("images").join(path)).unwrap();
    assert_eq!(server.get(&format!("/images/{id}")).body, file);
    let thumbnail = server.get(&format!("/thumbnails/{id}?size=64"));
    assert_eq!((thumbnail.status, thumbnail.header("content-type")), (200, "image/jpeg"));
    let found = server.json(&format!("/api/v1/items/{id}/similar?k=1"));
    assert_eq!((&found["results"][0]["path"], &found["protocol"]), (&json!(path), &Value::Null));
}

#[test]
fn two_networks_are_compared_by_their_queries() {
    let folder = tempfile::tempdir().unwrap();
    let (queries, gallery) = market();
    // The other network sees the second query beside its person.
    let moved: Vec<_> = QUERIES
        .iter()
        .map(|&(angle, label, camera)| (angle + if label == "0002" { 5.0 } else { 0.0 }, label, camera))
        .collect();
    let other =
        [("g.safetensors", gallery.clone()), ("q.safetensors", seen("query", &moved, Some("market1501")))];
    let [of_gallery, of_queries] = other.map(|(name, set)| {
        let path = folder.path().join(name);
        set.save(&path).unwrap();
        path
    });
    let served = |compare_queries| {
        let gallery = Gallery::from_set("gallery.safetensors", gallery.clone()).unwrap();
        Contents { compare: Some(of_gallery.clone()), compare_queries, ..contents(queries.clone(), gallery) }
    };
    let refused = Server::bind(served(None), options()).err().unwrap();
    assert!(refused.to_string().contains("those of the other are missing"), "{refused}");
    let server = Running::start(served(Some(of_queries)), options());
    let compared = server.ready("/api/v1/compare");
    let counts = ["total", "gained", "lost", "same"].map(|key| compared[key].as_u64().unwrap());
    assert_eq!(counts, [2, 1, 0, 1]);
    assert_eq!(compared["queries"][0]["item"]["path"], "query/1.png");
    assert_eq!(compared["queries"][0]["change"], 0.5);
    let query = &queries_of(&server)[1];
    let first = |model: &str| {
        let found = server.json(&format!("/api/v1/items/{query}/similar?k=1{model}"));
        found["results"][0]["path"].as_str().unwrap().to_owned()
    };
    assert_eq!((first(""), first("&model=other")), ("gallery/4.png".to_owned(), "gallery/5.png".to_owned()));
}

#[test]
fn queries_that_do_not_fit_the_gallery_are_refused_before_anything_is_served() {
    let (queries, gallery) = market();
    let refused = |queries: EmbeddingSet, gallery: &EmbeddingSet, protocol: Option<&str>| {
        let gallery = Gallery::from_set("g", gallery.clone()).unwrap();
        let contents = Contents { protocol: protocol.map(str::to_owned), ..contents(queries, gallery) };
        let error = Server::bind(contents, options()).err().expect("it was accepted");
        assert!(error.hint().is_some() || matches!(error, Error::Retrieval(_)), "{error}");
        error.to_string()
    };
    let of = |model: &str, set: &EmbeddingSet| EmbeddingSet { model: Some(model.to_owned()), ..set.clone() };
    let other = refused(of("shapes", &queries), &of("colours", &gallery), None);
    assert_eq!(
        other,
        "the query set `query.safetensors` was embedded with the network shapes, the gallery with colours"
    );
    let narrow = EmbeddingSet { embeddings: Matrix::new(3, 1, vec![1.0; 3]).unwrap(), ..queries.clone() };
    assert!(refused(narrow, &gallery, None).contains("3 rows of 1 values, the gallery's have 2"));
    let none = EmbeddingSet { embeddings: Matrix::new(0, 2, vec![]).unwrap(), ..seen("q", &[], None) };
    assert!(refused(none, &gallery, None).contains("0 rows"));
    let blind = EmbeddingSet { cameras: None, ..queries.clone() };
    assert!(refused(blind, &gallery, None).contains("the queries have none"));
    assert!(refused(queries.clone(), &gallery, Some("market")).contains("there is no protocol `market`"));
    assert!(refused(queries.clone(), &gallery, Some("cub200")).contains("every image with all the others"));
    let sets = EmbeddingSet { labels: Some(vec!["a|b".to_owned(); 3]), protocol: None, ..queries };
    assert!(refused(sets, &gallery, None).contains("one class per image"));
    let alone = Contents {
        protocol: Some("market1501".to_owned()),
        ..Gallery::from_set("g", gallery).unwrap().into()
    };
    let error = Server::bind(alone, options()).err().unwrap();
    assert!(error.to_string().contains("compares queries with a gallery"), "{error}");
}
