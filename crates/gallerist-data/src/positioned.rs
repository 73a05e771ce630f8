//! Reading and writing at a position, without a position that threads share.

use std::fs::File;
use std::io;

/// As [`std::io::Read::read`].
#[cfg(unix)]
pub(crate) fn read_at(file: &File, out: &mut [u8], position: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, out, position)
}

/// As [`std::io::Read::read`].
#[cfg(windows)]
pub(crate) fn read_at(file: &File, out: &mut [u8], position: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, out, position)
}

/// As [`std::io::Write::write`].
#[cfg(unix)]
fn write_at(file: &File, bytes: &[u8], position: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::write_at(file, bytes, position)
}

/// As [`std::io::Write::write`].
#[cfg(windows)]
fn write_at(file: &File, bytes: &[u8], position: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_write(file, bytes, position)
}

/// As [`std::io::Read::read_exact`], but for a file that ends before: false then.
pub(crate) fn read_whole_at(file: &File, mut out: &mut [u8], mut position: u64) -> io::Result<bool> {
    while !out.is_empty() {
        match read_at(file, out, position) {
            Ok(0) => return Ok(false),
            Ok(n) => {
                out = &mut out[n..];
                position += n as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(true)
}

/// As [`std::io::Write::write_all`].
pub(crate) fn write_whole_at(file: &File, mut bytes: &[u8], mut position: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match write_at(file, bytes, position) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => {
                bytes = &bytes[n..];
                position += n as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
