//! Finds damage in a JPEG that a decoder lets pass.
//!
//! A JPEG has no checksum, and decoders make a picture of nearly anything. But
//! a damaged bit usually shifts the borders of the Huffman codes after it, and
//! then the codes no longer come out even: this walk over the codes (ITU-T
//! T.81, sections B, F and G; sequential and progressive) refuses a scan with
//! an unassigned code, a run beyond the end of its block, a coefficient that no
//! picture has, too few or too many bits for its blocks, or a wrong restart
//! marker, and a file that ends before its end marker. No pixel is computed.
//! Damage that gives another plausible file cannot be seen by anyone.
//!
//! The scan of a sequential file is decoded on the way ([`sequential`](super::sequential)), so that
//! its codes are walked over once.

use super::huffman::{Bits, CODE, CUT, HEADER, Problem, RUN, STOPPED, TABLES, TWICE, Table, VALUE};
use super::segments::Segments;
use super::sequential::{Part, Scan};
use super::{LARGEST, Plane};
use crate::decode::limits::Watch;

/// Most visits of a block by the scans of a progressive file, on average. Encoders make about 10; all the
/// coefficients one by one with a refinement would be 128.
const MAX_VISITS: u64 = 100;

/// Most tables of codes and of quantisation steps. One of 20 bytes costs as much as a thousand bytes of codes.
const MAX_TABLES: usize = 1000;

/// What a JPEG's headers have said so far.
struct Headers {
    width: usize,
    height: usize,
    progressive: bool,
    components: Vec<Component>,
    /// Direct and alternating tables by their number.
    dc: [Option<Box<Table>>; 4],
    ac: [Option<Box<Table>>; 4],
    restart_interval: usize,
    /// Quantisation steps by the number of their table, in the order of the
    /// coefficients in the file; 0 where none is known.
    steps: [[u16; 64]; 4],
    /// How long the sides of the picture have to stay; `None`: as they are.
    least: Option<usize>,
    /// The picture, if it is of a kind that is decoded here.
    planes: Vec<Plane>,
    /// Tables of codes and of steps so far.
    tables: usize,
}

struct Component {
    id: u8,
    /// Number of its quantisation table.
    steps: usize,
    /// Value of the last block's first coefficient.
    direct: i32,
    across: usize,
    down: usize,
    /// Blocks in a row and in a column that a scan of this component alone has.
    blocks: (usize, usize),
    /// Blocks in a row as stored: whole units of interleaved scans.
    stride: usize,
    /// One bit per coefficient that is not zero, per block; progressive only.
    nonzero: Vec<u64>,
    /// A sequential scan has coded it.
    coded: bool,
}

/// Walks a JPEG from its first to its end marker.
///
/// Returns the planes of the picture where they are known by then: for a sequential file with one
/// scan, of grey or of two planes of chroma at the size or half the size of the third.
///
/// They are reduced as far as both sides of the picture stay `least` or more. `check_size` gets width, height and the number of components before memory
/// is taken for them.
pub(super) fn check(
    bytes: &[u8],
    least: Option<usize>,
    watch: &Watch,
    check_size: impl Fn(usize, usize, usize) -> Result<(), String>,
) -> Result<Option<Vec<Plane>>, String> {
    check_scans(bytes)?;
    let mut headers = Headers {
        width: 0,
        height: 0,
        progressive: false,
        components: Vec::new(),
        dc: Default::default(),
        ac: Default::default(),
        restart_interval: 0,
        steps: [[0; 64]; 4],
        least,
        planes: Vec::new(),
        tables: 0,
    };
    let mut at = 2;
    loop {
        // Fill bytes may stand before a marker.
        if *bytes.get(at).ok_or(CUT)? != 0xFF {
            return Err("corrupt JPEG: data where a marker should be".to_owned());
        }
        let fill = bytes[at..].iter().take_while(|&&b| b == 0xFF).count();
        let marker = *bytes.get(at + fill).ok_or(CUT)?;
        at += fill + 1;
        if marker == 0xD9 {
            return Ok((!headers.planes.is_empty()).then_some(headers.planes));
        }
        if matches!(marker, 0x01 | 0xD0..=0xD8) {
            return Err("corrupt JPEG: a marker where none should be".to_owned());
        }
        watch.count_call().map_err(|_| STOPPED)?;
        let length = bytes.get(at..at + 2).ok_or(CUT)?;
        let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
        if length < 2 {
            return Err(HEADER.to_owned());
        }
        let body = bytes.get(at + 2..at + length).ok_or(CUT)?;
        at += length;
        match marker {
            0xC4 => headers.read_tables(body)?,
            0xDB => headers.read_steps(body)?,
            0xC0..=0xC2 => {
                headers.read_frame(body, marker == 0xC2)?;
                check_size(headers.width, headers.height, headers.components.len())?;
                headers.allocate();
            }
            0xC3 | 0xC5..=0xC7 | 0xC9..=0xCB | 0xCD..=0xCF => {
                return Err("JPEG of an unsupported kind: lossless, hierarchical or arithmetic".to_owned());
            }
            0xDD => {
                let &[high, low] = body else { return Err(HEADER.to_owned()) };
                headers.restart_interval = usize::from(u16::from_be_bytes([high, low]));
            }
            0xDA => at += headers.check_scan(body, &bytes[at..], watch)?,
            _ => {}
        }
    }
}

