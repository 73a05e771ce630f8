//! What is found, and what is said of it.

use std::sync::Arc;

use crate::common::{
    CLASSES, Colours, Fixture, PER_CLASS, Running, exact_index, ids, options, shade, square,
};
use gallerist_retrieval::index::{Index, ItemFilter, item_id, open_index};
use gallerist_retrieval::search::Metric;
use gallerist_retrieval::{Code, EmbeddingSet, Matrix};
use gallerist_serve::{Contents, Error, Gallery, Images, Server};
use serde_json::json;

/// Ids of the items by their distance to row `query`, found the long way in f64.
fn ranking(set: &EmbeddingSet, names: &[(String, String)], query: usize) -> Vec<String> {
    let unit = |row: usize| {
        let row = set.embeddings.row(row);
        let length = row.iter().map(|&value| f64::from(value).powi(2)).sum::<f64>().sqrt();
        row.iter().map(|&value| f64::from(value) / length).collect::<Vec<_>>()
    };
    let distance = |row: usize| unit(row).iter().zip(unit(query)).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
    let mut rows: Vec<usize> = (0..set.embeddings.rows()).filter(|&row| row != query).collect();
    rows.sort_by(|&a, &b| distance(a).total_cmp(&distance(b)));
    rows.into_iter().map(|row| names[row].0.clone()).collect()
}

#[test]
fn every_kind_of_gallery_ranks_as_the_distances_do() {
    let fixture = Fixture::new();
    let (compact, index) = (fixture.path("compact.safetensors"), fixture.index_file());
    fixture.set.save_compact(&compact, Code::Bf16).unwrap();
    let decoded = EmbeddingSet::load(&compact).unwrap();
    for (path, set, kind) in [
        (fixture.file(), &fixture.set, "exact"),
        (compact, &decoded, "compact"),
        (index, &fixture.set, "exact"),
    ] {
        let server = Running::start(Gallery::open(&path, false).unwrap().into(), options());
        assert_eq!(server.json("/api/v1/gallery")["kind"], kind);
        // An index has an order of its own.
        let paths = fixture.set.paths.as_ref().unwrap();
        let names: Vec<_> = paths
            .iter()
            .map(|path| (gallerist_retrieval::index::stable_id(path).to_string(), String::new()))
            .collect();
        for query in 0..paths.len() {
            let found = server.json(&format!("/api/v1/items/{}/similar?k=99", names[query].0));
            assert_eq!(ids(&found), ranking(set, &names, query), "query {query} in {}", path.display());
        }
    }
}

#[test]
fn a_result_says_how_far_it_is_and_whether_it_is_right() {
    let fixture = Fixture::new();
    let server = Running::start(fixture.contents(), options());
    let items = server.items();
    assert_eq!(items.len(), CLASSES.len() * PER_CLASS);
    let found = server.json(&format!("/api/v1/items/{}/similar?k=5", items[0].0));
    assert_eq!(found["queries"][0]["label"], "blue");
    let results = found["results"].as_array().unwrap();
    for (at, result) in results.iter().enumerate() {
        assert_eq!(result["rank"], at + 1);
        assert_eq!(result["right"], result["label"] == "blue");
        let (distance, similarity) =
            (result["distance"].as_f64().unwrap(), result["similarity"].as_f64().unwrap());
        assert!((similarity - (1.0 - distance * distance / 2.0)).abs() < 1e-6);
    }
    let right = results.iter().filter(|result| result["right"] == true).count();
    assert_eq!(right, PER_CLASS - 1, "the query itself is not among them");
    assert!(found["took_ms"]["total"].as_f64().unwrap() >= found["took_ms"]["search"].as_f64().unwrap());
}

