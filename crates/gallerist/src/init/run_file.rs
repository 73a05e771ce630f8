//! The text of a run file with comments.

use toml::Value;

use super::findings::Findings;
use super::preset::Recipe;

/// The sections in the order of the text.
const SECTIONS: [&str; 11] = [
    "train",
    "data",
    "validation",
    "image",
    "augment",
    "sampler",
    "network",
    "loss",
    "optimizer",
    "schedule",
    "evaluation",
];

/// Columns of a comment.
const COLUMNS: usize = 100;

/// Keys and reasons, by section.
#[derive(Clone, Debug, Default)]
pub(super) struct RunFile {
    sections: Vec<Section>,
}

#[derive(Clone, Debug)]
struct Section {
    name: &'static str,
    reasons: Vec<String>,
    keys: Vec<(String, Value)>,
}

impl RunFile {
    fn section(&mut self, name: &str) -> &mut Section {
        let at = self.sections.iter().position(|section| section.name == name).unwrap_or_else(|| {
            let name = SECTIONS.into_iter().find(|known| *known == name).expect("a section of the list");
            self.sections.push(Section { name, reasons: Vec::new(), keys: Vec::new() });
            self.sections.len() - 1
        });
        &mut self.sections[at]
    }

    /// Sets a key.
    pub(super) fn set(&mut self, section: &str, key: &str, value: impl Into<Value>) {
        let (keys, value) = (&mut self.section(section).keys, value.into());
        match keys.iter_mut().find(|(known, _)| known == key) {
            Some((_, old)) => *old = value,
            None => keys.push((key.into(), value)),
        }
    }

    /// Sets all keys of a section to those of a recipe.
    pub(super) fn copy(&mut self, recipe: &Recipe, section: &str) {
        let Some(keys) = recipe.keys.get(section).and_then(Value::as_table) else { return };
        self.set_all(section, keys);
    }

    /// Sets all keys of a table, the name of the part first.
    pub(super) fn set_all(&mut self, section: &str, keys: &toml::Table) {
        let is_name = |key: &str| key == "kind" || key == "name";
        let (names, others): (Vec<_>, Vec<_>) = keys.iter().partition(|(key, _)| is_name(key));
        names.into_iter().chain(others).for_each(|(key, value)| self.set(section, key, value.clone()));
    }

    /// Adds a reason for the values of a section.
    pub(super) fn because(&mut self, section: &str, reason: impl Into<String>) {
        self.section(section).reasons.push(reason.into());
    }

    /// The reasons in the order of the sections.
    pub(super) fn into_reasons(mut self) -> Vec<(&'static str, String)> {
        self.sort();
        let of = |section: Section| section.reasons.into_iter().map(move |reason| (section.name, reason));
        self.sections.into_iter().flat_map(of).collect()
    }

    fn sort(&mut self) {
        self.sections.sort_by_key(|section| SECTIONS.iter().position(|name| *name == section.name));
    }

    /// The text, which begins with what is known of the images, and with warnings.
    pub(super) fn text(&self, findings: &Findings, warnings: &[String]) -> String {
        let mut file = self.clone();
        file.sort();
        let mut text =
            comment("Written by `gallerist init`. `gallerist config --print-defaults` lists all keys.");
        text += "#\n";
        findings.lines().iter().for_each(|line| text += &comment(line));
        warnings.iter().for_each(|warning| text += &comment(&format!("Warning: {warning}")));
        for Section { name, reasons, keys } in &file.sections {
            text += &format!("\n[{name}]\n");
            reasons.iter().for_each(|reason| text += &comment(reason));
            keys.iter().for_each(|(key, value)| text += &format!("{key} = {value}\n"));
        }
        text
    }
}

/// Lines of a comment. Names of files may hold any character; a comment of TOML holds no control characters.
fn comment(text: &str) -> String {
    let shown: String = text
        .chars()
        .map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() })
        .collect();
    let (mut lines, mut line) = (String::new(), String::from("#"));
    for word in shown.split(' ') {
        if line.len() > 1 && line.chars().count() + 1 + word.chars().count() > COLUMNS {
            lines += &(std::mem::replace(&mut line, "#".into()) + "\n");
        }
        line += " ";
        line += word;
    }
    lines + &line + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_stays_one_whatever_a_name_holds() {
        assert_eq!(comment("a\nsteps = 3"), "# a\\nsteps = 3\n");
        let long = comment(&"word ".repeat(40));
        assert!(long.lines().all(|line| line.starts_with('#') && line.len() <= COLUMNS), "{long}");
        assert_eq!(long.lines().count(), 3);
    }
}
