//! `gallerist loss`.

use serde_json::Value;

use crate::common::{root, small_run, text};
use crate::program::{error, gallerist};

#[test]
fn a_loss_on_files_has_the_golden_value_and_gradient() {
    let golden = std::fs::read_to_string(root().join("fixtures/losses/losses.json")).unwrap();
    let golden: Value = serde_json::from_str(&golden).unwrap();
    let case = golden["cases"].as_array().unwrap().iter().find(|case| case["loss"] == "ice").unwrap();
    let numbers = |v: &Value| v.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect::<Vec<_>>();
    let (rows, labels) = (numbers(&case["embeddings"]), numbers(&case["labels"]));
    let shape = [labels.len(), case["dim"].as_u64().unwrap() as usize];

    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    use gallerist::retrieval::file::npy;
    npy::write_f64(path("x.npy"), &shape, &rows).unwrap();
    npy::write_i64(path("y.npy"), &[shape[0]], &labels.iter().map(|&l| l as i64).collect::<Vec<_>>())
        .unwrap();
    let scale = format!("scale={}", case["params"]["scale"]);
    let (x, y, g) = (path("x.npy"), path("y.npy"), path("g.npy"));
    let files = ["--embeddings", &x, "--labels", &y];
    let out = gallerist(
        &[&["loss", "--preset", "ice-sop", "--set", &scale, "--gradient", &g, "--json"], &files[..]].concat(),
    );
    let found: Value =
        serde_json::from_slice(&out.stdout).unwrap_or_else(|_| panic!("{}", text(&out.stderr)));
    let close = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b.abs().max(1e-3);
    assert!(close(found["value"].as_f64().unwrap(), case["value"].as_f64().unwrap()));
    assert_eq!(found["queries"].as_array().unwrap().len(), shape[0]);
    let gradient = npy::read_f64(&g).unwrap();
    assert!(gradient.wide && gradient.shape == shape);
    assert!(gradient.values.iter().zip(numbers(&case["gradient"])).all(|(&a, b)| close(a, b)));

    // Bad input.
    npy::write_i64(path("short.npy"), &[2], &[0, 1]).unwrap();
    let mut nan = rows.clone();
    nan[shape[1] * 3 + 1] = f64::NAN;
    npy::write_f64(path("nan.npy"), &shape, &nan).unwrap();
    let header = "{'descr': '<f2', 'fortran_order': False, 'shape': (1, 1), }\n";
    let half = [b"\x93NUMPY\x01\x00", &[header.len() as u8, 0][..], header.as_bytes(), &[0, 0]];
    std::fs::write(path("half.npy"), half.concat()).unwrap();
    let (short, nan, half) = (path("short.npy"), path("nan.npy"), path("half.npy"));
    for (args, part) in [
        (vec!["--loss", "ice", "--embeddings", &x, "--labels", &short], "short.npy"),
        (vec!["--loss", "ice", "--embeddings", &nan, "--labels", &y], "row 3"),
        (vec!["--loss", "ice", "--embeddings", &half, "--labels", &y], "f32 or f64"),
        (vec!["--loss", "icee", "--embeddings", &x, "--labels", &y], "did you mean `ice`?"),
        (
            vec!["--loss", "ice", "--set", "scal=1", "--embeddings", &x, "--labels", &y],
            "did you mean `scale`?",
        ),
        (vec!["--preset", "rll-cvrp", "--embeddings", &x, "--labels", &y], "did you mean `rll-cvpr`?"),
    ] {
        let message = error(&[&["loss"], &args[..]].concat());
        assert!(message.contains(part), "{message}");
    }
    let alone = path("alone.txt");
    std::fs::write(&alone, (0..shape[0]).map(|i| format!("{i}\n")).collect::<String>()).unwrap();
    let out = gallerist(&["loss", "--preset", "rll-cvpr", "--embeddings", &x, "--labels", &alone]);
    assert_eq!(out.status.code(), Some(0));
    assert!(text(&out.stderr).contains("no sample has a positive"));
    insta::assert_snapshot!("losses", text(&gallerist(&["loss", "--list"]).stdout));
}

