//! The report of a run.

use std::path::Path;

use maud::{Markup, html};

use crate::atlas::{Atlas, atlas};
use crate::chart::{Against, Chart, Scale, Series, figure};
use crate::figure::{Figure, image};
use crate::metric::{Metric, Unit};
use crate::number::count;
use crate::page::{facts, head, page};
use crate::picture::PictureSheet;
use crate::ranked::{Detail, RankedSection, has_truth, key, list, marks};
use crate::write::write_whole;
use crate::{Point, ReportError};

/// The number of metrics in large type at the top: two rows on a phone.
const HEADLINES: usize = 4;

/// The metrics of one embedding under one protocol.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evaluation {
    /// What was evaluated, such as `after training` or `raw pixels`.
    pub name: String,
    /// The protocol, in words: the queries and what they are compared with.
    pub protocol: String,
    /// The metrics in reading order. The first four are in large type; of a family such as `recall@1`, `recall@2` only
    /// the first.
    pub metrics: Vec<Metric>,
    /// Recall at each K, for the chart.
    pub recall_at: Vec<(u64, f64)>,
    /// Number of queries.
    pub queries: u64,
    /// Size of the gallery, if it is not the queries themselves.
    pub gallery: Option<u64>,
    /// Images of the gallery that are left out for every query.
    pub junk: u64,
    /// Queries without a relevant item in the gallery.
    pub queries_without_match: u64,
    /// Ties in the ranked lists, if they were counted.
    pub ties: Option<u64>,
}

/// The content of the page of a run. Empty parts are left out.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The heading, also the title of the window.
    pub title: String,
    /// A sentence or two below the heading.
    pub summary: Option<String>,
    /// Important notices, such as images that could not be decoded.
    pub notices: Vec<String>,
    /// Name and value pairs: data, network, loss, seed, threads, time.
    pub facts: Vec<(String, String)>,
    /// Results; the first one is shown in large type.
    pub evaluations: Vec<Evaluation>,
    /// The kind of the confidence intervals, if the metrics have any.
    pub intervals: Option<String>,
    /// Curves; see [`charts_of`](crate::charts_of).
    pub charts: Vec<Chart>,
    /// Drawings of the results: histograms of distances, curves over ranks.
    pub figures: Vec<Figure>,
    /// Maps of the embeddings.
    pub maps: Vec<Atlas>,
    /// Ranked lists of some queries.
    pub ranked_lists: Vec<RankedSection>,
    /// Images that could not be read: the set, the image, the reason.
    pub broken_images: Vec<[String; 3]>,
    /// The resolved configuration as TOML.
    pub configuration: Option<String>,
}

impl Report {
    /// The page as one HTML document.
    pub fn to_html(&self) -> String {
        let mut sheet = PictureSheet::default();
        let mut sections = Vec::new();
        let mut body = Vec::new();
        let mut section = |id: &'static str, name: &'static str, content: Markup| {
            sections.push((id, name));
            body.push(html! { section id=(id) { h2 { (name) } (content) } });
        };
        if !self.evaluations.is_empty() {
            section("results", "Results", self.results());
        }
        if !self.facts.is_empty() {
            section("run", "Run", facts(&self.facts));
        }
        let charts: Vec<Markup> = (self.charts.iter())
            .map(|chart| figure(chart, Against::Step))
            .filter(|figure| !figure.0.is_empty())
            .collect();
        if !charts.is_empty() {
            let content = html! { div.charts { @for chart in charts { (chart) } } };
            section("training", "Training", content);
        }
        if !self.figures.is_empty() {
            let content = html! { @for figure in &self.figures { (image(figure)) } };
            section("embeddings", "Distances and ranks", content);
        }
        if !self.maps.is_empty() {
            section("maps", "Map", html! { @for map in &self.maps { (atlas(map)) } });
        }
        if !self.ranked_lists.is_empty() {
            let content = html! {
                (marks())
                @for group in &self.ranked_lists { (ranked(&mut sheet, group)) }
            };
            section("ranked-lists", "Ranked lists", content);
        }
        if !self.broken_images.is_empty() {
            let content = html! {
                details {
                    summary { (self.broken_images.len()) " in all, with the reasons" }
                    div.scroll tabindex="0" role="region" aria-label="Images that could not be read" {
                        table {
                            thead { tr { th { "set" } th { "image" } th { "reason" } } }
                            tbody {
                                @for [set, image, reason] in &self.broken_images {
                                    tr { td { (set) } td { (image) } td { (reason) } }
                                }
                            }
                        }
                    }
                }
            };
            section("broken-images", "Images that could not be read", content);
        }
        if let Some(configuration) = &self.configuration {
            let content = html! {
                details {
                    summary { "The run file with every default filled in" }
                    pre.scroll tabindex="0" role="region" aria-label="Configuration" { code { (configuration) } }
                }
            };
            section("configuration", "Configuration", content);
        }
        let body = html! {
            (head(&self.title, self.summary.as_deref(), &sections, &self.notices))
            main { @for section in body { (section) } }
            (sheet.definitions())
        };
        page(&self.title, &body)
    }

