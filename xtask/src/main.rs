//! Development tasks. `cargo xtask check` runs the checks that a change must pass, cheapest first.

mod asan;
mod cargo;
mod deny;
mod features;
mod imports;
mod links;
mod miri;
mod sbom;
mod supply;
mod tsan;

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use cargo::cargo;

struct Step {
    name: &'static str,
    help: &'static str,
    /// Part of `cargo xtask check` without arguments.
    default: bool,
    run: fn(&Path) -> Result<(), String>,
}

/// Cheapest first.
const STEPS: [Step; 12] = [
    Step {
        name: "links",
        help: "relative links and files named in the documentation exist",
        default: true,
        run: links::check,
    },
    Step {
        name: "imports",
        help: "no cycle between the files of a crate, no crate uses a higher one",
        default: true,
        run: imports::check,
    },
    Step {
        name: "features",
        help: "no crate asks for features that would compile the tensor engine again",
        default: true,
        run: features::check,
    },
    Step {
        name: "supply",
        help: "no build script, macro or unsafe code in a dependency that supply/ does not list",
        default: true,
        run: supply::check,
    },
    Step {
        name: "fmt",
        help: "cargo fmt --check",
        default: true,
        run: |root| cargo(root, &["fmt", "--all", "--check"], &[]),
    },
    Step {
        name: "clippy",
        help: "cargo clippy, also with the features for GPUs; warnings are errors",
        default: true,
        run: clippy,
    },
    Step {
        name: "test",
        help: "cargo test --release --workspace",
        default: true,
        run: |root| cargo(root, &["test", "--release", "--workspace"], &[]),
    },
    Step { name: "doc", help: "cargo doc without warnings", default: true, run: doc },
    Step {
        name: "deny",
        help: "cargo deny: licences, bans, sources, advisories (cargo install cargo-deny)",
        default: true,
        run: deny::check,
    },
    Step {
        name: "miri",
        help: "the tests of unsafe code under Miri (rustup toolchain install nightly --component miri,rust-src)",
        default: false,
        run: miri::check,
    },
    Step {
        name: "asan",
        help: "the tests of unsafe code under AddressSanitizer (rustup toolchain install nightly)",
        default: false,
        run: asan::check,
    },
    Step {
        name: "tsan",
        help: "tests of crates with threads under ThreadSanitizer (rustup toolchain install nightly)",
        default: false,
        run: tsan::check,
    },
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is in the workspace");
    let writes = match &args[..] {
        [command] if command == "supply" => Some(supply::record(root)),
        [command] if command == "sbom" => Some(sbom::write(root)),
        _ => None,
    };
    if let Some(written) = writes {
        return match written {
            Ok(()) => ExitCode::SUCCESS,
            Err(reason) => {
                eprintln!("error: {reason}");
                ExitCode::from(1)
            }
        };
    }
    let Some(steps) = args.split_first().and_then(|(command, names)| selected(command, names)) else {
        eprint!("{}", usage());
        return ExitCode::from(2);
    };
    for step in steps {
        let start = Instant::now();
        eprintln!("== {}", step.name);
        if let Err(reason) = (step.run)(root) {
            eprintln!("error: `{}` failed: {reason}", step.name);
            return ExitCode::from(1);
        }
        eprintln!("== {} passed in {:.0} s", step.name, start.elapsed().as_secs_f32());
    }
    ExitCode::SUCCESS
}

/// The steps to run, in order; `None` if the command or a name is unknown.
fn selected(command: &str, names: &[String]) -> Option<Vec<&'static Step>> {
    let known = |name: &String| STEPS.iter().any(|step| step.name == name);
    if command != "check" || !names.iter().all(known) {
        return None;
    }
    let named = |step: &&Step| names.iter().any(|name| name == step.name);
    Some(STEPS.iter().filter(|step| if names.is_empty() { step.default } else { named(step) }).collect())
}

fn usage() -> String {
    let mut text =
        "usage: cargo xtask check [STEP...]\n\nsteps, in order (without STEP, all but those with *):\n"
            .to_string();
    for step in &STEPS {
        let mark = if step.default { ' ' } else { '*' };
        text += &format!(" {mark}{:<10} {}\n", step.name, step.help);
    }
    text + "\n       cargo xtask supply   writes supply/crates.txt\n       cargo xtask sbom     writes the components of the \
            program as a file of CycloneDX\n"
}

fn clippy(root: &Path) -> Result<(), String> {
    let builds: [&[&str]; 4] = [
        &["--workspace", "--all-targets"],
        &["-p", "gallerist", "--features", "milvus,qdrant", "--all-targets"],
        // The Python package alone has the library without its command line.
        &["-p", "gallerist-python"],
        &["-p", "gallerist-train", "--features", "cuda,wgpu", "--all-targets"],
    ];
    builds.iter().try_for_each(|build| {
        cargo(root, &[&["clippy", "--release"], *build, &["--", "-D", "warnings"]].concat(), &[])
    })
}

fn doc(root: &Path) -> Result<(), String> {
    cargo(root, &["doc", "--release", "--workspace", "--no-deps"], &[("RUSTDOCFLAGS", "-D warnings")])
}

#[cfg(test)]
mod tests {
    use super::selected;

    fn names(steps: &[&str]) -> Option<Vec<&'static str>> {
        let steps: Vec<String> = steps.iter().map(|step| step.to_string()).collect();
        Some(selected("check", &steps)?.iter().map(|step| step.name).collect())
    }

    #[test]
    fn named_steps_run_in_order_and_unknown_ones_are_refused() {
        assert_eq!(names(&["fmt", "links"]), Some(vec!["links", "fmt"]));
        assert_eq!(names(&["fmt", "lint"]), None);
        assert!(names(&[]).unwrap().contains(&"test"));
        assert!(selected("test", &[]).is_none());
    }
}
