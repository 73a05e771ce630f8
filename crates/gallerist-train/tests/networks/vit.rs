//! Vision transformers equal those of timm, torchvision, open_clip and Hugging Face (`bench/networks/vit.py`).

use std::collections::BTreeMap;

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor, TensorData};
use gallerist_nn::{
    AnyEmbedder, Draw, Gelu, InputShape, Network, NetworkConfig, VitConfig, VitOutput, VitPositions,
};
use gallerist_tensor::pairwise::host;
use gallerist_tensor::params;
use gallerist_weights::{self as weights, Weights};

use crate::formula;
use crate::golden::{Golden, assert_close, gradients_by_name};

/// The width, depth and heads of the networks of the fixtures.
pub(crate) fn small() -> VitConfig {
    VitConfig { width: 32, depth: 2, attention_heads: 2, dimensions: 8, ..Default::default() }
}

/// The keys that the names and shapes of the tensors tell agree with `config`.
fn assert_identified(golden: &Golden, config: &VitConfig) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    params::write(&path, &golden.weights().tensors).unwrap();
    let found = weights::network_of(&path).unwrap().expect("a vision transformer");
    let wanted = toml::Table::try_from(NetworkConfig::from(config.clone())).unwrap();
    let usual = toml::Table::try_from(NetworkConfig::from(VitConfig::default())).unwrap();
    let chosen = ["size", "attention_heads", "dimensions", "output", "norm_epsilon", "activation"];
    for (key, value) in &wanted {
        if !chosen.contains(&key.as_str()) {
            assert_eq!(found.get(key).unwrap_or_else(|| &usual[key]), value, "{key}");
        }
    }
}

fn check(name: &str, config: VitConfig) {
    let golden = Golden::read(name);
    assert_identified(&golden, &config);
    let device = Device::flex().autodiff();
    let (network, _) = golden.network(config.clone(), &device);
    let output = network.valid().forward(golden.images(&Device::flex())).remove(0);
    assert_close(&output, &golden.evaluation[0], 1e-5, &format!("{name}, evaluation"));
    if golden.gradient_norms.is_empty() {
        return;
    }
    let output = network.forward(golden.images(&device)).remove(0);
    assert_close(&output, &golden.training[0], 1e-5, &format!("{name}, training"));
    let cotangent = formula::symmetric("cotangent", output.dims(), &device);
    let gradients = GradientsParams::from_grads((output * cotangent).sum().backward(), &network);
    let mut found = gradients_by_name(&network, &gradients);
    if config.positions == VitPositions::Rotary {
        found = by_names_of_timms_dinov3(found, config.gated_mlp);
    }
    assert_eq!(found.keys().collect::<Vec<_>>(), golden.gradient_norms.keys().collect::<Vec<_>>());
    let largest = golden.gradient_norms.values().fold(0.0, |max: f64, v| max.max(*v));
    for (parameter, wanted) in &golden.gradient_norms {
        let values = &found[parameter];
        let norm = values.iter().map(|v| v * v).sum::<f64>().sqrt();
        let limit = 1e-5 * wanted + 1e-6 * largest;
        assert!(
            (norm - wanted).abs() <= limit,
            "{name}, gradient of {parameter}: {norm} instead of {wanted}"
        );
        let of_formula = formula::unit(&format!("gradient of {parameter}"), values.len());
        let dot: f64 = values.iter().zip(of_formula).map(|(v, u)| v * (2.0 * u - 1.0)).sum();
        // The sum of n products of values of this size.
        let limit = limit * (values.len() as f64).sqrt();
        let wanted = golden.gradient_dots[parameter];
        assert!((dot - wanted).abs() <= limit, "{name}, direction of {parameter}: {dot} instead of {wanted}");
    }
}

