//! Loops compiled for the vectors of the processor at hand.

use pulp::{Arch, Simd, WithSimd};

/// Runs `op` compiled for the widest instruction set of this processor.
#[inline]
pub(crate) fn run<Op: WithSimd>(op: Op) -> Op::Output {
    if cfg!(miri) {
        // Miri knows no vector intrinsics.
        pulp::Scalar::new().vectorize(op)
    } else {
        Arch::new().dispatch(op)
    }
}

/// Declares a function whose body is compiled once for every instruction set; the widest this
/// processor has is chosen at the call. References share the lifetime that is named.
///
/// Only what is inlined into the body is compiled so.
macro_rules! vectorized {
    (
        $(#[$attribute:meta])*
        fn $name:ident<$lifetime:lifetime $(, const $number:ident: usize)*>(
            $($argument:ident: $type:ty),* $(,)?
        ) -> $result:ty
        $body:block
    ) => {
        $(#[$attribute])*
        fn $name<$lifetime $(, const $number: usize)*>($($argument: $type),*) -> $result {
            struct Call<$lifetime $(, const $number: usize)*> {
                $($argument: $type),*
            }
            impl<$lifetime $(, const $number: usize)*> pulp::WithSimd for Call<$lifetime $(, $number)*> {
                type Output = $result;
                #[inline(always)]
                fn with_simd<S: pulp::Simd>(self, _: S) -> $result {
                    let Self { $($argument),* } = self;
                    $body
                }
            }
            $crate::simd::run(Call::<$lifetime $(, $number)*> { $($argument),* })
        }
    };
}
pub(crate) use vectorized;
