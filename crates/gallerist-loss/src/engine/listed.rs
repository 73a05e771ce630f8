//! A list loss as a loss for training.

use burn::backend::Flex;
use burn::module::{
    Content, Devices, Module, ModuleDisplay, ModuleDisplayDefault, ModuleMapper, ModuleVisitor,
};
use burn::tensor::{DType, Device, Tensor, TensorData};

use super::attach;
use super::batch::Batch;
use super::list::{ListLoss, ListValue};
use super::real::Real;
use super::relatives::Relatives;
use super::walk::{self, BLOCK_BYTES, Outcome};
use crate::lists::Lists;
use crate::ranking::{LossOutput, PairLoss, Progress, Queries};
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
        match lists.embeddings().dtype() {
            DType::F64 => forward::<L, f64>(&self.0, lists, progress),
            _ => forward::<L, f32>(&self.0, lists, progress),
        }
        .unwrap_or_else(|| not_finite(lists))
    }
}

/// The output of a batch; `None` where a value is not finite.
fn forward<L: ListLoss, F: Real>(loss: &L, lists: &Lists<'_>, progress: Progress) -> Option<LossOutput> {
    let [n, g] = lists.dims();
    let embeddings = lists.embeddings();
    let [_, d] = embeddings.dims();
    assert!(u32::try_from(g).is_ok(), "a list of {g} samples");
    if n == 0 {
        let value = (embeddings.clone().sum()).mul_scalar(0.0);
        return Some(LossOutput { value, queries: Queries::default() });
    }
    let relatives = Relatives::new(lists.labels(), lists.memory().map(|memory| memory.labels));
    let rows = |x: &Tensor<2>| Rows::<F>::new(x);
    let (queries, memory) = (rows(embeddings), lists.memory().map(|memory| rows(&memory.embeddings)));
    let memory = memory.as_ref().map_or(&[][..], Rows::values);
    let wanted = embeddings.is_tracked();
    let values = BLOCK_BYTES / size_of::<F>();
    let (outcome, exact) = match Batch::new(queries.values(), memory, d, &relatives) {
        Some(batch) => (walk::run(loss, &batch, progress, wanted, values), true),
        None => {
            let wide = |x: &[F]| x.iter().map(|value| value.wide()).collect::<Vec<f64>>();
            let (x, memory) = (wide(queries.values()), wide(memory));
            let batch = Batch::new(&x, &memory, d, &relatives)?;
            let Outcome { value, seen, gradient } = walk::run(loss, &batch, progress, wanted, values);
            let gradient = gradient.map(|gradient| gradient.into_iter().map(F::of).collect());
            (Outcome { value, seen, gradient }, false)
        }
    };
    let Outcome { value, seen, gradient } = outcome;
    let positives = relatives.counts().to_vec();
    let collect = |f: fn(&ListValue) -> u32| seen.iter().map(f).collect::<Vec<_>>();
    let queries = Queries {
        loss: seen.iter().map(|s| s.loss as f32).collect(),
        negatives: positives.iter().map(|p| g as u32 - 1 - p).collect(),
        positives,
        mined_positives: collect(|s| s.mined_positives),
        mined_negatives: collect(|s| s.mined_negatives),
        terms: if L::DEAD_TERMS { collect(|s| s.terms) } else { Vec::new() },
        dead_terms: if L::DEAD_TERMS { collect(|s| s.dead_terms) } else { Vec::new() },
        ..Queries::default()
    };
    let (device, dtype) = (embeddings.device(), embeddings.dtype());
    let number = Tensor::<1>::from_data([value], (&device, dtype));
    let value = match gradient {
        // The operation with a known gradient is for f32 on the CPU.
        Some(gradient) if exact && dtype == DType::F32 && device == Device::flex() => {
            attach::attach(embeddings.clone(), value, F::narrowed(gradient))
        }
        Some(gradient) => {
            let gradient = Tensor::from_data(TensorData::new(gradient, [n, d]), (&device, dtype));
            with_gradient(number, embeddings, gradient)
        }
        None => number,
    };
    Some(LossOutput { value, queries })
}

/// The output of a batch with values that are not finite: NaN, and a gradient of NaN.
fn not_finite(lists: &Lists<'_>) -> LossOutput {
    let [n, g] = lists.dims();
    let relatives = Relatives::new(lists.labels(), lists.memory().map(|memory| memory.labels));
    let positives = relatives.counts().to_vec();
    let queries = Queries {
        loss: vec![f32::NAN; n],
        negatives: positives.iter().map(|p| g as u32 - 1 - p).collect(),
        positives,
        mined_positives: vec![0; n],
        mined_negatives: vec![0; n],
        ..Queries::default()
    };
    LossOutput { value: lists.embeddings().clone().sum().mul_scalar(f32::NAN), queries }
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
