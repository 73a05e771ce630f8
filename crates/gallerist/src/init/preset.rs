//! Kinds of images, each with the values of a measured recipe.

use gallerist_data::{DatasetLayout, Survey};

gallerist_util::named_values! {
    /// The kind of images, which decides about augmentation, batch, optimiser and loss.
    ///
    /// The values are those of the run files in `configs/`, which were measured; see
    /// [`recipe`](Self::recipe).
    pub enum Preset {
        /// Products and other objects: the recipe of birds; white borders are trimmed.
        Products = "products", "Photographs of products; white borders are trimmed";
        /// Photographs of kinds that differ in details.
        Birds = "birds", "Photographs of kinds that differ in details (configs/cub200-mobilenetv2.toml)";
        /// Persons and vehicles that are recognised again, cut out of the pictures of cameras.
        Reid = "reid", "Cut-out persons or vehicles (configs/market1501-mobilenetv2.toml)";
        /// Faces, cut out: the recipe of persons, with square images.
        Faces = "faces", "Cut-out faces; the recipe of reid with square images";
        /// Drawings, characters, symbols.
        Drawings = "drawings", "Drawings and characters, grey (configs/omniglot.toml)";
        /// Any images: the pretrained network stays as it is, and only its last layer is computed.
        Features = "features", "The pretrained network unchanged; only its last layer is computed (needs weights)";
    }
}

const BIRDS: (&str, &str) =
    ("configs/cub200-mobilenetv2.toml", include_str!("../../../../configs/cub200-mobilenetv2.toml"));
const REID: (&str, &str) =
    ("configs/market1501-mobilenetv2.toml", include_str!("../../../../configs/market1501-mobilenetv2.toml"));
const DRAWINGS: (&str, &str) = ("configs/omniglot.toml", include_str!("../../../../configs/omniglot.toml"));

/// A run file of `configs/`.
pub(super) struct Recipe {
    /// Its path in the repository.
    pub(super) name: &'static str,
    /// Its keys.
    pub(super) keys: toml::Table,
}

impl Recipe {
    fn of((name, text): (&'static str, &str)) -> Self {
        Recipe { name, keys: text.parse().expect("a run file of the repository") }
    }

    /// The recipe for a network with random weights.
    pub(super) fn from_scratch() -> Self {
        Recipe::of(DRAWINGS)
    }

    /// A whole number of the recipe.
    pub(super) fn number(&self, section: &str, key: &str) -> Option<usize> {
        let value = self.keys.get(section)?.get(key)?.as_integer()?;
        usize::try_from(value).ok()
    }
}

impl Preset {
    /// The preset for images that look so; and why.
    pub(super) fn suiting(survey: &Survey, layout: Option<DatasetLayout>, cameras: bool) -> (Self, String) {
        let most = |part: usize| part > 0 && 2 * part > survey.decoded;
        let grey = survey.decoded - survey.coloured;
        if cameras || survey.height_to_width >= 1.8 {
            let why = match cameras {
                true => "the images have cameras, as for re-identification".to_owned(),
                false => format!(
                    "the images are narrow and high (height is {:.1} times the width), as cut-out persons are",
                    survey.height_to_width
                ),
            };
            (Preset::Reid, why)
        } else if layout == Some(DatasetLayout::OMNIGLOT) || most(grey) && most(survey.on_white) {
            (Preset::Drawings, "the images are grey, on a white ground".into())
        } else if most(grey) && most(survey.on_black) {
            (Preset::Drawings, "the images are grey, on a black ground".into())
        } else if most(survey.white_borders) {
            (Preset::Products, "most images have white borders, as pictures of products have".into())
        } else {
            (Preset::Birds, "the images are photographs".into())
        }
    }

    /// The run file of `configs/` that has the values of augmentation and batch, and of fine-tuning.
    pub(super) fn recipe(self) -> Recipe {
        Recipe::of(match self {
            Preset::Products | Preset::Birds | Preset::Features => BIRDS,
            Preset::Reid | Preset::Faces => REID,
            Preset::Drawings => DRAWINGS,
        })
    }

    /// The run file of `configs/` that has the values of optimiser, schedule and loss for pretrained weights.
    pub(super) fn fine_tuning(self) -> Recipe {
        match self {
            Preset::Drawings => Recipe::of(BIRDS),
            other => other.recipe(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn survey() -> Survey {
        Survey {
            decoded: 10,
            broken: Vec::new(),
            sizes: None,
            height_to_width: 1.0,
            coloured: 10,
            on_white: 0,
            on_black: 0,
            white_borders: 0,
        }
    }

    #[test]
    fn the_look_of_images_chooses_the_preset() {
        let of = |survey: Survey| Preset::suiting(&survey, None, false).0;
        assert_eq!(of(survey()), Preset::Birds);
        assert_eq!(of(Survey { white_borders: 6, ..survey() }), Preset::Products);
        assert_eq!(of(Survey { height_to_width: 2.0, ..survey() }), Preset::Reid);
        assert_eq!(of(Survey { coloured: 0, on_white: 10, white_borders: 10, ..survey() }), Preset::Drawings);
        assert_eq!(of(Survey { coloured: 0, on_black: 10, ..survey() }), Preset::Drawings);
        // Grey photographs.
        assert_eq!(of(Survey { coloured: 0, ..survey() }), Preset::Birds);
        assert_eq!(Preset::suiting(&survey(), None, true).0, Preset::Reid);
        // No image could be read.
        assert_eq!(of(Survey { decoded: 0, coloured: 0, ..survey() }), Preset::Birds);
    }
}
