//! A threshold is calibrated, kept, and used.

mod common;

use common::{done, gallerist, refused, root, small_run, text};
use gallerist::retrieval::eval::{Decision, FalseRate, MatchRule};
use gallerist::retrieval::search::Metric;
use gallerist::retrieval::{EmbeddingSet, Matrix};
use serde_json::Value;

/// 120 identities on a circle, 3 images each.
fn circle() -> EmbeddingSet {
    let angle = |row: usize| (row / 3) as f32 * 2.399_963 + (row % 3) as f32 * 0.01;
    let values = (0..360).flat_map(|row| [angle(row).cos(), angle(row).sin()]).collect();
    EmbeddingSet {
        labels: Some((0..360).map(|row| format!("id{}", row / 3)).collect()),
        model: Some("sha256:12ab".into()),
        ..Matrix::new(360, 2, values).unwrap().into()
    }
}

#[test]
fn the_command_calibrates_and_saves_a_threshold_and_says_what_cannot_be_guaranteed() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    circle().save(dir.join("test.safetensors")).unwrap();
    circle().save(dir.join("gallery.safetensors")).unwrap();
    let out = gallerist(
        dir,
        "threshold --embeddings test.safetensors --far 0.02 --save gallery.safetensors --json",
    );
    let found: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert!(
        text(&out.stderr).contains("120 identities can guarantee 0.049 at best"),
        "{}",
        text(&out.stderr)
    );
    assert_eq!((&found["identities"], &found["rate"]), (&120.into(), &"comparison".into()));
    assert_eq!(found["held_out"]["rates"].as_array().unwrap().len(), 10);
    let rule = EmbeddingSet::load(dir.join("gallery.safetensors")).unwrap().threshold.unwrap();
    assert_eq!((rule.rate, rule.target, rule.metric), (FalseRate::Comparison, 0.02, Metric::Cosine));
    assert!(rule.measured <= 0.02 && rule.bound > 0.02);
    assert_eq!(rule.model.as_deref(), Some("sha256:12ab"));

    // An index keeps it; a conversion keeps it.
    done(dir, "index build gallery.safetensors --out g.index");
    let index = gallerist::retrieval::index::open_index(dir.join("g.index"), false).unwrap();
    assert_eq!(index.origin().unwrap().threshold.as_ref(), Some(&rule));
    done(dir, "convert gallery.safetensors --out small.safetensors --precision bf16");
    assert_eq!(EmbeddingSet::load(dir.join("small.safetensors")).unwrap().threshold, Some(rule));

    // Saved directly, too.
    done(dir, "threshold --embeddings test.safetensors --far 0.1 --save small.safetensors --save g.index");
    let small = EmbeddingSet::load(dir.join("small.safetensors")).unwrap().threshold.unwrap();
    let index = gallerist::retrieval::index::open_index(dir.join("g.index"), false).unwrap();
    assert_eq!((index.origin().unwrap().threshold.as_ref(), small.target), (Some(&small), 0.1));

    let line = "threshold --embeddings test.safetensors --guarantee";
    let message = refused(dir, &format!("{line} --far 0.001"));
    assert!(message.contains("120 identities guarantee 0.049 at best, 5990 are needed"), "{message}");
    let sure = done(dir, &format!("{line} --far 0.1"));
    assert!(sure.contains("bound, confidence 0.95") && sure.contains("0.1000"), "{sure}");
    let search = done(dir, "threshold --embeddings test.safetensors --far 0.1 --per search");
    assert!(
        search.contains("for 60 unknown and 180 for 60 known identities in a gallery of 180 images"),
        "{search}"
    );

    for (line, wanted) in [
        ("--far 0", "the false match rate must be above 0"),
        ("--far 0.00001", "less than one of them may be accepted"),
    ] {
        let message = refused(dir, &format!("threshold --embeddings test.safetensors {line}"));
        assert!(message.contains(wanted), "{line}: {message}");
    }
    let mut other = circle();
    other.model = Some("sha256:ffff".into());
    other.save(dir.join("other.safetensors")).unwrap();
    let message = refused(dir, "threshold --embeddings test.safetensors --far 0.1 --save other.safetensors");
    assert!(message.contains("calibrate on embeddings of the same network"), "{message}");
}