#[test]
fn filters_leave_what_passes_all_of_them() {
    let fixture = Fixture::new();
    let server = Running::start(fixture.contents(), options());
    let (id, script) = (&server.items()[0].0, "%3Cscript%3Egreen%3C/script%3E");
    let labels = |params: &str| {
        let found = server.json(&format!("/api/v1/items/{id}/similar?k=99{params}"));
        let results = found["results"].as_array().unwrap();
        results.iter().map(|result| result["label"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(labels("&label=red").len(), PER_CLASS);
    assert_eq!(labels(&format!("&label=red&label={script}")).len(), 2 * PER_CLASS);
    assert_eq!(labels("&not_label=red").len(), 2 * PER_CLASS - 1);
    assert_eq!(labels("&label=red&label=blue&not_label=red"), ["blue"; PER_CLASS - 1]);
    assert!(labels("&label=nothing").is_empty());
    assert!(labels("&camera=c1").is_empty());
    let page = server.json(&format!("/api/v1/items?label={script}&offset=1&limit=2"));
    assert_eq!((page["total"].as_u64(), page["items"].as_array().unwrap().len()), (Some(4), 2));
    let others = server.json("/api/v1/items?not_label=red&not_label=blue");
    assert_eq!(others["total"], 4);
    assert_eq!(server.json("/api/v1/items?camera=c1")["total"], 0);
    let names = server.json("/api/v1/labels?contains=R&limit=2");
    assert_eq!(
        names,
        json!({"total": 2, "labels": [
        {"label": "<script>green</script>", "count": 4, "queries": 0}, {"label": "red", "count": 4, "queries": 0}]})
    );
}

#[test]
fn a_label_of_a_filter_is_one_of_a_set() {
    let mut fixture = Fixture::new();
    let labels = ["heron|wading", "wading | stork", "wren", "heron"];
    fixture.set.labels = Some((0..12).map(|row| labels[row % 4].to_owned()).collect());
    let index = exact_index(fixture.set.clone(), Metric::Cosine);
    for gallery in
        [Gallery::open(&fixture.file(), false), Gallery::from_index("i", Box::new(index))].map(Result::unwrap)
    {
        let server = Running::start(gallery.into(), options());
        let first = server.json("/api/v1/items?where=path%20=%20%220/0.png%22");
        let id = first["items"][0]["id"].as_str().unwrap().to_owned();
        let about = server.json(&format!("/api/v1/items/{id}"));
        assert_eq!(about["neighbours_same_label"], 8, "all but the wrens, and not itself");
        for (filter, wanted, itself) in [
            ("label=heron", 6, 1),
            ("label=wading", 6, 1),
            ("label=stork&label=wren", 6, 0),
            ("label=heron%7Cwading", 3, 1),
            ("not_label=wading", 6, 0),
            ("label=heron&not_label=wading", 3, 0),
            ("label=wad", 0, 0),
        ] {
            assert_eq!(server.json(&format!("/api/v1/items?{filter}"))["total"], wanted, "{filter}");
            let found = server.json(&format!("/api/v1/items/{id}/similar?k=12&{filter}"));
            assert_eq!(ids(&found).len() + itself, wanted, "{filter}");
        }
    }
}

#[test]
fn several_queries_are_searched_for_by_the_mean_of_their_directions() {
    let fixture = Fixture::new();
    let server = Running::start(fixture.contents(), options());
    let items = server.items();
    let body = json!({"ids": [items[0].0, items[8].0], "k": 99});
    let found = server.post_json("/api/v1/search", &body).json();
    let own = [&items[0].0, &items[8].0];
    assert!(ids(&found).iter().all(|id| !own.contains(&id)) && ids(&found).len() == 10);
    assert_eq!(found["results"][0]["right"], json!(null), "blue and red have no label in common");

    let (rows, _) = fixture.set.embeddings.l2_normalized();
    let mean: Vec<f32> = rows.row(0).iter().zip(rows.row(8)).map(|(a, b)| a + b).collect();
    let by_vector = server.post_json("/api/v1/search", &json!({"vectors": [mean], "k": 99})).json();
    let others: Vec<String> = ids(&by_vector).into_iter().filter(|id| !own.contains(&id)).collect();
    assert_eq!(others, ids(&found));

    let same = server.post_json("/api/v1/search", &json!({"ids": [items[0].0, items[1].0]})).json();
    assert_eq!(same["results"][0]["right"], true);
}

#[test]
fn an_uploaded_image_finds_itself() {
    let fixture = Fixture::new();
    let server = Running::start(fixture.contents(), options());
    let png = square(shade(CLASSES[2].1, 1), 30);
    let fields: [(&str, Option<&str>, &[u8]); 3] =
        [("image", Some("a.png"), &png), ("k", None, b"2"), ("not_label", None, b"blue")];
    let answer = server.post_form("/api/v1/search/upload", &[], &fields);
    assert_eq!(answer.status, 200);
    let found = answer.json();
    assert_eq!(found["queries"], json!([{"id": null, "label": null, "name": "a.png", "cut_to": null}]));
    assert_eq!(found["results"][0]["path"], "2/1.png");
    assert!(found["results"][0]["distance"].as_f64().unwrap() < 1e-6);
    assert_eq!(
        (found["results"].as_array().unwrap().len(), &found["results"][0]["right"]),
        (2, &json!(null))
    );

    let id = server.items()[0].0.clone();
    let fields: [(&str, Option<&str>, &[u8]); 3] =
        [("id", None, id.as_bytes()), ("image", Some("a.png"), &png), ("image", None, &png)];
    let found = server.post_form("/api/v1/search/upload", &[], &fields).json();
    let queries = found["queries"].as_array().unwrap();
    assert_eq!((queries.len(), &queries[0]["name"], &queries[2]["id"]), (3, &json!("a.png"), &json!(id)));
    assert!(!ids(&found).contains(&id));
}

#[test]
fn an_index_keeps_its_origin_when_the_server_changes_it() {
    let fixture = Fixture::new();
    let path = fixture.path("gallery.index");
    let mut set = fixture.set.clone();
    set.source = Some(fixture.path("images").display().to_string());
    set.run = Some("/runs/one".to_owned());
    set.name_source("/photos");
    exact_index(set, Metric::Cosine).save(&path).unwrap();
    let origin = open_index(&path, true).unwrap().origin().unwrap();
    assert!(origin.run.is_some() && origin.source.is_some() && origin.model.is_some());
    let token = ("Authorization", "Bearer secret");
    let options = || gallerist_serve::Options { tokens: crate::common::secret(), ..options() };
    let served = || Running::start(fixture.contents_of(Gallery::open(&path, true).unwrap()), options());
    let add = |server: &Running, path: &str, source: Option<&str>| -> String {
        let png = square([200, 200, 200], 8);
        let mut fields: Vec<(&str, Option<&str>, &[u8])> =
            vec![("image", Some("x.png"), &png), ("path", None, path.as_bytes()), ("replace", None, b"true")];
        fields.extend(source.map(|source| ("source", None, source.as_bytes())));
        let answer = server.post_form("/api/v1/items", &[token], &fields);
        assert_eq!(answer.status, 201, "{}", String::from_utf8_lossy(&answer.body));
        answer.json()["id"].as_str().unwrap().to_owned()
    };
    let same = |what: &str| {
        let read = open_index(&path, true).unwrap();
        assert_eq!(read.origin().unwrap(), origin, "{what}");
        read.sources().unwrap().into_iter().map(|source| source.name).collect::<Vec<_>>()
    };
    for round in 0..2 {
        let server = served();
        assert_eq!(server.json("/api/v1/gallery")["run"], "one", "round {round}");
        // Without a name of its own the source is that of the gallery.
        let id = add(&server, &format!("grey/{round}.png"), None);
        assert_eq!(id, item_id(Some("/photos"), &format!("grey/{round}.png")).to_string());
        assert_eq!(same("add"), ["/photos"]);
        let replaced = add(&server, "0/1.png", None);
        assert_eq!(same("replace"), ["/photos"]);
        for id in [id, replaced] {
            assert_eq!(server.send("DELETE", &format!("/api/v1/items/{id}"), &[token], b"").status, 204);
        }
        assert_eq!(same("remove"), ["/photos"]);
    }
    let server = served();
    let id = add(&server, "0/2.png", Some("telephone"));
    assert_eq!(id, item_id(Some("telephone"), "0/2.png").to_string());
    assert_eq!(same("another source"), ["/photos", "telephone"]);
}

#[test]
fn items_come_and_go_in_an_index_and_outlive_the_server() {
    let fixture = Fixture::new();
    let path = fixture.index_file();
    let token = ("Authorization", "Bearer secret");
    let with_token = crate::common::options();
    let with_token = gallerist_serve::Options { tokens: crate::common::secret(), ..with_token };
    let server = Running::start(fixture.contents_of(Gallery::open(&path, true).unwrap()), with_token);
    assert_eq!(server.json("/api/v1/gallery")["writable"], true);

    let png = square([200, 200, 200], 8);
    let fields: [(&str, Option<&str>, &[u8]); 3] =
        [("image", Some("x.png"), &png), ("path", None, b"grey/1.png"), ("label", None, b"grey")];
    let answer = server.post_form("/api/v1/items", &[token], &fields);
    assert_eq!(answer.status, 201);
    let id = answer.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(server.json(&format!("/api/v1/items/{id}"))["label"], "grey");
    let found = server.post_form("/api/v1/search/upload", &[], &[("image", None, &png)]).json();
    assert_eq!(found["results"][0]["id"], id.as_str());
    // The same again changes nothing; another image of that path takes its place on purpose only.
    let again = server.post_form("/api/v1/items", &[token], &fields);
    assert_eq!((again.status, &again.json()["id"]), (200, &json!(id)));
    let other = square([200, 100, 200], 8);
    let with = |image: &[u8], replace: &[u8]| {
        let fields: [(&str, Option<&str>, &[u8]); 4] =
            [("image", Some("x.png"), image), fields[1], fields[2], ("replace", None, replace)];
        server.post_form("/api/v1/items", &[token], &fields)
    };
    let refused = with(&other, b"false");
    assert_eq!(refused.status, 409);
    assert!(refused.error().contains("would replace `grey/1.png`"), "{}", refused.error());
    assert!(refused.error().contains("another embedding"), "{}", refused.error());
    assert_eq!(with(&other, b"perhaps").status, 400);
    assert_eq!((with(&other, b"true").status, with(&png, b"true").status), (201, 201));
    assert_eq!(server.json("/api/v1/gallery")["count"], 13);
    assert_eq!(server.get(&format!("/thumbnails/{id}")).status, 404, "its image is not kept");

    let first = server.items()[0].0.clone();
    for status in [204, 404] {
        assert_eq!(server.send("DELETE", &format!("/api/v1/items/{first}"), &[token], b"").status, status);
    }
    drop(server);
    let kept = open_index(&path, true).unwrap().ids(&ItemFilter::default()).unwrap();
    assert!(kept.contains(&id.parse().unwrap()) && !kept.contains(&first.parse().unwrap()));
    assert_eq!(kept.len(), 12);
}

#[test]
fn what_does_not_belong_together_is_refused_before_anything_is_served() {
    let fixture = Fixture::new();
    let gallery = || Gallery::open(&fixture.file(), false).unwrap();
    let refused = |contents: Contents, options| match Server::bind(contents, options) {
        Ok(_) => panic!("it was accepted"),
        Err(error) => {
            assert!(error.hint().is_some(), "{error}");
            error.to_string()
        }
    };
    let other = EmbeddingSet { model: Some("shapes".to_owned()), ..fixture.set.clone() };
    let contents = fixture.contents_of(Gallery::from_set("a", other).unwrap());
    assert!(
        refused(contents, options()).contains("was embedded with the network shapes, and colours is given")
    );

    let narrow =
        EmbeddingSet { embeddings: Matrix::new(12, 1, vec![1.0; 12]).unwrap(), ..fixture.set.clone() };
    let contents = Contents { images: None, ..fixture.contents_of(Gallery::from_set("a", narrow).unwrap()) };
    assert_eq!(refused(contents, options()), "`a` has 1 dimensions, the network gives 4");

    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("other.png"), square([0, 0, 0], 1)).unwrap();
    let images = Images::open(folder.path(), 1 << 20, None).unwrap();
    let contents = Contents { images: Some(images), ..gallery().into() };
    assert!(refused(contents, options()).contains("`0/0.png` for one is missing"));

    let paths = Some(vec!["a.png".to_owned(); 12]);
    EmbeddingSet { paths, ..fixture.set.clone() }.save(fixture.path("twice.safetensors")).unwrap();
    let twice = Gallery::open(&fixture.path("twice.safetensors"), false).err().unwrap();
    assert!(twice.to_string().contains("rows 0 and 1 of the items are both `a.png`"), "{twice}");
    assert!(twice.hint().unwrap().contains("--ids rows"));

    let index = exact_index(fixture.set.clone(), Metric::InnerProduct);
    let refused = Gallery::from_index("i", Box::new(index)).err().unwrap();
    assert!(matches!(refused, Error::Metric { .. }));

    let taken = Running::start(gallery().into(), options());
    let mut twice = options();
    twice.address = taken.address;
    let contents = Contents { embedder: Some(Arc::new(Colours::default())), ..gallery().into() };
    let error = Server::bind(contents, twice).err().unwrap();
    assert!(error.hint().is_some_and(|hint| hint.contains("--port")), "{error}");
}

#[test]
fn the_threshold_of_a_gallery_marks_results() {
    use gallerist_retrieval::eval::{FalseRate, MatchRule};
    use gallerist_retrieval::search::Metric;

    let mut fixture = Fixture::new();
    let plain = Running::start(fixture.contents(), options());
    let similar = format!("/api/v1/items/{}/similar?k=5", plain.items()[0].0);
    let found = plain.json(&similar);
    assert!(found["matches"].is_null() && found["results"][0]["match"].is_null());
    assert!(plain.json("/api/v1/gallery")["threshold"].is_null());
    // Between the first and the second, and between the second and the third result.
    let similarity = |at: usize| found["results"][at]["similarity"].as_f64().unwrap() as f32;
    let between = |at: usize| f32::midpoint(similarity(at), similarity(at + 1));
    fixture.set.threshold = Some(MatchRule {
        metric: Metric::Cosine,
        threshold: between(0),
        near: between(1),
        rate: FalseRate::Comparison,
        target: 0.01,
        measured: 0.01,
        bound: 0.05,
        confidence: 0.95,
        miss_rate: Some(0.5),
        gallery: None,
        model: None,
    });
    let server = Running::start(fixture.contents(), options());
    let found = server.json(&similar);
    let marks: Vec<_> = found["results"].as_array().unwrap().iter().map(|one| one["match"].clone()).collect();
    assert_eq!(marks, ["match", "near", "no_match", "no_match", "no_match"]);
    assert_eq!(found["matches"], 1);
    let threshold = &server.json("/api/v1/gallery")["threshold"];
    assert_eq!((&threshold["rate"], &threshold["target"]), (&"comparison".into(), &0.01.into()));
}
