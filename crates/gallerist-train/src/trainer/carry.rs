//! What the loss has learned of each class, when a run continues with other classes.

use std::collections::BTreeMap;
use std::path::Path;

use burn::tensor::{Device, TensorData};
use gallerist_data::Random;
use gallerist_tensor::params;

use crate::checkpoint::Checkpoint;
use crate::config::RunConfig;
use crate::objective::Objective;
use crate::optim::{Part, states_of};
use crate::{Error, Result};

/// Gives each class of `now` the rows that a checkpoint has for the class of its name, in the parameters of the loss and in
/// their optimiser's state. A new class begins with random rows and no state. `objective` is that of the classes of `now`, and
/// `before` names those of the checkpoint, where they are known.
///
/// Returns what to say of it; `None` where nothing has changed.
///
/// # Errors
///
/// Where the loss has learned parameters of each class, and they cannot be told apart.
pub(super) fn carry_over(
    last: &mut Checkpoint,
    path: &Path,
    config: &RunConfig,
    objective: &Objective,
    before: Option<&[String]>,
    now: &[String],
    device: &Device,
) -> Result<Option<String>> {
    let step = last.header.step;
    // The parameters that are longer for one class more are those that have rows for the classes.
    let drawn = fresh(step, config, now.len() + 1, device)?;
    let wanted = params::collect(objective);
    let of_classes: Vec<(&String, &TensorData)> = drawn
        .iter()
        .filter(|(name, data)| wanted.get(*name).is_some_and(|of| of.shape()[..] != data.shape()[..]))
        .collect();
    if of_classes.is_empty() || before == Some(now) {
        return Ok(None);
    }
    let bad = |reason: String| Error::Checkpoint {
        path: path.into(),
        reason,
        hint: Some("put back the images and labels of that step, or start a new run".into()),
    };
    let Some(before) = before else {
        return Err(bad(format!(
            "the loss has learned parameters of each class until step {step}, and which classes these are is not known: \
             `images.csv` of the run is not the list of that step, or the classes are not numbered in the order of their names"
        )));
    };
    let places: BTreeMap<&str, usize> =
        before.iter().enumerate().map(|(place, name)| (name.as_str(), place)).collect();
    let from: Vec<Option<usize>> = now.iter().map(|name| places.get(name.as_str()).copied()).collect();
    for (name, first) in of_classes {
        let zeros = TensorData::zeros::<f32, _>(first.shape().to_vec());
        let moved = |old: &TensorData, new: &TensorData| {
            rows(old, new, &wanted[name].shape()[..], before.len(), &from).ok_or_else(|| {
                bad(format!(
                    "at step {step} there were {} classes, and now there are {}; the parameter `{name}` of the loss does \
                     not have rows for each of them, in their order",
                    before.len(),
                    now.len()
                ))
            })
        };
        // What is missing is named when the parameters are loaded.
        if let Some(old) = last.loss.get_mut(name) {
            *old = moved(old, first)?;
        }
        for state in states_of(&mut last.optimizer, Part::Loss, name) {
            *state = moved(state, &zeros)?;
        }
    }
    let kept = from.iter().flatten().count();
    Ok(Some(format!(
        "the loss keeps what it has learned of {kept} classes (new: {}, gone: {})",
        from.len() - kept,
        before.len() - kept
    )))
}

/// The parameters of the loss for so many classes, with other values than those that the run began with: a new class must not
/// begin with the rows of another one.
fn fresh(
    step: usize,
    config: &RunConfig,
    classes: usize,
    device: &Device,
) -> Result<BTreeMap<String, TensorData>> {
    let mut config = config.clone();
    let mut random = Random::new(config.train.seed, "new classes", step as u64, 0);
    config.train.seed = random.below(usize::MAX) as u64;
    Ok(params::collect(&Objective::new(&config, classes, device)?))
}

/// The rows of `old`, which are those of `before` classes, in the order `from`; a class without a place in it has its rows of
/// `new`, which has one class more than `from`. `None` where the rows are not those of classes, or the result has not the
/// shape `wanted`.
fn rows(
    old: &TensorData,
    new: &TensorData,
    wanted: &[usize],
    before: usize,
    from: &[Option<usize>],
) -> Option<TensorData> {
    let (old_length, old_row) = old.shape()[..].split_first()?;
    let (new_length, row) = new.shape()[..].split_first()?;
    let of_class = new_length / (from.len() + 1);
    let shape = [&[of_class * from.len()][..], row].concat();
    if old_row != row
        || *old_length != of_class * before
        || *new_length != of_class * (from.len() + 1)
        || shape != wanted
    {
        return None;
    }
    let values = of_class * row.iter().product::<usize>();
    let (old, new) = (old.as_slice::<f32>().ok()?, new.as_slice::<f32>().ok()?);
    let of = |(class, place): (usize, &Option<usize>)| match place {
        Some(place) => &old[place * values..][..values],
        None => &new[class * values..][..values],
    };
    let rows: Vec<f32> = from.iter().enumerate().flat_map(of).copied().collect();
    Some(TensorData::new(rows, shape))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_go_with_their_classes() {
        let of = |shape: &[usize], first: f32| {
            let count: usize = shape.iter().product();
            TensorData::new((0..count).map(|i| first + i as f32).collect::<Vec<_>>(), shape.to_vec())
        };
        // Two rows of a class: of two classes before and three now, of which the second is new.
        let (old, new) = (of(&[4, 2], 0.0), of(&[8, 2], 100.0));
        let found = rows(&old, &new, &[6, 2], 2, &[Some(1), None, Some(0)]).unwrap();
        assert_eq!(found.shape().to_vec(), [6, 2]);
        assert_eq!(
            found.as_slice::<f32>().unwrap(),
            [4.0, 5.0, 6.0, 7.0, 104.0, 105.0, 106.0, 107.0, 0.0, 1.0, 2.0, 3.0]
        );
        // One number of a class.
        let found = rows(&of(&[3], 0.0), &of(&[3], 100.0), &[2], 3, &[Some(2), None]).unwrap();
        assert_eq!(found.as_slice::<f32>().unwrap(), [2.0, 101.0]);
        // Classes along another side, rows of another length, and rows that are not of classes.
        assert!(rows(&of(&[2, 3], 0.0), &of(&[2, 4], 0.0), &[2, 3], 3, &[Some(0); 3]).is_none());
        assert!(rows(&of(&[3, 2], 0.0), &of(&[4, 3], 0.0), &[3, 3], 3, &[Some(0); 3]).is_none());
        assert!(rows(&of(&[5, 2], 0.0), &of(&[4, 2], 0.0), &[3, 2], 3, &[Some(0); 3]).is_none());
        assert!(rows(&of(&[12, 4], 0.0), &of(&[12, 4], 0.0), &[12, 3], 4, &[Some(0); 3]).is_none());
    }
}
