//! The experiments and bases of the program: one line for each file.

/// Names and texts of files of a folder.
macro_rules! files {
    ($folder:literal: $($name:literal)*) => {
        &[$(($name, include_str!(concat!("../../../../experiments/", $folder, "/", $name, ".toml")))),*]
    };
}

/// The experiments of the papers.
const PAPERS: &[(&str, &str)] = files! {
    "papers":
    "ice-figure-1"
    "ice-figure-2"
    "ice-figure-3"
    "ice-figure-4"
    "ice-table-1"
    "ice-table-2"
    "ice-table-3"
    "ice-table-4"
    "ice-table-5"
    "ice-table-6"
    "nra-figure-1"
    "nra-figure-2"
    "nra-figure-3-center"
    "nra-figure-3-left"
    "nra-figure-3-right"
    "nra-figure-4"
    "nra-table-1"
    "nra-table-2"
    "rll-cvpr-table-1"
    "rll-cvpr-table-2"
    "rll-cvpr-table-3"
    "rll-cvpr-table-4"
    "rll-cvpr-table-5"
    "rll-cvpr-table-6"
    "rll-cvpr-table-7"
    "rll-journal-figure-5"
    "rll-journal-figure-6"
    "rll-journal-table-1"
    "rll-journal-table-10"
    "rll-journal-table-11"
    "rll-journal-table-12"
    "rll-journal-table-13"
    "rll-journal-table-14"
    "rll-journal-table-2"
    "rll-journal-table-3"
    "rll-journal-table-4"
    "rll-journal-table-5"
    "rll-journal-table-6"
    "rll-journal-table-7"
    "rll-journal-table-8"
    "rll-journal-table-9"
    "srt-figure-1"
    "srt-figure-2"
    "srt-figure-3a"
    "srt-figure-3b"
    "srt-figure-3c"
    "srt-table-1"
    "srt-table-2"
};

/// Further experiments.
const COMPARISONS: &[(&str, &str)] = files! {
    "comparisons":
    "hard-mining"
    "ice-gradient"
    "losses"
    "losses-cub200"
    "losses-tuned"
    "nra-steps"
    "rll-forms"
    "rll-heads-steps"
    "srt-batch-norm"
};

/// All experiments.
pub(super) fn experiments() -> Vec<(&'static str, &'static str)> {
    [PAPERS, COMPARISONS].concat()
}

/// The bases.
pub(super) const BASES: &[(&str, &str)] = files! {
    "bases":
    "cars196-ice"
    "cars196-nra"
    "cars196-rll-cvpr"
    "cars196-rll-journal"
    "consumer-to-shop-srt"
    "cub200-2011-ice"
    "cub200-2011-nra"
    "cub200-2011-rll-cvpr"
    "cub200-2011-rll-journal"
    "cuhk03-np-detected-srt"
    "cuhk03-np-labeled-srt"
    "dukemtmc-srt"
    "inshop-rll-journal"
    "inshop-srt"
    "market1501-srt"
    "mnist-nra"
    "small-cub200-2010"
    "small-digits"
    "small-market1501"
    "small-omniglot"
    "small-omniglot-heads"
    "smoke-omniglot"
    "smoke-omniglot-heads"
    "sop-ice"
    "sop-nra"
    "sop-rll-cvpr"
    "sop-rll-journal"
    "sop-rll-journal-ablation"
};

#[cfg(test)]
mod tests {
    use std::path::Path;

    use gallerist_train::config::loss_from_settings;

    use super::*;
    use crate::experiments::base::Base;
    use crate::experiments::file::{Experiment, Scale};
    use crate::experiments::plan::{Plan, Selection};

    #[test]
    fn every_file_is_in_the_list() {
        for (folder, list) in [("papers", PAPERS), ("comparisons", COMPARISONS), ("bases", BASES)] {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments").join(folder);
            let mut names: Vec<String> = std::fs::read_dir(path)
                .unwrap()
                .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
                .collect();
            names.sort();
            assert_eq!(names, list.iter().map(|(name, _)| *name).collect::<Vec<_>>());
        }
    }

