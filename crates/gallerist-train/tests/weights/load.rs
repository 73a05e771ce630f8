//! What becomes of a file's tensors in a network.

use std::collections::BTreeMap;
use std::path::PathBuf;

use burn::tensor::{Device, Tensor, TensorData};
use gallerist_nn::{
    AnyEmbedder, GlobalPool, InputShape, MobileNetV2Config, MobileNetV2Variant, NetworkConfig, ResNetConfig,
    TwoConvConfig,
};
use gallerist_tensor::params;
use gallerist_train::checkpoint::{Checkpoint, Header};
use gallerist_weights::Error;
use gallerist_weights::{self as weights, Weights};

fn network(config: impl Into<NetworkConfig>, seed: u64) -> AnyEmbedder {
    config.into().init(InputShape { channels: 3, height: 32, width: 32 }, seed, &Device::flex()).unwrap()
}

fn resnet(dimensions: usize) -> NetworkConfig {
    ResNetConfig { depth: 18, dimensions, ..Default::default() }.into()
}

/// The file that `network` would be in PyTorch's names, each after `prefix`.
fn file(network: &AnyEmbedder, prefix: &str) -> Weights {
    let tensors = weights::to_pytorch(network.graph().unwrap()).into_iter();
    let tensors = tensors.map(|(name, data)| (format!("{prefix}{name}"), data)).collect();
    Weights { path: PathBuf::from("given.pth"), tensors, ..Default::default() }
}

fn message(outcome: weights::Result<(AnyEmbedder, weights::LoadReport)>) -> String {
    let error = outcome.map(|_| ()).unwrap_err();
    assert!(matches!(error, Error::Weights { .. }));
    format!("{error}; {}", error.hint().unwrap_or_default())
}

#[test]
fn weights_go_out_and_come_back_whatever_stands_before_their_names() {
    for config in [
        resnet(5),
        TwoConvConfig::default().into(),
        ResNetConfig {
            depth: 50,
            pool: GlobalPool::Gem,
            hidden: 7,
            hidden_norm: true,
            dimensions: 7,
            ..Default::default()
        }
        .into(),
        MobileNetV2Config { layout: MobileNetV2Variant::MxNet, ..Default::default() }.into(),
    ] {
        let from = network(config.clone(), 1);
        for prefix in ["", "module.", "state_dict.model.backbone."] {
            let (to, report) = weights::load(network(config.clone(), 2), file(&from, prefix)).unwrap();
            assert!(report.missing.is_empty() && report.refused.is_empty(), "{report}");
            assert_eq!(params::collect(&to), params::collect(&from));
        }
    }
}

#[test]
fn names_and_shapes_that_go_out_are_torchvisions() {
    let tensors = weights::to_pytorch(network(resnet(5), 1).graph().unwrap());
    let shape = |name: &str| tensors[name].shape().to_vec();
    assert_eq!(shape("conv1.weight"), [64, 3, 7, 7]);
    assert_eq!(shape("layer2.0.downsample.1.running_var"), [128]);
    assert_eq!(shape("head.weight"), [5, 512]);
    assert!(tensors.contains_key("bn1.weight") && tensors.contains_key("bn1.bias"));
}

#[test]
fn a_classifier_is_refused_and_a_new_head_stays_fresh() {
    let mut given = file(&network(resnet(0), 1), "");
    given.tensors.insert("fc.weight".into(), TensorData::zeros::<f32, _>([1000, 512]));
    let fresh = network(resnet(9), 2);
    let (loaded, report) = weights::load(fresh.clone(), given).unwrap();
    assert_eq!(report.missing, [("head.weight".into(), vec![512, 9]), ("head.bias".into(), vec![9])]);
    assert_eq!(report.refused, [("fc.weight".into(), vec![1000, 512], "the network has no such tensor")]);
    let text = report.to_string();
    assert!(text.ends_with("2 new (`head.weight`, `head.bias`), 1 not taken (`fc.weight`)"), "{text}");
    assert_eq!(params::collect(&loaded)["head.weight"], params::collect(&fresh)["head.weight"]);
}

#[test]
fn a_head_of_another_length_is_left_out_and_named() {
    let (_, report) = weights::load(network(resnet(9), 2), file(&network(resnet(5), 1), "")).unwrap();
    let refused: Vec<&str> = report.refused.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(refused, ["head.weight", "head.bias"]);
    assert_eq!(report.missing.len(), 2);
}

#[test]
fn a_wrong_shape_is_an_error_that_names_both() {
    let mut given = file(&network(resnet(5), 1), "");
    given.tensors.insert("layer1.0.conv1.weight".into(), TensorData::zeros::<f32, _>([64, 64, 1, 1]));
    let message = message(weights::load(network(resnet(5), 2), given));
    assert!(
        message.contains(
            "`layer1.0.conv1.weight` is [64, 64, 1, 1] in the file, the network's is [64, 64, 3, 3]"
        ),
        "{message}"
    );
}

#[test]
fn images_of_other_channels_than_the_weights_are_named() {
    let mut given = file(&network(resnet(5), 1), "");
    given.tensors.insert("conv1.weight".into(), TensorData::zeros::<f32, _>([64, 1, 7, 7]));
    let error = weights::load(network(resnet(5), 2), given).map(|_| ()).unwrap_err();
    assert!(
        error.hint().unwrap().contains("images of 1 channels, and image.channels is 3"),
        "{:?}",
        error.hint()
    );
}

#[test]
fn weights_of_another_network_are_refused() {
    let mobile = network(MobileNetV2Config::default(), 1);
    let message = message(weights::load(network(resnet(5), 2), file(&mobile, "")));
    assert!(message.contains("the first is `conv1.weight`"), "{message}");
    assert!(message.contains("its names are torchvision's MobileNetV2"), "{message}");
    let mut given = file(&network(resnet(5), 1), "");
    given.tensors.remove("bn1.running_mean");
    let message = self::message(weights::load(network(resnet(5), 2), given));
    assert!(message.contains("1 of the network's") && message.contains("`bn1.running_mean`"), "{message}");
    assert!(message.contains("the file is incomplete"), "{message}");
}

#[test]
fn our_own_checkpoint_is_read() {
    let from = network(resnet(5), 1);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("best.safetensors");
    let momentum = BTreeMap::from([("x".to_string(), TensorData::zeros::<f32, _>([2]))]);
    let checkpoint = Checkpoint {
        header: Header::default(),
        network: params::collect(&from),
        optimizer: momentum,
        ..Default::default()
    };
    checkpoint.save(&path).unwrap();
    let (to, report) = weights::load(network(resnet(5), 2), weights::read(&path).unwrap()).unwrap();
    assert!(report.missing.is_empty() && report.refused.is_empty());
    assert_eq!(params::collect(&to), params::collect(&from));
}

#[test]
fn an_exported_safetensors_file_is_read_back() {
    let from = network(resnet(5), 1);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    weights::save_safetensors(&from, &path, BTreeMap::from([("note".to_string(), "mine".to_string())]))
        .unwrap();
    let (to, _) = weights::load(network(resnet(5), 2), weights::read(&path).unwrap()).unwrap();
    let device = Device::flex();
    let outputs =
        |network: &AnyEmbedder| network.forward(Tensor::ones([1, 3, 32, 32], &device)).remove(0).into_data();
    assert_eq!(outputs(&to), outputs(&from));
}
