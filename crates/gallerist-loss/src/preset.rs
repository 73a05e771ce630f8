//! Named settings of the losses: the values that a paper used on a data set.
//!
//! `[loss] preset = "…"` in a run file, or `gallerist loss --preset …`; keys that are also given
//! override the preset.

/// A named setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    /// The name in run files.
    pub name: &'static str,
    /// The keys of `[loss]`, TOML.
    pub keys: &'static str,
    /// Where the values come from.
    pub source: &'static str,
}

const fn preset(name: &'static str, keys: &'static str, source: &'static str) -> Preset {
    Preset { name, keys, source }
}

/// All presets.
pub const PRESETS: &[Preset] = &[
    preset(
        "rll-cvpr",
        "name = \"rll\"\nform = \"cvpr\"\nalpha = 1.2\nmargin = 0.4\nt_neg = 10.0",
        "Wang et al., CVPR 2019",
    ),
    preset(
        "rll-simpler-sop",
        "name = \"rll\"\nmargin = 0.4\nt_neg = 10.0",
        "Wang et al., journal version, Stanford Online Products",
    ),
    preset(
        "rll-simpler-inshop",
        "name = \"rll\"\nmargin = 0.4\nt_neg = 12.0",
        "Wang et al., journal version, In-shop Clothes",
    ),
    preset("nra", "name = \"nra\"\nalpha = 4.0", "Schall et al. 2019"),
    preset("srt", "name = \"srt\"", "Yang et al. 2020"),
    preset("srt-m", "name = \"srt\"\nmargin = 1.0", "Yang et al. 2020, SRT-M"),
    preset("srt-sm", "name = \"srt\"\nsoft = true", "Yang et al. 2020, SRT-SM"),
    preset("srt-h", "name = \"srt\"\nhard_weight = 0.01", "Yang et al. 2020, SRT-H"),
    preset(
        "srt-f",
        "name = \"srt\"\nsoft = true\nhard_weight = 0.01",
        "Yang et al. 2020, SRT-F; give hard_from_step, the step from which the hard terms count",
    ),
    preset("ice-sop", "name = \"ice\"\nscale = 64.0", "Wang et al. 2019, Stanford Online Products"),
    preset(
        "recall-at-k",
        "name = \"recall_at_k\"\nk = [1, 2, 4, 8, 16]\ntemperature = 0.01\nrank_temperature = 1.0",
        "Patel et al., CVPR 2022",
    ),
    preset(
        "recall-at-k-simix",
        "name = \"recall_at_k\"\nk = [1, 2, 4, 8, 16]\nsimix = true",
        "Patel et al., CVPR 2022, with similarity mixup",
    ),
    preset("roadmap", "name = \"roadmap\"\nlambda = 0.5", "Ramzi et al., NeurIPS 2021"),
    preset(
        "roadmap-released",
        "name = \"roadmap\"\noffset = 1.44\ncalibration = \"violating\"\ninclude_query = true",
        "Ramzi et al., NeurIPS 2021, released code, at half its value",
    ),
    preset(
        "potential-field",
        "name = \"potential_field\"\nproxies = 15",
        "Bhatnagar, Ahuja, CVPR 2025, CUB-200-2011 and Cars-196; alpha and delta from the ranges it names",
    ),
    preset(
        "potential-field-sop",
        "name = \"potential_field\"\nproxies = 2",
        "Bhatnagar, Ahuja, CVPR 2025, Stanford Online Products; alpha and delta from the ranges it names",
    ),
    preset(
        "hyperbolic",
        "name = \"hyperbolic\"\ncurvature = 0.1\ntemperature = 0.2\nclip = 2.3",
        "Ermolov et al., CVPR 2022",
    ),
    preset("hist-cub", "name = \"hist\"\ntau = 32.0\nalpha = 1.1", "Lim et al., CVPR 2022, CUB-200-2011"),
    preset("hist-cars", "name = \"hist\"\ntau = 32.0\nalpha = 0.9", "Lim et al., CVPR 2022, Cars-196"),
    preset(
        "hist-sop",
        "name = \"hist\"\ntau = 16.0\nalpha = 2.0",
        "Lim et al., CVPR 2022, Stanford Online Products",
    ),
    preset("triplet-facenet", "name = \"triplet_semihard\"\nmargin = 0.2", "Schroff et al. 2015"),
    preset(
        "triplet-nra",
        "name = \"triplet_semihard\"\nmargin = 1.0",
        "the semi-hard triplets that Schall et al. 2019 compare with",
    ),
];

/// The preset of that name.
pub fn find(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LossConfig;

    #[test]
    fn every_preset_is_a_valid_loss() {
        for preset in PRESETS {
            let config: LossConfig =
                toml::from_str(preset.keys).unwrap_or_else(|e| panic!("{}: {e}", preset.name));
            config.validate().unwrap();
        }
    }
}
