//! Objects of S3, Google Cloud Storage, Azure and HTTP servers, as files.
//!
//! An address such as `s3://bucket/photos` takes the place of a folder: [`Store`] lists, reads, writes and removes the
//! objects below it. The clients are those of the crate `object_store`, with its retries, and read the environment
//! variables that it reads (`AWS_ACCESS_KEY_ID`, `GOOGLE_SERVICE_ACCOUNT`, `AZURE_STORAGE_ACCOUNT_NAME` and others). They
//! are compiled with the feature `clients`; without it [`Store::open`] says how to build them.
//!
//! All calls block, and may be made from several threads at once.

mod address;
#[cfg(feature = "clients")]
mod answer;
#[cfg(feature = "clients")]
mod clients;
#[cfg(feature = "clients")]
mod connector;
mod error;
#[cfg(not(feature = "clients"))]
mod none;

pub use address::split_address;
#[cfg(feature = "clients")]
pub use clients::{LocalCopy, Store};
pub use error::{Error, Result};
#[cfg(not(feature = "clients"))]
pub use none::{LocalCopy, Store};

/// The schemes of the addresses of stores.
pub const SCHEMES: [&str; 8] = ["s3", "s3a", "gs", "az", "abfs", "abfss", "http", "https"];

/// Whether a text is the address of a store: `s3://bucket/photos`. Schemes are in any case.
///
/// ```
/// use gallerist_store::is_address;
/// assert!(is_address("s3://bucket/photos") && is_address("S3://bucket/photos"));
/// assert!(!is_address("photos") && !is_address("cells://plate-7"));
/// ```
pub fn is_address(text: &str) -> bool {
    gallerist_util::text::address(text).is_some_and(|(scheme, _)| is_scheme(scheme))
}

/// Whether it is one of the [schemes](SCHEMES), in any case.
pub fn is_scheme(scheme: &str) -> bool {
    SCHEMES.iter().any(|known| known.eq_ignore_ascii_case(scheme))
}

/// The text if it is the address of a store, `None` if it is a path.
///
/// ```
/// use gallerist_store::address_of_store;
/// assert_eq!(address_of_store("s3://bucket/photos").unwrap(), Some("s3://bucket/photos"));
/// assert_eq!(address_of_store("photos").unwrap(), None);
/// assert!(address_of_store("oss://bucket/photos").is_err());
/// ```
///
/// # Errors
/// An address `word://rest` of another scheme, which would otherwise be the path of a folder `word:`.
pub fn address_of_store(text: &str) -> Result<Option<&str>> {
    match gallerist_util::text::address(text) {
        None => Ok(None),
        Some((scheme, _)) if is_scheme(scheme) => Ok(Some(text)),
        Some((scheme, rest)) => {
            let known = SCHEMES.map(|known| format!("`{known}://`")).join(", ");
            let hint = match scheme.eq_ignore_ascii_case("file") {
                true => format!("give the path without `{scheme}://`: `{rest}`"),
                false => format!("an address begins with one of {known}"),
            };
            let problem = format!("there is no object store `{scheme}://`");
            Err(Error::new("open", text, problem, Some(&hint)))
        }
    }
}

/// An object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its name below the address of the store, with `/` between the parts.
    pub name: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// Seconds since 1970 at which it was written.
    pub written: u64,
}

/// The objects below a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// In the order of their names.
    pub objects: Vec<Object>,
    /// The names of objects that cannot be read, sorted: those with an empty part, as in `a//b.png`, a part `.` or `..`, or
    /// control characters.
    pub unreadable: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_an_unknown_scheme_is_refused_and_the_known_ones_are_named() {
        for address in ["oss://bucket/x", "gcs://bucket/x", "qdrnt://host/x"] {
            let error = address_of_store(address).unwrap_err();
            assert!(error.to_string().contains("there is no object store"), "{error}");
            let hint = error.hint().unwrap();
            assert!(SCHEMES.iter().all(|scheme| hint.contains(&format!("`{scheme}://`"))), "{hint}");
        }
        let hint = address_of_store("file:///tmp/x").unwrap_err().hint().unwrap();
        assert_eq!(hint, "give the path without `file://`: `/tmp/x`");
        assert_eq!(address_of_store("GS://bucket").unwrap(), Some("GS://bucket"));
    }
}
