//! Repeats parts of the inputs of the corpora until they are large, and prints what costs grow faster than the input. The fuzzer's
//! inputs are at most 16 KiB: a cost that grows with their square, or a recursion without a limit, does no harm in them.
//!
//! ```sh
//! cargo run --release -p gallerist-fuzz --example grow -- PAIRS [TARGET...]
//! ```
//!
//! Of each target, or of all, `PAIRS` parts are drawn, each in an input of 32 KiB and one of 512 KiB. An input that is read is in the
//! folder `failures` meanwhile, so that it is there after a stack overflow, which ends the program. One that breaks a promise stays
//! there, and so does one whose cost grew 96-fold, where its size grew 16-fold.

use std::path::{Path, PathBuf};
use std::time::Duration;

use gallerist_fuzz::cost::{self, Spent};
use gallerist_fuzz::growth::Growth;
use gallerist_fuzz::{Target, inputs, target, targets};

#[global_allocator]
static ALLOCATOR: cost::Counting = cost::COUNTING;

const SMALL: usize = 32 << 10;
const LARGE: usize = 512 << 10;

/// Growth that is reported. Caches of the CPU, and memory that the system gives and takes back, make it up to five times that of the
/// size; a cost that grows with the square of the size grows 256-fold.
const FOLD: u32 = 96;

/// Costs below these are not compared. The library of tokenizers takes 50 bytes for each of a pattern up to 250 KB, and 340 above.
const TIME: Duration = Duration::from_millis(50);
const MEMORY: u64 = 256 << 20;

/// What an input costs; `None` where it broke a promise.
fn run(target: &Target, path: &Path, input: &[u8]) -> Option<Spent> {
    std::fs::write(path, input).expect("an input is written");
    let (result, spent) = cost::measured(|| std::panic::catch_unwind(|| (target.run)(input)));
    if result.is_err() {
        eprintln!("{}", path.display());
        return None;
    }
    std::fs::remove_file(path).expect("an input is removed");
    Some(spent)
}

/// Whether the cost of the large input is too much for that of the small one.
fn grows(small: Spent, large: Spent) -> bool {
    (large.time > TIME && large.time > small.time * FOLD)
        || (large.memory > MEMORY && large.memory > small.memory * u64::from(FOLD))
}

/// How many pairs of a target failed.
fn search(target: &Target, pairs: u64) -> usize {
    let corpus: Vec<Vec<u8>> = inputs("corpus", target.name).into_iter().map(|(_, bytes)| bytes).collect();
    // What is made at the first call is no cost of an input.
    for input in &corpus {
        (target.run)(input);
    }
    let (mut failures, mut slowest) = (0, Duration::ZERO);
    for pair in 0..pairs {
        let growth = Growth::drawn(&corpus, target.name, pair);
        let [small, large] = [SMALL, LARGE].map(|bytes| growth.grown(bytes));
        let path = |size: &str| PathBuf::from(format!("failures/{}-{pair}-{size}", target.name));
        let measure = || Some((run(target, &path("small"), &small)?, run(target, &path("large"), &large)?));
        // Twice, since another process may have made the first slow.
        let found =
            measure().map(|first| if grows(first.0, first.1) { measure().unwrap_or(first) } else { first });
        match found {
            None => failures += 1,
            Some((of_small, of_large)) if grows(of_small, of_large) => {
                failures += 1;
                std::fs::write(path("small"), &small).expect("an input is written");
                std::fs::write(path("large"), &large).expect("an input is written");
                eprintln!("{}: {of_small:?}, then {of_large:?}", path("large").display());
            }
            Some((_, of_large)) => slowest = slowest.max(of_large.time),
        }
    }
    println!(
        "{}: {pairs} pairs, {failures} failed; the slowest took {} ms",
        target.name,
        slowest.as_millis()
    );
    failures
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let pairs = arguments.next().and_then(|text| text.parse().ok()).expect("the number of pairs");
    let chosen: Vec<&Target> = arguments.map(|name| target(&name)).collect();
    std::fs::create_dir_all("failures").expect("a folder");
    let targets = if chosen.is_empty() { targets().iter().collect() } else { chosen };
    let failures: usize = targets.iter().map(|target| search(target, pairs)).sum();
    gallerist_fuzz::remove_temporary_files();
    assert_eq!(failures, 0, "inputs that broke a promise, or whose cost grows faster than they do");
}
