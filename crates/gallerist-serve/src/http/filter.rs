//! Filters of searches and of lists.

use gallerist_data::to_nfc;
use gallerist_retrieval::condition::Condition;
use gallerist_retrieval::index::ItemFilter;

use super::error::{Answer, Refusal};
use crate::gallery::Catalog;

/// The most bytes of a condition in a request.
const MAX_CONDITION: usize = 4096;

/// Whether each row meets the condition `text`; `None` without one.
pub(crate) fn mask(catalog: &Catalog, text: Option<&str>) -> Answer<Option<Vec<bool>>> {
    Ok(checked(catalog, text)?.map(|(_, mask)| mask))
}

/// The condition `text`, and whether each row meets it; `None` without one.
pub(crate) fn checked(catalog: &Catalog, text: Option<&str>) -> Answer<Option<(Condition, Vec<bool>)>> {
    let Some(text) = text.filter(|text| !text.trim().is_empty()) else { return Ok(None) };
    if text.len() > MAX_CONDITION {
        let problem =
            format!("the condition has {} bytes; at most {MAX_CONDITION} are permitted", text.len());
        return Err(Refusal::bad(problem));
    }
    let checked = || {
        let condition = Condition::parse(text)?.with_labels(to_nfc);
        let mask = condition.mask(catalog)?;
        Ok((condition, mask))
    };
    checked()
        .map(Some)
        .map_err(|error: gallerist_retrieval::Error| Refusal::bad(error.to_string()).hint_of(error.hint()))
}

/// A filter for items with one of the labels `label`, none of `not_label`, from one of the cameras `camera`. An empty
/// list is no condition. An item with the labels `a|b` has each of the two.
pub(crate) fn filter(
    catalog: &Catalog,
    label: &[String],
    not_label: &[String],
    camera: Vec<String>,
) -> ItemFilter {
    let mut filter = ItemFilter::default();
    let (label, not_label) = (with_nfc(label), with_nfc(not_label));
    let excluded = catalog.labels.with_label(&not_label);
    if !label.is_empty() {
        // A filter has one condition on labels: subtract the excluded labels from the wanted ones.
        let wanted = catalog.labels.with_label(&label);
        filter = filter.label_in(wanted.difference(&excluded).copied());
    } else if !not_label.is_empty() {
        filter = filter.label_not_in(excluded);
    }
    if !camera.is_empty() {
        filter = filter.camera_in(camera);
    }
    filter
}

/// The labels and their forms NFC. A gallery that another program wrote may have labels of another form.
fn with_nfc(labels: &[String]) -> Vec<String> {
    let mut both = labels.to_vec();
    both.iter_mut().for_each(to_nfc);
    both.extend_from_slice(labels);
    both
}
