//! Eight-bit images in memory.

use std::cell::RefCell;

use fast_image_resize as fir;
use fir::images::{TypedImage, TypedImageRef};
use fir::pixels::{U8, U8x3};

use crate::size::Size;

/// An 8-bit image: grey (1 channel) or RGB (3 channels).
///
/// `pixels` is row-major with interleaved channels, `height x width x channels`
/// bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    width: usize,
    height: usize,
    channels: usize,
    pixels: Vec<u8>,
    /// How much of the outermost pixels is beyond the picture: left, top, right, bottom, in eighths of a
    /// pixel. Only where a JPEG was decoded at a reduced size that is no whole number of pixels.
    beyond: [u8; 4],
}

thread_local! {
    /// The resizer keeps its buffers between calls.
    static RESIZER: RefCell<fir::Resizer> = RefCell::new(fir::Resizer::new());
}

impl Image {
    /// An image from its pixels.
    ///
    /// # Panics
    ///
    /// If a side is 0, `channels` is neither 1 nor 3, or `pixels` has not
    /// `width * height * channels` bytes.
    pub fn new(width: usize, height: usize, channels: usize, pixels: Vec<u8>) -> Self {
        assert!(width > 0 && height > 0, "an image of {width} x {height} pixels");
        assert!(channels == 1 || channels == 3, "an image of {channels} channels");
        assert_eq!(
            pixels.len(),
            width * height * channels,
            "{} bytes for an image of {width} x {height} x {channels}",
            pixels.len()
        );
        Image { width, height, channels, pixels, beyond: [0; 4] }
    }

    /// The same, with eighths of the last column and row beyond the picture.
    pub(crate) fn with_beyond(self, right: usize, bottom: usize) -> Self {
        Image { beyond: [0, 0, right as u8, bottom as u8], ..self }
    }

    /// The picture in the image: left, top, width, height, in pixels.
    pub(crate) fn extent(&self) -> [f64; 4] {
        let [left, top, right, bottom] = self.beyond.map(|eighths| f64::from(eighths) / 8.0);
        [left, top, self.width as f64 - left - right, self.height as f64 - top - bottom]
    }

    /// Pixels in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Rows.
    pub fn height(&self) -> usize {
        self.height
    }

    /// Height and width.
    pub fn size(&self) -> Size {
        Size { height: self.height, width: self.width }
    }

