//! What files of other programs tell of the network and its images.

use std::path::Path;

use gallerist_data::{MAX_SIDE, Size};

use crate::preprocessing::Preprocessing;

/// What a file tells of its network.
#[derive(Clone, Debug)]
pub(crate) struct Described {
    /// The program whose names its tensors have.
    pub(crate) whose: &'static str,
    /// The keys of `[network]` whose values differ from the defaults.
    pub(crate) network: toml::Table,
    /// The preparation of its images.
    pub(crate) images: Preprocessing,
}

/// Mean and standard deviation of torchvision's images.
pub(crate) const IMAGENET: ([f32; 3], [f32; 3]) = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]);
/// Images from -1 to 1.
pub(crate) const HALF: ([f32; 3], [f32; 3]) = ([0.5; 3], [0.5; 3]);

/// Colour images with the values and the size that the files in the folder of a model name; `side` if they name none.
pub(crate) fn preprocessing_beside(model: &Path, side: usize) -> Option<Preprocessing> {
    let beside = Beside::read(model);
    beside.statistics.as_ref()?;
    let size = beside.size.unwrap_or(Size::square(side));
    Some(Preprocessing { size, ..beside.images(side, IMAGENET) })
}

/// Settings from the `config.json` and the `preprocessor_config.json` in the folder of the weights.
#[derive(Default)]
pub(crate) struct Beside {
    /// Mean and standard deviation.
    pub(crate) statistics: Option<(Vec<f32>, Vec<f32>)>,
    /// Value of a white pixel before they are applied.
    pub(crate) range: Option<f32>,
    /// Height and width of the images that the network sees.
    pub(crate) size: Option<Size>,
    /// The activation in the MLPs.
    pub(crate) activation: Option<&'static str>,
    /// timm's name of the network.
    pub(crate) architecture: Option<String>,
}

impl Beside {
    pub(crate) fn read(weights: &Path) -> Self {
        let read = |name: &str| -> Option<serde_json::Value> {
            let path = weights.parent()?.join(name);
            serde_json::from_str(&gallerist_retrieval::file::read_regular_to_string(&path).ok()?).ok()
        };
        let (config, processor) = (read("config.json"), read("preprocessor_config.json"));
        let timm = config.as_ref().and_then(|config| config.get("pretrained_cfg"));
        let three = |of: &serde_json::Value, key: &str| -> Option<Vec<f32>> {
            let found = of.get(key)?;
            // One number is that of all channels.
            let list = found.as_array().cloned().unwrap_or_else(|| vec![found.clone(); 3]);
            let values: Vec<f32> = list.iter().filter_map(|value| Some(value.as_f64()? as f32)).collect();
            (values.len() == 3 && values.iter().all(|v| v.is_finite())).then_some(values)
        };
        let of = |of: Option<&serde_json::Value>, mean: &str, std: &str| {
            Some((three(of?, mean)?, three(of?, std)?))
        };
        let processor = processor.as_ref();
        let is_off = |key: &str| processor.and_then(|of| of.get(key)).is_some_and(|value| value == false);
        let statistics = of(timm, "mean", "std").or_else(|| match is_off("do_normalize") {
            true => Some((vec![0.0; 3], vec![1.0; 3])),
            false => of(processor, "image_mean", "image_std"),
        });
        let factor = processor.and_then(|of| of.get("rescale_factor")?.as_f64());
        let range = match (is_off("do_rescale"), factor) {
            (true, _) => Some(255.0),
            (false, factor) => factor.map(range_of).filter(|range| *range > 0.0 && range.is_finite()),
        };
        let size = timm.and_then(of_timm).or_else(|| of_processor(processor?, is_off("do_center_crop")));
        let config = config.as_ref();
        let hidden = config
            .map(|config| config.get("vision_config").unwrap_or(config))
            .and_then(|config| config.get("hidden_act")?.as_str());
        let architecture = config.and_then(|config| config.get("architecture")?.as_str());
        let activation = match (hidden, architecture) {
            (Some("quick_gelu"), _) => Some("quick_gelu"),
            (Some("gelu_pytorch_tanh" | "gelu_new"), _) => Some("gelu_tanh"),
            (Some("gelu"), _) => Some("gelu"),
            (_, Some(name)) if name.contains("quickgelu") => Some("quick_gelu"),
            _ => None,
        };
        Beside { statistics, range, size, activation, architecture: architecture.map(str::to_owned) }
    }

