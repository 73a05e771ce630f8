//! Layers against their definitions, and networks at the edges of what they take.

use burn::tensor::{Device, Tensor, TensorData};
use gallerist_nn::layers::{Conv, Gem, Init};
use gallerist_nn::{
    BnInceptionConfig, ConvBlocksConfig, EfficientNetConfig, EfficientNetLiteConfig, GlobalPool,
    GoogLeNetConfig, InputShape, MobileNetV2Config, MobileNetV2Variant, MobileNetV3Config, MobileNetV3Size,
    NetworkConfig, ResNetConfig, TwoConvConfig,
};
use gallerist_tensor::params;

use crate::formula;

fn shape(channels: usize, height: usize, width: usize) -> InputShape {
    InputShape { channels, height, width }
}

#[test]
fn every_network_gives_one_row_of_the_promised_length_per_image_and_head() {
    let device = Device::flex();
    let all: [NetworkConfig; 14] = [
        ConvBlocksConfig { channels: vec![4, 4], dimensions: 5, ..Default::default() }.into(),
        TwoConvConfig::default().into(),
        ResNetConfig { depth: 18, dimensions: 0, ..Default::default() }.into(),
        ResNetConfig { depth: 34, pool: GlobalPool::Gem, dimensions: 7, ..Default::default() }.into(),
        GoogLeNetConfig { dimensions: 0, ..Default::default() }.into(),
        BnInceptionConfig { dimensions: 0, ..Default::default() }.into(),
        MobileNetV2Config { dimensions: 0, ..Default::default() }.into(),
        EfficientNetLiteConfig::default().into(),
        EfficientNetLiteConfig { size: 4, dimensions: 0, ..Default::default() }.into(),
        MobileNetV3Config::default().into(),
        MobileNetV3Config { size: MobileNetV3Size::Small, dimensions: 0, ..Default::default() }.into(),
        EfficientNetConfig::default().into(),
        EfficientNetConfig { size: 7, dimensions: 0, ..Default::default() }.into(),
        MobileNetV2Config { layout: MobileNetV2Variant::MxNet, pool: GlobalPool::Max, ..Default::default() }
            .into(),
    ];
    for config in all {
        let network = config.init(shape(3, 64, 64), 1, &device).unwrap();
        for n in [1, 3] {
            let outputs = network.forward(Tensor::zeros([n, 3, 64, 64], &device));
            let found: Vec<[usize; 2]> = outputs.iter().map(Tensor::dims).collect();
            let wanted: Vec<[usize; 2]> = config.heads().iter().map(|head| [n, head.dimensions]).collect();
            assert_eq!(found, wanted, "{}", config.name());
        }
    }
}

#[test]
fn the_small_network_of_the_neighbourhood_rank_experiment_has_two_convolutions_and_a_linear_layer() {
    let network =
        NetworkConfig::from(TwoConvConfig::default()).init(shape(1, 28, 28), 1, &Device::flex()).unwrap();
    let shapes: Vec<(String, Vec<usize>)> =
        params::collect(&network).into_iter().map(|(name, data)| (name, data.shape().to_vec())).collect();
    let wanted: [(&str, &[usize]); 6] = [
        ("conv1.bias", &[32]),
        ("conv1.weight", &[32, 1, 5, 5]),
        ("conv2.bias", &[64]),
        ("conv2.weight", &[64, 32, 5, 5]),
        ("head.bias", &[2]),
        ("head.weight", &[64 * 7 * 7, 2]),
    ];
    assert_eq!(shapes, wanted.map(|(name, shape)| (name.to_string(), shape.to_vec())));
}

