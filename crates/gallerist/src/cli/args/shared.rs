//! Options of several commands.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::named::named;
use crate::Conditions;
use crate::data::DatasetLayout;
use crate::data::LabelFrom;
use crate::data::OpenOptions;
use crate::device::DeviceChoice;
use crate::network::Products;
use crate::parse_condition;
use crate::retrieval::condition::Condition;
use crate::train::CheckpointKind;

/// Split, layout and labels of an image set.
#[derive(Debug, Args)]
pub(crate) struct PartArgs {
    /// Use only this split: train, test, query or gallery, as defined by the data set's layout, the column
    /// `split` of a manifest, or folder names [default: all]
    #[arg(long, value_name = "NAME")]
    pub(crate) split: Option<String>,
    /// Layout of the files: manifest, cub200_2011, cub200_2010, cars196, sop, inshop,
    /// consumer_to_shop, market1501, dukemtmc, cuhk03_np_detected, cuhk03_np_labeled, mnist, omniglot,
    /// folders [default: detected from the content]
    #[arg(long, value_name = "NAME")]
    pub(crate) layout: Option<DatasetLayout>,
    /// Crop images to their bounding boxes (CUB-200, Cars196, DeepFashion)
    #[arg(long)]
    pub(crate) crop_boxes: bool,
    /// Part of a hierarchical label that is the class: path (`Fruit/Apple`) or leaf (`Apple`)
    #[arg(long, value_name = "PART", default_value_t)]
    pub(crate) label_from: LabelFrom,
    /// CSV files of corrections, as `gallerist data issues` writes them: rows with the action `relabel` and a new_label,
    /// or `drop`
    #[arg(long, value_name = "FILE")]
    pub(crate) relabel: Vec<PathBuf>,
}

impl PartArgs {
    pub(crate) fn options(&self) -> OpenOptions {
        OpenOptions {
            layout: self.layout,
            split: self.split.clone(),
            crop_boxes: self.crop_boxes,
            label_from: self.label_from,
            relabel: self.relabel.clone(),
            ..OpenOptions::default()
        }
    }
}

/// The images that take part.
#[derive(Debug, Args)]
pub(crate) struct WhereArgs {
    /// Only images that meet a condition on their columns take part, such as 'price < 20 and shop = "x"'; of queries and
    /// a gallery, in both (docs/metadata.md)
    #[arg(long = "where", value_name = "CONDITION", value_parser = parse_condition, conflicts_with_all = ["query_where", "gallery_where"])]
    condition: Option<Condition>,
    /// Only queries that meet a condition take part
    #[arg(long, value_name = "CONDITION", value_parser = parse_condition)]
    query_where: Option<Condition>,
    /// Only images of the gallery that meet a condition take part
    #[arg(long, value_name = "CONDITION", value_parser = parse_condition)]
    gallery_where: Option<Condition>,
}

impl WhereArgs {
    pub(crate) fn conditions(&self) -> Conditions {
        match &self.condition {
            Some(condition) => Conditions::of_all(condition.clone()),
            None => Conditions { queries: self.query_where.clone(), gallery: self.gallery_where.clone() },
        }
    }
}

/// Normalization of the rows.
#[derive(Debug, Args)]
pub(crate) struct RowArgs {
    /// Scale rows to length 1 (yes), or write the outputs of the network unchanged (no) [default: by the run's
    /// evaluation.metric: yes for cosine, no for euclidean]
    #[arg(long, value_enum, value_name = "YES|NO", hide_possible_values = true)]
    normalize: Option<YesNo>,
    /// The older name of --normalize no
    #[arg(long, hide = true, conflicts_with = "normalize")]
    raw: bool,
}

impl RowArgs {
    /// Whether rows are scaled; `None`: as the metric of the run requires.
    pub(crate) fn normalize(&self) -> Option<bool> {
        match (self.normalize, self.raw) {
            (Some(answer), _) => Some(answer == YesNo::Yes),
            (None, true) => Some(false),
            (None, false) => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum YesNo {
    Yes,
    No,
}

/// Device of the network.
#[derive(Debug, Args)]
pub(crate) struct DeviceArgs {
    /// Device of the network: auto (a GPU if available), cpu, cuda, cuda:N, wgpu, wgpu:N
    #[arg(long, value_name = "DEVICE", default_value_t = DeviceChoice::Auto)]
    pub(crate) device: DeviceChoice,
}

/// How a network computes that only embeds.
#[derive(Debug, Args)]
pub(crate) struct ComputeArgs {
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Products of the network, on the CPU; bf16 and int8 change the embeddings by their rounding [default: evaluation.products
    /// of the run, else f32]
    #[arg(long, value_parser = named::<Products>())]
    pub(crate) products: Option<Products>,
}

/// A trained network.
#[derive(Debug, Args)]
pub(crate) struct ModelArgs {
    /// Run directory
    #[arg(long, value_name = "DIR")]
    pub(crate) run: PathBuf,
    /// Checkpoint of the run [default: evaluation.checkpoint of the run]
    #[arg(long, value_parser = named::<CheckpointKind>())]
    pub(crate) checkpoint: Option<CheckpointKind>,
}