/// Refuses a progressive file whose scans visit its blocks too often, before the first is decoded.
///
/// A scan of 150 bytes can visit every block of a picture without a coefficient.
fn check_scans(bytes: &[u8]) -> Result<(), String> {
    let mut blocks: Vec<(u8, u64)> = Vec::new();
    let (mut visits, mut scans) = (0, 0);
    for segment in Segments::new(bytes) {
        match (segment.marker, segment.body) {
            // Sequential: a component is coded once.
            (0xC0 | 0xC1, _) => return Ok(()),
            (0xC2, [_, h1, h0, w1, w0, _, parts @ ..]) if blocks.is_empty() => {
                let (width, height) = (u16::from_be_bytes([*w1, *w0]), u16::from_be_bytes([*h1, *h0]));
                let parts = || parts.as_chunks::<3>().0.iter();
                let most =
                    |shift: u32| parts().map(|p| u64::from(p[1] >> shift & 15)).max().unwrap_or(1).max(1);
                let (most_across, most_down) = (most(4), most(0));
                blocks.extend(parts().map(|&[id, sampling, _]| {
                    let (across, down) = (u64::from(sampling >> 4), u64::from(sampling & 15));
                    let across = (u64::from(width) * across).div_ceil(8 * most_across);
                    (id, across * (u64::from(height) * down).div_ceil(8 * most_down))
                }));
            }
            (0xDA, [count, parts @ ..]) => {
                scans += 1;
                for part in parts.as_chunks::<2>().0.iter().take(usize::from(*count)) {
                    visits += blocks.iter().find(|(id, _)| *id == part[0]).map_or(0, |(_, blocks)| *blocks);
                }
            }
            _ => {}
        }
    }
    let total: u64 = blocks.iter().map(|(_, blocks)| blocks).sum();
    if visits > MAX_VISITS * total {
        return Err(format!(
            "its {scans} scans visit every block {} times, and {MAX_VISITS} times are permitted",
            visits / total.max(1)
        ));
    }
    Ok(())
}

impl Headers {
    /// Counts a table.
    fn count_table(&mut self) -> Result<(), Problem> {
        self.tables += 1;
        if self.tables > MAX_TABLES { Err(TABLES) } else { Ok(()) }
    }

    fn read_tables(&mut self, mut body: &[u8]) -> Result<(), Problem> {
        while let Some((&kind, rest)) = body.split_first() {
            let (counts, rest) = rest.split_first_chunk::<16>().ok_or(HEADER)?;
            let total: usize = counts.iter().map(|&n| usize::from(n)).sum();
            if kind >> 4 > 1 || kind & 15 > 3 || total > 256 || rest.len() < total {
                return Err(HEADER);
            }
            self.count_table()?;
            let (symbols, rest) = rest.split_at(total);
            let table = Table::new(kind >> 4 == 0, counts, symbols)?;
            let tables = if kind >> 4 == 0 { &mut self.dc } else { &mut self.ac };
            tables[usize::from(kind & 15)] = Some(Box::new(table));
            body = rest;
        }
        Ok(())
    }

