//! A note for sets in which every result is relevant.

/// Says that queries and gallery have one label only; `None` where an irrelevant item can be found.
pub(super) fn note(queries: &[String], gallery: Option<&[String]>) -> Option<String> {
    let label = queries.first()?;
    let all = queries.iter().chain(gallery.unwrap_or_default());
    let is_one = all.clone().all(|other| other == label);
    is_one.then(|| {
        let images = if gallery.is_some() { "queries and gallery" } else { "all images" };
        format!("{images} have the label `{label}`: every result is right, and the metrics say nothing")
    })
}

#[cfg(test)]
mod tests {
    use super::note;

    #[test]
    fn only_sets_in_which_nothing_wrong_can_be_found_have_a_note() {
        let labels = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let (one, two) = (labels(&["a", "a"]), labels(&["a", "b"]));
        let said = "all images have the label `a`: every result is right, and the metrics say nothing";
        assert_eq!(note(&one, None).as_deref(), Some(said));
        let said =
            "queries and gallery have the label `a`: every result is right, and the metrics say nothing";
        assert_eq!(note(&one, Some(&one)).as_deref(), Some(said));
        assert_eq!(note(&two, None), None);
        assert_eq!(note(&one, Some(&two)), None);
        assert_eq!(note(&two, Some(&one)), None);
        assert_eq!(note(&[], None), None);
    }
}
