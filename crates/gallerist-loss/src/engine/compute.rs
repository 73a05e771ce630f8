//! Value, diagnostics and gradient of a list loss on rows in memory, without the tensor engine.

use gallerist_kernels::scale_rows;

use super::batch::Batch;
use super::list::{Form, ListFunction, ListValue, Measure};
use super::real::Real;
use super::relatives::Relatives;
use super::walk::{self, BLOCK_BYTES, Outcome, Targets};
use crate::diagnostics::{Progress, Queries};
use crate::labels::Labels;
use crate::rows::RowBatch;

/// What [`RowLoss`](crate::rows::RowLoss) computes. `wide` is the loss for rows whose norms overflow `F`.
pub(super) fn on_rows<F: Real>(
    loss: &dyn ListFunction<F>,
    wide: &dyn ListFunction<f64>,
    batch: &RowBatch<'_, F>,
    progress: Progress,
    gradient: Option<&mut [F]>,
) -> (f64, Queries) {
    let RowBatch { rows, dimensions: d, labels, memory, normalize } = *batch;
    assert!(d > 0 && rows.len() == labels.len() * d, "{} values, {} labels of {d}", rows.len(), labels.len());
    assert!(
        gradient.as_ref().is_none_or(|gradient| gradient.len() == rows.len()),
        "a gradient of other size"
    );
    let memory = memory.filter(|(_, labels)| !labels.is_empty());
    let (mut unit, mut factors, mut unit_memory) = (Vec::new(), Vec::new(), Vec::new());
    if normalize {
        // Kept from step to step, as the block of lists.
        unit = F::take_block();
        if unit.len() < rows.len() {
            unit.resize(rows.len(), F::ZERO);
        }
        factors = vec![F::ZERO; labels.len()];
        scale_rows(rows, &mut unit[..rows.len()], &mut factors, d);
        if let Some((values, labels)) = memory {
            unit_memory = vec![F::ZERO; values.len()];
            scale_rows(values, &mut unit_memory, &mut vec![F::ZERO; labels.len()], d);
        }
    }
    let input = Input {
        queries: if normalize { &unit[..rows.len()] } else { rows },
        dimensions: d,
        labels,
        others: memory.map(|(rows, labels)| (if normalize { &unit_memory[..] } else { rows }, labels)),
        apart: false,
    };
    let targets = Targets { queries: gradient, gallery: None, scaled_by: normalize.then_some(&factors[..]) };
    let Computed { value, queries, .. } = compute(loss, wide, &input, progress, targets);
    if normalize {
        F::keep_block(unit);
    }
    (value, queries)
}

/// What a loss is computed of.
#[derive(Clone, Copy)]
pub(super) struct Input<'a, F> {
    /// `n x dimensions`.
    pub(super) queries: &'a [F],
    pub(super) dimensions: usize,
    pub(super) labels: Labels<'a>,
    /// The samples of the gallery that are no queries: a memory, which is constant, or the whole gallery.
    pub(super) others: Option<(&'a [F], Labels<'a>)>,
    /// Whether `others` is the whole gallery.
    pub(super) apart: bool,
}

impl<F> Input<'_, F> {
    fn relatives(&self) -> Relatives {
        match self.others {
            Some((_, labels)) if self.apart => Relatives::among(self.labels, labels),
            others => Relatives::new(self.labels, others.map(|(_, labels)| labels)),
        }
    }

    /// Diagnostics with the numbers of positives and negatives, and zeros for what the loss computes.
    fn diagnostics(&self, form: Form, relatives: &Relatives) -> Queries {
        let (n, others) = (self.labels.len(), self.others.map_or(0, |(_, labels)| labels.len()));
        let candidates = if self.apart { others } else { (n + others).saturating_sub(1) };
        let (positives, candidates) = match self.others {
            Some((_, labels)) if form.proxy_queries => {
                (Relatives::among(labels, self.labels).counts().to_vec(), n)
            }
            _ => (relatives.counts().to_vec(), candidates),
        };
        Queries::counted(positives, candidates)
    }
}

/// The result of a batch, besides the gradients in its [`Targets`].
pub(super) struct Computed {
    pub(super) value: f64,
    pub(super) queries: Queries,
    pub(super) kind: Kind,
}

