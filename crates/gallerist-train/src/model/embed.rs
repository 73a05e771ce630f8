//! Embedding images with a model.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use burn::tensor::{Device, Tensor, TensorData};
use gallerist_collective::part;
use gallerist_data::{
    BatchPlan, Broken, Image, ImageSet, ImageStore, Loader, LoaderOptions, Random, Transform,
};
use gallerist_kernels::with_products;
use gallerist_nn::{Combine, Products};
use gallerist_retrieval::columns::{Column, Columns, MAX_COLUMNS};
use gallerist_retrieval::file::{Source, Sources};
use gallerist_retrieval::{EmbeddingSet, Matrix, MatrixView};
use gallerist_tensor::device::{on_device, uploaded};

use super::trained::Model;
use crate::config::{EvaluationConfig, MEMORY_OF_GPU_MIB, MEMORY_PER_THREAD_MIB, threads as resolved};
use crate::evaluation::published_protocol;
use crate::{Error, Result, features, ranks};

/// The column with the split of each image, in embeddings of images of several splits.
pub const SPLIT: &str = "split";

/// Embeddings of an image set, and the images that could not be read.
#[derive(Debug)]
pub struct Embedded {
    /// One row per image that could be read, in the set's order.
    pub set: EmbeddingSet,
    /// The others; they have no row.
    pub broken: Vec<Broken>,
    /// The reason why no more decoded images were cached in their folder, such as a full disk.
    pub cache_problem: Option<String>,
}

/// Embeddings of the images of one batch.
#[derive(Clone, Debug)]
pub struct EmbeddedBatch {
    /// Per row the index of its image in the set.
    pub items: Vec<u32>,
    /// The rows, one after the other.
    pub rows: Vec<f32>,
    /// The images of the batch that could not be read.
    pub broken: Vec<Broken>,
}

/// The embedding of one image, and the feature maps that it was pooled from.
#[derive(Clone, Debug)]
pub struct ImageMaps {
    /// The embedding.
    pub embedding: Vec<f32>,
    /// The last feature maps before they are pooled, `[height, width, channels]`: one feature vector
    /// for each position of the image.
    pub maps: Vec<f32>,
    /// Height, width and channels of the maps.
    pub shape: [usize; 3],
}