    /// Writes the page; a file at `path` is replaced atomically.
    ///
    /// # Errors
    /// [`ReportError::Write`] with the error of the system.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), ReportError> {
        write_whole(path.as_ref(), self.to_html().as_bytes())
    }

    fn results(&self) -> Markup {
        let all = &self.evaluations;
        let main = &all[0];
        let recalls: Vec<Series> = all
            .iter()
            .filter(|evaluation| !evaluation.recall_at.is_empty())
            .map(|evaluation| Series {
                name: evaluation.name.clone(),
                points: evaluation.recall_at.iter().copied().map(Point::from).collect(),
            })
            .collect();
        let recall =
            Chart { title: "Recall@K".to_owned(), scale: Scale::Share, series: recalls, ..Chart::default() };
        html! {
            div.headlines {
                @for metric in headlines(&main.metrics) {
                    div {
                        span.figure { (metric.text()) @if metric.unit == Unit::Share { span.unit { " %" } } }
                        span.name { (metric.name) }
                    }
                }
            }
            @if !main.metrics.is_empty() {
                p.caption {
                    @if !main.name.is_empty() { (main.name) ": " }
                    (main.protocol)
                    @if let Some(intervals) = &self.intervals { ". " (intervals) }
                }
            }
            div.beside {
                (metrics_table(all))
                (figure(&recall, Against::K))
            }
        }
    }
}

/// The first metrics; of each family `name@K` only the first K.
fn headlines(metrics: &[Metric]) -> impl Iterator<Item = &Metric> {
    let family = |metric: &'_ Metric| match metric.name.split_once('@') {
        Some((name, k)) if k.parse::<u64>().is_ok() => Some(name.to_owned()),
        _ => None,
    };
    let mut seen = Vec::new();
    metrics
        .iter()
        .filter(move |metric| match family(metric) {
            Some(name) if seen.contains(&name) => false,
            Some(name) => {
                seen.push(name);
                true
            }
            None => true,
        })
        .take(HEADLINES)
}

/// One row per metric and one column per evaluation, which fits a phone.
fn metrics_table(all: &[Evaluation]) -> Markup {
    let mut names: Vec<(&str, Unit)> = Vec::new();
    for metric in all.iter().flat_map(|evaluation| &evaluation.metrics) {
        let name = (metric.name.as_str(), metric.unit);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let value = |evaluation: &Evaluation, (name, unit): (&str, Unit)| {
        (evaluation.metrics.iter())
            .find(|metric| metric.name == name && metric.unit == unit)
            .map_or_else(|| html! { "–" }, Metric::text_with_interval)
    };
    let optional = |number: Option<u64>| number.map_or("–".to_owned(), count);
    let protocols_differ = all.iter().any(|e| e.protocol != all[0].protocol);
    let unmatched = all.iter().any(|e| e.queries_without_match > 0);
    html! {
        div.scroll tabindex="0" role="region" aria-label="Metrics" {
            table.metrics {
                thead {
                    tr {
                        th scope="col" { span.visually-hidden { "metric" } }
                        @for evaluation in all { th scope="col" { (evaluation.name) } }
                    }
                }
                tbody {
                    @for name in names {
                        tr {
                            th scope="row" {
                                (name.0) @if name.1 == Unit::Share { span.unit { " %" } }
                            }
                            @for evaluation in all { td { (value(evaluation, name)) } }
                        }
                    }
                }
                tbody.counts {
                    @if protocols_differ {
                        tr {
                            th scope="row" { "protocol" }
                            @for evaluation in all { td.words { (evaluation.protocol) } }
                        }
                    }
                    tr {
                        th scope="row" { "queries" }
                        @for evaluation in all { td { (count(evaluation.queries)) } }
                    }
                    @if all.iter().any(|evaluation| evaluation.gallery.is_some()) {
                        tr {
                            th scope="row" { "gallery" }
                            @for evaluation in all { td { (optional(evaluation.gallery)) } }
                        }
                    }
                    @if all.iter().any(|evaluation| evaluation.junk > 0) {
                        tr {
                            th scope="row" { "junk left out" }
                            @for evaluation in all { td { (count(evaluation.junk)) } }
                        }
                    }
                    tr {
                        th scope="row" { "queries without a match" }
                        @for evaluation in all { td { (count(evaluation.queries_without_match)) } }
                    }
                    @if all.iter().any(|evaluation| evaluation.ties.is_some()) {
                        tr {
                            th scope="row" { "ties" }
                            @for evaluation in all { td { (optional(evaluation.ties)) } }
                        }
                    }
                }
            }
            @if unmatched {
                p.note {
                    "A query without a match counts as a miss in Recall@K and is left out of \
                     CMC@K and of the averages over precision."
                }
            }
        }
    }
}

fn ranked(sheet: &mut PictureSheet, group: &RankedSection) -> Markup {
    html! {
        section.group {
            h3 { (group.title) }
            @if let Some(note) = &group.note { p.note { (note) } }
            (key(&group.measure, Detail::Report, has_truth(&group.lists)))
            @for ranked in &group.lists { (list(sheet, ranked, Detail::Report)) }
        }
    }
}
