//! Configurations in words.

use serde::Serialize;

/// The keys of a configuration as `key = value`, one string each. The name that chooses it is left out; a table inside
/// is one string.
pub fn parameters(of: &impl Serialize) -> Vec<String> {
    let text = toml::to_string(of).expect("parameters are plain data");
    let mut sections = text.split("\n[");
    let keys = |section: &str| section.lines().filter(|line| !line.is_empty()).map(str::to_string).collect();
    let mut parameters: Vec<String> = sections.next().map_or(Vec::new(), keys);
    parameters.retain(|line| !line.starts_with("name = "));
    for (name, inner) in sections.filter_map(|section| section.split_once(']')) {
        let inner: Vec<String> = keys(inner);
        parameters.push(format!("{name} = {{ {} }}", inner.join(", ")));
    }
    parameters
}
