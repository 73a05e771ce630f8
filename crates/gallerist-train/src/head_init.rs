//! The first weights of the heads, from the training images.

use std::sync::Arc;

use burn::module::Module;
use gallerist_collective::Collective;
use gallerist_data::{ImageStore, Random, Transform};
use gallerist_tensor::discriminant::{Discriminant, Projection};

use super::RunConfig;
use crate::Result;
use crate::model::Model;
use crate::observer::Watch;
use gallerist_nn::{AnyEmbedder, Embedder, HeadInit, InputShape, Network};

/// The most images that are used.
const IMAGES: usize = 8192;

const ITERATIONS: usize = Discriminant::ITERATIONS;

const EMBEDDING: &str = "first head: embedding images";
const ANALYSING: &str = "first head: discriminant analysis";

/// Initializes the heads of `network` by `network.head_init`, from the images of `set`, and gives them the scale
/// of `network.head_distance` or of the losses ([`wanted_distance`]).
///
/// # Errors
///
/// [`Error::Interrupted`] when the run is to stop; [`Error::Value`] where a head is not linear or has more
/// dimensions than there are images, or the features do not vary within classes; errors of reading images.
pub(super) fn begin(
    network: AnyEmbedder,
    config: &RunConfig,
    input: InputShape,
    images: &ImageStore,
    ranks: &Arc<dyn Collective>,
    watch: &mut Watch<'_>,
) -> Result<AnyEmbedder> {
    let set = images.set();
    let network_config = &config.network;
    let random = network_config.head_init == HeadInit::Random;
    if random && network_config.head_distance.is_none() {
        return Ok(network);
    }
    let refused = |key: &str, wanted: &str, found: String| {
        gallerist_tensor::Error::Value { key: format!("network.{key}"), wanted: wanted.into(), found }.into()
    };
    let layers = network.downcast::<Network>().ok();
    let Some((mut network, features)) = layers.and_then(|network| {
        let features = network.valid().features()?;
        Some((network, features))
    }) else {
        return Err(match network_config.head_distance {
            Some(distance) if random => {
                refused("head_distance", "absent for a network without linear heads", distance.to_string())
            }
            _ => refused("head_init", "random for a network without linear heads", "lda".into()),
        });
    };
    let widths = features.dimensions.clone();
    let mut drawn: Vec<u32> = (0..set.len() as u32).collect();
    Random::new(config.train.seed, "head init", 0, 0).shuffle(&mut drawn);
    drawn.truncate(IMAGES);
    let store = images.subset(&drawn, Transform::evaluation(&config.image)?);
    let model = Model::new(config.clone(), input, features.boxed()).normalized(false).among(ranks.clone());
    let mut embedding = |done, all| watch.phase(EMBEDDING, done, all);
    let embedded = model.embed_items(&Arc::new(store), config.train.loader_threads, &mut embedding)?;
    let rows = embedded.embeddings;
    let largest = network.dimensions.iter().copied().max().unwrap_or(0);
    if rows.rows() <= largest && !random {
        return Err(refused(
            "head_init",
            &format!("random, or more training images than the {largest} dimensions"),
            format!("lda and {} images", rows.rows()),
        ));
    }
    let classes = set.labels().expect("training images have labels");
    let classes: Vec<u32> =
        embedded.items.iter().map(|&item| classes[drawn[item as usize] as usize]).collect();
    let (mut first, heads) = (0, widths.len());
    for (head, width) in widths.into_iter().enumerate() {
        let part: Vec<&[f32]> = (0..rows.rows()).map(|row| &rows.row(row)[first..first + width]).collect();
        let mut analysing =
            |done| watch.phase(ANALYSING, head * (ITERATIONS + 1) + done, heads * (ITERATIONS + 1));
        let projection = match random {
            true => {
                let (weight, bias) = network.head(head);
                Projection { weight, bias }
            }
            false => {
                analysing(0)?;
                let Some(mut analysis) = Discriminant::new(&part, &classes, network.dimensions[head]) else {
                    let among =
                        if set.len() > IMAGES { " among the 8,192 images that are drawn" } else { "" };
                    let wanted = format!(
                        "random where no training class has two images with different features{among}"
                    );
                    return Err(refused("head_init", &wanted, "lda".into()));
                };
                for done in 0..ITERATIONS {
                    analysing(1 + done)?;
                    analysis.iterate();
                }
                analysis.projection()
            }
        };
        let Projection { weight, bias } = match wanted_distance(config, head) {
            Some(distance) => projection.scaled_to(distance, &part),
            None => projection,
        };
        network = network.with_head(head, weight, bias);
        first += width;
    }
    Ok(network.boxed())
}

/// The initial mean distance between the rows of a head: `network.head_distance`, or the largest that a loss on
/// its unnormalised rows declares ([`LossConfig::initial_distance`](gallerist_loss::LossConfig::initial_distance)).
/// `None`: no scaling.
fn wanted_distance(config: &RunConfig, head: usize) -> Option<f64> {
    let name = config.network.heads()[head].name;
    let terms = config.loss.0.iter().filter(|term| term.head.as_deref().is_none_or(|of| of == name));
    let raw = terms.filter(|term| !term.normalizes(config.train.normalize));
    let declared = raw.filter_map(|term| term.loss.initial_distance());
    config.network.head_distance.or_else(|| declared.max_by(f64::total_cmp))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gallerist_loss::LossConfig;

    fn config(text: &str) -> RunConfig {
        RunConfig::parse(text, "a test", &[]).unwrap()
    }

    #[test]
    fn heads_of_losses_on_normalised_rows_keep_their_scale() {
        for name in LossConfig::names() {
            let normalized = config(&format!("train.normalize = true\nloss.name = {name:?}"));
            assert_eq!(wanted_distance(&normalized, 0), None, "{name}");
            let plain = config(&format!("loss.name = {name:?}"));
            if plain.loss.0[0].loss.normalized() {
                assert_eq!(wanted_distance(&plain, 0), None, "{name}");
            }
        }
    }

    #[test]
    fn of_several_losses_on_a_head_the_largest_distance_counts() {
        let text = "[[loss]]\nname = \"rll\"\n[[loss]]\nname = \"srt\"\ntemperature = 1.0\nhead = \"M\"\n[[loss]]\nname = \
                    \"triplet_batch_hard\"\n[network]\nkind = \"bn_inception\"\nheads = [\"L\", \"M\"]";
        let several = config(text);
        assert_eq!([0, 1].map(|head| wanted_distance(&several, head)), [Some(5.0), Some(20.0)]);
        let given = config(&format!("{text}\nhead_distance = 3.0"));
        assert_eq!([0, 1].map(|head| wanted_distance(&given, head)), [Some(3.0); 2]);
    }
}
