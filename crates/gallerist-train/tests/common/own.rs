//! Images, run file and observer of the tests of own parts.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use gallerist_train::log::Step;
use gallerist_train::{Observer, RunConfig};

#[path = "pictures.rs"]
mod pictures;

/// Eight classes of six grey bitmaps of 8 x 8 pixels.
pub(crate) fn images(folder: &Path) {
    pictures::write(folder, [8, 6, 8], 1);
}

pub(crate) fn config(data: &Path, network: &str) -> RunConfig {
    let text = format!(
        "[train]\nsteps = 6\nthreads = 1\ndevice = \"cpu\"\n[data]\ntrain = {data:?}\n[validation]\nfraction = 0.25\n\
         every = 3\n[image]\nsize = 8\nchannels = 1\n[sampler]\nclasses_per_batch = 4\nimages_per_class = 3\n\
         [[loss]]\nname = \"rll\"\nhead = \"near\"\n[[loss]]\nname = \"proxy_nca\"\nweight = 0.5\n[network]\n{network}"
    );
    RunConfig::parse(&text, "a test", &[]).unwrap()
}

/// Raises the flag after so many steps.
pub(crate) struct StopAfter<'a>(pub(crate) usize, pub(crate) &'a AtomicBool);

impl Observer for StopAfter<'_> {
    fn step(&mut self, record: &Step) {
        self.1.store(record.step >= self.0, Ordering::Relaxed);
    }
}