    /// 1 (grey) or 3 (RGB).
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// `height x width x channels` bytes.
    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }

    /// The pixels, without a copy.
    pub fn into_pixels(self) -> Vec<u8> {
        self.pixels
    }

    /// Whether at least one pixel in a hundred has a colour. Scans of drawings have a little of it.
    ///
    /// ```
    /// use gallerist_data::Image;
    ///
    /// assert!(Image::new(1, 1, 3, vec![200, 90, 40]).is_coloured());
    /// assert!(!Image::new(1, 1, 3, vec![90, 92, 91]).is_coloured());
    /// ```
    pub fn is_coloured(&self) -> bool {
        const APART: u8 = 24;
        if self.channels != 3 {
            return false;
        }
        let pixels = self.pixels.as_chunks::<3>().0;
        let coloured = |&&[r, g, b]: &&[u8; 3]| r.max(g).max(b) - r.min(g).min(b) > APART;
        100 * pixels.iter().filter(coloured).count() > pixels.len()
    }

    /// Grey by the luma of ITU-R BT.601, 0.299 R + 0.587 G + 0.114 B, rounded
    /// as Pillow rounds it.
    pub fn to_gray(self) -> Image {
        if self.channels == 1 {
            return self;
        }
        let pixels = self.pixels.as_chunks::<3>().0.iter().map(|&[r, g, b]| luma(r, g, b)).collect();
        Image { channels: 1, pixels, ..self }
    }

    /// RGB; grey becomes three equal channels.
    pub fn to_rgb(self) -> Image {
        if self.channels == 3 {
            return self;
        }
        let pixels = self.pixels.iter().flat_map(|&v| [v, v, v]).collect();
        Image { channels: 3, pixels, ..self }
    }

    /// Grey for 1, RGB for 3 channels.
    ///
    /// # Panics
    ///
    /// For any other number.
    pub fn to_channels(self, channels: usize) -> Image {
        match channels {
            1 => self.to_gray(),
            3 => self.to_rgb(),
            n => panic!("an image of {n} channels"),
        }
    }

    /// The image at another size, the aspect ratio ignored.
    ///
    /// A triangle filter whose support grows with the reduction: bilinear when
    /// enlarging, anti-aliased when shrinking (Pillow's `BILINEAR`).
    ///
    /// # Panics
    ///
    /// If a side of `size` is 0.
    pub fn resize(&self, size: Size) -> Image {
        let [left, top, width, height] = self.extent();
        self.resize_window(left, top, width, height, size)
    }

    /// The image with its longer side at most `side`, the aspect ratio kept, resized as [`resize`](Self::resize) does.
    /// One that is small enough is returned as it is.
    ///
    /// # Panics
    ///
    /// If `side` is 0.
    ///
    /// ```
    /// use gallerist_data::Image;
    ///
    /// let photograph = Image::new(300, 200, 1, vec![0; 300 * 200]);
    /// let small = photograph.shrink_to(64);
    /// assert_eq!((small.width(), small.height()), (64, 43));
    /// assert_eq!(small.clone().shrink_to(100), small);
    /// ```
    pub fn shrink_to(self, side: usize) -> Image {
        let longer = self.width.max(self.height);
        if longer <= side {
            return self;
        }
        let factor = side as f64 / longer as f64;
        let scaled = |length: usize| ((length as f64 * factor).round() as usize).clamp(1, side);
        self.resize(Size { height: scaled(self.height), width: scaled(self.width) })
    }

    /// A window of the image (left, top, width, height, in pixels) at `size`.
    pub(crate) fn resize_window(&self, left: f64, top: f64, width: f64, height: f64, size: Size) -> Image {
        let whole = left == 0.0 && top == 0.0 && width == self.width as f64 && height == self.height as f64;
        if whole && size == self.size() {
            return self.clone();
        }
        let options = fir::ResizeOptions::new()
            .resize_alg(fir::ResizeAlg::Convolution(fir::FilterType::Bilinear))
            .crop(left, top, width, height)
            .use_alpha(false);
        let mut pixels = vec![0; size.area() * self.channels];
        match self.channels {
            1 => self.resize_as::<U8>(&options, size, &mut pixels),
            _ => self.resize_as::<U8x3>(&options, size, &mut pixels),
        }
        Image::new(size.width, size.height, self.channels, pixels)
    }

    /// Resizes for one type of pixels: only the two that are used get compiled.
    fn resize_as<P: fir::PixelTrait>(&self, options: &fir::ResizeOptions, size: Size, out: &mut [u8]) {
        let (width, height) = (self.width as u32, self.height as u32);
        let source = TypedImageRef::<P>::from_buffer(width, height, &self.pixels)
            .expect("the length of `pixels` is an invariant of `Image`");
        let mut target = TypedImage::<P>::from_buffer(size.width as u32, size.height as u32, out)
            .expect("the buffer was made for this size");
        RESIZER
            .with_borrow_mut(|resizer| resizer.resize_typed(&source, &mut target, options))
            .expect("the window lies inside the image");
    }

    /// The window of `size` pixels whose top left corner is at (`left`, `top`).
    ///
    /// # Panics
    ///
    /// If it reaches beyond the image.
    pub fn crop(&self, left: usize, top: usize, size: Size) -> Image {
        assert!(
            left + size.width <= self.width && top + size.height <= self.height,
            "a window of {size} at ({left}, {top}) in an image of {}",
            self.size()
        );
        let row = self.width * self.channels;
        let mut pixels = Vec::with_capacity(size.width * size.height * self.channels);
        for y in top..top + size.height {
            let start = y * row + left * self.channels;
            pixels.extend_from_slice(&self.pixels[start..start + size.width * self.channels]);
        }
        Image::new(size.width, size.height, self.channels, pixels)
    }

    /// Turned counter-clockwise by `quarters` times 90 degrees.
    pub fn rotate(&self, quarters: u8) -> Image {
        let turned = match quarters % 4 {
            0 => self.clone(),
            // Row y of the result is column width-1-y of the source.
            1 => self.gather(self.height, self.width, |x, y| (self.width - 1 - y, x)),
            2 => self.gather(self.width, self.height, |x, y| (self.width - 1 - x, self.height - 1 - y)),
            _ => self.gather(self.height, self.width, |x, y| (y, self.height - 1 - x)),
        };
        let mut beyond = self.beyond;
        beyond.rotate_left(usize::from(quarters % 4));
        Image { beyond, ..turned }
    }

    /// Red and blue exchanged; a grey image stays as it is.
    pub fn swap_red_and_blue(mut self) -> Image {
        if self.channels == 3 {
            self.pixels.as_chunks_mut::<3>().0.iter_mut().for_each(|pixel| pixel.swap(0, 2));
        }
        self
    }

    /// Mirrored left to right.
    pub fn flip_horizontal(&self) -> Image {
        let [left, top, right, bottom] = self.beyond;
        let mirrored = self.gather(self.width, self.height, |x, y| (self.width - 1 - x, y));
        Image { beyond: [right, top, left, bottom], ..mirrored }
    }

    fn gather(&self, width: usize, height: usize, source: impl Fn(usize, usize) -> (usize, usize)) -> Image {
        let c = self.channels;
        let mut pixels = Vec::with_capacity(self.pixels.len());
        for y in 0..height {
            for x in 0..width {
                let (sx, sy) = source(x, y);
                let at = (sy * self.width + sx) * c;
                pixels.extend_from_slice(&self.pixels[at..at + c]);
            }
        }
        Image::new(width, height, c, pixels)
    }
}

/// Fixed-point luma: the weights times 65,536, which sum to 65,536.
fn luma(r: u8, g: u8, b: u8) -> u8 {
    ((u32::from(r) * 19595 + u32::from(g) * 38470 + u32::from(b) * 7471 + 0x8000) >> 16) as u8
}
