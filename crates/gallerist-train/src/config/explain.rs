//! Errors of the TOML parser, translated into the terms of a run file.
//!
//! The parser names types of the program and, inside sections that are chosen by name, does not know the key.
//! This module finds the key by leaving keys out until the error changes, and replaces the names of types.

use toml::{Table, Value};

use gallerist_util::text::nearest;

/// An error of the parser with its key.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Fault {
    /// Dotted key, where one key is at fault.
    pub(super) key: Option<String>,
    /// What was wanted and what was found.
    pub(super) reason: String,
    /// What to do.
    pub(super) hint: Option<String>,
    /// What a setting does instead, where the run file alone has no fault.
    pub(super) setting: Option<String>,
    /// Whether a key is missing, so that a further setting may supply it.
    pub(super) missing: bool,
}

/// Values that are read again to find the key at fault. A run file has fewer than 300, whose keys may all be tried; of a file with
/// thousands only the first are, or the time would grow with the square of their number.
const MOST_READ: usize = 300_000;

/// The result of `read` for a table. A single value instead of a list is read as a list of one.
pub(super) fn read<T>(
    mut table: Table,
    known: &Table,
    read: impl Fn(&Table) -> Result<T, String>,
) -> Result<T, Fault> {
    let mut left = MOST_READ;
    loop {
        let message = match read(&table) {
            Ok(read) => return Ok(read),
            Err(message) => one_line(&message),
        };
        let key = culprit(&table, &message, &read, &mut left);
        if let Some(key) = &key
            && message.ends_with("expected a sequence")
            && let Some(value) = at(&mut table, key)
            && !value.is_array()
            && !value.is_table()
        {
            *value = Value::Array(vec![value.clone()]);
            continue;
        }
        return Err(explain(key, &message, known));
    }
}

/// A message of several lines in one.
pub(super) fn one_line(message: &str) -> String {
    message.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

/// The value of a dotted key.
fn at<'a>(table: &'a mut Table, key: &str) -> Option<&'a mut Value> {
    let (first, rest) = key.split_once('.').map_or((key, None), |(first, rest)| (first, Some(rest)));
    let mut value = table.get_mut(first)?;
    for part in rest.into_iter().flat_map(|rest| rest.split('.')) {
        value = match value {
            Value::Table(inner) => inner.get_mut(part)?,
            Value::Array(list) => list.get_mut(part.parse::<usize>().ok()?)?,
            _ => return None,
        };
    }
    Some(value)
}

/// All dotted keys, those inside a section before the section.
fn keys(table: &Table) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    for (name, value) in table {
        let inner = match value {
            Value::Table(inner) => keys(inner),
            Value::Array(list) => {
                let tables = list.iter().enumerate().filter_map(|(i, item)| Some((i, item.as_table()?)));
                tables
                    .flat_map(|(i, inner)| keys(inner).into_iter().map(move |(k, v)| (format!("{i}.{k}"), v)))
                    .collect()
            }
            _ => Vec::new(),
        };
        all.extend(inner.into_iter().map(|(key, value)| (format!("{name}.{key}"), value)));
        all.push((name.clone(), value.clone()));
    }
    all
}

/// The number of values in a value, itself included.
fn size(value: &Value) -> usize {
    1 + match value {
        Value::Table(inner) => inner.values().map(size).sum(),
        Value::Array(list) => list.iter().map(size).sum(),
        _ => 0,
    }
}

fn without(table: &Table, key: &str) -> Table {
    let mut table = table.clone();
    let Some((section, last)) = key.rsplit_once('.') else {
        table.remove(key);
        return table;
    };
    if let Some(Value::Table(inner)) = at(&mut table, section) {
        inner.remove(last);
    }
    table
}

