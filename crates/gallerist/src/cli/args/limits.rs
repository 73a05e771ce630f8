//! Counts on the command line, with the largest that a command takes.

/// A whole number up to `MAX`.
pub(super) fn count<const MAX: usize>(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(count) if count <= MAX => Ok(count),
        // More digits than any number of the machine has.
        Err(_) if text.is_empty() || !text.chars().all(|c| c.is_ascii_digit()) => {
            Err("wanted a whole number".into())
        }
        _ => Err(format!("wanted at most {MAX}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_beyond_the_limit_names_it() {
        assert_eq!(count::<1024>("1024"), Ok(1024));
        for text in ["1025", "99999999999999999999999999"] {
            assert_eq!(count::<1024>(text).unwrap_err(), "wanted at most 1024");
        }
        for text in ["", "-1", "many", "1.5"] {
            assert_eq!(count::<1024>(text).unwrap_err(), "wanted a whole number");
        }
    }
}
