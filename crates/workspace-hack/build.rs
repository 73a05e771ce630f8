//! Nothing is done here. Without a build script, the features of `[build-dependencies]` would not count.

fn main() {}
