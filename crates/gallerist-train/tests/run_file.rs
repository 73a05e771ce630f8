//! The run file: its defaults, its errors, its settings from the command line.

use gallerist_nn::ConvBlocksConfig;
use gallerist_retrieval::search::Metric;
use gallerist_train::Error;
use gallerist_train::config::loss_from_settings;
use gallerist_train::{DEFAULTS, RunConfig};

fn parse(text: &str) -> Result<RunConfig, Error> {
    RunConfig::parse(text, "`run.toml`", &[])
}

fn message(error: &Error) -> String {
    format!("{error}\nhint: {}", error.hint().unwrap_or_default())
}

#[test]
fn the_documented_defaults_are_the_defaults() {
    assert_eq!(parse(DEFAULTS).unwrap(), RunConfig::default());
    assert_eq!(parse("").unwrap(), RunConfig::default());
}

#[test]
fn every_key_is_documented_and_every_documented_key_exists() {
    // With the optional keys uncommented the text still parses: none of them is misspelt.
    let uncommented: String = DEFAULTS
        .lines()
        .map(|line| match line.strip_prefix("# ") {
            Some(rest) if rest.starts_with('[') || rest.split_whitespace().nth(1) == Some("=") => {
                format!("{rest}\n")
            }
            _ => format!("{line}\n"),
        })
        .collect();
    let all = parse(&uncommented).unwrap();
    assert!(
        all.xbm.is_some()
            && all.train.normalize.is_some()
            && all.image.stored_size.is_some()
            && all.optimizer.clip_norm.is_some()
    );
    // And whatever a resolved run file writes is in the text.
    let resolved: toml::Table = all.to_toml().parse().unwrap();
    let documented: toml::Table = uncommented.parse().unwrap();
    for (section, keys) in &resolved {
        for key in keys.as_table().unwrap().keys() {
            assert!(documented[section].get(key).is_some(), "{section}.{key} is not documented");
        }
    }
}

#[test]
fn a_fold_is_one_of_two_or_more() {
    let of = |fold: &str| parse(&format!("[validation]\nfold = {fold}")).and_then(|config| config.validate());
    of("{ number = 4, of = 4 }").unwrap();
    for (fold, wanted) in [
        ("{ number = 5, of = 4 }", "`validation.fold.number` must be from 1 to 4, not 5"),
        ("{ number = 0, of = 4 }", "`validation.fold.number` must be from 1 to 4, not 0"),
        ("{ number = 1, of = 1 }", "`validation.fold.of` must be 2 or more, not 1"),
    ] {
        assert_eq!(of(fold).unwrap_err().to_string(), wanted);
    }
}

#[test]
fn a_resolved_run_file_is_read_back_as_it_was() {
    let config = parse("[train]\nsteps = 7\n[network]\nkind = \"conv_blocks\"\nchannels = [8]\n[loss]\nname = \"rll\"\nlambda = 0.25").unwrap();
    assert_eq!(parse(&config.to_toml()).unwrap(), config);
}

#[test]
fn unknown_keys_are_refused_with_the_line_and_the_nearest_key() {
    for (text, line, hint) in [
        ("[train]\nstep = 10", "line 2", "`steps`"),
        ("[trian]\nsteps = 10", "line 1", "`train`"),
        ("[optimizer]\n\nlr = 1", "line 3", ""),
        ("[optimizer]\nlearning-rate = 1", "line 2", "`learning_rate`"),
        ("[loss]\nname = \"rll\"\nmargn = 1", "", "`margin`"),
        ("[network]\nkind = \"conv_bloks\"", "", "`conv_blocks`"),
        ("[schedule]\nkind = \"cosin\"", "line 2", "`cosine`"),
    ] {
        let error = message(&parse(text).unwrap_err());
        assert!(error.contains(line) && error.contains(hint), "{text}: {error}");
    }
}

