//! A list loss as a loss for training.

use burn::backend::Flex;
use burn::module::{
    Content, Devices, Module, ModuleDisplay, ModuleDisplayDefault, ModuleMapper, ModuleVisitor,
};
use burn::tensor::{DType, Device, Tensor, TensorData};

use super::attach;
use super::compute::{self, Computed, Kind};
use super::list::{ListFunction, ListLoss};
use super::real::Real;
use super::walk::Targets;
use crate::labels::Labels;
use crate::lists::Lists;
use crate::ranking::{LossOutput, PairLoss, Progress, Queries};
use crate::rows::{RowBatch, RowLoss};
use crate::toolbox::with_gradient;

/// A [`ListLoss`] as a [`RankingLoss`](crate::RankingLoss). A module without parameters.
#[derive(Clone, Debug)]
pub struct Listed<L>(L);

impl<L> Listed<L> {
    /// The loss of a batch by `loss`.
    pub fn new(loss: L) -> Self {
        Listed(loss)
    }
}

impl<L: ListLoss> PairLoss for Listed<L> {
    fn forward_lists(&self, lists: &Lists<'_>, progress: Progress) -> LossOutput {
        let memory = lists.memory().map(|memory| (&memory.embeddings, memory.labels));
        let input =
            Input { queries: lists.embeddings(), labels: lists.labels(), others: memory, apart: false };
        self.output(&input, progress)
    }

    fn on_rows(&self) -> Option<&dyn RowLoss> {
        Some(self)
    }
}

impl<L: ListLoss> RowLoss for Listed<L> {
    fn forward_f32(
        &self,
        batch: &RowBatch<'_, f32>,
        progress: Progress,
        gradient: Option<&mut [f32]>,
    ) -> (f64, Queries) {
        compute::on_rows::<f32>(&self.0, &self.0, batch, progress, gradient)
    }

    fn forward_f64(
        &self,
        batch: &RowBatch<'_, f64>,
        progress: Progress,
        gradient: Option<&mut [f64]>,
    ) -> (f64, Queries) {
        compute::on_rows::<f64>(&self.0, &self.0, batch, progress, gradient)
    }
}

impl<L: ListLoss> Listed<L> {
    /// The loss of queries whose lists are other samples, such as proxies: no query is in its own list. The value is
    /// connected to queries and gallery. Their gradients continue through the tensor operations that made them, such as
    /// the scaling of learned proxies to length 1.
    ///
    /// # Shapes
    ///
    /// `queries` `[n, d]` with `labels` of `n` samples, `gallery` `[g, d]` with `gallery_labels` of `g` samples. The
    /// dtype of the queries decides the precision.
    ///
    /// # Panics
    ///
    /// If rows and labels disagree about their number, or queries and gallery about their dimensions.
    ///
    /// # Example: cross entropy over learnt proxies
    ///
    /// ```
    /// use burn::tensor::{Device, Distribution, Tensor};
    /// use gallerist_loss::engine::Listed;
    /// use gallerist_loss::{Labels, NormSoftmaxConfig, Progress};
    ///
    /// let random = |rows| Tensor::<2>::random([rows, 8], Distribution::Default, &Device::flex().autodiff()).require_grad();
    /// let (samples, proxies) = (random(6), random(3));
    /// let (labels, classes) = (Labels::Classes(&[0, 0, 1, 1, 2, 2]), Labels::Classes(&[0, 1, 2]));
    /// let loss = Listed::new(NormSoftmaxConfig::default());
    /// let output = loss.forward_among(&samples, labels, &proxies, classes, Progress::default());
    /// let gradients = output.value.backward();
    /// assert_eq!(samples.grad(&gradients).unwrap().dims(), [6, 8]);
    /// assert_eq!(proxies.grad(&gradients).unwrap().dims(), [3, 8]);
    /// ```
    pub fn forward_among(
        &self,
        queries: &Tensor<2>,
        labels: Labels<'_>,
        gallery: &Tensor<2>,
        gallery_labels: Labels<'_>,
        progress: Progress,
    ) -> LossOutput {
        let ([n, d], [g, gallery_d]) = (queries.dims(), gallery.dims());
        assert_eq!(n, labels.len(), "{n} queries and {} labels", labels.len());
        assert_eq!(g, gallery_labels.len(), "a gallery of {g} rows and {} labels", gallery_labels.len());
        assert_eq!(d, gallery_d, "queries are {n} x {d}, the gallery is {g} x {gallery_d}");
        let input = Input { queries, labels, others: Some((gallery, gallery_labels)), apart: true };
        self.output(&input, progress)
    }

    fn output(&self, input: &Input<'_>, progress: Progress) -> LossOutput {
        match input.queries.dtype() {
            DType::F64 => forward::<f64>(&self.0, &self.0, input, progress),
            _ => forward::<f32>(&self.0, &self.0, input, progress),
        }
    }
}

/// What a loss is computed of.
struct Input<'a> {
    queries: &'a Tensor<2>,
    labels: Labels<'a>,
    /// The samples of the gallery that are no queries: a memory, which is constant, or the whole gallery.
    others: Option<(&'a Tensor<2>, Labels<'a>)>,
    /// Whether `others` is the whole gallery.
    apart: bool,
}

