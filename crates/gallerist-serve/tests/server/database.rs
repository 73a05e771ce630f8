//! A gallery in a database, which other programs change, too.

use std::sync::{Arc, RwLock};
use std::time::Duration;

use gallerist_retrieval::MatrixView;
use gallerist_retrieval::columns::ColumnKind;
use gallerist_retrieval::file::Source;
use gallerist_retrieval::index::{
    ExactIndex, IdLists, Index, IndexInfo, Item, ItemFilter, Items, Origin, stable_id,
};
use gallerist_retrieval::search::Metric;
use gallerist_serve::{Gallery, Options};
use serde_json::{Value, json};

use crate::common::{Barrier, Fixture, Running, TOKEN, add, exact_index, ids, square, with_token};

/// A collection of a database. Clones are of the same collection.
#[derive(Clone)]
struct Database {
    collection: Arc<RwLock<ExactIndex>>,
    /// Where a change waits.
    barrier: Option<Arc<Barrier>>,
}

impl Database {
    /// With these rows of the fixture.
    fn of(fixture: &Fixture, rows: &[usize]) -> Self {
        let index = exact_index(fixture.set.select(rows), Metric::Cosine);
        Self { collection: Arc::new(RwLock::new(index)), barrier: None }
    }

    /// Adds rows of the fixture, as another program.
    fn push(&self, fixture: &Fixture, rows: &[usize]) {
        let items = Items::from_set(fixture.set.select(rows)).unwrap();
        self.collection.write().unwrap().upsert(&items).unwrap();
    }

    fn serve(&self, fixture: &Fixture) -> Running {
        let gallery = Gallery::from_index("milvus://db.example/birds", Box::new(self.clone())).unwrap();
        Running::start(fixture.contents_of(gallery), with_token())
    }
}

impl Index for Database {
    fn info(&self) -> gallerist_retrieval::Result<IndexInfo> {
        Ok(IndexInfo { place: "Milvus", ..self.collection.read().unwrap().info()? })
    }

    fn origin(&self) -> gallerist_retrieval::Result<Origin> {
        self.collection.read().unwrap().origin()
    }

    fn sources(&self) -> gallerist_retrieval::Result<Vec<Source>> {
        self.collection.read().unwrap().sources()
    }

    fn columns(&self) -> gallerist_retrieval::Result<Vec<(String, ColumnKind)>> {
        self.collection.read().unwrap().columns()
    }

    fn labels(&self, filter: &ItemFilter) -> gallerist_retrieval::Result<Vec<(u64, Option<String>)>> {
        self.collection.read().unwrap().labels(filter)
    }

    fn upsert(&mut self, items: &Items) -> gallerist_retrieval::Result<()> {
        if let Some(barrier) = &self.barrier {
            barrier.pass();
        }
        self.collection.write().unwrap().upsert(items)
    }

    fn remove(&mut self, ids: &[u64]) -> gallerist_retrieval::Result<usize> {
        if let Some(barrier) = &self.barrier {
            barrier.pass();
        }
        self.collection.write().unwrap().remove(ids)
    }

    fn search(
        &self,
        queries: MatrixView<'_>,
        k: usize,
        filter: &ItemFilter,
    ) -> gallerist_retrieval::Result<IdLists> {
        self.collection.read().unwrap().search(queries, k, filter)
    }

    fn get(&self, ids: &[u64]) -> gallerist_retrieval::Result<Vec<Option<Item>>> {
        self.collection.read().unwrap().get(ids)
    }

    fn flush(&mut self) -> gallerist_retrieval::Result<()> {
        Ok(())
    }
}

fn id(fixture: &Fixture, row: usize) -> String {
    stable_id(&fixture.set.paths.as_ref().unwrap()[row]).to_string()
}

#[test]
fn items_that_another_program_adds_are_found_and_known_from_then_on() {
    let fixture = Fixture::new();
    let database = Database::of(&fixture, &[0, 8, 9]);
    let server = database.serve(&fixture);
    let similar = |options: &str| -> Value {
        let answer = server.get(&format!("/api/v1/items/{}/similar?{options}", id(&fixture, 0)));
        assert_eq!(answer.status, 200, "{options}: {}", String::from_utf8_lossy(&answer.body));
        answer.json()
    };
    database.push(&fixture, &[1, 2, 3, 4]);
    // No item had this label when the gallery was opened.
    let green = similar("label=%3Cscript%3Egreen%3C%2Fscript%3E");
    assert_eq!(ids(&green), [id(&fixture, 4)]);
    let histogram = &similar("histogram=5")["histogram"];
    assert_eq!((&histogram["total"], &histogram["complete"]), (&json!(6), &json!(true)));

    let nearest = similar("k=2");
    assert_eq!(ids(&nearest), [id(&fixture, 1), id(&fixture, 2)]);
    let first = ["label", "path", "rank"].map(|field| nearest["results"][0][field].clone());
    assert_eq!(first, [json!("blue"), json!("0/1.png"), json!(1)]);

    database.push(&fixture, &[5]);
    let groups = similar("group=label");
    let sizes = groups["results"].as_array().unwrap().iter().map(|hit| hit["group_size"].as_u64().unwrap());
    assert_eq!(sizes.sum::<u64>(), 7);

    // By its id, an item is known without a search.
    database.push(&fixture, &[10, 11]);
    assert_eq!(server.json(&format!("/api/v1/items/{}", id(&fixture, 10)))["label"], "red");
    assert_eq!(server.get(&format!("/api/v1/items/{}/similar", id(&fixture, 11))).status, 200);
    assert_eq!(server.get("/api/v1/items/7").status, 404);
    assert_eq!(server.json("/api/v1/gallery")["count"], 10);
}

