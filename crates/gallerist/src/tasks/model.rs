//! The network of a gallery: where its run is, and on which device it computes.

use std::path::{Component, Path, PathBuf};

use gallerist_nn::{Products, int8_unit};
use gallerist_retrieval::fingerprint;
use gallerist_retrieval::index::Origin;
use gallerist_retrieval::search::Metric;
use gallerist_tensor::device::DeviceChoice;
use gallerist_train::model::Model;
use gallerist_train::{CheckpointKind, Precision, RunConfig, RunDirectory};

use crate::{Error, Observer, Result};

/// Sets the number of compute threads for the rest of the process; 0: one per core.
///
/// [`train`](crate::train()) and the other calls that need a network do it with the run file's `train.threads`. It has no effect
/// once the process has computed anything: the first call wins.
pub fn set_threads(threads: usize) {
    // Fails only where a pool exists already.
    let _ = rayon::ThreadPoolBuilder::new().num_threads(threads).build_global();
}

/// The model of a run, as [`Model::open`] gives it. Before the checkpoint is read, which already computes, the run file sets the
/// number of compute threads.
pub(super) fn open(run: &Path, checkpoint: Option<CheckpointKind>) -> Result<Model> {
    let config = RunConfig::load(&RunDirectory::open(run)?.config(), &[])?;
    set_threads(config.train.threads);
    Ok(Model::open(run, checkpoint)?)
}

/// The model on `device`, by `products` or those of its run. A GPU, for which products are not chosen, is reported as a note, and
/// bf16 and int8 with the instructions that compute them.
pub(super) fn on_device(
    model: Model,
    device: DeviceChoice,
    products: Option<Products>,
    observer: &mut dyn Observer,
) -> Result<Model> {
    let device = device.open()?;
    if !device.is_cpu() {
        observer.note(&format!("device: {device}"));
        return Ok(model.on(device.device()));
    }
    let wanted = products.unwrap_or(model.products());
    let model = model.with_products(wanted)?;
    match wanted {
        Products::Bf16 => {
            let without = || "products in f32: it has neither AMX nor AVX-512 BF16".to_owned();
            let products = Precision::Bf16.described(&device).unwrap_or_else(without);
            observer.note(&format!("device: {device}, {products}"));
        }
        Products::Int8 => {
            let without = || "products in f32: it has no AVX-512 VNNI".to_owned();
            let products = int8_unit().map_or_else(without, |unit| format!("int8 by {unit}"));
            observer.note(&format!("device: {device}, {products}"));
        }
        Products::F32 | Products::F32Direct => {}
    }
    Ok(model)
}

/// The network that embedded the gallery: of `run`, or of the run that the gallery's file names. A file that names no network, as one
/// that went through another program, is taken to be of `run`, with a warning: of `checkpoint`, or else the one that `embed` takes
/// (`evaluation.checkpoint`).
pub(super) fn of_gallery(
    gallery: &Path,
    run: Option<&Path>,
    checkpoint: Option<CheckpointKind>,
    origin: &Origin,
    observer: &mut dyn Observer,
) -> Result<Model> {
    let file = gallery.display();
    let hint = "give the run directory of the network that embedded it: --run DIR";
    let Some(wanted) = &origin.model else {
        let unknown = format!("`{file}` does not say which network embedded it");
        let Some(run) = run else { return Err(Error::new(unknown, Some(hint))) };
        let model = open(run, checkpoint)?;
        let which = checkpoint.unwrap_or(model.config().evaluation.checkpoint);
        observer.warning(&format!(
            "{unknown}; queries are embedded by that of `{}` (checkpoint {}, step {})",
            run.display(),
            which.name(),
            model.step()
        ));
        return Ok(match origin.metric_of_rows() == model.metric() {
            true => model,
            // Rows of files without a metric have length 1.
            false => model.normalized(origin.metric_of_rows() == Metric::Cosine),
        });
    };
    let choices = match checkpoint {
        Some(which) => vec![which],
        None => vec![CheckpointKind::Best, CheckpointKind::Last],
    };
    let places = match run {
        Some(run) => vec![run.to_path_buf()],
        None => places_of_run(gallery, origin.run.as_deref().map(Path::new)),
    };
    let is_run = |path: &&PathBuf| path.join("config.toml").exists() && path.join("checkpoints").is_dir();
    let runs: Vec<&PathBuf> = places.iter().filter(is_run).collect();
    let Some(&first) = runs.first() else {
        if let Some(run) = run {
            RunDirectory::open(run)?;
        }
        let looked_for = match &origin.run {
            Some(run) => format!("its run is neither at `{run}` nor next to the gallery"),
            None => "it does not name its run, and no run is next to it".into(),
        };
        return Err(Error::new(
            format!("cannot find the network that embedded `{file}`\n  {looked_for}"),
            Some(hint),
        ));
    };
    // A copy of a gallery may be next to another run; the fingerprint tells.
    for run in &runs {
        let directory = RunDirectory::open(run)?;
        for which in &choices {
            let path = directory.checkpoint(*which);
            if path.exists()
                && let Some(model) = open(run, Some(*which))?.matching(wanted, origin.metric)
            {
                return Ok(model);
            }
        }
    }
    let found = open(first, checkpoint)?;
    Err(Error::new(
        format!(
            "`{file}` was embedded with the network {}\n  the run `{}` has {}: their distances mean nothing to each other",
            fingerprint::shown(wanted),
            first.display(),
            fingerprint::shown(found.fingerprint())
        ),
        Some("embed the gallery again with this run, or give the run it was embedded with: --run DIR"),
    ))
}

/// Where the run of a gallery may be, the likeliest first: the gallery's own folder, the place its file names, and that
/// place under each folder above the gallery, in case both were moved together.
fn places_of_run(gallery: &Path, named: Option<&Path>) -> Vec<PathBuf> {
    let gallery = gallerist_util::text::absolute(gallery);
    let mut places: Vec<PathBuf> = gallery.parent().map(Path::to_path_buf).into_iter().collect();
    if let Some(named) = named {
        places.push(named.into());
        let parts: Vec<_> = named.components().filter(|part| matches!(part, Component::Normal(_))).collect();
        for above in gallery.ancestors().skip(1) {
            // The longest tail of the named place that exists.
            places
                .extend((0..parts.len()).map(|first| above.join(parts[first..].iter().collect::<PathBuf>())));
        }
    }
    places
}
