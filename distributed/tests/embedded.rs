//! Jobs in this process against the library on the whole set: equal to the last bit.

use std::path::{Path, PathBuf};
use std::process::Command;

use gallerist_cluster::{
    DuplicatesOptions, Engine, EvaluateOptions, Progress, SearchRequest, duplicates, evaluate, search,
};
use gallerist_retrieval::eval::{Labelled, Measure, Plan, Protocol};
use gallerist_retrieval::fingerprint::unscaled;
use gallerist_retrieval::issues::{IssueOptions, find_issues};
use gallerist_retrieval::search::{Metric, SearchOptions, self_search};
use gallerist_retrieval::shards::{JoinedShard, JoinedShards, ShardFolder};
use gallerist_retrieval::{EmbeddingSet, Matrix};

/// Rows on a coarse grid, so that many scores are equal; labels of very different sizes, junk among them.
fn set(rows: usize, seed: u64, step: f32) -> EmbeddingSet {
    let mut state = seed;
    let mut next = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    const LABELS: [&str; 10] = ["a", "a", "a", "a", "a", "b", "b", "c", "-1", "d"];
    let labels: Vec<String> = (0..rows).map(|_| LABELS[next(10) as usize].to_owned()).collect();
    let cameras = (0..rows).map(|_| next(3).to_string()).collect();
    let values = (0..rows * 4).map(|_| 1.0 + next(5) as f32 * step).collect();
    let paths = (0..rows).map(|row| format!("{seed}/{row}.jpg")).collect();
    let mut set = EmbeddingSet::from(Matrix::new(rows, 4, values).unwrap());
    (set.labels, set.cameras, set.paths) = (Some(labels), Some(cameras), Some(paths));
    set
}

/// Writes the rows as shards of these sizes, and the rest as the last one.
fn shards(folder: &Path, set: &EmbeddingSet, sizes: &[usize], extension: &str) -> PathBuf {
    std::fs::create_dir_all(folder).unwrap();
    let (rows, count) = (set.embeddings.rows(), sizes.len() + 1);
    let mut start = 0;
    for (at, size) in sizes.iter().copied().chain([rows]).enumerate() {
        let end = rows.min(start + size);
        let part = set.select(&(start..end).collect::<Vec<_>>());
        part.save(folder.join(format!("shard-{at:05}-of-{count:05}.{extension}"))).unwrap();
        start = end;
    }
    folder.to_owned()
}

fn labelled(set: &EmbeddingSet) -> Labelled {
    Labelled::from_set(set.clone(), Path::new("rows")).unwrap()
}