#[test]
fn rows_of_two_lengths_are_compared_by_the_cosine_only() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let save = |name: &str, metric| EmbeddingSet { metric, ..circle() }.save(dir.join(name)).unwrap();
    save("q.safetensors", Some(Metric::Euclidean));
    save("g.safetensors", Some(Metric::Cosine));
    save("silent.safetensors", None);
    let line = |gallery: &str, metric: &str| {
        format!(
            "threshold --query q.safetensors --gallery {gallery}.safetensors --far 0.1 --per search {metric}"
        )
    };
    for metric in ["", "--metric euclidean"] {
        let message = refused(dir, &line("g", metric));
        assert!(message.contains("their lengths differ"), "{metric}: {message}");
    }
    done(dir, &line("g", "--metric cosine"));
    done(dir, &line("g", "--metric euclidean --force"));
    // The caller knows what the file does not say.
    done(dir, &line("silent", "--metric euclidean"));
}

#[test]
fn label_sets_and_labels_that_no_image_has_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let mut set = circle();
    set.labels.iter_mut().flatten().skip(355).for_each(|label| label.push_str("|round"));
    set.save(dir.join("sets.safetensors")).unwrap();
    circle().save(dir.join("test.safetensors")).unwrap();
    let message = refused(dir, "threshold --embeddings sets.safetensors --far 0.1");
    assert!(message.contains("5 rows of `sets.safetensors` have several labels (`a|b`)"), "{message}");
    let message = refused(dir, "threshold --embeddings test.safetensors --far 0.1 --leave-out id1199");
    assert!(message.contains("no image has the label `id1199`"), "{message}");
    assert!(message.contains("did you mean `id119`?"), "{message}");
    done(dir, "threshold --embeddings test.safetensors --far 0.1 --leave-out id119");
}

#[test]
fn no_file_is_changed_where_one_of_several_cannot_be() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    for name in ["test.safetensors", "a.safetensors"] {
        circle().save(dir.join(name)).unwrap();
    }
    circle().save(dir.join("b.npy")).unwrap();
    let before = std::fs::read(dir.join("a.safetensors")).unwrap();
    for other in ["missing.index", "b.npy"] {
        let line =
            format!("threshold --embeddings test.safetensors --far 0.1 --save a.safetensors --save {other}");
        refused(dir, &line);
        assert!(std::fs::read(dir.join("a.safetensors")).unwrap() == before, "{other}");
    }
}