/// The gradients of a bias of keys, which stays 0, are 0.
fn by_names_of_timms_dinov3(
    gradients: BTreeMap<String, Vec<f64>>,
    gated: bool,
) -> BTreeMap<String, Vec<f64>> {
    let mut named = BTreeMap::new();
    for (name, values) in gradients {
        if gated && let Some((mlp, field)) = name.split_once(".fc1.") {
            let (gate, other) = values.split_at(values.len() / 2);
            named.insert(format!("{mlp}.fc1_g.{field}"), gate.to_vec());
            named.insert(format!("{mlp}.fc1_x.{field}"), other.to_vec());
            continue;
        }
        match name.strip_suffix(".qkv.bias") {
            Some(layer) => {
                let third = values.len() / 3;
                assert_eq!(values[third..2 * third], vec![0.0; third], "{layer}, keys");
                named.insert(format!("{layer}.q_bias"), values[..third].to_vec());
                named.insert(format!("{layer}.v_bias"), values[2 * third..].to_vec());
            }
            None => {
                _ = named
                    .insert(name.replace(".ls1.gamma", ".gamma_1").replace(".ls2.gamma", ".gamma_2"), values)
            }
        }
    }
    named
}

#[test]
fn transformers_of_patch_14_16_and_32_equal_timms() {
    check("vit-98", VitConfig { patch: 14, depth: 3, ..small() });
    check("vit-224", small());
    check("vit-32", VitConfig { patch: 32, output: VitOutput::Mean, ..small() });
}

#[test]
fn registers_and_learned_scales_equal_timms() {
    check("vit-dinov2", VitConfig { output: VitOutput::ClassAndMean, ..dinov2() });
}

pub(crate) fn dinov2() -> VitConfig {
    VitConfig { patch: 14, registers: 4, layer_scale: true, ..small() }
}

pub(crate) fn dinov3() -> VitConfig {
    VitConfig {
        positions: VitPositions::Rotary,
        key_bias: false,
        registers: 4,
        layer_scale: true,
        norm_epsilon: 1e-5,
        ..small()
    }
}

#[test]
fn dinov3_equals_that_of_timm_and_hugging_face() {
    check("vit-dinov3", dinov3());
    for name in ["vit-dinov3-without-biases", "vit-dinov3-hf"] {
        check(name, VitConfig { dimensions: 0, ..dinov3() });
    }
}

#[test]
fn exports_of_transformers_with_rotary_positions_are_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("exported.safetensors");
    let input = InputShape { channels: 3, height: 32, width: 32 };
    let device = Device::flex();
    let with_patches = |config: VitConfig| VitConfig { patch: 16, ..config };
    for config in [
        dinov3(),
        VitConfig { layer_scale: false, ..dinov3() },
        VitConfig { registers: 0, ..dinov3() },
        VitConfig { key_bias: true, ..dinov3() },
    ] {
        let init =
            |seed| NetworkConfig::from(with_patches(config.clone())).init(input, seed, &device).unwrap();
        // Biases begin at 0, and those of keys stay there without `key_bias`.
        let mut tensors = params::collect(&init(1));
        for (name, data) in &mut tensors {
            if name.contains("qkv") && name.ends_with("bias") {
                let count = data.shape()[0];
                let of_key = |i: usize| (count / 3..2 * count / 3).contains(&i) && !config.key_bias;
                let values = (0..count).map(|i| if of_key(i) { 0.0 } else { (i as f32).sin() });
                *data = TensorData::new(values.collect::<Vec<f32>>(), [count]);
            }
        }
        let (from, mismatch) = params::load(init(1), tensors);
        assert!(mismatch.is_empty());
        weights::save_safetensors(&from, &path, BTreeMap::new()).unwrap();
        let (to, report) = weights::load(init(2), weights::read(&path).unwrap()).unwrap();
        assert!(report.missing.is_empty() && report.refused.is_empty(), "{config:?}: {report:?}");
        assert_eq!(params::collect(&to), params::collect(&from), "{config:?}");
    }
}

#[test]
fn fingerprints_of_other_transformers_stay_as_they_were() {
    let written = |config: VitConfig| toml::to_string(&NetworkConfig::from(config)).unwrap();
    assert!(["positions", "key_bias", "gated_mlp"].iter().all(|key| !written(small()).contains(key)));
    let of_dinov3 = written(dinov3());
    assert!(
        of_dinov3.contains("positions = \"rotary\"") && of_dinov3.contains("key_bias = false"),
        "{of_dinov3}"
    );
}

