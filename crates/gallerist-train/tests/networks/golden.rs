//! Outputs and gradients equal PyTorch's in f64, for weights by a formula.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor, TensorData};
use gallerist_nn::{
    AnyEmbedder, BnInceptionConfig, EfficientNetConfig, EfficientNetLiteConfig, EfficientNetLiteVariant,
    EfficientNetVariant, FreezeBatchNorm, GlobalPool, GoogLeNetConfig, InceptionHead, InputShape,
    MobileNetV2Config, MobileNetV2Variant, MobileNetV3Config, MobileNetV3Size, MobileNetV3Variant,
    NetworkConfig, ResNetConfig,
};
use gallerist_train::RunConfig;
use gallerist_weights::{self as weights, LoadReport, Weights};
use serde::Deserialize;

use crate::formula;

#[derive(Deserialize)]
pub(crate) struct Golden {
    tensors: BTreeMap<String, Vec<usize>>,
    input: [usize; 4],
    pub(crate) evaluation: Vec<Vec<f64>>,
    #[serde(default)]
    pub(crate) training: Vec<Vec<f64>>,
    #[serde(default)]
    pub(crate) gradient_norms: BTreeMap<String, f64>,
    /// The products of the gradients with tensors by the formula.
    #[serde(default)]
    pub(crate) gradient_dots: BTreeMap<String, f64>,
    /// How far the outputs move with the tensors by a part in a million, of the largest.
    #[serde(default)]
    off: f64,
    /// How far the norms of the gradients move then, at most, of each.
    #[serde(default)]
    gradients_off: f64,
}

impl Golden {
    pub(crate) fn read(name: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../fixtures/networks/{name}.json"));
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    }

    pub(crate) fn network(
        &self,
        config: impl Into<NetworkConfig>,
        device: &Device,
    ) -> (AnyEmbedder, LoadReport) {
        let [_, channels, height, width] = self.input;
        let network = config.into().init(InputShape { channels, height, width }, 7, device).unwrap();
        let (network, report) = weights::load(network, self.weights()).unwrap();
        assert_eq!(report.refused, []);
        assert_eq!(report.missing, []);
        let loaded: BTreeSet<&String> = report.loaded.iter().map(|(_, name)| name).collect();
        assert_eq!(loaded.len() + report.folded.len(), self.tensors.len());
        (network, report)
    }

    pub(crate) fn weights(&self) -> Weights {
        let tensors = self.tensors.iter().map(|(name, shape)| (name.clone(), formula::tensor(name, shape)));
        Weights { tensors: tensors.collect(), ..Default::default() }
    }

    pub(crate) fn images(&self, device: &Device) -> Tensor<4> {
        formula::symmetric("input", self.input, device)
    }
}

pub(crate) fn assert_close(found: &Tensor<2>, wanted: &[f64], tolerance: f64, what: &str) {
    let found = found.clone().detach().into_data().convert::<f64>().try_into_vec::<f64>().unwrap();
    assert_eq!(found.len(), wanted.len(), "{what}");
    let scale = wanted.iter().fold(0.0, |max: f64, w| max.max(w.abs()));
    let worst = found.iter().zip(wanted).map(|(f, w)| (f - w).abs()).fold(0.0, f64::max) / scale;
    assert!(worst <= tolerance, "{what}: off by {worst:.1e} of the largest value");
}

/// Norm of every gradient by the parameter's name in PyTorch.
fn gradient_norms(network: &AnyEmbedder, gradients: &GradientsParams) -> BTreeMap<String, f64> {
    let norm = |values: Vec<f64>| values.iter().map(|v| v * v).sum::<f64>().sqrt();
    let gradients = gradients_by_name(network, gradients).into_iter();
    let named = gradients
        .map(|(name, values)| (name.replace("gamma", "weight").replace("beta", "bias"), norm(values)));
    named.collect()
}

/// Every gradient by the parameter's name; of matrices as PyTorch has them.
pub(crate) fn gradients_by_name(
    network: &AnyEmbedder,
    gradients: &GradientsParams,
) -> BTreeMap<String, Vec<f64>> {
    struct Found<'a> {
        path: Vec<String>,
        gradients: &'a GradientsParams,
        found: BTreeMap<String, Vec<f64>>,
    }
    impl ModuleVisitor for Found<'_> {
        fn enter_module(&mut self, name: &str, container: &str) {
            self.path.push(if container.starts_with("Enum:") { String::new() } else { name.into() });
        }
        fn exit_module(&mut self, _: &str, _: &str) {
            self.path.pop();
        }
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if let Some(gradient) = self.gradients.get::<D>(param.id) {
                let path: Vec<&str> =
                    self.path.iter().map(String::as_str).filter(|p| !p.is_empty()).collect();
                // Linear weights are `[outputs, inputs]` in PyTorch.
                let gradient = if D == 2 { gradient.swap_dims(0, 1) } else { gradient };
                let values = gradient.into_data().convert::<f64>().try_into_vec::<f64>().unwrap();
                self.found.insert(path.join("."), values);
            }
        }
    }
    let mut visitor = Found { path: Vec::new(), gradients, found: BTreeMap::new() };
    network.visit(&mut visitor);
    visitor.found
}

