//! Runs every target on its corpus, on the inputs of faults that were found, and on a few large inputs.

use std::path::PathBuf;

use gallerist_fuzz::growth::Growth;
use gallerist_fuzz::{cost, inputs, targets};

#[global_allocator]
static ALLOCATOR: cost::Counting = cost::COUNTING;

/// Large inputs of each target, and their size; `examples/grow.rs` looks for faults in more of them.
const LARGE: u64 = 4;
const BYTES: usize = 128 << 10;

/// One test, because CPU time and memory are those of the process.
#[test]
fn every_target_keeps_its_promises_on_the_corpus_on_the_inputs_of_former_faults_and_on_large_inputs() {
    let (mut failed, mut missed, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
    for target in targets() {
        let corpus = inputs("corpus", target.name);
        assert!(!corpus.is_empty(), "the target `{}` has no corpus", target.name);
        gallerist_fuzz::take_reached();
        let regressions = inputs("regressions", target.name);
        for (path, bytes) in corpus.iter().chain(&regressions) {
            // The message of the panic was printed.
            if std::panic::catch_unwind(|| (target.run)(bytes)).is_err() {
                eprintln!("the input is {}", path.display());
                failed.push(path.clone());
            }
        }
        let reached = gallerist_fuzz::take_reached();
        let corpus: Vec<Vec<u8>> = corpus.into_iter().map(|(_, bytes)| bytes).collect();
        for number in 0..LARGE {
            let bytes = Growth::drawn(&corpus, target.name, number).grown(BYTES);
            if std::panic::catch_unwind(|| (target.run)(&bytes)).is_err() {
                failed.push(PathBuf::from(format!("{}, large, {number}", target.name)));
            }
        }
        for goal in target.goals.iter().filter(|goal| !reached.contains(*goal)) {
            missed.push(format!("{}: {goal}", target.name));
        }
        let known = reached.iter().filter(|goal| !target.goals.contains(goal));
        unknown.extend(known.map(|goal| format!("{}: {goal}", target.name)));
    }
    gallerist_fuzz::remove_temporary_files();
    assert!(failed.is_empty(), "{} inputs failed: {failed:?}", failed.len());
    assert!(missed.is_empty(), "goals that no input of the corpus reaches: {missed:#?}");
    assert!(unknown.is_empty(), "goals that the list of targets lacks: {unknown:#?}");
}
