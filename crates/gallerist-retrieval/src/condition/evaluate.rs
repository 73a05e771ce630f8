//! The rows that meet a condition. A test of a column of text looks at each distinct text once.

use std::collections::HashSet;

use gallerist_util::text::shortened;

use super::expression::{Expression, Literal, LiteralValue, Operation, Test};
use super::fault::Fault;
use super::field::{Field, RowTexts, Table, field};
use crate::columns::{ColumnKind, Instant, MISSING, number};
use crate::labels;

/// The most characters of a value that a hint shows.
const SHOWN: usize = 40;

/// Whether each row meets the condition.
pub(super) fn mask(expression: &Expression, set: &dyn Table) -> Result<Vec<bool>, Fault> {
    let join = |parts: &[Expression], both: fn(bool, bool) -> bool| {
        let (first, others) = parts.split_first().expect("a condition has parts");
        let mut all = mask(first, set)?;
        for part in others {
            all.iter_mut().zip(mask(part, set)?).for_each(|(all, part)| *all = both(*all, part));
        }
        Ok(all)
    };
    match expression {
        Expression::Any(parts) => join(parts, |a, b| a || b),
        Expression::All(parts) => join(parts, |a, b| a && b),
        Expression::Not(part) => {
            let mut part = mask(part, set)?;
            part.iter_mut().for_each(|meets| *meets = !*meets);
            Ok(part)
        }
        Expression::Test(test) => of_test(test, set),
    }
}

type NumberTest<'a> = Box<dyn Fn(f64) -> bool + 'a>;
type TextTest<'a> = Box<dyn Fn(&str) -> bool + 'a>;

fn of_test(test: &Test, set: &dyn Table) -> Result<Vec<bool>, Fault> {
    let (kind, values) =
        field(set, &test.column).map_err(|(problem, hint)| Fault::new(test.at, problem, hint))?;
    if let Operation::Missing(missing) = test.operation {
        return Ok(match values {
            Field::Numbers(numbers) => numbers.iter().map(|number| number.is_nan() == missing).collect(),
            Field::Texts(RowTexts::Distinct(_, places)) => {
                places.iter().map(|&place| (place == MISSING) == missing).collect()
            }
            Field::Texts(RowTexts::Each(list)) => {
                list.iter().map(|text| text.is_empty() == missing).collect()
            }
        });
    }
    match values {
        Field::Numbers(numbers) => {
            let meets = of_number(test)?;
            Ok(numbers.iter().map(|&number| !number.is_nan() && meets(number)).collect())
        }
        Field::Texts(RowTexts::Distinct(distinct, places)) => {
            let meets = of_text(test, kind, distinct.iter().map(String::as_str))?;
            let table: Vec<bool> = distinct.iter().map(|text| meets(text)).collect();
            Ok(places.iter().map(|&place| table.get(place as usize).copied().unwrap_or(false)).collect())
        }
        Field::Texts(RowTexts::Each(list)) => {
            let meets = of_text(test, kind, list.iter().copied())?;
            Ok(list.iter().map(|text| !text.is_empty() && meets(text)).collect())
        }
    }
}

fn of_number(test: &Test) -> Result<NumberTest<'_>, Fault> {
    let wanted = |literal: &Literal| match literal.value {
        LiteralValue::Number(number) => Ok(number),
        _ => Err(unfit(test, ColumnKind::Number, literal.at, "compare it with a number, such as 12.5")),
    };
    Ok(match &test.operation {
        Operation::Compare(comparison, literal) => {
            let limit = wanted(literal)?;
            Box::new(move |number| comparison.holds(&number, &limit))
        }
        Operation::In(holds, literals) => {
            let list = literals.iter().map(wanted).collect::<Result<Vec<f64>, _>>()?;
            Box::new(move |number| list.contains(&number) == *holds)
        }
        _ => return Err(unfit(test, ColumnKind::Number, test.at, "compare it: =, !=, <, <=, >, >=, in")),
    })
}

