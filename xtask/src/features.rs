//! `cargo xtask check features`: every crate that needs the tensor engine asks for the same features of the engine's
//! dependencies as the whole workspace, so that the engine is compiled once.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// A crate of the workspace that depends on the engine lists this one among its dependencies, directly or not.
const ENGINE: &str = "burn";

/// A package with its version and the features that are enabled.
type Packages = BTreeSet<String>;

/// Compares every member that depends on the engine with the workspace.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let workspace = packages(root, &["--workspace", "--edges", "normal,build,dev"])?;
    let engine = names(&packages(root, &["--package", ENGINE, "--edges", "normal,build"])?);
    let mut problems = Vec::new();
    for entry in std::fs::read_dir(root.join("crates")).map_err(|e| format!("crates: {e}"))? {
        let path = entry.map_err(|e| format!("crates: {e}"))?.path();
        let Some(name) = path.file_name().filter(|_| path.join("Cargo.toml").is_file()) else { continue };
        let name = name.to_string_lossy();
        for edges in ["normal,build", "normal,build,dev"] {
            let member = packages(root, &["--package", &name, "--edges", edges])?;
            problems.extend(differences(&name, &member, &workspace, &engine));
        }
    }
    problems.sort();
    problems.dedup();
    if problems.is_empty() {
        return Ok(());
    }
    let hint = "hint: name these features in crates/workspace-hack/Cargo.toml";
    Err(format!("crates that would compile the tensor engine again\n  {}\n{hint}", problems.join("\n  ")))
}

/// The names of packages.
fn names(packages: &Packages) -> BTreeSet<String> {
    packages.iter().filter_map(|package| package.split(' ').next()).map(str::to_string).collect()
}

/// The dependencies of the engine (named in `engine`) that `member` has with other features than the workspace; none
/// if it does not need the engine.
fn differences(
    name: &str,
    member: &Packages,
    workspace: &Packages,
    engine: &BTreeSet<String>,
) -> Vec<String> {
    let of_engine = |package: &&String| package.split(' ').next().is_some_and(|name| engine.contains(name));
    let start = format!("{ENGINE} v");
    if !member.iter().any(|package| package.starts_with(&start)) {
        return Vec::new();
    }
    let wanted = |package: &str| {
        let of_package = format!("{} [", package.split(" [").next().unwrap_or(package));
        workspace.iter().find(|other| other.starts_with(&of_package)).cloned().unwrap_or_default()
    };
    member
        .difference(workspace)
        .filter(of_engine)
        .map(|package| format!("{name}: {package}, in the workspace {}", wanted(package)))
        .collect()
}

fn packages(root: &Path, selection: &[&str]) -> Result<Packages, String> {
    let output = Command::new("cargo")
        .args(["tree", "--locked", "--prefix", "none", "--format", "{p} [{f}]"])
        .args(selection)
        .current_dir(root)
        .output()
        .map_err(|e| format!("`cargo tree`: {e}"))?;
    if !output.status.success() {
        return Err(format!("`cargo tree`: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(parse(&String::from_utf8_lossy(&output.stdout)))
}

/// Packages of registries; those of the workspace have a path.
fn parse(tree: &str) -> Packages {
    tree.lines()
        .map(|line| line.replace(" (proc-macro)", "").replace(" (*)", ""))
        .filter(|line| !line.is_empty() && !line.contains(" ("))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{differences, parse};

    #[test]
    fn packages_with_other_features_are_reported_for_members_with_the_engine() {
        let workspace = parse("burn v1.0.0 [std]\n\nhalf v2.0.0 [default,std]\nserde v1.0.0 [] (*)\n");
        let with = parse("burn v1.0.0 [std]\nhalf v2.0.0 [std]\nx v0.1.0 (/x) [default]\n");
        let without = parse("half v2.0.0 [std]");
        let engine = ["burn", "half"].map(String::from).into();
        assert_eq!(
            differences("a", &with, &workspace, &engine),
            ["a: half v2.0.0 [std], in the workspace half v2.0.0 [default,std]"]
        );
        assert_eq!(differences("a", &without, &workspace, &engine), Vec::<String>::new());
        // What the engine does not depend on does not compile it again.
        assert_eq!(differences("a", &with, &workspace, &["burn".to_string()].into()), Vec::<String>::new());
    }

    #[test]
    fn members_of_the_workspace_and_marks_are_left_out() {
        let packages = parse("syn v2.0.0 (proc-macro) [full]\nx v0.1.0 (/x) [default]\n");
        assert_eq!(packages.into_iter().collect::<Vec<_>>(), ["syn v2.0.0 [full]"]);
    }
}