#[test]
fn settings_change_any_key_and_know_toml_from_plain_words() {
    let settings = |list: &[&str]| {
        let list: Vec<String> = list.iter().map(|s| s.to_string()).collect();
        RunConfig::parse("[train]\nsteps = 5", "`run.toml`", &list)
    };
    let config = settings(&[
        "train.steps=9",
        "data.train=[\"a\", \"b\"]",
        "optimizer.kind=adamw",
        "network.kind=conv_blocks",
        "network.channels=[4, 8]",
        "train.normalize = true",
    ])
    .unwrap();
    assert_eq!(config.train.steps, 9);
    assert_eq!(config.data.train.len(), 2);
    assert_eq!(config.network.architecture.downcast_ref::<ConvBlocksConfig>().unwrap().channels, [4, 8]);
    assert_eq!(config.train.normalize, Some(true));
    let refused = [
        ("train.steps", "no `="),
        ("=3", "is no key"),
        ("train.steps.x=1", "not a section"),
        ("train.stepz=1", "`steps`"),
    ];
    for (setting, part) in refused {
        let error = message(&settings(&[setting]).unwrap_err());
        assert!(error.contains(part), "{setting}: {error}");
    }
    // More nested tables than the stack has room for.
    let deep = format!("{}a=1", "a.".repeat(20_000));
    let error = message(&settings(&[&deep]).unwrap_err());
    assert!(error.contains("20001 parts"), "{}", &error[error.len() - 200..]);
}

#[test]
fn a_section_takes_what_it_lacks_from_the_default_of_the_same_choice() {
    let config =
        parse("[sampler]\nclasses_per_batch = 7\n[loss]\nmargin = 0.2\n[image]\nchannels = 1").unwrap();
    let default = RunConfig::default();
    assert_eq!(config.network, default.network);
    assert_eq!(config.image.size, default.image.size);
    let text = config.to_toml();
    assert!(text.contains("classes_per_batch = 7") && text.contains("images_per_class = 4"), "{text}");
    let error = parse("[sampler]\nkind = \"n_group\"\nclasses_per_batch = 7").unwrap_err();
    assert!(error.to_string().contains("images_per_class"), "another choice has no default: {error}");
}

#[test]
fn values_out_of_range_are_named() {
    for (text, key) in [
        ("[train]\nsteps = 0", "train.steps"),
        ("[validation]\nfraction = 1.0", "validation.fraction"),
        ("[validation]\nmetric = \"recall@0\"", "validation.metric"),
        ("[evaluation]\nrecall_at = []", "evaluation.recall_at"),
        ("[optimizer]\nlearning_rate = nan", "optimizer.learning_rate"),
        ("[optimizer]\nmomentum = 1.0", "optimizer.momentum"),
        ("[loss]\nname = \"rll\"\nlambda = 1.5", "loss.lambda"),
        ("[schedule]\nend_factor = 2.0", "schedule.end_factor"),
    ] {
        let error = parse(text).unwrap().validate().unwrap_err().to_string();
        assert!(error.contains(&format!("`{key}`")), "{text}: {error}");
    }
}

#[test]
fn an_evaluation_is_what_its_keys_ask_for() {
    let plan = |text: &str| parse(text).unwrap().evaluation.plan();
    let names = |text: &str| -> Vec<String> {
        plan(text).unwrap().options.measures.iter().map(ToString::to_string).collect()
    };
    assert_eq!(names("[evaluation]\nrecall_at = [3]"), ["recall@3", "precision@1", "map@r", "r_precision"]);
    assert_eq!(names("[evaluation]\nmetrics = [\"map\", \"ndcg@10\"]"), ["map", "ndcg@10"]);
    assert_eq!(names("[evaluation]\nprotocol = \"sop\"")[..2], ["recall@1", "recall@10"]);
    let all = plan(
        "[evaluation]\nrerank = { k1 = 7 }\nbootstrap = { over = \"classes\" }\ncluster = \"sklearn10\"",
    );
    let all = all.unwrap();
    let rerank = all.rerank.unwrap();
    assert_eq!((rerank.k1, rerank.k2, rerank.lambda), (7, 6, 0.3));
    assert_eq!(all.bootstrap.unwrap().resamples, 1000);
    assert!(all.cluster.is_some() && all.verification.is_none());

    for (text, wanted, hint) in [
        ("metrics = [\"r_precison\"]", "knows no metric `r_precison`", "did you mean `r_precision`?"),
        ("metrics = [\"recal@5\"]", "knows no metric `recal@5`", "did you mean `recall@5`?"),
        ("metrics = [\"recall@0\"]", "knows no metric `recall@0`", "did you mean `recall@10`?"),
        ("protocol = \"cub20\"", "knows no protocol `cub20`", "did you mean `cub200`?"),
    ] {
        let error = parse(&format!("[evaluation]\n{text}")).unwrap().validate().unwrap_err();
        assert!(message(&error).contains(wanted) && message(&error).contains(hint), "{}", message(&error));
    }
    for metric in ["precision_at_recall@150", "recal@5", "map@"] {
        let of = |text: String| message(&parse(&text).unwrap().validate().unwrap_err());
        let words = of(format!("[evaluation]\nmetrics = [\"{metric}\"]"));
        let words = words.replacen("evaluation", "validation (`validation.metric`)", 1);
        assert_eq!(of(format!("[validation]\nmetric = \"{metric}\"")), words);
    }
    assert_eq!(names("[evaluation]\nprotocol = \"market1501\"")[..3], ["map_trapezoid", "map", "cmc@1"]);
    assert!(plan("[evaluation]\nprotocol = \"none\"").unwrap().ignore_cameras);
    let error = parse("[evaluation]\nrerank = { k = 7 }").unwrap_err();
    assert!(message(&error).contains("unknown field `k`"), "{}", message(&error));
}

