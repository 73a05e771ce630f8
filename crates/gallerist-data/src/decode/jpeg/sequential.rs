//! The one scan that most files have: checked and decoded in one walk over its codes.

use super::huffman::{Bits, END, Problem, RUN, Table, VALUE};
use super::idct::{self, Idct, Portable};
use super::{LARGEST, Plane};

/// A component of a sequential scan.
pub(super) struct Part<'a> {
    pub(super) dc: &'a Table,
    pub(super) ac: &'a Table,
    /// Quantisation steps in the order of the file, none of them 0.
    pub(super) steps: [i32; 64],
    /// Blocks in a unit of the scan.
    pub(super) across: usize,
    pub(super) down: usize,
    /// First coefficient of the last block.
    pub(super) direct: i32,
}

/// A sequential scan.
pub(super) struct Scan<'a> {
    pub(super) parts: Vec<Part<'a>>,
    /// Units in a row and in a column.
    pub(super) units: (usize, usize),
    /// Units between restart markers; 0 for none.
    pub(super) restart_interval: usize,
    pub(super) data: &'a [u8],
    /// Where the samples go, one for each part; none if they are not wanted.
    pub(super) planes: &'a mut [Plane],
}

impl Scan<'_> {
    /// Checks the scan, decodes it where it has planes, and returns the length of its data.
    pub(super) fn run(self) -> Result<usize, Problem> {
        #[cfg(target_arch = "x86_64")]
        if let (false, Some(simd)) = (cfg!(miri), pulp::x86::V3::try_new()) {
            return simd.vectorize(Run(self, simd));
        }
        self.run_with(Portable)
    }

    #[inline(always)]
    fn run_with(mut self, idct: impl Idct) -> Result<usize, Problem> {
        let mut bits = Bits::new(self.data);
        let mut block = [0; 64];
        let mut until_restart = self.restart_interval;
        let mut restarts = 0;
        for y in 0..self.units.1 {
            for x in 0..self.units.0 {
                if self.restart_interval > 0 {
                    if until_restart == 0 {
                        bits.restart(restarts)?;
                        self.parts.iter_mut().for_each(|part| part.direct = 0);
                        restarts = (restarts + 1) % 8;
                        until_restart = self.restart_interval;
                    }
                    until_restart -= 1;
                }
                for (number, part) in self.parts.iter_mut().enumerate() {
                    for j in 0..part.down {
                        for i in 0..part.across {
                            let last = part.read(&mut bits, &mut block)?;
                            if let Some(plane) = self.planes.get_mut(number) {
                                plane.put((x * part.across + i, y * part.down + j), &block, last, idct);
                            }
                            block = [0; 64];
                        }
                    }
                }
            }
        }
        bits.finish()
    }
}

impl Plane {
    /// The samples of a block; `last` is the place of its last coefficient in the order of the file.
    #[inline(always)]
    fn put(&mut self, (x, y): (usize, usize), block: &[i16; 64], last: usize, idct: impl Idct) {
        let out = &mut self.samples[y * self.side * self.stride + x * self.side..];
        match self.side {
            8 if last > 0 => idct.whole(block, out, self.stride),
            8 => idct::flat::<8>(block[0], out, self.stride),
            4 => idct::half(block, out, self.stride),
            2 => idct::quarter(block, out, self.stride),
            _ => idct::flat::<1>(block[0], out, self.stride),
        }
    }
}

/// A scan to run with the vectors of a processor.
#[cfg(target_arch = "x86_64")]
struct Run<'a>(Scan<'a>, pulp::x86::V3);

#[cfg(target_arch = "x86_64")]
impl pulp::NullaryFnOnce for Run<'_> {
    type Output = Result<usize, Problem>;

    #[inline(always)]
    fn call(self) -> Self::Output {
        self.0.run_with(self.1)
    }
}

impl Part<'_> {
    /// Reads a block into `block`, which is all zeros, its coefficients times their steps; returns
    /// the place of the last one in the file's order.
    #[inline(always)]
    fn read(&mut self, bits: &mut Bits<'_>, block: &mut [i16; 64]) -> Result<usize, Problem> {
        // A copy whose fields can stay in registers.
        let into = bits;
        let mut bits = *into;
        let bits = &mut bits;
        bits.fill();
        self.direct += self.dc.coefficient(bits)?.1;
        let wide = self.direct * self.steps[0];
        block[0] = wide as i16;
        // Negative as soon as one value is out of bounds.
        let mut bound = LARGEST + self.steps[0] - wide.abs();
        let mut last = 0;
        let mut value = 1;
        'block: while last < 63 {
            bits.fill();
            // Two have 54 bits at most.
            for _ in 0..2 {
                let (steps, found) = self.ac.coefficient(bits)?;
                let at = last + steps;
                if at > 63 {
                    if steps == END {
                        break 'block;
                    }
                    return Err(RUN);
                }
                (last, value) = (at, found);
                let step = self.steps[last];
                let wide = value * step;
                block[usize::from(ORDER[last])] = wide as i16;
                bound |= LARGEST + step - wide.abs();
                if last == 63 {
                    break;
                }
            }
        }
        *into = *bits;
        // Sixteen zeros are followed by something.
        if value == 0 && last == 63 {
            return Err(RUN);
        }
        if bound < 0 { Err(VALUE) } else { Ok(last) }
    }
}

/// Where the coefficients stand in the block, in the order of the file: along the diagonals, to and fro.
const ORDER: [u8; 64] = {
    let mut order = [0; 64];
    let (mut x, mut y, mut at) = (0usize, 0usize, 0);
    while at < 64 {
        order[at] = (8 * y + x) as u8;
        at += 1;
        let up = (x + y) % 2 == 0;
        (x, y) = match up {
            true if x == 7 => (x, y + 1),
            true if y == 0 => (x + 1, y),
            true => (x + 1, y - 1),
            false if y == 7 => (x + 1, y),
            false if x == 0 => (x, y + 1),
            false => (x - 1, y + 1),
        };
    }
    order
};