impl Model {
    /// Embeds a set of images, decoding on `threads` threads (0: one per core).
    ///
    /// `progress` is called with the images done and all images. An image that cannot be read is
    /// reported in [`Embedded::broken`] and has no row.
    ///
    /// Decoded images are kept in the run file's `data.cache_folder`, where that folder is there, or in the one of
    /// [`with_cache`](Self::with_cache); the embeddings are the same, to the bit. See
    /// [`ImageStore::with_disk_cache`]. Of a frozen ONNX model, its features are kept there instead, for models with other
    /// heads; the embeddings then differ by rounding.
    ///
    /// # Errors
    ///
    /// When no image can be read, an embedding is not finite, or the folder for decoded images cannot be used; of a
    /// [strict](Self::strict) model, when an image cannot be read.
    pub fn embed(
        &self,
        images: ImageSet,
        threads: usize,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Embedded> {
        let images = Arc::new(images);
        let progress = &mut |done, all| {
            progress(done, all);
            Ok(())
        };
        // Several ranks would each compute the features of all images.
        let extractor = self.network.extractor().filter(|_| self.ranks.size() == 1);
        let (Some(folder), Some(extractor)) = (self.cache_folder(), extractor) else {
            return self.embed_store(&self.store(images)?, threads, progress);
        };
        let store = ImageStore::new(images, Transform::evaluation(&self.config.image)?, 0);
        let options = LoaderOptions::evaluation(resolved(threads)).strict(self.strict);
        let store =
            features::with_features(&store, extractor, &self.config, Some(folder), options, progress)?;
        // The rest takes a moment.
        self.embed_store(&store, threads, &mut |_, _| Ok(()))
    }

    /// Embeds the images of a set from image `start` on, and gives `each` batch to the caller, in order: for sets of which
    /// parts are kept. [`set_of_rows`](Self::set_of_rows) makes embeddings of the rows. Images, threads and errors are as for
    /// [`embed`](Self::embed), except that no error says that there is no image.
    ///
    /// A batch has at most `at_most` images, and no more than there is [memory](Self::images_at_once) for. On the CPU, a row
    /// of a built-in network has the same bits for any start and any size of the batches.
    ///
    /// # Errors
    ///
    /// As [`embed`](Self::embed), and those of `each`.
    pub fn embed_batches(
        &self,
        images: &Arc<ImageSet>,
        start: usize,
        at_most: usize,
        threads: usize,
        each: &mut dyn FnMut(EmbeddedBatch) -> Result<()>,
    ) -> Result<()> {
        let store = self.store(Arc::clone(images))?;
        let at_once = self.images_at_once(store.transform().views()).min(at_most.max(1));
        self.embed_range(&store, start..images.len(), at_once, threads, &mut |batch| {
            self.check_finite(images, &batch.items, &batch.rows)?;
            each(batch)
        })
    }

    /// Embeddings with labels, paths and columns of the images `items` of a set, of which there is one row each.
    ///
    /// # Errors
    ///
    /// When an embeddings file cannot have the set's columns.
    ///
    /// # Panics
    ///
    /// If there is not one row per item.
    pub fn set_of_rows(&self, set: &ImageSet, items: &[u32], embeddings: Matrix) -> Result<EmbeddingSet> {
        assert_eq!(items.len(), embeddings.rows(), "items with rows");
        let columns = with_splits(columns_of(set)?, set)?;
        Ok(self.described(set, items, embeddings, &columns))
    }

    /// The images with the folder of decoded images.
    fn store(&self, images: Arc<ImageSet>) -> Result<Arc<ImageStore>> {
        let mut store = ImageStore::new(images, Transform::evaluation(&self.config.image)?, 0);
        if let Some(folder) = self.cache_folder() {
            store = store.with_disk_cache(folder)?;
        }
        Ok(Arc::new(store))
    }

    /// The run file's folder of caches, if it is there: the run may have been copied to a machine without it.
    fn cache_folder(&self) -> Option<&Path> {
        self.config.data.cache_folder.as_deref().filter(|folder| folder.is_dir())
    }

    /// The embedding of one decoded image.
    ///
    /// It is the one that [`embed`](Self::embed) gives, up to the rounding of a batch of one, for an image that is
    /// decoded at full size.
    ///
    /// # Errors
    ///
    /// When the run file's `[image]` is not valid.
    pub fn embed_image(&self, image: Image) -> Result<Vec<f32>> {
        let transform = Transform::evaluation(&self.config.image)?;
        let outputs = self.outputs(values_of(&transform, image), shape_of(&transform, 1))?;
        Ok(self.rows(outputs, transform.views()))
    }

    /// What the network reads of an image: its views, each `[channels, height, width]`.
    ///
    /// # Errors
    ///
    /// When the run file's `[image]` is not valid.
    pub fn preprocess(&self, image: Image) -> Result<Vec<f32>> {
        Ok(values_of(&Transform::evaluation(&self.config.image)?, image))
    }

    /// The embeddings of preprocessed images, [`images_at_once`](Self::images_at_once) together: each that of
    /// [`embed_image`](Self::embed_image), to the bit where the network has a prepared form, else up to rounding. For calls
    /// one after the other.
    ///
    /// # Example
    ///
    /// ```no_run
    /// use gallerist_data::Image;
    /// use gallerist_train::model::Model;
    ///
    /// let model = Model::load("runs/omniglot/checkpoints/best.safetensors".as_ref())?;
    /// let image = Image::new(28, 28, 1, vec![255; 28 * 28]);
    /// let values = model.preprocess(image)?;
    /// let embeddings = model.embed_preprocessed(&[&values, &values])?;
    /// assert_eq!(embeddings[0], embeddings[1]);
    /// # Ok::<(), gallerist_train::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When the run file's `[image]` is not valid.
    ///
    /// # Panics
    ///
    /// If an image has not as many values as [`preprocess`](Self::preprocess) gives.
    pub fn embed_preprocessed(&self, images: &[&[f32]]) -> Result<Vec<Vec<f32>>> {
        let transform = Transform::evaluation(&self.config.image)?;
        let views = transform.views();
        let wanted = views * transform.tensor_len();
        assert!(images.iter().all(|image| image.len() == wanted), "{wanted} values of each image");
        let mut embeddings = Vec::with_capacity(images.len());
        for some in images.chunks(self.images_at_once(views)) {
            let shape = shape_of(&transform, some.len());
            let outputs = || self.outputs(some.concat(), shape);
            let rows = on_device(&self.device, || outputs().map(|outputs| self.rows(outputs, views)))?;
            embeddings.extend(rows.chunks(rows.len() / some.len()).map(<[f32]>::to_vec));
        }
        Ok(embeddings)
    }

    /// The outputs of the network for tensors of this shape.
    fn outputs(&self, values: Vec<f32>, shape: [usize; 4]) -> Result<Vec<Tensor<2>>> {
        if let Some(prepared) = self.prepared(shape) {
            return Ok(prepared.forward(&values, shape[0]));
        }
        let images = uploaded(values, shape, &self.device);
        let outputs = self.with_wanted_products(|| self.network.forward(images));
        self.check_outputs(shape[0], &outputs)?;
        Ok(outputs)
    }

    /// Refuses outputs of another number or shape than the heads of a network of one's own. Ours are also run without heads, to initialise them.
    fn check_outputs(&self, rows: usize, outputs: &[Tensor<2>]) -> Result<()> {
        if self.network.graph().is_some() || self.network.extractor().is_some() {
            return Ok(());
        }
        let network = &self.config.network;
        Ok(gallerist_nn::check_outputs(network.name(), &network.heads(), rows, outputs)?)
    }

    /// The embeddings, one after the other, from the outputs for the views of the images.
    pub(super) fn rows(&self, outputs: Vec<Tensor<2>>, views: usize) -> Vec<f32> {
        let outputs = outputs.into_iter().map(|x| mean_of_views(x, views)).collect();
        host(self.heads.embed(outputs, &self.places, self.normalizes()).into_data())
    }

    /// The heads whose outputs are concatenated as they are and then scaled, in the order of their columns, each with the mean
    /// length of its outputs for the first `most` images that can be read. Empty for a single head, and where heads are scaled
    /// one by one or not at all.
    ///
    /// # Errors
    ///
    /// When the run file's `[image]` is not valid.
    pub fn head_lengths(&self, images: &ImageSet, most: usize) -> Result<Vec<(&'static str, f64)>> {
        if self.places.len() < 2 || self.heads.combine != Combine::ConcatThenNormalize || !self.normalizes() {
            return Ok(Vec::new());
        }
        let transform = Transform::evaluation(&self.config.image)?;
        let mut sums = vec![0.0; self.places.len()];
        let mut count = 0.0;
        for image in (0..images.len()).filter_map(|i| images.decode(i).ok()).take(most) {
            count += 1.0;
            let outputs = self.outputs(values_of(&transform, image), shape_of(&transform, 1))?;
            for (sum, &place) in sums.iter_mut().zip(&self.places) {
                let row = host(mean_of_views(outputs[place].clone(), transform.views()).into_data());
                *sum += row.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>().sqrt();
            }
        }
        let heads = self.config.network.heads();
        let mean = |(&place, sum): (&usize, f64)| (heads[place].name, sum / f64::max(count, 1.0));
        Ok(self.places.iter().zip(sums).map(mean).collect())
    }

    /// The embedding of one decoded image, as [`embed_image`](Self::embed_image), and the network's last feature maps.
    /// The maps are of the image alone, also where the embedding is a mean over views.
    ///
    /// # Errors
    ///
    /// When the run file's `[image]` is not valid, and when the network returns no feature maps.
    pub fn embed_with_maps(&self, image: Image) -> Result<ImageMaps> {
        let transform = Transform::evaluation(&self.config.image)?;
        let (values, shape) = (values_of(&transform, image), shape_of(&transform, 1));
        let (outputs, maps) = match self.prepared(shape) {
            Some(prepared) => {
                let (outputs, maps) = prepared.forward_with_maps(&values, shape[0]);
                (outputs, Some(maps))
            }
            None => {
                let images = uploaded(values, shape, &self.device);
                let (outputs, maps) = self.with_wanted_products(|| self.network.forward_with_maps(images));
                self.check_outputs(shape[0], &outputs)?;
                (outputs, maps)
            }
        };
        let embedding = self.rows(outputs, transform.views());
        let maps = maps.ok_or_else(|| gallerist_tensor::Error::Conflict {
            message: format!("the network `{}` shows no feature maps", self.config.network.name()),
            hint: "implement Embedder::forward_with_maps for it".into(),
        })?;
        let maps = maps.narrow(0, 0, 1).permute([0, 2, 3, 1]);
        let [_, height, width, channels] = maps.dims();
        Ok(ImageMaps { embedding, maps: host(maps.into_data()), shape: [height, width, channels] })
    }

    pub(crate) fn embed_store(
        &self,
        store: &Arc<ImageStore>,
        threads: usize,
        progress: &mut dyn FnMut(usize, usize) -> Result<()>,
    ) -> Result<Embedded> {
        Ok(self.embed_with_items(store, threads, progress)?.0)
    }

    /// The same, with the index of the image of each row.
    pub(crate) fn embed_with_items(
        &self,
        store: &Arc<ImageStore>,
        threads: usize,
        progress: &mut dyn FnMut(usize, usize) -> Result<()>,
    ) -> Result<(Embedded, Vec<u32>)> {
        let set = store.set();
        // Before the images are embedded, because columns may be refused.
        let columns = with_splits(columns_of(set)?, set)?;
        let EmbeddedItems { embeddings, items, broken } = self.embed_items(store, threads, progress)?;
        let set = self.described(set, &items, embeddings, &columns);
        let cache_problem = store.disk_problem().map(ToString::to_string);
        Ok((Embedded { set, broken, cache_problem }, items))
    }

    /// Embeddings with what is known of their images.
    fn described(
        &self,
        set: &ImageSet,
        items: &[u32],
        embeddings: Matrix,
        columns: &Columns,
    ) -> EmbeddingSet {
        let pick = |of: &dyn Fn(usize) -> String| items.iter().map(|&i| of(i as usize)).collect::<Vec<_>>();
        EmbeddingSet {
            embeddings,
            labels: set.labels().map(|ids| pick(&|i| set.class_names()[ids[i] as usize].clone())),
            paths: Some(pick(&|i| set.path(i).to_string())),
            cameras: set.cameras().map(|cameras| pick(&|i| cameras[i].clone())),
            columns: columns.select(&items.iter().map(|&i| i as usize).collect::<Vec<_>>()),
            model: Some(self.fingerprint.clone()),
            source: common_place(set),
            sources: Some(sources(set, items)),
            run: None,
            metric: Some(self.metric()),
            protocol: set.layout().and_then(published_protocol).map(str::to_owned),
            threshold: None,
        }
    }

    /// Images that are embedded at once, each of them `views` tensors: as many as the run file's `[evaluation]` says or
    /// has memory for. For another number the embeddings differ by rounding only; the same number gives the same bits.
    pub fn images_at_once(&self, views: usize) -> usize {
        const MOST: usize = 256;
        let EvaluationConfig { batch_size, memory_mib, .. } = self.config.evaluation;
        let tensors = match (batch_size, memory_mib) {
            (0, memory_mib) => {
                let on_processor = self.device == Device::flex();
                let memory_mib = match memory_mib {
                    0 if on_processor => MEMORY_PER_THREAD_MIB.saturating_mul(rayon::current_num_threads()),
                    0 => MEMORY_OF_GPU_MIB,
                    given => given,
                };
                (memory_mib.saturating_mul(1 << 20) / self.network.bytes_per_image()).min(MOST)
            }
            (given, _) => given,
        };
        // As many tensors at once, whether an image is one or ten of them.
        (tensors / views).max(1)
    }

    /// The embeddings alone, with the index of the image of each row. An error of `progress` ends it.
    pub(crate) fn embed_items(
        &self,
        store: &Arc<ImageStore>,
        threads: usize,
        progress: &mut dyn FnMut(usize, usize) -> Result<()>,
    ) -> Result<EmbeddedItems> {
        let set = store.set();
        let mut rows: Vec<f32> = Vec::new();
        let mut items: Vec<u32> = Vec::with_capacity(set.len());
        let mut broken = Vec::new();
        let own = part(set.len(), self.ranks.rank(), self.ranks.size());
        let all = own.len();
        let at_once = self.images_at_once(store.transform().views());
        self.embed_range(store, own, at_once, threads, &mut |batch| {
            broken.extend(batch.broken);
            rows.extend(batch.rows);
            items.extend(batch.items);
            progress(items.len() + broken.len(), all)
        })?;
        if self.ranks.size() > 1 {
            rows = ranks::gather_rows(&*self.ranks, &rows)?;
            items = ranks::gather_items(&*self.ranks, &items)?;
            broken = ranks::gather_broken(&*self.ranks, broken)?;
        }
        if items.is_empty() {
            let first = broken.first().map_or("there is none".into(), ToString::to_string);
            return Err(Error::NoImages { count: set.len(), origin: set.name().into(), first });
        }
        self.check_finite(set, &items, &rows)?;
        let embeddings = Matrix::new(items.len(), rows.len() / items.len(), rows)?;
        Ok(EmbeddedItems { embeddings, items, broken })
    }

    /// Refuses rows that are not finite.
    fn check_finite(&self, set: &ImageSet, items: &[u32], rows: &[f32]) -> Result<()> {
        let view = MatrixView::new(items.len(), rows.len() / items.len().max(1), rows)?;
        if view.check_finite("embeddings").is_ok() {
            return Ok(());
        }
        let rows = (0..items.len()).filter(|&row| view.row(row).iter().any(|v| !v.is_finite()));
        let rows: Vec<usize> = rows.collect();
        let image = set.location(items[rows[0]] as usize);
        Err(Error::NonfiniteEmbeddings { count: rows.len(), total: items.len(), image })
    }

    /// Runs a pass of a network without a prepared form.
    fn with_wanted_products<R>(&self, pass: impl FnOnce() -> R) -> R {
        match self.config.evaluation.products {
            Products::Bf16 if self.device == Device::flex() => with_products(Products::Bf16, pass),
            _ => pass(),
        }
    }

    /// Embeds the images of a range, in batches of `at_once` images.
    fn embed_range(
        &self,
        store: &Arc<ImageStore>,
        range: Range<usize>,
        at_once: usize,
        threads: usize,
        each: &mut dyn FnMut(EmbeddedBatch) -> Result<()>,
    ) -> Result<()> {
        let device = self.device.clone();
        let plan = BatchPlan::in_order(range.len(), at_once);
        let start = range.start;
        let plan = plan.map(move |plan| BatchPlan {
            items: plan.items.iter().map(|item| item + start as u32).collect(),
            ..plan
        });
        let options = LoaderOptions::evaluation(resolved(threads)).strict(self.strict);
        for batch in Loader::new(store.clone(), plan, options)? {
            let batch = batch?;
            let (items, broken) = (batch.items.clone(), batch.broken.clone());
            let mut rows = Vec::new();
            if !batch.items.is_empty() {
                let (shape, views) = (batch.shape(), batch.views);
                let outputs = || self.outputs(batch.images, shape);
                rows = on_device(&device, || outputs().map(|outputs| self.rows(outputs, views)))?;
            }
            each(EmbeddedBatch { items, rows, broken })?;
        }
        Ok(())
    }
}

/// The further columns of a set of images, such as those of a manifest, with the kinds that follow from their values
/// ([`Column::infer`]).
///
/// # Errors
///
/// When a column has a name or a value that embeddings files cannot have.
pub fn columns_of(images: &ImageSet) -> Result<Columns> {
    let columns = images.columns().into_iter().map(|(name, values)| Column::infer(name, values));
    Ok(Columns::new(columns.collect::<Result<_, _>>()?)?)
}

/// The columns, and a column [`SPLIT`] if the images are of several splits.
fn with_splits(columns: Columns, images: &ImageSet) -> Result<Columns> {
    let split = |i| images.split(i).unwrap_or_default();
    let is_one = (1..images.len()).all(|i| split(i) == split(0));
    if is_one || columns.get(SPLIT).is_some() || columns.len() == MAX_COLUMNS {
        return Ok(columns);
    }
    let splits: Vec<&str> = (0..images.len()).map(split).collect();
    let of_splits = Column::infer(SPLIT, splits)?;
    Ok(Columns::new([of_splits].into_iter().chain(columns.iter().cloned()).collect())?)
}

/// The place of all images of a set: the name of its source, or the folder of several. `None` if its sources are in
/// different places.
fn common_place(set: &ImageSet) -> Option<String> {
    let root = set.source_root(0);
    match set.sources() {
        1 => Some(set.name().to_owned()),
        several => (1..several).all(|source| set.source_root(source) == root).then(|| Source::name_of(root)),
    }
}

/// The source of each of these images.
fn sources(set: &ImageSet, items: &[u32]) -> Sources {
    let list = (0..set.sources()).map(|source| Source {
        images: Some(Source::name_of(set.source_path(source))),
        ..Source::at(set.source_root(source))
    });
    let places = items.iter().map(|&i| Some(set.source(i as usize)));
    Sources::new(list.collect(), places).expect("every image is of a source of the set")
}

/// The views of an image, one after the other.
fn values_of(transform: &Transform, image: Image) -> Vec<f32> {
    let mut values = vec![0.0; transform.views() * transform.tensor_len()];
    // Evaluation uses no random numbers.
    transform.apply(&transform.fit(image), &mut Random::new(0, "seen", 0, 0), &mut values);
    values
}

/// The shape of all views of so many images.
fn shape_of(transform: &Transform, images: usize) -> [usize; 4] {
    let [channels, height, width] = transform.shape();
    [images * transform.views(), channels, height, width]
}

/// The values of a tensor in f32.
fn host(data: TensorData) -> Vec<f32> {
    data.try_into_vec::<f32>().expect("a network computes in f32")
}

/// The mean of each image's rows, `[n * views, d]` to `[n, d]`.
fn mean_of_views(rows: Tensor<2>, views: usize) -> Tensor<2> {
    let [n, d] = rows.dims();
    match views {
        1 => rows,
        views => rows.reshape([n / views, views, d]).mean_dim(1).reshape([n / views, d]),
    }
}

/// Embeddings of the images of a store that could be read.
pub(crate) struct EmbeddedItems {
    pub(crate) embeddings: Matrix,
    /// Per row the index of its image.
    pub(crate) items: Vec<u32>,
    pub(crate) broken: Vec<Broken>,
}

#[cfg(test)]
pub(super) mod tests {
    use burn::module::Module;
    use gallerist_nn::InputShape;