#[test]
fn changes_through_two_servers_of_one_collection_are_seen_by_both() {
    let fixture = Fixture::new();
    let database = Database::of(&fixture, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
    let (one, other) = (database.serve(&fixture), database.serve(&fixture));
    let all = |server: &Running| server.json(&format!("/api/v1/items/{}/similar?k=100", id(&fixture, 0)));

    let source = ("source", None, &b"s"[..]);
    let added = add(&one, "new/1.png", &[source]);
    assert_eq!(added.status, 201, "{}", String::from_utf8_lossy(&added.body));
    let same = add(&other, "new/1.png", &[source]);
    assert_eq!((same.status, same.json()), (200, added.json()));
    let new = added.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(other.json(&format!("/api/v1/items/{new}"))["path"], "new/1.png");

    let label = [source, ("label", None, &b"owl"[..]), ("replace", None, &b"true"[..])];
    assert_eq!(add(&one, "new/1.png", &label).status, 201);
    let found = all(&other);
    let hit = found["results"].as_array().unwrap().iter().find(|hit| hit["id"] == new.as_str()).unwrap();
    assert_eq!(hit["label"], "owl");
    assert_eq!(other.json("/api/v1/items?label=owl")["total"], 1);

    let second = add(&one, "new/2.png", &[]).json()["id"].as_str().unwrap().to_owned();
    let delete =
        |server: &Running| server.send("DELETE", &format!("/api/v1/items/{second}"), &[TOKEN], b"").status;
    assert_eq!((delete(&other), delete(&other)), (204, 404));
    assert!(!ids(&all(&one)).contains(&second));
    assert_eq!(one.get(&format!("/api/v1/items/{second}/similar")).status, 404);
}

#[test]
fn who_reads_the_items_does_not_wait_for_a_change() {
    let fixture = Fixture::new();
    let barrier = Arc::new(Barrier::default());
    let rows: Vec<usize> = (0..12).collect();
    let database = Database { barrier: Some(Arc::clone(&barrier)), ..Database::of(&fixture, &rows) };
    let server = Arc::new(database.serve(&fixture));
    let first = id(&fixture, 0);
    let (own, path) = (Arc::clone(&server), format!("/api/v1/items/{first}"));
    let deleting = std::thread::spawn(move || own.send("DELETE", &path, &[TOKEN], b"").status);
    barrier.reached(1);
    let of_item = ["api/v1/items", "thumbnails", "images"].map(|call| format!("/{call}/{first}"));
    let others = ["/api/v1/items", "/api/v1/gallery", "/api/v1/labels", "/metrics", "/health", "/ready"];
    for call in of_item.iter().map(String::as_str).chain(others) {
        assert_eq!(server.get(call).status, 200, "{call}");
    }
    assert_eq!(server.items().len(), 12);
    barrier.open();
    assert_eq!(deleting.join().unwrap(), 204);
    assert_eq!(server.items().len(), 11);
}

#[test]
fn changes_that_take_longer_than_other_answers_may_are_answered() {
    let fixture = Fixture::new();
    let barrier = Arc::new(Barrier::default());
    let database = Database { barrier: Some(Arc::clone(&barrier)), ..Database::of(&fixture, &[0, 4, 8]) };
    let gallery = Gallery::from_index("milvus://db.example/birds", Box::new(database)).unwrap();
    let short = Duration::from_millis(200);
    let options = Options { time: short, upload_time: short, ..with_token() };
    let server = Running::start(fixture.contents_of(gallery), options);
    let path = format!("/api/v1/items/{}", id(&fixture, 0));
    let image = square([200, 200, 200], 8);
    let form = [("image", Some("x.png"), &*image)];
    std::thread::scope(|scope| {
        let deleting = scope.spawn(|| server.send("DELETE", &path, &[TOKEN], b"").status);
        let adding = scope.spawn(|| server.post_form("/api/v1/items", &[TOKEN], &form).status);
        barrier.reached(1);
        std::thread::sleep(Duration::from_millis(800));
        barrier.open();
        assert_eq!((deleting.join().unwrap(), adding.join().unwrap()), (204, 201));
    });
}