#[test]
fn test_images_are_one_set_or_queries_and_a_gallery() {
    let check = |data: &str| parse(&format!("[data]\n{data}")).unwrap().validate();
    for data in ["test = [\"a\"]", "query = [\"a\"]\ngallery = [\"a\", \"b\"]", ""] {
        check(data).unwrap();
    }
    for (data, wanted, hint) in [
        ("test = [\"a\"]\ngallery = [\"a\"]", "data.test and data.gallery are both given", "give data.test"),
        ("query = [\"a\"]", "data.query is given, and data.gallery is not", "give both"),
        ("gallery = [\"a\"]", "data.gallery is given, and data.query is not", "give both"),
        ("test = [\"a\"]\ngallery_split = \"x\"", "data.gallery_split is given", "they may be the same"),
    ] {
        let error = check(data).unwrap_err();
        assert!(message(&error).contains(wanted) && message(&error).contains(hint), "{}", message(&error));
    }
    for metric in ["map", "map_trapezoid", "cmc@1", "map@r", "recall@3"] {
        parse(&format!("[validation]\nmetric = \"{metric}\"")).unwrap().validate().unwrap();
    }
}

#[test]
fn a_text_tower_goes_with_no_trained_head() {
    let check = |dimensions: &str| {
        let text = "[text]\nfile = \"text.onnx\"\ntokenizer = \"tokenizer.json\"";
        parse(&format!("{text}\n[network]\nkind = \"vit\"\nprojection = 512\n{dimensions}"))
            .unwrap()
            .validate()
    };
    // Also where its rows are as long as those of a text; the default is a head of 128 dimensions.
    for dimensions in ["dimensions = 512", ""] {
        let error = message(&check(dimensions).unwrap_err());
        assert!(error.contains("trained head") && error.contains("network.dimensions = 0"), "{error}");
    }
    check("dimensions = 0").unwrap();
}

#[test]
fn several_losses_are_a_list_of_tables() {
    let text = "[[loss]]\nname = \"rll\"\nmargin = 0.3\n[[loss]]\npreset = \"ice-sop\"\nweight = 0.5\nhead = \"embedding\"";
    let config = parse(text).unwrap();
    config.validate().unwrap();
    assert_eq!(config.loss.to_string(), "rll + 0.5 ice on embedding");
    assert_eq!(parse(&config.to_toml()).unwrap(), config);
    let changed = RunConfig::parse(text, "x", &["loss.1.weight=2".into(), "loss.0.t_neg=3".into()]).unwrap();
    assert_eq!(
        (changed.loss.0[1].weight, changed.loss.to_string().as_str()),
        (2.0, "rll + 2 ice on embedding")
    );

    let error = RunConfig::parse(text, "x", &["loss.margin=2".into()]).unwrap_err();
    assert!(message(&error).contains("`loss` is a list of 2"), "{}", message(&error));
    assert!(message(&error).contains("--set loss.0.margin=2"), "{}", message(&error));
    let error = parse("[[loss]]\nname = \"rll\"\n[[loss]]\nname = \"rll\"\nmargn = 1").unwrap_err();
    assert!(message(&error).contains("`margin`"), "{}", message(&error));
    let refused = |text: &str| parse(text).unwrap().validate().unwrap_err().to_string();
    assert_eq!(
        refused("[loss]\nname = \"rll\"\nhead = \"H\""),
        "`loss.head` must be a head of the network: embedding, not `H`"
    );
    assert_eq!(refused("[loss]\nname = \"rll\"\nweight = 0"), "`loss.weight` must be above 0, not 0");
    assert_eq!(refused("loss = []"), "`loss` must be one loss or more, not an empty list");
}

