//! Pictures, and what is computed after the start.

use std::sync::Mutex;

use crate::common::{Fixture, PER_CLASS, Response, Running, exact_index, holds, options, secret, square};
use gallerist_retrieval::file::{Source, Sources};
use gallerist_retrieval::index::{Items, stable_id};
use gallerist_retrieval::search::Metric;
use gallerist_retrieval::{EmbeddingSet, Matrix};
use gallerist_serve::{Companion, Contents, Gallery, Images, Options, Server};
use serde_json::{Value, json};

#[test]
fn pictures_are_sent_once_and_thumbnails_made_once() {
    let fixture = Fixture::new();
    let kept = fixture.path("thumbnails");
    let images = Images::open(&fixture.path("images"), 1 << 20, Some(kept.clone())).unwrap();
    let server = Running::start(Contents { images: Some(images), ..fixture.contents() }, options());
    let id = server.items()[0].0.clone();
    let original = server.get(&format!("/images/{id}"));
    assert_eq!(original.body, std::fs::read(fixture.path("images/0/0.png")).unwrap());
    assert_eq!(original.header("content-type"), "image/png");
    let thumbnail = server.get(&format!("/thumbnails/{id}?size=64"));
    assert_eq!(thumbnail.header("content-type"), "image/jpeg");
    let small = gallerist_data::decode(&thumbnail.body, "a thumbnail").unwrap();
    assert_eq!((small.width(), small.height()), (64, 64));
    assert!(small.pixels()[2] > 240, "still blue");

    for (path, etag) in [
        ("images", original.header("etag")),
        ("thumbnails", server.get(&format!("/thumbnails/{id}")).header("etag")),
    ] {
        let again = server.send("GET", &format!("/{path}/{id}"), &[("If-None-Match", etag)], b"");
        assert_eq!((again.status, again.body.len(), again.header("etag")), (304, 0, etag));
        assert!(again.header("cache-control").contains("max-age="));
        for known in [format!("W/{etag}"), "*".to_owned(), format!("\"x\", W/{etag}")] {
            let again = server.send("GET", &format!("/{path}/{id}"), &[("If-None-Match", &known)], b"");
            assert_eq!((again.status, again.body.len()), (304, 0), "{known}");
        }
        assert_eq!(
            server.send("GET", &format!("/{path}/{id}"), &[("If-None-Match", "\"x\"")], b"").status,
            200
        );
    }

    assert_eq!(holds(&kept, ".jpg"), 2, "of 64 and of 160 pixels");
    drop(server);
    // The next server takes them from there.
    for file in std::fs::read_dir(&kept).unwrap() {
        std::fs::write(file.unwrap().path(), square([1, 2, 3], 3)).unwrap();
    }
    let images = Images::open(&fixture.path("images"), 1 << 20, Some(kept)).unwrap();
    let server = Running::start(Contents { images: Some(images), ..fixture.contents() }, options());
    assert_eq!(server.get(&format!("/thumbnails/{id}?size=64")).body, square([1, 2, 3], 3));
}

#[test]
fn small_and_strange_images_are_shown_too_and_broken_ones_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let tiff: Vec<u8> = {
        // Little-endian, one grey pixel of 200.
        let mut file = b"II*\0\x0a\0\0\0\xc8\0".to_vec();
        file.extend(8u16.to_le_bytes());
        for (tag, kind, value) in [
            (256u16, 3u16, 1u32),
            (257, 3, 1),
            (258, 3, 8),
            (259, 3, 1),
            (262, 3, 1),
            (273, 4, 8),
            (278, 3, 1),
            (279, 4, 1),
        ] {
            file.extend([tag.to_le_bytes(), kind.to_le_bytes()].concat());
            file.extend([1u32.to_le_bytes(), value.to_le_bytes()].concat());
        }
        file.extend([0; 4]);
        file
    };
    let png = square([5, 6, 7], 10);
    for (name, bytes) in [("a.png", &png), ("b.tif", &tiff), ("c.png", &b"no image".to_vec())] {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    let paths = ["a.png", "b.tif", "c.png", "d.png"].map(str::to_owned).to_vec();
    let rows = Matrix::new(4, 2, vec![1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 2.0, 1.0]).unwrap();
    let set = EmbeddingSet { paths: Some(paths.clone()), ..rows.into() };
    let images = Images::open(folder.path(), 1 << 20, None).unwrap();
    let contents = Contents { images: Some(images), ..Gallery::from_set("a", set).unwrap().into() };
    let server = Running::start(contents, options());
    let get = |kind: &str, path: &str| server.get(&format!("/{kind}/{}", stable_id(path)));
    assert_eq!(get("thumbnails", "a.png").body, png, "it is small enough as it is");
    assert_eq!(get("images", "b.tif").header("content-type"), "image/png");
    assert_eq!(get("thumbnails", "b.tif").status, 200);
    for kind in ["images", "thumbnails"] {
        let broken = get(kind, "c.png");
        assert_eq!(broken.status, 422);
        assert!(!broken.error().contains(folder.path().to_str().unwrap()), "{}", broken.error());
        assert_eq!(get(kind, "d.png").status, 404);
    }
}

