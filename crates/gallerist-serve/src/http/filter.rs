//! Filters of searches and of lists.

use gallerist_retrieval::index::ItemFilter;

/// A filter for items with one of the labels `label`, none of `not_label`, from one of the cameras `camera`. An empty
/// list is no condition.
pub(crate) fn filter(label: Vec<String>, not_label: Vec<String>, camera: Vec<String>) -> ItemFilter {
    let mut filter = ItemFilter::default();
    if !label.is_empty() {
        // A filter has one condition on labels: subtract the excluded labels from the wanted ones.
        filter = filter.label_in(label.into_iter().filter(|label| !not_label.contains(label)));
    } else if !not_label.is_empty() {
        filter = filter.label_not_in(not_label);
    }
    if !camera.is_empty() {
        filter = filter.camera_in(camera);
    }
    filter
}
