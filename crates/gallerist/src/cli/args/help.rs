//! The examples of every command, and the options that few users need.

use clap::{Command, CommandFactory, FromArgMatches};

use super::Cli;

/// Examples by command. A test parses each of them.
const EXAMPLES: &[(&str, &[&str])] = &[
    (
        "init",
        &[
            "gallerist init --images photos --weights weights.pth",
            "gallerist init --images photos --weights weights.pth --preset products --minutes 30",
        ],
    ),
    (
        "train",
        &[
            "gallerist train --images photos --weights weights.pth --minutes 10",
            "gallerist train configs/omniglot.toml --set train.steps=500 --out runs/short",
            "gallerist train --resume runs/short",
        ],
    ),
    (
        "tune",
        &["gallerist tune configs/omniglot.toml --space experiments/tune/omniglot.toml --trials 40 --jobs 2"],
    ),
    ("experiment list", &["gallerist experiment list"]),
    ("experiment show", &["gallerist experiment show rll-cvpr-table-4"]),
    ("experiment run", &["gallerist experiment run rll-cvpr-table-4 --seeds 5 --jobs 2"]),
    ("experiment table", &["gallerist experiment table rll-cvpr-table-4 --seeds 5"]),
    (
        "embed",
        &[
            "gallerist embed --run runs/photos --images photos --out photos.safetensors",
            "gallerist embed --run runs/photos --images photos --out photos.safetensors --precision int8",
            "gallerist embed --run runs/photos --shards images.csv --shard 7/1000 --out shards --precision bf16",
        ],
    ),
    ("merge", &["gallerist merge shards --out gallery.json"]),
    (
        "convert",
        &["gallerist convert photos.safetensors more.safetensors --out all.safetensors --precision int8"],
    ),
    (
        "evaluate",
        &[
            "gallerist evaluate --run runs/photos",
            "gallerist evaluate --embeddings x.npy --labels y.npy --metrics map@r,recall@1",
            "gallerist evaluate --query q.safetensors --gallery g.safetensors --protocol market1501",
        ],
    ),
    ("search", &["gallerist search --gallery photos.safetensors --query a.png b.png -k 5 --html found.html"]),
    (
        "threshold",
        &["gallerist threshold --embeddings test.safetensors --far 0.001 --save photos.safetensors"],
    ),
    ("info", &["gallerist info runs/photos", "gallerist info photos.safetensors"]),
    ("index build", &["gallerist index build photos.safetensors --out photos.index"]),
    ("index info", &["gallerist index info photos.index"]),
    ("index search", &["gallerist index search photos.index --queries new.safetensors -k 10 --label heron"]),
    ("index bench", &["gallerist index bench photos.index --queries new.safetensors -k 10"]),
    ("index add", &["gallerist index add photos.index new.safetensors"]),
    ("index remove", &["gallerist index remove photos.index --label heron"]),
    (
        "index push",
        &[
            "gallerist index push photos.safetensors --gallery milvus://db:19530/photos",
            "gallerist index push photos.safetensors --gallery qdrant://db:6334/photos --kind exact",
        ],
    ),
    ("plot curves", &["gallerist plot curves runs/a runs/b --out curves.svg"]),
    ("plot ranked", &["gallerist plot ranked runs/photos --out ranked.svg"]),
    (
        "plot map",
        &[
            "gallerist plot map runs/photos --out map.svg",
            "gallerist plot map --embeddings x.npy --labels y.npy --method pca --out map.png",
        ],
    ),
    ("plot cmc", &["gallerist plot cmc runs/a runs/b --out cmc.svg"]),
    ("plot pr", &["gallerist plot pr runs/a runs/b --out pr.svg"]),
    ("plot distances", &["gallerist plot distances runs/photos --out distances.svg"]),
    ("plot clusters", &["gallerist plot clusters runs/photos --out clusters.svg"]),
    ("plot report", &["gallerist plot report runs/a runs/b --out both.html"]),
    (
        "serve",
        &[
            "gallerist serve --gallery photos.safetensors",
            "gallerist serve --gallery runs/a/gallery.safetensors --queries runs/a/query.safetensors",
        ],
    ),
    (
        "loss",
        &[
            "gallerist loss --list",
            "gallerist loss --loss ice --set scale=16 --embeddings x.npy --labels y.npy --gradient g.npy",
        ],
    ),
    ("data info", &["gallerist data info photos", "gallerist data info CUB_200_2011 --split test --json"]),
    (
        "model inspect",
        &["gallerist model inspect dinov2.onnx", "gallerist model inspect dinov2.onnx --engine onnxruntime"],
    ),
    (
        "model import",
        &[
            "gallerist model import dinov2.onnx --set image.mean=[0.485,0.456,0.406] --set image.std=[0.229,0.224,0.225] \
           --out runs/dinov2",
        ],
    ),
    (
        "model calibrate",
        &[
            "gallerist model calibrate --run runs/photos --images photos",
            "gallerist model calibrate --run runs/photos --images more --count 1000 --json",
        ],
    ),
    ("weights list", &["gallerist weights list"]),
    ("weights fetch", &["gallerist weights fetch mobilenet_v2-v2 --out weights.pth"]),
    (
        "weights inspect",
        &[
            "gallerist weights inspect weights.pth",
            "gallerist weights inspect weights.pth --config photos.toml",
        ],
    ),
    ("weights import", &["gallerist weights import weights.pth --config photos.toml --out runs/untrained"]),
    ("weights export", &["gallerist weights export --run runs/photos --out model.onnx"]),
    (
        "config",
        &["gallerist config --print-defaults", "gallerist config --check photos.toml --set train.steps=500"],
    ),
    ("completions", &["gallerist completions bash"]),
];