    /// Colour images with the values of these settings, or else these mean and standard deviation.
    pub(crate) fn images(&self, side: usize, (mean, std): ([f32; 3], [f32; 3])) -> Preprocessing {
        let (mean, std) = self.statistics.clone().unwrap_or((mean.to_vec(), std.to_vec()));
        let images = Preprocessing::rgb(side);
        Preprocessing { mean, std, range: self.range.unwrap_or(images.range), ..images }
    }
}

/// What a factor of pixels from 0 to 255 makes of a white one: 1 of 1 / 255, in whatever digits that is written.
fn range_of(factor: f64) -> f32 {
    let range = 255.0 * factor;
    if (range - 1.0).abs() < 1e-4 { 1.0 } else { range as f32 }
}

/// Height and width from `input_size` of timm: channels, height, width.
fn of_timm(config: &serde_json::Value) -> Option<Size> {
    let [_, height, width] = config.get("input_size")?.as_array()?.as_slice() else { return None };
    size(height, width)
}

/// Height and width from `crop_size`, unless the images are not cropped, or `size`.
fn of_processor(processor: &serde_json::Value, is_whole: bool) -> Option<Size> {
    let of = |key: &str| {
        let named = processor.get(key)?;
        let side = |name: &str| named.get(name);
        match (side("height"), side("width"), side("shortest_edge")) {
            (Some(height), Some(width), _) => size(height, width),
            (_, _, Some(side)) => size(side, side),
            _ => size(named, named),
        }
    };
    (!is_whole).then(|| of("crop_size")).flatten().or_else(|| of("size"))
}

/// The size of images of some sides, if they are sides.
fn size(height: &serde_json::Value, width: &serde_json::Value) -> Option<Size> {
    let side = |value: &serde_json::Value| value.as_u64().filter(|side| (1..=MAX_SIDE as u64).contains(side));
    Some(Size { height: side(height)? as usize, width: side(width)? as usize })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The images that a `preprocessor_config.json` or a `config.json` tells of.
    fn beside(name: &str, content: &str) -> Option<Preprocessing> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(name), content).unwrap();
        preprocessing_beside(&folder.path().join("model.onnx"), 224)
    }

    #[test]
    fn files_beside_a_model_tell_the_values_and_the_size_of_its_images() {
        let of = |further: &str| {
            let half = r#""image_mean":[0.5,0.5,0.5],"image_std":[0.5,0.5,0.5]"#;
            beside("preprocessor_config.json", &format!("{{{half}{further}}}")).unwrap()
        };
        let size = |height, width| Size { height, width };
        assert_eq!((of("").size, of("").range), (size(224, 224), 1.0));
        let factor = of(r#","rescale_factor":0.00392156862745098,"size":160"#);
        assert_eq!((factor.size, factor.range), (size(160, 160), 1.0));
        assert_eq!(of(r#","rescale_factor":0.00784313725490196"#).range, 2.0);
        assert_eq!(of(r#","do_rescale":false"#).range, 255.0);
        assert_eq!(of(r#","do_normalize":false"#).mean, [0.0; 3]);
        assert_eq!(
            of(r#","size":{"shortest_edge":256},"crop_size":{"height":96,"width":128}"#).size,
            size(96, 128)
        );
        let whole = r#","do_center_crop":false,"crop_size":224,"size":{"shortest_edge":320}"#;
        assert_eq!(of(whole).size, size(320, 320));
        for nonsense in
            [r#","size":0"#, r#","size":-3"#, r#","size":1e9"#, r#","size":{"height":"a","width":2}"#]
        {
            assert_eq!(of(nonsense).size, size(224, 224), "{nonsense}");
        }
        let timm =
            r#"{"pretrained_cfg":{"input_size":[3,192,160],"mean":[0.4,0.4,0.4],"std":[0.2,0.2,0.2]}}"#;
        let timm = beside("config.json", timm).unwrap();
        assert_eq!((timm.size, timm.mean), (size(192, 160), vec![0.4; 3]));
        let scalars = r#"{"image_mean":0.5,"image_std":0.25}"#;
        let scalars = beside("preprocessor_config.json", scalars).unwrap();
        assert_eq!((scalars.mean, scalars.std), (vec![0.5; 3], vec![0.25; 3]));
        assert_eq!(beside("config.json", "{not json"), None);
    }
}
