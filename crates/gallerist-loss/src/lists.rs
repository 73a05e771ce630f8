//! The ranked lists of a loss: every sample of the batch is a query. Its list is the batch without the query,
//! followed by the memory of earlier batches.

use burn::tensor::Tensor;

use gallerist_tensor::pairwise::distances;

use crate::labels::{Labels, share_a_label};

/// Embeddings of earlier batches that lengthen the ranked list of every query: cross-batch memory (Wang,
/// Zhang, Huang, Scott, "Cross-Batch Memory for Embedding Learning", CVPR 2020).
///
/// The rows of the memory are constants; they are not queries. A pair of two samples of the batch is in two lists, a
/// pair of a sample and a row of the memory in one; means over pairs are over the entries of the lists. The paper adds a
/// second loss, of the batch against the memory alone; here there is one loss over one list, so that rankings,
/// hardest pairs and normalised weights are those of the whole list.
///
/// With a memory, read `n^2` and `n^3` in the time and memory of a loss as `n (n + m)` and `n (n + m)^2`.
///
/// [`crate::cross_batch::CrossBatchMemory`] collects them during training.
#[derive(Clone, Debug)]
pub struct CrossBatchRows<'a> {
    /// `[m, d]`, in the form in which the loss gets the batch's embeddings (normalised if they are).
    pub embeddings: Tensor<2>,
    /// Labels of the `m` rows.
    pub labels: Labels<'a>,
}

/// The queries of a loss and the gallery in which each has its ranked list: the batch's `n` samples, then
/// the memory's `m`.
#[derive(Clone, Debug)]
pub struct Lists<'a> {
    embeddings: Tensor<2>,
    labels: Labels<'a>,
    /// Absent if empty, so that an empty memory changes no bit.
    memory: Option<CrossBatchRows<'a>>,
}

impl<'a> Lists<'a> {
    /// The lists of a batch; an empty memory is none.
    ///
    /// # Panics
    ///
    /// If embeddings and labels disagree about their number, or the memory's embeddings and the batch's about
    /// their dimensions.
    pub fn new(embeddings: Tensor<2>, labels: Labels<'a>, memory: Option<CrossBatchRows<'a>>) -> Self {
        let [n, d] = embeddings.dims();
        assert_eq!(n, labels.len(), "{n} embeddings and {} labels", labels.len());
        let memory = memory.filter(|memory| !memory.labels.is_empty()).map(|memory| {
            let [m, memory_d] = memory.embeddings.dims();
            assert_eq!(m, memory.labels.len(), "a memory of {m} rows and {} labels", memory.labels.len());
            assert_eq!(d, memory_d, "embeddings are {n} x {d}, the memory is {m} x {memory_d}");
            let rows = memory.embeddings.without_autodiff().cast(embeddings.dtype());
            CrossBatchRows { embeddings: rows, labels: memory.labels }
        });
        Lists { embeddings, labels, memory }
    }

    /// Number of queries and number of samples in the gallery, the query itself included.
    pub fn dims(&self) -> [usize; 2] {
        [self.labels.len(), self.labels.len() + self.memory.as_ref().map_or(0, |memory| memory.labels.len())]
    }

    /// The queries, `[n, d]`, tracked.
    pub fn embeddings(&self) -> &Tensor<2> {
        &self.embeddings
    }

    /// The labels of the queries.
    pub fn labels(&self) -> Labels<'a> {
        self.labels
    }

    /// The memory, if it holds anything; its embeddings are not tracked.
    pub fn memory(&self) -> Option<&CrossBatchRows<'a>> {
        self.memory.as_ref()
    }

    /// The gallery, `[n + m, d]`: the queries, tracked, then the memory.
    pub fn gallery(&self) -> Tensor<2> {
        match &self.memory {
            Some(memory) => Tensor::cat(vec![self.embeddings.clone(), memory.embeddings.clone()], 0),
            None => self.embeddings.clone(),
        }
    }

    /// Distances of the queries to the gallery, `[n, n + m]`, tracked on both sides; see [`distances`].
    pub fn distances(&self) -> Tensor<2> {
        distances(&self.embeddings, &self.gallery())
    }

    /// Inner products of the queries and the gallery, `[n, n + m]`, tracked on both sides.
    pub fn similarities(&self) -> Tensor<2> {
        self.embeddings.clone().matmul(self.gallery().transpose())
    }

    /// The labels of a sample of the gallery.
    pub(crate) fn labels_of(&self, j: usize) -> &'a [u32] {
        match &self.memory {
            Some(memory) if j >= self.labels.len() => memory.labels.of(j - self.labels.len()),
            _ => self.labels.of(j),
        }
    }

    /// Whether each sample of the gallery belongs together with query `i`, which belongs to itself.
    pub(crate) fn relate(&self, i: usize, related: &mut [bool]) {
        let (batch, memory) = related.split_at_mut(self.labels.len());
        self.labels.relate(self.labels.of(i), batch);
        if let Some(of) = &self.memory {
            of.labels.relate(self.labels.of(i), memory);
        }
    }

    /// Whether query `i` and sample `j` of the gallery belong together.
    pub fn related(&self, i: usize, j: usize) -> bool {
        share_a_label(self.labels.of(i), self.labels_of(j))
    }
}