#[test]
fn the_heat_is_where_the_other_images_colour_is() {
    let fixture = Fixture::new();
    let server = Running::start(fixture.contents(), options());
    let items = server.items();
    let heat = server.json(&format!("/api/v1/heatmap?query={}&item={}", items[0].0, items[8].0));
    let values = heat["query"]["values"].as_array().unwrap();
    assert_eq!((&heat["query"]["width"], values.len()), (&json!(400), 400 * 400));
    // Of (20, 40, 250) and (250, 30, 20).
    let (product, lengths) = (5000.0 + 1200.0 + 5000.0, (64_500.0f64 * 63_800.0).sqrt());
    assert!((values[0].as_f64().unwrap() - product / lengths).abs() < 1e-6);
}

/// Rows in the plane at these angles, in degrees.
fn at_angles(angles: &[f64], labels: &[&str]) -> EmbeddingSet {
    let rows = angles.iter().flat_map(|angle| {
        let (sin, cos) = angle.to_radians().sin_cos();
        [cos as f32, sin as f32]
    });
    EmbeddingSet {
        labels: Some(labels.iter().map(ToString::to_string).collect()),
        paths: Some((0..angles.len()).map(|row| format!("{row}.png")).collect()),
        ..Matrix::new(angles.len(), 2, rows.collect()).unwrap().into()
    }
}

fn id(row: usize) -> Value {
    json!(stable_id(&format!("{row}.png")).to_string())
}

