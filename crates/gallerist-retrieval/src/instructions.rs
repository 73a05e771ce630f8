//! Instruction sets of this CPU, with values that prove that it has them.

#[cfg(target_arch = "x86_64")]
use gallerist_util::simd::{Instructions, permitted};

/// The instruction set that a kernel is compiled for. `W` proves the widest vectors that it uses.
///
/// A value other than `Portable` exists only where the CPU has the instruction set: its proof can be
/// made in this module only, after the CPU was asked. That is what makes the call of a function with a
/// `target_feature` sound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Level<W> {
    /// Any CPU.
    Portable,
    /// AVX2 and FMA.
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    /// AVX-512 with the extensions of `W`.
    #[cfg(target_arch = "x86_64")]
    Avx512(W),
    /// So that `W` is used on other machines; never made.
    #[cfg(not(target_arch = "x86_64"))]
    #[expect(dead_code)]
    Other(W, std::convert::Infallible),
}

/// The CPU has AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Avx2(());

/// The CPU has AVX-512 F, FMA and POPCNT: for rows of f32.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct WideFloats(());

/// The CPU has AVX-512 F, BW, BF16 and VNNI: for rows of bf16 and int8.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct WideCodes(());

/// Whether the CPU has an instruction set.
pub(crate) trait Detect: Copy {
    #[cfg(target_arch = "x86_64")]
    fn detect() -> Option<Self>;
}

impl Detect for WideFloats {
    #[cfg(target_arch = "x86_64")]
    fn detect() -> Option<Self> {
        let has = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("popcnt");
        has.then_some(Self(()))
    }
}

impl Detect for WideCodes {
    #[cfg(target_arch = "x86_64")]
    fn detect() -> Option<Self> {
        let has = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512bf16")
            && is_x86_feature_detected!("avx512vnni");
        has.then_some(Self(()))
    }
}

impl<W: Detect> Level<W> {
    /// The widest that this CPU has.
    pub(crate) fn best() -> Self {
        *Self::all().last().expect("the portable kernels run everywhere")
    }

    /// All that this CPU has and that are [permitted](gallerist_util::simd::permitted), the narrowest first.
    pub(crate) fn all() -> Vec<Self> {
        #[allow(unused_mut, reason = "only x86-64 has others")]
        let mut all = vec![Self::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            let permitted = permitted();
            let has_avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
            if has_avx2 && permitted >= Instructions::Avx2 {
                all.push(Self::Avx2(Avx2(())));
            }
            all.extend(W::detect().filter(|_| permitted >= Instructions::Avx512).map(Self::Avx512));
        }
        all
    }
}
