//! What the user is warned of during training, each once.

use gallerist_data::Broken;
use gallerist_loss::{BatchStatistics, Queries};

use super::state::Trainer;
use crate::Result;
use crate::log::Record;
use crate::observer::Observer;

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
        if !self.warnings.collapsed && seen.collapsed() {
            self.warnings.collapsed = true;
            messages.push(
                "all embeddings of a batch are (nearly) the same point; lower optimizer.learning_rate, or use a \
                 longer warm-up (schedule.warmup_steps)",
            );
        }
        let lost = self.warnings.rank_watch.step(seen.rank, seen.possible_rank);
        // A collapse has its own warning.
        let lost = lost.filter(|_| !self.warnings.collapsed).map(|lost| lost.message(&self.config));
        messages.extend(lost.as_deref());
        // A loss of another crate may count nothing.
        let mined = queries.iter().flat_map(|q| q.mined_positives.iter().chain(&q.mined_negatives));
        let mut mined = mined.peekable();
        let trivial = mined.peek().is_some() && mined.all(|&mined| mined == 0);
        self.warnings.trivial_steps = if trivial { self.warnings.trivial_steps + 1 } else { 0 };
        if !self.warnings.trivial && self.warnings.trivial_steps == 20 {
            self.warnings.trivial = true;
            messages.push(
                "no pair of the last 20 batches gives a gradient; use larger batches (sampler.classes_per_batch) or \
                 a wider margin (loss.margin)",
            );
        }
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

    pub(super) fn report_broken(&mut self, broken: Vec<Broken>, observer: &mut dyn Observer) -> Result<()> {
        // Several ranks may find the same.
        let known = |one: &Broken| self.warnings.broken.iter().any(|known| known.item == one.item);
        let broken: Vec<Broken> = broken.into_iter().filter(|one| !known(one)).collect();
        for one in broken {
            let message = format!("{one}; another image of its class takes its place");
            observer.warning(&message);
            self.log.write(&Record::Warning { step: self.state.step, message })?;
            self.warnings.broken.push(one);
        }
        Ok(())
    }
}