#[test]
fn losses_count_in_their_steps() {
    let config = |first: &str, second: &str| {
        let text = format!(
            "[train]\nsteps = 100\n[[loss]]\nname = \"contrastive\"\n{first}\n[[loss]]\nname = \"srt\"\n{second}"
        );
        let config = parse(&text).unwrap();
        assert_eq!(parse(&config.to_toml()).unwrap(), config);
        config
    };
    let switched = config("until_step = 40", "from_step = 41");
    switched.validate().unwrap();
    assert_eq!(switched.loss.to_string(), "contrastive until step 40 + srt from step 41");
    // Evaluated as the last loss compares, not as the first.
    assert_eq!(switched.metric(), Metric::Euclidean);
    assert_eq!(config("", "from_step = 41").metric(), Metric::Cosine);
    config("from_step = 20\nuntil_step = 60", "").validate().unwrap();

    let refused = |first: &str, second: &str| config(first, second).validate().unwrap_err().to_string();
    assert_eq!(refused("until_step = 40", "from_step = 42"), "no loss counts in step 41");
    assert_eq!(refused("from_step = 3", "from_step = 2"), "no loss counts in step 1");
    assert_eq!(refused("until_step = 9", "until_step = 99"), "no loss counts in step 100");
    let outside = "`loss.from_step` must be from 1 to 100 (train.steps), not 101";
    assert_eq!(refused("", "from_step = 101"), outside);
    assert_eq!(
        refused("", "from_step = 9\nuntil_step = 8"),
        "`loss.until_step` must be 9 (loss.from_step) or more, not 8"
    );
}

#[test]
fn a_memory_wants_a_loss_that_compares_pairs() {
    let with =
        |loss: &str| parse(&format!("[loss]\nname = \"{loss}\"\n[xbm]\nsize = 10")).unwrap().validate();
    with("srt").unwrap();
    let error = with("softmax").unwrap_err();
    assert!(message(&error).contains("contrastive"), "{}", message(&error));
    let error = parse("[xbm]\nsize = 0").unwrap().validate().unwrap_err();
    assert_eq!(error.to_string(), "`xbm.size` must be 1 or more, not 0");
}

#[test]
fn the_number_of_images_at_once_that_earlier_versions_wrote_is_not_the_users() {
    let batch_size = |text: &str| parse(text).unwrap().evaluation.batch_size;
    let today = RunConfig::default().to_toml();
    let old = today.replace("\nmemory_mib = 0\n", "\n").replace("\nbatch_size = 0\n", "\nbatch_size = 256\n");
    assert!(!old.contains("\nmemory_mib") && old.contains("\nbatch_size = 256\n"), "{old}");
    assert_eq!(batch_size(&old), 0);
    assert_eq!(batch_size(&today.replace("\nbatch_size = 0\n", "\nbatch_size = 256\n")), 256);
    // In the run file of a user, which does not name every key.
    assert_eq!(batch_size("[evaluation]\nbatch_size = 256\ncheckpoint = \"best\""), 256);
    assert_eq!(batch_size("[evaluation]\nbatch_size = 256\nmemory_mib = 0"), 256);
    assert_eq!(batch_size("[evaluation]\nbatch_size = 16"), 16);
    let settings = ["evaluation.batch_size=256".to_owned()];
    assert_eq!(RunConfig::parse("", "`run.toml`", &settings).unwrap().evaluation.batch_size, 256);
    // What is written today is read as it is.
    let mut config = RunConfig::default();
    config.evaluation.batch_size = 256;
    assert_eq!(parse(&config.to_toml()).unwrap(), config);
}

#[test]
fn a_metric_that_the_rows_contradict_is_refused() {
    let error = |text: &str| parse(text).unwrap().validate().unwrap_err().to_string();
    let inner = error("[evaluation]\nmetric = \"inner_product\"");
    assert!(inner.contains("`evaluation.metric`") && inner.contains("`cosine` or `euclidean`"), "{inner}");
    let scaled = error("[evaluation]\nmetric = \"euclidean\"\ncombine = \"normalize_then_concat\"");
    assert!(scaled.contains("scales the rows"), "{scaled}");
}