#[test]
fn failures_confusions_and_duplicates_are_those_worked_by_hand() {
    // a at 0 and 10, b at 11 and 40, and one without a label far away.
    let set = at_angles(&[0.0, 10.0, 11.0, 40.0, 120.0], &["a", "a", "b", "b", ""]);
    let server = Running::start(Gallery::from_set("g", set).unwrap().into(), options());
    let failures = server.ready("/api/v1/failures");
    // Row 3 has 2 at rank 1. Row 0 has 1 at rank 1. Row 1 has 0 behind 2; row 2 has 3 behind 1 and 0.
    let found: Vec<_> = failures["queries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|query| (query["item"]["id"].clone(), query["average_precision"].as_f64().unwrap()))
        .collect();
    let third = found[0].1;
    assert!((third - 1.0 / 3.0).abs() < 1e-12);
    assert_eq!(found, [(id(2), third), (id(1), 0.5), (id(0), 1.0), (id(3), 1.0)]);
    assert_eq!((&failures["total"], &failures["queries"][0]["first_match_rank"]), (&json!(4), &json!(3)));
    assert_eq!(
        (&failures["queries"][0]["matches"], &failures["queries"][0]["nearest"]["id"]),
        (&json!(1), &id(1))
    );
    assert!((failures["mean_average_precision"].as_f64().unwrap() - 17.0 / 24.0).abs() < 1e-12);
    let best = server.json("/api/v1/failures?sort=-ap&limit=1&offset=1");
    assert_eq!(best["queries"][0]["item"]["id"], id(0));

    let confusions = server.ready("/api/v1/confusions");
    let pair = |a: &str, b: &str, query: usize, result: usize| json!({"a": a, "b": b, "count": 1, "share": 0.5, "example": {"query": id(query), "result": id(result)}});
    assert_eq!(confusions["pairs"], json!([pair("a", "b", 1, 2), pair("b", "a", 2, 1)]));

    let pairs = |distance: f64| {
        let answer = server.ready(&format!("/api/v1/duplicates?distance={distance}"));
        let pairs = answer["pairs"].as_array().unwrap();
        pairs.iter().map(|pair| (pair["a"]["id"].clone(), pair["b"]["id"].clone())).collect::<Vec<_>>()
    };
    assert_eq!(pairs(0.1), [(id(1), id(2))], "once, though each is the other's nearest");
    assert_eq!(pairs(2.0), [(id(1), id(2)), (id(0), id(1)), (id(3), id(2)), (id(4), id(3))]);
}

#[test]
fn label_sets_are_relevant_where_they_share_a_label() {
    let set = at_angles(&[0.0, 10.0, 30.0], &["a|b", "c", "b|d"]);
    let server = Running::start(Gallery::from_set("g", set).unwrap().into(), options());
    let failures = server.ready("/api/v1/failures");
    let queries = failures["queries"].as_array().unwrap();
    assert_eq!(queries.len(), 2);
    assert!(queries.iter().all(|query| query["average_precision"] == 0.5 && query["matches"] == 1));
    assert!(
        queries.iter().all(|query| query["nearest"]["label"] == "c" && query["nearest"]["right"] == false)
    );
    let found = server.json(&format!("/api/v1/items/{}/similar", id(0).as_str().unwrap()));
    assert_eq!((&found["results"][0]["right"], &found["results"][1]["right"]), (&json!(false), &json!(true)));
}

#[test]
fn the_nearest_item_of_a_query_is_right_where_it_shares_a_label() {
    let set = at_angles(&[0.0, 10.0, 30.0], &["a|b", "b|c", "c"]);
    let server = Running::start(Gallery::from_set("g", set).unwrap().into(), options());
    let failures = server.ready("/api/v1/failures");
    let queries = failures["queries"].as_array().unwrap();
    assert_eq!(queries.len(), 3);
    assert!(queries.iter().all(|query| query["first_match_rank"] == 1 && query["nearest"]["right"] == true));
}

#[test]
fn the_lists_have_no_gaps_where_an_item_was_removed() {
    let set = at_angles(&[0.0, 10.0, 11.0, 40.0, 120.0], &["a", "a", "b", "b", ""]);
    let gallery = Gallery::from_index("g", Box::new(exact_index(set, Metric::Cosine))).unwrap();
    let server = Running::start(gallery.into(), Options { tokens: secret(), ..options() });
    let count = |path: &str, key: &str| {
        let answer = server.ready(path);
        (answer["total"].as_u64().unwrap(), answer[key].as_array().unwrap().len())
    };
    assert_eq!(count("/api/v1/failures", "queries"), (4, 4));
    assert_eq!(count("/api/v1/duplicates?distance=2", "pairs"), (4, 4));
    let step = |row: usize| server.json(&format!("/api/v1/failures/{}", id(row).as_str().unwrap()));
    assert_eq!((&step(2)["place"], &step(2)["next"]), (&json!(0), &id(1)));

    let path = format!("/api/v1/items/{}", id(1).as_str().unwrap());
    assert_eq!(server.send("DELETE", &path, &[("Authorization", "Bearer secret")], b"").status, 204);
    assert_eq!(count("/api/v1/failures", "queries"), (3, 3));
    assert_eq!(count("/api/v1/failures?limit=2", "queries"), (3, 2));
    assert_eq!(count("/api/v1/failures?offset=2", "queries"), (3, 1));
    assert_eq!(count("/api/v1/duplicates?distance=2", "pairs"), (2, 2));
    let second = server.json("/api/v1/failures?offset=1&limit=1")["queries"][0]["item"]["id"].clone();
    assert_eq!((&step(2)["total"], &step(2)["next"]), (&json!(3), &second));
    assert_eq!(step(1)["place"], Value::Null);
}

#[test]
fn the_other_network_is_compared_image_by_image() {
    let folder = tempfile::tempdir().unwrap();
    let labels = ["a", "a", "b", "b"];
    let ours = at_angles(&[0.0, 10.0, 11.0, 40.0], &labels);
    // The classes apart, and in another order.
    let theirs = at_angles(&[0.0, 1.0, 80.0, 90.0], &labels).select(&[3, 1, 0, 2]);
    let (path, training) =
        (folder.path().join("other.safetensors"), folder.path().join("training.safetensors"));
    theirs.save(&path).unwrap();
    at_angles(&[40.5, 200.0], &["b", "z"]).save(&training).unwrap();
    let gallery = Gallery::from_set("g", ours).unwrap();
    let server = Running::start(
        Contents {
            compare: Some(path),
            training: Some(Companion::open(&training).unwrap()),
            ..gallery.into()
        },
        options(),
    );
    assert_eq!(server.json("/api/v1/gallery")["compare"], "other.safetensors");
    let compared = server.ready("/api/v1/compare?sort=gained");
    let counts = ["total", "gained", "lost", "same"].map(|key| compared[key].as_u64().unwrap());
    assert_eq!(counts, [4, 2, 0, 2]);
    assert_eq!((&compared["own"], &compared["other"]), (&json!("g"), &json!("other.safetensors")));
    // 1, 1/2, 1/2, 1 without the last item; the other answers all.
    let means = ["mean_average_precision", "other_mean_average_precision"];
    let [own, other] = means.map(|key| compared[key].as_f64().unwrap());
    assert!((own - (1.0 + 0.5 + 1.0 / 3.0 + 1.0) / 4.0).abs() < 1e-12 && other == 1.0, "{own} {other}");
    let first = &compared["queries"][0];
    assert_eq!((&first["item"]["id"], &first["other_average_precision"]), (&id(2), &json!(1.0)));
    assert!((first["change"].as_f64().unwrap() - 2.0 / 3.0).abs() < 1e-12);
    let lost = server.json("/api/v1/compare?sort=lost&limit=1");
    assert_eq!(lost["queries"][0]["change"], 0.0);

    let similar = |id: &Value, model: &str| {
        server.get(&format!("/api/v1/items/{}/similar?k=1{model}", id.as_str().unwrap()))
    };
    assert_eq!(similar(&id(2), "").json()["results"][0]["id"], id(1));
    assert_eq!(similar(&id(2), "&model=other").json()["results"][0]["id"], id(3));
    let body = json!({"ids": [id(2)], "k": 1, "model": "other"});
    assert_eq!(server.post_json("/api/v1/search", &body).json()["results"][0]["id"], id(3));

    let leaks = server.ready("/api/v1/leaks");
    assert_eq!(leaks["total"], 1);
    let leak = &leaks["pairs"][0];
    let b = ["set", "path", "label"].map(|key| leak["b"][key].as_str().unwrap());
    assert_eq!((&leak["a"]["id"], b), (&id(3), ["training", "0.png", "b"]));
}

#[test]
fn sets_that_differ_are_not_compared() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other.safetensors");
    let refusal = |ours: EmbeddingSet, theirs: EmbeddingSet| {
        theirs.save(&path).unwrap();
        let gallery = Gallery::from_set("g.safetensors", ours).unwrap();
        let contents = Contents { compare: Some(path.clone()), ..gallery.into() };
        Server::bind(contents, options()).err().map(|error| {
            assert!(error.hint().unwrap().contains("--source"));
            error.to_string()
        })
    };
    let set = |rows: usize, source: Option<&str>| {
        let angles: Vec<f64> = (0..rows).map(|row| row as f64).collect();
        let mut set = at_angles(&angles, &vec!["a"; rows]);
        if let Some(source) = source {
            set.name_source(source);
        }
        set
    };
    let message = refusal(set(5, None), set(9, None)).unwrap();
    assert!(message.contains("0 of 5 are only in `g.safetensors`"), "{message}");
    assert!(message.contains("4 of 9 are only in `"), "{message}");
    assert!(message.ends_with("other.safetensors`: `5.png`, `6.png`, `7.png`, …"), "{message}");
    let message = refusal(set(3, Some("/x/train")), set(3, Some("/x/test"))).unwrap();
    assert!(message.contains("3 of 3 are only in `g.safetensors`: `0.png` of `/x/train`"), "{message}");
    // A file of before sources were kept is told by its paths, unless those are of several sources.
    assert_eq!(refusal(set(3, Some("/x/train")), set(3, None)), None);
    let both = EmbeddingSet::concat(vec![set(3, Some("/x/train")), set(3, Some("/x/test"))], false).unwrap();
    let message = refusal(both.clone(), set(3, None)).unwrap();
    assert!(message.contains("`g.safetensors` holds several images with the path `0.png`"), "{message}");
    assert_eq!(refusal(both.clone(), both.select(&[5, 1, 3, 0, 2, 4])), None);
    let unnamed = EmbeddingSet { paths: None, ..set(3, None) };
    assert!(refusal(set(3, None), unnamed).unwrap().contains("not all rows of"));
}

