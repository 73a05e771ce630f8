//! What is wrong with a table.

use arrow_schema::FieldRef;

/// What is wrong with a table, and what to do.
pub(super) type Fault = (String, Option<String>);

/// A file that is not as it was written.
pub(super) fn damaged(what: impl std::fmt::Display) -> Fault {
    (format!("it is cut short or damaged ({what})"), Some("copy or write the file again".to_owned()))
}

/// The names of columns, for a message.
pub(super) fn listed<'a>(names: impl IntoIterator<Item = &'a FieldRef>) -> String {
    let names: Vec<String> = names.into_iter().map(|field| format!("`{}`", field.name())).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
