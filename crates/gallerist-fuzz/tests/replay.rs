//! Runs every target on its corpus, on the inputs of faults that were found, and on a few large inputs.

use std::path::{Path, PathBuf};

use gallerist_fuzz::growth::Growth;
use gallerist_fuzz::{cost, targets};

#[global_allocator]
static ALLOCATOR: cost::Counting = cost::COUNTING;

/// Large inputs of each target, and their size; `examples/grow.rs` looks for faults in more of them.
const LARGE: u64 = 4;
const BYTES: usize = 128 << 10;

fn inputs(kind: &str, target: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz").join(kind).join(target);
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.expect("an entry of the folder").path()).collect();
    paths.sort();
    paths
}

/// One test, because CPU time and memory are those of the process.
#[test]
fn every_target_keeps_its_promises_on_the_corpus_on_the_inputs_of_former_faults_and_on_large_inputs() {
    let (mut failed, mut missed, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
    for target in targets() {
        let corpus = inputs("corpus", target.name);
        assert!(!corpus.is_empty(), "the target `{}` has no corpus", target.name);
        gallerist_fuzz::take_reached();
        for path in [corpus.clone(), inputs("regressions", target.name)].concat() {
            let bytes = std::fs::read(&path).expect("an input is read");
            // The message of the panic was printed.
            if std::panic::catch_unwind(|| (target.run)(&bytes)).is_err() {
                eprintln!("the input is {}", path.display());
                failed.push(path);
            }
        }
        let reached = gallerist_fuzz::take_reached();
        let files: Vec<Vec<u8>> =
            corpus.iter().map(|path| std::fs::read(path).expect("an input is read")).collect();
        for number in 0..LARGE {
            let bytes = Growth::drawn(&files, target.name, number).grown(BYTES);
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