#[test]
fn images_of_one_path_in_two_sources_are_shown_each_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let colours = [[250, 0, 0], [0, 250, 0]];
    let mut sets = Vec::new();
    for (name, colour) in ["train", "test"].iter().zip(colours) {
        let source = folder.path().join(name);
        std::fs::create_dir_all(source.join("a")).unwrap();
        std::fs::write(source.join("a/1.png"), square(colour, 20)).unwrap();
        let mut set = at_angles(&[f64::from(colour[0])], &["a"]);
        set.paths = Some(vec!["a/1.png".to_owned()]);
        set.sources = Some(Sources::one(Source::at(&source), 1));
        sets.push(set);
    }
    let both = EmbeddingSet::concat(sets, false).unwrap();
    let ids = Items::from_set(both.clone()).unwrap().ids().to_vec();
    let gallery = || Gallery::from_set("g", both.clone()).unwrap();
    let places: Vec<_> = gallery().sources().iter().map(|source| source.images.clone().unwrap()).collect();
    let train = [folder.path().join("train")];
    for (images, shown) in [
        (Images::open_all(&places, 1 << 20, None).unwrap(), [true, true]),
        (Images::open(folder.path(), 1 << 20, None).unwrap(), [true, true]),
        (Images::open_all(&train, 1 << 20, None).unwrap(), [true, false]),
    ] {
        let server = Running::start(Contents { images: Some(images), ..gallery().into() }, options());
        for ((id, colour), shown) in ids.iter().zip(colours).zip(shown) {
            let answer = server.get(&format!("/images/{id}"));
            assert_eq!(answer.status, if shown { 200 } else { 404 });
            assert!(!shown || answer.body == square(colour, 20), "another image of the same path");
        }
    }
}

