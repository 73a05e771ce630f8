//! The engines that tests compare.
//!
//! onnxruntime is one of them in builds with the feature `onnxruntime`, where `ORT_DYLIB_PATH` names its library. Without the
//! variable it is left out with a message on stderr; with `GALLERIST_REQUIRE_ONNXRUNTIME=1` the tests fail.

use gallerist_onnx::Engine;

/// The engines of this build that can be used here.
///
/// # Panics
///
/// If `GALLERIST_REQUIRE_ONNXRUNTIME` is 1 and onnxruntime cannot be used.
pub fn engines() -> Vec<Engine> {
    let problem = if !cfg!(feature = "onnxruntime") {
        "this build does not have the feature `onnxruntime`"
    } else if std::env::var_os("ORT_DYLIB_PATH").is_none() {
        "ORT_DYLIB_PATH does not name its library"
    } else {
        return vec![Engine::Rten, Engine::Onnxruntime];
    };
    let required = std::env::var("GALLERIST_REQUIRE_ONNXRUNTIME").is_ok_and(|value| value == "1");
    assert!(!required, "onnxruntime is required, but {problem}");
    eprintln!("without onnxruntime: {problem}");
    vec![Engine::Rten]
}
