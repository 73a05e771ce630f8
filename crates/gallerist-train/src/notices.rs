//! Warnings about a run file before the first step.

use std::collections::BTreeSet;

use gallerist_data::{Image, ImageSet};

use super::RunConfig;
use gallerist_nn::{Embedder, Network};
use gallerist_weights::Preprocessing;

/// Images looked at for colours.
const LOOKED_AT: usize = 8;

/// The warnings, each with the key to change.
pub(super) fn of_start(config: &RunConfig, network: &dyn Embedder, images: &ImageSet) -> Vec<String> {
    let mut notices = Vec::new();
    let size = config.image.size;
    if let Some(stride) = network.total_stride()
        && size.height.min(size.width) < stride
    {
        notices.push(format!(
            "images of {size} pixels are smaller than the stride of {} ({stride} pixels): its last feature maps see \
             nothing but borders; use an image.size of {} or more",
            config.network.name(),
            2 * stride
        ));
    }
    notices.extend(config.warning_of_weights());
    let mut norms = network.graph().into_iter().flat_map(Network::batch_norms);
    if config.network.weights.is_none() && norms.any(|(_, uses_batch)| !uses_batch) {
        notices.push(
            "batch norms are frozen (network.freeze_batch_norm) and no weights are given (network.weights): mean 0 and \
             variance 1 stay, so that they do not normalise; use network.freeze_batch_norm = \"none\""
                .into(),
        );
    }
    if config.image.channels == 1 {
        let step = (images.len() / LOOKED_AT).max(1);
        let drawn = (0..images.len()).step_by(step).take(LOOKED_AT);
        let decoded: Vec<Image> = drawn.filter_map(|i| images.decode(i).ok()).collect();
        let coloured = decoded.iter().filter(|image| image.is_coloured()).count();
        if coloured > 0 {
            notices.push(format!(
                "{coloured} of {} training images looked at are in colour, and the network sees shades of grey \
                 (image.channels = 1); use image.channels = 3",
                decoded.len()
            ));
        }
    }
    notices
}

impl RunConfig {
    /// The warning that the pretrained weights (`network.weights`) were trained on images of other values than this run file
    /// prepares, with the keys to change; `None` if they were not, or nothing is known.
    pub fn warning_of_weights(&self) -> Option<String> {
        let known = self.preprocessing_of_weights()?;
        known.differs(&self.image).then(|| {
            format!(
                "the weights were trained on other values of pixels: {known}; the run file has {}; leave image.channels, \
                 mean, std, range, bgr and invert out to take the weights'",
                Preprocessing::from(&self.image)
            )
        })
    }
}

/// The warnings of settings that begin after the last step.
pub(super) fn of_schedule(config: &RunConfig) -> Vec<String> {
    let steps = config.train.steps;
    let mut notices = Vec::new();
    let warmup = config.schedule.warmup_steps;
    if warmup >= steps && warmup > 0 {
        notices.push(format!(
            "schedule.warmup_steps = {warmup}, and the run has {steps} steps: the learning rate never reaches \
             optimizer.learning_rate"
        ));
    }
    if let Some(xbm) = config.xbm.as_ref().filter(|xbm| xbm.start_step >= steps) {
        notices.push(format!(
            "the cross-batch memory starts at step {} (xbm.start_step), and the run has {steps} steps: it is not used",
            xbm.start_step
        ));
    }
    notices
}

/// The warning that the `first` batch has no positive pair, for a loss that compares the images of a batch with each other.
pub(super) fn of_batches(config: &RunConfig, first: &[u32], images: &ImageSet) -> Option<String> {
    let labels = images.labels().filter(|_| images.label_sets().is_none())?;
    let classes: BTreeSet<u32> = first.iter().map(|&image| labels[image as usize]).collect();
    let compares = config.loss.0.iter().any(|term| term.loss.takes_memory());
    (compares && config.xbm.is_none() && classes.len() == first.len()).then(|| {
        "every image of a batch is of another class, so that no pair attracts; use two images of a class or more \
         (sampler.images_per_class)"
            .to_owned()
    })
}

/// The warning that few of the validation images can find another one of their class.
pub(super) fn of_validation(set: &ImageSet) -> Option<String> {
    let labels = set.labels().filter(|_| set.label_sets().is_none())?;
    let mut sizes = vec![0; set.class_names().len()];
    labels.iter().for_each(|&label| sizes[label as usize] += 1);
    let alone = labels.iter().filter(|&&label| sizes[label as usize] == 1).count();
    let hint = "use validation.fraction = 0, or leave the classes of one image out of the training images";
    match labels.len() {
        all if alone == all => Some(format!(
            "none of the {all} validation images has another image of its class, so the validation measures nothing and the last \
             step is taken; {hint}"
        )),
        all if alone * 2 > all => Some(format!(
            "{alone} of {all} validation images are the only ones of their class, and the validation measures the others; {hint}"
        )),
        _ => None,
    }
}

/// Training images from which a network with random weights can be expected to learn.
const ENOUGH_FROM_SCRATCH: usize = 20_000;