/// Every key of the documented run file, the optional ones too, with a value of it.
fn documented() -> Vec<(String, toml::Value)> {
    fn keys(prefix: &str, table: &toml::Table, all: &mut Vec<(String, toml::Value)>) {
        for (name, value) in table {
            let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
            if let toml::Value::Table(inner) = value {
                keys(&key, inner, all);
            }
            all.push((key, value.clone()));
        }
    }
    let uncommented: String = DEFAULTS
        .lines()
        .map(|line| match line.strip_prefix("# ") {
            Some(rest) if rest.starts_with('[') || rest.split_whitespace().nth(1) == Some("=") => {
                format!("{rest}\n")
            }
            _ => format!("{line}\n"),
        })
        .collect();
    let mut all = Vec::new();
    keys("", &uncommented.parse().unwrap(), &mut all);
    all
}

#[test]
fn a_value_of_the_wrong_kind_is_refused_with_the_key_and_without_types_of_the_program() {
    let program: &[&str] = &[
        "usize",
        "u64",
        "u32",
        "f32",
        "f64",
        "i64",
        "bool",
        "struct",
        "enum",
        "variant",
        "sequence",
        "untagged",
        "serde",
        "PathBuf",
        "Option",
        "expected a",
        "map,",
    ];
    let mut refused = 0;
    for (key, value) in documented().into_iter().filter(|(key, _)| key.contains('.')) {
        for wrong in ["abc def", "1.5", "-1", "true", "[[]]", "{ a = 1 }", "[1, \"x\"]", "\"\""] {
            let setting = format!("{key}={wrong}");
            let Err(error) = RunConfig::parse("", "`run.toml`", std::slice::from_ref(&setting)) else {
                continue;
            };
            refused += 1;
            // The setting itself may hold any word.
            let message = error.to_string().replace(&setting, "");
            let leaf = key.rsplit('.').next().unwrap();
            assert!(message.contains(leaf) || message.contains("unknown"), "{setting}: {message}");
            // Names of the run file may hold any word, too.
            let prose: String = message.split('`').step_by(2).collect();
            let words: Vec<&str> = program.iter().copied().filter(|word| prose.contains(word)).collect();
            assert!(words.is_empty(), "{setting} (a {}): {words:?} in: {message}", value.type_str());
        }
    }
    assert!(refused > 500, "{refused}");
    let of = |setting: &str| message(&RunConfig::parse("", "`run.toml`", &[setting.into()]).unwrap_err());
    assert!(
        of("train.steps=abc").contains("train.steps: wanted a whole number, found `abc`"),
        "{}",
        of("train.steps=abc")
    );
    let error = message(&parse("[train]\nseed = 1\nsteps = \"many\"").unwrap_err());
    assert!(error.contains("line 3: train.steps: wanted a whole number, found `many`"), "{error}");
    let error = message(&parse("[network]\nkind = \"resnet\"\ndepth = \"50\"").unwrap_err());
    assert!(error.contains("line 3: network.depth: wanted a whole number, found `50`"), "{error}");
}

#[test]
fn one_value_is_taken_as_a_list_of_one() {
    let config = RunConfig::parse(
        "[data]\ntrain = \"birds\"\n[image]\nmean = 0.5",
        "`run.toml`",
        &["data.test=more/birds".into(), "evaluation.recall_at=5".into(), "evaluation.metrics=map".into()],
    )
    .unwrap();
    assert_eq!(config.data.train, [std::path::Path::new("birds")]);
    assert_eq!(config.data.test, [std::path::Path::new("more/birds")]);
    assert_eq!((&config.image.mean[..], &config.evaluation.recall_at[..]), (&[0.5f32][..], &[5usize][..]));
    assert_eq!(config.evaluation.metrics, ["map"]);
}

