//! What the user is warned of during training, each once.

use gallerist_data::Broken;
use gallerist_loss::{BatchStatistics, Queries};

use super::state::Trainer;
use crate::Result;
use crate::broken::BrokenImage;
use crate::log::Record;
use crate::observer::Observer;

/// The set of an image in [`BrokenImage`].
pub(super) const TRAIN: &str = "train";
/// The same for validation.
pub(super) const VALIDATION: &str = "validation";

/// Batches in succession without a gradient, at the start and later, of which the user is warned.
const TRIVIAL_AT_START: usize = 5;
const TRIVIAL: usize = 20;

impl Trainer {
    /// Warns once when the embedding collapses, and once when it gives up most of its dimensions.
    pub(super) fn watch(
        &mut self,
        step: usize,
        seen: &BatchStatistics,
        queries: &[Queries],
        observer: &mut dyn Observer,
    ) -> Result<()> {
        let mut messages = Vec::new();
        let collapsed = self.warnings.collapse_watch.step(seen, &self.config);
        messages.extend(collapsed.as_deref());
        let lost = self.warnings.rank_watch.step(seen.rank, seen.possible_rank);
        // A collapse has its own warning.
        let lost =
            lost.filter(|_| !self.warnings.collapse_watch.warned()).map(|lost| lost.message(&self.config));
        messages.extend(lost.as_deref());
        if let (false, Some(note)) = (self.warnings.note, queries.iter().find_map(|q| q.note)) {
            self.warnings.note = true;
            messages.push(note);
        }
        let stores = [Some(&self.store), self.validation.as_ref()];
        let full = stores
            .into_iter()
            .flatten()
            .find_map(|store| store.disk_problem())
            .map(|problem| format!("{problem}; further images are not kept there (data.cache_folder)"));
        if let (false, Some(message)) = (self.warnings.cache, &full) {
            self.warnings.cache = true;
            messages.push(message);
        }
        for message in messages {
            observer.warning(message);
            self.log.write(&Record::Warning { step, message: message.into() })?;
        }
        Ok(())
    }

    /// Warns once when nothing is left to learn: no pair and no gradient in many steps in succession.
    pub(super) fn watch_gradient(
        &mut self,
        step: usize,
        is_trivial: bool,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        self.warnings.trivial_steps = if is_trivial { self.warnings.trivial_steps + 1 } else { 0 };
        let in_succession = self.warnings.trivial_steps;
        // Nothing to learn from the start is no end of training.
        let (which, few) =
            if in_succession == step { ("first", TRIVIAL_AT_START) } else { ("last", TRIVIAL) };
        if self.warnings.trivial || in_succession != few {
            return Ok(());
        }
        self.warnings.trivial = true;
        let message = format!(
            "no pair of the {which} {few} batches gives a gradient; use larger batches (sampler.classes_per_batch), two \
             images of a class or more (sampler.images_per_class), or a wider margin (loss.margin)"
        );
        observer.warning(&message);
        self.log.write(&Record::Warning { step, message })
    }

    /// Reports images of `set` that cannot be read, each once in a run.
    pub(super) fn report_broken(
        &mut self,
        set: &str,
        broken: &[Broken],
        observer: &mut dyn Observer,
    ) -> Result<()> {
        for one in broken {
            let images = match set {
                TRAIN => self.store.set(),
                _ => self.validation.as_ref().map_or(self.store.set(), |store| store.set()),
            };
            let image = images.path(one.item as usize).to_owned();
            let image = BrokenImage { set: set.into(), image, reason: one.to_string() };
            // Several ranks may find the same; so may the steps, the class means, and a run before it was resumed.
            let known = &self.warnings.broken;
            if known.iter().any(|known| {
                (&known.set, &known.image, &known.reason) == (&image.set, &image.image, &image.reason)
            }) {
                continue;
            }
            let fate = match set {
                TRAIN => "another image of its class takes its place",
                _ => "validation leaves it out",
            };
            observer.warning(&format!("{one}; {fate}"));
            self.log.write(&Record::BrokenImage { step: self.state.step, image: image.clone() })?;
            self.warnings.broken.push(image);
        }
        Ok(())
    }
}
