//! Features of trained weights.

use std::path::PathBuf;

use burn::tensor::{Device, Tensor, TensorData};
use gallerist_nn::{InputShape, MobileNetV2Config, MobileNetV2Variant, NetworkConfig};
use gallerist_weights as weights;
use safetensors::SafeTensors;

/// The folder with trained weights and their reference outputs, where `GALLERIST_REFERENCE_WEIGHTS` names one.
///
/// # Panics
/// When the folder it names does not exist.
fn folder() -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os("GALLERIST_REFERENCE_WEIGHTS")?);
    assert!(folder.is_dir(), "GALLERIST_REFERENCE_WEIGHTS: `{}` is no folder", folder.display());
    Some(folder)
}

#[test]
fn trained_mobilenet_v2_gives_the_reference_features() {
    let Some(folder) = folder() else {
        eprintln!(
            "SKIPPED: no folder with reference weights; name it in GALLERIST_REFERENCE_WEIGHTS to run this test"
        );
        return;
    };
    let device = Device::flex();
    let config = MobileNetV2Config { layout: MobileNetV2Variant::MxNet, dimensions: 0, ..Default::default() };
    let input = InputShape { channels: 3, height: 224, width: 224 };
    let network = NetworkConfig::from(config).init(input, 1, &device).unwrap();
    let file = weights::read(&folder.join("mobilenetv2_1.0_mxnet_bn_noclassifier.safetensors")).unwrap();
    let count = file.tensors.len();
    let (network, report) = weights::load(network, file).unwrap();
    assert_eq!((report.loaded.len(), report.missing.len(), report.refused.len()), (count, 0, 0));

    let bytes = std::fs::read(folder.join("reference_outputs.safetensors")).unwrap();
    let reference = SafeTensors::deserialize(&bytes).unwrap();
    let (mean, std) = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]);
    for image in 0..2 {
        let pixels = reference.tensor(&format!("image{image}_u8_hwc")).unwrap();
        let pixels = pixels.data();
        let value = |i: usize| {
            let (c, at) = (i / (224 * 224), i % (224 * 224));
            (f32::from(pixels[at * 3 + c]) / 255.0 - mean[c]) / std[c]
        };
        let values: Vec<f32> = (0..3 * 224 * 224).map(value).collect();
        let images = Tensor::from_data(TensorData::new(values, [1, 3, 224, 224]), &device);
        let found = network.forward(images).remove(0).into_data().try_into_vec::<f32>().unwrap();
        let wanted = reference.tensor(&format!("mobilenetv2_mxnet_bn_pool_{image}")).unwrap();
        let wanted = wanted.data().as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
        let wanted: Vec<f32> = wanted.collect();
        assert_eq!(found.len(), wanted.len());
        let norm = |v: &mut dyn Iterator<Item = f32>| v.map(|x| f64::from(x).powi(2)).sum::<f64>().sqrt();
        let off = norm(&mut found.iter().zip(&wanted).map(|(f, w)| f - w));
        let relative = off / norm(&mut wanted.iter().copied());
        assert!(relative < 1e-3, "image {image}: {relative:.1e}");
        let largest = wanted.iter().fold(0.0, |max: f32, w| max.max(w.abs()));
        for (f, w) in found.iter().zip(&wanted) {
            assert!((f - w).abs() < 1e-3 * w.abs().max(0.1 * largest), "image {image}: {f} instead of {w}");
        }
    }
}