/// Options that few users need, by command.
const ADVANCED: &[(&str, &[&str])] = &[
    ("train", &["profile", "device"]),
    ("init", &["steps", "device"]),
    ("tune", &["folds", "metric", "seed", "threads"]),
    (
        "embed",
        &[
            "layout",
            "crop_boxes",
            "label_from",
            "device",
            "source",
            "cache",
            "normalize",
            "head",
            "combine",
            "part_images",
        ],
    ),
    ("convert", &["mix_models"]),
    ("index build", &["kind", "metric", "m", "ef_construction", "ef", "seed", "ids", "force", "threads"]),
    ("index add", &["ids", "force", "compact", "threads"]),
    ("index search", &["ef", "mapped", "force", "threads"]),
    ("index push", &["ids", "force", "m", "ef_construction", "patience"]),
    ("serve", &["thumbnails", "k_max", "upload_limit", "decode_limit", "analysis_limit"]),
    (
        "loss",
        &["memory", "memory_labels", "parameters", "save_parameters", "step", "steps", "device", "seed"],
    ),
    ("data info", &["layout", "crop_boxes", "label_from", "threads"]),
    ("weights export", &["normalize", "head", "combine"]),
];

const ADVANCED_HEADING: &str = "Advanced";

impl Cli {
    /// The arguments of the process. A wrong one, and `--help`, end the process.
    pub(crate) fn of_process() -> Self {
        Cli::from_arg_matches(&command().get_matches()).unwrap_or_else(|error| error.exit())
    }
}

/// The command line with its examples.
pub(crate) fn command() -> Command {
    described(Cli::command(), "")
}

/// A command, called `path`, and its subcommands, with examples and headings.
fn described(mut command: Command, path: &str) -> Command {
    fn of(table: &'static [(&str, &[&str])], path: &str) -> &'static [&'static str] {
        table.iter().find(|(name, _)| *name == path).map_or(&[], |(_, items)| items)
    }
    for id in of(ADVANCED, path) {
        command = command.mut_arg(*id, |arg| arg.help_heading(ADVANCED_HEADING));
    }
    let examples = of(EXAMPLES, path);
    if !examples.is_empty() {
        let title = if examples.len() == 1 { "Example" } else { "Examples" };
        let lines = examples.iter().map(|line| format!("\n  {line}")).collect::<String>();
        let before = command.get_after_help().map_or(String::new(), |text| format!("{text}\n\n"));
        command = command.after_help(format!("{before}{title}:{lines}"));
    }
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    for name in names {
        let path = format!("{path} {name}").trim().to_owned();
        command = command.mut_subcommand(name, |sub| described(sub, &path));
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_examples_that_can_be_parsed() {
        fn leaves(command: &Command, path: &str, all: &mut Vec<String>) {
            let path = format!("{path} {}", command.get_name());
            match command.has_subcommands() {
                true => command.get_subcommands().for_each(|sub| leaves(sub, &path, all)),
                false => {
                    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
                    assert!(help.contains("Example"), "`{path}` has no example");
                    all.push(path.trim_start_matches(" gallerist ").to_owned());
                }
            }
        }
        let mut all = Vec::new();
        leaves(&command(), "", &mut all);
        for (name, examples) in EXAMPLES {
            assert!(all.iter().any(|known| known == name), "there is no command `{name}`");
            for line in *examples {
                assert!(line.starts_with(&format!("gallerist {name}")), "{line}");
                command()
                    .try_get_matches_from(line.split(' '))
                    .unwrap_or_else(|error| panic!("{line}\n{error}"));
            }
        }
        let listed = ADVANCED.iter().find(|(name, _)| !all.iter().any(|known| known == name));
        assert_eq!(listed, None, "no such command");
    }
}
