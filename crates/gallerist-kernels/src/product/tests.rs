use gallerist_util::simd::pulp::{self, Simd, WithSimd};
use gallerist_util::simd::run;

use super::float::Compute;
use super::sizes::{PanelWidth, TILE_COLUMNS};
use super::unit::{Unit, units};
use super::{Finish, Precision, Product, Right, Run, chunks, multiply, panel_width};
use crate::disjoint::Disjoint;
use crate::gate::{GateFunction, HardSigmoid};
use crate::norm::Activation;

/// What computes a product.
#[derive(Clone, Copy, Debug)]
enum Set {
    /// Without copies of the operands.
    Vectors(pulp::Arch),
    /// What [`multiply`] does.
    Fastest,
    Rounded(Unit),
}

/// Everything that this CPU has.
fn sets() -> Vec<Set> {
    let rounded = [Unit::PORTABLE].into_iter().chain(units()).map(Set::Rounded);
    let vectors = instruction_sets().into_iter().map(Set::Vectors);
    vectors.chain([Set::Fastest]).chain(rounded).collect()
}

/// Every instruction set of this CPU.
fn instruction_sets() -> Vec<pulp::Arch> {
    #[allow(unused_mut, reason = "some CPUs have no others")]
    let mut sets = vec![pulp::Arch::Scalar];
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    sets.extend(pulp::aarch64::Neon::try_new().map(pulp::Arch::Neon));
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        sets.extend(pulp::x86::V3::try_new().map(pulp::Arch::V3));
        sets.extend(pulp::x86::V4::try_new().map(pulp::Arch::V4));
    }
    sets
}

/// Number of `f32` lanes of a vector register.
struct Lanes;

impl WithSimd for Lanes {
    type Output = usize;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> usize {
        S::F32_LANES
    }
}

/// The product of a left factor whose rows overlap, as windows do: row `i` starts at `spread * i` and
/// has two runs of terms, `gap` elements apart.
fn product(
    set: Set,
    [rows, columns]: [usize; 2],
    terms: [usize; 2],
    [spread, step]: [usize; 2],
    c: &mut [f32],
    add: bool,
    finished: bool,
) {
    let gap = 5;
    let total = terms[0] + terms[1];
    let runs = [Run { offset: 0, len: terms[0] }, Run { offset: terms[0] * step + gap, len: terms[1] }];
    let a: Vec<f32> = (0..spread * rows + total * step + gap).map(small).collect();
    let (width, lanes, precision) = match set {
        Set::Vectors(set) => (set.dispatch(PanelWidth), set.dispatch(Lanes), Precision::F32),
        Set::Fastest => (panel_width(), run(Lanes), Precision::F32),
        Set::Rounded(unit) => (panel_width(), TILE_COLUMNS, Precision::Bf16(unit)),
    };
    let stride_b = columns.next_multiple_of(lanes);
    let b: Vec<f32> = (0..total * stride_b).map(|i| small(i + 7)).collect();
    let rows_a: Vec<usize> = (0..rows).map(|row| spread * row).collect();
    // Rows of the result in reverse order, with a stretch in between that stays untouched.
    let rows_c: Vec<usize> = (0..rows).rev().map(|row| row * (columns + 1)).collect();
    // Rows that are added start elsewhere than those of the result.
    let rows_added: Vec<usize> = (0..rows).map(|row| row * columns).collect();
    let added: Vec<f32> = (0..rows * columns).map(|i| small(i + 3)).collect();
    let bias: Vec<f32> = (0..columns.next_multiple_of(lanes)).map(|i| small(i + 5)).collect();
    let finish = finished.then(|| Finish {
        bias: &bias,
        add: Some((&added, &rows_added)),
        activation: Activation::Relu6,
    });
    let mut wanted = c.to_vec();
    for row in 0..rows {
        for column in 0..columns {
            let of_run = |run: usize, first: usize| -> f32 {
                (0..terms[run])
                    .map(|k| {
                        let a = a[rows_a[row] + runs[run].offset + k * step];
                        a * b[(first + k) * stride_b + column]
                    })
                    .sum()
            };
            let sum = of_run(0, 0) + of_run(1, terms[0]);
            let at = &mut wanted[rows_c[row] + column];
            *at = match (add, finished) {
                (true, _) => *at + sum,
                (false, true) => (sum + bias[column] + added[rows_added[row] + column]).clamp(0.0, 6.0),
                (false, false) => sum,
            };
        }
    }
    let product = Product {
        a: &a,
        rows_a: &rows_a,
        step,
        chunks: &chunks(&runs, step, precision),
        right: Right::Rows { values: &b, stride: stride_b, panel_stride: width },
        precision,
        c: Disjoint::new(c),
        rows_c: &rows_c,
        columns,
        accumulate: add,
        prefetch: &[],
        finish,
    };
    // SAFETY: `c` is borrowed mutably, by this function alone.
    unsafe {
        match set {
            Set::Vectors(set) => set.dispatch(Compute::new(product, &b, stride_b, width)),
            Set::Fastest | Set::Rounded(_) => multiply(product),
        }
    }
    assert_eq!(c, wanted, "{set:?}, {rows} x {columns}, {terms:?}, {spread}, {step}");
}

/// Small whole numbers, whose sums of products are exact in any order.
fn small(i: usize) -> f32 {
    (i * 7 % 11) as f32 - 5.0
}

