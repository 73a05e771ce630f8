//! Code compiled for several instruction sets; the widest one that the CPU has is chosen at run time.

pub use pulp;

use pulp::{Arch, Simd, WithSimd};

/// Runs `op` compiled for the widest instruction set of this CPU.
#[inline]
pub fn run<Op: WithSimd>(op: Op) -> Op::Output {
    if cfg!(miri) {
        // Miri does not support vector intrinsics; the scalar instance runs the same pointer arithmetic.
        pulp::Scalar::new().vectorize(op)
    } else {
        Arch::new().dispatch(op)
    }
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