    #[test]
    fn every_row_has_a_valid_run_file_at_every_scale() {
        let mut wrong = Vec::new();
        for experiment in Experiment::all().unwrap_or_else(|error| panic!("{error}")) {
            for &scale in Scale::ALL {
                if let Err(error) = Plan::new(&experiment, &Selection { scale, ..Selection::default() }) {
                    wrong.push(error.to_string());
                }
            }
            assert_eq!(
                experiment.about.drawing.is_none(),
                !experiment.scales().is_empty(),
                "{}",
                experiment.about.name
            );
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn rows_see_equal_numbers_of_images_a_step_unless_they_compare_these() {
        const COMPARE: &[&str] = &["hard-mining", "ice-table-5", "rll-cvpr-table-7", "rll-journal-table-11"];
        let mut wrong = Vec::new();
        for experiment in Experiment::all().unwrap() {
            let name = &experiment.about.name;
            if COMPARE.contains(&name.as_str()) {
                continue;
            }
            let plan = Plan::new(&experiment, &Selection::default()).unwrap();
            for (part, of) in experiment.parts.iter().enumerate() {
                let runs = plan.runs.iter().filter(|run| run.part == part);
                let (least, most) = runs
                    .map(|run| run.job.config.sampler.batch_size())
                    .fold((usize::MAX, 0), |(least, most), size| (least.min(size), most.max(size)));
                // 6 x 10 images and 33 x 2 count as equal.
                if most > least.saturating_mul(11) / 10 {
                    wrong.push(format!("{name}, {}: {least} to {most}", of.name));
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    /// The sections `loss` in a table, at any depth.
    fn losses<'a>(value: &'a toml::Value, found: &mut Vec<&'a toml::Table>) {
        match value {
            toml::Value::Table(table) => {
                for (key, value) in table {
                    match value {
                        toml::Value::Table(loss) if key == "loss" => found.push(loss),
                        toml::Value::Array(sum) if key == "loss" => {
                            found.extend(sum.iter().filter_map(toml::Value::as_table));
                        }
                        other => losses(other, found),
                    }
                }
            }
            toml::Value::Array(list) => list.iter().for_each(|value| losses(value, found)),
            _ => {}
        }
    }

    #[test]
    fn no_row_depends_on_the_default_of_a_loss() {
        let mut open = Vec::new();
        for (experiment, text) in experiments() {
            let table = toml::Value::Table(text.parse().unwrap());
            let mut found = Vec::new();
            losses(&table, &mut found);
            // Presets give every parameter.
            for loss in found.into_iter().filter(|loss| loss.contains_key("name")) {
                let name = loss["name"].as_str().unwrap();
                let defaults = loss_from_settings(Some(name), None, &[]).unwrap();
                let defaults: toml::Table = defaults.to_toml().parse().unwrap();
                let missing = defaults.keys().filter(|key| !loss.contains_key(*key));
                open.extend(missing.map(|key| format!("{experiment}: {key} of {loss}")));
            }
        }
        assert!(open.is_empty(), "give the value, or a preset:\n{}", open.join("\n"));
    }

    /// Else its run files, and the keys of its runs, would differ where the file of weights is missing.
    #[test]
    fn a_base_with_weights_gives_the_preparation_of_images() {
        for (name, _) in BASES {
            let run = Base::find(name).unwrap().run;
            let image = |key: &str| run.get("image").and_then(|image| image.get(key)).is_some();
            let has_weights = run.get("network").and_then(|network| network.get("weights")).is_some();
            assert!(!has_weights || (image("size") && image("mean")), "{name}");
        }
    }

    #[test]
    fn a_part_that_changes_what_its_base_is_said_to_be_says_what_it_is() {
        for experiment in Experiment::all().unwrap() {
            let scaled =
                experiment.parts.iter().flat_map(|part| Scale::ALL.iter().filter_map(|&of| part.at(of)));
            for scaled in scaled.filter(|scaled| scaled.about.is_none()) {
                let said = Base::find(&scaled.base).unwrap().base.about;
                let has =
                    |section: &str, key: &str| scaled.run.get(section).and_then(|of| of.get(key)).is_some();
                for (section, key, word) in [
                    ("train", "steps", "steps"),
                    ("image", "size", "pixels"),
                    ("network", "dimensions", "dimensions"),
                    ("network", "kind", "network"),
                ] {
                    let wrong = has(section, key) && said.contains(word);
                    assert!(!wrong, "{}: give `about`, not that of {}", experiment.about.name, scaled.base);
                }
            }
        }
    }

    #[test]
    fn names_are_those_of_the_files() {
        for (name, _) in experiments() {
            assert_eq!(Experiment::find(name).unwrap().about.name, name);
        }
    }
}