    fn read_steps(&mut self, mut body: &[u8]) -> Result<(), Problem> {
        while let Some((&kind, rest)) = body.split_first() {
            let bytes = match kind >> 4 {
                0 => 1,
                1 => 2,
                _ => return Err(HEADER),
            };
            if kind & 15 > 3 || rest.len() < 64 * bytes {
                return Err(HEADER);
            }
            self.count_table()?;
            let (values, rest) = rest.split_at(64 * bytes);
            let steps = &mut self.steps[usize::from(kind & 15)];
            for (step, value) in steps.iter_mut().zip(values.chunks_exact(bytes)) {
                *step = value.iter().fold(0, |high, &low| high << 8 | u16::from(low));
            }
            body = rest;
        }
        Ok(())
    }

    fn read_frame(&mut self, body: &[u8], progressive: bool) -> Result<(), Problem> {
        let (&[precision, h1, h0, w1, w0, count], parts) = body.split_first_chunk::<6>().ok_or(HEADER)?;
        self.height = usize::from(u16::from_be_bytes([h1, h0]));
        self.width = usize::from(u16::from_be_bytes([w1, w0]));
        self.progressive = progressive;
        if precision != 8 {
            return Err("JPEG of an unsupported kind: more than 8 bits");
        }
        if !self.components.is_empty() {
            return Err(HEADER);
        }
        if !matches!(count, 1..=4) || parts.len() != usize::from(count) * 3 {
            return Err(HEADER);
        }
        for &[id, sampling, steps] in parts.as_chunks::<3>().0 {
            let (across, down) = (usize::from(sampling >> 4), usize::from(sampling & 15));
            if !(1..=4).contains(&across) || !(1..=4).contains(&down) || steps > 3 {
                return Err(HEADER);
            }
            self.components.push(Component {
                id,
                steps: steps.into(),
                direct: 0,
                across,
                down,
                blocks: (0, 0),
                stride: 0,
                nonzero: Vec::new(),
                coded: false,
            });
        }
        Ok(())
    }

    /// Units of interleaved scans, across and down.
    fn units(&self) -> (usize, usize) {
        let across = self.components.iter().map(|c| c.across).max().unwrap_or(1);
        let down = self.components.iter().map(|c| c.down).max().unwrap_or(1);
        (self.width.div_ceil(8 * across), self.height.div_ceil(8 * down))
    }

    fn allocate(&mut self) {
        let units = self.units();
        let most_across = self.components.iter().map(|c| c.across).max().unwrap_or(1);
        let most_down = self.components.iter().map(|c| c.down).max().unwrap_or(1);
        for c in &mut self.components {
            c.blocks = (
                (self.width * c.across).div_ceil(most_across).div_ceil(8),
                (self.height * c.down).div_ceil(most_down).div_ceil(8),
            );
            c.stride = units.0 * c.across;
            if self.progressive {
                c.nonzero = vec![0; c.stride * units.1 * c.down];
            }
        }
    }

    /// Checks one scan; returns the length of its data.
    fn check_scan(&mut self, body: &[u8], data: &[u8], watch: &Watch) -> Result<usize, Problem> {
        let (&count, body) = body.split_first().ok_or(HEADER)?;
        let count = usize::from(count);
        if !(1..=4).contains(&count) || body.len() != 2 * count + 3 {
            return Err(HEADER);
        }
        let mut parts = Vec::with_capacity(count);
        for &[id, tables] in body[..2 * count].as_chunks::<2>().0 {
            let component = self.components.iter().position(|c| c.id == id).ok_or(HEADER)?;
            if tables >> 4 > 3 || tables & 15 > 3 {
                return Err(HEADER);
            }
            parts.push((component, usize::from(tables >> 4), usize::from(tables & 15)));
        }
        let &[start, end, bits] = &body[2 * count..] else { return Err(HEADER) };
        let band = Band {
            start: usize::from(start),
            end: usize::from(end),
            refines: bits >> 4 != 0,
            low: u32::from(bits & 15),
        };
        if !self.progressive {
            return match (band.start, band.end) {
                (0, 63) => self.read_sequential(&parts, data, watch),
                _ => Err(HEADER),
            };
        }
        let first = band.start == 0 && band.end == 0;
        let further = 0 < band.start && band.start <= band.end && band.end < 64 && count == 1;
        if !(first || further) || band.low > 13 {
            return Err(HEADER);
        }
        for &(component, ..) in &parts {
            self.components[component].direct = 0;
        }
        let units = if count == 1 { self.components[parts[0].0].blocks } else { self.units() };
        let mut bits = Bits::new(data);
        let mut skipped = 0;
        let mut until_restart = self.restart_interval;
        let mut restarts = 0;
        for unit in 0..units.0 * units.1 {
            if self.restart_interval > 0 && until_restart == 0 {
                if skipped > 0 {
                    return Err(RUN);
                }
                bits.restart(restarts)?;
                for &(component, ..) in &parts {
                    self.components[component].direct = 0;
                }
                restarts = (restarts + 1) % 8;
                until_restart = self.restart_interval;
            }
            until_restart = until_restart.wrapping_sub(1);
            let (x, y) = (unit % units.0, unit / units.0);
            if x == 0 {
                watch.check().map_err(|_| STOPPED)?;
            }
            for &(component, dc, ac) in &parts {
                let c = &mut self.components[component];
                let (across, down) = if count == 1 { (1, 1) } else { (c.across, c.down) };
                for j in 0..down {
                    for i in 0..across {
                        let block = &mut c.nonzero[(y * down + j) * c.stride + x * across + i];
                        let tables = (self.dc[dc].as_deref(), self.ac[ac].as_deref());
                        let steps = &self.steps[c.steps];
                        band.check_block(&mut bits, tables, steps, &mut c.direct, block, &mut skipped)?;
                    }
                }
            }
        }
        if skipped > 0 {
            return Err(RUN);
        }
        bits.finish()
    }