/// The test of a text of a column of dates, text or tags. `values` are the texts of the column, for a hint.
fn of_text<'t, 'v>(
    test: &'t Test,
    kind: ColumnKind,
    mut values: impl Iterator<Item = &'v str>,
) -> Result<TextTest<'t>, Fault> {
    let mut text = |literal: &Literal| {
        if let LiteralValue::Text(text) = &literal.value {
            return Ok(text.clone());
        }
        let quoted = format!("write a text in quotes: \"{}\"", literal.text);
        let hint = match (&test.operation, &literal.value) {
            // Quotes alone would give other rows than the ones that are meant.
            (Operation::Compare(comparison, _), LiteralValue::Number(_)) if comparison.is_order() => {
                let because = match values.find(|text| !text.is_empty() && number(text).is_none()) {
                    Some(value) => format!("the value \"{}\" is no number; ", shortened(value, SHOWN)),
                    None => String::new(),
                };
                format!(
                    "{because}text is ordered by its bytes, and \"10\" comes before \"5\": for the order of numbers \
                     make all values numbers and leave missing ones empty, or {quoted}"
                )
            }
            _ => quoted,
        };
        Err(unfit(test, kind, literal.at, &hint))
    };
    Ok(match (&test.operation, kind) {
        (Operation::Under(holds, literal), ColumnKind::Text | ColumnKind::Tags) => {
            let top = text(literal)?;
            let top = top.trim_end_matches('/').to_owned();
            let is_under = move |text: &str| {
                text.strip_prefix(top.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            match kind {
                ColumnKind::Tags => Box::new(move |row| labels::split(row).any(&is_under) == *holds),
                _ => Box::new(move |row| is_under(row) == *holds),
            }
        }
        (Operation::Has(holds, literal), ColumnKind::Tags) => {
            let wanted = text(literal)?;
            Box::new(move |row| labels::split(row).any(|tag| tag == wanted) == *holds)
        }
        (Operation::Compare(comparison, literal), ColumnKind::Text) => {
            let limit = text(literal)?;
            Box::new(move |row| comparison.holds(row, limit.as_str()))
        }
        (Operation::In(holds, literals), ColumnKind::Text) => {
            let list = literals.iter().map(&mut text).collect::<Result<HashSet<String>, _>>()?;
            Box::new(move |row| list.contains(row) == *holds)
        }
        (Operation::Compare(comparison, literal), ColumnKind::Date) => {
            let limit = date(test, literal)?;
            Box::new(move |row| Instant::parse(row).is_some_and(|day| comparison.holds(&day, &limit)))
        }
        (Operation::In(holds, literals), ColumnKind::Date) => {
            let list = literals.iter().map(|literal| date(test, literal)).collect::<Result<Vec<_>, _>>()?;
            Box::new(move |row| Instant::parse(row).is_some_and(|day| list.contains(&day) == *holds))
        }
        (_, ColumnKind::Tags) => {
            let hint = format!("write {} has \"…\" or {} under \"…\"", test.column, test.column);
            return Err(unfit(test, kind, test.at, &hint));
        }
        (_, ColumnKind::Text) => {
            return Err(unfit(test, kind, test.at, "`has` is for tags; write =, in or under"));
        }
        _ => return Err(unfit(test, kind, test.at, "compare it: =, !=, <, <=, >, >=, in")),
    })
}

fn date(test: &Test, literal: &Literal) -> Result<Instant, Fault> {
    match &literal.value {
        LiteralValue::Date(text) | LiteralValue::Text(text) => Instant::parse(text),
        LiteralValue::Number(_) => None,
    }
    .ok_or_else(|| {
        unfit(test, ColumnKind::Date, literal.at, "compare it with a date: 2024-05-01, 2024-05-01T10:30")
    })
}

fn unfit(test: &Test, kind: ColumnKind, at: usize, hint: &str) -> Fault {
    let what = match kind {
        ColumnKind::Number => "a column of numbers",
        ColumnKind::Date => "a column of dates",
        ColumnKind::Text => "a column of text",
        ColumnKind::Tags => "a column of tags",
    };
    Fault::new(at, format!("`{}` is {what}", test.column), hint.to_owned())
}
