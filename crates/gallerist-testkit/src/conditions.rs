//! Random conditions, and an evaluator of them that looks at one row at a time.

use gallerist_retrieval::columns::{Column, ColumnKind, Columns};
use gallerist_retrieval::{EmbeddingSet, Matrix};
use proptest::prelude::*;

/// A row as its manifest writes it.
#[derive(Clone, Debug)]
pub struct Row {
    /// In quarters, so that its decimal text is exact.
    pub price: Option<i32>,
    /// The day in May 2024.
    pub day: Option<u32>,
    /// Of the shop.
    pub shop: Option<String>,
    /// Tags.
    pub colours: Vec<String>,
    /// A hierarchy.
    pub label: String,
}

/// A condition with its meaning.
#[derive(Clone, Debug)]
pub enum Naive {
    /// A comparison; the number is in quarters.
    Price(&'static str, i32),
    /// `in`, or `not in` with `false`; numbers in quarters.
    PriceIn(bool, Vec<i32>),
    /// A comparison with a day in May 2024.
    Day(&'static str, u32),
    /// A comparison.
    Shop(&'static str, String),
    /// `in`, or `not in` with `false`.
    ShopIn(bool, Vec<String>),
    /// Of the colours.
    Has(bool, String),
    /// Below a text, or not.
    ShopUnder(bool, String),
    /// Below a text, or not.
    LabelUnder(bool, String),
    /// Whether a column is missing, or not.
    Missing(&'static str, bool),
    /// Negation.
    Not(Box<Naive>),
    /// All.
    And(Vec<Naive>),
    /// At least one.
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

/// Whether the levels of a text begin with those of another.
fn is_under(text: &str, top: &str) -> bool {
    let levels: Vec<&str> = text.split('/').collect();
    levels.starts_with(&top.split('/').collect::<Vec<_>>())
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn not(holds: bool) -> &'static str {
    if holds { "" } else { "not " }
}

impl Naive {
    /// The condition as text.
    pub fn text(&self) -> String {
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
            Self::ShopUnder(holds, top) => format!("shop {}under {}", not(*holds), quoted(top)),
            Self::Missing(column, missing) => format!("{column} is {}missing", not(*missing)),
            Self::Not(part) => format!("not ({})", part.text()),
            Self::And(parts) => join(parts, " and "),
            Self::Or(parts) => join(parts, " OR "),
        }
    }

    /// Whether a row meets it.
    pub fn holds(&self, row: &Row) -> bool {
        match self {
            Self::Price(sign, value) => row.price.is_some_and(|price| compare(sign, price, *value)),
            Self::PriceIn(holds, values) => row.price.is_some_and(|price| values.contains(&price) == *holds),
            Self::Day(sign, day) => row.day.is_some_and(|of| compare(sign, of, *day)),
            Self::Shop(sign, shop) => row.shop.as_ref().is_some_and(|of| compare(sign, of, shop)),
            Self::ShopIn(holds, shops) => row.shop.as_ref().is_some_and(|of| shops.contains(of) == *holds),
            Self::Has(holds, colour) => !row.colours.is_empty() && row.colours.contains(colour) == *holds,
            Self::LabelUnder(holds, top) => is_under(&row.label, top) == *holds,
            Self::ShopUnder(holds, top) => {
                row.shop.as_ref().is_some_and(|shop| is_under(shop, top.trim_end_matches('/')) == *holds)
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

const SHOPS: [&str; 10] = ["x", "Y \"z\"", "ä\\b", "zz", "x/a%", "x/a%/_", "x/a", "x0", "ü\t\u{1}'", "1.5"];
const TOPS: [&str; 5] = ["x", "x/", "x/a%", "x/_", "/"];
const COLOURS: [&str; 3] = ["red", "blue", "light blue"];
const LABELS: [&str; 5] = ["animals", "animals/birds", "animals/birds/wren", "animals/birdsong", "cars"];

fn shops() -> impl Strategy<Value = String> {
    prop::sample::select(&SHOPS[..]).prop_map(str::to_owned)
}

/// 1 to 19 rows.
pub fn rows() -> impl Strategy<Value = Vec<Row>> {
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

/// Conditions on all columns.
pub fn conditions() -> impl Strategy<Value = Naive> {
    trees(prop_oneof![
        5 => plain_tests(),
        1 => (signs(), 1..6u32).prop_map(|(sign, day)| Naive::Day(sign, day)),
        1 => (any::<bool>(), prop::sample::select(&LABELS[..]))
            .prop_map(|(h, l)| Naive::LabelUnder(h, l.to_owned())),
    ])
}

/// Conditions on `price`, `shop` and `colours`, and on whether a column other than the label is missing.
pub fn of_plain_columns() -> impl Strategy<Value = Naive> {
    trees(plain_tests())
}

fn signs() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&["=", "!=", "<", "<=", ">", ">="][..])
}

fn plain_tests() -> impl Strategy<Value = Naive> {
    prop_oneof![
        (signs(), -8..8i32).prop_map(|(sign, value)| Naive::Price(sign, value)),
        (any::<bool>(), prop::collection::vec(-8..8i32, 1..4)).prop_map(|(h, v)| Naive::PriceIn(h, v)),
        (signs(), shops()).prop_map(|(sign, shop)| Naive::Shop(sign, shop)),
        (any::<bool>(), prop::collection::vec(shops(), 1..3)).prop_map(|(h, v)| Naive::ShopIn(h, v)),
        (any::<bool>(), prop::sample::select(&TOPS[..])).prop_map(|(h, t)| Naive::ShopUnder(h, t.to_owned())),
        (any::<bool>(), prop::sample::select(&COLOURS[..])).prop_map(|(h, c)| Naive::Has(h, c.to_owned())),
        (prop::sample::select(&["price", "day", "shop", "colours"][..]), any::<bool>())
            .prop_map(|(column, missing)| Naive::Missing(column, missing)),
    ]
}

fn trees(tests: impl Strategy<Value = Naive> + 'static) -> impl Strategy<Value = Naive> {
    tests.prop_recursive(4, 24, 3, |inner| {
        prop_oneof![
            inner.clone().prop_map(|part| Naive::Not(Box::new(part))),
            prop::collection::vec(inner.clone(), 1..4).prop_map(Naive::And),
            prop::collection::vec(inner, 1..4).prop_map(Naive::Or),
        ]
    })
}

/// Rows with embeddings of one zero.
pub fn set(rows: &[Row]) -> EmbeddingSet {
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
