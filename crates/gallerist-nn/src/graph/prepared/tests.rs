use gallerist_tensor::params;
use gallerist_util::random::Random;

use super::*;
use crate::config::NetworkConfig;
use crate::embedder::AnyEmbedder;

const IMAGES: usize = 3;

/// A network whose parameters and statistics are random numbers, so that none of them can be left out unnoticed.
fn network(config: &str, input: InputShape) -> AnyEmbedder {
    let config: NetworkConfig = toml::from_str(config).unwrap();
    let network = config.init(input, 1, &Device::flex()).unwrap();
    let mut tensors = params::collect(&network);
    for (name, data) in &mut tensors {
        let mut random = Random::new(3, name, 0, 0);
        let mut draw = |low: f64, high: f64| {
            let shape = data.shape().clone();
            let count = shape.num_elements();
            let values = (0..count).map(|_| random.between(low, high) as f32).collect::<Vec<_>>();
            *data = TensorData::new(values, shape);
        };
        match name.rsplit('.').next().unwrap() {
            "gamma" | "running_var" => draw(0.5, 1.5),
            "beta" | "bias" | "running_mean" => draw(-0.3, 0.3),
            _ => {}
        }
    }
    let (network, mismatch) = params::load(network, tensors);
    assert!(mismatch.is_empty(), "{mismatch}");
    network
}

fn images(input: InputShape) -> Vec<f32> {
    let mut random = Random::new(5, "images", 0, 0);
    let count = IMAGES * input.channels * input.height * input.width;
    (0..count).map(|_| random.between(-1.0, 1.0) as f32).collect()
}

/// The largest cosine distance of two matrices of rows.
fn cosine_distance(a: Tensor<2>, b: Tensor<2>) -> f64 {
    assert_eq!(a.dims(), b.dims());
    let width = a.dims()[1];
    let (a, b) = (host(a), host(b));
    let rows = a.chunks(width).zip(b.chunks(width));
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    rows.map(|(a, b)| 1.0 - dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()).fold(0.0, f64::max)
}

/// The largest difference of two results, relative to the largest value.
fn difference<const D: usize>(a: Tensor<D>, b: Tensor<D>) -> f32 {
    assert_eq!(a.dims(), b.dims());
    let (a, b) = (host(a), host(b));
    let largest = a.iter().fold(0f32, |largest, value| largest.max(value.abs()));
    assert!(largest > 0.0 && largest.is_finite());
    a.iter().zip(&b).fold(0f32, |most, (a, b)| most.max((a - b).abs())) / largest
}

/// Every built-in network: its run file and the sides of its images.
const NETWORKS: [(&str, [usize; 3]); 29] = [
    ("kind = 'conv_blocks'\ndimensions = 32", [1, 28, 28]),
    ("kind = 'conv_blocks'\nchannels = [6, 7]\ndimensions = 5", [3, 13, 10]),
    ("kind = 'two_conv'\ndimensions = 8", [1, 28, 28]),
    ("kind = 'resnet'\ndepth = 18\ndimensions = 64", [3, 96, 64]),
    ("kind = 'resnet'\ndepth = 50\ndimensions = 0", [3, 64, 64]),
    (
        "kind = 'resnet'\ndepth = 18\npool = 'gem'\nhidden = 32\nhidden_norm = true\ndimensions = 16",
        [3, 64, 64],
    ),
    ("kind = 'resnet'\ndepth = 18\npool = 'max'\ndimensions = 16", [3, 40, 56]),
    ("kind = 'resnet'\ndepth = 18\npool = 'gem'\nlayer_norm = true\ndimensions = 16", [3, 64, 64]),
    ("kind = 'bn_inception'\nheads = ['L', 'M', 'H']\ndimensions = 16", [3, 160, 160]),
    ("kind = 'googlenet'\ndimensions = 16", [3, 64, 64]),
    ("kind = 'mobilenet_v2'\ndimensions = 16", [3, 64, 96]),
    ("kind = 'mobilenet_v2'\nlayout = 'mxnet'\ndimensions = 0", [3, 64, 64]),
    ("kind = 'mobilenet_v2'\nlayout = 'timm'", [3, 64, 64]),
    ("kind = 'efficientnet_lite'\ndimensions = 16", [3, 64, 96]),
    ("kind = 'efficientnet_lite'\nlayout = 'timm_tf'\ndimensions = 0", [3, 75, 53]),
    ("kind = 'efficientnet_lite'\nsize = 1\nlayout = 'timm'\npool = 'gem'", [3, 75, 64]),
    ("kind = 'mobilenet_v3'\ndimensions = 16", [3, 64, 96]),
    ("kind = 'mobilenet_v3'\nsize = 'small'\nlayout = 'timm'\npool = 'gem'", [3, 75, 64]),
    ("kind = 'mobilenet_v3'\nlayout = 'timm_tf'\ndimensions = 0", [3, 75, 53]),
    ("kind = 'efficientnet'\ndimensions = 16", [3, 64, 96]),
    ("kind = 'efficientnet'\nsize = 2\nlayout = 'timm_tf'\ndimensions = 0", [3, 75, 53]),
    ("kind = 'vit'\nsize = 'ti'\ndepth = 3\ndimensions = 16", [3, 48, 32]),
    (
        "kind = 'vit'\nsize = 'ti'\ndepth = 2\noutput = 'mean'\nclass_token = false\nlayer_scale = true",
        [3, 32, 32],
    ),
    (
        "kind = 'vit'\nsize = 'ti'\ndepth = 2\noutput = 'class_and_mean'\nregisters = 4\ndrop_path = 0.3",
        [3, 32, 32],
    ),
    (
        "kind = 'vit'\nsize = 'ti'\ndepth = 2\npre_norm = true\nactivation = 'quick_gelu'\nprojection = 24",
        [3, 32, 32],
    ),
    ("kind = 'vit'\nsize = 'ti'\ndepth = 1\nactivation = 'gelu_tanh'\npatch = 14", [3, 28, 42]),
    (
        "kind = 'vit'\nsize = 'ti'\ndepth = 2\noutput = 'class_and_mean'\nregisters = 4\npositions = 'rotary'\n\
         key_bias = false\nlayer_scale = true",
        [3, 48, 80],
    ),
    ("kind = 'vit'\nsize = 'ti'\ndepth = 2\ngated_mlp = true\nmlp_ratio = 2.6", [3, 32, 48]),
    ("kind = 'resnet'\ndepth = 34\ndimensions = 8", [3, 112, 112]),
];