fn check(name: &str, config: impl Into<NetworkConfig>) {
    let golden = Golden::read(name);
    let device = Device::flex().autodiff();
    let config = config.into();
    let (network, _) = golden.network(config.clone(), &device);
    let images = golden.images(&device);

    let outputs = network.valid().forward(golden.images(&Device::flex()));
    assert_eq!(outputs.len(), config.heads().len());
    for (i, (found, wanted)) in outputs.iter().zip(&golden.evaluation).enumerate() {
        assert_eq!(found.dims(), [golden.input[0], config.heads()[i].dimensions]);
        assert_close(found, wanted, 1e-5, &format!("{name}, head {i}, evaluation"));
    }
    let outputs = network.forward(images);
    let mut loss = Tensor::<1>::zeros([1], &device);
    for (i, (found, wanted)) in outputs.iter().zip(&golden.training).enumerate() {
        let tolerance = 1e-5 + 2.0 * golden.off;
        assert_close(found, wanted, tolerance, &format!("{name}, head {i}, training"));
        let [n, d] = found.dims();
        let cotangent = formula::unit("cotangent", n * d).into_iter().map(|u| (2.0 * u - 1.0) as f32);
        let cotangent = TensorData::new(cotangent.collect::<Vec<_>>(), [n, d]);
        loss = loss + (found.clone() * Tensor::from_data(cotangent, &device)).sum();
    }
    let gradients = GradientsParams::from_grads(loss.backward(), &network);
    let found = gradient_norms(&network, &gradients);
    assert_eq!(found.keys().collect::<Vec<_>>(), golden.gradient_norms.keys().collect::<Vec<_>>());
    let largest = golden.gradient_norms.values().fold(0.0, |max: f64, v| max.max(*v));
    // A value that rounding carries across 0 before a ReLU, or past its neighbour in a window, moves a
    // gradient by a step: hence the floor.
    let tolerance = 2e-3 + 2.0 * golden.gradients_off;
    for (parameter, wanted) in &golden.gradient_norms {
        let off = (found[parameter] - wanted).abs();
        assert!(
            off <= tolerance * wanted + 1e-6 * largest,
            "{name}, gradient of {parameter}: {} instead of {wanted}",
            found[parameter]
        );
    }
}

#[test]
fn resnet_18_equals_torchvisions() {
    check("resnet18", ResNetConfig { depth: 18, dimensions: 32, ..Default::default() });
}

#[test]
fn resnet_34_with_generalised_mean_equals_pytorchs() {
    check(
        "resnet34-gem",
        ResNetConfig { depth: 34, pool: GlobalPool::Gem, dimensions: 16, ..Default::default() },
    );
}

#[test]
fn resnet_18_with_generalised_mean_and_layer_norm_equals_pytorchs() {
    let config = ResNetConfig {
        depth: 18,
        pool: GlobalPool::Gem,
        layer_norm: true,
        dimensions: 16,
        ..Default::default()
    };
    check("resnet18-gem-norm", config);
}

#[test]
fn resnet_50_with_the_head_of_the_soft_ranking_threshold_equals_pytorchs() {
    check("resnet50-srt", resnet_50_srt());
}

#[test]
fn resnet_50_with_a_normalised_hidden_layer_equals_pytorchs() {
    let config = ResNetConfig {
        depth: 50,
        pool: GlobalPool::Max,
        hidden: 64,
        hidden_norm: true,
        dimensions: 32,
        ..Default::default()
    };
    check("resnet50-trinet", config);
}

/// MobileNetV2 by timm's names.
fn mobilenet_v2_of_timm() -> MobileNetV2Config {
    MobileNetV2Config { layout: MobileNetV2Variant::Timm, dimensions: 16, ..Default::default() }
}

#[test]
fn mobilenet_v2_equals_torchvisions_and_timms() {
    check("mobilenet_v2", MobileNetV2Config { dimensions: 32, ..Default::default() });
    check("mobilenet_v2-timm", mobilenet_v2_of_timm());
}