/// The key whose removal changes or removes the error. `left` is the number of values that may still be read.
fn culprit<T>(
    table: &Table,
    message: &str,
    read: &impl Fn(&Table) -> Result<T, String>,
    left: &mut usize,
) -> Option<String> {
    let fits = |key: &str, value: &Value| {
        let quoted = quoted(message);
        let found = message.split(", expected").next().unwrap_or(message);
        if message.starts_with("unknown field") {
            return key.rsplit('.').next() == quoted;
        }
        if message.starts_with("unknown variant") {
            return value.as_str() == quoted;
        }
        // The parser names no kind where a name was wanted.
        let kind = found.contains("type:") && !found.contains("unit variant");
        match value {
            Value::String(text) => !found.contains("string \"") || found.contains(&format!("{text:?}")),
            Value::Integer(_) => !kind || found.contains("integer"),
            Value::Float(_) => !kind || found.contains("float"),
            Value::Boolean(_) => !kind || found.contains("boolean"),
            Value::Array(_) => true,
            Value::Table(_) => !kind || found.contains("map"),
            Value::Datetime(_) => true,
        }
    };
    let all = keys(table);
    // Each may be left out twice. A table without keys takes time, too: it is filled in with defaults.
    let read_for_one = 2 * table.values().map(size).sum::<usize>().max(1);
    let fitting: Vec<String> = all
        .into_iter()
        .filter(|(key, value)| fits(key, value))
        .map(|(key, _)| key)
        .take(*left / read_for_one)
        .collect();
    *left -= read_for_one * fitting.len();
    let cures = |rest: &Table| read(rest).err().is_none_or(|other| one_line(&other) != message);
    if let Some(key) = fitting.iter().find(|key| cures(&without(table, key))) {
        return Some(key.clone());
    }
    // Several keys have the same fault: it goes with the last of them.
    let mut rest = table.clone();
    fitting.into_iter().find(|key| {
        rest = without(&rest, key);
        cures(&rest)
    })
}

/// The first text in backquotes.
fn quoted(message: &str) -> Option<&str> {
    message.split('`').nth(1)
}

fn explain(key: Option<String>, message: &str, known: &Table) -> Fault {
    let missing = message.starts_with("missing field");
    let place = key.as_ref().map_or(String::new(), |key| format!("{key}: "));
    let (mut hint, mut setting) = (None, None);
    let reason = if let Some((found, wanted)) = split_expected(message) {
        format!("{place}wanted {}, found {}", wanted_in_words(wanted), found_in_words(found))
    } else if let Some(rest) = message.strip_prefix("unknown variant ") {
        hint = quoted(message).and_then(|word| nearest_value(word, &listed(message)));
        format!("{place}unknown value {rest}")
    } else if message.starts_with("unknown field") {
        if let Some((key, section)) = key_of_other(key.as_deref(), known) {
            let tag = if section == "loss" { "name" } else { "kind" };
            hint = Some(format!("`{key}` is a key of another {section}; remove it"));
            setting = Some(format!("replace the whole section: --set '{section}={{{tag}=\"…\"}}'"));
        } else {
            hint = quoted(message).and_then(|word| nearest_key(word, &listed(message), known));
        }
        message.to_string()
    } else if let Some(rest) = message.strip_prefix("missing field ") {
        format!("{place}the key {rest} is missing")
    } else if message.starts_with("data did not match any variant") {
        format!("{place}this value is of another kind than the key takes")
    } else {
        format!("{place}{message}")
    };
    Fault { key, reason, hint, setting, missing }
}

/// What was found and what was expected, of a value of the wrong kind.
fn split_expected(message: &str) -> Option<(&str, &str)> {
    let rest = ["invalid type: ", "invalid value: ", "invalid length "]
        .into_iter()
        .find_map(|start| message.strip_prefix(start))?;
    rest.rsplit_once(", expected ").or_else(|| rest.split_once(" expected "))
}

/// The names that the parser lists after the unknown one.
fn listed(message: &str) -> Vec<&str> {
    message.split('`').skip(1).step_by(2).skip(1).collect()
}

/// Replaces `usize` and other type names, which users of run files do not know.
fn wanted_in_words(wanted: &str) -> String {
    let wanted = wanted.trim();
    match wanted {
        "usize" | "u64" | "u32" | "u16" | "u8" | "i64" | "i32" | "a nonzero usize" => "a whole number".into(),
        "f32" | "f64" | "floating point number" | "a float" => "a number".into(),
        "a boolean" | "bool" => "true or false".into(),
        "string only" => "a name".into(),
        "a string" | "a borrowed string" | "path string" | "string or map" => "text".into(),
        "a sequence" => "a list".into(),
        "a map" | "map" | "table" => "a section".into(),
        other if other.starts_with("struct ") || other.starts_with("internally tagged enum") => {
            "a section".into()
        }
        other if other.starts_with("enum ") || other.contains("identifier") => "a name".into(),
        other if other.starts_with("an array of length ") || other.starts_with("a tuple of size ") => {
            format!("a list of {} values", other.rsplit(' ').next().unwrap_or_default())
        }
        other => other.into(),
    }
}

fn found_in_words(found: &str) -> String {
    let found = found.trim();
    if let Some(text) = found.strip_prefix("string \"").and_then(|rest| rest.strip_suffix('"')) {
        return format!("`{text}`");
    }
    if let Some(value) = quoted(found) {
        return format!("`{value}`");
    }
    match found {
        "sequence" => "a list".into(),
        "map" => "a section".into(),
        "unit value" | "Option value" => "nothing".into(),
        "unit variant" => "a value of another kind".into(),
        other => other.into(),
    }
}