#[test]
fn images_of_named_sources_are_found_where_they_were_and_where_they_were_moved() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let colours = [("photos", [250, 0, 0]), ("delivery", [0, 250, 0])];
    let mut sets = Vec::new();
    for (name, colour) in colours {
        std::fs::create_dir(at(name)).unwrap();
        let own = format!("{name}.png");
        for file in ["1.png", &own] {
            std::fs::write(at(name).join(file), square(colour, 20)).unwrap();
        }
        let mut set = at_angles(&[f64::from(colour[0]), 3.0], &["a", "b"]);
        set.paths = Some(vec!["1.png".to_owned(), own]);
        set.sources = Some(Sources::one(Source::at(&at(name)), 2));
        set.name_source(format!("the {name}"));
        sets.push(set);
    }
    let both = EmbeddingSet::concat(sets, false).unwrap();
    let ids = Items::from_set(both.clone()).unwrap().ids().to_vec();
    let shown = |images: Images| {
        let gallery = Gallery::from_set("g", both.clone()).unwrap();
        let server = Running::start(Contents { images: Some(images), ..gallery.into() }, options());
        let answers = ids.iter().map(|id| server.get(&format!("/images/{id}")));
        let colour = |(at, answer): (usize, Response)| {
            assert!(answer.status == 404 || answer.body == square(colours[at / 2].1, 20), "another image");
            answer.status == 200
        };
        answers.enumerate().map(colour).collect::<Vec<_>>()
    };
    let all = |paths: &[&str]| {
        Images::open_all(&paths.iter().map(|name| at(name)).collect::<Vec<_>>(), 1 << 20, None).unwrap()
    };
    assert_eq!(shown(all(&["photos", "delivery"])), [true; 4]);
    for name in ["photos", "delivery"] {
        std::fs::rename(at(name), at(&format!("new {name}"))).unwrap();
    }
    // Both sources have the path `1.png`: which of the two a folder has cannot be known.
    assert_eq!(shown(all(&["new photos", "new delivery"])), [false, true, false, true]);
    assert_eq!(shown(all(&["new photos"])), [false, true, false, false]);
    let named = [("the delivery", "new delivery"), ("the photos", "new photos")];
    let named = named.map(|(name, path)| (name.to_owned(), at(path)));
    assert_eq!(shown(Images::open_sources(&named, 1 << 20, None).unwrap()), [true; 4]);
}

