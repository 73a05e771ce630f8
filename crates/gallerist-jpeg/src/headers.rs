//! The headers of a file: tables, frame, components.

use crate::huffman::Table;
use crate::plane::Plane;
use crate::problem::{HEADER, Problem, TABLES};

/// Most tables of codes and of quantisation steps. One of 20 bytes costs as much as a thousand bytes of codes.
const MAX_TABLES: usize = 1000;

/// What the headers of a JPEG have said so far.
pub(crate) struct Headers {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) progressive: bool,
    pub(crate) components: Vec<Component>,
    /// Direct and alternating tables by their number.
    pub(crate) dc: [Option<Box<Table>>; 4],
    pub(crate) ac: [Option<Box<Table>>; 4],
    pub(crate) restart_interval: usize,
    /// Quantisation steps by the number of their table, in the order of the
    /// coefficients in the file; 0 where none is known.
    pub(crate) steps: [[u16; 64]; 4],
    /// How long the sides of the picture have to stay; `None`: as they are.
    pub(crate) least: Option<usize>,
    /// The picture, if it is of a kind that is decoded here.
    pub(crate) planes: Vec<Plane>,
    /// Tables of codes and of steps so far.
    pub(crate) tables: usize,
}

pub(crate) struct Component {
    pub(crate) id: u8,
    /// Number of its quantisation table.
    pub(crate) steps: usize,
    /// Value of the last block's first coefficient.
    pub(crate) direct: i32,
    pub(crate) across: usize,
    pub(crate) down: usize,
    /// Blocks in a row and in a column that a scan of this component alone has.
    pub(crate) blocks: (usize, usize),
    /// Blocks in a row as stored: whole units of interleaved scans.
    pub(crate) stride: usize,
    /// One bit per coefficient that is not zero, per block; progressive only.
    pub(crate) nonzero: Vec<u64>,
    /// A sequential scan has coded it.
    pub(crate) coded: bool,
}

impl Headers {
    /// Before the first segment; `least`: how long the sides of the picture have to stay.
    pub(crate) fn new(least: Option<usize>) -> Headers {
        Headers {
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
        }
    }

    /// Counts a table.
    pub(crate) fn count_table(&mut self) -> Result<(), Problem> {
        self.tables += 1;
        if self.tables > MAX_TABLES { Err(TABLES) } else { Ok(()) }
    }

    pub(crate) fn read_tables(&mut self, mut body: &[u8]) -> Result<(), Problem> {
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

    pub(crate) fn read_steps(&mut self, mut body: &[u8]) -> Result<(), Problem> {
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

    pub(crate) fn read_frame(&mut self, body: &[u8], progressive: bool) -> Result<(), Problem> {
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
    pub(crate) fn units(&self) -> (usize, usize) {
        let across = self.components.iter().map(|c| c.across).max().unwrap_or(1);
        let down = self.components.iter().map(|c| c.down).max().unwrap_or(1);
        (self.width.div_ceil(8 * across), self.height.div_ceil(8 * down))
    }

    pub(crate) fn allocate(&mut self) {
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
}
