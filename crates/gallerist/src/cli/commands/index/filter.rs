//! The filter of the arguments.

use crate::cli::args::index::FilterArgs;
use crate::retrieval::index::ItemFilter;

impl FilterArgs {
    pub(super) fn filter(&self) -> ItemFilter {
        let mut filter = ItemFilter::default();
        if !self.label.is_empty() {
            filter = filter.label_in(&self.label);
        }
        if !self.not_label.is_empty() {
            filter = filter.label_not_in(&self.not_label);
        }
        if !self.camera.is_empty() {
            filter = filter.camera_in(&self.camera);
        }
        if !self.not_camera.is_empty() {
            filter = filter.camera_not_in(&self.not_camera);
        }
        if !self.path.is_empty() {
            filter = filter.path_in(&self.path);
        }
        if !self.not_path.is_empty() {
            filter = filter.path_not_in(&self.not_path);
        }
        if !self.id.is_empty() {
            filter = filter.id_in(self.id.iter().copied());
        }
        if !self.not_id.is_empty() {
            filter = filter.id_not_in(self.not_id.iter().copied());
        }
        filter.condition.clone_from(&self.condition);
        filter
    }
}
