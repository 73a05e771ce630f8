//! Progress: one line on stderr that fits the terminal; nothing if stderr is not a terminal.

use std::time::Duration;

use crate::train::Phase;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A progress bar. A wide element of the template (`{wide_bar}`, `{wide_msg}`) fills the remaining columns.
pub(crate) fn bar(length: usize, template: &str) -> ProgressBar {
    bar_on(ProgressDrawTarget::stderr(), length, template)
}

fn bar_on(target: ProgressDrawTarget, length: usize, template: &str) -> ProgressBar {
    let style =
        ProgressStyle::with_template(template).expect("the template is a constant").progress_chars("━╸─");
    ProgressBar::with_draw_target(Some(length as u64), target).with_style(style)
}

/// Shows a message with the elapsed time while `run` runs.
pub(crate) fn working<T>(what: &'static str, run: impl FnOnce() -> T) -> T {
    let mut doing = Doing::default();
    doing.show(&Phase { what, done: 0, total: 0 });
    run()
}

/// Shows one phase after another.
#[derive(Default)]
pub(crate) struct Doing {
    shown: Option<(&'static str, ProgressBar)>,
}

/// The steps of a run; the message is cut to the width of the terminal.
pub(crate) const STEPS: &str = "{bar:12} {pos}/{len} {eta} left  {wide_msg}";
/// One of several jobs, and all of them.
pub(crate) const JOB: &str = "{bar:12} {pos}/{len} {msg:.dim}  {prefix}";
pub(crate) const SUMMARY: &str = "{bar:12} {wide_msg}";
pub(crate) const EMBEDDING: &str = "{msg} {wide_bar} {pos}/{len} images, {eta} left";
pub(crate) const DECODING: &str = "decoding {wide_bar} {pos}/{len} images, {eta} left";
pub(crate) const LINKING: &str = "linking {wide_bar} {pos}/{len} items, {eta} left";
#[cfg(feature = "database")]
pub(crate) const SENDING: &str = "sending {wide_bar} {pos}/{len} items, {eta} left";
pub(crate) const MAPPING: &str = "mapping {wide_bar} {pos}/{len} steps, {eta} left";
pub(crate) const FETCHING: &str = "fetching {wide_bar} {bytes}/{total_bytes}, {eta} left";
const COUNTED: &str = "{msg} {wide_bar} {pos}/{len}, {eta} left";
const UNCOUNTED: &str = "{spinner} {wide_msg} {elapsed}";

impl Doing {
    /// Shows a phase instead of the previous one.
    pub(crate) fn show(&mut self, phase: &Phase) {
        let same = self.shown.as_ref().is_some_and(|(what, bar)| {
            *what == phase.what && bar.length().unwrap_or(0) == phase.total as u64
        });
        if !same {
            self.clear();
            let bar = bar(phase.total, if phase.total > 0 { COUNTED } else { UNCOUNTED });
            bar.set_message(phase.what);
            if phase.total == 0 {
                bar.enable_steady_tick(Duration::from_millis(100));
            }
            self.shown = Some((phase.what, bar));
        }
        if let Some((_, bar)) = &self.shown {
            bar.set_position(phase.done as u64);
        }
    }

    /// Calls a function that prints, while a phase is shown.
    pub(crate) fn suspend(&self, print: impl FnOnce()) {
        match &self.shown {
            Some((_, bar)) => bar.suspend(print),
            None => print(),
        }
    }

    /// Clears the line.
    pub(crate) fn clear(&mut self) {
        if let Some((_, bar)) = self.shown.take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Doing {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use indicatif::TermLike;

    use super::*;

    /// A terminal that records the last frame.
    #[derive(Clone, Debug)]
    struct Terminal {
        columns: u16,
        drawn: Arc<Mutex<String>>,
    }

    impl TermLike for Terminal {
        fn width(&self) -> u16 {
            self.columns
        }

        fn move_cursor_up(&self, _n: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_down(&self, _n: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_right(&self, _n: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_left(&self, _n: usize) -> io::Result<()> {
            Ok(())
        }

        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(text)?;
            self.write_str("\n")
        }

        fn write_str(&self, text: &str) -> io::Result<()> {
            self.drawn.lock().unwrap().push_str(text);
            Ok(())
        }

        fn clear_line(&self) -> io::Result<()> {
            self.drawn.lock().unwrap().clear();
            Ok(())
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Every template of the program.
    const TEMPLATES: &[&str] = &[
        COUNTED,
        UNCOUNTED,
        STEPS,
        SUMMARY,
        EMBEDDING,
        DECODING,
        LINKING,
        #[cfg(feature = "database")]
        SENDING,
        MAPPING,
        FETCHING,
    ];

    #[test]
    fn every_bar_is_one_line_of_the_terminals_width() {
        for columns in [60, 80, 120] {
            for template in TEMPLATES {
                let terminal = Terminal { columns, drawn: Arc::default() };
                let target = ProgressDrawTarget::term_like(Box::new(terminal.clone()));
                let bar = bar_on(target, 123_456, template);
                bar.set_message(match *template {
                    STEPS => "loss 12.345  val map@r 0.123  123,456 img/s  pos 100 %  neg 100 %",
                    EMBEDDING => "embedding the one-shot runs",
                    _ => "first head: discriminant analysis",
                });
                bar.set_position(98_765);
                bar.force_draw();
                // A line that ends at the last column needs no padding.
                let drawn = terminal.drawn.lock().unwrap().clone();
                let shown = drawn.trim_matches('\n').trim_end();
                assert!(
                    !shown.is_empty() && !shown.contains('\n'),
                    "{columns} columns, {template}: {drawn:?}"
                );
                let length = shown.chars().count();
                assert!(
                    length <= usize::from(columns),
                    "{columns} columns, {template}: {length} in {shown:?}"
                );
            }
        }
    }
}
