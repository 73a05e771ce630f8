//! JPEG: the walk of `gallerist-jpeg` and the decoding of files. The oracle is zune-jpeg on the whole file.

use std::cell::Cell;

use gallerist_data::decode_with;
use gallerist_jpeg::{Never, walk};
use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

use super::pictures::limits;
use crate::cost::{Limit, measured};
use crate::goals::reached;

pub(super) fn run(bytes: &[u8]) {
    if !bytes.starts_with(&[0xFF, 0xD8, 0xFF]) {
        return;
    }
    let declared = Cell::new(0_u64);
    let size = Cell::new((0, 0));
    let walked = |least| {
        let most = limits().max_decoded_bytes;
        walk(bytes, least, &Never, |width, height, components| {
            let pixels = (width * height * components.min(3)) as u64;
            if width == 0 || height == 0 || width.max(height) > limits().max_side || pixels > most {
                return Err("its size is refused".to_owned());
            }
            declared.set(declared.get().max(pixels));
            size.set((width, height));
            Ok(())
        })
    };
    let (whole, spent) = measured(|| walked(None));
    spent.check(Limit::PICTURE, bytes.len(), declared.get());
    let (width, height) = size.get();
    let reduced = walked(Some(1));
    assert_eq!(whole.is_err(), reduced.is_err(), "a reduced picture is refused for the same damage");
    if let Ok(Some(planes)) = reduced {
        reached("reduced");
        let picture = planes.picture(width, height);
        assert_eq!(picture.pixels.len(), picture.width * picture.height * picture.channels);
    }
    let (decoded, spent) = measured(|| decode_with(bytes, "input", &limits()));
    spent.check(Limit::PICTURE, bytes.len(), 2 * declared.get());
    super::given_up::assert_not_given_up(&decoded);
    match whole {
        Err(_) => assert!(decoded.is_err(), "a file that the walk refuses is decoded"),
        Ok(None) => {}
        Ok(Some(planes)) => {
            reached("whole");
            let picture = planes.picture(width, height);
            assert_eq!((picture.width, picture.height), (width, height));
            if let Some((colors, pixels)) = zune(bytes)
                && colors == picture.channels
            {
                assert!(picture.pixels == pixels, "the pixels are not those of zune-jpeg");
                reached("compared");
            }
        }
    }
}

/// Channels and pixels, as zune-jpeg decodes grey and YCbCr.
fn zune(bytes: &[u8]) -> Option<(usize, Vec<u8>)> {
    let options = DecoderOptions::default().set_strict_mode(true);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_headers().ok()?;
    let (channels, out) = match decoder.input_colorspace()? {
        ColorSpace::Luma => (1, ColorSpace::Luma),
        ColorSpace::YCbCr => (3, ColorSpace::RGB),
        _ => return None,
    };
    decoder.set_options(decoder.options().jpeg_set_out_colorspace(out));
    decoder.decode().ok().map(|pixels| (channels, pixels))
}
