//! The parts of an address.
//!
//! In `s3://`, `gs://` and `az://` the path is the name of an object as it is: `#`, `?` and `%` are characters of it. A path
//! of `http://` and `https://` is percent-encoded; the names of objects are not.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use crate::{Error, Result};

/// The address of what is above the last part, and the name of that part: `s3://bucket/a` and `b.csv` for
/// `s3://bucket/a/b.csv`; `None` without a path.
///
/// ```
/// use gallerist_store::split_address;
/// assert_eq!(split_address("s3://bucket/a/b.csv")?, Some(("s3://bucket/a", "b.csv".into())));
/// assert_eq!(split_address("s3://bucket/b%20c.csv")?, Some(("s3://bucket", "b%20c.csv".into())));
/// assert_eq!(split_address("https://host/b%20c.csv")?, Some(("https://host", "b c.csv".into())));
/// assert_eq!(split_address("s3://bucket")?, None);
/// assert!(split_address("https://host/b.csv?version=2").is_err());
/// # Ok::<(), gallerist_store::Error>(())
/// ```
///
/// # Errors
/// An address with an empty part, and one of a web server with a query, a fragment or encoded bytes that are not UTF-8.
pub fn split_address(address: &str) -> Result<Option<(&str, Cow<'_, str>)>> {
    let address = check(address)?;
    let Some((_, rest)) = gallerist_util::text::address(address) else { return Ok(None) };
    let Some((_, name)) = rest.rsplit_once('/') else { return Ok(None) };
    let above = &address[..address.len() - name.len() - 1];
    if !is_web(address) {
        return Ok(Some((above, name.into())));
    }
    match percent_decode_str(name).decode_utf8() {
        Ok(name) => Ok(Some((above, name))),
        Err(_) => Err(refuse(address, "its percent-encoded bytes are not UTF-8", None)),
    }
}

/// Whether an address is of a web server.
pub(crate) fn is_web(address: &str) -> bool {
    let scheme = gallerist_util::text::address(address).map_or("", |(scheme, _)| scheme);
    scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https")
}

/// The address without its last `/`, if it is one of objects that can be read.
pub(crate) fn check(address: &str) -> Result<&str> {
    let trimmed = address.trim_end_matches('/');
    let (place, path) = divide(trimmed);
    let cut = if is_web(trimmed) { trimmed } else { place };
    match cut.find(['?', '#']).map(|at| &cut[at..=at]) {
        None => {}
        Some(_) if !is_web(trimmed) => {
            let hint = "the name of a bucket or container has letters, digits, `-` and `.`";
            return Err(refuse(trimmed, "its bucket has a `#` or `?`", Some(hint)));
        }
        Some("?") => {
            let hint = "download the file first; for a `?` in the name of a file write `%3F`";
            return Err(refuse(trimmed, "addresses with a query (`?`) are not read", Some(hint)));
        }
        Some(_) => {
            let hint = "for a `#` in the name of a file write `%23`";
            return Err(refuse(trimmed, "addresses with a fragment (`#`) are not read", Some(hint)));
        }
    }
    if path.split('/').skip(1).any(str::is_empty) {
        let hint = "leave out one `/`; objects whose names have `//` are not read: copy them to other names";
        return Err(refuse(trimmed, "it has an empty part (`//`)", Some(hint)));
    }
    Ok(trimmed)
}

/// What comes before the path of an address, and the path with its first `/`.
pub(crate) fn divide(address: &str) -> (&str, &str) {
    let start = gallerist_util::text::address(address).map_or(0, |(scheme, _)| scheme.len() + 3);
    address.split_at(address[start..].find('/').map_or(address.len(), |at| start + at))
}

fn refuse(address: &str, problem: &str, hint: Option<&str>) -> Error {
    Error::new("open", address, problem, hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_character_of_a_bucket_s_address_is_of_the_name() {
        for name in ["a#b.png", "q?.png", "100%.png", "%41.png", "日本.png"] {
            let address = format!("s3://bucket/dir/{name}");
            assert_eq!(split_address(&address).unwrap(), Some(("s3://bucket/dir", name.into())));
            assert_eq!(check(&address).unwrap(), address);
        }
    }

    #[test]
    fn a_query_a_fragment_and_an_empty_part_are_refused_with_a_hint() {
        for (address, problem, hint) in [
            ("https://host/a.png?sig=x.png", "query", "download the file first"),
            ("http://host/a.png?u=x/y.png", "query", "download the file first"),
            ("HTTPS://host/a#b.png", "fragment", "%23"),
            ("s3://bucket#a/b.png", "bucket", "letters"),
            ("s3://bucket/a//b.png", "empty part", "leave out"),
            ("s3://bucket//b.png", "empty part", "leave out"),
        ] {
            let error = split_address(address).unwrap_err();
            assert!(error.to_string().contains(problem), "{error}");
            assert!(error.hint().unwrap().contains(hint), "{address}");
        }
        assert!(split_address("https://host/%FF.png").is_err());
    }
}
