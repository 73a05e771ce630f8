//! The engines that tests compare.
//!
//! onnxruntime is one of them in builds with the feature `onnxruntime`, where `ORT_DYLIB_PATH` names its library. Without the
//! variable it is left out with a message on stderr; with `GALLERIST_REQUIRE_ONNXRUNTIME=1` the tests of these builds fail.

use gallerist_onnx::Engine;

/// The engines of this build that can be used here.
///
/// # Panics
///
/// If `GALLERIST_REQUIRE_ONNXRUNTIME` is 1 and `ORT_DYLIB_PATH` is not set.
pub(crate) fn engines() -> Vec<Engine> {
    if !cfg!(feature = "onnxruntime") {
        eprintln!("without onnxruntime: this build does not have the feature `onnxruntime`");
        return vec![Engine::Rten];
    }
    if std::env::var_os("ORT_DYLIB_PATH").is_none() {
        let text = "onnxruntime: ORT_DYLIB_PATH does not name its library";
        gallerist_testkit::missing("GALLERIST_REQUIRE_ONNXRUNTIME", text);
        return vec![Engine::Rten];
    }
    vec![Engine::Rten, Engine::Onnxruntime]
}
