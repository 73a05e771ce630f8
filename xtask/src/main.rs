//! Development tasks. `cargo xtask check` runs what a change must pass, cheapest first.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

const USAGE: &str = "usage: cargo xtask check [STEP...]

steps, in order (all by default):
  links      relative links and files named in the documentation exist
  fmt        cargo fmt --check
  clippy     cargo clippy, warnings are errors
  test       cargo test --release --workspace
  doc        cargo doc without warnings
  deny       cargo deny: licences, bans, sources, advisories (cargo install cargo-deny)";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some((command, steps)) = args.split_first() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let known = ["links", "fmt", "clippy", "test", "doc", "deny"];
    if command != "check" || steps.iter().any(|step| !known.contains(&step.as_str())) {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    }
    for step in known.iter().filter(|step| steps.is_empty() || steps.iter().any(|s| s == *step)) {
        let start = Instant::now();
        eprintln!("== {step}");
        if let Err(reason) = run(step) {
            eprintln!("error: `{step}` failed: {reason}");
            return ExitCode::from(1);
        }
        eprintln!("== {step} passed in {:.0} s", start.elapsed().as_secs_f32());
    }
    ExitCode::SUCCESS
}

fn run(step: &str) -> Result<(), String> {
    match step {
        "links" => links(),
        "fmt" => cargo(&["fmt", "--all", "--check"], &[]),
        "clippy" => {
            cargo(&["clippy", "--release", "--workspace", "--all-targets", "--", "-D", "warnings"], &[])?;
            let with = ["--features", "milvus", "--all-targets", "--", "-D", "warnings"];
            cargo(&[&["clippy", "--release", "-p", "gallerist"], &with[..]].concat(), &[])
        }
        "test" => cargo(&["test", "--release", "--workspace"], &[]),
        "doc" => cargo(&["doc", "--release", "--workspace", "--no-deps"], &[("RUSTDOCFLAGS", "-D warnings")]),
        "deny" => deny(),
        _ => unreachable!("steps are checked before"),
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace").to_path_buf()
}

fn cargo(args: &[&str], env: &[(&str, &str)]) -> Result<(), String> {
    let status = Command::new("cargo").args(args).envs(env.iter().copied()).current_dir(root()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`cargo {}`: {status}", args.join(" "))),
        Err(e) => Err(format!("`cargo {}`: {e}", args.join(" "))),
    }
}

/// Licences, bans and sources are checked offline. Advisories need their database; where it cannot be fetched,
/// that is said and the rest still counts.
fn deny() -> Result<(), String> {
    let installed =
        Command::new("cargo").args(["deny", "--version"]).output().is_ok_and(|out| out.status.success());
    if !installed {
        return Err("cargo-deny is not installed; run `cargo install --locked cargo-deny`".into());
    }
    cargo(&["deny", "--workspace", "check", "licenses", "bans", "sources"], &[])?;
    if cargo(&["deny", "--workspace", "fetch", "db"], &[]).is_err() {
        eprintln!("warning: the advisory database cannot be fetched; advisories were not checked");
        return Ok(());
    }
    cargo(&["deny", "--workspace", "check", "advisories"], &[])
}

/// Every relative link of every Markdown file of the repository leads to a file.
fn links() -> Result<(), String> {
    let listing = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "*.md"])
        .current_dir(root())
        .output()
        .map_err(|e| format!("`git ls-files`: {e}"))?;
    let mut broken = Vec::new();
    for file in String::from_utf8_lossy(&listing.stdout).lines() {
        let path = root().join(file);
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        for target in link_targets(&text) {
            let target = target.split('#').next().unwrap_or("");
            if target.is_empty() || target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let base = path.parent().expect("a file has a parent");
            if !base.join(target).exists() {
                broken.push(format!("{file}: `{target}`"));
            }
        }
    }
    if broken.is_empty() { Ok(()) } else { Err(format!("broken links\n  {}", broken.join("\n  "))) }
}

/// Targets of `[text](target)` outside code.
fn link_targets(text: &str) -> Vec<String> {
    let mut targets = Vec::new();
    let mut fenced = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        // Every second piece between back-ticks is code.
        for prose in line.split('`').step_by(2) {
            for (at, _) in prose.match_indices("](") {
                if let Some(end) = prose[at + 2..].find(')') {
                    targets.push(prose[at + 2..at + 2 + end].to_string());
                }
            }
        }
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::link_targets;

    #[test]
    fn links_in_prose_are_found_and_those_in_code_are_not() {
        let text = "see [a](x.md) and [b](y.md#part), not `[c](z.md)`\n```\n[d](w.md)\n```\n![e](p.png)";
        assert_eq!(link_targets(text), ["x.md", "y.md#part", "p.png"]);
    }
}
