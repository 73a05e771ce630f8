//! Words for messages.

/// `1 class`, `2 classes`.
pub(crate) fn counted(n: usize, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// The first three of a list of names, and `…` if there are more.
pub(crate) fn some_of(names: &[impl AsRef<str>]) -> String {
    const SHOWN: usize = 3;
    let named: Vec<String> = names.iter().take(SHOWN).map(|name| format!("`{}`", name.as_ref())).collect();
    named.join(", ") + if names.len() > SHOWN { ", …" } else { "" }
}
