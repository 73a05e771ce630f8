//! Conditions (`--where`), on a set with columns of every kind.

use std::sync::OnceLock;

use gallerist_retrieval::columns::{Column, Columns};
use gallerist_retrieval::condition::Condition;
use gallerist_retrieval::{EmbeddingSet, Matrix};

use crate::cost::{Limit, within};
use crate::goals::reached;

fn set() -> &'static EmbeddingSet {
    static SET: OnceLock<EmbeddingSet> = OnceLock::new();
    SET.get_or_init(|| {
        let column = |name: &str, values: [&str; 4]| Column::infer(name, values).expect("a column");
        let columns = Columns::new(vec![
            column("price", ["12.5", "80", "", "-1"]),
            column("shop", ["x", "y", "y", ""]),
            column("day", ["2024-05-01", "", "1999-12-31", "2024-05-02"]),
            column("tags", ["a|b", "b", "", "a/c|d"]),
        ]);
        let list = |texts: [&str; 4]| Some(texts.map(str::to_owned).to_vec());
        EmbeddingSet {
            columns: columns.expect("columns"),
            labels: list(["a", "a|b", "c", "animals/birds"]),
            cameras: list(["1", "2", "", "1"]),
            paths: list(["1.jpg", "2.jpg", "b/3.jpg", "b/4.jpg"]),
            ..Matrix::new(4, 1, vec![0.0; 4]).expect("a matrix").into()
        }
    })
}

pub(super) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(condition) = within(Limit::TEXT, bytes, || Condition::parse(text)) else { return };
    let mask = within(Limit::TEXT, bytes, || condition.mask(set()));
    let rows = condition.rows(set());
    let Ok(mask) = mask else {
        assert!(rows.is_err());
        return;
    };
    reached("applied");
    let wanted: Vec<usize> = (0..4).filter(|&row| mask[row]).collect();
    assert_eq!(rows.expect("the mask is known"), wanted);
    // A longer text may be too long or too deep.
    if let Ok(negated) = Condition::parse(&format!("not ({text})")) {
        reached("negated");
        let negated = negated.mask(set()).expect("the same columns");
        assert!(mask.iter().zip(&negated).all(|(is, is_not)| is != is_not), "`not` of a condition");
    }
}
