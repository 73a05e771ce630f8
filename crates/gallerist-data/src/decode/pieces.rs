//! Pieces of a file, read as if they were one file.

use std::borrow::Cow;
use std::io::{self, BufRead, Read, Seek, SeekFrom};
use std::rc::Rc;

use super::limits::Watch;

/// The parts of a container that its decoder gets to read; everything else is left out, so that it costs
/// nothing. Every byte that is read is counted.
pub(super) struct Pieces<'a> {
    /// Each with the position of its first byte; none is empty.
    pieces: Vec<(u64, Cow<'a, [u8]>)>,
    length: u64,
    position: u64,
    /// The piece that holds `position`, or one before it after a seek.
    current: usize,
    watch: Rc<Watch>,
}

/// Most that is handed out at once, so that the clock is looked at often enough.
const AT_ONCE: usize = 4 << 10;

impl<'a> Pieces<'a> {
    pub(super) fn new(pieces: Vec<Cow<'a, [u8]>>, watch: Rc<Watch>) -> Pieces<'a> {
        let mut length = 0;
        let mut placed = Vec::with_capacity(pieces.len());
        for piece in pieces {
            if !piece.is_empty() {
                let start = length;
                length += piece.len() as u64;
                placed.push((start, piece));
            }
        }
        Pieces { pieces: placed, length, position: 0, current: 0, watch }
    }

    fn rest(&self) -> &[u8] {
        match self.pieces.get(self.current) {
            Some((start, piece)) => {
                let rest = &piece[(self.position - start) as usize..];
                &rest[..rest.len().min(AT_ONCE)]
            }
            None => &[],
        }
    }

    fn step(&mut self, bytes: usize) {
        self.position += bytes as u64;
        while self.pieces.get(self.current).is_some_and(|(start, p)| self.position >= start + p.len() as u64)
        {
            self.current += 1;
        }
    }
}

fn stopped<T>(_: T) -> io::Error {
    io::Error::other("stopped at a limit")
}

impl BufRead for Pieces<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.watch.count_call().map_err(stopped)?;
        Ok(self.rest())
    }

    fn consume(&mut self, bytes: usize) {
        // An error is remembered and returned by the next read.
        let _ = self.watch.count_bytes(bytes);
        self.step(bytes);
    }
}

impl Read for Pieces<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let rest = self.rest();
        let n = rest.len().min(out.len());
        out[..n].copy_from_slice(&rest[..n]);
        self.watch.count_call().and_then(|()| self.watch.count_bytes(n)).map_err(stopped)?;
        self.step(n);
        Ok(n)
    }
}

impl Seek for Pieces<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.watch.count_call().map_err(stopped)?;
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::End(by) => self.length.checked_add_signed(by),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
        };
        let position =
            position.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a negative position"))?;
        self.position = position;
        self.current = self.pieces.partition_point(|(start, piece)| start + piece.len() as u64 <= position);
        Ok(position)
    }
}