#[test]
fn the_map_has_a_point_for_every_item_and_is_kept() {
    let fixture = Fixture::new();
    let file = fixture.file();
    let served = || Running::start(Gallery::open(&file, false).unwrap().into(), options());
    let server = served();
    let map = server.ready("/api/v1/map");
    assert_eq!((&map["count"], &map["labels"][2]), (&json!(12), &json!("red")));
    let points = server.get("/api/v1/map/points");
    assert_eq!(points.body.len(), 12 * 20);
    let first = u64::from_le_bytes(*points.body.first_chunk().unwrap());
    assert_eq!(first.to_string(), server.items()[0].0);
    let labels: Vec<u32> =
        points.body[12 * 16..].as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
    assert_eq!(labels, [[0; PER_CLASS], [1; PER_CLASS], [2; PER_CLASS]].concat());
    drop(server);

    let kept = fixture.path("gallery.safetensors.map.safetensors");
    let mut moved = EmbeddingSet::load(&kept).unwrap();
    moved.embeddings = Matrix::new(12, 2, vec![7.0; 24]).unwrap();
    moved.save(&kept).unwrap();
    let server = served();
    server.ready("/api/v1/map");
    assert_eq!(server.get("/api/v1/map/points").body[12 * 8..][..4], 7f32.to_le_bytes());
    drop(server);
    // Of other rows it is made anew.
    let other = EmbeddingSet { embeddings: moved.embeddings, model: Some("another".to_owned()), ..moved };
    other.save(&kept).unwrap();
    let server = served();
    server.ready("/api/v1/map");
    assert_eq!(server.get("/api/v1/map/points").body, points.body);
}

#[test]
fn what_would_take_too_long_is_left_out() {
    let set = at_angles(&[0.0, 10.0, 20.0], &["a", "a", "b"]);
    let limited = Options { analysis_items: 2, ..options() };
    let training = Some(Companion::from_set("t", at_angles(&[1.0, 2.0], &["a", "b"])));
    let gallery = Gallery::from_set("g", set).unwrap();
    let server = Running::start(Contents { training, ..gallery.into() }, limited);
    for path in ["failures", "confusions", "duplicates", "leaks", "compare"] {
        assert_eq!(server.json(&format!("/api/v1/{path}"))["state"], "none", "{path}");
    }
    server.ready("/api/v1/map");
    assert_eq!(server.json("/api/v1/gallery")["failures"], "none");
}

#[test]
fn rows_of_zeros_are_measured_where_lengths_count_and_refused_under_the_cosine() {
    static NOTES: Mutex<Vec<String>> = Mutex::new(Vec::new());
    fn note(text: &str) {
        NOTES.lock().unwrap().push(text.to_owned());
    }
    for (metric, failures) in [(Metric::Cosine, "none"), (Metric::Euclidean, "ready")] {
        let mut set = at_angles(&[0.0, 10.0, 20.0, 30.0], &["a", "a", "b", "b"]);
        let mut values = set.embeddings.as_slice().to_vec();
        values[6..].fill(0.0);
        (set.embeddings, set.metric) = (Matrix::new(4, 2, values).unwrap(), Some(metric));
        let gallery = Gallery::from_set("g", set).unwrap();
        let server = Running::start(gallery.into(), Options { note, ..options() });
        server.ready("/api/v1/map");
        assert_eq!(server.json("/api/v1/failures")["state"], failures, "{metric:?}");
        assert_eq!(server.json("/api/v1/duplicates")["state"], "ready");
    }
    let notes = NOTES.lock().unwrap();
    let wanted = "no failures: gallery: row 3 is all zeros; the cosine of such a row is not defined";
    assert!(notes.iter().any(|note| note == wanted), "{notes:?}");
}

