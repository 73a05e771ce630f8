// The program of every target: its name is that of the target.

use gallerist_fuzz::cost;
use libfuzzer_sys::fuzz_target;

#[global_allocator]
static ALLOCATOR: cost::Counting = cost::COUNTING;

fuzz_target!(init: cost::instrumented(), |bytes: &[u8]| {
    (gallerist_fuzz::target(env!("CARGO_BIN_NAME")).run)(bytes);
});
