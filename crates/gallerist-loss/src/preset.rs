//! Named settings of the losses: the values that a paper used on a data set.
//!
//! `[loss] preset = "…"` in a run file, or `gallerist loss --preset …`; keys that are also given
//! override the preset, except for the name of another loss.

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

// The keys of the losses with several presets, which differ in the arguments.

/// The form with its `alpha`, if that is not derived, and `t_neg`.
macro_rules! rll {
    ($form:literal, $t_neg:literal) => {
        concat!(
            "name = \"rll\"\n",
            $form,
            "\nmargin = 0.4\nt_pos = 0.0\nt_neg = ",
            $t_neg,
            "\nquery_weighting = \"uniform\"\ngradient = \"query\""
        )
    };
}

macro_rules! srt {
    ($margin:literal, $soft:literal, $hard_weight:literal) => {
        concat!(
            "name = \"srt\"\nbalance = 0.5\ntemperature = 1.0\nmargin = ",
            $margin,
            "\nsoft = ",
            $soft,
            "\nhard_weight = ",
            $hard_weight,
            "\nhardest = \"max_min\"\nhard_from_step = 0"
        )
    };
}

macro_rules! recall_at_k {
    ($simix:literal) => {
        concat!(
            "name = \"recall_at_k\"\nk = [1, 2, 4, 8, 16]\ntemperature = 0.01\nrank_temperature = 1.0\n",
            "include_query = false\nsimix = ",
            $simix
        )
    };
}

/// The keys of the calibration term, and whether the query counts.
macro_rules! roadmap {
    ($rest:literal) => {
        concat!(
            "name = \"roadmap\"\ntemperature = 0.01\nrho = 100.0\ndelta = 0.05\nstart = 0.5\nlambda = 0.5\n",
            "positive_margin = 0.9\nnegative_margin = 0.6\n",
            $rest
        )
    };
}

macro_rules! potential_field {
    ($proxies:literal) => {
        concat!(
            "name = \"potential_field\"\nalpha = 4.0\ndelta = 0.2\nproxies = ",
            $proxies,
            "\nreduction = \"mean\"\nclosest = 0.01"
        )
    };
}

macro_rules! hist {
    ($tau:literal, $alpha:literal) => {
        concat!("name = \"hist\"\ntau = ", $tau, "\nalpha = ", $alpha, "\nlambda = 1.0\nhidden = 512")
    };
}

