//! IDX files (MNIST): a header with the sizes, then the bytes.

use std::io::Read;

use flate2::read::MultiGzDecoder;

use crate::decode::{MAX_FILE_BYTES, MAX_SIDE};
use crate::error::Error;
use crate::image::Image;

/// An IDX array of bytes; `name` is for messages.
///
/// The header is 0, 0, 8 (bytes), the number of dimensions, and each size as 4 bytes, big endian.
pub(super) fn parse(bytes: Vec<u8>, dimensions: usize, name: &str) -> Result<(Vec<usize>, Vec<u8>), Error> {
    let fault = |problem: String| Error::Annotation { path: name.to_owned(), line: None, problem };
    let mut bytes = unpacked(bytes, name)?;
    let header = 4 + 4 * dimensions;
    if bytes.len() < header {
        return Err(fault(format!("{} bytes are too few for the header of an IDX file", bytes.len())));
    }
    if bytes[..3] != [0, 0, 8] || usize::from(bytes[3]) != dimensions {
        return Err(fault(format!("it does not begin like an IDX file of bytes in {dimensions} dimensions")));
    }
    let sizes: Vec<usize> =
        bytes[4..header].as_chunks::<4>().0.iter().map(|&size| u32::from_be_bytes(size) as usize).collect();
    let promised = sizes.iter().try_fold(1usize, |product, &size| product.checked_mul(size));
    if promised != Some(bytes.len() - header) {
        let sizes: Vec<String> = sizes.iter().map(ToString::to_string).collect();
        return Err(fault(format!(
            "its header promises {} bytes, and it has {}",
            sizes.join(" x "),
            bytes.len() - header
        )));
    }
    bytes.drain(..header);
    Ok((sizes, bytes))
}

/// The bytes as they are, or unpacked where they are packed with gzip.
fn unpacked(bytes: Vec<u8>, name: &str) -> Result<Vec<u8>, Error> {
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return Ok(bytes);
    }
    let fault = |problem: String| Error::Annotation { path: name.to_owned(), line: None, problem };
    let mut out = Vec::new();
    MultiGzDecoder::new(bytes.as_slice())
        .take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut out)
        .map_err(|e| fault(format!("it is no whole gzip file: {e}")))?;
    if out.len() as u64 > MAX_FILE_BYTES {
        return Err(fault(format!("it unpacks to more than {} MiB", MAX_FILE_BYTES >> 20)));
    }
    Ok(out)
}

/// Grey pictures of one size in named groups; picture `i` of group `train` is `train/00000i`.
#[derive(Default)]
pub(super) struct Pictures(Vec<Group>);

struct Group {
    name: &'static str,
    width: usize,
    height: usize,
    pixels: Vec<u8>,
}

impl Pictures {
    /// Adds a group from the bytes of an IDX file of three dimensions; returns its pictures' number.
    pub(super) fn add(&mut self, group: &'static str, bytes: Vec<u8>, name: &str) -> Result<usize, Error> {
        let (sizes, pixels) = parse(bytes, 3, name)?;
        let [count, height, width] = sizes[..] else { unreachable!("three dimensions were asked for") };
        if count > 0 && !((1..=MAX_SIDE).contains(&width) && (1..=MAX_SIDE).contains(&height)) {
            let problem =
                format!("pictures of {height} x {width}, and a side may have 1 to {MAX_SIDE} pixels");
            return Err(Error::Annotation { path: name.to_owned(), line: None, problem });
        }
        self.0.push(Group { name: group, width, height, pixels });
        Ok(count)
    }

    /// The path of a picture.
    pub(super) fn path(group: &str, number: usize) -> String {
        format!("{group}/{number:06}")
    }

    fn find(&self, path: &str) -> (&Group, &[u8]) {
        let (group, number) = path.split_once('/').expect("made by `path`");
        let group = self.0.iter().find(|g| g.name == group).expect("a group that was added");
        let area = group.width * group.height;
        let start = number.parse::<usize>().expect("made by `path`") * area;
        (group, &group.pixels[start..start + area])
    }

    pub(super) fn image(&self, path: &str) -> Image {
        let (group, pixels) = self.find(path);
        Image::new(group.width, group.height, 1, pixels.to_vec())
    }
}
