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

impl Expression {
    /// See [`Condition::with_labels`](super::Condition::with_labels).
    pub(super) fn with_labels(self, form: &dyn Fn(&mut String)) -> Self {
        let of_all = |parts: Vec<Self>| parts.into_iter().map(|part| part.with_labels(form)).collect();
        match self {
            Self::Any(parts) => Self::Any(of_all(parts)),
            Self::All(parts) => Self::All(of_all(parts)),
            Self::Not(part) => Self::Not(Box::new(part.with_labels(form))),
            Self::Test(test) if test.column == "label" => test.in_both_forms(form),
            Self::Test(test) => Self::Test(test),
        }
    }
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

impl Test {
    /// The test of its texts and of another form of them, where they have one.
    fn in_both_forms(self, form: &dyn Fn(&mut String)) -> Expression {
        let Some(operation) = self.operation.in_form(form) else { return Expression::Test(self) };
        let is_negative = self.operation.is_negative();
        let other = Test { operation, ..self.clone() };
        let both = vec![Expression::Test(self), Expression::Test(other)];
        if is_negative { Expression::All(both) } else { Expression::Any(both) }
    }
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

impl Operation {
    /// The same with another form of its texts; `None` for a test without texts or of their order, and where they are equal.
    fn in_form(&self, form: &dyn Fn(&mut String)) -> Option<Self> {
        let changed = |literal: &Literal| {
            let mut literal = literal.clone();
            if let LiteralValue::Text(text) = &mut literal.value {
                form(text);
            }
            literal
        };
        let other = match self {
            Self::Compare(sign, literal) if !sign.is_order() => Self::Compare(*sign, changed(literal)),
            Self::In(holds, literals) => Self::In(*holds, literals.iter().map(changed).collect()),
            Self::Has(holds, literal) => Self::Has(*holds, changed(literal)),
            Self::Under(holds, literal) => Self::Under(*holds, changed(literal)),
            Self::Compare(..) | Self::Missing(_) => return None,
        };
        (other != *self).then_some(other)
    }

    /// Whether it is true of values that are different from its texts.
    fn is_negative(&self) -> bool {
        match self {
            Self::Compare(sign, _) => *sign == Comparison::NotEqual,
            Self::In(holds, _) | Self::Has(holds, _) | Self::Under(holds, _) => !holds,
            Self::Missing(_) => false,
        }
    }
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
