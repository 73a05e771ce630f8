//! Numbers of every kind in columns.

use gallerist_retrieval::columns::{Column, Columns};
use gallerist_retrieval::condition::Condition;
use gallerist_retrieval::index::{Index, ItemFilter, Items};
use gallerist_retrieval::search::Metric;
use gallerist_retrieval::{EmbeddingSet, Matrix};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::{empty, flat, server};

fn items(numbers: &[f64]) -> Items {
    let column = Column::numbers("n", numbers.iter().copied().map(Some)).unwrap();
    let embeddings = Matrix::new(numbers.len(), 1, vec![1.0; numbers.len()]).unwrap();
    let set = EmbeddingSet { columns: Columns::new(vec![column]).unwrap(), ..embeddings.into() };
    Items::numbered(set, 0).unwrap()
}

#[test]
fn every_number_comes_back_and_is_compared_by_all_its_digits() {
    let Some(server) = server() else { return };
    let mut runner = TestRunner::deterministic();
    let mut drawn = |strategy: BoxedStrategy<f64>| -> Vec<f64> {
        (0..1500).map(|_| strategy.new_tree(&mut runner).unwrap().current()).collect()
    };
    // Of few digits, which the server compares; and any, of which it compares none.
    let short = (-(1_i64 << 53)..=1 << 53, -22..=22_i32)
        .prop_map(|(digits, exponent)| format!("{digits}e{exponent}").parse().expect("a number"));
    let few = (-99_999..=99_999_i64, -9..=9_i32)
        .prop_map(|(digits, exponent)| format!("{digits}e{exponent}").parse().expect("a number"));
    let any = any::<u64>().prop_map(f64::from_bits).prop_filter("finite", |number| number.is_finite());
    for strategy in [few.boxed(), short.boxed(), any.boxed()] {
        let mut numbers = drawn(strategy);
        numbers.extend([0.0, -0.0, 9007199254740991.0, -9007199254740993.0, 1e15 + 0.5, 0.1 + 0.2]);
        let items = items(&numbers);
        let mut index = empty(&server, &flat(1, Metric::Euclidean));
        index.add(&items, false).unwrap();
        let found = index.get(items.ids()).unwrap();
        for (row, item) in found.into_iter().enumerate() {
            assert_eq!(item, Some(items.item(row)), "{:e}", numbers[row]);
        }
        for number in numbers.iter().step_by(97) {
            for sign in ["=", "!=", "<", "<=", ">", ">="] {
                let condition = Condition::parse(&format!("n {sign} {number:e}")).unwrap();
                let rows = condition.rows(items.set()).unwrap();
                let wanted: Vec<u64> = rows.into_iter().map(|row| row as u64).collect();
                let found = index.ids(&ItemFilter::default().meets(condition)).unwrap();
                assert_eq!(found, wanted, "n {sign} {number:e}");
            }
        }
    }
}
