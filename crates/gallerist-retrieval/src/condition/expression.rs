//! A condition as a tree.

/// A condition.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Expression {
    Any(Vec<Expression>),
    All(Vec<Expression>),
    Not(Box<Expression>),
    Test(Test),
}

/// A test of one column.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Test {
    pub(super) column: String,
    /// Byte of the column in the condition.
    pub(super) at: usize,
    pub(super) operation: Operation,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Operation {
    Compare(Comparison, Literal),
    /// Each with whether it must hold, or must not.
    In(bool, Vec<Literal>),
    Has(bool, Literal),
    Under(bool, Literal),
    Missing(bool),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    AtMost,
    Greater,
    AtLeast,
}

impl Comparison {
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
pub(super) struct Literal {
    /// Byte of the condition.
    pub(super) at: usize,
    pub(super) value: LiteralValue,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum LiteralValue {
    Number(f64),
    /// Without quotes.
    Date(String),
    Text(String),
}