#[test]
fn products_equal_the_definition_on_every_instruction_set() {
    let (rows, columns): (&[usize], &[usize]) = if cfg!(miri) {
        (&[1, 7], &[1, 5])
    } else {
        (&[1, 5, 6, 7, 12, 13, 31, 33], &[1, 7, 8, 9, 15, 16, 17, 31, 33, 48, 63, 64, 65, 130])
    };
    let terms: &[[usize; 2]] =
        if cfg!(miri) { &[[1, 0], [31, 4]] } else { &[[1, 0], [3, 4], [60, 70], [64, 32], [500, 99]] };
    for set in sets() {
        for (rows, columns) in rows.iter().flat_map(|rows| columns.iter().map(move |c| (*rows, *c))) {
            for terms in terms {
                for layout in [[2, 3], [2, 1], [1, 3]] {
                    let mut c: Vec<f32> = (0..rows * (columns + 1)).map(small).collect();
                    product(set, [rows, columns], *terms, layout, &mut c, false, false);
                    product(set, [rows, columns], *terms, layout, &mut c, true, false);
                    product(set, [rows, columns], *terms, layout, &mut c, false, true);
                }
            }
        }
    }
}

#[test]
fn copies_of_the_operands_do_not_change_the_bits() {
    let (rows, columns, terms, step) = (13, 3 * panel_width() - 5, 300, 17);
    let values = |count: usize| -> Vec<f32> { (0..count).map(|i| (i as f32 * 0.37).sin()).collect() };
    let (a, stride) = (values(terms * step), columns.next_multiple_of(run(Lanes)));
    let (b, runs) = (values(terms * stride), [Run { offset: 0, len: terms }]);
    // Made once: under Miri, a sine has another error each time.
    let before = values(rows * columns);
    let (rows_a, rows_c): (Vec<usize>, Vec<usize>) = (0..rows).map(|row| (row, row * columns)).unzip();
    let computed = |copied: bool| {
        let mut c = before.clone();
        let product = Product {
            a: &a,
            rows_a: &rows_a,
            step,
            chunks: &chunks(&runs, step, Precision::F32),
            right: Right::Rows { values: &b, stride, panel_stride: panel_width() },
            precision: Precision::F32,
            c: Disjoint::new(&mut c),
            rows_c: &rows_c,
            columns,
            accumulate: true,
            prefetch: &[],
            finish: None,
        };
        // SAFETY: nothing else uses `c`.
        unsafe {
            match copied {
                true => multiply(product),
                false => run(Compute::new(product, &b, stride, panel_width())),
            }
        }
        c
    };
    assert_eq!(computed(true), computed(false));
}

#[test]
fn operands_that_end_too_early_are_refused() {
    let panics = |a: usize, b: usize, c: usize| {
        std::panic::catch_unwind(|| {
            let (a, b, mut c) = (vec![1.0; a], vec![1.0; b], vec![0.0; c]);
            let product = Product {
                a: &a,
                rows_a: &[0, 3],
                step: 1,
                chunks: &[(0, vec![Run { offset: 0, len: 2 }])],
                right: Right::Rows { values: &b, stride: 64, panel_stride: panel_width() },
                precision: Precision::F32,
                c: Disjoint::new(&mut c),
                rows_c: &[0, 4],
                columns: 3,
                accumulate: false,
                prefetch: &[],
                finish: None,
            };
            // SAFETY: nothing else uses `c`.
            unsafe { multiply(product) };
        })
        .is_err()
    };
    let b = 64 + 16;
    assert!(!panics(5, b, 7));
    assert!(panics(4, b, 7), "the last term of the left operand");
    assert!(panics(5, 64 + 2, 7), "the last row of the right operand");
    assert!(panics(5, b, 6), "the last element of the result");
}

/// An activation of 64 values, in vectors and one by one.
struct InTwoWays(Activation, [f32; 64]);

impl WithSimd for InTwoWays {
    type Output = [[f32; 64]; 2];

    fn with_simd<S: Simd>(self, simd: S) -> [[f32; 64]; 2] {
        let Self(activation, mut vectors) = self;
        let mut single = vectors;
        for x in S::as_mut_simd_f32s(&mut vectors).0 {
            let mut values = [*x];
            activation.in_registers().expect("a few instructions").apply(simd, &mut values);
            [*x] = values;
        }
        for x in &mut single {
            *x = match activation {
                Activation::HardSwish => HardSigmoid::swish::<S>(*x),
                Activation::Relu => x.clamp(0.0, f32::INFINITY),
                _ => x.clamp(0.0, 6.0),
            };
        }
        [vectors, single]
    }
}

#[test]
fn activations_in_registers_are_those_of_single_values_on_every_instruction_set() {
    let mut x = [f32::NAN; 64];
    for (i, x) in x.iter_mut().enumerate().filter(|(i, _)| i % 3 > 0) {
        *x = i as f32 / 4.0 - 8.0;
    }
    x[0] = f32::INFINITY;
    for set in instruction_sets() {
        for activation in [Activation::Relu, Activation::Relu6, Activation::HardSwish] {
            let [vectors, single] = set.dispatch(InTwoWays(activation, x));
            for (x, (y, expected)) in x.iter().zip(vectors.iter().zip(single)) {
                assert!(
                    *y == expected || x.is_nan() && y.is_nan(),
                    "{set:?}, {activation:?}: {x} became {y}, not {expected}"
                );
            }
        }
    }
}
