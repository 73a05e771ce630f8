//! The compact protocol of Thrift, in which Parquet files describe themselves.
//!
//! Stricter than the library, which reads whatever type a field has: what is read here means the same to both.

/// Why a value is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// The bytes end within it.
    Short,
    Damaged,
}

// The types of fields.
const STOP: u8 = 0;
pub(super) const TRUE: u8 = 1;
pub(super) const FALSE: u8 = 2;
pub(super) const BYTE: u8 = 3;
pub(super) const I16: u8 = 4;
pub(super) const I32: u8 = 5;
pub(super) const I64: u8 = 6;
pub(super) const DOUBLE: u8 = 7;
pub(super) const BINARY: u8 = 8;
pub(super) const LIST: u8 = 9;
const SET: u8 = 10;
pub(super) const STRUCT: u8 = 12;
const UUID: u8 = 13;

/// Bytes in the compact protocol.
pub(super) struct Compact<'a>(pub(super) &'a [u8]);

impl<'a> Compact<'a> {
    /// The deepest value in values.
    const DEPTH: u32 = 16;

    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], Unread> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Unread::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, Unread> {
        Ok(self.take(1)?[0])
    }

    pub(super) fn varint(&mut self) -> Result<u64, Unread> {
        let mut value = 0u64;
        for shift in (0..63).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Unread::Damaged)
    }

    pub(super) fn zigzag(&mut self) -> Result<i64, Unread> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// A number of 32 bits that is not negative.
    pub(super) fn size(&mut self) -> Result<usize, Unread> {
        let value = i32::try_from(self.zigzag()?).map_err(|_| Unread::Damaged)?;
        usize::try_from(value).map_err(|_| Unread::Damaged)
    }

    /// Calls `field` with the number and the type of each field of a struct; `field` takes the value.
    pub(super) fn fields(
        &mut self,
        mut field: impl FnMut(&mut Self, i16, u8) -> Result<(), Unread>,
    ) -> Result<(), Unread> {
        let mut last = 0i16;
        loop {
            let first = self.byte()?;
            let kind = first & 0x0F;
            if kind == STOP {
                return Ok(());
            }
            let id = match first >> 4 {
                0 => i16::try_from(self.zigzag()?).ok(),
                step => last.checked_add(i16::from(step)),
            };
            last = id.ok_or(Unread::Damaged)?;
            field(self, last, kind)?;
        }
    }

    /// The type and the number of the items of a list.
    pub(super) fn list(&mut self) -> Result<(u8, usize), Unread> {
        let first = self.byte()?;
        let count = match first >> 4 {
            15 => usize::try_from(self.varint()?).map_err(|_| Unread::Damaged)?,
            count => usize::from(count),
        };
        Ok((first & 0x0F, count))
    }

    /// Skips a value.
    pub(super) fn skip(&mut self, kind: u8) -> Result<(), Unread> {
        self.skip_within(kind, 0)
    }

    fn skip_within(&mut self, kind: u8, depth: u32) -> Result<(), Unread> {
        match kind {
            TRUE | FALSE => {}
            BYTE => drop(self.byte()?),
            I16 | I32 | I64 => drop(self.varint()?),
            DOUBLE => drop(self.take(8)?),
            BINARY => {
                let length = usize::try_from(self.varint()?).map_err(|_| Unread::Damaged)?;
                self.take(length)?;
            }
            LIST | SET if depth < Self::DEPTH => {
                let (item, count) = self.list()?;
                // The library takes no bytes for an item that is true or false: there may be two billion of them in six bytes.
                if count > 0 && matches!(item, STOP | TRUE | FALSE) {
                    return Err(Unread::Damaged);
                }
                for _ in 0..count {
                    self.skip_within(item, depth + 1)?;
                }
            }
            STRUCT if depth < Self::DEPTH => {
                self.fields(|rest, _, kind| rest.skip_within(kind, depth + 1))?;
            }
            UUID => drop(self.take(16)?),
            // No Parquet file has a map.
            _ => return Err(Unread::Damaged),
        }
        Ok(())
    }
}