    use super::*;
    use crate::config::RunConfig;

    /// A colour bitmap of 4 x 4 pixels, brighter to the right or to the left.
    pub(in crate::model) fn bitmap(mirrored: bool) -> Vec<u8> {
        let mut file = b"BM".to_vec();
        for word in [54 + 48u32, 0, 54, 40, 4, 4, 24 << 16 | 1, 0, 48, 0, 0, 0, 0] {
            file.extend(word.to_le_bytes());
        }
        for y in 0..4u8 {
            for x in 0..4u8 {
                let x = if mirrored { 3 - x } else { x };
                file.extend([x * 60, y * 50, x * y * 20]);
            }
        }
        file
    }

    #[test]
    fn a_set_names_a_place_only_if_all_of_its_images_are_there() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for name in ["a", "b"] {
            std::fs::create_dir(root.join(name)).unwrap();
            for file in ["1.bmp", "2.bmp"] {
                std::fs::write(root.join(name).join(file), bitmap(false)).unwrap();
            }
        }
        let place = |names: &[&str]| {
            let paths: Vec<_> = names.iter().map(|name| root.join(name)).collect();
            common_place(&ImageSet::open_with(&paths, &gallerist_data::OpenOptions::default()).unwrap())
        };
        let a = root.join("a").display().to_string();
        assert_eq!(place(&["a"]), Some(a.clone()));
        assert_eq!(place(&["a/1.bmp", "a/2.bmp"]), Some(a));
        assert_eq!(place(&["a", "b"]), None);
        assert_eq!(place(&["a", "b/1.bmp"]), None);
    }