impl<'a> Input<'a> {
    /// The rows of the gallery, where they get a gradient of their own.
    fn gallery(&self) -> Option<&'a Tensor<2>> {
        self.others.map(|(rows, _)| rows).filter(|_| self.apart)
    }

    /// A value that does not depend on the rows, connected to them: 0 or NaN.
    fn constant(&self, value: f32) -> Tensor<1> {
        let of = |x: &Tensor<2>| x.clone().sum().mul_scalar(value);
        match self.gallery() {
            Some(gallery) if !self.queries.is_tracked() => of(gallery),
            Some(gallery) if gallery.is_tracked() => of(self.queries) + of(gallery),
            _ => of(self.queries),
        }
    }
}

/// The output of a batch. `wide` is the loss for rows whose norms overflow `F`.
fn forward<F: Real>(
    loss: &dyn ListFunction<F>,
    wide: &dyn ListFunction<f64>,
    input: &Input<'_>,
    progress: Progress,
) -> LossOutput {
    let [_, d] = input.queries.dims();
    let (x, others) = (Rows::<F>::new(input.queries), input.others.map(|(rows, _)| Rows::<F>::new(rows)));
    let others = others.as_ref().zip(input.others).map(|(rows, (_, labels))| (rows.values(), labels));
    let rows = compute::Input {
        queries: x.values(),
        dimensions: d,
        labels: input.labels,
        others,
        apart: input.apart,
    };
    let wanted = |x: &Tensor<2>| x.is_tracked().then(|| vec![F::ZERO; x.dims().iter().product()]);
    let (mut gradient, mut gallery) = (wanted(input.queries), input.gallery().and_then(wanted));
    let targets =
        Targets { queries: gradient.as_deref_mut(), gallery: gallery.as_deref_mut(), scaled_by: None };
    let Computed { value, queries, kind } = compute::compute(loss, wide, &rows, progress, targets);
    if kind == Kind::Constant {
        return LossOutput { value: input.constant(value as f32), queries };
    }
    let exact = kind == Kind::Exact;
    let sides = [(Some(input.queries), gradient), (input.gallery(), gallery)];
    let mut connected: Option<Tensor<1>> = None;
    for (x, gradient) in sides.into_iter().filter_map(|(x, gradient)| x.zip(gradient)) {
        // The value is counted once.
        let value = if connected.is_none() { value } else { 0.0 };
        let part = connect(x, value, gradient, exact);
        connected = Some(match connected {
            Some(connected) => connected + part,
            None => part,
        });
    }
    let number = || Tensor::from_data([value], (&input.queries.device(), input.queries.dtype()));
    LossOutput { value: connected.unwrap_or_else(number), queries }
}

/// `value`, with `gradient` as its derivative with respect to `x`.
fn connect<F: Real>(x: &Tensor<2>, value: f64, gradient: Vec<F>, exact: bool) -> Tensor<1> {
    let (device, dtype) = (x.device(), x.dtype());
    // The operation with a known gradient is for f32 on the CPU.
    if exact && dtype == DType::F32 && device == Device::flex() {
        return attach::attach(x.clone(), value, F::narrowed(gradient));
    }
    let gradient = Tensor::from_data(TensorData::new(gradient, x.dims()), (&device, dtype));
    with_gradient(Tensor::from_data([value], (&device, dtype)), x, gradient)
}

/// Rows of a tensor on the host.
enum Rows<F> {
    /// Without a copy.
    Flex(burn::backend::flex::FlexTensor),
    Copied(Vec<F>),
}

impl<F: Real> Rows<F> {
    fn new(x: &Tensor<2>) -> Self {
        let x = x.clone().without_autodiff();
        if x.dtype() == F::DTYPE && x.device() == Device::flex() {
            let flex = x.clone().try_into_primitive::<Flex>().ok().map(|x| x.to_contiguous());
            if let Some(flex) = flex.filter(|flex| F::slice(flex).is_some()) {
                return Rows::Flex(flex);
            }
        }
        let data = x.into_data().convert::<F>();
        Rows::Copied(data.try_into_vec::<F>().expect("the data were converted to this type"))
    }

    fn values(&self) -> &[F] {
        match self {
            Rows::Flex(x) => F::slice(x).expect("looked at when the rows were made"),
            Rows::Copied(values) => values,
        }
    }
}

impl<L: Clone + std::fmt::Debug + Send> Module for Listed<L> {
    fn collect_devices(&self, devices: Devices) -> Devices {
        devices
    }

    fn fork(self, _: &Device) -> Self {
        self
    }

    fn to_device(self, _: &Device) -> Self {
        self
    }

    fn train(self) -> Self {
        self
    }

    fn valid(&self) -> Self {
        self.clone()
    }

    fn materialize(self) -> Self {
        self
    }

    fn visit<V: ModuleVisitor>(&self, _: &mut V) {}

    fn map<M: ModuleMapper>(self, _: &mut M) -> Self {
        self
    }
}

impl<L: Clone + std::fmt::Debug + Send> ModuleDisplayDefault for Listed<L> {
    fn content(&self, content: Content) -> Option<Content> {
        content.add_debug_attribute("loss", &self.0).optional()
    }
}

impl<L: Clone + std::fmt::Debug + Send> ModuleDisplay for Listed<L> {}