/// All presets. Each gives every parameter, so that it does not change with the defaults.
pub const PRESETS: &[Preset] = &[
    preset("rll-cvpr", rll!("form = \"cvpr\"\nalpha = 1.2", "10.0"), "Wang et al., CVPR 2019"),
    preset(
        "rll-simpler-sop",
        rll!("form = \"journal\"", "10.0"),
        "Wang et al., journal version, Stanford Online Products",
    ),
    preset(
        "rll-simpler-inshop",
        rll!("form = \"journal\"", "12.0"),
        "Wang et al., journal version, In-shop Clothes",
    ),
    preset("nra", "name = \"nra\"\nalpha = 4.0\neps = 0.0001", "Schall et al. 2019"),
    preset("srt", srt!("0.0", "false", "0.0"), "Yang et al., ICIP 2021"),
    preset("srt-m", srt!("1.0", "false", "0.0"), "Yang et al., ICIP 2021, SRT-M"),
    preset("srt-sm", srt!("0.0", "true", "0.0"), "Yang et al., ICIP 2021, SRT-SM"),
    preset(
        "srt-h",
        srt!("0.0", "false", "0.01"),
        "Yang et al., ICIP 2021, SRT-H; give hard_from_step, the number of steps without the hard terms",
    ),
    preset(
        "srt-f",
        srt!("0.0", "true", "0.01"),
        "Yang et al., ICIP 2021, SRT-F; give hard_from_step, the number of steps without the hard terms",
    ),
    preset(
        "ice-sop",
        "name = \"ice\"\nscale = 64.0\ngradient = \"paper\"",
        "Wang et al. 2019, Stanford Online Products",
    ),
    preset("triplet-facenet", "name = \"triplet_semihard\"\nmargin = 0.2", "Schroff et al. 2015"),
    preset(
        "triplet-nra",
        "name = \"triplet_semihard\"\nmargin = 1.0",
        "the semi-hard triplets that Schall et al. 2019 compare with",
    ),
    preset(
        "triplet-batch-hard",
        "name = \"triplet_batch_hard\"\nmargin = 0.2\nsoft = true",
        "Hermans et al. 2017, soft margin",
    ),
    preset("contrastive", "name = \"contrastive\"\nmargin = 1.0", "default of pytorch-metric-learning"),
    preset("lifted", "name = \"lifted\"\nalpha = 1.0\nsquared = true", "Song et al., CVPR 2016"),
    preset("angular", "name = \"angular\"\nangle = 45.0", "Wang et al., ICCV 2017"),
    preset("histogram", "name = \"histogram\"\nbins = 151", "Ustinova, Lempitsky, NeurIPS 2016"),
    preset(
        "margin",
        "name = \"margin\"\nmargin = 0.2\nbeta = 1.2\nboundary = \"fixed\"\nnu = 0.0\n\
         miner = { name = \"distance_weighted\", near_cutoff = 0.5, far_cutoff = 1.4, seed = 0 }",
        "Wu et al., ICCV 2017, fixed boundary",
    ),
    preset("fast-ap", "name = \"fast_ap\"\nbins = 10", "Cakir et al., CVPR 2019"),
    preset(
        "multi-similarity",
        "name = \"multi_similarity\"\nalpha = 2.0\nbeta = 50.0\nbase = 0.5\n\
         miner = { name = \"multi_similarity\", epsilon = 0.1 }",
        "Wang et al., CVPR 2019",
    ),
    preset("circle-faces", "name = \"circle\"\nmargin = 0.25\ngamma = 256.0", "Sun et al., CVPR 2020, faces"),
    preset(
        "circle-retrieval",
        "name = \"circle\"\nmargin = 0.4\ngamma = 80.0",
        "Sun et al., CVPR 2020, CUB-200-2011, Cars-196 and Stanford Online Products",
    ),
    preset(
        "sup-con",
        "name = \"sup_con\"\ntemperature = 0.1\nform = \"sup_con\"",
        "Khosla et al., NeurIPS 2020",
    ),
    preset("struct-clust", "name = \"struct_clust\"\ngamma = 1.0\nrefinements = 5", "Song et al., CVPR 2017"),
    preset(
        "smooth-ap",
        "name = \"smooth_ap\"\ntemperature = 0.01\ninclude_query = false",
        "Brown et al., ECCV 2020",
    ),
    preset("proxy-nca", "name = \"proxy_nca\"\nscale = 1.0", "Movshovitz-Attias et al., ICCV 2017"),
    preset("norm-softmax", "name = \"norm_softmax\"\ntemperature = 0.05", "Zhai, Wu, BMVC 2019"),
    preset("cos-face", "name = \"cos_face\"\nscale = 64.0\nmargin = 0.35", "Wang et al., CVPR 2018"),
    preset("arc-face", "name = \"arc_face\"\nscale = 64.0\nmargin = 0.5", "Deng et al., CVPR 2019"),
    preset(
        "soft-triple",
        "name = \"soft_triple\"\ncenters = 10\nlambda = 20.0\ngamma = 0.1\nmargin = 0.01\ntau = 0.2",
        "Qian et al., ICCV 2019",
    ),
    preset("proxy-anchor", "name = \"proxy_anchor\"\nalpha = 32.0\ndelta = 0.1", "Kim et al., CVPR 2020"),
    preset("recall-at-k", recall_at_k!("false"), "Patel et al., CVPR 2022"),
    preset("recall-at-k-simix", recall_at_k!("true"), "Patel et al., CVPR 2022, with similarity mixup"),
    preset(
        "roadmap",
        roadmap!("calibration = \"query\"\ninclude_query = false"),
        "Ramzi et al., NeurIPS 2021",
    ),
    preset(
        "roadmap-released",
        roadmap!("offset = 1.44\ncalibration = \"violating\"\ninclude_query = true"),
        "Ramzi et al., NeurIPS 2021, released code, at half its value",
    ),
    preset(
        "potential-field",
        potential_field!("15"),
        "Bhatnagar, Ahuja, CVPR 2025, CUB-200-2011 and Cars-196; alpha and delta from the ranges it names",
    ),
    preset(
        "potential-field-sop",
        potential_field!("2"),
        "Bhatnagar, Ahuja, CVPR 2025, Stanford Online Products; alpha and delta from the ranges it names",
    ),
    preset(
        "hyperbolic",
        "name = \"hyperbolic\"\ncurvature = 0.1\ntemperature = 0.2\nclip = 2.3\nnegatives = \"all\"\n\
         epsilon = 0.0",
        "Ermolov et al., CVPR 2022",
    ),
    preset("hist-cub", hist!("32.0", "1.1"), "Lim et al., CVPR 2022, CUB-200-2011"),
    preset("hist-cars", hist!("32.0", "0.9"), "Lim et al., CVPR 2022, Cars-196"),
    preset("hist-sop", hist!("16.0", "2.0"), "Lim et al., CVPR 2022, Stanford Online Products"),
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

    #[test]
    fn a_preset_gives_every_parameter_that_has_a_default() {
        for preset in PRESETS {
            let given: toml::Table = preset.keys.parse().unwrap();
            let name = given["name"].as_str().unwrap();
            let defaults: LossConfig = toml::from_str(&format!("name = \"{name}\"")).unwrap();
            let defaults: toml::Table = defaults.to_toml().parse().unwrap();
            let missing: Vec<&String> = defaults.keys().filter(|key| !given.contains_key(*key)).collect();
            assert!(missing.is_empty(), "{}: {missing:?}", preset.name);
        }
    }
}
