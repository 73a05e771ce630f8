//! Whether a client already has what it asks for.

use axum::http::{HeaderMap, header};

/// Whether `If-None-Match` names this ETag or is `*`. Tags are compared without `W/`, the weak comparison of RFC 9110,
/// section 13.1.2: a proxy that compresses answers makes their ETags weak.
pub(super) fn is_known(asked: &HeaderMap, etag: &str) -> bool {
    let lists = asked.get_all(header::IF_NONE_MATCH).iter().filter_map(|tags| tags.to_str().ok());
    // Our tags have no comma.
    lists.flat_map(|tags| tags.split(',')).map(str::trim).any(|tag| {
        let strong = tag.strip_prefix("W/").unwrap_or(tag);
        tag == "*" || strong == etag
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_compared_weakly_and_in_lists() {
        let known = |tags: &[&str]| {
            let mut headers = HeaderMap::new();
            for tag in tags {
                headers.append(header::IF_NONE_MATCH, tag.parse().unwrap());
            }
            is_known(&headers, "\"a1\"")
        };
        for tags in [&["\"a1\""][..], &["W/\"a1\""], &["*"], &["\"b\", W/\"a1\""], &["\"b\"", "\"a1\""]] {
            assert!(known(tags), "{tags:?}");
        }
        for tags in [&[][..], &["\"b\""], &["a1"], &["w/\"a1\""], &["\"a\",\"1\""]] {
            assert!(!known(tags), "{tags:?}");
        }
    }
}
