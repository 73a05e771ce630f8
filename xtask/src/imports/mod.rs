//! `cargo xtask check imports`: no file uses a file that uses it, and no crate a crate of its own layer or above.
//!
//! A file that only declares and re-exports is transparent: a name counts for the file that defines it. Code under
//! `#[cfg(test)]` does not count. Written here, without a parser of the whole language, because one of the common
//! parsers would need other features of crates that the tensor engine needs too, and have the engine built again.

mod graph;
pub(crate) mod lex;
mod parse;

use std::path::Path;

use graph::Graph;

/// The crates of the workspace, lowest layer first. A crate depends on crates of lower layers only.
const LAYERS: [&[&str]; 10] = [
    &["gallerist-collective", "gallerist-util", "workspace-hack"],
    &["gallerist-jpeg", "gallerist-store"],
    &["gallerist-data", "gallerist-kernels", "gallerist-onnx", "gallerist-report", "gallerist-retrieval"],
    &["gallerist-database"],
    &["gallerist-map", "gallerist-milvus", "gallerist-qdrant", "gallerist-tensor", "gallerist-testkit"],
    &["gallerist-loss", "gallerist-nn", "gallerist-serve"],
    &["gallerist-weights"],
    &["gallerist-train"],
    &["gallerist"],
    &["gallerist-fuzz", "gallerist-python"],
];

/// Crates that build without the tensor engine: they depend on each other only, and not on `burn`.
const WITHOUT_ENGINE: [&str; 14] = [
    "gallerist-collective",
    "gallerist-util",
    "gallerist-jpeg",
    "gallerist-store",
    "gallerist-data",
    "gallerist-onnx",
    "gallerist-report",
    "gallerist-retrieval",
    "gallerist-map",
    "gallerist-database",
    "gallerist-milvus",
    "gallerist-qdrant",
    "gallerist-testkit",
    "gallerist-serve",
];

/// How many cycles of a group are shown.
const SHOWN: usize = 4;

/// Checks every crate under `root`.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let mut problems = Vec::new();
    let mut crates: Vec<_> = std::fs::read_dir(root.join("crates"))
        .map_err(|e| format!("crates: {e}"))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.join("Cargo.toml").is_file())
        .collect();
    crates.push(root.join("xtask"));
    crates.sort();
    for folder in &crates {
        let name = folder.file_name().expect("a crate has a name").to_string_lossy().into_owned();
        let manifest =
            std::fs::read_to_string(folder.join("Cargo.toml")).map_err(|e| format!("{name}: {e}"))?;
        if name != "xtask" {
            problems.extend(layer_faults(&name, &dependencies(&manifest)));
        }
        for root in ["src/lib.rs", "src/main.rs"] {
            if folder.join(root).is_file() {
                let graph = Graph::of_crate(&folder.join(root), &|path| std::fs::read_to_string(path).ok())?;
                problems.extend(file_faults(&name, &folder.join("src"), &graph));
            }
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
}

/// Names of the crates under `[dependencies]` (also for one platform), without those for tests and builds.
fn dependencies(manifest: &str) -> Vec<String> {
    let mut inside = false;
    let mut names = Vec::new();
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            inside = line.ends_with("dependencies]")
                && !line.ends_with("dev-dependencies]")
                && !line.ends_with("build-dependencies]");
        } else if inside && line.starts_with(|c: char| c.is_ascii_alphabetic()) {
            let name = line.split(['.', '=', ' ']).next().expect("split gives one part");
            names.push(name.to_string());
        }
    }
    names
}

fn layer_of(name: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&name))
}

