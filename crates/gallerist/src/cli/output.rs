//! Files that commands write.

use std::path::Path;

use super::args::Precision;
use super::failure::Failure;
use crate::retrieval::EmbeddingSet;

/// Returns an error, before the work begins, if the output path is a device, a pipe or a link.
pub(crate) fn check_output(out: &Path) -> Result<(), Failure> {
    Ok(crate::retrieval::prepare_to_write(out)?)
}

/// Returns an error if the format of the output file does not support the precision.
pub(crate) fn check_embeddings_file(out: &Path, precision: Precision) -> Result<(), Failure> {
    check_output(out)?;
    let extension = out.extension().and_then(|extension| extension.to_str());
    match (extension, precision) {
        (Some("safetensors"), _) | (Some("npy"), Precision(None)) => Ok(()),
        (Some("parquet" | "arrow" | "feather" | "ipc"), Precision(None)) if cfg!(feature = "arrow") => Ok(()),
        (Some("parquet" | "arrow" | "feather" | "ipc"), Precision(None)) => Err(Failure::new(
            format!(
                "cannot write embeddings to `{}`: this program was built without Parquet and Arrow",
                out.display()
            ),
            Some("build it with `cargo build --release --features arrow`, or give --out FILE.safetensors"),
        )),
        (Some("parquet" | "arrow" | "feather" | "ipc"), _) => Err(Failure::new(
            format!("cannot write embeddings to `{}`\n  a table holds f32 only", out.display()),
            Some("give --out FILE.safetensors, or leave out --precision"),
        )),
        (Some("npy"), _) => Err(Failure::new(
            format!("cannot write embeddings to `{}`\n  a .npy file holds f32 only", out.display()),
            Some("give --out FILE.safetensors, or leave out --precision"),
        )),
        _ => Err(Failure::new(
            format!(
                "cannot write embeddings to `{}`\n  its name ends in neither .safetensors nor .npy",
                out.display()
            ),
            Some("give --out FILE.safetensors (with labels and paths) or --out FILE.npy"),
        )),
    }
}

pub(crate) fn save_embeddings(set: &EmbeddingSet, out: &Path, precision: Precision) -> Result<(), Failure> {
    match precision.0 {
        None => Ok(set.save(out)?),
        Some(code) => Ok(set.save_compact(out, code)?),
    }
}
