//! Messages of the libraries on the standard error stream.

use log::{LevelFilter, Log, Metadata, Record};

struct Stderr;

impl Log for Stderr {
    fn enabled(&self, metadata: &Metadata) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record) {
        if self.enabled(record.metadata()) {
            eprintln!("{}: {}", record.level().as_str().to_lowercase(), record.args());
        }
    }

    fn flush(&self) {}
}

/// Shows warnings and errors; `GALLERIST_LOG=info` also what scheduler and executors do.
pub(super) fn start() {
    let level = std::env::var("GALLERIST_LOG").ok().and_then(|level| level.parse().ok());
    log::set_max_level(level.unwrap_or(LevelFilter::Warn));
    log::set_logger(&Stderr).expect("the only logger of the program");
}