#[test]
fn the_names_of_the_authors_of_dinov3_are_read_and_masked_biases_of_keys_left_out() {
    let golden = Golden::read("vit-dinov3");
    let mut tensors = golden.weights().tensors;
    let registers = tensors.remove("reg_token").unwrap();
    tensors.insert("storage_tokens".into(), registers);
    tensors.insert("rope_embed.periods".into(), TensorData::from([1.0f32, 1.8, 3.2, 5.6]));
    for block in ["blocks.0", "blocks.1"] {
        for branch in 1..3 {
            let scale = tensors.remove(&format!("{block}.gamma_{branch}")).unwrap();
            tensors.insert(format!("{block}.ls{branch}.gamma"), scale);
        }
        let mut of = |part: &str| {
            let data = tensors.remove(&format!("{block}.attn.{part}_bias")).unwrap();
            data.try_into_vec::<f32>().unwrap()
        };
        let bias = [of("q"), vec![0.5; 32], of("v")].concat();
        tensors.insert(format!("{block}.attn.qkv.bias"), TensorData::new(bias, [96]));
        let mask = [vec![1.0f32; 32], vec![0.0; 32], vec![1.0; 32]].concat();
        tensors.insert(format!("{block}.attn.qkv.bias_mask"), TensorData::new(mask, [96]));
    }
    let output = output_of(&golden, dinov3(), tensors);
    assert_close(&output, &golden.evaluation[0], 1e-5, "the authors' names");
}

/// Gated MLPs, whose inner layers have 80 channels.
fn gated(config: VitConfig) -> VitConfig {
    VitConfig { gated_mlp: true, mlp_ratio: 2.5, ..config }
}

#[test]
fn transformers_with_gated_mlps_equal_those_of_timm_and_hugging_face() {
    check("vit-dinov3-gated", gated(dinov3()));
    check("vit-dinov3-gated-hf", VitConfig { dimensions: 0, ..gated(dinov3()) });
    check("vit-dinov2-gated", gated(dinov2()));
}

/// The output of a network of `config` with tensors that have other names.
fn output_of(golden: &Golden, config: VitConfig, tensors: BTreeMap<String, TensorData>) -> Tensor<2> {
    let images = golden.images(&Device::flex());
    let [_, channels, height, width] = images.dims();
    let input = InputShape { channels, height, width };
    let network = NetworkConfig::from(config).init(input, 1, &Device::flex()).unwrap();
    let (network, report) = weights::load(network, Weights { tensors, ..Default::default() }).unwrap();
    assert_eq!(report.refused, []);
    network.forward(images).remove(0)
}

#[test]
fn gated_mlps_by_the_names_of_the_authors_and_of_hugging_face_are_read() {
    let renamed = |name: &str, pairs: &[(&str, &str)]| {
        let tensors = Golden::read(name).weights().tensors.into_iter();
        tensors
            .map(|(name, data)| (pairs.iter().fold(name, |name, (from, to)| name.replace(from, to)), data))
            .collect::<BTreeMap<_, _>>()
    };
    let golden = Golden::read("vit-dinov2-gated");
    let giant = gated(dinov2());
    let tensors = renamed("vit-dinov2-gated", &[("mlp.fc1", "mlp.w12"), ("mlp.fc2", "mlp.w3")]);
    let output = output_of(&golden, giant.clone(), tensors);
    assert_close(&output, &golden.evaluation[0], 1e-5, "DINOv2 of the authors");

    let golden = Golden::read("vit-dinov3-gated");
    let pairs = [("mlp.fc1_g", "mlp.w1"), ("mlp.fc1_x", "mlp.w2"), ("mlp.fc2", "mlp.w3")];
    let output = output_of(&golden, gated(dinov3()), renamed("vit-dinov3-gated", &pairs));
    assert_close(&output, &golden.evaluation[0], 1e-5, "DINOv3 of the authors");

    // Published files have gate and other half together.
    let golden = Golden::read("vit-dinov2-gated-hf");
    let mut tensors = renamed("vit-dinov2-gated-hf", &[("mlp.down_proj", "mlp.weights_out")]);
    for block in 0..2 {
        for field in ["weight", "bias"] {
            let mlp = format!("encoder.layer.{block}.mlp");
            let [gate, up] = ["gate_proj", "up_proj"]
                .map(|part| tensors.remove(&format!("{mlp}.{part}.{field}")).unwrap());
            let mut shape = gate.shape().to_vec();
            shape[0] *= 2;
            let values = [gate, up].map(|data| data.try_into_vec::<f32>().unwrap()).concat();
            tensors.insert(format!("{mlp}.weights_in.{field}"), TensorData::new(values, shape));
        }
    }
    let config = VitConfig { dimensions: 0, norm_epsilon: 1e-6, mlp_ratio: 2.75, ..giant };
    let output = output_of(&golden, config, tensors);
    assert_close(&output, &golden.evaluation[0], 1e-5, "DINOv2 of Hugging Face");
}