#[test]
fn prepared_networks_give_the_embeddings_and_maps_of_the_network() {
    for (config, [channels, height, width]) in NETWORKS {
        let input = InputShape { channels, height, width };
        let network = network(config, input);
        let images = images(input);
        let tensor = TensorData::new(images.clone(), [IMAGES, channels, height, width]);
        let (wanted, wanted_maps) = network.forward_with_maps(Tensor::from_data(tensor, &Device::flex()));
        // Random weights magnify rounding: how far the embeddings move when all values of the images do, by this part of them.
        let moved = |part: f64| {
            let mut random = Random::new(9, "moves", 0, 0);
            let moved = images.iter().map(|value| value * (1.0 + random.between(-part, part) as f32));
            let tensor = TensorData::new(moved.collect::<Vec<_>>(), [IMAGES, channels, height, width]);
            let moved = network.forward(Tensor::from_data(tensor, &Device::flex()));
            wanted.iter().cloned().zip(moved).collect::<Vec<_>>()
        };
        let off = moved(1e-6).into_iter().map(|(wanted, moved)| difference(wanted, moved));
        let rounding = off.fold(1e-5, f32::max) * 10.0;
        // bf16 has 8 significant bits, and all layers round. Single values of the deepest networks differ by more than half of
        // the largest.
        let turned = moved(1.0 / 256.0).into_iter().map(|(wanted, moved)| cosine_distance(wanted, moved));
        let turned = turned.fold(0.0, f64::max);
        for (products, most_cosine, most) in [
            (Products::F32, 1e-6, rounding),
            (Products::F32Direct, 1e-6, rounding),
            (Products::Bf16, 1e-4 + 50.0 * turned, f32::INFINITY),
        ] {
            let name = format!("{config}, {}", products.name());
            let prepared = network.prepare(input, products).expect(config);
            let (found, found_maps) = prepared.forward_with_maps(&images, IMAGES);
            assert_eq!(found.len(), wanted.len(), "{name}");
            for (found, wanted) in found.into_iter().zip(&wanted) {
                let cosine = cosine_distance(found.clone(), wanted.clone());
                assert!(cosine < most_cosine, "{name}: cosine distance {cosine}");
                let off = difference(found, wanted.clone());
                assert!(off < most, "{name}: embeddings differ by {off}");
            }
            let off = difference(found_maps, wanted_maps.clone().unwrap());
            assert!(off < most, "{name}: maps differ by {off}");
        }
    }
}

#[test]
fn networks_of_convolutions_embed_in_int8() {
    for (config, [channels, height, width]) in NETWORKS {
        let input = InputShape { channels, height, width };
        let network = network(config, input);
        let images = images(input);
        let mut measurement = network.measure(input).expect(config);
        measurement.add(&images, IMAGES);
        let ranges = measurement.finish().expect(config);
        let without = ["'vit'", "'mobilenet_v3'", "'efficientnet'"].iter().any(|kind| config.contains(kind));
        let Some(prepared) = network.prepare_int8(input, &ranges) else {
            assert!(without, "{config} has no form in int8");
            continue;
        };
        assert!(!without, "{config} has a form in int8");
        let wanted = network.prepare(input, Products::F32Direct).unwrap().forward(&images, IMAGES);
        for (found, wanted) in prepared.forward(&images, IMAGES).into_iter().zip(wanted) {
            // The weights are random numbers, and nothing makes their networks bear rounding.
            let cosine = cosine_distance(found, wanted);
            assert!((1e-9..0.05).contains(&cosine), "{config}: cosine distance {cosine}");
        }
    }
}

#[test]
fn one_image_has_the_embedding_that_it_has_in_a_batch() {
    let input = InputShape { channels: 3, height: 64, width: 64 };
    let network = network("kind = 'bn_inception'\ndimensions = 16", input);
    let prepared = network.prepare(input, Products::F32).unwrap();
    let images = images(input);
    let all = prepared.forward(&images, IMAGES).pop().unwrap();
    for (i, image) in images.chunks(images.len() / IMAGES).enumerate() {
        let one = prepared.forward(image, 1).pop().unwrap();
        let off = difference(one, all.clone().narrow(0, i, 1));
        assert!(off < 1e-4, "image {i}: {off}");
    }
}

#[test]
fn a_network_with_attention_of_a_learned_query_is_not_prepared() {
    let input = InputShape { channels: 3, height: 32, width: 32 };
    let config = "kind = 'vit'\nsize = 'ti'\ndepth = 1\nclass_token = false\noutput = 'attention'";
    assert!(network(config, input).prepare(input, Products::F32).is_none());
}

#[test]
fn no_images_have_no_embeddings() {
    let input = InputShape { channels: 1, height: 28, width: 28 };
    let prepared =
        network("kind = 'conv_blocks'\ndimensions = 4", input).prepare(input, Products::F32).unwrap();
    assert_eq!(prepared.forward(&[], 0)[0].dims(), [0, 4]);
}
