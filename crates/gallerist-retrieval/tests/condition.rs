//! Conditions against an evaluator that looks at one row at a time.

use gallerist_retrieval::columns::{Column, Columns};
use gallerist_retrieval::condition::Condition;
use gallerist_retrieval::{EmbeddingSet, Matrix};
use proptest::prelude::*;

/// A row as its manifest writes it.
#[derive(Clone, Debug)]
struct Row {
    /// In quarters, so that its decimal text is exact.
    price: Option<i32>,
    /// The day in May 2024.
    day: Option<u32>,
    shop: Option<String>,
    colours: Vec<String>,
    label: String,
}

/// A condition with its meaning.
#[derive(Clone, Debug)]
enum Naive {
    Price(&'static str, i32),
    PriceIn(bool, Vec<i32>),
    Day(&'static str, u32),
    Shop(&'static str, String),
    ShopIn(bool, Vec<String>),
    Has(bool, String),
    LabelUnder(bool, String),
    Missing(&'static str, bool),
    Not(Box<Naive>),
    And(Vec<Naive>),
    Or(Vec<Naive>),
}

fn compare<T: PartialOrd>(sign: &str, a: T, b: T) -> bool {
    match sign {
        "=" => a == b,
        "!=" => a != b,
        "<" => a < b,
        "<=" => a <= b,
        ">" => a > b,
        _ => a >= b,
    }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn not(holds: bool) -> &'static str {
    if holds { "" } else { "not " }
}

impl Naive {
    fn text(&self) -> String {
        let quarters = |value: &i32| format!("{}", f64::from(*value) / 4.0);
        let join = |parts: &[Naive], word: &str| {
            parts.iter().map(|part| format!("({})", part.text())).collect::<Vec<_>>().join(word)
        };
        let list = |texts: Vec<String>| texts.join(", ");
        match self {
            Self::Price(sign, value) => format!("price {sign} {}", quarters(value)),
            Self::PriceIn(holds, values) => {
                format!("price {}in ({})", not(*holds), list(values.iter().map(quarters).collect()))
            }
            Self::Day(sign, day) => format!("day {sign} 2024-05-{day:02}"),
            Self::Shop(sign, shop) => format!("`shop` {sign} {}", quoted(shop)),
            Self::ShopIn(holds, shops) => {
                format!("shop {}IN ({})", not(*holds), list(shops.iter().map(|shop| quoted(shop)).collect()))
            }
            Self::Has(holds, colour) => format!("colours {}has '{colour}'", not(*holds)),
            Self::LabelUnder(holds, top) => format!("label {}under {}", not(*holds), quoted(top)),
            Self::Missing(column, missing) => format!("{column} is {}missing", not(*missing)),
            Self::Not(part) => format!("not ({})", part.text()),
            Self::And(parts) => join(parts, " and "),
            Self::Or(parts) => join(parts, " OR "),
        }
    }

    fn holds(&self, row: &Row) -> bool {
        match self {
            Self::Price(sign, value) => row.price.is_some_and(|price| compare(sign, price, *value)),
            Self::PriceIn(holds, values) => row.price.is_some_and(|price| values.contains(&price) == *holds),
            Self::Day(sign, day) => row.day.is_some_and(|of| compare(sign, of, *day)),
            Self::Shop(sign, shop) => row.shop.as_ref().is_some_and(|of| compare(sign, of, shop)),
            Self::ShopIn(holds, shops) => row.shop.as_ref().is_some_and(|of| shops.contains(of) == *holds),
            Self::Has(holds, colour) => !row.colours.is_empty() && row.colours.contains(colour) == *holds,
            Self::LabelUnder(holds, top) => {
                let levels: Vec<&str> = row.label.split('/').collect();
                levels.starts_with(&top.split('/').collect::<Vec<_>>()) == *holds
            }
            Self::Missing("price", missing) => row.price.is_none() == *missing,
            Self::Missing("day", missing) => row.day.is_none() == *missing,
            Self::Missing("shop", missing) => row.shop.is_none() == *missing,
            Self::Missing(_, missing) => row.colours.is_empty() == *missing,
            Self::Not(part) => !part.holds(row),
            Self::And(parts) => parts.iter().all(|part| part.holds(row)),
            Self::Or(parts) => parts.iter().any(|part| part.holds(row)),
        }
    }
}

const SHOPS: [&str; 4] = ["x", "Y \"z\"", "ä\\b", "zz"];
const COLOURS: [&str; 3] = ["red", "blue", "light blue"];
const LABELS: [&str; 5] = ["animals", "animals/birds", "animals/birds/wren", "animals/birdsong", "cars"];

fn shops() -> impl Strategy<Value = String> {
    prop::sample::select(&SHOPS[..]).prop_map(str::to_owned)
}

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let colours = prop::sample::subsequence(&COLOURS[..], 0..=3);
    let row = (
        prop::option::of(-8..8i32),
        prop::option::of(1..6u32),
        prop::option::of(shops()),
        colours,
        prop::sample::select(&LABELS[..]),
    );
    let row = row.prop_map(|(price, day, shop, colours, label)| Row {
        price,
        day,
        shop,
        colours: colours.into_iter().map(str::to_owned).collect(),
        label: label.to_owned(),
    });
    prop::collection::vec(row, 1..20)
}

fn conditions() -> impl Strategy<Value = Naive> {
    let sign = || prop::sample::select(&["=", "!=", "<", "<=", ">", ">="][..]);
    let test = prop_oneof![
        (sign(), -8..8i32).prop_map(|(sign, value)| Naive::Price(sign, value)),
        (any::<bool>(), prop::collection::vec(-8..8i32, 1..4)).prop_map(|(h, v)| Naive::PriceIn(h, v)),
        (sign(), 1..6u32).prop_map(|(sign, day)| Naive::Day(sign, day)),
        (sign(), shops()).prop_map(|(sign, shop)| Naive::Shop(sign, shop)),
        (any::<bool>(), prop::collection::vec(shops(), 1..3)).prop_map(|(h, v)| Naive::ShopIn(h, v)),
        (any::<bool>(), prop::sample::select(&COLOURS[..])).prop_map(|(h, c)| Naive::Has(h, c.to_owned())),
        (any::<bool>(), prop::sample::select(&LABELS[..]))
            .prop_map(|(h, l)| Naive::LabelUnder(h, l.to_owned())),
        (prop::sample::select(&["price", "day", "shop", "colours"][..]), any::<bool>())
            .prop_map(|(column, missing)| Naive::Missing(column, missing)),
    ];
    test.prop_recursive(4, 24, 3, |inner| {
        prop_oneof![
            inner.clone().prop_map(|part| Naive::Not(Box::new(part))),
            prop::collection::vec(inner.clone(), 1..4).prop_map(Naive::And),
            prop::collection::vec(inner, 1..4).prop_map(Naive::Or),
        ]
    })
}

fn set(rows: &[Row]) -> EmbeddingSet {
    use gallerist_retrieval::columns::ColumnKind;
    let column = |name: &str, kind, of: &dyn Fn(&Row) -> Option<String>| {
        Column::parse(name, kind, rows.iter().map(of)).unwrap()
    };
    let columns = vec![
        column("price", ColumnKind::Number, &|row| row.price.map(|v| format!("{}", f64::from(v) / 4.0))),
        column("day", ColumnKind::Date, &|row| row.day.map(|day| format!("2024-05-{day:02}"))),
        column("shop", ColumnKind::Text, &|row| row.shop.clone()),
        column("colours", ColumnKind::Tags, &|row| Some(row.colours.join("|"))),
    ];
    EmbeddingSet {
        columns: Columns::new(columns).unwrap(),
        labels: Some(rows.iter().map(|row| row.label.clone()).collect()),
        ..Matrix::new(rows.len(), 1, vec![0.0; rows.len()]).unwrap().into()
    }
}

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
        ("price < 1e999", 9, "`1e999` is neither", ""),
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
