//! What is wrong with a condition.

use crate::Error;

/// What is wrong at a place of a condition.
#[derive(Debug)]
pub(super) struct Fault {
    /// Byte of the condition.
    pub(super) at: usize,
    pub(super) problem: String,
    pub(super) hint: Option<String>,
}

impl Fault {
    pub(super) fn new(at: usize, problem: impl Into<String>, hint: impl Into<Option<String>>) -> Self {
        Self { at, problem: problem.into(), hint: hint.into() }
    }

    pub(super) fn of(self, text: &str) -> Error {
        let character = text.get(..self.at).map_or(0, |before| before.chars().count()) + 1;
        let shown = if text.len() <= 500 { text.to_owned() } else { String::new() };
        Error::Condition { condition: shown, character, problem: self.problem, hint: self.hint }
    }
}
