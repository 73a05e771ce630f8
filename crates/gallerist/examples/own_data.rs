//! A program with images of its own, which come from no file: run files name them `train = ["squares://8"]`. It has all
//! commands of `gallerist`.
//!
//! ```text
//! cargo run --release --example own_data -- data info squares://8
//! cargo run --release --example own_data -- train run.toml --set 'data.train=["squares://8"]'
//! ```

use gallerist::data::{AddressedSource, Error, Image};
use gallerist::prelude::*;

/// Images of each class.
const IMAGES: usize = 12;

/// Squares on a dark ground, as many classes as the address says: the size of the square is the class.
pub struct Squares {
    address: String,
    classes: usize,
}

impl AddressedSource for Squares {
    const SCHEME: &'static str = "squares";

    fn open(rest: &str) -> Result<Self, Error> {
        let address = format!("squares://{rest}");
        match rest.parse() {
            Ok(classes @ 1..=10) => Ok(Squares { address, classes }),
            _ => Err(Error::Source {
                name: address,
                problem: "its number of classes is not between 1 and 10".into(),
                hint: Some("write it as `squares://8`".into()),
            }),
        }
    }
}

impl ImageSource for Squares {
    fn name(&self) -> &str {
        &self.address
    }

    fn list(&mut self) -> Result<ImageListing, Error> {
        let record = |i| {
            let (class, number) = (i / IMAGES, i % IMAGES);
            ImageRecord::new(format!("{class}/{number}")).with_label(format!("side {}", class + 3))
        };
        Ok((0..self.classes * IMAGES).map(record).collect::<Vec<_>>().into())
    }

    fn read(&self, number: usize, _path: &str) -> Result<ImageContent, Error> {
        let (side, shift) = (number / IMAGES + 3, number % IMAGES);
        let (left, top) = (shift % 4, shift / 4);
        let inside = |x: usize, y: usize| (left..left + side).contains(&x) && (top..top + side).contains(&y);
        let pixels = (0..16 * 16).map(|at| if inside(at % 16, at / 16) { 220 } else { 30 }).collect();
        Ok(ImageContent::Decoded(Image::new(16, 16, 1, pixels)))
    }
}

/// The registry with the source.
pub fn registry() -> Registry {
    Registry::default().source::<Squares>()
}

fn main() -> std::process::ExitCode {
    gallerist::cli::run(&registry())
}