#[test]
fn a_run_keeps_its_threshold_and_searches_of_what_it_embeds_are_marked() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let run = small_run(dir, &["evaluation.threshold.target=0.1"]);
    let metrics: Value = serde_json::from_slice(&std::fs::read(run.join("metrics.json")).unwrap()).unwrap();
    let kept = EmbeddingSet::load(run.join("embeddings.safetensors")).unwrap().threshold.unwrap();
    assert!((metrics["threshold"]["threshold"].as_f64().unwrap() - f64::from(kept.threshold)).abs() < 1e-6);
    assert_eq!(metrics["threshold"]["identities"], 20);

    let images =
        gallerist::data::ImageSet::open(root().join("data/omniglot/omniglot_images_evaluation.zip")).unwrap();
    std::fs::create_dir_all(dir.join("photos/a")).unwrap();
    for image in 0..3 {
        std::fs::write(dir.join(format!("photos/a/{image}.png")), images.read(image).unwrap()).unwrap();
    }
    done(dir, "embed --run run --images photos --out photos.safetensors");
    assert_eq!(EmbeddingSet::load(dir.join("photos.safetensors")).unwrap().threshold, Some(kept.clone()));
    let line = "search --gallery photos.safetensors --query photos/a/0.png -k 3";
    let lists: Value = serde_json::from_str(&done(dir, &format!("{line} --json"))).unwrap();
    let list = &lists[0];
    assert_eq!(list["results"][0]["match"], "match", "an image matches itself");
    let matches = list["results"].as_array().unwrap().iter().filter(|item| item["match"] == "match").count();
    assert_eq!(list["matches"], matches);
    for item in list["results"].as_array().unwrap() {
        let decision = kept.decide_distance(item["distance"].as_f64().unwrap() as f32);
        assert_eq!(item["match"], decision.name());
        assert!(Decision::ALL.contains(&decision));
    }

    // A rate per search of fewer images than the gallery has.
    let mut set = EmbeddingSet::load(dir.join("photos.safetensors")).unwrap();
    for (images, is_smaller) in [(1, true), (3, false)] {
        let per_search = MatchRule { rate: FalseRate::Search, gallery: Some(images), ..kept.clone() };
        set.threshold = Some(per_search);
        set.save(dir.join("photos.safetensors")).unwrap();
        let said = text(&gallerist(dir, line).stderr);
        let warned = said.contains("one per search of a gallery of 1 image, and this one has 3");
        assert_eq!(warned, is_smaller, "{said}");
    }

    // A threshold that nothing passes.
    let mut set = EmbeddingSet::load(dir.join("photos.safetensors")).unwrap();
    set.threshold = set.threshold.map(|rule| MatchRule { threshold: 1.5, ..rule });
    set.save(dir.join("photos.safetensors")).unwrap();
    assert!(done(dir, line).contains("no match: none is within distance"));

    // A file that another program wrote names no network: the user does.
    let first = |found: &str| serde_json::from_str::<Value>(found).unwrap()[0]["results"][0]["path"].clone();
    let wanted = first(&done(dir, &format!("{line} --json")));
    EmbeddingSet { model: None, run: None, metric: None, threshold: None, ..set }
        .save(dir.join("photos.safetensors"))
        .unwrap();
    // Next to the run directory, but the file does not say that it is of its network.
    let message = refused(dir, line);
    assert!(
        message.contains("does not say which network embedded it") && message.contains("--run DIR"),
        "{message}"
    );
    let found = gallerist(dir, &format!("{line} --run run --json"));
    assert!(text(&found.stderr).contains("queries are embedded by that of `run`"), "{}", text(&found.stderr));
    assert_eq!(first(&text(&found.stdout)), wanted);

    // By the checkpoint that `embed` takes.
    let config = std::fs::read_to_string(run.join("config.toml")).unwrap();
    let by_last = config.replace("checkpoint = \"best\"", "checkpoint = \"last\"");
    assert_ne!(by_last, config);
    std::fs::write(run.join("config.toml"), by_last).unwrap();
    for (option, wanted) in
        [("", "checkpoint last, step 12"), (" --checkpoint best", "checkpoint best, step")]
    {
        let said = text(&gallerist(dir, &format!("{line} --run run{option}")).stderr);
        assert!(said.contains(wanted), "{option}: {said}");
    }
}

#[test]
fn too_few_test_images_are_refused_before_the_first_step() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let train = format!(
        "train configs/smoke.toml --set train.steps=2 --set validation.every=2 --set data.max_test_classes=6 --out {}",
        run.display()
    );
    for (setting, problem, key) in [
        ("threshold={target=1e-6}", "cannot be measured on 6000 pairs of two identities", "threshold"),
        ("threshold={target=0.01,guarantee=true}", "6 identities guarantee", "threshold"),
        (
            "few_shot={ways=7}",
            "needs 7 classes with at least 16 images; 6 of 6 classes have so many",
            "few_shot",
        ),
        ("few_shot={ways=3,queries=20}", "needs 3 classes with at least 21 images; 0 of 6", "few_shot"),
    ] {
        let error = refused(&root(), &format!("{train} --set evaluation.{setting}"));
        assert!(error.contains(problem), "{setting}: {error}");
        let hint = format!("leave out evaluation.{key}");
        assert!(error.contains("there are 120 test images of 6 classes") && error.contains(&hint), "{error}");
        assert!(!run.exists(), "{setting}");
    }
    let error =
        refused(&root(), &format!("{train} --set evaluation.open_set={{}} --set data.max_test_classes=1"));
    assert!(
        error.contains("searches for identities in the gallery and for others; there are 20 and 0"),
        "{error}"
    );
    done(&root(), &format!("{train} --set evaluation.few_shot={{ways=3,episodes=5}}"));
}