#[test]
fn every_call_is_documented_and_every_documented_call_is_there() {
    let fixture = Fixture::new();
    let server = Running::start(fixture.contents(), options());
    let api = server.json("/openapi.json");
    let paths = api["paths"].as_object().unwrap();
    assert_eq!(paths.len(), 28);
    for (path, calls) in paths {
        let path = path.replace("{id}", &server.items()[0].0);
        for (method, call) in calls.as_object().unwrap() {
            if method == "delete" {
                continue;
            }
            let answer = server.send(&method.to_uppercase(), &path, &[], b"");
            let documented = call["responses"].as_object().unwrap();
            let status = answer.status.to_string();
            assert!(documented.contains_key(&status) || answer.status == 415, "{method} {path}: {status}");
        }
    }
    assert_eq!(server.json("/health"), json!({"status": "ok"}));
    let metrics = String::from_utf8(server.get("/metrics").body).unwrap();
    assert!(metrics.contains("gallerist_items{gallery=\""), "{metrics}");
    assert!(metrics.contains("gallerist_requests_total{method=\"GET\",path=\"/health\",status=\"200\"} "));
    assert!(metrics.ends_with("# EOF\n"));
}

#[test]
fn a_query_has_a_place_among_the_others_in_every_order() {
    let set = at_angles(&[0.0, 10.0, 21.0, 60.0, 65.0, 71.0], &["a", "b", "a", "b", "b", "c"]);
    let server = Running::start(Gallery::from_set("g", set).unwrap().into(), options());
    server.ready("/api/v1/failures");
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    for sort in ["ap", "-ap", "wrong", "file"] {
        let list = server.json(&format!("/api/v1/failures?sort={sort}"));
        let queries = list["queries"].as_array().unwrap();
        assert_eq!(queries.len(), 5);
        let ids: Vec<String> = queries.iter().map(|query| text(&query["item"]["id"])).collect();
        for (place, query) in queries.iter().enumerate() {
            let step = server.json(&format!("/api/v1/failures/{}?sort={sort}", ids[place]));
            assert_eq!((step["place"].as_u64(), step["total"].as_u64()), (Some(place as u64), Some(5)));
            assert_eq!(step["average_precision"], query["average_precision"]);
            assert_eq!(step["first_match_rank"], query["first_match_rank"]);
            let neighbour = |key: &str| step[key].as_str().map(str::to_owned);
            assert_eq!(neighbour("previous"), place.checked_sub(1).map(|place| ids[place].clone()));
            assert_eq!(neighbour("next"), ids.get(place + 1).cloned());
        }
        let value = |key: &str| queries.iter().map(|query| query[key].as_f64().unwrap()).collect::<Vec<_>>();
        match sort {
            "ap" => assert!(value("average_precision").is_sorted()),
            "-ap" => assert!(value("average_precision").is_sorted_by(|a, b| a >= b)),
            // The wrong ones first, each part in the order of the file.
            "wrong" => assert!(value("first_match_rank").is_sorted_by_key(|&rank| rank == 1.0)),
            _ => {
                let all: Vec<String> = server.items().into_iter().map(|(id, _)| id).collect();
                assert!(ids.iter().map(|id| all.iter().position(|other| other == id)).is_sorted());
            }
        }
    }
    // The only item of its class has no relevant item, and an unknown id is no query.
    let alone = server.items()[5].0.clone();
    assert!(server.json(&format!("/api/v1/failures/{alone}"))["place"].is_null());
    assert!(server.json("/api/v1/failures/7")["place"].is_null());
    assert_eq!(server.get("/api/v1/failures?sort=best").status, 400);
}