#[test]
fn the_same_seed_gives_the_same_weights_whatever_the_head() {
    let weights = |dimensions: usize| {
        let config = ResNetConfig { depth: 18, dimensions, ..Default::default() };
        params::collect(&NetworkConfig::from(config).init(shape(3, 32, 32), 5, &Device::flex()).unwrap())
    };
    let (small, large) = (weights(4), weights(9));
    for (name, value) in &small {
        assert!(name.starts_with("head.") || large[name] == *value, "{name}");
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let message = |config: NetworkConfig, input: InputShape| {
        config.init(input, 1, &Device::flex()).err().map_or(String::new(), |e| e.to_string())
    };
    let resnet = ResNetConfig { depth: 20, ..Default::default() };
    assert_eq!(message(resnet.into(), shape(3, 64, 64)), "`network.depth` must be 18, 34 or 50, not 20");
    let lite = EfficientNetLiteConfig { size: 5, ..Default::default() };
    assert_eq!(message(lite.into(), shape(3, 64, 64)), "`network.size` must be 0 to 4, not 5");
    let inception = BnInceptionConfig { heads: Vec::new(), ..Default::default() };
    assert!(message(inception.into(), shape(3, 64, 64)).starts_with("`network.heads` must be a list of"));
    let hidden = ResNetConfig { hidden: 8, dimensions: 0, ..Default::default() };
    assert!(message(hidden.into(), shape(3, 64, 64)).contains("with a hidden layer"));
    let small = message(GoogLeNetConfig::default().into(), shape(3, 4, 4));
    assert!(
        small.starts_with("`image.size` must be large enough") && small.ends_with("not 4 x 4"),
        "{small}"
    );
    assert_eq!(message(ResNetConfig::default().into(), shape(3, 1, 1)), "");
}

#[test]
fn run_files_name_networks_and_refuse_the_keys_of_others() {
    let parse = |text: &str| toml::from_str::<NetworkConfig>(text).map_err(|e| e.message().to_string());
    let config = parse("kind = 'resnet'\ndepth = 18\nweights = 'w.pth'\nfreeze_batch_norm = 'all'").unwrap();
    assert_eq!(config.architecture.downcast_ref::<ResNetConfig>().unwrap().depth, 18);
    assert_eq!(config.weights.as_deref(), Some(std::path::Path::new("w.pth")));
    assert_eq!(parse(&toml::to_string(&config).unwrap()).unwrap(), config);
    let error = parse("kind = 'resnet'\nchannels = [1]").unwrap_err();
    assert!(error.contains("unknown field `channels`") && error.contains("`weights`"), "{error}");
    assert!(parse("kind = 'resnet'\nfreeze_batch_norm = 'some'").unwrap_err().contains("unknown variant"));
    assert!(parse("kind = 'resnext'").unwrap_err().contains("`bn_inception`"));
}

#[test]
fn a_convolution_in_groups_equals_the_sum_written_out() {
    let device = Device::flex();
    let (channels, out, groups, size) = (6, 4, 2, 3);
    let conv = Conv::new(&Init::new(3, &device), "conv", [channels, out], size, groups)
        .with_stride(2)
        .with_bias(&Init::new(3, &device));
    let [n, h, w] = [2, 5, 6];
    let x = formula::unit("x", n * channels * h * w);
    let weight = conv.weight.val().into_data().convert::<f64>().try_into_vec::<f64>().unwrap();
    let images = TensorData::new(x.iter().map(|&v| v as f32).collect::<Vec<_>>(), [n, channels, h, w]);
    let found = conv.forward(Tensor::from_data(images, &device));
    let [_, _, rows, columns] = found.dims();
    assert_eq!([rows, columns], [3, 3]);
    let found = found.into_data().convert::<f64>().try_into_vec::<f64>().unwrap();
    let inputs = channels / groups;
    for (i, &found) in found.iter().enumerate() {
        let (b, o) = (i / (out * rows * columns), i / (rows * columns) % out);
        let (row, column) = (i / columns % rows, i % columns);
        let mut sum = 0.0;
        for c in 0..inputs {
            for a in 0..size * size {
                let (y, x_) = ((2 * row + a / size).wrapping_sub(1), (2 * column + a % size).wrapping_sub(1));
                if y < h && x_ < w {
                    let channel = o / (out / groups) * inputs + c;
                    sum += weight[(o * inputs + c) * size * size + a]
                        * x[((b * channels + channel) * h + y) * w + x_];
                }
            }
        }
        assert!((found - sum).abs() < 1e-5, "{i}: {found} instead of {sum}");
    }
}

#[test]
fn the_generalised_mean_is_the_definition_and_has_its_derivatives() {
    let device = Device::flex().autodiff();
    let gem = Gem::new(&Init::new(1, &device));
    let values = [0.5, 2.0, 1.0, 4.0, 0.0, 0.0, 0.0, 3.0];
    let x = Tensor::<1>::from_floats(values, &device).reshape([1, 2, 2, 2]).require_grad();
    let y = gem.forward(x.clone());
    let mean = |p: f64, values: &[f32]| {
        let sum: f64 = values.iter().map(|&v| f64::from(v).max(1e-6).powf(p)).sum();
        (sum / values.len() as f64).powf(1.0 / p)
    };
    let found = y.clone().into_data().convert::<f64>().try_into_vec::<f64>().unwrap();
    let wanted = [mean(3.0, &values[..4]), mean(3.0, &values[4..])];
    for (f, w) in found.iter().zip(wanted) {
        assert!((f - w).abs() < 1e-6 * w, "{f} instead of {w}");
    }
    let gradients = y.sum().backward();
    let dp = gem.p.val().grad(&gradients).unwrap().into_scalar::<f64>();
    let at = |p: f64| mean(p, &values[..4]) + mean(p, &values[4..]);
    let slope = (at(3.0 + 1e-4) - at(3.0 - 1e-4)) / 2e-4;
    assert!((dp - slope).abs() < 1e-5, "{dp} instead of {slope}");
    let dx = x.grad(&gradients).unwrap().into_data().convert::<f64>().try_into_vec::<f64>().unwrap();
    for i in 0..4 {
        let (mut up, mut down) = (values, values);
        up[i] += 1e-3;
        down[i] -= 1e-3;
        let slope = (mean(3.0, &up[..4]) - mean(3.0, &down[..4])) / 2e-3;
        assert!((dx[i] - slope).abs() < 1e-3, "{i}: {} instead of {slope}", dx[i]);
    }
    assert!(dx.iter().all(|d| d.is_finite()));
}
