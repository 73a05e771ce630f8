//! What differs between the engines: reading a model, its inputs and outputs, and one pass.

#[cfg(feature = "onnxruntime")]
mod onnxruntime;
mod rten;

use std::fmt;
use std::fs::File;
use std::path::Path;

use crate::caught::caught;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::inspection::Inspection;
use crate::lengths;

/// A model that an engine has read.
pub(crate) trait Session: Send + Sync {
    /// The inputs that the user gives, in the order of the model.
    fn inputs(&self) -> &[Slot];

    /// The outputs, in the order of the model.
    fn outputs(&self) -> &[Slot];

    /// One output for inputs, which are named by their places in [`inputs`](Self::inputs), as is the output in
    /// [`outputs`](Self::outputs). `Ok(None)` if the output is not f32.
    ///
    /// # Errors
    ///
    /// The reason why the engine cannot compute it.
    fn run(&self, inputs: Vec<(usize, Values)>, output: usize) -> Result<Option<Computed>, String>;
}

/// An input or output.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub(crate) name: String,
    /// `None`: the file does not say.
    pub(crate) dtype: Option<Dtype>,
    /// `None`: the file does not say.
    pub(crate) shape: Option<Vec<Side>>,
}

/// The numbers of an input or output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dtype {
    F32,
    /// Signed integers of 32 or 64 bits.
    Integer,
    Other,
}

/// A side of a shape.
#[derive(Clone, Debug)]
pub(crate) enum Side {
    Fixed(usize),
    /// Any length, with the name in the file.
    Free(String),
}

impl Side {
    pub(crate) fn fixed(&self) -> Option<usize> {
        match *self {
            Self::Fixed(side) => Some(side),
            Self::Free(_) => None,
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(side) => write!(f, "{side}"),
            Self::Free(name) if name.is_empty() => f.write_str("?"),
            Self::Free(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        let Some(shape) = &self.shape else { return Ok(()) };
        let sides: Vec<String> = shape.iter().map(ToString::to_string).collect();
        write!(f, " [{}]", sides.join(", "))
    }
}

/// The numbers of an input, with their shape.
pub(crate) enum Values {
    F32(Vec<usize>, Vec<f32>),
    /// Tokens and masks. An engine converts them to the dtype of the input.
    Integers(Vec<usize>, Vec<i32>),
}

/// The numbers of an output.
pub(crate) struct Computed {
    pub(crate) shape: Vec<usize>,
    pub(crate) values: Vec<f32>,
}

/// Reads a model.
pub(crate) fn open(path: &Path, engine: Engine) -> Result<Box<dyn Session>> {
    let checked = File::open(path).map_err(|error| error.to_string()).and_then(lengths::check);
    checked.map_err(|problem| refused(path, engine, problem))?;
    ready(path, engine)?;
    read(path, engine).map_err(|problem| refused(path, engine, problem))
}

fn read(path: &Path, engine: Engine) -> Result<Box<dyn Session>, String> {
    caught(|| match engine {
        Engine::Rten => rten::open(path),
        #[cfg(feature = "onnxruntime")]
        Engine::Onnxruntime => onnxruntime::open(path),
        #[cfg(not(feature = "onnxruntime"))]
        Engine::Onnxruntime => unreachable!("`ready` refuses it"),
    })?
}

/// Whether the operators of a file that an engine seems to lack are in the file: onnxruntime computes those that a model defines
/// by functions, which [`Inspection`] does not read.
pub(crate) fn defines_operators(path: &Path, engine: Engine) -> bool {
    engine == Engine::Onnxruntime && read(path, engine).is_ok()
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
            path: path.into(),
            reason: problem.reason,
            hint: Some(problem.hint),
        }),
        #[cfg(not(feature = "onnxruntime"))]
        Engine::Onnxruntime => Err(Error {
            path: path.into(),
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
        return Error { path: path.into(), reason: problem, hint: None };
    }
    let names: Vec<String> = missing.iter().map(ToString::to_string).collect();
    Error {
        path: path.into(),
        reason: format!("operators that are not supported: {}", names.join(", ")),
        hint: Some("export the model with another opset, or without the part that uses them".into()),
    }
}
