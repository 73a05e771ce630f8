//! The check of the batches that a sampler forms.

use super::batch_sampler::BatchSampler;
use crate::error::Error;
use crate::text::counted;

/// The batches of an epoch of a set of so many `images`, checked. `name` is the sampler's name, for messages.
///
/// # Errors
///
/// [`Error::Sampler`] for an epoch without batches, a batch of another size than
/// [`batch_size`](BatchSampler::batch_size), and an index beyond the set.
///
/// # Example
///
/// ```
/// use gallerist_data::{RandomBatches, RandomBatchesConfig, checked_epoch};
///
/// let sampler = RandomBatches::new(&RandomBatchesConfig { batch_size: 4 }, 11, "photos")?;
/// assert_eq!(checked_epoch(&sampler, "random", 11, 1, 0)?.len(), 2);
/// // A sampler of another set.
/// assert!(checked_epoch(&sampler, "random", 5, 1, 0).is_err());
/// # Ok::<(), gallerist_data::Error>(())
/// ```
pub fn checked_epoch(
    sampler: &dyn BatchSampler,
    name: &str,
    images: usize,
    seed: u64,
    epoch: u64,
) -> Result<Vec<Vec<u32>>, Error> {
    let refused = |problem: String, hint: &str| Error::Sampler {
        name: name.to_owned(),
        epoch,
        problem,
        hint: Some(hint.to_owned()),
    };
    let batches = sampler.epoch(seed, epoch);
    let size = sampler.batch_size();
    if batches.is_empty() {
        let from = counted(images, "image", "images");
        return Err(refused(
            format!("no batch of {size} from {from}"),
            "use smaller batches, or more images",
        ));
    }
    for (number, batch) in batches.iter().enumerate() {
        if batch.len() != size || batch.is_empty() {
            let has = counted(batch.len(), "image", "images");
            return Err(refused(
                format!("batch {number} has {has}, and batch_size() is {size}"),
                "all batches of a sampler have the same size; leave images that do not fill one out of the epoch",
            ));
        }
        if let Some(item) = batch.iter().find(|&&item| item as usize >= images) {
            let has = counted(images, "image", "images");
            return Err(refused(
                format!("batch {number} has the index {item}, and the set has {has}"),
                "indices of images begin at 0",
            ));
        }
    }
    Ok(batches)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(Vec<Vec<u32>>);

    impl BatchSampler for Fixed {
        fn epoch(&self, _: u64, _: u64) -> Vec<Vec<u32>> {
            self.0.clone()
        }

        fn batch_size(&self) -> usize {
            2
        }
    }

    #[test]
    fn an_epoch_that_cannot_be_trained_is_refused() {
        let of = |batches: &[&[u32]]| {
            let sampler = Fixed(batches.iter().map(|batch| batch.to_vec()).collect());
            checked_epoch(&sampler, "fixed", 3, 1, 7).map_err(|e| e.to_string())
        };
        assert_eq!(of(&[&[0, 1], &[2, 2]]), Ok(vec![vec![0, 1], vec![2, 2]]));
        for (batches, problem) in [
            (&[][..], "no batch of 2 from 3 images"),
            (&[&[][..]], "batch 0 has 0 images, and batch_size() is 2"),
            (&[&[0, 1], &[2]], "batch 1 has 1 image, and batch_size() is 2"),
            (&[&[0, 1, 2]], "batch 0 has 3 images, and batch_size() is 2"),
            (&[&[0, 3]], "batch 0 has the index 3, and the set has 3 images"),
        ] {
            assert_eq!(of(batches).unwrap_err(), format!("the sampler `fixed`, epoch 7: {problem}"));
        }
    }
}
