//! Runs targets on random changes of their corpus, without a fuzzer and without instrumentation: for a machine on which the
//! tensor engine is not built with AddressSanitizer. Of each target it prints the executions and the CPU time; an input that
//! breaks a promise is written to the folder `failures`.
//!
//! ```sh
//! cargo run --release -p gallerist-fuzz --example mutate -- CPU_SECONDS TARGET...
//! ```

use std::path::Path;
use std::time::Duration;

use gallerist_fuzz::{cost, inputs, target};
use gallerist_util::random::Random;

#[global_allocator]
static ALLOCATOR: cost::Counting = cost::COUNTING;

/// The longest input.
const LONGEST: usize = 1 << 14;

/// Words of a dictionary, of which only `\x` is an escape.
fn words(path: &Path) -> Vec<Vec<u8>> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let word = |line: &str| {
        let mut bytes = Vec::new();
        let mut rest = line.trim().trim_matches('"');
        while let Some(first) = rest.chars().next() {
            match rest.strip_prefix("\\x").and_then(|rest| u8::from_str_radix(rest.get(..2)?, 16).ok()) {
                Some(byte) => {
                    bytes.push(byte);
                    rest = &rest[4..];
                }
                None => {
                    bytes.extend(first.to_string().bytes());
                    rest = &rest[first.len_utf8()..];
                }
            }
        }
        bytes
    };
    text.lines().map(word).collect()
}

/// One to four changes of an input.
fn changed(corpus: &[Vec<u8>], words: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let pick = |random: &mut Random, list: &[Vec<u8>]| list[random.below(list.len())].clone();
    let mut input = pick(random, corpus);
    for _ in 0..1 + random.below(4) {
        let at = random.below(input.len() + 1);
        let end = (at + 1 + random.below(16)).min(input.len());
        match random.below(8) {
            0 if at < input.len() => input[at] ^= 1 << random.below(8),
            1 if at < input.len() => input[at] = [0, 1, 0x7F, 0x80, 0xFF, b'0', b'9', b'"'][random.below(8)],
            2 => drop(input.drain(at..end)),
            3 => {
                let copied = input[at..end].to_vec();
                let to = random.below(input.len() + 1);
                input.splice(to..to, copied);
            }
            4 if !words.is_empty() => drop(input.splice(at..at, pick(random, words))),
            5 => {
                let other = pick(random, corpus);
                let from = random.below(other.len() + 1);
                input.truncate(at);
                input.extend(&other[from..]);
            }
            6 => input.insert(at, random.below(256) as u8),
            _ => {
                let number =
                    [0_u64, 1, 255, 1 << 16, 1 << 31, (1 << 32) - 1, 1 << 40, u64::MAX][random.below(8)];
                match random.chance(0.5) {
                    true => drop(input.splice(at..end, number.to_string().into_bytes())),
                    false => drop(input.splice(at..end, number.to_le_bytes())),
                }
            }
        }
    }
    input.truncate(LONGEST);
    input
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments.next().and_then(|text| text.parse().ok()).expect("CPU seconds for each target");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let mut failures = 0;
    for name in arguments {
        let target = target(&name);
        let corpus: Vec<Vec<u8>> = inputs("corpus", &name).into_iter().map(|(_, bytes)| bytes).collect();
        let words = words(&folder.join("dictionaries").join(format!("{name}.dict")));
        let mut executions = 0;
        let mut spent = Duration::ZERO;
        while spent < Duration::from_secs(seconds) {
            let mut random = Random::new(1, &name, executions, 0);
            let input = changed(&corpus, &words, &mut random);
            let run = || std::panic::catch_unwind(|| (target.run)(&input));
            let (result, cost) = cost::measured(run);
            executions += 1;
            spent += cost.time;
            if result.is_err() {
                failures += 1;
                std::fs::create_dir_all("failures").expect("a folder");
                let path = format!("failures/{name}-{executions}");
                std::fs::write(&path, &input).expect("an input");
                eprintln!("{path}");
            }
        }
        println!("{name}: {executions} executions, {:.1} s of CPU time", spent.as_secs_f64());
    }
    gallerist_fuzz::remove_temporary_files();
    assert_eq!(failures, 0, "inputs that broke a promise");
}
