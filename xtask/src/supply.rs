//! `cargo xtask check supply`: the dependencies that run code when the program is built, or that have unsafe code, are
//! those of `supply/crates.txt`, and the build scripts of the default build are described in `supply/build-scripts.txt`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::imports::lex::{Kind, tokens};

const CRATES: &str = "supply/crates.txt";
const SCRIPTS: &str = "supply/build-scripts.txt";

const HEADER: &str = "\
# Dependencies that have a build script, a procedural macro, a native library or unsafe code: all features, all targets,
# tests included. Written by `cargo xtask supply`, compared by `cargo xtask check supply`.
# `*`: part of the default build of the program for x86-64 Linux. unsafe=N: how often the keyword is in its sources.
";

/// A package of the registry, as `cargo metadata` describes it.
struct Package {
    name: String,
    version: String,
    /// The folder of its manifest.
    folder: PathBuf,
    build_script: Option<PathBuf>,
    is_macro: bool,
    links: Option<String>,
    /// The folders of its libraries.
    sources: BTreeSet<PathBuf>,
}

/// Compares the record with the dependencies.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let (found, scripts) = found(root)?;
    let read = |name: &str| std::fs::read_to_string(root.join(name)).map_err(|e| format!("`{name}`: {e}"));
    let changes = changes(&read(CRATES)?, &found);
    if !changes.is_empty() {
        let hint = "hint: read what is new, then `cargo xtask supply`";
        return Err(format!("dependencies differ from `{CRATES}`\n  {}\n{hint}", changes.join("\n  ")));
    }
    let described = described(&read(SCRIPTS)?)?;
    let unread: Vec<&Script> =
        scripts.iter().filter(|script| !described.contains_key(&script.key())).collect();
    let (needed, optional): (Vec<&Script>, Vec<&Script>) =
        unread.into_iter().partition(|script| script.is_default);
    let used: BTreeSet<_> = scripts.iter().map(Script::key).collect();
    let mut problems: Vec<String> = needed
        .iter()
        .map(|script| format!("not described: {} {} {}", script.name, script.version, script.hash))
        .collect();
    problems.extend(
        described
            .keys()
            .filter(|key| !used.contains(*key))
            .map(|(name, hash)| format!("not used: {name} {hash}")),
    );
    if !problems.is_empty() {
        let hint = "hint: read the script and add a line with its name, its hash and what it does";
        return Err(format!("build scripts differ from `{SCRIPTS}`\n  {}\n{hint}", problems.join("\n  ")));
    }
    eprintln!(
        "{} build scripts, {} of them in the default build and described; {} of optional features or tests are not",
        scripts.len(),
        scripts.iter().filter(|script| script.is_default).count(),
        optional.len()
    );
    Ok(())
}

/// Writes the list of crates.
pub(crate) fn record(root: &Path) -> Result<(), String> {
    let (found, _) = found(root)?;
    std::fs::write(root.join(CRATES), found).map_err(|e| format!("`{CRATES}`: {e}"))
}

/// A build script.
struct Script {
    name: String,
    version: String,
    /// The start of the SHA-256 of its files.
    hash: String,
    is_default: bool,
}

impl Script {
    fn key(&self) -> (String, String) {
        (self.name.clone(), self.hash.clone())
    }
}

/// The list of crates as it should be, and the build scripts.
fn found(root: &Path) -> Result<(String, Vec<Script>), String> {
    let all =
        tree(root, &["--workspace", "--all-features", "--target", "all", "--edges", "normal,build,dev"])?;
    let default = tree(
        root,
        &["--package", "gallerist", "--target", "x86_64-unknown-linux-gnu", "--edges", "normal,build"],
    )?;
    let (mut text, mut scripts) = (HEADER.to_string(), Vec::new());
    for package in packages(root)? {
        let name = format!("{} v{}", package.name, package.version);
        if !all.contains(&name) {
            continue;
        }
        let is_default = default.contains(&name);
        let mut traits = Vec::new();
        if let Some(script) = &package.build_script {
            traits.push("build-script".into());
            let (name, version) = (package.name.clone(), package.version.clone());
            scripts.push(Script { name, version, hash: hash_of(&package.folder, script)?, is_default });
        }
        if package.is_macro {
            traits.push("macro".into());
        }
        traits.extend(package.links.iter().map(|library| format!("links={library}")));
        match package.sources.iter().map(|folder| unsafe_in(folder)).sum::<Result<usize, String>>()? {
            0 => {}
            count => traits.push(format!("unsafe={count}")),
        }
        if !traits.is_empty() {
            let mark = if is_default { '*' } else { ' ' };
            writeln!(text, "{mark} {} {} {}", package.name, package.version, traits.join(" "))
                .expect("a text");
        }
    }
    Ok((text, scripts))
}

