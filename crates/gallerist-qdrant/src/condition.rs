//! Conditions as filters of Qdrant.
//!
//! A filter must admit exactly the items that meet the condition. Tests of further columns of numbers, text and tags have
//! one, apart from those that order texts. These have none, and the program evaluates them:
//! - comparisons of dates: `2024-05-01` and `2024-05-01T02:00+02:00` are the same time;
//! - `<`, `<=`, `>`, `>=` and `under` of text, and `under` of tags: Qdrant compares whole texts;
//! - `label`, `camera` and `path`: labels are tags if one of them has several parts, which only all of them tell;
//! - columns whose values are not all [in one store](crate::columns::comparable).
//!
//! A test of a missing value is false.

use gallerist_retrieval::columns::{ColumnKind, Columns};
use gallerist_retrieval::condition::{
    Comparison, Condition, Expression, Literal, LiteralValue, Operation, Test,
};
use gallerist_retrieval::{EmbeddingSet, Matrix};

use crate::columns::store;
use crate::filter::QdrantFilter;
use crate::wire::filters::{Condition as Wire, Range};

/// The filter that admits the items that meet `condition`, if there is one. `comparable` are the columns that the server
/// compares, without rows.
pub(crate) fn filter(condition: &Condition, comparable: Columns) -> Option<QdrantFilter> {
    let set = EmbeddingSet { columns: comparable, ..Matrix::new(0, 0, Vec::new()).ok()?.into() };
    // The error about a column that is not there, or of another kind, is that of the evaluator.
    condition.mask(&set).ok()?;
    Some(QdrantFilter(vec![of(condition.expression(), &set.columns)?]))
}

fn of(expression: &Expression, columns: &Columns) -> Option<Wire> {
    let all = |parts: &[Expression]| parts.iter().map(|part| of(part, columns)).collect::<Option<Vec<_>>>();
    match expression {
        Expression::Any(parts) => Some(Wire::any(all(parts)?)),
        Expression::All(parts) => Some(Wire::all(all(parts)?)),
        Expression::Not(part) => Some(Wire::none(vec![of(part, columns)?])),
        Expression::Test(test) => of_test(test, columns.get(&test.column)?.kind()),
    }
}

fn of_test(test: &Test, kind: ColumnKind) -> Option<Wire> {
    let path = &store(kind).path(&test.column);
    let missing = || Wire::missing(path);
    // Of a value that is there.
    let when = |holds: bool, condition: Wire| match holds {
        true => condition,
        false => Wire::none(vec![condition, missing()]),
    };
    let range = |range: Range| Wire::range(path, range);
    let equal = |number: f64| range(Range { gte: Some(number), lte: Some(number), ..Range::default() });
    Some(match (&test.operation, kind) {
        (Operation::Missing(true), _) => missing(),
        (Operation::Missing(false), _) => Wire::none(vec![missing()]),
        (Operation::Compare(comparison, literal), ColumnKind::Number) => {
            let limit = number(literal)?;
            let some = Some(limit);
            match comparison {
                Comparison::Equal => equal(limit),
                Comparison::NotEqual => when(false, equal(limit)),
                Comparison::Less => range(Range { lt: some, ..Range::default() }),
                Comparison::AtMost => range(Range { lte: some, ..Range::default() }),
                Comparison::Greater => range(Range { gt: some, ..Range::default() }),
                Comparison::AtLeast => range(Range { gte: some, ..Range::default() }),
            }
        }
        (Operation::In(holds, literals), ColumnKind::Number) => {
            let numbers = literals.iter().map(|literal| Some(equal(number(literal)?)));
            when(*holds, Wire::any(numbers.collect::<Option<_>>()?))
        }
        (Operation::Compare(comparison, literal), ColumnKind::Text) => {
            let equal = Wire::one_of(path, vec![text(literal)?]);
            match comparison {
                Comparison::Equal => equal,
                Comparison::NotEqual => when(false, equal),
                _ => return None,
            }
        }
        (Operation::In(holds, literals), ColumnKind::Text) => {
            when(*holds, Wire::one_of(path, literals.iter().map(text).collect::<Option<_>>()?))
        }
        (Operation::Has(holds, literal), ColumnKind::Tags) => {
            when(*holds, Wire::one_of(path, vec![text(literal)?]))
        }
        _ => return None,
    })
}

fn number(literal: &Literal) -> Option<f64> {
    match literal.value {
        LiteralValue::Number(number) => Some(number),
        _ => None,
    }
}

fn text(literal: &Literal) -> Option<String> {
    match &literal.value {
        LiteralValue::Text(text) => Some(text.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use gallerist_retrieval::columns::Column;

    use super::*;

    fn of_text(text: &str) -> Option<QdrantFilter> {
        let column = |name, kind| Column::parse::<&str>(name, kind, []).unwrap();
        let columns = Columns::new(vec![
            column("price", ColumnKind::Number),
            column("day", ColumnKind::Date),
            column("shop", ColumnKind::Text),
            column("colours", ColumnKind::Tags),
        ]);
        filter(&Condition::parse(text).unwrap(), columns.unwrap())
    }

    #[test]
    fn tests_that_a_missing_value_must_not_pass_ask_whether_it_exists() {
        let path = "texts.\"shop\"";
        let is_x = || Wire::one_of(path, vec!["x".to_owned()]);
        for (text, wanted) in [
            ("shop = 'x'", is_x()),
            ("shop != 'x'", Wire::none(vec![is_x(), Wire::missing(path)])),
            ("not shop = 'x'", Wire::none(vec![is_x()])),
            ("shop is missing or shop in ('x')", Wire::any(vec![Wire::missing(path), is_x()])),
            ("price < 20", Wire::range("numbers.\"price\"", Range { lt: Some(20.0), ..Range::default() })),
            ("colours has 'x'", Wire::one_of("tags.\"colours\"", vec!["x".to_owned()])),
        ] {
            assert_eq!(of_text(text), Some(QdrantFilter(vec![wanted])), "{text}");
        }
    }

    #[test]
    fn conditions_without_an_equal_filter_and_wrong_ones_have_none() {
        for text in [
            "day > 2024-05-01",
            "price < 20 and day > 2024-05-01",
            "colours under \"red\"",
            "shop under \"red\"",
            "shop < \"red\"",
            "label = \"x\"",
            "price = \"x\"",
            "prise = 1",
        ] {
            assert_eq!(of_text(text), None, "{text}");
        }
        assert!(of_text("day is missing").is_some());
    }
}
