//! What a long command shows on stderr: its phases, its steps, its warnings.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use indicatif::ProgressBar;

use super::printer::{self, count, duration, grouped};
use super::progress::{Doing, EMBEDDING, STEPS, bar};
use crate::Observer;
use crate::retrieval::eval::Evaluation;
use crate::train::log::Step;
use crate::train::{self, Phase, Profile, RunEnd, Trainer};
use crate::weights::Preprocessing;

/// Shows progress and messages on stderr.
#[derive(Default)]
pub(crate) struct Terminal {
    doing: Doing,
    embedding: Option<ProgressBar>,
    steps: Option<Steps>,
    /// Whether a run takes steps.
    stepping: Arc<AtomicBool>,
}

impl Terminal {
    /// A terminal that raises `stepping` as soon as a run takes steps.
    pub(crate) fn stepping(stepping: Arc<AtomicBool>) -> Self {
        Terminal { stepping, ..Terminal::default() }
    }

    /// Prints while a bar is shown.
    fn print(&self, print: impl FnOnce()) {
        match (&self.steps, &self.embedding) {
            (Some(steps), _) => steps.bar.suspend(print),
            (None, Some(bar)) => bar.suspend(print),
            (None, None) => self.doing.suspend(print),
        }
    }
}

impl train::Observer for Terminal {
    fn step(&mut self, record: &Step) {
        if let Some(steps) = &mut self.steps {
            steps.step(record);
        }
    }

    fn validation(&mut self, _step: usize, evaluation: &Evaluation, _best: bool) {
        if let Some(steps) = &mut self.steps {
            let value = evaluation.metrics.get(&steps.metric);
            steps.validation = value.map_or(String::new(), |v| format!("  val {} {v:.3}", steps.metric));
        }
    }

    fn phase(&mut self, phase: &Phase) {
        match &self.steps {
            Some(steps) => steps.phase(phase),
            None => self.doing.show(phase),
        }
    }

    fn warning(&mut self, message: &str) {
        self.print(|| printer::warning(&message));
    }
}

impl Observer for Terminal {
    fn note(&mut self, message: &str) {
        self.print(|| printer::note(&message));
    }

    fn embedding(&mut self, what: &str, done: usize, total: usize) {
        let bar = self.embedding.get_or_insert_with(|| {
            let bar = bar(total, EMBEDDING);
            bar.set_message(what.to_string());
            bar
        });
        bar.set_position(done as u64);
    }

    fn phase_done(&mut self) {
        self.doing.clear();
        if let Some(bar) = self.embedding.take() {
            bar.finish_and_clear();
        }
    }

    fn started(&mut self, trainer: &Trainer, resumed: bool) {
        if resumed {
            report_resumed(trainer);
        }
        introduce(trainer);
        self.stepping.store(true, Ordering::Relaxed);
        self.steps = Some(Steps::new(trainer));
    }

    fn trained(&mut self, trainer: &Trainer, outcome: RunEnd) {
        self.steps = None;
        if outcome == RunEnd::Finished {
            printer::note(&format!("trained for {}", duration(trainer.seconds())));
            if let Some(profile) = trainer.profile() {
                report_profile(profile, trainer);
            }
        }
    }

    fn warner(&self) -> fn(&str) {
        |message| printer::warning(&message)
    }
}

/// Where a run continues.
fn report_resumed(trainer: &Trainer) {
    let directory = trainer.directory().path().display();
    if trainer.is_finished() {
        let all = count(trainer.step(), "step");
        printer::note(&format!("all {all} of {directory} are done; measuring what is left"));
    } else {
        printer::note(&format!("going on with {directory} at step {}", grouped(trainer.step())));
    }
    if let Some(before) = trainer.moved_from() {
        printer::note(&format!(
            "trained on {before} so far: from here on the numbers differ in their last bits from those there"
        ));
    }
}

/// What is trained, on which images, where.
fn introduce(trainer: &Trainer) {
    let (config, set) = (trainer.config(), trainer.training_set());
    printer::note(&format!(
        "training on {} of {}; {} with {} parameters, loss {}, {} steps of {} images",
        count(set.len(), "image"),
        count(set.class_names().len(), "class"),
        config.network.name(),
        grouped(trainer.parameter_count()),
        config.loss,
        grouped(config.train.steps),
        trainer.images_per_step(),
    ));
    set.notes().iter().chain(trainer.test_notes()).for_each(|note| printer::warning(note));
    if let Some(report) = trainer.pretrained() {
        printer::note(&format!("weights: {report}"));
        printer::note(&format!("images: {}", Preprocessing::from(&config.image)));
    }
    if trainer.sampler().left_out_classes() > 0 {
        printer::warning(&format!(
            "{} with too few images for a batch take no part (sampler.small_classes = \"repeat\" lets them)",
            count(trainer.sampler().left_out_classes(), "class")
        ));
    }
    let device = trainer.device();
    let precision = trainer.config().train.precision.described(device).map(|text| format!(", {text}"));
    printer::note(&format!("device: {device}{}", precision.unwrap_or_default()));
    for reason in trainer.device().passed_over() {
        printer::note(&format!("  not {reason}"));
    }
    if let Some(seconds) = trainer.head_seconds() {
        printer::note(&format!("the first head took {} (network.head_init)", duration(seconds)));
    }
    printer::note(&format!("run directory: {}", trainer.directory().path().display()));
}

/// Where the time of the steps went.
fn report_profile(profile: &Profile, trainer: &Trainer) {
    let share = |seconds: f64| format!("{:.1} %", 100.0 * seconds / profile.seconds);
    let operations: Vec<String> = profile
        .by_operation()
        .into_iter()
        .take(5)
        .map(|(name, seconds)| format!("{name} {}", share(seconds)))
        .collect();
    printer::note(&format!(
        "of {}: {} in the network's kernels ({}), {} waiting for images; all of it: {}",
        duration(profile.seconds),
        share(profile.in_kernels),
        operations.join(", "),
        share(profile.waited),
        trainer.directory().profile().display()
    ));
}

/// The progress bar of the steps.
struct Steps {
    bar: ProgressBar,
    batch_size: usize,
    /// Images per second, a moving average.
    rate: Option<f64>,
    /// The last validation.
    validation: String,
    /// The metric that chooses the checkpoint.
    metric: String,
}

impl Steps {
    fn new(trainer: &Trainer) -> Self {
        let bar = bar(trainer.config().train.steps, STEPS);
        bar.set_position(trainer.step() as u64);
        bar.reset_eta();
        Steps {
            bar,
            batch_size: trainer.images_per_step(),
            rate: None,
            validation: String::new(),
            metric: trainer.config().validation.metric.clone(),
        }
    }

    fn step(&mut self, record: &Step) {
        let now = self.batch_size as f64 / record.seconds.max(1e-9);
        let rate = self.rate.map_or(now, |old| 0.95 * old + 0.05 * now);
        self.rate = Some(rate);
        self.bar.set_message(format!(
            "loss {:.3}{}  {} img/s  pos {:.0} %  neg {:.0} %",
            record.loss,
            self.validation,
            grouped(rate as usize),
            100.0 * record.positive_share,
            100.0 * record.negative_share
        ));
        self.bar.set_position(record.step as u64);
    }

    fn phase(&self, phase: &Phase) {
        let progress = if phase.total > 0 {
            format!(" {}/{}", grouped(phase.done), grouped(phase.total))
        } else {
            String::new()
        };
        self.bar.set_message(format!("{}{progress}", phase.what));
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
