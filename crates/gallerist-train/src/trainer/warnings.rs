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
    /// Warns once when the embedding collapses, once when it gives up most of its dimensions, and once when nothing
    /// is left to learn.
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
        // A loss of another crate may count nothing.
        let mined = queries.iter().flat_map(|q| q.mined_positives.iter().chain(&q.mined_negatives));
        let mut mined = mined.peekable();
        let trivial = mined.peek().is_some() && mined.all(|&mined| mined == 0);
        self.warnings.trivial_steps = if trivial { self.warnings.trivial_steps + 1 } else { 0 };
        let in_succession = self.warnings.trivial_steps;
        // Nothing to learn from the start is no end of training.
        let (which, few) =
            if in_succession == step { ("first", TRIVIAL_AT_START) } else { ("last", TRIVIAL) };
        let nothing = (!self.warnings.trivial && in_succession == few).then(|| {
            format!(
                "no pair of the {which} {few} batches gives a gradient; use larger batches (sampler.classes_per_batch), two \
                 images of a class or more (sampler.images_per_class), or a wider margin (loss.margin)"
            )
        });
        self.warnings.trivial |= nothing.is_some();
        messages.extend(nothing.as_deref());
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