/// The lines that two lists do not share, comments left out.
fn changes(recorded: &str, found: &str) -> Vec<String> {
    let lines = |text: &str| -> BTreeSet<String> {
        text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).map(str::to_string).collect()
    };
    let (recorded, found) = (lines(recorded), lines(found));
    let new = found.difference(&recorded).map(|line| format!("new:  {line}"));
    let gone = recorded.difference(&found).map(|line| format!("gone: {line}"));
    new.chain(gone).collect()
}

/// The descriptions of build scripts, by the name of the package and the hash of the script.
fn described(text: &str) -> Result<BTreeMap<(String, String), String>, String> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let parse = |line: &str| {
        let mut parts = line.splitn(3, ' ');
        let (name, hash, what) = (parts.next()?, parts.next()?, parts.next()?.trim());
        let known = ["runs: ", "writes: ", "network: "].iter().all(|part| what.contains(part));
        (hash.len() == 16 && known).then(|| ((name.into(), hash.into()), what.into()))
    };
    lines
        .map(|line| parse(line).ok_or_else(|| format!("`{SCRIPTS}`: a line of another form: {line}")))
        .collect()
}

/// `NAME vVERSION` of all packages in a tree.
fn tree(root: &Path, selection: &[&str]) -> Result<BTreeSet<String>, String> {
    let text =
        output(root, &[&["tree", "--locked", "--prefix", "none", "--format", "{p}"], selection].concat())?;
    Ok(text.lines().map(|line| line.split(" (").next().unwrap_or(line).to_string()).collect())
}

/// The packages of registries, by name and version.
fn packages(root: &Path) -> Result<Vec<Package>, String> {
    let text = output(root, &["metadata", "--locked", "--format-version", "1", "--all-features"])?;
    let metadata: Value = serde_json::from_str(&text).map_err(|e| format!("`cargo metadata`: {e}"))?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let mut packages = Vec::new();
    for package in
        metadata["packages"].as_array().into_iter().flatten().filter(|package| !package["source"].is_null())
    {
        let manifest = PathBuf::from(text(&package["manifest_path"]));
        let mut found = Package {
            name: text(&package["name"]),
            version: text(&package["version"]),
            folder: manifest.parent().unwrap_or(&manifest).to_path_buf(),
            build_script: None,
            is_macro: false,
            links: package["links"].as_str().map(str::to_string),
            sources: BTreeSet::new(),
        };
        for target in package["targets"].as_array().into_iter().flatten() {
            let path = PathBuf::from(text(&target["src_path"]));
            let is = |wanted: &str| {
                target["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == wanted))
            };
            if is("custom-build") {
                found.build_script = Some(path);
            } else if ["lib", "rlib", "dylib", "cdylib", "staticlib", "proc-macro"]
                .iter()
                .any(|kind| is(kind))
            {
                found.is_macro |= is("proc-macro");
                found.sources.extend(path.parent().map(Path::to_path_buf));
            }
        }
        packages.push(found);
    }
    packages.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    Ok(packages)
}

fn output(root: &Path, args: &[&str]) -> Result<String, String> {
    let name = format!("`cargo {}`", args[0]);
    let output =
        Command::new("cargo").args(args).current_dir(root).output().map_err(|e| format!("{name}: {e}"))?;
    match output.status.success() {
        true => String::from_utf8(output.stdout).map_err(|e| format!("{name}: {e}")),
        false => Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr))),
    }
}

/// How often the keyword `unsafe` is in the source files below a folder; without comments and texts.
fn unsafe_in(folder: &Path) -> Result<usize, String> {
    let mut count = 0;
    for file in rust_files(folder)? {
        let text = read(&file)?;
        // Most files have none.
        if text.contains("unsafe") {
            count += tokens(&text).iter().filter(|token| token.ident() == Some("unsafe")).count();
        }
    }
    Ok(count)
}

