//! Conditions as expressions of Milvus.
//!
//! An expression must admit exactly the items that meet the condition. Tests of further columns of numbers, text and
//! tags have such an expression. These have none, and the program evaluates them:
//! - comparisons of dates: `2024-05-01` and `2024-05-01T02:00+02:00` are the same time;
//! - `under` of tags: Milvus looks for whole tags;
//! - `label`, `camera` and `path`: labels are tags if one of them has several parts, which only all of them tell;
//! - columns that are not [uniform](columns::uniform), and those whose names Milvus cannot read in a path of JSON.
//!
//! A test of a missing value is false. Milvus' `!=` and `not in` are true of some missing values, so that they are
//! written as `((exists …) and (not …))`. The parentheses are necessary: Milvus 2.3.5 reads `exists a and b` as `exists (a
//! and b)`.

use gallerist_retrieval::columns::{ColumnKind, Columns};
use gallerist_retrieval::condition::{
    Comparison, Condition, Expression, Literal, LiteralValue, Operation, Test,
};
use gallerist_retrieval::{EmbeddingSet, Matrix};

use crate::filter::quoted;
use crate::layout::COLUMNS;

/// The expression that admits the items that meet `condition`, if there is one. `uniform` are the columns of which all
/// values have one kind, without rows.
pub(crate) fn expression(condition: &Condition, uniform: Columns) -> Option<String> {
    let set = EmbeddingSet { columns: uniform, ..Matrix::new(0, 0, Vec::new()).ok()?.into() };
    // The error about a column that is not there, or of another kind, is that of the evaluator.
    condition.mask(&set).ok()?;
    of(condition.expression(), &set.columns)
}

/// In parentheses, whatever it is.
fn of(expression: &Expression, columns: &Columns) -> Option<String> {
    let join = |parts: &[Expression], word: &str| {
        let parts: Vec<String> = parts.iter().map(|part| of(part, columns)).collect::<Option<_>>()?;
        Some(format!("({})", parts.join(word)))
    };
    match expression {
        Expression::Any(parts) => join(parts, " or "),
        Expression::All(parts) => join(parts, " and "),
        Expression::Not(part) => Some(negated(&of(part, columns)?)),
        Expression::Test(test) => of_test(test, columns.get(&test.column)?.kind()),
    }
}

fn of_test(test: &Test, kind: ColumnKind) -> Option<String> {
    let path = path(&test.column)?;
    let when = |holds: bool, test: String| match holds {
        true => test,
        false => format!("((exists {path}) and {})", negated(&test)),
    };
    Some(match &test.operation {
        Operation::Missing(missing) => {
            let exists = format!("(exists {path})");
            if *missing { negated(&exists) } else { exists }
        }
        _ if kind == ColumnKind::Date => return None,
        Operation::Compare(comparison, literal) => {
            let (sign, holds) = match comparison {
                Comparison::Equal => ("==", true),
                Comparison::NotEqual => ("==", false),
                Comparison::Less => ("<", true),
                Comparison::AtMost => ("<=", true),
                Comparison::Greater => (">", true),
                Comparison::AtLeast => (">=", true),
            };
            when(holds, format!("({path} {sign} {})", value(literal)?))
        }
        Operation::In(holds, literals) => {
            let values: Vec<String> = literals.iter().map(value).collect::<Option<_>>()?;
            when(*holds, format!("({path} in [{}])", values.join(", ")))
        }
        Operation::Has(holds, literal) => {
            when(*holds, format!("(json_contains({path}, {}))", value(literal)?))
        }
        Operation::Under(holds, literal) if kind == ColumnKind::Text => {
            let LiteralValue::Text(top) = &literal.value else { return None };
            let top = top.trim_end_matches('/');
            // `0` is the byte after `/`. `like` would give `%` and `_` a meaning.
            let (itself, first, end) = (quoted(top), quoted(&format!("{top}/")), quoted(&format!("{top}0")));
            when(*holds, format!("({path} == {itself} or ({path} >= {first} and {path} < {end}))"))
        }
        Operation::Under(..) => return None,
    })
}

fn negated(expression: &str) -> String {
    format!("(not {expression})")
}

/// A number with its point or exponent, or a text in quotes.
fn value(literal: &Literal) -> Option<String> {
    match &literal.value {
        LiteralValue::Number(number) => Some(format!("{number:?}")),
        LiteralValue::Text(text) => Some(quoted(text)),
        LiteralValue::Date(_) => None,
    }
}

/// The path of a column in the field of columns. Milvus 2.3 does not read escapes in it.
fn path(column: &str) -> Option<String> {
    let plain = |c: char| c.is_alphanumeric() || [' ', '_', '-', '.'].contains(&c);
    column.chars().all(plain).then(|| format!("{COLUMNS}[\"{column}\"]"))
}

#[cfg(test)]
mod tests {
    use gallerist_retrieval::columns::Column;
    use gallerist_testkit::conditions;
    use proptest::prelude::*;

    use super::*;

    fn columns() -> Columns {
        let column = |name, kind| Column::parse::<&str>(name, kind, []).unwrap();
        Columns::new(vec![
            column("price", ColumnKind::Number),
            column("day", ColumnKind::Date),
            column("shop", ColumnKind::Text),
            column("colours", ColumnKind::Tags),
            column("a/b", ColumnKind::Number),
        ])
        .unwrap()
    }

    fn of_text(text: &str) -> Option<String> {
        expression(&Condition::parse(text).unwrap(), columns())
    }

    #[test]
    fn tests_that_a_missing_value_must_not_pass_ask_whether_it_exists() {
        for (text, wanted) in [
            ("price < 20", r#"(columns["price"] < 20.0)"#),
            ("price != 1e-7", r#"((exists columns["price"]) and (not (columns["price"] == 1e-7)))"#),
            ("shop in (\"x\", 'y\"')", r#"(columns["shop"] in ["x", "y\""])"#),
            ("not day is missing", r#"(not (not (exists columns["day"])))"#),
            (
                "colours has \"red\" or price = 1",
                r#"((json_contains(columns["colours"], "red")) or (columns["price"] == 1.0))"#,
            ),
            (
                "shop under \"a%\"",
                r#"(columns["shop"] == "a%" or (columns["shop"] >= "a%/" and columns["shop"] < "a%0"))"#,
            ),
        ] {
            assert_eq!(of_text(text).as_deref(), Some(wanted), "{text}");
        }
    }

    #[test]
    fn conditions_without_an_equal_expression_and_wrong_ones_have_none() {
        for text in [
            "day > 2024-05-01",
            "price < 20 and day > 2024-05-01",
            "colours under \"red\"",
            "label = \"x\"",
            "`a/b` = 1",
            "price = \"x\"",
            "prise = 1",
        ] {
            assert_eq!(of_text(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_condition_on_numbers_text_and_tags_has_an_expression(naive in conditions::of_plain_columns()) {
            prop_assert!(of_text(&naive.text()).is_some(), "{}", naive.text());
        }
    }
}
