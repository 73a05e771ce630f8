//! The scans of a file.

use crate::headers::{Component, Headers};
use crate::huffman::Bits;
use crate::plane::Plane;
use crate::problem::{HEADER, Interrupt, Problem, RUN, STOPPED, TWICE};
use crate::progressive::Band;
use crate::sequential::{Part, Scan};

impl Headers {
    /// Checks one scan; returns the length of its data.
    pub(crate) fn check_scan(
        &mut self,
        body: &[u8],
        data: &[u8],
        interrupt: &dyn Interrupt,
    ) -> Result<usize, Problem> {
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
                (0, 63) => self.read_sequential(&parts, data, interrupt),
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
            if x == 0 && interrupt.at_row() {
                return Err(STOPPED);
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
        interrupt: &dyn Interrupt,
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
        Scan { parts: read, units, restart_interval: self.restart_interval, data, planes, interrupt }.run()
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