/// How a value was computed.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Kind {
    /// In the precision of the rows.
    Exact,
    /// In f64, because a norm overflowed.
    Widened,
    /// It does not depend on the rows: nothing is to be compared, or a value is not finite.
    Constant,
}

/// The output of a batch. `wide` is the loss for rows whose norms overflow `F`.
pub(super) fn compute<F: Real>(
    loss: &dyn ListFunction<F>,
    wide: &dyn ListFunction<f64>,
    input: &Input<'_, F>,
    progress: Progress,
    targets: Targets<'_, F>,
) -> Computed {
    let form = loss.form();
    assert!(
        !form.proxy_queries || input.apart && form.measure == Measure::Similarity && loss.miner().is_none(),
        "proxies as queries, by similarity and without a miner"
    );
    let (n, d) = (input.labels.len(), input.dimensions);
    let g = input.others.map_or(0, |(_, labels)| labels.len()) + if input.apart { 0 } else { n };
    assert!(u32::try_from(g).is_ok(), "a list of {g} samples");
    let relatives = input.relatives();
    let mut queries = input.diagnostics(form, &relatives);
    if n == 0 || g == 0 {
        targets.fill(F::ZERO);
        return Computed { value: 0.0, queries, kind: Kind::Constant };
    }
    let others = input.others.map_or(&[][..], |(rows, _)| rows);
    let values = BLOCK_BYTES / size_of::<F>();
    let (outcome, kind) = match Batch::new(input.queries, others, d, &relatives) {
        Some(batch) => (walk::run(loss, &batch, progress, targets, values), Kind::Exact),
        None => {
            let widened = |x: &[F]| x.iter().map(|value| value.wide()).collect::<Vec<f64>>();
            let (x, others) = (widened(input.queries), widened(others));
            let Some(batch) = Batch::new(&x, &others, d, &relatives) else {
                queries.loss.fill(f32::NAN);
                targets.fill(F::of(f64::NAN));
                return Computed { value: f64::NAN, queries, kind: Kind::Constant };
            };
            (widened_run(wide, &batch, progress, targets, values), Kind::Widened)
        }
    };
    let Outcome { value, seen, parts, problem } = outcome;
    queries.problem = problem;
    if form.proxy_queries {
        queries.loss = parts.iter().map(|part| (part.loss * parts.len() as f64) as f32).collect();
        queries.mined_positives = parts.iter().map(|part| part.mined_positives).collect();
        queries.mined_negatives = parts.iter().map(|part| part.mined_negatives).collect();
    } else {
        let collect = |f: fn(&ListValue) -> u32| seen.iter().map(f).collect::<Vec<_>>();
        queries.loss = seen.iter().map(|s| s.loss as f32).collect();
        queries.mined_positives = collect(|s| s.mined_positives);
        queries.mined_negatives = collect(|s| s.mined_negatives);
        if form.dead_terms {
            queries.terms = collect(|s| s.terms);
            queries.dead_terms = collect(|s| s.dead_terms);
        }
    }
    Computed { value, queries, kind }
}

/// [`walk::run`] in f64, with gradients in `F`.
fn widened_run<F: Real>(
    loss: &dyn ListFunction<f64>,
    batch: &Batch<'_, f64>,
    progress: Progress,
    targets: Targets<'_, F>,
    block_values: usize,
) -> Outcome {
    let Targets { queries, gallery, scaled_by } = targets;
    let wide = |target: &Option<&mut [F]>| target.as_ref().map(|target| vec![0.0f64; target.len()]);
    let (mut of_queries, mut of_gallery) = (wide(&queries), wide(&gallery));
    let factors = scaled_by.map(|factors| factors.iter().map(|factor| factor.wide()).collect::<Vec<f64>>());
    let targets = Targets {
        queries: of_queries.as_deref_mut(),
        gallery: of_gallery.as_deref_mut(),
        scaled_by: factors.as_deref(),
    };
    let outcome = walk::run(loss, batch, progress, targets, block_values);
    for (to, from) in [(queries, of_queries), (gallery, of_gallery)] {
        if let (Some(to), Some(from)) = (to, from) {
            to.iter_mut().zip(from).for_each(|(to, from)| *to = F::of(from));
        }
    }
    outcome
}
