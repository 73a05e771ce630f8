//! Options of the search for issues.

use std::path::PathBuf;

use gallerist_retrieval::condition::Condition;
use gallerist_retrieval::issues::IssueOptions;
use gallerist_retrieval::search::Metric;
#[cfg(doc)]
use gallerist_train::model::SPLIT;

/// Options of [`issues`](super::issues()).
#[derive(Clone, Debug)]
pub struct IssuesOptions {
    /// What counts as an issue. The metric is that of the embeddings, unless `metric` is given.
    pub issues: IssueOptions,
    /// How rows are compared; by default as the embeddings declare, else by the cosine.
    pub metric: Option<Metric>,
    /// One label per row (`.npy` or text); by default those of the embeddings. For one file of embeddings only.
    pub labels: Option<PathBuf>,
    /// Only rows that meet this condition on their columns are compared.
    pub condition: Option<Condition>,
    /// The column with the split of each row; by default [`SPLIT`], if the embeddings have it.
    pub split_column: Option<String>,
    /// The images, for the page; by default the places that they were embedded from.
    pub images: Vec<PathBuf>,
    /// The table, instead of `issues.csv` in the folder: `.csv`, or `.tsv` with tabs between the values.
    pub table: Option<PathBuf>,
    /// Replace a table whose columns `action` and `new_label` are filled.
    pub force: bool,
    /// Most images, groups or pairs of classes that each section of the page shows.
    pub shown: usize,
}

impl Default for IssuesOptions {
    fn default() -> Self {
        Self {
            issues: IssueOptions::default(),
            metric: None,
            labels: None,
            condition: None,
            split_column: None,
            images: Vec::new(),
            table: None,
            force: false,
            shown: 50,
        }
    }
}