    /// Checks the scan of a sequential file and decodes it where that is possible. `parts`: the
    /// numbers of its components and of their tables.
    fn read_sequential(
        &mut self,
        parts: &[(usize, usize, usize)],
        data: &[u8],
        watch: &Watch,
    ) -> Result<usize, Problem> {
        for &(component, ..) in parts {
            if std::mem::replace(&mut self.components[component].coded, true) {
                return Err(TWICE);
            }
        }
        let alone = parts.len() == 1;
        let units = if alone { self.components[parts[0].0].blocks } else { self.units() };
        let drawable = self.planes.is_empty() && self.drawable(parts);
        let mut read = Vec::with_capacity(parts.len());
        for &(component, dc, ac) in parts {
            let c = &self.components[component];
            let (across, down) = if alone { (1, 1) } else { (c.across, c.down) };
            let [dc, ac] = [&self.dc[dc], &self.ac[ac]].map(|table| table.as_deref().ok_or(HEADER));
            read.push(Part::new([dc?, ac?], &self.steps[c.steps], across, down));
            if drawable {
                self.planes.push(Plane::new(self.side(component), units.0 * across, units.1 * down));
            }
        }
        let planes = if drawable { &mut self.planes[..] } else { &mut [] };
        Scan { parts: read, units, restart_interval: self.restart_interval, data, planes, watch }.run()
    }

    /// Samples that are made of a side of a component's blocks.
    fn side(&self, component: usize) -> usize {
        let stays = |side: usize| {
            let least = self.least.unwrap_or(usize::MAX);
            (self.width * side).div_ceil(8) >= least && (self.height * side).div_ceil(8) >= least
        };
        let side = [1, 2, 4].into_iter().find(|&side| stays(side)).unwrap_or(8);
        // Chroma at half the size is not reduced and enlarged again.
        let halved = component > 0 && (self.components[0].across, self.components[0].down) != (1, 1);
        if halved { (2 * side).min(8) } else { side }
    }

    /// Whether a scan holds a whole picture of the kinds that are decoded here.
    fn drawable(&self, parts: &[(usize, usize, usize)]) -> bool {
        let known = |c: &Component| self.steps[c.steps].iter().all(|step| (1..=1 << 12).contains(step));
        let all = parts.len() == self.components.len()
            && parts.iter().zip(0..).all(|(&(component, ..), place)| component == place);
        let sampled = match &self.components[..] {
            [_] => true,
            [light, chroma @ ..] if chroma.len() == 2 => {
                light.across <= 2 && light.down <= 2 && chroma.iter().all(|c| (c.across, c.down) == (1, 1))
            }
            _ => false,
        };
        all && sampled && self.components.iter().all(known)
    }
}

/// The coefficients of a scan of a progressive file.
struct Band {
    start: usize,
    end: usize,
    refines: bool,
    /// Bits that later scans add below those of this one.
    low: u32,
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
    fn check_block(
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
