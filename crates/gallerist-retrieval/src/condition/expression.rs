//! A condition as a tree, for the evaluator here and for indices whose server evaluates conditions.

/// A condition.
#[derive(Clone, Debug, PartialEq)]
pub enum Expression {
    /// At least one is true.
    Any(Vec<Expression>),
    /// All are true.
    All(Vec<Expression>),
    /// It is false.
    Not(Box<Expression>),
    /// A test of one column.
    Test(Test),
}

/// A test of one column.
#[derive(Clone, Debug, PartialEq)]
pub struct Test {
    /// The name of the column.
    pub column: String,
    /// Byte of the column in the condition.
    pub at: usize,
    /// What its value must be.
    pub operation: Operation,
}

/// A test of a value. All are false of a missing value, except [`Missing`](Self::Missing).
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    /// `= 12.5`, `< 12.5` and the like.
    Compare(Comparison, Literal),
    /// `in (…)`; `not in (…)` with `false`.
    In(bool, Vec<Literal>),
    /// `has "…"`; `not has "…"` with `false`.
    Has(bool, Literal),
    /// `under "…"`; `not under "…"` with `false`.
    Under(bool, Literal),
    /// `is missing`; `is not missing` with `false`.
    Missing(bool),
}

/// The sign of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    Greater,
    /// `>=`
    AtLeast,
}

impl Comparison {
    /// Whether it asks for an order and not only for equality.
    pub(super) fn is_order(self) -> bool {
        !matches!(self, Self::Equal | Self::NotEqual)
    }

    pub(super) fn holds<T: PartialOrd + ?Sized>(self, a: &T, b: &T) -> bool {
        match self {
            Self::Equal => a == b,
            Self::NotEqual => a != b,
            Self::Less => a < b,
            Self::AtMost => a <= b,
            Self::Greater => a > b,
            Self::AtLeast => a >= b,
        }
    }
}

/// A value that is written in a condition.
#[derive(Clone, Debug, PartialEq)]
pub struct Literal {
    /// Byte of the condition.
    pub at: usize,
    /// The value.
    pub value: LiteralValue,
    /// As it is written, without quotes: a number with all of its digits.
    pub text: String,
}

/// The value of a [`Literal`].
#[derive(Clone, Debug, PartialEq)]
pub enum LiteralValue {
    /// Finite.
    Number(f64),
    /// Without quotes.
    Date(String),
    /// The text, without quotes and escapes.
    Text(String),
}
