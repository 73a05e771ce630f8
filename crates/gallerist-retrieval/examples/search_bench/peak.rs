//! What this machine can do at most, measured: multiply-adds from registers, and reading memory.

use std::hint::black_box;
use std::time::Instant;

use rayon::prelude::*;

/// The best of several runs of `work` on every thread at once, per second of wall time.
fn best_rate(amount: f64, repeats: usize, work: impl Fn(usize) + Sync) -> f64 {
    let threads = rayon::current_num_threads();
    let rate = |_| {
        let start = Instant::now();
        (0..threads).into_par_iter().with_max_len(1).for_each(&work);
        amount * threads as f64 / start.elapsed().as_secs_f64()
    };
    (0..repeats).map(rate).fold(0.0, f64::max)
}

/// Bytes a second that all threads read together, each its own part of 512 MiB.
pub(crate) fn read_bytes_per_second() -> f64 {
    let values = vec![1u64; 64 << 20];
    let part = values.len() / rayon::current_num_threads();
    best_rate((part * size_of::<u64>()) as f64, 10, |thread| {
        let (chunks, _) = values[thread * part..(thread + 1) * part].as_chunks::<64>();
        let mut sums = [0u64; 64];
        for chunk in chunks {
            for (sum, value) in sums.iter_mut().zip(chunk) {
                *sum ^= value;
            }
        }
        black_box(sums);
    })
}

/// Floating-point operations a second of fused multiply-adds in f32 on all threads; nothing where
/// the processor has no kernel here.
pub(crate) fn f32_operations_per_second() -> Option<f64> {
    #[cfg(target_arch = "x86_64")]
    {
        const STEPS: usize = 20_000_000;
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has AVX-512.
            return Some(best_rate((STEPS * 24 * 32) as f64, 5, |_| unsafe { x86::avx512(STEPS) }));
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: the processor has AVX2 and FMA.
            return Some(best_rate((STEPS * 12 * 16) as f64, 5, |_| unsafe { x86::avx2(STEPS) }));
        }
    }
    None
}

/// The same of `vdpbf16ps`: products of bf16, sums of f32.
pub(crate) fn bf16_operations_per_second() -> Option<f64> {
    #[cfg(target_arch = "x86_64")]
    {
        const STEPS: usize = 20_000_000;
        if is_x86_feature_detected!("avx512bf16") {
            // SAFETY: the processor has AVX-512 BF16.
            return Some(best_rate((STEPS * 24 * 64) as f64, 5, |_| unsafe { x86::bf16(STEPS) }));
        }
    }
    None
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m256, __m512, __m512bh, _mm256_fmadd_ps, _mm256_set1_ps, _mm512_dpbf16_ps, _mm512_fmadd_ps,
        _mm512_set1_ps,
    };
    use std::hint::black_box;

    #[target_feature(enable = "avx512f")]
    pub(super) fn avx512(steps: usize) {
        let (a, b) = (black_box(_mm512_set1_ps(0.5)), black_box(_mm512_set1_ps(0.25)));
        let mut sums: [__m512; 24] = [a; 24];
        for _ in 0..steps {
            for sum in &mut sums {
                *sum = _mm512_fmadd_ps(a, b, *sum);
            }
        }
        black_box(sums);
    }

    #[target_feature(enable = "avx2,fma")]
    pub(super) fn avx2(steps: usize) {
        let (a, b) = (black_box(_mm256_set1_ps(0.5)), black_box(_mm256_set1_ps(0.25)));
        let mut sums: [__m256; 12] = [a; 12];
        for _ in 0..steps {
            for sum in &mut sums {
                *sum = _mm256_fmadd_ps(a, b, *sum);
            }
        }
        black_box(sums);
    }

    #[target_feature(enable = "avx512f,avx512bf16")]
    pub(super) fn bf16(steps: usize) {
        // SAFETY: both are 64 bytes of which every value is valid.
        let a: __m512bh = unsafe { std::mem::transmute(black_box([0x3f00u16; 32])) };
        let mut sums: [__m512; 24] = [_mm512_set1_ps(0.0); 24];
        for _ in 0..steps {
            for sum in &mut sums {
                *sum = _mm512_dpbf16_ps(*sum, a, a);
            }
        }
        black_box(sums);
    }
}
