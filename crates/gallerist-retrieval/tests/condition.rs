//! Conditions against an evaluator that looks at one row at a time.

use gallerist_retrieval::columns::{Column, Columns};
use gallerist_retrieval::condition::{Condition, groups_of};
use gallerist_retrieval::{EmbeddingSet, Matrix};
use gallerist_testkit::conditions::{Row, conditions, rows, set};
use proptest::prelude::*;

proptest! {
    #[test]
    fn the_rows_are_those_of_an_evaluator_of_one_row_at_a_time(rows in rows(), naive in conditions()) {
        let text = naive.text();
        let found = Condition::parse(&text).unwrap().mask(&set(&rows)).unwrap();
        let wanted: Vec<bool> = rows.iter().map(|row| naive.holds(row)).collect();
        prop_assert_eq!(found, wanted, "{}", text);
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "[a-z(),.<>=!\"'`\\\\ 0-9ä-]{0,40}") {
        if let Err(error) = Condition::parse(&text) {
            prop_assert!(error.to_string().starts_with("the condition is wrong at character"));
        }
    }
}

fn row() -> Row {
    let (price, day) = (Some(1), Some(1));
    Row { price, day, shop: Some("x".into()), colours: vec!["red".into()], label: "cars".into() }
}

#[test]
fn errors_show_the_place_and_what_to_write() {
    let set = set(&[row()]);
    for (text, character, problem, hint) in [
        ("", 1, "wanted a column, found the end", "price < 20"),
        ("prise < 2", 1, "there is no column `prise`", "did you mean `price`?"),
        (
            "price < 2 and camera = \"1\"",
            15,
            "the rows have no cameras",
            "`price`, `day`, `shop`, `colours`, `label`",
        ),
        ("price = \"2\"", 9, "`price` is a column of numbers", "a number, such as 12.5"),
        ("shop = x", 8, "wanted a value, found `x`", "\"x\""),
        ("shop = 12", 8, "`shop` is a column of text", "\"12\""),
        ("colours = \"red\"", 1, "`colours` is a column of tags", "colours has"),
        ("shop has \"x\"", 1, "`shop` is a column of text", "=, in or under"),
        ("day > \"May\"", 7, "`day` is a column of dates", "2024-05-01"),
        ("day under \"2024\"", 1, "`day` is a column of dates", "compare it"),
        ("day > 2024-02-30", 7, "`2024-02-30` is neither a number nor a date", "in quotes"),
        ("ü == 2", 3, "`==` is no part of a condition", "write `=`"),
        ("price < 2 && price > 1", 11, "`&&` is no part", "write `and`"),
        ("price < 2 price > 1", 11, "wanted `and`, `or` or the end, found `price`", ""),
        ("(price < 2", 11, "wanted `and`, `or` or `)`, found the end", ""),
        ("shop in \"x\"", 9, "wanted `(`, found \"x\"", "(\"a\", \"b\")"),
        ("shop is x", 9, "wanted `missing`, found `x`", "is not missing"),
        ("shop \"x\"", 6, "wanted `=`, `!=`", ""),
        ("shop = \"x", 8, "the text has no end", "\""),
        ("price < 1e999", 9, "`1e999` is too large for a number", "\"1e999\""),
        ("price < .5", 9, "`.5` is not written as a number", "write 0.5"),
        ("price = +12.5", 9, "`+12.5` is not written as a number", "write 12.5"),
        ("PRICE < 2", 1, "there is no column `PRICE`", "did you mean `price`?"),
        ("shop = 9007199254740993", 8, "`shop` is a column of text", "\"9007199254740993\""),
        ("shop = 0042", 8, "`shop` is a column of text", "\"0042\""),
        ("shop in (1.50)", 10, "`shop` is a column of text", "\"1.50\""),
        (
            "shop < 5",
            8,
            "`shop` is a column of text",
            "the value \"x\" is no number; text is ordered by its bytes",
        ),
    ] {
        let error = Condition::parse(text).and_then(|condition| condition.rows(&set)).unwrap_err();
        let message = error.to_string();
        assert!(
            message.starts_with(&format!("the condition is wrong at character {character}: {problem}")),
            "{message}"
        );
        let mark = format!("\n  {text}\n  {}^", " ".repeat(character - 1));
        assert!(text.is_empty() || message.ends_with(&mark), "{message}");
        assert!(error.hint().unwrap_or_default().contains(hint), "{:?}", error.hint());
    }
}

#[test]
fn deep_and_long_conditions_are_refused() {
    let deep = format!("{}price < 2{}", "(".repeat(100_000 / 2), ")".repeat(10));
    assert!(Condition::parse(&deep).unwrap_err().to_string().contains("within each other"));
    let negated = format!("{} price < 2", "not ".repeat(200));
    assert!(Condition::parse(&negated).unwrap_err().to_string().contains("within each other"));
    let long = format!("price < {}", "1".repeat(1 << 16));
    assert!(Condition::parse(&long).unwrap_err().to_string().contains("a condition has at most 65536"));
}

#[test]
fn labels_of_several_parts_are_tags_and_a_column_may_have_any_name() {
    let labels = ["heron|wading", "wren"].map(str::to_owned).to_vec();
    let set = EmbeddingSet {
        labels: Some(labels),
        paths: Some(vec!["a/1.jpg".into(), "b/2.jpg".into()]),
        columns: Columns::new(vec![Column::infer("Price (EUR)", ["3", "4"]).unwrap()]).unwrap(),
        ..Matrix::new(2, 1, vec![0.0; 2]).unwrap().into()
    };
    let rows = |text: &str| Condition::parse(text).unwrap().rows(&set).unwrap();
    assert_eq!(rows("label has \"wading\""), [0]);
    assert_eq!(rows("`Price (EUR)` >= 4"), [1]);
    assert_eq!(rows("path under \"a\" or path = 'b/2.jpg'"), [0, 1]);
}

#[test]
fn a_column_or_list_of_another_length_than_the_rows_is_refused() {
    let set = EmbeddingSet {
        labels: Some(vec!["wren".into()]),
        columns: Columns::new(vec![Column::infer("price", ["3", "4"]).unwrap()]).unwrap(),
        ..Matrix::new(3, 1, vec![0.0; 3]).unwrap().into()
    };
    for (text, problem) in [
        ("price > 1", "`price` has 2 values for 3 rows"),
        ("not (price is missing)", "`price` has 2 values for 3 rows"),
        ("label = \"wren\" or price > 1", "`label` has 1 values for 3 rows"),
    ] {
        let error = Condition::parse(text).unwrap().rows(&set).unwrap_err();
        assert!(error.to_string().contains(problem), "{text}: {error}");
    }
    assert!(groups_of(&set, "price").unwrap_err().to_string().contains("`price` has 2 values for 3 rows"));
}