#[test]
fn a_file_with_half_of_a_gated_mlp_is_refused() {
    let golden = Golden::read("vit-dinov3-gated-hf");
    let mut tensors = golden.weights().tensors;
    tensors.remove("layer.0.mlp.up_proj.weight").unwrap();
    let input = InputShape { channels: 3, height: 64, width: 64 };
    let config = NetworkConfig::from(VitConfig { dimensions: 0, ..gated(dinov3()) });
    let network = config.init(input, 1, &Device::flex()).unwrap();
    let error = weights::load(network, Weights { tensors, ..Default::default() }).unwrap_err();
    assert!(error.to_string().contains("blocks.0.mlp.fc1.weight"), "{error}");
}

#[test]
fn tensors_of_other_ranks_and_sizes_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    for (name, config) in [
        ("vit-dinov3-gated", gated(dinov3())),
        ("vit-dinov3-gated-hf", gated(dinov3())),
        ("vit-dinov2", dinov2()),
        ("vit-siglip-hf", siglip()),
    ] {
        let golden = Golden::read(name);
        let whole = golden.weights().tensors;
        let [_, channels, height, width] = golden.images(&Device::flex()).dims();
        for tensor in whole.keys() {
            for shape in [
                vec![],
                vec![0],
                vec![1],
                vec![5, 1],
                vec![0, 3],
                vec![1, 0, 2],
                vec![2, 2, 2, 2],
                vec![2, 3, 0, 0],
            ] {
                let mut tensors = whole.clone();
                tensors.insert(tensor.clone(), TensorData::zeros::<f32, _>(shape));
                params::write(&path, &tensors).unwrap();
                // Whether it is a transformer at all may depend on the tensor.
                let _ = weights::network_of(&path);
                let network = NetworkConfig::from(config.clone());
                let network =
                    network.init(InputShape { channels, height, width }, 1, &Device::flex()).unwrap();
                // A head, or a tensor that the network has not, may be left out.
                let _ = weights::load(network, Weights { tensors, ..Default::default() });
            }
        }
    }
}

#[test]
fn exports_of_gated_mlps_have_timms_names_and_are_read_again() {
    for (name, config) in [("vit-dinov3-gated", gated(dinov3())), ("vit-dinov2-gated", gated(dinov2()))] {
        let golden = Golden::read(name);
        let (network, _) = golden.network(config.clone(), &Device::flex());
        let exported = weights::to_pytorch(network.graph().expect("a graph"));
        assert_eq!(
            exported.keys().collect::<Vec<_>>(),
            golden.weights().tensors.keys().collect::<Vec<_>>(),
            "{name}"
        );
        let output = output_of(&golden, config, exported);
        assert_close(&output, &golden.evaluation[0], 1e-5, name);
    }
}

pub(crate) fn clip() -> VitConfig {
    VitConfig {
        patch: 14,
        pre_norm: true,
        activation: Gelu::QuickGelu,
        norm_epsilon: 1e-5,
        projection: 12,
        ..small()
    }
}

pub(crate) fn siglip() -> VitConfig {
    VitConfig {
        patch: 14,
        class_token: false,
        output: VitOutput::Attention,
        activation: Gelu::GeluTanh,
        ..small()
    }
}

