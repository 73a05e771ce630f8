//! The one scan that most files have: checked and decoded in one walk over its codes.

#[cfg(target_arch = "x86_64")]
use gallerist_util::simd::pulp;

use crate::huffman::{Bits, END, Table};
use crate::idct::{self, Idct, Portable};
use crate::plane::{LARGEST, Plane};
use crate::problem::{Interrupt, Problem, RUN, STOPPED, TOO_SHORT, VALUE};

/// A component of a sequential scan.
pub(crate) struct Part<'a> {
    dc: &'a Table,
    ac: &'a Table,
    scale: Scale,
    /// Blocks in a unit of the scan.
    across: usize,
    down: usize,
    /// First coefficient of the last block.
    direct: i32,
}

/// What the coefficients of a component are multiplied by, and their limits, in the order of the block.
struct Scale {
    steps: [i16; 64],
    most: [i16; 64],
}

impl Scale {
    /// From the quantisation steps in the order of the file; one that is not known counts as 1.
    fn new(steps: &[u16; 64]) -> Scale {
        let mut scale = Scale { steps: [0; 64], most: [0; 64] };
        for (&step, &place) in steps.iter().zip(&ORDER) {
            let step = i32::from(step.max(1));
            // Beyond 16 bits are only steps that nothing is decoded with.
            scale.steps[usize::from(place)] = step as i16;
            scale.most[usize::from(place)] = ((LARGEST + step) / step) as i16;
        }
        scale
    }

    /// Multiplies the coefficients of a block; refuses those that no picture has.
    #[inline(always)]
    fn apply(&self, block: &mut [i16; 64]) -> Result<(), Problem> {
        let mut bound = 0;
        for ((value, step), most) in block.iter_mut().zip(&self.steps).zip(&self.most) {
            // Negative as soon as one value is out of bounds: all are of 11 bits.
            bound |= most - value.abs();
            *value = value.wrapping_mul(*step);
        }
        if bound < 0 { Err(VALUE) } else { Ok(()) }
    }
}

/// A sequential scan.
pub(crate) struct Scan<'a> {
    pub(crate) parts: Vec<Part<'a>>,
    /// Units in a row and in a column.
    pub(crate) units: (usize, usize),
    /// Units between restart markers; 0 for none.
    pub(crate) restart_interval: usize,
    pub(crate) data: &'a [u8],
    /// Where the samples go, one for each part; none if they are not wanted.
    pub(crate) planes: &'a mut [Plane],
    pub(crate) interrupt: &'a dyn Interrupt,
}

impl Scan<'_> {
    /// Checks the scan, decodes it where it has planes, and returns the length of its data.
    pub(crate) fn run(self) -> Result<usize, Problem> {
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
            if self.interrupt.at_row() {
                return Err(STOPPED);
            }
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
            // The first ten are in the corner of 4 x 4.
            8 if last > 0 => idct.whole(block, last < 10, out, self.stride),
            8 => idct::flat::<8>(block[0], out, self.stride),
            4 => idct::half(block, out, self.stride),
            2 => idct::quarter(block, out, self.stride),
            _ => idct::flat::<1>(block[0], out, self.stride),
        }
    }
}

/// A scan to run with the vector instructions of the CPU.
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

impl<'a> Part<'a> {
    /// `steps`: quantisation steps in the order of the file.
    pub(crate) fn new(tables: [&'a Table; 2], steps: &[u16; 64], across: usize, down: usize) -> Part<'a> {
        let [dc, ac] = tables;
        Part { dc, ac, scale: Scale::new(steps), across, down, direct: 0 }
    }

    /// Reads a block into `block`, which is all zeros, its coefficients times their steps; returns
    /// the place of the last one in the file's order.
    #[inline(always)]
    fn read(&mut self, bits: &mut Bits<'_>, block: &mut [i16; 64]) -> Result<usize, Problem> {
        // A copy, whose fields can stay in registers.
        let mut local = *bits;
        let read = self.read_coefficients(&mut local, block);
        *bits = local;
        if bits.overdrawn() {
            return Err(TOO_SHORT);
        }
        self.scale.apply(block)?;
        read
    }

    #[inline(always)]
    fn read_coefficients(&mut self, bits: &mut Bits<'_>, block: &mut [i16; 64]) -> Result<usize, Problem> {
        bits.fill();
        self.direct += self.dc.coefficient(bits)?.1;
        if self.direct.abs() > i32::from(self.scale.most[0]) {
            return Err(VALUE);
        }
        block[0] = self.direct as i16;
        let mut last = 0;
        loop {
            bits.fill();
            // Two have 54 bits at most.
            for _ in 0..2 {
                let (steps, value) = self.ac.coefficient(bits)?;
                let at = last + steps;
                if at >= 63 {
                    // Sixteen zeros, a value of 0, are followed by something.
                    if at == 63 && value != 0 {
                        block[63] = value as i16;
                        return Ok(63);
                    }
                    return if steps == END { Ok(last) } else { Err(RUN) };
                }
                last = at;
                block[usize::from(ORDER[last])] = value as i16;
            }
        }
    }
}

/// The places of the coefficients in the block, in the order of the file: zigzag along the diagonals.
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
