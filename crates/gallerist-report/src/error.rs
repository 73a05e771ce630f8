//! The errors of this crate.

use std::path::PathBuf;

/// Why a picture, page or figure could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// The bytes are not in a picture format that browsers show.
    #[error("cannot put a picture of {bytes} bytes in the page: not a PNG, JPEG, GIF, WebP or BMP file")]
    PictureFormat {
        /// The number of bytes.
        bytes: usize,
    },
    /// The size of the pixel buffer does not match its shape.
    #[error(
        "cannot make a picture of {width} x {height} pixels and {channels} channels: \
         the buffer holds {found} bytes"
    )]
    PixelCount {
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
        /// Values per pixel.
        channels: u8,
        /// Bytes in the buffer.
        found: usize,
    },
    /// The pixels could not be encoded.
    #[error("cannot encode a picture of {width} x {height} pixels: {source}")]
    Encode {
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
        /// The error of the encoder.
        source: png::EncodingError,
    },
    /// The file name of a figure names no format.
    #[error("cannot draw a figure into `{}`: its name ends in neither .svg nor .png", path.display())]
    FigureName {
        /// The file.
        path: PathBuf,
    },
    /// The page or the figure could not be written.
    #[error("cannot write `{}`: {source}", path.display())]
    Write {
        /// The file that was to be written.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
}

impl ReportError {
    /// What the user can do about the error, if anything.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::PictureFormat { .. } => {
                Some("decode the picture and hand over its pixels instead".to_owned())
            }
            Self::PixelCount { .. } => Some(
                "a picture has at least one pixel, 1 (grey) or 3 (RGB) channels, \
                 and width x height x channels bytes"
                    .to_owned(),
            ),
            Self::Encode { .. } => None,
            Self::FigureName { .. } => Some("give --out FILE.svg or --out FILE.png".to_owned()),
            Self::Write { path, source } => match source.kind() {
                std::io::ErrorKind::NotFound => {
                    Some(format!("create the folder of `{}` first", path.display()))
                }
                std::io::ErrorKind::PermissionDenied => {
                    Some("choose a folder in which you may write".to_owned())
                }
                std::io::ErrorKind::StorageFull => Some("free some space on the disk".to_owned()),
                _ => gallerist_util::files::NotAFile::of(source).map(gallerist_util::files::NotAFile::hint),
            },
        }
    }
}