#[test]
fn the_tower_of_clip_equals_that_of_timm_open_clip_and_hugging_face() {
    check("vit-clip", clip());
    for name in ["vit-clip-openai", "vit-clip-hf"] {
        check(name, VitConfig { dimensions: 0, ..clip() });
    }
}

#[test]
fn the_tower_of_siglip_equals_that_of_timm_and_hugging_face() {
    check("vit-siglip-gradients", siglip());
    for name in ["vit-siglip", "vit-siglip-hf"] {
        check(name, VitConfig { dimensions: 0, ..siglip() });
    }
}

#[test]
fn the_transformers_of_torchvision_and_hugging_face_are_read() {
    check("vit-torchvision", VitConfig { mlp_ratio: 2.0, dimensions: 0, ..small() });
    check("vit-hf", VitConfig { patch: 14, dimensions: 0, ..small() });
    let dino = VitConfig { dimensions: 0, ..dinov2() };
    check("vit-dinov2-hf", dino);
}

#[test]
fn positions_are_interpolated_as_timm_does_it() {
    let config = VitConfig { patch: 14, output: VitOutput::ClassAndMean, layer_scale: true, ..small() };
    check("vit-interpolated", config.clone());
    check("vit-enlarged", VitConfig { patch: 14, dimensions: 0, ..small() });
    let (_, report) = Golden::read("vit-interpolated").network(config, &Device::flex());
    assert_eq!(report.interpolated, Some([[37; 2], [7; 2]]));
    let told = report.to_string();
    assert!(told.contains("positions interpolated from 37 x 37 to 7 x 7 patches"), "{told}");
}

