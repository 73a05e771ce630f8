//! Cross-batch memory: the losses that look at one, and the ring that keeps it.

mod losses;
#[path = "../oracle/mod.rs"]
mod oracle;
mod ring;
