//! The engines that compute models.

gallerist_util::named_values! {
    /// The program that computes a model, on the CPU.
    #[derive(Default, Hash)]
    pub enum Engine {
        /// Part of this program, in Rust.
        #[default]
        Rten = "rten", "The built-in engine";
        /// A library that the user installs, named by the environment variable `ORT_DYLIB_PATH`.
        Onnxruntime = "onnxruntime", "The onnxruntime library in ORT_DYLIB_PATH (programs built with `--features onnxruntime`)";
    }
}

impl Engine {
    /// Whether it is the one that is used where none is named.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
