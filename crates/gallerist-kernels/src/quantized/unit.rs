//! How bytes are multiplied.

#[cfg(all(target_arch = "x86_64", not(miri)))]
use std::sync::OnceLock;

/// A way to multiply bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Unit {
    Portable,
    /// AVX-512 VNNI.
    #[cfg_attr(any(not(target_arch = "x86_64"), miri), allow(dead_code, reason = "not for this CPU"))]
    Vectors,
    /// The same, and the matrix unit (AMX) for products of many terms.
    #[cfg_attr(any(not(target_arch = "x86_64"), miri), allow(dead_code, reason = "not for this CPU"))]
    Matrix,
}

/// The fastest unit of this CPU that is permitted. Those below it can be used, too.
pub(super) fn fastest() -> Unit {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use crate::product::has_matrix_unit_for_bytes;
        use gallerist_util::simd::{Instructions, permitted};

        static FASTEST: OnceLock<Unit> = OnceLock::new();
        *FASTEST.get_or_init(|| {
            let has_vectors = permitted() == Instructions::Avx512
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vnni");
            match (has_vectors, has_vectors && has_matrix_unit_for_bytes()) {
                (_, true) => Unit::Matrix,
                (true, false) => Unit::Vectors,
                (false, false) => Unit::Portable,
            }
        })
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    Unit::Portable
}

/// The instructions that multiply bytes on this CPU: `"AMX and AVX-512 VNNI"`, `"AVX-512 VNNI"`, or `None` if int8 is slower than
/// `f32` there.
pub fn int8_unit() -> Option<&'static str> {
    match fastest() {
        Unit::Portable => None,
        Unit::Vectors => Some("AVX-512 VNNI"),
        Unit::Matrix => Some("AMX and AVX-512 VNNI"),
    }
}
