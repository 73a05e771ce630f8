//! Activations.

use std::marker::PhantomData;

use pulp::Simd;

use crate::gate::{Gate, GateFunction};

/// The function that is applied to every value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activation {
    /// Nothing.
    #[default]
    None,
    /// `max(x, 0)`.
    Relu,
    /// `min(max(x, 0), 6)`.
    Relu6,
    /// `x sigmoid(x)` (Ramachandran et al. 2017).
    Silu,
    /// `x min(max(x / 6 + 1/2, 0), 1)` (Howard et al. 2019).
    HardSwish,
}

impl Activation {
    /// The bounds that values are kept within. An activation with a [gate](Self::gate) has none.
    pub(crate) fn bounds(self) -> Bounds {
        let (low, high) = match self {
            Activation::Relu => (0.0, f32::INFINITY),
            Activation::Relu6 => (0.0, 6.0),
            Activation::None | Activation::Silu | Activation::HardSwish => (f32::NEG_INFINITY, f32::INFINITY),
        };
        Bounds { low, high }
    }

    /// What is done to sums in registers, if a few instructions are enough for the activation.
    pub(crate) fn in_registers(self) -> Option<InRegisters> {
        match self {
            Activation::Relu | Activation::Relu6 => Some(InRegisters::Within(self.bounds())),
            Activation::HardSwish => Some(InRegisters::HardSwish),
            Activation::None | Activation::Silu => None,
        }
    }

    /// The gate of values whose activation was not computed [in registers](Self::in_registers).
    pub(crate) fn gate_after_registers(self) -> Option<Gate> {
        self.gate().filter(|_| self.in_registers().is_none())
    }

    /// Whether computing it again, where maps are read, costs more than reading it from memory does.
    pub fn is_costly(self) -> bool {
        self == Activation::Silu
    }

    /// The gate of `x gate(x)`.
    pub(crate) fn gate(self) -> Option<Gate> {
        match self {
            Activation::Silu => Some(Gate::Sigmoid),
            Activation::HardSwish => Some(Gate::HardSigmoid),
            Activation::None | Activation::Relu | Activation::Relu6 => None,
        }
    }
}

/// An activation as a type, so that loops have no branches.
pub(crate) trait Function: Copy {
    fn value<S: Simd>(self, x: f32) -> f32;

    /// The gradient of `x` from that of `value(x)`.
    fn gradient<S: Simd>(self, x: f32, dy: f32) -> f32;
}

/// `x gate(x)`.
pub(crate) struct Swish<G>(PhantomData<G>);

impl<G> Swish<G> {
    pub(crate) const NEW: Self = Swish(PhantomData);
}

impl<G> Clone for Swish<G> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<G> Copy for Swish<G> {}

impl<G: GateFunction> Function for Swish<G> {
    #[inline(always)]
    fn value<S: Simd>(self, x: f32) -> f32 {
        G::swish::<S>(x)
    }

    #[inline(always)]
    fn gradient<S: Simd>(self, x: f32, dy: f32) -> f32 {
        let (value, slope) = G::with_slope::<S>(x);
        dy * (value + x * slope)
    }
}

/// Declares a function that is compiled for every activation, and as with `vectorized!` for every instruction set. The body sees
/// the activation as a [`Function`] of the given name, and the instruction set as a type.
macro_rules! by_activation {
    (
        $(#[$attribute:meta])*
        $visibility:vis fn $name:ident<$lifetime:lifetime, $simd:ident>(
            $($argument:ident: $type:ty,)* ; $function:ident
        ) -> $result:ty
        $body:block
    ) => {
        $(#[$attribute])*
        $visibility fn $name<$lifetime>($($argument: $type,)* activation: Activation) -> $result {
            use $crate::gate::{Gate, HardSigmoid, Sigmoid};
            use $crate::norm::{Function, Swish};
            use gallerist_util::simd::{pulp::{Simd, WithSimd}, run};
            struct Call<$lifetime, F> {
                $($argument: $type,)*
                $function: F,
            }
            impl<$lifetime, F: Function> WithSimd for Call<$lifetime, F> {
                type Output = $result;
                #[inline(always)]
                fn with_simd<$simd: Simd>(self, _: $simd) -> $result {
                    let Self { $($argument,)* $function } = self;
                    $body
                }
            }
            match activation.gate() {
                None => run(Call { $($argument,)* $function: activation.bounds() }),
                Some(Gate::Sigmoid) => run(Call { $($argument,)* $function: Swish::<Sigmoid>::NEW }),
                Some(Gate::HardSigmoid) => run(Call { $($argument,)* $function: Swish::<HardSigmoid>::NEW }),
            }
        }
    };
}
pub(super) use by_activation;

/// An activation as the bounds that values are kept within. NaN stays NaN.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    low: f32,
    high: f32,
}

impl Bounds {
    #[inline(always)]
    pub(crate) fn value(self, x: f32) -> f32 {
        let x = if x <= self.low { self.low } else { x };
        if x >= self.high { self.high } else { x }
    }

    /// The least and the largest value.
    pub(crate) fn ends(self) -> [f32; 2] {
        [self.low, self.high]
    }

    /// [`Self::value`] of a vector, up to the sign of zeros.
    #[inline(always)]
    pub(crate) fn vector<S: Simd>(self, simd: S, x: S::f32s) -> S::f32s {
        let (low, high) = (simd.splat_f32s(self.low), simd.splat_f32s(self.high));
        if S::F32_LANES > 1 {
            // Of a bound and NaN, vector instructions return NaN: x86 returns the second operand, ARM the one that is NaN.
            return simd.min_f32s(high, simd.max_f32s(low, x));
        }
        let x = simd.select_f32s(simd.less_than_or_equal_f32s(x, low), low, x);
        simd.select_f32s(simd.greater_than_or_equal_f32s(x, high), high, x)
    }

    /// The gradient of `x` from that of `value(x)`; `x` may be `value(x)` itself.
    #[inline(always)]
    pub(super) fn gradient(self, x: f32, dy: f32) -> f32 {
        if x <= self.low || x >= self.high { 0.0 } else { dy }
    }
}

/// An activation of a few instructions.
#[derive(Clone, Copy, Debug)]
pub(crate) enum InRegisters {
    Within(Bounds),
    HardSwish,
}

impl InRegisters {
    /// Applies it to vectors of values.
    #[inline(always)]
    pub(crate) fn apply<S: Simd, const N: usize>(self, simd: S, values: &mut [S::f32s; N]) {
        match self {
            InRegisters::Within(bounds) => {
                for x in values {
                    *x = bounds.vector(simd, *x);
                }
            }
            InRegisters::HardSwish => {
                let [three, sixth] = [3.0, 1.0 / 6.0].map(|value| simd.splat_f32s(value));
                for x in values {
                    let within = Bounds { low: -3.0, high: 3.0 }.vector(simd, *x);
                    *x = simd.mul_f32s(*x, simd.mul_f32s(simd.add_f32s(within, three), sixth));
                }
            }
        }
    }
}

impl Function for Bounds {
    #[inline(always)]
    fn value<S: Simd>(self, x: f32) -> f32 {
        Bounds::value(self, x)
    }

    #[inline(always)]
    fn gradient<S: Simd>(self, x: f32, dy: f32) -> f32 {
        Bounds::gradient(self, x, dy)
    }
}
