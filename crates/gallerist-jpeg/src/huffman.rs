//! Huffman tables and the bits of a scan.

use crate::problem::{CODE, HEADER, Problem, RESTART, TOO_LONG, TOO_SHORT};

/// Bits by which a table looks up.
const AHEAD: u32 = 11;

/// A Huffman table.
pub(crate) struct Table {
    direct: bool,
    /// By the next bits: length and symbol; length 0 for longer codes.
    short: [(u8, u8); 1 << AHEAD],
    /// By the next bits, what a code means in a sequential scan; 0 for longer codes.
    entries: [Entry; 1 << AHEAD],
    /// By length: one past the last code, aligned to 16 bits.
    limit: [u32; 17],
    /// By length: index of the symbol minus the code.
    offset: [i32; 17],
    symbols: Vec<u8>,
}

/// A code of a sequential scan and the value after it. From the lowest byte: bits of both, distance
/// of the value in coefficients, bits of the code, bits of the value.
#[derive(Clone, Copy)]
struct Entry(u32);

impl Entry {
    fn new(length: u32, steps: usize, size: u32) -> Entry {
        Entry((length + size) | (steps as u32) << 8 | length << 16 | size << 24)
    }
}

/// A distance that means the end of a block: beyond any block.
pub(crate) const END: usize = 255;

impl Table {
    /// `direct`: for the first coefficients of blocks.
    pub(crate) fn new(direct: bool, counts: &[u8; 16], symbols: &[u8]) -> Result<Table, Problem> {
        let mut table = Table {
            direct,
            short: [(0, 0); 1 << AHEAD],
            entries: [Entry(0); 1 << AHEAD],
            limit: [0; 17],
            offset: [0; 17],
            symbols: symbols.to_vec(),
        };
        let (mut code, mut index) = (0u32, 0usize);
        for length in 1..=16u32 {
            table.offset[length as usize] = index as i32 - code as i32;
            for _ in 0..counts[length as usize - 1] {
                if code >= 1 << length {
                    return Err(HEADER);
                }
                if length <= AHEAD {
                    table.look_ahead(code, length, symbols[index]);
                }
                code += 1;
                index += 1;
            }
            table.limit[length as usize] = code << (16 - length);
            code <<= 1;
        }
        Ok(table)
    }

    /// Enters what begins with a short code.
    fn look_ahead(&mut self, code: u32, length: u32, symbol: u8) {
        let first = (code as usize) << (AHEAD - length);
        let all = first..first + (1 << (AHEAD - length));
        self.short[all.clone()].fill((length as u8, symbol));
        if let Some((steps, size)) = self.meaning(symbol) {
            self.entries[all].fill(Entry::new(length, steps, size));
        }
    }

    /// What a symbol means in a sequential scan: how many coefficients further on, and the size of the
    /// value there. Sixteen zeros are a value of no bits at the last of them.
    #[inline(always)]
    fn meaning(&self, symbol: u8) -> Option<(usize, u32)> {
        let (run, size) = (symbol >> 4, u32::from(symbol & 15));
        match (run, size) {
            _ if self.direct => (symbol <= 11).then_some((1, symbol.into())),
            (0, 0) => Some((END, 0)),
            (1..15, 0) | (_, 11..) => None,
            _ => Some((usize::from(run) + 1, size)),
        }
    }

    /// The next coefficient of a sequential scan: how many coefficients further on it is, and its value.
    ///
    /// 27 bits must be held; where the scan ends before, zeros follow and the bits are
    /// [overdrawn](Bits::overdrawn).
    #[inline(always)]
    pub(crate) fn coefficient(&self, bits: &mut Bits<'_>) -> Result<(usize, i32), Problem> {
        let mut entry = self.entries[(bits.buffer >> (64 - AHEAD)) as usize];
        if entry.0 == 0 {
            entry = self.long(*bits)?;
        }
        let [used, steps, length, size] = entry.0.to_le_bytes();
        let value = signed(bits.buffer << (length & 63), size.into());
        bits.draw(used.into());
        Ok((steps.into(), value))
    }

    /// By value, so that the fields of the caller's copy can stay in registers.
    #[inline(never)]
    fn long(&self, mut bits: Bits<'_>) -> Result<Entry, Problem> {
        let held = bits.held;
        let (steps, size) = self.meaning(self.symbol(&mut bits)?).ok_or(CODE)?;
        Ok(Entry::new(held - bits.held, steps, size))
    }

    pub(crate) fn symbol(&self, bits: &mut Bits<'_>) -> Result<u8, Problem> {
        let next = bits.peek16();
        let (length, symbol) = self.short[(next >> (16 - AHEAD)) as usize];
        if length > 0 {
            bits.skip(length.into())?;
            return Ok(symbol);
        }
        for length in AHEAD + 1..=16 {
            if next < self.limit[length as usize] {
                bits.skip(length)?;
                let index = (next >> (16 - length)) as i32 + self.offset[length as usize];
                return self.symbols.get(index as usize).copied().ok_or(CODE);
            }
        }
        // Beyond the last bit there are zeros, which may be no code.
        Err(if bits.held < 16 { TOO_SHORT } else { CODE })
    }
}