/// Names of networks, optimisers and losses that others use.
const ALIASES: &[(&str, &str)] = &[
    ("resnet18", "`resnet` with `depth = 18`"),
    ("resnet34", "`resnet` with `depth = 34`"),
    ("resnet50", "`resnet` with `depth = 50`"),
    ("mobilenet", "`mobilenet_v2`"),
    ("mobilenetv3large", "`mobilenet_v3`"),
    ("mobilenetv3small", "`mobilenet_v3` with `size = \"small\"`"),
    ("efficientnetb0", "`efficientnet`"),
    ("tfefficientnetb0", "`efficientnet`"),
    ("efficientnetlite0", "`efficientnet_lite`"),
    ("tfefficientnetlite0", "`efficientnet_lite`"),
    ("visiontransformer", "`vit`"),
    ("transformer", "`vit`"),
    ("deit", "`vit`"),
    ("dinov2", "`vit`"),
    ("clip", "`vit`"),
    ("inception", "`bn_inception`"),
    ("inceptionbn", "`bn_inception`"),
    ("inceptionv2", "`bn_inception`"),
    ("googlenetv2", "`bn_inception`"),
    ("inceptionv1", "`googlenet`"),
    ("adam", "`adamw`"),
    ("rankedlist", "`rll`"),
    ("triplet", "`triplet_semihard`"),
    ("xbm", "a section `[xbm]`"),
];

/// The value that was probably meant by an unknown one.
fn nearest_value(word: &str, known: &[&str]) -> Option<String> {
    let bare = |text: &str| -> String {
        text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
    };
    let word_bare = bare(word);
    let meant = if let Some(same) = known.iter().find(|name| bare(name) == word_bare) {
        format!("`{same}`")
    } else if let Some((_, meant)) = ALIASES.iter().find(|(alias, meant)| {
        *alias == word_bare && meant.split('`').nth(1).is_some_and(|name| known.contains(&name))
    }) {
        (*meant).to_string()
    } else {
        format!("`{}`", nearest(word, known)?)
    };
    Some(format!("did you mean {meant}?"))
}

/// An unknown key and its section, where that has the key with another loss, network or sampler than the one that was chosen.
fn key_of_other<'a>(key: Option<&'a str>, known: &Table) -> Option<(&'a str, &'a str)> {
    let key = key?;
    let (section, _) = key.rsplit_once('.')?;
    keys(known).iter().any(|(known, _)| known == key).then_some((key, section))
}

/// The key that was probably meant by an unknown one: a key of that section, or one of that name in another.
fn nearest_key(word: &str, listed: &[&str], known: &Table) -> Option<String> {
    let elsewhere: Vec<String> = keys(known)
        .into_iter()
        .map(|(key, _)| key)
        .filter(|key| key.contains('.') && key.rsplit('.').next() == Some(word))
        .collect();
    let here = nearest(word, listed);
    // A key that exists is meant rather than one that is spelt like it.
    match (&elsewhere[..], here) {
        ([], Some(here)) => Some(format!("did you mean `{here}`?")),
        ([], None) => {
            let all = keys(known);
            let names: Vec<&str> = all.iter().map(|(key, _)| key.rsplit('.').next().unwrap_or(key)).collect();
            let name = nearest(word, &names)?;
            let (key, _) = all.iter().find(|(key, _)| key.rsplit('.').next() == Some(name))?;
            Some(format!("did you mean `{key}`?"))
        }
        (several, ..) => {
            let names: Vec<String> = several.iter().take(3).map(|key| format!("`{key}`")).collect();
            Some(format!("did you mean {}?", names.join(" or ")))
        }
    }
}

/// The line of a dotted key in the text of a run file, from 1.
pub(super) fn line_of(text: &str, key: &str) -> Option<usize> {
    let mut section = String::new();
    // Tables of a list count from 0.
    let mut lists = std::collections::BTreeMap::<String, usize>::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(name) = line.strip_prefix("[[").and_then(|rest| rest.strip_suffix("]]")) {
            let count = lists.entry(name.trim().into()).and_modify(|count| *count += 1).or_insert(0);
            section = format!("{}.{count}", name.trim());
        } else if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name.trim().into();
        } else if let Some((name, _)) = line.split_once('=') {
            let name = name.trim().trim_matches('"');
            let full = if section.is_empty() { name.to_string() } else { format!("{section}.{name}") };
            if full == key || key.strip_prefix(&full).is_some_and(|rest| rest.starts_with('.')) {
                return Some(number + 1);
            }
            continue;
        } else {
            continue;
        }
        if section == key {
            return Some(number + 1);
        }
    }
    None
}
