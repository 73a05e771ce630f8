//! Sources that are named by an address, such as `cells://plate-7`.

use std::any::TypeId;
use std::path::Path;
use std::sync::{PoisonError, RwLock};

use gallerist_util::text::nearest;

use super::image_source::ImageSource;
use crate::error::Error;

/// A source that an address opens: `SCHEME://rest`.
///
/// [`register_source`] makes it known; after that `data.train` of a run file, the arguments of the command line and
/// [`ImageSet::open`](crate::ImageSet::open) take the address in place of a path.
///
/// # Example
///
/// ```
/// use gallerist_data::*;
///
/// /// `squares://N`: N grey squares.
/// struct Squares {
///     address: String,
///     count: u8,
/// }
///
/// impl AddressedSource for Squares {
///     const SCHEME: &'static str = "squares";
///
///     fn open(rest: &str) -> Result<Self, Error> {
///         let address = format!("squares://{rest}");
///         match rest.parse() {
///             Ok(count) => Ok(Squares { address, count }),
///             Err(_) => Err(Error::Source {
///                 name: address,
///                 problem: "its number of squares is no number".into(),
///                 hint: Some("an address is `squares://20`".into()),
///             }),
///         }
///     }
/// }
///
/// impl ImageSource for Squares {
///     fn name(&self) -> &str {
///         &self.address
///     }
///
///     fn list(&mut self) -> Result<ImageListing, Error> {
///         Ok((0..self.count).map(|i| ImageRecord::new(i.to_string())).collect::<Vec<_>>().into())
///     }
///
///     fn read(&self, number: usize, _path: &str) -> Result<ImageContent, Error> {
///         Ok(ImageContent::Decoded(Image::new(1, 1, 1, vec![number as u8])))
///     }
/// }
///
/// register_source::<Squares>()?;
/// assert_eq!(ImageSet::open("squares://20")?.len(), 20);
/// # Ok::<(), Error>(())
/// ```
pub trait AddressedSource: ImageSource + Sized + 'static {
    /// What addresses begin with: lower-case letters, digits and `-`.
    const SCHEME: &'static str;

    /// The source of the address `SCHEME://rest`.
    ///
    /// # Errors
    ///
    /// [`Error::Source`] where the address names nothing.
    fn open(rest: &str) -> Result<Self, Error>;
}

/// A scheme with the function that opens its addresses.
#[derive(Clone, Copy)]
struct Scheme {
    name: &'static str,
    type_id: fn() -> TypeId,
    open: fn(&str) -> Result<Box<dyn ImageSource>, Error>,
}

/// The schemes that the program has registered.
static SCHEMES: RwLock<Vec<Scheme>> = RwLock::new(Vec::new());

/// Makes the addresses of a source known to the process. To register it twice has no effect.
///
/// # Errors
///
/// [`Error::Source`] where the scheme belongs to another type.
pub fn register_source<S: AddressedSource>() -> Result<(), Error> {
    let mut schemes = SCHEMES.write().unwrap_or_else(PoisonError::into_inner);
    match schemes.iter().find(|scheme| scheme.name == S::SCHEME) {
        None => {
            schemes.push(Scheme {
                name: S::SCHEME,
                type_id: TypeId::of::<S>,
                open: |rest| Ok(Box::new(S::open(rest)?)),
            });
            Ok(())
        }
        Some(known) if (known.type_id)() == TypeId::of::<S>() => Ok(()),
        Some(_) => Err(Error::Source {
            name: format!("{}://", S::SCHEME),
            problem: "its scheme is registered already, for another type".to_owned(),
            hint: None,
        }),
    }
}

/// The source of an address; `None` for a path, and for an address of an object store whose scheme is not registered.
pub(super) fn open(path: &Path) -> Option<Result<Box<dyn ImageSource>, Error>> {
    let (scheme, rest) = gallerist_util::text::address(path.to_str()?)?;
    let schemes = SCHEMES.read().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(known) = schemes.iter().find(|known| known.name.eq_ignore_ascii_case(scheme)) {
        return Some((known.open)(rest));
    }
    if gallerist_store::is_scheme(scheme) {
        return None;
    }
    let known: Vec<&str> = schemes.iter().map(|known| known.name).collect();
    let quoted: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
    Some(Err(Error::Source {
        name: path.display().to_string(),
        problem: match &quoted[..] {
            [] => format!("there is no image source `{scheme}`; none is registered"),
            several => format!("there is no image source `{scheme}`; there are {}", several.join(", ")),
        },
        hint: nearest(scheme, &known).map(|name| format!("did you mean `{name}`?")),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{ImageContent, ImageListing, ImageSet};

    struct Nothing;

    impl ImageSource for Nothing {
        fn name(&self) -> &str {
            "nothing"
        }

        fn list(&mut self) -> Result<ImageListing, Error> {
            Ok(ImageListing::default())
        }

        fn read(&self, _: usize, _: &str) -> Result<ImageContent, Error> {
            unreachable!("it has no image")
        }
    }

    impl AddressedSource for Nothing {
        const SCHEME: &'static str = "nothing";

        fn open(_: &str) -> Result<Self, Error> {
            Ok(Nothing)
        }
    }

    #[test]
    fn a_misspelt_scheme_is_refused_with_the_nearest_one_and_an_empty_source_holds_no_images() {
        register_source::<Nothing>().unwrap();
        register_source::<Nothing>().unwrap();
        let error = ImageSet::open("nothin://x").unwrap_err();
        assert!(
            error.to_string().starts_with("image source `nothin://x`: there is no image source `nothin`")
        );
        assert_eq!(error.hint().unwrap(), "did you mean `nothing`?");
        for address in ["nothing://x", "Nothing://x"] {
            assert_eq!(ImageSet::open(address).unwrap_err().to_string(), "no images in `nothing`");
        }
    }
}