#[test]
fn what_was_meant_is_suggested() {
    for (setting, meant) in [
        ("steps=5", "did you mean `train.steps`?"),
        ("learning_rate=0.1", "did you mean `optimizer.learning_rate`?"),
        ("recal_at=[1]", "did you mean `evaluation.recall_at`?"),
        ("train.margin=0.2", "did you mean `loss.margin`?"),
        ("train.stepz=1", "did you mean `steps`?"),
        ("network.kind=resnet50", "did you mean `resnet` with `depth = 50`?"),
        ("network.kind=ResNet-18", "did you mean `resnet` with `depth = 18`?"),
        ("network.kind=mobilenetv2", "did you mean `mobilenet_v2`?"),
        ("network.kind=bn-inception", "did you mean `bn_inception`?"),
        ("optimizer.kind=adam", "did you mean `adamw`?"),
        ("loss.name=triplet", "did you mean `triplet_semihard`?"),
    ] {
        let error = RunConfig::parse("", "`run.toml`", &[setting.into()]).unwrap_err();
        assert_eq!(error.hint().as_deref(), Some(meant), "{setting}: {error}");
    }
    let error = parse("steps = 5").unwrap_err();
    assert_eq!(error.hint().unwrap(), "did you mean `train.steps`?");
    // The key is one of the default loss.
    let other =
        RunConfig::parse("[loss]\nname = \"rll\"\nt_neg = 10.0", "`run.toml`", &["loss.name=nra".into()]);
    let hint = other.unwrap_err().hint().unwrap();
    assert_eq!(
        hint,
        "`loss.t_neg` is a key of another loss; remove it, or replace the whole section: --set 'loss={name=\"…\"}'"
    );
    // Of the file alone: no setting helps, and the file of a run takes none.
    let hint = parse("[loss]\nname = \"nra\"\nt_neg = 10.0").unwrap_err().hint().unwrap();
    assert_eq!(hint, "`loss.t_neg` is a key of another loss; remove it");
}

#[test]
fn sizes_and_counts_beyond_any_machine_are_refused_with_the_limit() {
    for (settings, key, limit) in [
        (&["train.threads=1000000"][..], "train.threads", "at most 1024"),
        (&["train.loader_threads=1000000"], "train.loader_threads", "at most 1024"),
        (&["train.prefetch=100000000000"], "train.prefetch", "at most 1024"),
        (&["train.steps=9000000000000000000"], "train.steps", "at most 1000000000"),
        (&["train.accumulate=9000000000000000000"], "train.accumulate", "at most 65536"),
        (&["data.cache_mib=99999999999999"], "data.cache_mib", "at most 1073741824"),
        (&["evaluation.batch_size=9999999999"], "evaluation.batch_size", "at most 65536"),
        (
            &["evaluation.bootstrap.resamples=999999999999"],
            "evaluation.bootstrap.resamples",
            "at most 1000000",
        ),
        (&["evaluation.few_shot.episodes=999999999999"], "evaluation.few_shot.episodes", "at most 1000000"),
        (&["report.results=99999999999"], "report.results", "at most 1000"),
        (&["sampler.images_per_class=99999999999"], "sampler.images_per_class", "at most 65536"),
        (&["image.size=16384"], "sampler.classes_per_batch", "16.0 GiB in f32"),
        (&["xbm.size=99999999999"], "xbm.size", "16.0 GiB in f32"),
        (&["loss.name=soft_triple", "loss.centers=99999999999"], "loss.centers", "16.0 GiB in f32"),
        (&["loss.name=struct_clust", "loss.refinements=99999999999"], "loss.refinements", "at most 1000"),
    ] {
        let settings: Vec<String> = settings.iter().map(|s| s.to_string()).collect();
        let error =
            RunConfig::parse("", "`run.toml`", &settings).unwrap().validate().unwrap_err().to_string();
        assert!(error.contains(key) && error.contains(limit), "{settings:?}: {error}");
    }
}

#[test]
fn a_network_of_too_many_parameters_is_refused_before_memory_is_taken_for_it() {
    use gallerist_nn::InputShape;
    let input = InputShape { channels: 3, height: 28, width: 28 };
    for settings in [
        &["network.channels=[8, 2147483648]"][..],
        &["network.channels=[9223372036854775807, 9223372036854775807]"],
        &["network.dimensions=99999999999"],
        &["network.kind=two_conv", "network.channels=[2147483648, 8]"],
        &["network.kind=resnet", "network.depth=18", "network.hidden=99999999999"],
        &["network.kind=mobilenet_v2", "network.dimensions=18446744073709551"],
    ] {
        let settings: Vec<String> = settings.iter().map(|s| s.to_string()).collect();
        let config = RunConfig::parse("[image]\nsize = 28", "`run.toml`", &settings).unwrap();
        let error = config.network.init(input, 1, &burn::tensor::Device::flex()).unwrap_err().to_string();
        assert!(error.starts_with("`network` must be of at most 1,073,741,824 (4.0 GiB in f32)"), "{error}");
        assert!(error.contains("alone has"), "{error}");
    }
}