fn layer_faults(name: &str, dependencies: &[String]) -> Vec<String> {
    let Some(layer) = layer_of(name) else {
        return vec![format!(
            "{name}: the crate is in no layer; add it to LAYERS in xtask/src/imports/mod.rs"
        )];
    };
    let mut faults = Vec::new();
    let without_engine = WITHOUT_ENGINE.contains(&name);
    for dependency in dependencies {
        if let Some(other) = layer_of(dependency).filter(|&other| other >= layer) {
            faults.push(format!(
                "{name} depends on {dependency}, which is not below it (layers {layer} and {other}); move what it needs \
                 to a lower crate"
            ));
        }
        let engine =
            dependency == "burn" || dependency.starts_with("burn-") || layer_of(dependency).is_some();
        if without_engine && engine && !WITHOUT_ENGINE.contains(&dependency.as_str()) {
            faults.push(format!("{name} must build without the tensor engine, and depends on {dependency}"));
        }
    }
    faults
}

/// Describes the cycles of one crate.
fn file_faults(name: &str, source: &Path, graph: &Graph) -> Vec<String> {
    let label = |file: usize| -> String {
        let path = &graph.files[file];
        path.strip_prefix(source).unwrap_or(path).display().to_string()
    };
    let mut faults = Vec::new();
    for group in graph.cycles() {
        let mut text = format!("{name}: files that use each other");
        if group.len() > 2 {
            let all: Vec<String> = group.iter().map(|&file| label(file)).collect();
            text += &format!(" ({}), for example", all.join(", "));
        }
        for cycle in graph.examples(&group, SHOWN) {
            for (i, &file) in cycle.iter().enumerate() {
                let next = cycle[(i + 1) % cycle.len()];
                let edge = &graph.edges[file][&next];
                let mark = if i == 0 { '-' } else { ' ' };
                text += &format!(
                    "\n  {mark} {}:{} uses {} (`{}`)",
                    label(file),
                    edge.line,
                    label(next),
                    edge.path
                );
            }
        }
        text += "\n  hint: move what both need into a file that uses neither, or a function to the file that it works on";
        faults.push(text);
    }
    faults
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::graph::Graph;
    use super::{dependencies, file_faults, layer_faults};

    #[test]
    fn dependencies_of_tests_do_not_count() {
        let manifest = "[package]\nname = \"x\"\n[dependencies]\na.workspace = true\nb = \"1\"\n# c = \"1\"\n
                        d = { version = \"1\", features = [\n  \"e\",\n] }\n[target.'cfg(unix)'.dependencies]\nlibc = \"0.2\"\n
                        [dev-dependencies]\nf = \"1\"";
        assert_eq!(dependencies(manifest), ["a", "b", "d", "libc"]);
    }

    #[test]
    fn upward_imports_and_the_engine_where_it_must_not_be_are_refused() {
        let faults = |name, dependency: &str| layer_faults(name, &[dependency.to_string()]);
        assert_eq!(faults("gallerist-serve", "gallerist-map"), Vec::<String>::new());
        assert!(faults("gallerist-util", "gallerist-data")[0].contains("layers 0 and 2"));
        assert!(faults("gallerist-data", "burn")[0].contains("without the tensor engine"));
        assert!(faults("gallerist-serve", "gallerist-kernels")[0].contains("without the tensor engine"));
        assert!(faults("gallerist-else", "burn")[0].contains("in no layer"));
    }

    #[test]
    fn a_cycle_is_shown_with_its_lines_and_a_hint() {
        let read = |path: &Path| {
            let text = match path.to_str()? {
                "src/lib.rs" => "mod a; mod b;",
                "src/a.rs" => "\nuse crate::b::B;\npub struct A;",
                "src/b.rs" => "use crate::a::A;\npub struct B;",
                _ => return None,
            };
            Some(text.to_string())
        };
        let graph = Graph::of_crate(Path::new("src/lib.rs"), &read).unwrap();
        let faults = file_faults("x", Path::new("src"), &graph);
        assert_eq!(faults.len(), 1);
        assert!(faults[0].starts_with(
            "x: files that use each other\n  - a.rs:2 uses b.rs (`crate::b::B`)\n    b.rs:1 uses a.rs (`crate::a::A`)\n  hint:"
        ));
    }
}
