//! Lists the files of the page, so that they become part of the program.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let assets = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo")).join("assets");
    let mut files = Vec::new();
    list(&assets, &mut files)?;
    files.sort();
    let mut code = String::from("const FILES: &[(&str, &[u8])] = &[\n");
    for file in &files {
        let name = file.strip_prefix(&assets).expect("listed below it").to_string_lossy().replace('\\', "/");
        code += &format!("    ({name:?}, include_bytes!({:?})),\n", file.to_string_lossy());
    }
    code += "];\n";
    println!("cargo::rerun-if-changed={}", assets.display());
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo"));
    fs::write(out.join("assets.rs"), code)
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        match path.is_dir() {
            true => list(&path, files)?,
            false => files.push(path),
        }
    }
    Ok(())
}