    #[test]
    fn an_image_that_is_seen_has_the_embedding_of_its_file() {
        let text = "[image]\nsize = 4\nflip_average = true\nfurther_views = [{ rotation_degrees = 15.0, scale = 1.2 }]\n\
                    [network]\nkind = \"conv_blocks\"\nchannels = [6]\ndimensions = 3";
        let config = RunConfig::parse(text, "a test", &[]).unwrap();
        let input = InputShape { channels: 3, height: 4, width: 4 };
        let network = config.network.init(input, 1, &Device::flex()).unwrap();
        let model = Model::new(config, input, network.valid());
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("1.bmp"), bitmap(false)).unwrap();
        let images = ImageSet::open(folder.path()).unwrap();
        let seen = model.embed_with_maps(images.decode(0).unwrap()).unwrap();
        let [height, width, channels] = seen.shape;
        assert_eq!((channels, seen.maps.len()), (6, height * width * channels));
        let embedded = model.embed(images, 1, &mut |_, _| ()).unwrap().set.embeddings;
        for (seen, embedded) in seen.embedding.iter().zip(embedded.row(0)) {
            assert!((seen - embedded).abs() < 1e-6, "{seen} is seen, {embedded} is embedded");
        }
    }

    #[test]
    fn other_products_change_the_embeddings_by_their_rounding_and_not_the_fingerprint() {
        let text = "[image]\nsize = 16\n[network]\nkind = \"conv_blocks\"\nchannels = [16, 16]\ndimensions = 8\n\
                    [evaluation]\nproducts = \"f32-direct\"";
        let config = RunConfig::parse(text, "a test", &[]).unwrap();
        let input = InputShape { channels: 3, height: 16, width: 16 };
        let network = config.network.init(input, 1, &Device::flex()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("1.bmp"), bitmap(false)).unwrap();
        let model = Model::new(config, input, network.valid());
        assert_eq!(model.products(), Products::F32Direct);
        let fingerprint = model.fingerprint().to_owned();
        let embed = |model: &Model| {
            let images = ImageSet::open(folder.path()).unwrap();
            model.embed(images, 1, &mut |_, _| ()).unwrap().set.embeddings.as_slice().to_vec()
        };
        let wanted = embed(&model);
        let mut model = model;
        for (products, most) in [(Products::F32, 1e-5), (Products::Bf16, 2e-2)] {
            model = model.with_products(products).unwrap();
            let found = embed(&model);
            let off = found.iter().zip(&wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(off < most, "{products:?}: off by {off}");
            let is_rounded = products == Products::Bf16 && gallerist_kernels::bf16_unit().is_some();
            assert!(!is_rounded || off > 1e-5, "bf16 was not used: off by {off}");
            assert_eq!(model.fingerprint(), fingerprint);
        }
    }

    #[test]
    fn embeddings_with_kept_images_are_those_without_and_those_of_the_files_as_they_are() {
        let (folder, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let cache = cache.path().join("new");
        let model = |cache_folder: Option<&Path>| {
            let text = "[image]\nsize = 4\n[network]\nkind = \"conv_blocks\"\nchannels = [6]\ndimensions = 3";
            let mut config = RunConfig::parse(text, "a test", &[]).unwrap();
            config.data.cache_folder = cache_folder.map(Path::to_owned);
            let input = InputShape { channels: 3, height: 4, width: 4 };
            let network = config.network.init(input, 1, &Device::flex()).unwrap();
            Model::new(config, input, network.valid())
        };
        let embed = |model: &Model| {
            let embedded = model.embed(ImageSet::open(folder.path()).unwrap(), 1, &mut |_, _| ()).unwrap();
            assert!(embedded.cache_problem.is_none() && embedded.broken.is_empty());
            embedded.set.embeddings.as_slice().iter().map(|v| v.to_bits()).collect::<Vec<_>>()
        };
        let kept = || std::fs::read_dir(&cache).map_or(0, Iterator::count);
        for (name, mirrored) in [("1.bmp", false), ("2.bmp", true)] {
            std::fs::write(folder.path().join(name), bitmap(mirrored)).unwrap();
        }
        let wanted = embed(&model(None));
        assert_eq!(embed(&model(Some(&cache))), wanted);
        assert_eq!(kept(), 0, "the folder of a run that is not there is not made");
        let chosen = model(None).with_cache(Some(&cache)).unwrap();
        assert_eq!((embed(&chosen), kept()), (wanted.clone(), 1));
        let of_run = model(Some(&cache));
        assert_eq!(embed(&of_run), wanted);
        // A file that has changed, and is as long as before, is not.
        let file = folder.path().join("2.bmp");
        std::fs::write(&file, bitmap(false)).unwrap();
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(5);
        std::fs::File::options().write(true).open(&file).unwrap().set_modified(later).unwrap();
        let changed = embed(&of_run);
        assert_eq!((&changed[..3], &changed[3..]), (&wanted[..3], &wanted[..3]));
        let without = model(Some(&cache)).with_cache(None).unwrap();
        assert_eq!(embed(&without), changed);
        // A folder that cannot be made.
        let error = model(None).with_cache(Some(&folder.path().join("1.bmp/below"))).unwrap_err();
        assert!(error.to_string().contains("1.bmp"), "{error}");
    }

    #[test]
    fn embeddings_differ_by_rounding_only_for_any_number_of_images_at_once() {
        let folder = tempfile::tempdir().unwrap();
        for image in 0..9u8 {
            let mut file = bitmap(image % 2 == 0);
            file[54..]
                .iter_mut()
                .enumerate()
                .for_each(|(i, v)| *v = v.wrapping_add(image.wrapping_mul(i as u8)));
            std::fs::write(folder.path().join(format!("{image}.bmp")), file).unwrap();
        }
        for network in [
            "kind = \"conv_blocks\"\nchannels = [6, 20]\ndimensions = 3",
            "kind = \"mobilenet_v2\"\ndimensions = 8",
            "kind = \"resnet\"\ndepth = 18\ndimensions = 8",
        ] {
            let rows = |setting: &str| {
                let text = format!("[image]\nsize = 32\n[network]\n{network}\n[evaluation]\n{setting}");
                let config = RunConfig::parse(&text, "a test", &[]).unwrap();
                let input = InputShape { channels: 3, height: 32, width: 32 };
                let model = Model::new(
                    config.clone(),
                    input,
                    config.network.init(input, 1, &Device::flex()).unwrap(),
                );
                let images = ImageSet::open(folder.path()).unwrap();
                let embedded = model.embed(images, 1, &mut |_, _| ()).unwrap().set.embeddings;
                embedded.as_slice().to_vec()
            };
            let chosen = rows("");
            assert_eq!(rows(""), chosen, "{network}: the same number gives the same bits");
            // A batch of one image is multiplied in another order. Rows have length 1.
            for at_once in [1, 2, 4, 9] {
                let found = rows(&format!("batch_size = {at_once}"));
                let off = found.iter().zip(&chosen).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(found.len() == chosen.len() && off < 1e-5, "{at_once} at once: {off:e}, {network}");
            }
        }
    }

    #[test]
    fn as_many_images_are_embedded_at_once_as_memory_has_room_for() {
        let model = |text: &str| {
            let network = "[network]\nkind = \"mobilenet_v2\"\ndimensions = 8\n[evaluation]";
            let config = RunConfig::parse(&format!("{network}\n{text}"), "a test", &[]).unwrap();
            let input = InputShape { channels: 3, height: 224, width: 224 };
            Model::new(config.clone(), input, config.network.init(input, 1, &Device::flex()).unwrap())
        };
        // An image, 96 maps of 112 x 112, and the 96 maps of 56 x 56 that are made of them.
        let bytes = 4 * (3 * 224 * 224 + 96 * 112 * 112 + 96 * 56 * 56);
        assert_eq!(model("").network.bytes_per_image(), bytes);
        let at_once = |text: &str, views: usize| model(text).images_at_once(views);
        assert_eq!(at_once("memory_mib = 128", 1), (128 << 20) / bytes);
        assert_eq!(at_once("memory_mib = 128", 10), 2);
        assert_eq!(at_once("memory_mib = 1", 1), 1);
        assert_eq!(at_once("memory_mib = 1000000", 1), 256);
        assert_eq!(at_once("batch_size = 64\nmemory_mib = 1", 1), 64);
        let threads = rayon::current_num_threads();
        assert_eq!(at_once("", 1), ((threads * MEMORY_PER_THREAD_MIB) << 20) / bytes);
    }

    #[test]
    fn outputs_for_an_image_and_its_mirror_image_are_averaged() {
        let folder = tempfile::tempdir().unwrap();
        for (name, mirrored) in [("1.bmp", false), ("2.bmp", true)] {
            std::fs::write(folder.path().join(name), bitmap(mirrored)).unwrap();
        }
        let rows = |flip_average: bool| {
            let text = format!(
                "[image]\nsize = 4\nflip_average = {flip_average}\n\
                 [network]\nkind = \"conv_blocks\"\nchannels = [6]\ndimensions = 3"
            );
            let config = RunConfig::parse(&text, "a test", &[]).unwrap();
            let input = InputShape { channels: 3, height: 4, width: 4 };
            let network = config.network.init(input, 1, &Device::flex()).unwrap();
            let model = Model::new(config, input, network).normalized(false);
            let images = ImageSet::open(folder.path()).unwrap();
            model.embed(images, 1, &mut |_, _| ()).unwrap().set.embeddings
        };
        let (plain, averaged) = (rows(false), rows(true));
        assert_eq!((averaged.rows(), averaged.cols()), (2, plain.cols()));
        let mut apart = 0.0f32;
        for j in 0..plain.cols() {
            let mean = (plain.row(0)[j] + plain.row(1)[j]) / 2.0;
            apart = apart.max((plain.row(0)[j] - plain.row(1)[j]).abs());
            for i in 0..2 {
                assert!((averaged.row(i)[j] - mean).abs() < 1e-5, "row {i}, dimension {j}");
            }
        }
        assert!(apart > 1e-3, "the network tells the two apart");
    }
}