#[test]
fn positions_of_as_many_patches_in_another_shape_are_interpolated() {
    let config = NetworkConfig::from(VitConfig { patch: 14, dimensions: 0, ..small() });
    let network = |[height, width]: [usize; 2], seed| {
        config.init(InputShape { channels: 3, height, width }, seed, &Device::flex()).unwrap()
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    // 4 x 4 and 2 x 8 patches. Without metadata, as in the files of others, the grid is square.
    let (square, wide) = ([56, 56], [28, 112]);
    weights::save_safetensors(&network(square, 1), &path, BTreeMap::new()).unwrap();
    let load = |size, seed| weights::load(network(size, seed), weights::read(&path).unwrap()).unwrap();
    assert_eq!(load(square, 2).1.interpolated, None);
    let (made, report) = load(wide, 2);
    assert_eq!(report.interpolated, Some([[4, 4], [2, 8]]));
    let positions = |network: &AnyEmbedder| params::collect(network)["pos_embed"].clone();
    assert_ne!(positions(&made), positions(&network(square, 1)));

    // Our own files tell the size of their images.
    for size in [wide, [28, 28 * 7]] {
        let mut image = gallerist_data::ImageConfig::new(224, 3);
        image.size = gallerist_data::Size { height: size[0], width: size[1] };
        let metadata = BTreeMap::from([("image".to_string(), serde_json::to_string(&image).unwrap())]);
        weights::save_safetensors(&network(size, 1), &path, metadata).unwrap();
        let (again, report) = load(size, 2);
        assert_eq!((report.interpolated, positions(&again)), (None, positions(&network(size, 1))));
        assert_eq!(load(square, 2).1.interpolated, Some([[2, size[1] / 14], [4, 4]]));
    }
}

#[test]
fn an_export_has_the_names_of_timm_and_comes_back() {
    for (name, config) in [("vit-clip", clip()), ("vit-siglip-gradients", siglip()), ("vit-dinov3", dinov3())]
    {
        let golden = Golden::read(name);
        let (network, _) = golden.network(config, &Device::flex());
        let exported = weights::to_pytorch(network.graph().unwrap());
        assert_eq!(exported, golden.weights().tensors);
    }
}

#[test]
fn files_of_old_blocks_and_other_prefixes_are_read_and_what_is_left_is_named() {
    let golden = Golden::read("vit-98");
    let config = NetworkConfig::from(VitConfig { patch: 14, depth: 3, ..small() });
    let mut tensors = golden.weights().tensors;
    let mut chunked: std::collections::BTreeMap<_, _> = std::mem::take(&mut tensors)
        .into_iter()
        .map(|(name, data)| (format!("teacher.backbone.{}", name.replace("blocks.", "blocks.0.")), data))
        .collect();
    let token = chunked["teacher.backbone.cls_token"].clone();
    chunked.insert("teacher.backbone.mask_token".into(), token);
    let (_, report) = load(&config, 98, chunked.clone());
    assert_eq!(report.refused.len(), 1);
    assert_eq!(report.refused[0].0, "teacher.backbone.mask_token");
    chunked.remove("teacher.backbone.blocks.0.1.mlp.fc1.weight").unwrap();
    let network = config.init(InputShape { channels: 3, height: 98, width: 98 }, 1, &Device::flex()).unwrap();
    let error = weights::load(network, Weights { tensors: chunked, ..Default::default() }).unwrap_err();
    assert!(error.to_string().contains("blocks.1.mlp.fc1.weight"), "{error}");
    // Of another network: the message has the keys.
    let resnet = NetworkConfig::from(gallerist_nn::ResNetConfig { depth: 18, ..Default::default() });
    let network = resnet.init(InputShape { channels: 3, height: 64, width: 64 }, 1, &Device::flex()).unwrap();
    let error = weights::load(network, golden.weights()).unwrap_err();
    let hint = error.hint().unwrap();
    assert!(hint.contains("kind = \"vit\"") && hint.contains("patch = 14"), "{hint}");
}

fn load(
    config: &NetworkConfig,
    side: usize,
    tensors: std::collections::BTreeMap<String, burn::tensor::TensorData>,
) -> (AnyEmbedder, weights::LoadReport) {
    let input = InputShape { channels: 3, height: side, width: side };
    let network = config.init(input, 1, &Device::flex()).unwrap();
    weights::load(network, Weights { tensors, ..Default::default() }).unwrap()
}

fn images(n: usize, device: &Device) -> Tensor<4> {
    formula::symmetric("images", [n, 3, 28, 28], device)
}

fn of_28(config: VitConfig, device: &Device) -> AnyEmbedder {
    let input = InputShape { channels: 3, height: 28, width: 28 };
    NetworkConfig::from(VitConfig { patch: 14, ..config }).init(input, 1, device).unwrap()
}

#[test]
fn drop_path_depends_on_the_seed_and_the_step_alone_and_is_off_outside_of_training() {
    let device = Device::flex().autodiff();
    let network = of_28(VitConfig { drop_path: 0.5, ..small() }, &device);
    let plain = of_28(small(), &device);
    let draw = Draw { seed: 1, step: 3, batch: 0, first: 0 };
    let of = |draw: Draw| network.forward_training(images(8, &device), draw).remove(0).into_data();
    assert_eq!(of(draw), of(draw));
    assert_ne!(of(draw), of(Draw { step: 4, ..draw }));
    assert_ne!(of(draw), of(Draw { seed: 2, ..draw }));
    assert_ne!(of(draw), of(Draw { batch: 1, ..draw }));
    let usual = plain.forward(images(8, &device)).remove(0).into_data();
    assert_eq!(network.forward(images(8, &device)).remove(0).into_data(), usual);
    assert_eq!(plain.forward_training(images(8, &device), draw).remove(0).into_data(), usual);
}

/// Every gradient of a pass by the names of the parameters, and the output.
fn with_checkpoints(config: VitConfig, checkpoints: bool) -> (Vec<f64>, BTreeMap<String, Vec<f64>>) {
    let device = Device::flex().autodiff();
    let network = of_28(config, &device);
    let draw = Draw { seed: 1, step: 3, batch: 0, first: 0 };
    let cotangent = |y: &Tensor<2>, device: &Device| formula::symmetric::<2>("cotangent", y.dims(), device);
    if checkpoints {
        let (outputs, kept) = network.forward_checkpointed(images(4, &device), draw).unwrap();
        let of_heads = outputs.iter().map(|y| Some(cotangent(y, &y.device()))).collect();
        let gradients = gradients_by_name(&network, &kept.backward(of_heads));
        return (host(&outputs[0]), gradients);
    }
    let output = network.forward_training(images(4, &device), draw).remove(0);
    let of_output = cotangent(&output, &device);
    let gradients = (output.clone() * of_output).sum().backward();
    (host(&output), gradients_by_name(&network, &GradientsParams::from_grads(gradients, &network)))
}

#[test]
fn gradient_checkpointing_changes_no_gradient() {
    let registers = VitConfig { output: VitOutput::ClassAndMean, registers: 2, layer_scale: true, ..small() };
    for config in [
        VitConfig { drop_path: 0.5, depth: 3, ..small() },
        VitConfig { freeze_blocks: 1, depth: 3, ..registers.clone() },
        dinov3(),
        clip(),
    ] {
        let config = VitConfig { patch: 14, ..config };
        let [found, wanted] = [true, false].map(|with| with_checkpoints(config.clone(), with));
        assert!(found == wanted, "{config:?}");
    }
    // The engine computes the attention of a learned query in another way where no gradient is wanted.
    let [(_, found), (_, wanted)] = [true, false].map(|with| with_checkpoints(siglip(), with));
    assert_eq!(found.keys().collect::<Vec<_>>(), wanted.keys().collect::<Vec<_>>());
    let values = |of: &BTreeMap<String, Vec<f64>>| of.values().flatten().copied().collect::<Vec<_>>();
    let largest = values(&wanted).iter().fold(0.0, |most: f64, value| most.max(value.abs()));
    for (found, wanted) in values(&found).iter().zip(values(&wanted)) {
        assert!((found - wanted).abs() < 1e-6 * largest, "{found}, wanted {wanted}");
    }
}

#[test]
fn drop_path_keeps_the_mean_of_a_branch() {
    let device = Device::flex();
    let ones = Tensor::<3>::ones([4000, 1, 1], &device);
    let draw = Draw { seed: 1, step: 1, batch: 0, first: 0 };
    let dropped = gallerist_nn::token_layers::drop_path(ones, "a", 0.25, draw);
    let values = dropped.into_data().try_into_vec::<f32>().unwrap();
    assert!(values.iter().all(|&v| v == 0.0 || (v - 4.0 / 3.0).abs() < 1e-6));
    let mean = values.iter().sum::<f32>() / 4000.0;
    // Four standard deviations of the mean of 4000 values.
    assert!((mean - 1.0).abs() < 4.0 * (0.25f32 / 0.75 / 4000.0).sqrt(), "{mean}");
}

#[test]
fn frozen_blocks_have_no_gradients_and_the_rest_has_the_same() {
    let device = Device::flex().autodiff();
    let gradients = |freeze_blocks: usize| {
        let network = of_28(VitConfig { freeze_blocks, depth: 3, ..small() }, &device);
        let output = network.forward(images(2, &device)).remove(0);
        let gradients = GradientsParams::from_grads(output.square().sum().backward(), &network);
        gradients_by_name(&network, &gradients)
    };
    let (all, some) = (gradients(0), gradients(2));
    let frozen = |name: &str| {
        ["blocks.0.", "blocks.1.", "cls_token", "pos_embed", "patch_embed."]
            .iter()
            .any(|p| name.starts_with(p))
    };
    assert!(some.keys().all(|name| !frozen(name)), "{:?}", some.keys());
    assert_eq!(some.len(), all.keys().filter(|name| !frozen(name)).count());
    assert!(some.iter().all(|(name, values)| *values == all[name]));
}

#[test]
fn the_last_feature_maps_are_the_patches() {
    let device = Device::flex();
    let config = VitConfig { output: VitOutput::Mean, registers: 3, dimensions: 0, ..small() };
    let (outputs, maps) = of_28(config, &device).forward_with_maps(images(2, &device));
    let maps = maps.unwrap();
    assert_eq!(maps.dims(), [2, 32, 2, 2]);
    let mean = maps.flatten::<3>(2, 3).mean_dim(2).squeeze_dim::<2>(2).into_data();
    let wanted: Vec<f64> = outputs[0].to_data().convert::<f64>().try_into_vec().unwrap();
    assert_close(&Tensor::from_data(mean, &device), &wanted, 1e-6, "the mean of the maps");
}

#[test]
fn groups_of_parameters_follow_the_depth() {
    let of = |name: &str| Network::depth_group(name, 12);
    assert_eq!(["cls_token", "pos_embed", "patch_embed.proj.weight", "norm_pre.bias"].map(of), [0; 4]);
    // Of timm's convolutional networks with numbered blocks.
    assert_eq!(["conv_stem.weight", "bn1.bias"].map(of), [0; 2]);
    assert_eq!([of("blocks.0.attn.qkv.weight"), of("blocks.11.ls1.gamma")], [1, 12]);
    assert_eq!(["norm.weight", "head.weight", "proj.weight", "attn_pool.latent"].map(of), [13; 4]);
    assert_eq!(of_28(small(), &Device::flex()).blocks(), Some(2));
}

#[test]
fn parameters_that_do_not_fit_are_refused() {
    let device = Device::flex();
    let input = InputShape { channels: 3, height: 28, width: 30 };
    let error = |config: VitConfig, input| {
        NetworkConfig::from(config).init(input, 1, &device).unwrap_err().to_string()
    };
    let patch = VitConfig { patch: 14, ..small() };
    assert!(error(patch.clone(), input).contains("a multiple of the patch of 14 pixels, such as 28"));
    let input = InputShape { width: 28, ..input };
    assert!(
        error(VitConfig { attention_heads: 5, ..patch.clone() }, input).contains("divisor of the width 32")
    );
    assert!(error(VitConfig { drop_path: 1.0, ..patch.clone() }, input).contains("from 0 to below 1"));
    assert!(error(VitConfig { freeze_blocks: 3, ..patch.clone() }, input).contains("at most 2"));
    assert!(
        error(VitConfig { class_token: false, ..patch.clone() }, input).contains("`mean` or `attention`")
    );
    assert!(error(VitConfig { width: 1 << 24, ..patch }, input).contains("parameters"));
}

#[test]
fn a_run_file_takes_what_it_does_not_set_from_the_weights() {
    use gallerist_train::RunConfig;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("clip.safetensors");
    params::write(&path, &Golden::read("vit-clip-openai").weights().tensors).unwrap();
    let run_file = folder.path().join("run.toml");
    let read = |keys: &str| {
        let text = format!("[network]\nkind = \"vit\"\nweights = \"clip.safetensors\"\n{keys}\n");
        std::fs::write(&run_file, text).unwrap();
        RunConfig::load(&run_file, &[]).unwrap()
    };
    let network =
        |config: &RunConfig| config.network.architecture.downcast_ref::<VitConfig>().unwrap().clone();
    let config = read("attention_heads = 2\ndimensions = 4\nfreeze_blocks = 1\ndrop_path = 0.1");
    let wanted = VitConfig { dimensions: 4, freeze_blocks: 1, drop_path: 0.1, ..clip() };
    assert_eq!(network(&config), wanted);
    let config = read("dimensions = 4");
    let wanted = VitConfig { dimensions: 4, attention_heads: 0, ..clip() };
    assert_eq!(network(&config), wanted);
    assert_eq!((config.image.size.height, config.image.mean[0]), (56, 0.481_454_66));
    let config = read("activation = \"gelu\"\nprojection = 0\n[image]\nsize = 28\nmean = [0.5]");
    assert_eq!((network(&config).activation, network(&config).projection), (Gelu::Gelu, 0));
    assert_eq!((config.image.size.height, config.image.mean[0]), (28, 0.5));
    // What timm and Hugging Face publish with the file.
    let timm = r#"{"architecture": "vit_x_clip_224", "pretrained_cfg": {"mean": [0.1, 0.2, 0.3], "std": [1, 1, 1]}}"#;
    std::fs::write(folder.path().join("config.json"), timm).unwrap();
    assert_eq!(read("").image.mean, [0.1, 0.2, 0.3]);
    let hugging_face = r#"{"vision_config": {"hidden_act": "gelu"}}"#;
    std::fs::write(folder.path().join("config.json"), hugging_face).unwrap();
    assert_eq!(network(&read("")).activation, Gelu::Gelu);
    std::fs::write(folder.path().join("config.json"), "no JSON").unwrap();
    assert_eq!(network(&read("")).activation, Gelu::QuickGelu);
}
