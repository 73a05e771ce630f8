//! `cargo xtask check links`.

use std::path::Path;
use std::process::Command;

/// Every relative link of every Markdown file of the repository leads to a file.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let listing = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "*.md"])
        .current_dir(root)
        .output()
        .map_err(|e| format!("`git ls-files`: {e}"))?;
    let mut broken = Vec::new();
    for file in String::from_utf8_lossy(&listing.stdout).lines() {
        let path = root.join(file);
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
