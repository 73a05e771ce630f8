//! The program `gallerist`.
#![recursion_limit = "256"]

fn main() -> std::process::ExitCode {
    gallerist::cli::run(&gallerist::Registry::default())
}
