//! Code compiled for several instruction sets; the widest one that the CPU has is chosen at run time.

pub use pulp;

use std::sync::OnceLock;

use pulp::{Arch, Simd, WithSimd};

/// Instruction sets that kernels are compiled for, the narrowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Instructions {
    /// Those of every CPU.
    Portable,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512 and its extensions.
    Avx512,
}

/// The environment variable that limits the instruction sets of kernels: `portable`, `avx2` or `avx512`.
///
/// It is for comparisons: kernels give other roundings on other CPUs. It does not limit code of other crates, such as the
/// products of small matrices of the tensor engine, nor all code whose result does not depend on the instruction set.
pub const INSTRUCTIONS: &str = "GALLERIST_INSTRUCTIONS";

/// The widest instruction set that kernels may use, by the variable [`INSTRUCTIONS`]; without it, any.
pub fn permitted() -> Instructions {
    static PERMITTED: OnceLock<Instructions> = OnceLock::new();
    *PERMITTED.get_or_init(|| check_permitted().unwrap_or(Instructions::Avx512))
}

/// [`permitted`], or the value of the variable if it is unknown.
///
/// # Errors
///
/// The unknown value.
pub fn check_permitted() -> Result<Instructions, String> {
    match std::env::var(INSTRUCTIONS).as_deref() {
        Err(_) | Ok("avx512") => Ok(Instructions::Avx512),
        Ok("avx2") => Ok(Instructions::Avx2),
        Ok("portable") => Ok(Instructions::Portable),
        Ok(other) => Err(other.to_owned()),
    }
}

/// Runs `op` compiled for the widest instruction set of this CPU that is [`permitted`].
#[inline]
pub fn run<Op: WithSimd>(op: Op) -> Op::Output {
    // Miri does not support vector intrinsics; the scalar instance runs the same pointer arithmetic.
    if cfg!(miri) || permitted() == Instructions::Portable {
        return pulp::Scalar::new().vectorize(op);
    }
    #[cfg(target_arch = "x86_64")]
    if permitted() == Instructions::Avx2 {
        return match pulp::x86::V3::try_new() {
            Some(simd) => Simd::vectorize(simd, op),
            None => Simd::vectorize(pulp::Scalar::new(), op),
        };
    }
    Arch::new().dispatch(op)
}

/// Work without arguments of its own, for [`vectorize`].
///
/// Implementations of `run` and everything they call must be `#[inline(always)]`: only inlined code is compiled for
/// the chosen instruction set. A closure would stay a function of its own, compiled for the oldest CPUs.
pub trait Work {
    /// The result.
    type Output;
    /// Does the work.
    fn run(self) -> Self::Output;
}

/// Runs `work` compiled for the widest instruction set of this CPU.
#[inline]
pub fn vectorize<W: Work>(work: W) -> W::Output {
    struct Dispatched<W>(W);
    impl<W: Work> WithSimd for Dispatched<W> {
        type Output = W::Output;
        #[inline(always)]
        fn with_simd<S: Simd>(self, _: S) -> W::Output {
            self.0.run()
        }
    }
    run(Dispatched(work))
}

/// Declares a function whose body is compiled once for every instruction set; the widest one that the CPU has is
/// chosen at the call. References share the named lifetime. Only inlined code is compiled for the instruction set.
#[macro_export]
macro_rules! vectorized {
    (
        $(#[$attribute:meta])*
        $visibility:vis fn $name:ident<$lifetime:lifetime $(, const $number:ident: usize)*>(
            $($argument:ident: $type:ty),* $(,)?
        ) -> $result:ty
        $body:block
    ) => {
        $(#[$attribute])*
        $visibility fn $name<$lifetime $(, const $number: usize)*>($($argument: $type),*) -> $result {
            struct Call<$lifetime $(, const $number: usize)*> {
                $($argument: $type),*
            }
            impl<$lifetime $(, const $number: usize)*> $crate::simd::pulp::WithSimd
                for Call<$lifetime $(, $number)*>
            {
                type Output = $result;
                #[inline(always)]
                fn with_simd<S: $crate::simd::pulp::Simd>(self, _: S) -> $result {
                    let Self { $($argument),* } = self;
                    $body
                }
            }
            $crate::simd::run(Call::<$lifetime $(, $number)*> { $($argument),* })
        }
    };
}
