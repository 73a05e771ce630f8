//! Run files whose network is an ONNX model.

use std::path::Path;

use gallerist_data::ImageConfig;
use gallerist_nn::OnnxConfig;
use gallerist_util::registry::Named;

/// The settings of a run file that make its network the model in `file`.
pub(crate) fn settings(file: &Path) -> [String; 2] {
    let file = toml::Value::from(file.to_string_lossy().into_owned());
    [format!("network.kind={}", OnnxConfig::NAME), format!("network.file={file}")]
}

/// Whether neither the model, nor a file beside it, nor the user has told how images are prepared.
pub(crate) fn is_unprepared(image: &ImageConfig) -> bool {
    image.mean == [0.0] && image.std == [1.0]
}