/// The warning that a network which is made to be fine-tuned begins with random weights, and has few images.
pub(super) fn of_little_data(config: &RunConfig, images: usize) -> Option<String> {
    let kind = format!("kind = \"{}\"", config.network.name());
    let source = gallerist_weights::SOURCES.iter().find(|source| source.network.starts_with(&kind))?;
    (config.network.weights.is_none() && images < ENOUGH_FROM_SCRATCH).then(|| {
        format!(
            "{} starts from random weights and has {images} training images: expect little more than chance; \
             `gallerist weights fetch {} --out weights.pth`, then network.weights = \"weights.pth\", starts from \
             ImageNet",
            config.network.name(),
            source.name
        )
    })
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;
    use gallerist_nn::InputShape;

    /// Four images of 64 x 64, of this colour.
    fn images(folder: &std::path::Path, colour: [u8; 3]) -> ImageSet {
        for class in ["a", "b"] {
            std::fs::create_dir_all(folder.join(class)).unwrap();
            for number in 0..2 {
                // A bitmap of 24 bits a pixel.
                let mut file = b"BM".to_vec();
                let bytes = 64 * 64 * 3;
                for word in [54 + bytes, 0, 54, 40, 64, 64, 24 << 16 | 1, 0, bytes, 0, 0, 0, 0u32] {
                    file.extend(word.to_le_bytes());
                }
                (0..64 * 64).for_each(|_| file.extend(colour));
                std::fs::write(folder.join(class).join(format!("{number}.bmp")), file).unwrap();
            }
        }
        ImageSet::open(folder).unwrap()
    }

    fn notices(settings: &[&str], images: &ImageSet) -> Vec<String> {
        let settings: Vec<String> = settings.iter().map(|s| s.to_string()).collect();
        let config = RunConfig::parse("", "a test", &settings).unwrap();
        let size = config.image.size;
        let input = InputShape { channels: config.image.channels, height: size.height, width: size.width };
        let network = config.network.init(input, 1, &Device::flex()).unwrap();
        of_start(&config, &*network, images)
    }

    #[test]
    fn images_smaller_than_the_networks_stride_are_warned_of() {
        let folder = tempfile::tempdir().unwrap();
        let images = images(folder.path(), [90, 90, 90]);
        for (network, small, stride) in [
            ("mobilenet_v2", 16, 32),
            ("efficientnet_lite", 16, 32),
            ("efficientnet", 16, 32),
            ("mobilenet_v3", 16, 32),
            ("googlenet", 31, 32),
            ("resnet", 16, 32),
        ] {
            let kind = format!("network.kind={network}");
            let warned = |side: usize| notices(&[&kind, &format!("image.size={side}")], &images);
            let found = warned(small);
            assert!(
                found.len() == 1 && found[0].contains(&format!("({stride} pixels)")),
                "{network}: {found:?}"
            );
            assert!(warned(64).is_empty(), "{network}");
        }
        assert_eq!(notices(&["network.kind=mobilenet_v2", "image.size=8"], &images).len(), 1);
        // Blocks leave their pooling out on small images.
        assert!(notices(&["network.channels=[4, 4, 4, 4]", "image.size=8"], &images).is_empty());
    }

    #[test]
    fn frozen_batch_norms_without_weights_are_warned_of() {
        let folder = tempfile::tempdir().unwrap();
        let images = images(folder.path(), [90, 90, 90]);
        let warned = |settings: &[&str]| {
            let found = notices(&[&["image.size=32"][..], settings].concat(), &images);
            found.iter().filter(|notice| notice.contains("network.freeze_batch_norm")).count()
        };
        let resnet = ["network.kind=resnet", "network.depth=18"];
        for (freeze, count) in [("none", 0), ("statistics", 1), ("all", 1)] {
            let freeze = &*format!("network.freeze_batch_norm={freeze}");
            assert_eq!(warned(&[resnet[0], resnet[1], freeze]), count, "{freeze}");
            assert_eq!(warned(&[resnet[0], resnet[1], freeze, "network.weights=w.pth"]), 0, "{freeze}");
            // It has no batch norm.
            assert_eq!(warned(&["network.kind=vit", "network.size=ti", "network.depth=1", freeze]), 0);
        }
    }

    #[test]
    fn a_large_network_with_random_weights_and_few_images_is_warned_of() {
        let of = |settings: &[&str], images| {
            let settings: Vec<String> = settings.iter().map(|s| s.to_string()).collect();
            of_little_data(&RunConfig::parse("", "a test", &settings).unwrap(), images)
        };
        let warned = of(&["network.kind=resnet"], 500).unwrap();
        assert!(
            warned.contains("500 training images") && warned.contains("weights fetch resnet18"),
            "{warned}"
        );
        assert_eq!(of(&["network.kind=resnet", "network.weights=w.pth"], 500), None);
        assert_eq!(of(&["network.kind=resnet"], ENOUGH_FROM_SCRATCH), None);
        assert_eq!(of(&["network.kind=conv_blocks"], 500), None);
    }

    #[test]
    fn a_network_of_one_channel_on_colour_photographs_is_warned_of() {
        let (colour, grey) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let colour = images(colour.path(), [200, 90, 40]);
        let grey = images(grey.path(), [90, 92, 91]);
        let small = |channels: &str| ["network.channels=[4]", "image.size=16", channels].map(str::to_string);
        let of = |channels: &str, images: &ImageSet| {
            let settings = small(channels);
            notices(&settings.each_ref().map(|s| s.as_str()), images)
        };
        let found = of("image.channels=1", &colour);
        assert!(found.len() == 1 && found[0].contains("image.channels = 3"), "{found:?}");
        assert!(of("image.channels=1", &grey).is_empty());
        assert!(of("image.channels=3", &colour).is_empty());
    }
}
