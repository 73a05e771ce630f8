//! The standard library for ThreadSanitizer.
//!
//! The library of a toolchain is not instrumented, but its object files contain the bitcode from which they were
//! compiled. This adds the sanitizer to that bitcode (`xtask/tsan/instrument.rs`), with the LLVM of the toolchain, and
//! makes a sysroot that has the result in place of the original. Types and inline functions are those of the original.
//! The runtime of the sanitizer gets fences (`xtask/tsan/fence.rs`), which the library needs if it is compiled without
//! `cfg(sanitize = "thread")`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Libraries with code that threads share. The others of the sysroot are their dependencies.
const LIBRARIES: [&str; 5] = ["core", "alloc", "std", "panic_unwind", "test"];

/// Functions of the runtime that `fence.rs` replaces.
const REPLACED: [&str; 2] = ["__tsan_atomic_thread_fence", "__tsan_atomic64_fetch_sub"];

const FLAGS: &str = "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer";

/// An instrumented standard library.
pub(super) enum Std {
    /// Cargo builds it from its sources.
    Sources,
    /// It is in this sysroot.
    Sysroot(PathBuf),
}

impl Std {
    pub(super) fn cargo_args(&self) -> &'static [&'static str] {
        match self {
            Std::Sources => &["-Zbuild-std"],
            Std::Sysroot(_) => &[],
        }
    }

    pub(super) fn rustflags(&self) -> String {
        match self {
            Std::Sources => FLAGS.to_string(),
            Std::Sysroot(folder) => format!("{FLAGS} --sysroot={}", folder.display()),
        }
    }
}

/// Makes the library, in `folder` if it is not built from its sources.
pub(super) fn prepare(root: &Path, folder: &Path) -> Result<Std, String> {
    let toolchain = run(Command::new("rustc").args(["+nightly", "--print", "sysroot"]))
        .map_err(|reason| format!("{reason}; run `rustup toolchain install nightly`"))?;
    let toolchain = PathBuf::from(toolchain.trim());
    if toolchain.join("lib/rustlib/src/rust/library/std").is_dir() {
        return Ok(Std::Sources);
    }
    let original = toolchain.join("lib/rustlib").join(TARGET);
    let sysroot = folder.join("sysroot");
    let copy = sysroot.join("lib/rustlib").join(TARGET);
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    fs::create_dir_all(copy.join("lib")).map_err(|e| format!("{}: {e}", copy.display()))?;
    link(&original.join("bin"), &copy.join("bin"))?;
    for name in names(&original.join("lib"))? {
        link(&original.join("lib").join(&name), &copy.join("lib").join(&name))?;
    }

    let instrument = build_instrument(root, &toolchain, folder)?;
    for library in LIBRARIES {
        let name = single(&original.join("lib"), &format!("lib{library}-"), ".rlib")?;
        let functions = instrument_library(&instrument, folder, &copy.join("lib").join(name))?;
        eprintln!("   {library}: {functions} functions instrumented");
    }
    let runtime = single(&original.join("lib"), "librustc-nightly_rt.tsan", ".a")?;
    add_fences(root, folder, &copy.join("lib").join(runtime))?;
    Ok(Std::Sysroot(sysroot))
}

/// Compiles the program that instruments bitcode.
fn build_instrument(root: &Path, toolchain: &Path, folder: &Path) -> Result<PathBuf, String> {
    let libraries = toolchain.join("lib");
    let llvm = libraries.join(single(&libraries, "libLLVM.so", "")?);
    let program = folder.join("instrument");
    rustc(
        root,
        "instrument.rs",
        &program,
        &[format!("-Clink-arg={}", llvm.display()), format!("-Clink-arg=-Wl,-rpath,{}", libraries.display())],
    )?;
    Ok(program)
}

/// Replaces a link to a library of Rust by an instrumented copy; returns the number of functions.
fn instrument_library(program: &Path, folder: &Path, library: &Path) -> Result<String, String> {
    let members = run(Command::new("ar").arg("t").arg(library))?;
    let [member] = members.lines().filter(|name| name.ends_with(".o")).collect::<Vec<_>>()[..] else {
        return Err(format!("{}: not one object file: {members}", library.display()));
    };
    let (object, bitcode) = (folder.join(member), folder.join("library.bc"));
    run(Command::new("ar").arg("x").arg(library).arg(member).current_dir(folder))?;
    let dump = format!(".llvmbc={}", bitcode.display());
    run(Command::new("objcopy").args(["--dump-section", &dump]).arg(&object).arg("/dev/null"))?;
    let functions = run(Command::new(program).arg(&bitcode).arg(&object))?;
    unlink(library)?;
    run(Command::new("ar").arg("r").arg(library).arg(&object))?;
    Ok(functions.trim().to_string())
}

/// Replaces a link to the runtime of the sanitizer by a copy with fences.
fn add_fences(root: &Path, folder: &Path, runtime: &Path) -> Result<(), String> {
    let object = folder.join("fence.o");
    let flags = ["--crate-type=lib", "--emit=obj", "-Cpanic=abort", "-Ztls-model=initial-exec"];
    rustc(root, "fence.rs", &object, &flags.map(str::to_string))?;
    unlink(runtime)?;
    let renamed =
        REPLACED.iter().flat_map(|name| ["--redefine-sym".to_string(), format!("{name}=__real_{name}")]);
    run(Command::new("objcopy").args(renamed).arg(runtime))?;
    run(Command::new("ar").arg("r").arg(runtime).arg(&object)).map(drop)
}

/// Compiles a file of `xtask/tsan`.
fn rustc(root: &Path, source: &str, output: &Path, flags: &[String]) -> Result<(), String> {
    let mut command = Command::new("rustc");
    command.args(["+nightly", "--edition=2024", "-O", "-o"]).arg(output).args(flags);
    run(command.arg(root.join("xtask/tsan").join(source)).env_remove("RUSTFLAGS")).map(drop)
}

/// The output of a command that succeeds.
fn run(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|e| format!("`{program}`: {e}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("`{program}`: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr))),
    }
}

/// The name in `folder` with this start and end; an error if there is none or another one.
fn single(folder: &Path, start: &str, end: &str) -> Result<String, String> {
    let mut found = names(folder)?;
    found.retain(|name| name.starts_with(start) && name.ends_with(end));
    match <[String; 1]>::try_from(found) {
        Ok([name]) => Ok(name),
        Err(found) => Err(format!("{}: {} files `{start}*{end}`, not one", folder.display(), found.len())),
    }
}

fn names(folder: &Path) -> Result<Vec<String>, String> {
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    entries
        .map(|entry| match entry {
            Ok(entry) => Ok(entry.file_name().to_string_lossy().into_owned()),
            Err(e) => Err(format!("{}: {e}", folder.display())),
        })
        .collect()
}

#[cfg(unix)]
fn link(to: &Path, at: &Path) -> Result<(), String> {
    std::os::unix::fs::symlink(to, at).map_err(|e| format!("{}: {e}", at.display()))
}

#[cfg(not(unix))]
fn link(_: &Path, at: &Path) -> Result<(), String> {
    Err(format!("{}: ThreadSanitizer runs on Linux only", at.display()))
}

/// Replaces a link by a copy of its file.
fn unlink(path: &Path) -> Result<(), String> {
    let error = |e| format!("{}: {e}", path.display());
    let bytes = fs::read(path).map_err(error)?;
    fs::remove_file(path).map_err(error)?;
    fs::write(path, bytes).map_err(error)
}
