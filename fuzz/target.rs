// The program of every target: its name is that of the target.

use std::ffi::{CStr, c_char};

use gallerist_fuzz::cost;
use libfuzzer_sys::fuzz_target;

#[global_allocator]
static ALLOCATOR: cost::Counting = cost::COUNTING;

/// What a thread of the server's runtime owns while it starts or ends. LeakSanitizer takes it for lost if it looks at that
/// moment. The names are whole, so that what such a thread loses later is found.
const OF_THREADS: &CStr =
    c"leak:^<tokio::runtime::blocking::pool::Spawner>::spawn_thread$\nleak:^__cxa_thread_atexit_impl$\n";

// SAFETY: this is the declaration of LeakSanitizer's interface (`sanitizer/lsan_interface.h`), which a program may define;
// the text lives as long as the program.
#[unsafe(no_mangle)]
extern "C" fn __lsan_default_suppressions() -> *const c_char {
    OF_THREADS.as_ptr()
}

fuzz_target!(init: cost::instrumented(), |bytes: &[u8]| {
    (gallerist_fuzz::target(env!("CARGO_BIN_NAME")).run)(bytes);
});
