//! A named result and how it is written.

use maud::{Markup, html};

use crate::number::{percent, significant};

/// How a metric is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// A share in 0..=1, written in per cent with two decimals.
    #[default]
    Share,
    /// A number, written with four significant digits.
    Number,
}

/// A named result.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metric {
    /// Its name, such as `recall@1` or `map@r`.
    pub name: String,
    /// Its value.
    pub value: f64,
    /// How it is written.
    pub unit: Unit,
    /// The bounds of its confidence interval.
    pub interval: Option<(f64, f64)>,
}

impl Metric {
    /// A metric in 0..=1.
    pub fn share(name: impl Into<String>, value: f64) -> Self {
        Self { name: name.into(), value, unit: Unit::Share, interval: None }
    }

    /// A metric that is not a share.
    pub fn number(name: impl Into<String>, value: f64) -> Self {
        Self { name: name.into(), value, unit: Unit::Number, interval: None }
    }

    pub(crate) fn text(&self) -> String {
        self.written(self.value)
    }

    fn written(&self, value: f64) -> String {
        match self.unit {
            Unit::Share => percent(value, 2),
            Unit::Number => significant(value, 4),
        }
    }

    pub(crate) fn text_with_interval(&self) -> Markup {
        html! {
            (self.text())
            @if let Some((low, high)) = self.interval {
                span.interval { (self.written(low)) "–" (self.written(high)) }
            }
        }
    }

    pub(crate) fn text_with_unit(&self) -> String {
        match self.unit {
            Unit::Share => format!("{} %", self.text()),
            Unit::Number => self.text(),
        }
    }
}
