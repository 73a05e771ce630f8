//! The precision of products, and the CPU's instructions for bf16.

use std::sync::OnceLock;

#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) use detect::has_matrix_unit_for_bytes;

/// A way to multiply bf16 operands that this CPU has. A value proves that its instructions can be used: only [`units`]
/// makes one, after it has asked the CPU and the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unit(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The matrix unit (AMX).
    #[cfg_attr(any(not(target_arch = "x86_64"), miri), allow(dead_code, reason = "not for this CPU"))]
    Matrix,
    /// Dot products of pairs (AVX-512 BF16).
    #[cfg_attr(any(not(target_arch = "x86_64"), miri), allow(dead_code, reason = "not for this CPU"))]
    Pairs,
    /// Portable code, slower than `f32`: for tests.
    #[cfg_attr(not(test), allow(dead_code, reason = "slower than f32"))]
    Portable,
}

impl Unit {
    #[cfg(test)]
    pub(crate) const PORTABLE: Self = Self(Kind::Portable);

    pub(super) fn kind(self) -> Kind {
        self.0
    }
}

/// The dtype to which the operands of products are rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precision {
    F32,
    Bf16(Unit),
}

/// The instructions that multiply bf16 on this CPU: `"AMX"`, `"AVX-512 BF16"`, or `None` if nothing is faster than `f32`.
pub fn bf16_unit() -> Option<&'static str> {
    fastest().map(|unit| match unit.kind() {
        Kind::Matrix => "AMX",
        Kind::Pairs => "AVX-512 BF16",
        Kind::Portable => "plain",
    })
}

/// The fastest unit of this CPU.
pub(crate) fn fastest() -> Option<Unit> {
    static UNIT: OnceLock<Option<Unit>> = OnceLock::new();
    *UNIT.get_or_init(|| units().into_iter().next())
}

/// All units of this CPU, the fastest first.
pub(crate) fn units() -> Vec<Unit> {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    return detect::kinds().into_iter().map(Unit).collect();
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    return vec![];
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod detect {
    use std::arch::x86_64::{__cpuid, __cpuid_count};

    use gallerist_util::simd::{Instructions, permitted};

    use super::Kind;

    pub(super) fn kinds() -> Vec<Kind> {
        let features = permitted() == Instructions::Avx512
            && is_x86_feature_detected!("avx512bf16")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512f");
        match (features, has_matrix_unit()) {
            (false, _) => vec![],
            (true, true) => vec![Kind::Matrix, Kind::Pairs],
            (true, false) => vec![Kind::Pairs],
        }
    }

    /// Whether the CPU multiplies matrices of bf16 and the system lets this process do so.
    fn has_matrix_unit() -> bool {
        has_tiles_with(1 << 22)
    }

    /// Whether the CPU's matrix unit multiplies signed and unsigned bytes, and this process may use it.
    pub(crate) fn has_matrix_unit_for_bytes() -> bool {
        permitted() == Instructions::Avx512 && has_tiles_with(1 << 25)
    }

    /// Whether the CPU has tile registers and a feature of theirs.
    fn has_tiles_with(feature: u32) -> bool {
        const TILES: u32 = 1 << 24;
        let wanted = TILES | feature;
        __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx & wanted == wanted && may_use_tiles()
    }

    #[cfg(target_os = "linux")]
    fn may_use_tiles() -> bool {
        const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
        const XFEATURE_XTILEDATA: libc::c_long = 18;
        // SAFETY: a system call without pointers. It asks that the threads of this process may use the tile registers.
        unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 }
    }

    #[cfg(not(target_os = "linux"))]
    fn may_use_tiles() -> bool {
        false
    }
}
