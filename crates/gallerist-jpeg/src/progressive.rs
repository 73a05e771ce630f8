//! Blocks of progressive scans: checked, not decoded.

use crate::huffman::{Bits, Table};
use crate::plane::LARGEST;
use crate::problem::{CODE, HEADER, Problem, RUN, VALUE};

/// The coefficients of a scan of a progressive file.
pub(crate) struct Band {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) refines: bool,
    /// Bits that later scans add below those of this one.
    pub(crate) low: u32,
}

impl Band {
    /// Refuses a value that no picture has at coefficient `k`.
    fn plausible(&self, value: i32, step: u16) -> Result<(), Problem> {
        // An unknown step counts as 1, which keeps the sum of the direct
        // coefficients within bounds.
        let step = i32::from(step.max(1));
        let wide = (i64::from(value) << self.low).abs() * i64::from(step);
        if wide > i64::from(LARGEST + step) { Err(VALUE) } else { Ok(()) }
    }

    /// Walks over one block. `direct` is the first coefficient of the block
    /// before; `skipped` counts the blocks that the present end-of-band run
    /// still covers.
    pub(crate) fn check_block(
        &self,
        bits: &mut Bits<'_>,
        (dc, ac): (Option<&Table>, Option<&Table>),
        steps: &[u16; 64],
        direct: &mut i32,
        nonzero: &mut u64,
        skipped: &mut u32,
    ) -> Result<(), Problem> {
        let mut k = self.start;
        if k == 0 {
            if self.refines {
                bits.take(1)?;
            } else {
                let size = u32::from(dc.ok_or(HEADER)?.symbol(bits)?);
                if size > 11 {
                    return Err(CODE);
                }
                *direct += bits.take_signed(size)?;
                self.plausible(*direct, steps[0])?;
            }
            k = 1;
        }
        if self.end == 0 {
            return Ok(());
        }
        let ac = ac.ok_or(HEADER)?;
        if self.refines {
            return self.refine(bits, ac, k, nonzero, skipped);
        }
        if *skipped > 0 {
            *skipped -= 1;
            return Ok(());
        }
        while k <= self.end {
            let symbol = ac.symbol(bits)?;
            let (run, size) = (usize::from(symbol >> 4), u32::from(symbol & 15));
            if size == 0 {
                if run == 15 {
                    k += 16;
                    // Sixteen zeros are followed by something.
                    if k > self.end {
                        return Err(RUN);
                    }
                    continue;
                }
                *skipped = (1 << run) + bits.take(run as u32)? - 1;
                return Ok(());
            }
            k += run;
            if k > self.end {
                return Err(RUN);
            }
            if size > 10 {
                return Err(CODE);
            }
            self.plausible(bits.take_signed(size)?, steps[k])?;
            *nonzero |= 1 << k;
            k += 1;
        }
        Ok(())
    }

    /// A later scan of coefficients some of which are known already (G.1.2.3):
    /// one bit for each of those, and codes for the new ones.
    fn refine(
        &self,
        bits: &mut Bits<'_>,
        ac: &Table,
        mut k: usize,
        nonzero: &mut u64,
        skipped: &mut u32,
    ) -> Result<(), Problem> {
        if *skipped == 0 {
            while k <= self.end {
                let symbol = ac.symbol(bits)?;
                let (mut run, size) = (symbol >> 4, symbol & 15);
                match size {
                    0 if run < 15 => {
                        *skipped = (1 << run) + bits.take(run.into())?;
                        break;
                    }
                    0 => {}
                    1 => drop(bits.take(1)?),
                    _ => return Err(CODE),
                }
                while k <= self.end {
                    if *nonzero >> k & 1 == 1 {
                        bits.take(1)?;
                    } else if run == 0 {
                        break;
                    } else {
                        run -= 1;
                    }
                    k += 1;
                }
                if k > self.end {
                    return Err(RUN);
                }
                if size == 1 {
                    *nonzero |= 1 << k;
                }
                k += 1;
            }
        }
        if *skipped > 0 {
            if k <= self.end {
                let band = (u64::MAX << k) & (u64::MAX >> (63 - self.end));
                for _ in 0..(*nonzero & band).count_ones() {
                    bits.take(1)?;
                }
            }
            *skipped -= 1;
        }
        Ok(())
    }
}