/// The value of a coefficient whose `size` bits, 16 at most, are the highest of `bits` (F.1.2.1): the
/// lower half of the range are the negative values. Without a branch, because signs cannot be predicted.
#[inline(always)]
fn signed(bits: u64, size: u32) -> i32 {
    // In two steps: a shift by 64 is none.
    let value = (bits >> 1 >> (63 - size)) as i32;
    let positive = (bits as i64 >> 63) as i32;
    value - (((1 << size) - 1) & !positive)
}

/// The bits of a scan, stuffing removed, up to the next marker.
#[derive(Clone, Copy)]
pub(crate) struct Bits<'a> {
    data: &'a [u8],
    at: usize,
    /// The next bits, the first one on top.
    buffer: u64,
    held: u32,
    /// A marker (or the end of the file) is at `at`.
    ended: bool,
}

impl<'a> Bits<'a> {
    pub(crate) fn new(data: &'a [u8]) -> Bits<'a> {
        Bits { data, at: 0, buffer: 0, held: 0, ended: false }
    }

    /// Holds 56 bits or more, or all that are left.
    #[inline(always)]
    pub(crate) fn fill(&mut self) {
        // Eight bytes at once, unless one of them is 0xFF. Bits below the held
        // ones are already right, and are put there again next time.
        if let Some(bytes) = self.data.get(self.at..).and_then(|rest| rest.first_chunk::<8>()) {
            let word = u64::from_be_bytes(*bytes);
            let inverse = !word;
            let low = 0x0101_0101_0101_0101u64;
            if inverse.wrapping_sub(low) & word & (low << 7) == 0 {
                self.buffer |= word >> self.held;
                self.at += ((63 - self.held) / 8) as usize;
                self.held |= 56;
                return;
            }
        }
        *self = self.filled_slowly();
    }

    /// By value, so that the fields of the caller's copy can stay in registers.
    #[inline(never)]
    fn filled_slowly(mut self) -> Self {
        while self.held < 56 && !self.ended {
            let byte = match self.data[self.at..] {
                [0xFF, 0, ..] => {
                    self.at += 2;
                    0xFF
                }
                [] | [0xFF, ..] => {
                    self.ended = true;
                    break;
                }
                [byte, ..] => {
                    self.at += 1;
                    byte
                }
            };
            self.buffer |= u64::from(byte) << (56 - self.held);
            self.held += 8;
        }
        self
    }

    /// The next 16 bits, zeros after the last.
    #[inline(always)]
    fn peek16(&mut self) -> u32 {
        if self.held < 16 {
            self.fill();
        }
        (self.buffer >> 48) as u32
    }

    #[inline(always)]
    fn skip(&mut self, n: u32) -> Result<(), Problem> {
        if self.held < n {
            return Err(TOO_SHORT);
        }
        self.buffer <<= n;
        self.held -= n;
        Ok(())
    }

    /// Leaves out `n` bits, whether they are held or not.
    #[inline(always)]
    fn draw(&mut self, n: u32) {
        self.buffer <<= n;
        self.held = self.held.wrapping_sub(n);
    }

    /// Whether more bits were drawn than there are.
    #[inline(always)]
    pub(crate) fn overdrawn(&self) -> bool {
        (self.held as i32) < 0
    }

    /// The next `n` bits, 16 at most.
    #[inline(always)]
    pub(crate) fn take(&mut self, n: u32) -> Result<u32, Problem> {
        let bits = self.peek16() >> (16 - n);
        self.skip(n)?;
        Ok(bits)
    }

    /// The value of a coefficient of `size` bits, 16 at most.
    #[inline(always)]
    pub(crate) fn take_signed(&mut self, size: u32) -> Result<i32, Problem> {
        self.peek16();
        let value = signed(self.buffer, size);
        self.skip(size)?;
        Ok(value)
    }

    /// To the marker: fewer than 8 bits, the padding, may remain.
    pub(crate) fn finish(&mut self) -> Result<usize, Problem> {
        if self.held < 8 {
            self.fill();
        }
        if self.held >= 8 || !self.ended {
            return Err(TOO_LONG);
        }
        Ok(self.at)
    }

    /// Past restart marker `number`.
    pub(crate) fn restart(&mut self, number: u8) -> Result<(), Problem> {
        self.finish()?;
        let fill = self.data[self.at..].iter().take_while(|&&b| b == 0xFF).count();
        if fill == 0 || self.data.get(self.at + fill) != Some(&(0xD0 + number)) {
            return Err(RESTART);
        }
        *self = Bits { at: self.at + fill + 1, ..Bits::new(self.data) };
        Ok(())
    }
}
