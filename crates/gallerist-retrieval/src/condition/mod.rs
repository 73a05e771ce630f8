//! Conditions on the columns of rows: `price < 20 and shop = "x"`.
//!
//! # Language
//!
//! ```text
//! condition  = term { "or" term }
//! term       = factor { "and" factor }
//! factor     = "not" factor | "(" condition ")" | column test
//! test       = ("=" | "!=" | "<" | "<=" | ">" | ">=") value
//!            | ["not"] "in" "(" value { "," value } ")"
//!            | ["not"] "has" text          the tags contain it
//!            | ["not"] "under" text        equal, or below it in a hierarchy: "animals/birds" under "animals"
//!            | "is" ["not"] "missing"
//! value      = 12.5 | 2024-05-01 | "text" | 'text'
//! column     = name | `any name`
//! ```
//!
//! Words of the language are not case-sensitive; names and texts are. In a text, `\` keeps the next character. The
//! columns `label`, `camera` and `path` are those of the set; labels `a|b` are tags. Texts are ordered by their bytes,
//! dates by time. A test of a missing value is false, also `!=`, `not in`, `not has` and `not under`; `not (…)` of a
//! test that is false is true.
//!
//! ```
//! use gallerist_retrieval::columns::{Column, Columns};
//! use gallerist_retrieval::condition::Condition;
//! use gallerist_retrieval::{EmbeddingSet, Matrix};
//!
//! let columns = Columns::new(vec![
//!     Column::infer("price", ["12.5", "80", ""])?,
//!     Column::infer("shop", ["x", "x", "y"])?,
//! ])?;
//! let set = EmbeddingSet { columns, ..Matrix::new(3, 1, vec![0.0; 3])?.into() };
//! let rows = |text: &str| Condition::parse(text)?.rows(&set);
//! assert_eq!(rows("price < 20 and shop = \"x\"")?, [0]);
//! assert_eq!(rows("not (price < 20)")?, [1, 2]);
//! assert!(rows("prise < 20").unwrap_err().hint().unwrap().contains("did you mean `price`?"));
//! # Ok::<(), gallerist_retrieval::Error>(())
//! ```

mod evaluate;
mod expression;
mod fault;
mod field;
mod groups;
mod lexer;
mod parser;

use std::fmt;

pub use expression::{Comparison, Expression, Literal, LiteralValue, Operation, Test};
pub use field::{RowTexts, Table};
pub use groups::groups_of;
pub use parser::MAX_LENGTH;

use crate::Result;

/// A condition that was parsed. It is checked against the columns of a set when it is applied.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    text: String,
    expression: Expression,
}

impl Condition {
    /// Reads a condition of the [language](self) above.
    ///
    /// # Errors
    /// [`Error::Condition`](crate::Error::Condition) for text that is none, with the position.
    pub fn parse(text: &str) -> Result<Self> {
        let expression = parser::parse(text).map_err(|fault| fault.of(text))?;
        Ok(Self { text: text.to_owned(), expression })
    }

    /// The condition with another form of the texts that labels are compared with, such as the form NFC of Unicode: a label of
    /// either form is found. The order of labels (`<` and the like) is that of the texts as they are written.
    ///
    /// ```
    /// use gallerist_retrieval::condition::Condition;
    /// use gallerist_retrieval::{EmbeddingSet, Matrix};
    ///
    /// let labels = Some(["wren", "Wren", "heron"].map(String::from).to_vec());
    /// let set = EmbeddingSet { labels, ..Matrix::new(3, 1, vec![0.0; 3])?.into() };
    /// let rows = |text: &str| {
    ///     Condition::parse(text)?.with_labels(|label| label.make_ascii_lowercase()).rows(&set)
    /// };
    /// assert_eq!(rows("label = \"Wren\"")?, [0, 1]);
    /// assert_eq!(rows("label not in (\"WREN\", \"Wren\")")?, [2]);
    /// # Ok::<(), gallerist_retrieval::Error>(())
    /// ```
    pub fn with_labels(self, form: impl Fn(&mut String)) -> Self {
        Self { expression: self.expression.with_labels(&form), ..self }
    }

    /// The condition as a tree.
    pub fn expression(&self) -> &Expression {
        &self.expression
    }

    /// Whether each row of `set` meets the condition.
    ///
    /// # Errors
    /// [`Error::Condition`](crate::Error::Condition) for a column that the set does not have, and for a test that its kind does not permit,
    /// and for a column or list with another number of values than `set` has rows.
    pub fn mask(&self, set: &dyn Table) -> Result<Vec<bool>> {
        evaluate::mask(&self.expression, set).map_err(|fault| fault.of(&self.text))
    }

    /// The rows of `set` that meet the condition, ascending.
    ///
    /// # Errors
    /// As [`mask`](Self::mask).
    pub fn rows(&self, set: &dyn Table) -> Result<Vec<usize>> {
        let mask = self.mask(set)?;
        Ok(mask.iter().enumerate().filter(|(_, meets)| **meets).map(|(row, _)| row).collect())
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