fn read(file: &Path) -> Result<String, String> {
    let bytes = std::fs::read(file).map_err(|e| format!("`{}`: {e}", file.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The Rust files below a folder, sorted.
fn rust_files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let failed = |e| format!("`{}`: {e}", folder.display());
        for entry in std::fs::read_dir(&folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            match path.extension() {
                _ if path.is_dir() => folders.push(path),
                Some(extension) if extension == "rs" => files.push(path),
                _ => {}
            }
        }
    }
    files.sort();
    Ok(files)
}

/// The start of the SHA-256 of a build script: its file, the modules that it may have (the Rust files of its folder, and of
/// `build/`), and the files of the package that it names.
fn hash_of(package: &Path, script: &Path) -> Result<String, String> {
    let folder = script.parent().unwrap_or(package);
    let mut files: BTreeSet<PathBuf> = match folder == package {
        // Of the root, without the folders: `src` is the library.
        true => rust_files_of(package)?.into_iter().collect(),
        false => rust_files(folder)?.into_iter().collect(),
    };
    if package.join("build").is_dir() {
        files.extend(rust_files(&package.join("build"))?);
    }
    let mut waiting: Vec<PathBuf> = files.iter().cloned().collect();
    while let Some(file) = waiting.pop() {
        for token in tokens(&read(&file)?) {
            let Kind::Str(name) = token.kind else { continue };
            let named = file.parent().unwrap_or(package).join(&name);
            if name.ends_with(".rs") && named.is_file() && files.insert(named.clone()) {
                waiting.push(named);
            }
        }
    }
    let mut hasher = Sha256::new();
    for file in &files {
        hasher.update(file.strip_prefix(package).unwrap_or(file).to_string_lossy().as_bytes());
        hasher.update([0]);
        hasher.update(std::fs::read(file).map_err(|e| format!("`{}`: {e}", file.display()))?);
        hasher.update([0]);
    }
    Ok(hasher.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect())
}

/// The Rust files in a folder, not below it.
fn rust_files_of(folder: &Path) -> Result<Vec<PathBuf>, String> {
    Ok(rust_files(folder)?.into_iter().filter(|file| file.parent() == Some(folder)).collect())
}

#[cfg(test)]
mod tests {
    use super::{changes, described, hash_of, unsafe_in};

    #[test]
    fn a_crate_that_gets_a_build_script_is_reported() {
        let recorded = "# text\n* a 1.0.0 unsafe=3\n  b 1.0.0 macro\n";
        assert!(changes(recorded, recorded).is_empty());
        let found = "# other text\n* a 1.0.1 build-script unsafe=3\n  b 1.0.0 macro\n";
        assert_eq!(
            changes(recorded, found),
            ["new:  * a 1.0.1 build-script unsafe=3", "gone: * a 1.0.0 unsafe=3"]
        );
    }

    #[test]
    fn a_description_says_what_is_run_and_written_and_whether_there_is_a_network() {
        let line = "a 0123456789abcdef runs: rustc; writes: nothing; network: no";
        assert!(described(line).unwrap().contains_key(&("a".into(), "0123456789abcdef".into())));
        for bad in ["a 0123456789abcdef it is fine", "a 0123 runs: x; writes: y; network: no", "a"] {
            assert!(described(bad).unwrap_err().ends_with(bad));
        }
    }

    #[test]
    fn unsafe_in_comments_and_texts_is_not_counted() {
        let folder = std::env::temp_dir().join(format!("xtask-supply-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("src/deep")).unwrap();
        let source = "// unsafe\nfn a() { let _ = \"unsafe\"; }\nunsafe fn b() { unsafe { c() } }\n";
        std::fs::write(folder.join("src/lib.rs"), "mod deep;").unwrap();
        std::fs::write(folder.join("src/deep/mod.rs"), source).unwrap();
        assert_eq!(unsafe_in(&folder.join("src")), Ok(2));

        // A script is its modules and the files that it names, too; not the library.
        let script = folder.join("build.rs");
        std::fs::write(&script, "mod version; include!(\"src/deep/part.rs\");").unwrap();
        std::fs::write(folder.join("version.rs"), "1").unwrap();
        std::fs::write(folder.join("src/deep/part.rs"), "2").unwrap();
        let mut hashes = vec![hash_of(&folder, &script).unwrap()];
        for (file, is_of_script) in
            [("build.rs", true), ("version.rs", true), ("src/deep/part.rs", true), ("src/lib.rs", false)]
        {
            let path = folder.join(file);
            let text = std::fs::read_to_string(&path).unwrap();
            std::fs::write(&path, format!("{text} // changed")).unwrap();
            let hash = hash_of(&folder, &script).unwrap();
            assert_eq!(hashes.last() != Some(&hash), is_of_script, "{file}");
            hashes.push(hash);
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}
