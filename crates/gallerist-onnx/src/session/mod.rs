//! Reading a model with one of the engines.

mod interface;
#[cfg(feature = "onnxruntime")]
mod onnxruntime;
mod rten;

use std::path::Path;

use gallerist_util::panics::caught;

use crate::cut::Cut;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::inspection::Inspection;

pub(crate) use interface::{Computed, Dtype, Session, Side, Slot, Values};

/// Reads a model. `cut` is what is left of it where this program computes a part of it.
pub(crate) fn open(path: &Path, engine: Engine, cut: Option<Cut>) -> Result<Box<dyn Session>> {
    ready(path, engine)?;
    read(path, engine, cut).map_err(|problem| refused(path, engine, problem))
}

fn read(path: &Path, engine: Engine, cut: Option<Cut>) -> Result<Box<dyn Session>, String> {
    caught(|| match engine {
        Engine::Rten => rten::open(path, cut),
        #[cfg(feature = "onnxruntime")]
        Engine::Onnxruntime => onnxruntime::open(path),
        #[cfg(not(feature = "onnxruntime"))]
        Engine::Onnxruntime => unreachable!("`ready` refuses it"),
    })?
}

/// Whether the operators of a file that an engine seems to lack are in the file: onnxruntime computes those that a model defines
/// by functions, which [`Inspection`] does not read.
pub(crate) fn defines_operators(path: &Path, engine: Engine) -> bool {
    engine == Engine::Onnxruntime && read(path, engine, None).is_ok()
}

/// Whether an engine refuses a model of one node, which `bytes` contain, because of its operator.
pub(crate) fn lacks_operator(engine: Engine, bytes: Vec<u8>) -> bool {
    let check = || match engine {
        Engine::Rten => rten::lacks_operator(bytes),
        #[cfg(feature = "onnxruntime")]
        Engine::Onnxruntime => onnxruntime::lacks_operator(&bytes),
        #[cfg(not(feature = "onnxruntime"))]
        Engine::Onnxruntime => false,
    };
    caught(check).unwrap_or(false)
}

/// Refuses an engine that this program does not have, or whose library cannot be loaded.
pub(crate) fn ready(path: &Path, engine: Engine) -> Result<()> {
    match engine {
        Engine::Rten => Ok(()),
        #[cfg(feature = "onnxruntime")]
        Engine::Onnxruntime => onnxruntime::ready().map_err(|problem| Error {
            path: Some(path.into()),
            reason: problem.reason,
            hint: Some(problem.hint),
        }),
        #[cfg(not(feature = "onnxruntime"))]
        Engine::Onnxruntime => Err(Error {
            path: Some(path.into()),
            reason: "this program was built without the engine onnxruntime".into(),
            hint: Some("build it with `--features onnxruntime`, or use the engine rten".into()),
        }),
    }
}

/// The error of a model that does not load, which names the operators that are missing.
fn refused(path: &Path, engine: Engine, problem: String) -> Error {
    let missing = match Inspection::of_file(path, engine) {
        Ok(inspection) => inspection.missing,
        Err(error) => return error,
    };
    if missing.is_empty() {
        return Error { path: Some(path.into()), reason: problem, hint: None };
    }
    let names: Vec<String> = missing.iter().map(ToString::to_string).collect();
    Error {
        path: Some(path.into()),
        reason: format!("operators that are not supported: {}", names.join(", ")),
        hint: Some("export the model with another opset, or without the part that uses them".into()),
    }
}
