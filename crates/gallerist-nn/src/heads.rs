//! The embeddings of a network with several heads, and how they become one.

use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use gallerist_tensor::pairwise::l2_normalize;
use gallerist_tensor::{Error, Result};
use gallerist_util::text::nearest;

/// One of the embeddings that a network returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Its name in the run file.
    pub name: &'static str,
    /// Length of its rows.
    pub dimensions: usize,
}

impl Head {
    /// The head of a network that has one.
    pub fn only(dimensions: usize) -> Self {
        Head { name: "embedding", dimensions }
    }

    /// The only head, by a linear layer to `dimensions`; 0: the unchanged `features`.
    pub fn of_layer(dimensions: usize, features: usize) -> Self {
        Head::only(if dimensions > 0 { dimensions } else { features })
    }
}

gallerist_util::named_values! {
    /// How the outputs of several heads become one row.
    #[derive(Default)]
    pub enum Combine {
        /// The outputs concatenated, then scaled to length 1: a head with long rows has more weight (the authors of
        /// RLL do this).
        #[default]
        ConcatThenNormalize = "concat_then_normalize", "Concatenate the outputs, then scale to length 1";
        /// Each output scaled to length 1, then concatenated: all heads have the same weight.
        NormalizeThenConcat = "normalize_then_concat", "Scale each output to length 1, then concatenate";
    }
}

/// The heads that form the embedding, and how they are combined.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use gallerist_nn::{Combine, HeadChoice};
///
/// let device = Device::flex();
/// let heads = || vec![Tensor::from_floats([[3.0, 0.0]], &device), Tensor::from_floats([[4.0]], &device)];
/// let row = |choice: HeadChoice| choice.embed(heads(), &[0, 1], true).into_data().try_into_vec::<f32>().unwrap();
/// assert_eq!(row(HeadChoice::default()), [0.6, 0.0, 0.8]);
/// let each = HeadChoice { combine: Combine::NormalizeThenConcat, ..Default::default() };
/// assert!((row(each)[2] - 0.5f32.sqrt()).abs() < 1e-6);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HeadChoice {
    /// Names of the heads, in the order of their columns; empty: all of the network.
    pub heads: Vec<String>,
    /// How they become one row.
    pub combine: Combine,
}

impl HeadChoice {
    /// Places of the heads among the network's.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] for a head that the network does not have, or that is named twice.
    pub fn places(&self, of: &[Head]) -> Result<Vec<usize>> {
        if self.heads.is_empty() {
            return Ok((0..of.len()).collect());
        }
        let mut places = Vec::with_capacity(self.heads.len());
        for name in &self.heads {
            let place = place(name, of, "evaluation.heads")?;
            if places.contains(&place) {
                return Err(Error::Value {
                    key: "evaluation.heads".into(),
                    wanted: "heads of the network, each once".into(),
                    found: format!("{:?}", self.heads),
                });
            }
            places.push(place);
        }
        Ok(places)
    }

    /// The embedding of a batch from the outputs of all heads, of which `places` are taken.
    ///
    /// # Shapes
    ///
    /// One `[n, d]` per head to `[n, sum of d]`; rows of length 1 with `normalize`, else the raw
    /// outputs one after the other.
    pub fn embed(&self, outputs: Vec<Tensor<2>>, places: &[usize], normalize: bool) -> Tensor<2> {
        let each = normalize && self.combine == Combine::NormalizeThenConcat;
        let pick = |&place: &usize| match each {
            true => l2_normalize(outputs[place].clone()),
            false => outputs[place].clone(),
        };
        let row = match places {
            [place] => pick(place),
            _ => Tensor::cat(places.iter().map(pick).collect(), 1),
        };
        if normalize { l2_normalize(row) } else { row }
    }

    /// The mark of this choice in a fingerprint; empty for all heads in their usual order.
    pub fn mark(&self) -> String {
        if *self == HeadChoice::default() {
            return String::new();
        }
        let combine = match self.combine {
            Combine::ConcatThenNormalize => "",
            Combine::NormalizeThenConcat => "/each",
        };
        format!("@{}{combine}", self.heads.join("+"))
    }

    /// The fingerprint without its mark, and the choice that the mark encodes.
    pub fn of_fingerprint(fingerprint: &str) -> (&str, HeadChoice) {
        let Some((base, mark)) = fingerprint.split_once('@') else {
            return (fingerprint, HeadChoice::default());
        };
        let (names, combine) = match mark.strip_suffix("/each") {
            Some(names) => (names, Combine::NormalizeThenConcat),
            None => (mark, Combine::ConcatThenNormalize),
        };
        let heads = names.split('+').filter(|name| !name.is_empty()).map(str::to_string).collect();
        (base, HeadChoice { heads, combine })
    }
}

/// Refuses outputs of the network `network` that are not one `[rows, dimensions]` for each of its heads.
///
/// # Errors
///
/// [`Error::Conflict`] with both shapes.
pub fn check_outputs(network: &str, heads: &[Head], rows: usize, outputs: &[Tensor<2>]) -> Result<()> {
    let refused = |message: String| Error::Conflict {
        message: format!("the network `{network}` {message}"),
        hint: "return one tensor `[images, dimensions]` per head from Embedder::forward, in the order of \
               NetworkSpec::heads"
            .into(),
    };
    if outputs.len() != heads.len() {
        return Err(refused(format!("returns {} outputs and has {} heads", outputs.len(), heads.len())));
    }
    for (head, output) in heads.iter().zip(outputs) {
        let (wanted, found) = ([rows, head.dimensions], output.dims());
        if found != wanted {
            let [wanted, found] = [wanted, found].map(|[rows, columns]| format!("[{rows}, {columns}]"));
            return Err(refused(format!(
                "returns an output {found} for the head `{}`, which is {wanted}",
                head.name
            )));
        }
    }
    Ok(())
}

/// The place of the head called `name`.
pub fn place(name: &str, of: &[Head], key: &str) -> Result<usize> {
    let names: Vec<&str> = of.iter().map(|head| head.name).collect();
    names.iter().position(|known| *known == name).ok_or_else(|| {
        let meant =
            nearest(name, &names).map_or(String::new(), |meant| format!(" (did you mean `{meant}`?)"));
        Error::Value {
            key: key.into(),
            wanted: format!("a head of the network: {}", names.join(", ")),
            found: format!("`{name}`{meant}"),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(heads: &[&str], combine: Combine) -> HeadChoice {
        HeadChoice { heads: heads.iter().map(|name| name.to_string()).collect(), combine }
    }

    #[test]
    fn a_choice_comes_back_from_its_fingerprint() {
        for combine in [Combine::ConcatThenNormalize, Combine::NormalizeThenConcat] {
            for heads in [&[][..], &["L"], &["L", "M"]] {
                let choice = choice(heads, combine);
                let fingerprint = format!("0abc{}", choice.mark());
                assert_eq!(HeadChoice::of_fingerprint(&fingerprint), ("0abc", choice));
            }
        }
    }

    #[test]
    fn a_head_that_is_missing_or_named_twice_is_refused() {
        let of = [Head { name: "L", dimensions: 2 }, Head { name: "M", dimensions: 2 }];
        let places = |heads: &[&str]| choice(heads, Combine::default()).places(&of);
        assert_eq!(places(&[]).unwrap(), [0, 1]);
        assert_eq!(places(&["M", "L"]).unwrap(), [1, 0]);
        assert!(places(&["H"]).unwrap_err().to_string().contains("L, M"));
        assert!(places(&["L", "L"]).unwrap_err().to_string().contains("each once"));
    }
}