#[test]
fn a_memory_lengthens_the_lists_of_a_loss_on_files() {
    use gallerist::retrieval::file::npy;
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let (x, y, m, of_m, g) = (path("x.npy"), path("y.txt"), path("m.npy"), path("m.txt"), path("g.npy"));
    npy::write_f64(&x, &[2, 1], &[0.0, 1.0]).unwrap();
    npy::write_f64(&m, &[1, 1], &[3.0]).unwrap();
    std::fs::write(&y, "wren\nheron\n").unwrap();
    std::fs::write(&of_m, "wren\n").unwrap();
    let batch = ["loss", "--embeddings", &x, "--labels", &y];
    let memory = ["--memory", &m, "--memory-labels", &of_m];
    let contrastive = ["--loss", "contrastive", "--set", "margin=2", "--gradient", &g, "--json"];
    let out = gallerist(&[&batch[..], &memory, &contrastive].concat());
    let found: Value =
        serde_json::from_slice(&out.stdout).unwrap_or_else(|_| panic!("{}", text(&out.stderr)));
    // From 0: a negative at 1 costs 1, the memory's positive at 3 costs 9. From 1: 1 and, at 2, nothing.
    assert_eq!(found["value"], 2.75);
    assert_eq!((&found["samples"], &found["memory"]), (&Value::from(2), &Value::from(1)));
    assert_eq!(found["queries"][0]["positives"], 1);
    assert_eq!(npy::read_f64(&g).unwrap().values, [-0.5, -1.0]);
    // Other rows of length 1 than the file's.
    let out = gallerist(&[&batch[..], &memory, &["--loss", "rll", "--normalize"]].concat());
    assert!(text(&out.stdout).contains("rows of the memory"), "{}", text(&out.stderr));

    let wide = path("wide.npy");
    npy::write_f64(&wide, &[1, 2], &[3.0, 4.0]).unwrap();
    for (args, part) in [
        (vec!["--loss", "rll", "--memory", &m], "give --memory-labels FILE"),
        (vec!["--loss", "rll", "--memory", &m, "--memory-labels", &y], "1 rows, and there are 2 labels"),
        (vec!["--loss", "rll", "--memory", &wide, "--memory-labels", &of_m], "1 values a row, the memory"),
        (vec!["--loss", "softmax", "--memory", &m, "--memory-labels", &of_m], "losses that take one: rll, "),
    ] {
        let message = error(&[&batch[..], &args].concat());
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn a_loss_on_files_takes_a_miner_and_parameters() {
    use gallerist::retrieval::file::npy;
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let (x, y) = (path("x.npy"), path("y.npy"));
    // On a line: of class 0 at 0, 1 and 2, of class 1 at 2.5 and 9.
    npy::write_f64(&x, &[5, 1], &[0.0, 1.0, 2.0, 2.5, 9.0]).unwrap();
    npy::write_i64(&y, &[5], &[0, 0, 0, 1, 1]).unwrap();
    let run = |args: &[&str]| -> Value {
        let out = gallerist(&[&["loss", "--json", "--embeddings", &x, "--labels", &y], args].concat());
        serde_json::from_slice(&out.stdout).unwrap_or_else(|_| panic!("{}", text(&out.stderr)))
    };

    // The hardest of each: squared distances 4, 1, 4, 42.25, 42.25 to the positives; margin 3 to the
    // negatives: 0.5 from 2.5, 1.5, 0.5, 0.5 and 7 away.
    let found = run(&["--loss", "contrastive", "--set", "margin=3", "--miner", "hard"]);
    let hinges: f64 = [0.5, 1.5, 2.5, 2.5, 0.0].iter().map(|h: &f64| h * h).sum();
    let wanted = (4.0 + 1.0 + 4.0 + 42.25 + 42.25 + hinges) / 10.0;
    assert!((found["value"].as_f64().unwrap() - wanted).abs() < 1e-12, "{} {wanted}", found["value"]);
    assert_eq!(found["parameters"]["miner"]["name"], "hard");
    assert_eq!(found["queries"][1]["mined_negatives"], 1);
    let set = ["--loss", "contrastive", "--miner", "semi_hard", "--miner-set", "margin=7.5"];
    assert_eq!(run(&set)["parameters"]["miner"]["margin"], 7.5);

    let (proxies, other) = (path("proxies.safetensors"), path("other.safetensors"));
    let first = run(&["--loss", "proxy_nca", "--seed", "3", "--save-parameters", &proxies]);
    let again = run(&["--loss", "proxy_nca", "--seed", "4", "--parameters", &proxies]);
    assert_eq!(first["value"], again["value"]);
    run(&["--loss", "arc_face", "--save-parameters", &other]);

    let files = ["--embeddings", &x, "--labels", &y];
    for (args, part) in [
        (vec!["--loss", "ice", "--miner", "hard"], "`ice` takes no miner"),
        (vec!["--loss", "lifted", "--miner", "hrd"], "did you mean `hard`?"),
        (
            vec!["--loss", "lifted", "--miner", "semi_hard", "--miner-set", "margn=1"],
            "did you mean `margin`?",
        ),
        (vec!["--loss", "lifted", "--miner-set", "margin=1"], "--miner <NAME>"),
        (
            vec!["--loss", "proxy_nca", "--parameters", &other],
            "1 parameters are missing, the first is `proxies`",
        ),
        (vec!["--loss", "proxy_nca", "--parameters", &x], "no whole safetensors file"),
    ] {
        let message = error(&[&["loss"], &args[..], &files].concat());
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn a_boundary_for_each_class_is_refused_if_samples_have_several_labels() {
    use gallerist::retrieval::file::npy;
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let (x, y) = (path("x.npy"), path("y.txt"));
    npy::write_f64(&x, &[3, 1], &[0.0, 1.0, 2.5]).unwrap();
    std::fs::write(&y, "wren|bird\nheron|bird\nheron\n").unwrap();
    let margin = ["loss", "--loss", "margin", "--embeddings", &x, "--labels", &y, "--set"];
    let message = error(&[&margin[..], &["boundary=per_class"]].concat());
    assert!(message.contains("the loss `margin` needs one class per sample"), "{message}");
    assert!(message.contains("`boundary = \"learnt\"` take several labels"), "{message}");
    let out = gallerist(&[&margin[..], &["boundary=learnt"]].concat());
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
}

#[test]
fn each_class_has_its_row_of_the_learned_parameters_in_any_order_of_the_file() {
    use gallerist::retrieval::file::npy;
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let (x, y, saved) = (path("x.npy"), path("y.txt"), path("saved.safetensors"));
    let rows: [(f64, usize); 6] = [(0.1, 2), (0.4, 0), (0.5, 1), (1.3, 1), (2.2, 2), (3.1, 0)];
    let write = |order: &[usize], names: &[&str]| {
        let values: Vec<f64> = order.iter().flat_map(|&i| [rows[i].0.cos(), rows[i].0.sin()]).collect();
        npy::write_f64(&x, &[order.len(), 2], &values).unwrap();
        let labels: Vec<&str> = order.iter().map(|&i| names[rows[i].1]).collect();
        std::fs::write(&y, labels.join("\n") + "\n").unwrap();
    };
    let loss = ["loss", "--loss", "proxy_anchor", "--json", "--embeddings", &x, "--labels", &y];
    let value = |args: &[&str]| {
        let out = gallerist(&[&loss[..], args].concat());
        let found: Value =
            serde_json::from_slice(&out.stdout).unwrap_or_else(|_| panic!("{}", text(&out.stderr)));
        found["value"].as_f64().unwrap()
    };
    let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
    let (integers, birds) = (["0", "1", "2"], ["heron", "owl", "wren"]);
    write(&[0, 1, 2, 3, 4, 5], &integers);
    let first = value(&["--save-parameters", &saved]);
    let of_parameters = ["--parameters", saved.as_str()];
    for (order, names) in [([5, 3, 1, 0, 4, 2], integers), ([2, 0, 1, 4, 3, 5], birds)] {
        write(&order, &names);
        close(value(&of_parameters), first);
        close(value(&[]), first);
    }
    // Of four rows, one class is absent. Names cannot tell which; integers do.
    write(&[0, 1, 4, 5], &integers);
    let two = value(&of_parameters);
    write(&[5, 4, 1, 0], &integers);
    close(value(&of_parameters), two);
    write(&[0, 1, 4, 5], &birds);
    let message = error(&[&loss[..], &of_parameters].concat());
    assert!(message.contains("has parameters of 3 classes, and the labels have 2"), "{message}");
    write(&[0, 1], &["0", "1", "3"]);
    assert!(error(&[&loss[..], &of_parameters].concat()).contains("give labels from 0 to 2"));
}

#[test]
fn a_loss_takes_its_parameters_from_the_checkpoint_of_a_run_whose_classes_the_labels_name() {
    use gallerist::params;
    use gallerist::retrieval::file::npy;
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let settings = [
        "train.steps=2",
        "loss=[{name=\"rll\"}, {name=\"norm_softmax\"}]",
        "data.max_train_classes=30",
        "data.test=[]",
        "sampler.classes_per_batch=4",
        "report.map=false",
    ];
    let run = small_run(dir.path(), &settings);
    let checkpoint = run.join("checkpoints/last.safetensors");
    let list = std::fs::read_to_string(run.join("images.csv")).unwrap();
    let trained = list.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split(',').collect();
        (fields[0] == "train").then(|| fields[3].to_owned())
    });
    let classes: Vec<String> = trained.collect::<std::collections::BTreeSet<_>>().into_iter().collect();
    let weight = params::read(&checkpoint).unwrap().remove("loss.losses.1.weight").unwrap();
    assert_eq!(weight.shape()[0], classes.len());
    params::write(std::path::Path::new(&path("alone.safetensors")), &[("weight".to_owned(), weight)].into())
        .unwrap();

    let chosen = [7, 2, 11, 2];
    let (x, names, numbers) = (path("x.npy"), path("names.txt"), path("numbers.txt"));
    let values: Vec<f64> = (0..4 * 32).map(|i| f64::from(i * i % 17) - 8.0).collect();
    npy::write_f64(&x, &[4, 32], &values).unwrap();
    std::fs::write(&names, chosen.map(|class: usize| classes[class].clone()).join("\n")).unwrap();
    std::fs::write(&numbers, chosen.map(|class| class.to_string()).join("\n")).unwrap();
    let loss = ["loss", "--loss", "norm_softmax", "--json", "--embeddings", &x];
    let value = |labels: &str, parameters: &str| {
        let out = gallerist(&[&loss[..], &["--labels", labels, "--parameters", parameters]].concat());
        let found: Value =
            serde_json::from_slice(&out.stdout).unwrap_or_else(|_| panic!("{}", text(&out.stderr)));
        found["value"].as_f64().unwrap()
    };
    let checkpoint = checkpoint.to_str().unwrap();
    let wanted = value(&numbers, &path("alone.safetensors"));
    assert_eq!(value(&names, checkpoint), wanted);
    assert_eq!(value(&numbers, checkpoint), wanted);
    std::fs::write(&names, "a\nb\nc\nd\n").unwrap();
    let message = error(&[&loss[..], &["--labels", &names, "--parameters", checkpoint]].concat());
    assert!(message.contains("`a` is no class of the run"), "{message}");
}

#[test]
fn a_schedule_of_a_loss_needs_the_number_of_steps() {
    use gallerist::retrieval::file::npy;
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let (x, y) = (path("x.npy"), path("y.npy"));
    let angles = [0.0_f64, 0.3, 0.9, 1.4];
    let rows: Vec<f64> = angles.iter().flat_map(|a| [a.cos(), a.sin()]).collect();
    npy::write_f64(&x, &[4, 2], &rows).unwrap();
    npy::write_i64(&y, &[4], &[0, 0, 1, 1]).unwrap();
    let loss = ["loss", "--loss", "rll", "--set", "margin=1", "--json", "--embeddings", &x, "--labels", &y];
    let value = |args: &[&str]| {
        let out = gallerist(&[&loss[..], args].concat());
        let found: Value =
            serde_json::from_slice(&out.stdout).unwrap_or_else(|_| panic!("{}", text(&out.stderr)));
        found["value"].as_f64().unwrap()
    };
    let schedule = ["--set", "t_neg_end=2"];
    let at = |step: &str| value(&[&schedule[..], &["--step", step, "--steps", "100"]].concat());
    assert_eq!(at("0"), value(&["--set", "t_neg=10"]));
    assert_eq!(at("50"), value(&["--set", "t_neg=6"]));
    assert_eq!(at("100"), value(&["--set", "t_neg=2"]));
    value(&["--step", "7"]);
    let message = error(&[&loss[..], &schedule, &["--step", "50"]].concat());
    assert!(message.contains("--steps N"), "{message}");
    assert!(
        error(&[&loss[..], &["--step", "5", "--steps", "4"]].concat()).contains("after the last of 4 steps")
    );
    assert!(error(&[&loss[..], &["--set", "margin=inf"]].concat()).contains("loss.margin"));
    let nothing = path("nothing.safetensors");
    let message = gallerist(&[&loss[..], &["--save-parameters", &nothing]].concat());
    assert!(text(&message.stderr).contains("`rll` has no learned parameters"));
    assert!(!dir.path().join("nothing.safetensors").exists());
    let message = gallerist(&["loss", "--list", "--json"]);
    assert!(text(&message.stderr).contains("cannot be used with"));
}

#[test]
fn a_loss_without_rows_or_with_a_result_that_is_not_finite_is_refused() {
    use gallerist::retrieval::file::npy;
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let (x, y, g) = (path("x.npy"), path("y.npy"), path("g.npy"));
    let loss =
        |name: &'static str| ["loss", "--loss", name, "--embeddings", &x, "--labels", &y, "--gradient", &g];
    for shape in [[0, 3], [3, 0]] {
        npy::write_f64(&x, &shape, &[]).unwrap();
        npy::write_i64(&y, &[shape[0]], &vec![0; shape[0]]).unwrap();
        let message = error(&loss("rll"));
        assert!(message.contains(&format!("has {} rows of {} values", shape[0], shape[1])), "{message}");
    }
    npy::write_f64(&x, &[3, 1], &[1e200, 2e200, -2e200]).unwrap();
    npy::write_i64(&y, &[3], &[0, 0, 1]).unwrap();
    for name in ["contrastive", "ice"] {
        let message = error(&loss(name));
        assert!(message.contains("not finite") && message.contains("2.000e200"), "{message}");
        assert!(message.contains("--normalize"), "{message}");
    }
    assert!(!dir.path().join("g.npy").exists());
}