fn options(gallery: PathBuf, queries: Option<PathBuf>) -> EvaluateOptions {
    EvaluateOptions {
        gallery,
        queries,
        protocol: None,
        metrics: Vec::new(),
        metric: None,
        across_cameras: false,
        force: false,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_set_is_evaluated_as_by_one_machine() {
    let folder = tempfile::tempdir().unwrap();
    let set = set(300, 1, 0.5);
    for (at, extension) in ["parquet", "safetensors"].into_iter().enumerate() {
        let gallery = shards(&folder.path().join(at.to_string()), &set, &[100, 3, 1, 120], extension);
        for metric in Metric::ALL {
            let mut plan = Plan { ignore_cameras: true, ..Plan::default() };
            plan.options.metric = metric;
            let wanted = plan.run(&labelled(&set), None).unwrap();
            let mut options = EvaluateOptions { metric: Some(metric), ..options(gallery.clone(), None) };
            let found = evaluate(&Engine::embedded(), &options, &mut ()).await.unwrap();
            assert_eq!(found.report, wanted);
            assert_eq!(found.values, plan.measure(&labelled(&set), None).unwrap().queries);
            assert!(wanted.evaluation.ties > 0 && wanted.evaluation.queries_without_match == 0);

            plan.ignore_cameras = false;
            options.across_cameras = true;
            let found = evaluate(&Engine::embedded(), &options, &mut ()).await.unwrap();
            assert_eq!(found.report, plan.run(&labelled(&set), None).unwrap());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_and_gallery_are_evaluated_by_the_protocol_of_their_files() {
    let folder = tempfile::tempdir().unwrap();
    let (mut queries, mut gallery) = (set(90, 2, 0.5), set(250, 3, 0.5));
    queries.labels.as_mut().unwrap()[7] = "not in the gallery".to_owned();
    let run = async |queries: &EmbeddingSet, gallery: &EmbeddingSet, name: &str, metrics: &[&str]| {
        let of_queries = shards(&folder.path().join(format!("{name}-q")), queries, &[50], "parquet");
        let of_gallery = shards(&folder.path().join(format!("{name}-g")), gallery, &[1, 0, 130], "parquet");
        let metrics = metrics.iter().map(ToString::to_string).collect();
        let options = EvaluateOptions { metrics, ..options(of_gallery, Some(of_queries)) };
        evaluate(&Engine::embedded(), &options, &mut ()).await.unwrap()
    };
    let names = ["recall@1", "map", "map_trapezoid", "cmc@5", "ndcg", "mrr", "precision_at_recall@20"];
    let mut plan = Plan::default();
    plan.options.measures = names.iter().map(|name| name.parse::<Measure>().unwrap()).collect();
    let found = run(&queries, &gallery, "plain", &names).await;
    assert_eq!(found.report, plan.run(&labelled(&queries), Some(&labelled(&gallery))).unwrap());
    assert!(found.report.evaluation.notes.iter().any(|note| note.contains("`not in the gallery`")));

    for set in [&mut queries, &mut gallery] {
        set.protocol = Some("market1501".to_owned());
    }
    let plan = Plan::of(Protocol::named("market1501").unwrap());
    let found = run(&queries, &gallery, "market", &[]).await;
    assert_eq!(found.report, plan.run(&labelled(&queries), Some(&labelled(&gallery))).unwrap());
    assert!(found.report.evaluation.junk > 0);
}

/// Keeps the warnings.
#[derive(Default)]
struct Warnings(Vec<String>);

impl Progress for Warnings {
    fn done(&mut self, _: usize, _: usize) {}

    fn warning(&mut self, message: &str) {
        self.0.push(message.to_owned());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn junk_is_no_class_of_one_set() {
    let folder = tempfile::tempdir().unwrap();
    let mut set = set(80, 8, 0.5);
    let run = async |name: &str, set: &EmbeddingSet, protocol: Option<&str>| {
        let gallery = shards(&folder.path().join(name), set, &[30], "parquet");
        let options = EvaluateOptions { protocol: protocol.map(str::to_owned), ..options(gallery, None) };
        let mut warnings = Warnings::default();
        let found = evaluate(&Engine::embedded(), &options, &mut warnings).await;
        (found.map(|found| found.report), warnings.0)
    };
    let (found, warnings) = run("plain", &set, None).await;
    let plan = Plan { ignore_cameras: true, ..Plan::default() };
    let wanted = plan.run(&labelled(&set), None).unwrap();
    assert_eq!(found.unwrap(), wanted);
    let labels = set.labels.clone().unwrap();
    let junk = labels.iter().filter(|label| *label == "-1").count();
    assert!(junk > 1 && warnings.len() == 1, "{warnings:?}");
    assert!(
        warnings[0].ends_with(&format!("plain`: {junk} rows with the label `-1` count as one class")),
        "{}",
        warnings[0]
    );

    set.protocol = Some("market1501".to_owned());
    let error = run("market", &set, None).await.0.unwrap_err();
    let problem = format!("is one set\n  {junk} rows with the label `-1` are junk, no class");
    assert!(error.to_string().ends_with(&problem), "{error}");
    assert!(error.hint().unwrap().contains("--protocol none"));
    let (found, warnings) = run("none", &set, Some("none")).await;
    assert_eq!((found.unwrap(), warnings.len()), (wanted, 0));

    let people = labels.iter().map(|label| label.replace("-1", "0000")).collect();
    set.labels = Some(people);
    let (found, warnings) = run("people", &set, None).await;
    assert!(found.is_ok());
    assert!(warnings[0].contains("is one set: every row is compared with the others here"), "{warnings:?}");
}

#[test]
fn an_output_is_no_input() {
    let folder = tempfile::tempdir().unwrap();
    let gallery = shards(&folder.path().join("shards"), &set(20, 9, 0.5), &[10], "parquet");
    let queries = folder.path().join("queries.parquet");
    set(5, 10, 0.5).save(&queries).unwrap();
    let (first, queries) = (gallery.join("shard-00000-of-00002.parquet"), queries.as_path());
    let run = |command: &str, gallery: &Path, query: Option<&Path>, out: &Path| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_gallerist-cluster"));
        program.arg(command).arg("--gallery").arg(gallery).arg("--out").arg(out);
        if let Some(query) = query {
            program.arg("--query").arg(query);
        }
        let found = program.output().unwrap();
        (found.status.code(), String::from_utf8(found.stderr).unwrap())
    };
    let read = |path: &Path| std::fs::read(path).unwrap();
    let before = (read(queries), read(&first));
    for (command, gallery, query, out) in [
        ("search", gallery.as_path(), Some(queries), queries),
        ("search", gallery.as_path(), Some(queries), first.as_path()),
        ("duplicates", queries, None, queries),
        ("duplicates", gallery.as_path(), None, first.as_path()),
    ] {
        let (code, message) = run(command, gallery, query, out);
        assert!(code == Some(2) && message.contains("is an input of this command"), "{command}: {message}");
    }
    assert_eq!((read(queries), read(&first)), before);
    let (code, message) = run("search", &gallery, Some(queries), &folder.path().join("lists.parquet"));
    assert_eq!(code, Some(0), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_and_duplicates_are_those_of_one_machine() {
    let folder = tempfile::tempdir().unwrap();
    let set = set(200, 4, 0.01);
    let gallery = shards(&folder.path().join("shards"), &set, &[70, 0, 60], "parquet");
    let request = SearchRequest { gallery: gallery.clone(), queries: None, k: 7, metric: None, force: false };
    let found = search(&Engine::embedded(), &request, &mut ()).await.unwrap();
    let wanted = self_search(&set.embeddings, &SearchOptions::new(7)).unwrap();
    let lists = found.blocks.iter().flat_map(|block| block.iter());
    assert_eq!(lists.collect::<Vec<_>>(), wanted.iter().collect::<Vec<_>>());
    assert_eq!(found.gallery.place(129), (&found.gallery.files[2], 59));

    let wanted =
        find_issues(&set.embeddings, None, &IssueOptions { duplicates: 0.9, ..IssueOptions::default() })
            .unwrap();
    let options = DuplicatesOptions { gallery, share: 0.9, metric: None, force: false };
    let found = duplicates(&Engine::embedded(), &options, &mut ()).await.unwrap();
    assert_eq!(found.duplicates, wanted.duplicates);
    assert_eq!(found.duplicate_distance, wanted.duplicate_distance);
    let first = found.duplicates[0].rows[0];
    assert_eq!(found.paths[&(first as u32)], format!("4/{first}.jpg"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_list_of_a_merge_is_read_as_its_shards() {
    let folder = tempfile::tempdir().unwrap();
    let set = set(60, 7, 0.5);
    let shards = shards(&folder.path().join("shards"), &set, &[40], "safetensors");
    let listed = |name: &str, rows| {
        let file = ShardFolder::open(&shards).unwrap().save(name, |_| Ok(())).unwrap();
        JoinedShard { file: format!("shards/{name}"), rows, bytes: file.bytes, sha256: file.sha256 }
    };
    let files =
        vec![listed("shard-00000-of-00002.safetensors", 40), listed("shard-00001-of-00002.safetensors", 20)];
    let list = folder.path().join("gallery.json");
    JoinedShards::new("network".to_owned(), Metric::Cosine, 4, files).write(&list).unwrap();
    let found = evaluate(&Engine::embedded(), &options(list.clone(), None), &mut ()).await.unwrap();
    let plan = Plan { ignore_cameras: true, ..Plan::default() };
    assert_eq!(found.report, plan.run(&labelled(&set), None).unwrap());

    set.select(&[1, 2]).save(shards.join("shard-00001-of-00002.safetensors")).unwrap();
    let error = evaluate(&Engine::embedded(), &options(list, None), &mut ()).await.unwrap_err();
    assert!(error.to_string().ends_with("as listed"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn shards_that_do_not_belong_together_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refused = async |name: &str, change: fn(&mut EmbeddingSet)| {
        let place = folder.path().join(name);
        let (first, mut second) = (set(5, 5, 0.5), set(5, 6, 0.5));
        change(&mut second);
        std::fs::create_dir(&place).unwrap();
        first.save(place.join("a.parquet")).unwrap();
        second.save(place.join("b.parquet")).unwrap();
        let error = evaluate(&Engine::embedded(), &options(place, None), &mut ()).await.unwrap_err();
        (error.to_string(), error.hint())
    };
    let (problem, hint) = refused("labels", |set| set.labels = None).await;
    assert_eq!(problem, "`a.parquet` and `b.parquet` differ: one has labels");
    assert!(hint.is_some());
    let (problem, _) = refused("model", |set| set.model = Some("other".to_owned())).await;
    assert_eq!(problem, "`a.parquet` and `b.parquet` were embedded with different networks");
    let (problem, _) = refused("cols", |set| set.embeddings = Matrix::new(5, 1, vec![1.0; 5]).unwrap()).await;
    assert_eq!(problem, "`a.parquet` and `b.parquet` have rows of different lengths");
    let (problem, _) = refused("sets", |set| set.labels.as_mut().unwrap()[0] = "a|b".to_owned()).await;
    assert_eq!(
        problem,
        "an evaluation over shards needs one class per row, and some rows have several labels (`a|b`)"
    );
    let (problem, _) = refused("empty", |set| set.labels.as_mut().unwrap()[0].clear()).await;
    assert_eq!(problem, "1 row of the gallery has an empty label");
    let (problem, _) = refused("finite", |set| {
        let mut values = set.embeddings.as_slice().to_vec();
        values[6] = f32::NAN;
        set.embeddings = Matrix::new(5, 4, values).unwrap();
    })
    .await;
    assert_eq!(problem, "shard `b.parquet`: gallery: row 1, column 2 is NaN; every value must be finite");
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_one_network_that_are_not_scaled_are_compared_by_the_cosine_only() {
    let folder = tempfile::tempdir().unwrap();
    let [gallery, queries] =
        [("gallery", "0abc".to_owned()), ("queries", unscaled("0abc"))].map(|(name, model)| {
            let place = folder.path().join(name);
            std::fs::create_dir(&place).unwrap();
            let embeddings = Matrix::new(5, 4, (1..=20).map(|value| value as f32).collect()).unwrap();
            let metric = Some(Metric::Cosine);
            EmbeddingSet { model: Some(model), metric, embeddings, ..set(5, 5, 0.5) }
                .save(place.join("a.parquet"))
                .unwrap();
            place
        });
    let mut options = options(gallery, Some(queries));
    options.metric = None;
    assert!(evaluate(&Engine::embedded(), &options, &mut ()).await.is_ok());
    options.metric = Some(Metric::Euclidean);
    let error = evaluate(&Engine::embedded(), &options, &mut ()).await.unwrap_err();
    assert_eq!(error.hint().unwrap(), "embed all of them with the same `embed --normalize`");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_does_not_answer_is_named() {
    let error = Engine::cluster("127.0.0.1").await.err().unwrap();
    assert_eq!(error.to_string(), "`127.0.0.1` is no address of a scheduler");
    // A port at which nothing listens.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let error = Engine::cluster(&format!("127.0.0.1:{port}")).await.err().unwrap();
    assert!(error.to_string().starts_with(&format!("no scheduler answers at `127.0.0.1:{port}`: ")));
}
