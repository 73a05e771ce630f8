//! The run file: its defaults, its errors, its settings from the command line.

use gallerist_learn::Error;
use gallerist_learn::network::NetworkConfig;
use gallerist_learn::train::{DEFAULTS, RunConfig};

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
            Some(rest) if rest.split_whitespace().nth(1) == Some("=") => format!("{rest}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    let all = parse(&uncommented).unwrap();
    assert!(
        all.train.normalize.is_some() && all.image.stored_size.is_some() && all.optimizer.clip_norm.is_some()
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
    assert!(matches!(config.network, NetworkConfig::ConvBlocks(c) if c.channels == [4, 8]));
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
        ("[validation]\nmetric = \"recall@3\"", "validation.metric"),
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
