//! Conditions that the server evaluates.

use gallerist_retrieval::columns::{Column, Columns};
use gallerist_retrieval::condition::Condition;
use gallerist_retrieval::index::{Index, ItemFilter, Items};
use gallerist_retrieval::search::Metric;
use gallerist_retrieval::{EmbeddingSet, Matrix};
use gallerist_testkit::conditions::{self, Row};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::{empty, flat, server};

/// Items of random rows; the id of an item is its row.
fn items(runner: &mut TestRunner, count: usize) -> (Vec<Row>, Items) {
    let mut rows = Vec::new();
    while rows.len() < count {
        rows.extend(conditions::rows().new_tree(runner).unwrap().current());
    }
    rows.truncate(count);
    let embeddings = Matrix::new(count, 2, (0..2 * count).map(|i| i as f32).collect()).unwrap();
    let set = EmbeddingSet { embeddings, ..conditions::set(&rows) };
    let items = Items::new((0..count as u64).collect(), set).unwrap();
    (rows, items)
}

#[test]
fn conditions_of_the_server_are_those_of_an_evaluator_of_one_row_at_a_time() {
    let Some(server) = server() else { return };
    let mut runner = TestRunner::deterministic();
    let (rows, items) = items(&mut runner, 400);
    let mut index = empty(&server, &flat(2, Metric::Euclidean));
    // A part that is flushed and a part that is not: the server evaluates them by different code.
    let (first, second): (Vec<usize>, Vec<usize>) = (0..rows.len()).partition(|row| row % 2 == 0);
    for part in [first, second] {
        index.add(&items.select(&part), false).unwrap();
        if part[0] == 0 {
            index.flush().unwrap();
        }
    }
    let strategies = [conditions::of_plain_columns().boxed(), conditions::conditions().boxed()];
    for (strategy, count) in strategies.into_iter().zip([300, 60]) {
        for _ in 0..count {
            let naive = strategy.new_tree(&mut runner).unwrap().current();
            let text = naive.text();
            let filter = ItemFilter::default().meets(Condition::parse(&text).unwrap());
            let meets = |id: &u64| naive.holds(&rows[*id as usize]);
            let wanted: Vec<u64> = (0..rows.len() as u64).filter(meets).collect();
            assert_eq!(index.ids(&filter).unwrap(), wanted, "{text}");
            let filter = filter.id_not_in([1, 2, 3, 4]);
            let query = Matrix::new(1, 2, vec![0.0, 1.0]).unwrap();
            let found = index.search(query.view(), 5, &filter).unwrap();
            let nearest = wanted.iter().copied().filter(|id| !(1..=4).contains(id)).take(5);
            assert_eq!(found.ids(0), nearest.collect::<Vec<u64>>(), "{text}");
        }
    }
}

/// Items with ids from 0 and one column of these values.
fn of_column(name: &str, first_id: u64, values: &[&str]) -> Items {
    let columns = Columns::new(vec![Column::infer(name, values).unwrap()]).unwrap();
    let embeddings = Matrix::new(values.len(), 1, vec![1.0; values.len()]).unwrap();
    let set = EmbeddingSet { columns, ..embeddings.into() };
    Items::new((first_id..first_id + values.len() as u64).collect(), set).unwrap()
}

fn ids(index: &dyn Index, condition: &str) -> Vec<u64> {
    index.ids(&ItemFilter::default().meets(Condition::parse(condition).unwrap())).unwrap()
}

#[test]
fn numbers_keep_all_their_digits_and_names_of_columns_their_characters() {
    let Some(server) = server() else { return };
    let values = ["1e-300", "9007199254740991", "-0.0", "1e21", "0.1", "-1e300", ""];
    for name in ["price", "Größe 2.x-y_z", "2024", "Price (EUR)", "a/b", "a\"]b", "~", "`", "not"] {
        let mut index = empty(&server, &flat(1, Metric::Euclidean));
        let items = of_column(name, 0, &values);
        index.add(&items, false).unwrap();
        let quoted = format!("`{}`", name.replace('\\', "\\\\").replace('`', "\\`"));
        for test in
            ["= 1e-300", "< 9007199254740991", "= 0", "in (1e21, 0.1)", "<= -1e300", "!= 0.1", "is missing"]
        {
            let Ok(condition) = Condition::parse(&format!("{quoted} {test}")) else { continue };
            let wanted: Vec<u64> =
                condition.rows(items.set()).unwrap().into_iter().map(|row| row as u64).collect();
            assert_eq!(index.ids(&ItemFilter::default().meets(condition)).unwrap(), wanted, "{name} {test}");
        }
    }
}

#[test]
fn a_column_that_was_sent_as_two_kinds_has_the_kind_that_its_values_have_together() {
    let Some(server) = server() else { return };
    let mut index = empty(&server, &flat(1, Metric::Euclidean));
    index.add(&of_column("size", 0, &["2.5", "3"]), false).unwrap();
    assert_eq!(ids(&index, "size < 3"), [0]);
    index.add(&of_column("size", 2, &["XL", "3", ""]), false).unwrap();
    assert_eq!(ids(&index, "size = \"3\""), [1, 3]);
    let error = index.ids(&ItemFilter::default().meets(Condition::parse("size < 3").unwrap())).unwrap_err();
    assert!(error.to_string().contains("`size` is a column of text"), "{error}");
    // The list of columns is of all items that were ever sent; the kind is that of the items that are there.
    index.remove(&[2, 3]).unwrap();
    assert_eq!(ids(&index, "size < 3"), [0]);
    index.add(&of_column("size", 5, &["1|3"]), false).unwrap();
    assert_eq!(ids(&index, "size has \"3\""), [1, 5]);
}