/// The fixture, the size and the variant of each network with squeeze and excitation.
pub(crate) fn mobilenets_v3() -> [(&'static str, MobileNetV3Config); 4] {
    use MobileNetV3Size::{Large, Small};
    use MobileNetV3Variant::{Timm, TimmTf, Torchvision};
    [
        ("mobilenet_v3-large", Large, Torchvision),
        ("mobilenet_v3-small", Small, Torchvision),
        ("mobilenet_v3-timm", Large, Timm),
        ("mobilenet_v3-tf", Small, TimmTf),
    ]
    .map(|(name, size, layout)| {
        (name, MobileNetV3Config { size, layout, dimensions: 16, ..Default::default() })
    })
}

#[test]
fn mobilenet_v3_equals_torchvisions_and_timms() {
    for (name, config) in mobilenets_v3() {
        check(name, config);
    }
}

pub(crate) fn efficientnets() -> [(&'static str, EfficientNetConfig); 4] {
    use EfficientNetVariant::{EfficientnetPytorch, Timm, TimmTf, Torchvision};
    [
        ("efficientnet_b0", 0, Torchvision, 16),
        ("efficientnet_b2-timm", 2, Timm, 8),
        ("efficientnet_b1-tf", 1, TimmTf, 8),
        ("efficientnet_b0-pytorch", 0, EfficientnetPytorch, 8),
    ]
    .map(|(name, size, layout, dimensions)| {
        (name, EfficientNetConfig { size, layout, dimensions, ..Default::default() })
    })
}

#[test]
fn efficientnet_equals_those_of_three_programs() {
    for (name, config) in efficientnets() {
        check(name, config);
    }
}

/// EfficientNet-Lite0 by timm's names of TensorFlow's weights.
pub(crate) fn efficientnet_lite0() -> EfficientNetLiteConfig {
    EfficientNetLiteConfig { layout: EfficientNetLiteVariant::TimmTf, dimensions: 32, ..Default::default() }
}

#[test]
fn efficientnet_lite_equals_timms() {
    check("efficientnet_lite0-tf", efficientnet_lite0());
    let layout = EfficientNetLiteVariant::Timm;
    check(
        "efficientnet_lite2",
        EfficientNetLiteConfig { size: 2, layout, dimensions: 16, ..Default::default() },
    );
}

#[test]
fn tensorflows_weights_give_the_same_by_both_names() {
    let golden = Golden::read("efficientnet_lite0-tf");
    let device = Device::flex();
    let (network, report) = golden.network(efficientnet_lite0(), &device);
    let wanted = network.forward(golden.images(&device)).remove(0);

    let [_, channels, height, width] = golden.input;
    let config = NetworkConfig::from(EfficientNetLiteConfig {
        layout: EfficientNetLiteVariant::EfficientnetPytorch,
        ..efficientnet_lite0()
    });
    let other = config.init(InputShape { channels, height, width }, 7, &device).unwrap();
    // Both describe the same layers in the same order.
    let names = |network: &AnyEmbedder| -> Vec<String> {
        let slots = network.graph().unwrap().slots().into_iter();
        slots.map(|slot| format!("{}.{}", slot.layer, slot.field)).collect()
    };
    let renamed: BTreeMap<String, String> = names(&network).into_iter().zip(names(&other)).collect();
    let mut tensors = golden.weights().tensors;
    let tensors = report.loaded.iter().map(|(here, name)| {
        let norm = here.ends_with(".gamma") || here.ends_with(".beta");
        let renamed = match norm {
            true => renamed[here].replace("gamma", "weight").replace("beta", "bias"),
            false => renamed[here].clone(),
        };
        (renamed, tensors.remove(name).unwrap())
    });
    let file = Weights { tensors: tensors.collect(), ..Default::default() };
    assert!(file.tensors.contains_key("_blocks.15._project_conv.weight"));
    let (other, report) = weights::load(other, file).unwrap();
    assert_eq!((report.missing, report.refused), (vec![], vec![]));
    assert_eq!(other.forward(golden.images(&device)).remove(0).into_data(), wanted.into_data());
}

#[test]
fn a_file_tells_size_and_variant_of_its_network() {
    let folder = tempfile::tempdir().unwrap();
    let check = |golden: &str, file: &str, config: NetworkConfig, images: &str| {
        let path = folder.path().join(file);
        gallerist_tensor::params::write_with(&path, &Golden::read(golden).weights().tensors, None).unwrap();
        let network = weights::network_of(&path).unwrap().unwrap();
        let found: NetworkConfig = network.try_into().unwrap();
        // The length of the embedding is no part of the weights.
        let mut wanted = toml::Table::try_from(&config).unwrap();
        wanted.insert("dimensions".into(), 128.into());
        assert_eq!(toml::Table::try_from(&found).unwrap(), wanted, "{golden}");
        let of_file = weights::Preprocessing::of_weights(&path, config.name(), None).unwrap();
        assert_eq!(of_file.to_string(), images, "{golden}");
    };
    let imagenet = |side: usize| format!("RGB {side}, mean 0.485 0.456 0.406, std 0.229 0.224 0.225");
    check("mobilenet_v2-timm", "model.safetensors", mobilenet_v2_of_timm().into(), &imagenet(224));
    for (golden, config) in mobilenets_v3() {
        let (file, images) = match config.layout {
            MobileNetV3Variant::Timm => ("mobilenetv3_large_100-427764d5.safetensors", imagenet(224)),
            MobileNetV3Variant::TimmTf => {
                ("model.safetensors", "RGB 224, mean 0.5 0.5 0.5, std 0.5 0.5 0.5".into())
            }
            MobileNetV3Variant::Torchvision => ("model.safetensors", imagenet(224)),
        };
        check(golden, file, config.into(), &images);
    }
    for (golden, config) in efficientnets() {
        let file = match config.layout {
            EfficientNetVariant::Timm => "efficientnet_b2_ra.safetensors",
            _ => "model.safetensors",
        };
        let images = imagenet(EfficientNetConfig::side_of(config.size));
        check(golden, file, config.into(), &images);
    }
}

#[test]
fn the_error_for_weights_of_another_network_names_theirs() {
    let golden = Golden::read("efficientnet_b0");
    let config = NetworkConfig::from(MobileNetV3Config::default());
    let input = InputShape { channels: 3, height: 64, width: 64 };
    let network = config.init(input, 7, &Device::flex()).unwrap();
    let error = weights::load(network, golden.weights()).unwrap_err();
    let (hint, error) = (error.hint().unwrap(), error.to_string());
    assert!(error.contains("`features.0.0.weight` is [32, 3, 3, 3] in the file"), "{error}");
    assert!(hint.contains("torchvision's EfficientNet: use the [network] kind = \"efficientnet\""), "{hint}");
}

#[test]
fn a_file_of_efficientnet_lite_tells_its_network_and_its_images() {
    let folder = tempfile::tempdir().unwrap();
    let golden = |name: &str| Golden::read(name).weights().tensors;
    let of = |path: &str, tensors: BTreeMap<String, TensorData>| {
        let path = folder.path().join(path);
        gallerist_tensor::params::write_with(&path, &tensors, None).unwrap();
        let network = weights::network_of(&path).unwrap().unwrap();
        let images = weights::Preprocessing::of_weights(&path, "efficientnet_lite", None).unwrap();
        (network.to_string(), images.to_string())
    };
    let tf = golden("efficientnet_lite0-tf");
    // The same names of tensors, and nothing that says whose they are.
    let path = folder.path().join("w.safetensors");
    gallerist_tensor::params::write_with(&path, &tf, None).unwrap();
    let run_file = |layout: &str| {
        let text = format!("[network]\nkind = \"efficientnet_lite\"\nweights = \"w.safetensors\"\n{layout}");
        RunConfig::complete(&text, "a test", folder.path(), &[])
    };
    let error = run_file("").unwrap_err();
    assert!(error.hint().unwrap().contains("network.layout = \"timm\""), "{error}");
    for (layout, mean) in [("timm", 0.485), ("timm_tf", 0.5)] {
        let config = run_file(&format!("layout = \"{layout}\"")).unwrap();
        assert_eq!(config.image.mean[0], mean, "{layout}");
    }
    let (network, images) = of("model.safetensors", tf.clone());
    assert_eq!(network, "kind = \"efficientnet_lite\"\nlayout = \"timm_tf\"\n");
    assert_eq!(images, "RGB 224, mean 0.5 0.5 0.5, std 0.5 0.5 0.5");
    let (network, images) = of("efficientnet_lite2-abc.safetensors", golden("efficientnet_lite2"));
    assert_eq!(network, "kind = \"efficientnet_lite\"\nlayout = \"timm\"\nsize = 2\n");
    assert_eq!(images, "RGB 260, mean 0.485 0.456 0.406, std 0.229 0.224 0.225");
    let json = r#"{"architecture": "efficientnet_lite0", "pretrained_cfg": {"mean": [0.1, 0.2, 0.3], "std": [1, 1, 1]}}"#;
    std::fs::write(folder.path().join("config.json"), json).unwrap();
    let (network, images) = of("model.safetensors", tf);
    assert_eq!(network, "kind = \"efficientnet_lite\"\nlayout = \"timm\"\n");
    assert!(images.starts_with("RGB 224, mean 0.1 0.2 0.3"), "{images}");
}

#[test]
fn googlenet_equals_torchvisions() {
    check("googlenet", GoogLeNetConfig { dimensions: 32, ..Default::default() });
}

pub(crate) fn resnet_50_srt() -> ResNetConfig {
    ResNetConfig { depth: 50, pool: GlobalPool::Max, hidden: 1024, dimensions: 128, ..Default::default() }
}

const HEADS: [InceptionHead; 3] = [InceptionHead::L, InceptionHead::M, InceptionHead::H];

pub(crate) fn inception(dimensions: usize) -> BnInceptionConfig {
    BnInceptionConfig { heads: HEADS.to_vec(), dimensions, ..Default::default() }
}

#[test]
fn bn_inception_with_three_heads_equals_pytorchs() {
    check("bn_inception", inception(32));
}

#[test]
fn batch_norms_of_auxiliary_classifiers_are_not_frozen() {
    let config = NetworkConfig { freeze_batch_norm: FreezeBatchNorm::All, ..inception(32).into() };
    let input = InputShape { channels: 3, height: 227, width: 227 };
    let network = config.init(input, 7, &Device::flex()).unwrap();
    let norms: Vec<_> = network.graph().unwrap().batch_norms().collect();
    assert!(
        norms.iter().all(|(name, uses_batch)| *uses_batch == name.starts_with("auxiliary.")),
        "{norms:?}"
    );
    assert_eq!(norms.iter().filter(|(_, uses_batch)| *uses_batch).count(), 4);
    assert!(norms.len() > 50);
}

#[test]
fn biases_of_convolutions_are_folded_into_the_running_means() {
    let golden = Golden::read("bn_inception-biases");
    let device = Device::flex();
    let (network, report) = golden.network(inception(16), &device);
    assert_eq!(report.folded.len(), 69);
    assert!(report.folded.contains(&"inception_3a_1x1.bias".to_string()));
    let outputs = network.forward(golden.images(&device));
    for (found, wanted) in outputs.iter().zip(&golden.evaluation) {
        assert_close(found, wanted, 1e-5, "with biases");
    }
}

#[test]
fn a_network_of_one_head_gives_what_the_network_of_three_gives_there() {
    let golden = Golden::read("bn_inception");
    let device = Device::flex();
    for (i, head) in HEADS.into_iter().enumerate() {
        let [_, channels, height, width] = golden.input;
        let config = NetworkConfig::from(BnInceptionConfig { heads: vec![head], ..inception(32) });
        let network = config.init(InputShape { channels, height, width }, 7, &device).unwrap();
        let tensors = golden.tensors.iter().map(|(name, shape)| (name.clone(), formula::tensor(name, shape)));
        let weights = Weights { tensors: tensors.collect(), ..Default::default() };
        let (network, report) = weights::load(network, weights).unwrap();
        assert!(report.missing.is_empty() && !report.refused.is_empty());
        let output = network.forward(golden.images(&device)).remove(0);
        assert_close(&output, &golden.evaluation[i], 1e-5, head.name());
    }
}

#[test]
fn frozen_batch_norm_gives_the_outputs_of_evaluation_and_keeps_its_statistics() {
    let golden = Golden::read("resnet18");
    let device = Device::flex().autodiff();
    for (freeze, moving) in [(FreezeBatchNorm::Statistics, true), (FreezeBatchNorm::All, false)] {
        let config = NetworkConfig {
            freeze_batch_norm: freeze,
            ..ResNetConfig { depth: 18, dimensions: 32, ..Default::default() }.into()
        };
        let (network, _) = golden.network(config, &device);
        let before = gallerist_tensor::params::collect(&network);
        let output = network.forward(golden.images(&device)).remove(0);
        assert_close(&output, &golden.evaluation[0], 1e-5, "frozen");
        let gradients = GradientsParams::from_grads(output.square().sum().backward(), &network);
        let norms = gradient_norms(&network, &gradients);
        assert_eq!(norms.contains_key("bn1.weight"), moving);
        assert_eq!(norms.contains_key("layer4.1.bn2.bias"), moving);
        assert!(norms["conv1.weight"] > 0.0);
        let after = gallerist_tensor::params::collect(&network);
        for name in ["bn1.running_mean", "bn1.running_var"] {
            assert_eq!(before[name], after[name], "{name}");
        }
    }
}