#[test]
fn run_files_and_settings_name_the_miner() {
    let text = "[loss]\nname = \"contrastive\"\n[loss.miner]\nname = \"multi_similarity\"\nepsilon = 0.3\n";
    let config = RunConfig::parse(text, "here", &[]).unwrap();
    let settings = ["miner.name=multi_similarity".to_string(), "miner.epsilon=0.3".to_string()];
    assert_eq!(config.loss.0[0].loss, loss_from_settings(Some("contrastive"), None, &settings).unwrap());
    let again = RunConfig::parse(&config.to_toml(), "again", &[]).unwrap();
    assert_eq!(again.loss, config.loss);

    let error = |name: &str, settings: &[&str]| {
        let settings: Vec<String> = settings.iter().map(|s| s.to_string()).collect();
        let error = loss_from_settings(Some(name), None, &settings).unwrap_err();
        format!("{error}\n{}", error.hint().unwrap_or_default())
    };
    let message = error("ice", &["miner.name=hard"]);
    assert!(
        message.contains("`ice` takes no miner") && message.contains("contrastive, triplet_all"),
        "{message}"
    );
    assert!(error("lifted", &["miner.name=hrd"]).contains("did you mean `hard`?"));
    assert!(error("lifted", &["miner.name=semi_hard", "miner.margn=1"]).contains("did you mean `margin`?"));
    assert!(
        error("lifted", &["miner.name=semi_hard", "miner.margin=0"])
            .contains("`loss.miner.margin` must be above 0")
    );
    let run_file =
        RunConfig::parse("[loss]\nname = \"ice\"\nminer = { name = \"hard\" }\n", "here", &[]).unwrap_err();
    assert!(run_file.to_string().contains("`ice` takes no miner"), "{run_file}");
}

#[test]
fn a_preset_takes_other_values_and_another_miner_and_no_other_loss() {
    let parse = |text: &str, settings: &[&str]| {
        let settings: Vec<String> = settings.iter().map(|s| s.to_string()).collect();
        RunConfig::parse(text, "here", &settings).map(|config| config.loss)
    };
    let given = [
        ("preset = \"contrastive\"\nminer = { name = \"semi_hard\" }", "miner.name=semi_hard"),
        ("name = \"contrastive\"\npreset = \"contrastive\"\nmargin = 0.5", "margin=0.5"),
    ];
    for (keys, setting) in given {
        let loss = loss_from_settings(None, Some("contrastive"), &[setting.into()]).unwrap();
        assert_eq!(parse(&format!("[loss]\n{keys}"), &[]).unwrap().0[0].loss, loss, "{keys}");
    }
    let miner =
        "[loss]\npreset = \"multi-similarity\"\nminer = { name = \"multi_similarity\", epsilon = 0.2 }";
    let loss = parse(miner, &[]).unwrap();
    assert!(loss.0[0].loss.to_toml().contains("epsilon = 0.2"), "{}", loss.0[0].loss.to_toml());
    let refused = parse("[loss]\npreset = \"ice-sop\"\nminer = { name = \"hard\" }", &[]).unwrap_err();
    assert!(refused.to_string().contains("`ice` takes no miner"), "{refused}");

    // Before, keys that both losses have were taken from the preset, and others were left out.
    let text = "[loss]\nname = \"rll\"\nmargin = 0.3";
    let both = format!("{text}\npreset = \"contrastive\"");
    for refused in [parse(&both, &[]), parse(text, &["loss.preset=contrastive"])] {
        let error = refused.unwrap_err();
        let wanted = "the preset `contrastive` is for the loss `contrastive`, not for `name = \"rll\"`";
        assert!(error.to_string().contains(wanted), "{error}");
        assert!(error.hint().unwrap().contains("--set 'loss={preset=\"contrastive\"}'"));
    }
    let loss = parse(text, &["loss={preset=\"contrastive\"}"]).unwrap();
    assert_eq!(loss.0[0].loss, loss_from_settings(None, Some("contrastive"), &[]).unwrap());
}
