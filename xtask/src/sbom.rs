//! `cargo xtask sbom`: what the program consists of, as a file of CycloneDX.

use std::path::Path;

use serde_json::Value;

use crate::cargo::{cargo, require, target_folder};

const FILE: &str = "gallerist.cdx.json";

/// Writes `gallerist.cdx.json` into the target directory.
pub(crate) fn write(root: &Path) -> Result<(), String> {
    require(&["cyclonedx"], "cargo-cyclonedx", "cargo install --locked cargo-cyclonedx")?;
    let manifest = "crates/gallerist/Cargo.toml";
    let written = cargo(
        root,
        &["cyclonedx", "--quiet", "--manifest-path", manifest, "--format", "json", "--spec-version", "1.5"],
        &[],
    );
    let read = std::fs::read_to_string(root.join("crates/gallerist").join(FILE));
    // It writes one file for each crate of the workspace.
    remove_others(root).map_err(|e| format!("cannot remove a file: {e}"))?;
    written?;
    // No paths of this machine.
    let text = read.map_err(|e| format!("`{FILE}`: {e}"))?.replace(&root.display().to_string(), "/gallerist");
    check(&text)?;
    let file = target_folder(root).join(FILE);
    std::fs::write(&file, text).map_err(|e| format!("`{}`: {e}", file.display()))?;
    eprintln!("{}", file.display());
    Ok(())
}

fn remove_others(root: &Path) -> std::io::Result<()> {
    let crates = std::fs::read_dir(root.join("crates"))?.collect::<Result<Vec<_>, _>>()?;
    for folder in crates.iter().map(|entry| entry.path()).chain([root.join("xtask")]) {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries {
            let path = entry?.path();
            if path.to_string_lossy().ends_with(".cdx.json") {
                std::fs::remove_file(path)?;
            }
        }
    }
    Ok(())
}

/// It is a file of CycloneDX, of the program, with the components that a build of it has for sure.
fn check(text: &str) -> Result<(), String> {
    let file: Value = serde_json::from_str(text).map_err(|e| format!("`{FILE}`: {e}"))?;
    let named = |name: &str| {
        file["components"].as_array().is_some_and(|all| all.iter().any(|component| component["name"] == name))
    };
    let known = file["bomFormat"] == "CycloneDX" && file["metadata"]["component"]["name"] == "gallerist";
    match known && ["burn", "rustls", "gallerist-retrieval"].into_iter().all(named) {
        true => Ok(()),
        false => Err(format!("`{FILE}` does not describe the program")),
    }
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn a_file_without_the_dependencies_is_refused() {
        let file = |components: &str| {
            format!(
                r#"{{"bomFormat": "CycloneDX", "metadata": {{"component": {{"name": "gallerist"}}}}, "components": [{components}]}}"#
            )
        };
        let all = r#"{"name": "burn"}, {"name": "rustls"}, {"name": "gallerist-retrieval"}"#;
        assert_eq!(check(&file(all)), Ok(()));
        check(&file(r#"{"name": "burn"}"#)).unwrap_err();
        check("{}").unwrap_err();
    }
}
