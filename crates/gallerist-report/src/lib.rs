//! Curves, ranked lists and the HTML pages of a run or of a search.
//!
//! A page is one file. It contains its style, script and pictures and loads nothing; a content security policy enforces
//! that. A page follows the reader's light or dark theme, fits a phone, can be printed, works by keyboard and without
//! the script, and marks right and wrong by a tick and a cross in addition to colours. All texts are escaped.
//!
//! [`figure`] draws the same content as single pictures, SVG or PNG.
//!
//! The caller fills plain structs: [`Report`] for a training or evaluation run,
//! [`SearchPage`] for the results of a search, [`IssuesPage`] for the issues of an image set, [`StudyPage`] for an
//! experiment of many runs. The same input gives the same bytes.
//!
//! ```
//! use gallerist_report::{Chart, Evaluation, Metric, Report, Series};
//!
//! let report = Report {
//!     title: "Omniglot, ranked list loss".into(),
//!     facts: vec![("loss".into(), "rll".into()), ("seed".into(), "7".into())],
//!     evaluations: vec![Evaluation {
//!         name: "after training".into(),
//!         protocol: "every image is a query against all others".into(),
//!         queries: 13_180,
//!         metrics: vec![Metric::share("recall@1", 0.8642), Metric::share("map@r", 0.4611)],
//!         ..Evaluation::default()
//!     }],
//!     charts: vec![Chart {
//!         title: "Loss".into(),
//!         series: vec![Series::new("loss", [(1, 0.9), (2, 0.7)])],
//!         ..Chart::default()
//!     }],
//!     ..Report::default()
//! };
//! let page = report.to_html();
//! assert!(page.contains("86.42"));
//! ```

mod atlas;
mod chart;
mod comparison;
mod error;
pub mod figure;
mod issues;
mod metric;
mod number;
mod page;
mod picture;
mod ranked;
mod report;
mod search;
mod study;
mod write;

pub use gallerist_util::text::grouped;

pub use atlas::{Atlas, Sprite};
pub use chart::{Chart, Panel, Point, Record, Scale, Series, charts_of};
pub use comparison::{Comparison, ComparisonPlot, ComparisonRow, PlotPoint, PlotSeries};
pub use error::ReportError;
pub use issues::IssuesPage;
pub use metric::{Metric, Unit};
pub use picture::Picture;
pub use ranked::{Hit, Item, RankedList, RankedSection};
pub use report::{Evaluation, Report};
pub use search::SearchPage;
pub use study::{StudyPage, StudySection, StudyTable};
