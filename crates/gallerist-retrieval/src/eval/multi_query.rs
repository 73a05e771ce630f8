//! Several images of one query: multi-query.

use std::collections::HashMap;

use super::Sightings;
use crate::search::Metric;
use crate::{Error, Matrix, Result};

gallerist_util::named_values! {
    /// How several embeddings of one query become one.
    pub enum Pooling {
        /// The mean of each dimension.
        Average = "average", "Mean of each dimension";
        /// The maximum of each dimension.
        Max = "max", "Maximum of each dimension";
    }
}

/// Queries, each of which represents all images of an identity from one camera.
#[derive(Clone, Debug, PartialEq)]
pub struct Pooled {
    /// One embedding per query.
    pub embeddings: Matrix,
    /// The identity of each.
    pub identities: Vec<u32>,
    /// The camera of each.
    pub cameras: Vec<u32>,
    /// The images in each.
    pub images: Vec<usize>,
}

impl Pooled {
    /// The queries as a protocol takes them.
    pub fn sightings(&self) -> Sightings<'_> {
        Sightings { embeddings: &self.embeddings, identities: &self.identities, cameras: &self.cameras }
    }
}

/// Pools the images of each identity and camera, in the order in which these first appear (the
/// multi-query of Zheng et al., Scalable Person Re-identification: A Benchmark, ICCV 2015).
///
/// Under the cosine rows are normalised before they are pooled. Sums are in f64.
///
/// ```
/// use gallerist_retrieval::{Matrix, eval::{Pooling, Sightings, pool_queries}, search::Metric};
///
/// let rows = Matrix::new(3, 2, vec![1.0, 5.0, 3.0, 0.0, 2.0, 2.0])?;
/// let images = Sightings { embeddings: &rows, identities: &[7, 7, 7], cameras: &[1, 1, 2] };
/// let pooled = pool_queries(images, Pooling::Max, Metric::Euclidean)?;
/// assert_eq!(pooled.embeddings.as_slice(), [3.0, 5.0, 2.0, 2.0]);
/// assert_eq!((&pooled.identities[..], &pooled.cameras[..]), (&[7, 7][..], &[1, 2][..]));
/// # Ok::<(), gallerist_retrieval::Error>(())
/// ```
///
/// # Errors
/// [`Error::Count`] when there is not one identity and one camera per row, [`Error::NonFinite`].
pub fn pool_queries(images: Sightings, pooling: Pooling, metric: Metric) -> Result<Pooled> {
    let rows = images.embeddings.rows();
    for (what, found) in [("labels", images.identities.len()), ("cameras", images.cameras.len())] {
        if found != rows {
            return Err(Error::Count { what, rows: "queries", wanted: rows, found });
        }
    }
    images.embeddings.check_finite("queries")?;
    let normalized = (metric == Metric::Cosine).then(|| images.embeddings.l2_normalized().0);
    let embeddings = normalized.as_ref().unwrap_or(images.embeddings);

    let mut places: HashMap<(u32, u32), usize> = HashMap::new();
    let mut members: Vec<Vec<usize>> = Vec::new();
    for row in 0..rows {
        let place = *places.entry((images.identities[row], images.cameras[row])).or_insert_with(|| {
            members.push(Vec::new());
            members.len() - 1
        });
        members[place].push(row);
    }
    let value = |of: &[usize], col: usize| {
        let values = of.iter().map(|&row| f64::from(embeddings.row(row)[col]));
        match pooling {
            Pooling::Average => (values.sum::<f64>() / of.len() as f64) as f32,
            Pooling::Max => values.fold(f64::NEG_INFINITY, f64::max) as f32,
        }
    };
    let data = members.iter().flat_map(|of| (0..embeddings.cols()).map(|col| value(of, col))).collect();
    Ok(Pooled {
        embeddings: Matrix::new(members.len(), embeddings.cols(), data)?,
        identities: members.iter().map(|of| images.identities[of[0]]).collect(),
        cameras: members.iter().map(|of| images.cameras[of[0]]).collect(),
        images: members.iter().map(Vec::len).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_that_of_the_normalised_rows_under_the_cosine() {
        let rows = Matrix::new(3, 2, vec![0.0, 5.0, 1.0, 1.0, 2.0, 0.0]).unwrap();
        let images = Sightings { embeddings: &rows, identities: &[4, 8, 4], cameras: &[0, 0, 0] };
        let pooled = pool_queries(images, Pooling::Average, Metric::Cosine).unwrap();
        assert_eq!(pooled.embeddings.row(0), [0.5, 0.5]);
        assert_eq!(pooled.images, [2, 1]);
        assert_eq!(pooled.identities, [4, 8]);
        let euclidean = pool_queries(images, Pooling::Average, Metric::Euclidean).unwrap();
        assert_eq!(euclidean.embeddings.row(0), [1.0, 2.5]);
        let short = Sightings { cameras: &[0], ..images };
        let error = pool_queries(short, Pooling::Max, Metric::Cosine).unwrap_err();
        assert_eq!(error.to_string(), "1 cameras for 3 queries");
    }
}
