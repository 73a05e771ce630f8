//! onnxruntime, from a library that the user installs.

use std::error::Error as _;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use gallerist_util::panics::caught;
use ort::environment::{Environment, GlobalThreadPoolOptions};
use ort::logging::LogLevel;
use ort::session::builder::SessionBuilder;
use ort::session::{OutputSelector, RunOptions, SessionInputValue};
use ort::value::{Tensor, TensorElementType, ValueType};

use super::interface::{Computed, Dtype, Session, Side, Slot, Values};

/// The environment variable with the path of the library, the one that `ort` reads.
const VARIABLE: &str = "ORT_DYLIB_PATH";

/// Why the engine cannot be used, and what to do.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) reason: String,
    pub(super) hint: String,
}

/// Whether the library can be loaded.
pub(super) fn ready() -> Result<(), Problem> {
    environment().map(|_| ())
}

/// The environment of all sessions. It is made once and never released: `ort` allows one for a process.
fn environment() -> Result<Environment, Problem> {
    static ENVIRONMENT: Mutex<Option<Environment>> = Mutex::new(None);
    let mut environment = ENVIRONMENT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(environment) = &*environment {
        return Ok(environment.clone());
    }
    let made = load(std::env::var_os(VARIABLE))?;
    Ok(environment.insert(made).clone())
}

/// Loads the library that the value of the environment variable names, and makes an environment.
fn load(path: Option<OsString>) -> Result<Environment, Problem> {
    let Some(path) = path.filter(|path| !path.is_empty()) else {
        return Err(Problem {
            reason: "the engine onnxruntime needs its library, and the environment variable ORT_DYLIB_PATH does not name it"
                .into(),
            hint: "`pip install onnxruntime`, then set ORT_DYLIB_PATH to the libonnxruntime.so.* in its folder `capi`, or use the engine rten"
                .into(),
        });
    };
    // `ort` would look for a relative path in the folder of the program.
    let path = std::path::absolute(&path).unwrap_or_else(|_| PathBuf::from(path));
    let wrong = |problem: String| Problem {
        reason: format!("the engine onnxruntime cannot use the library `{}`: {problem}", path.display()),
        hint: format!(
            "set ORT_DYLIB_PATH to the libonnxruntime of version 1.{} or newer for this processor, or use the engine rten",
            ort::MINOR_VERSION
        ),
    };
    if !path.is_file() {
        return Err(wrong("there is no such file".into()));
    }
    let builder = caught(|| ort::init_from(&path)).map_err(&wrong)?.map_err(|error| wrong(text(&error)))?;
    let made = caught(|| {
        // One pool for all models, with as many threads as the process uses elsewhere. Its threads sleep while they wait, so
        // that they do not take the cores from those that decode images.
        let threads = GlobalThreadPoolOptions::default()
            .with_intra_threads(rayon::current_num_threads())?
            .with_inter_threads(1)?
            .with_spin_control(false)?;
        builder.with_name("gallerist").with_telemetry(false).with_global_thread_pool(threads).build()
    });
    let environment = made.map_err(&wrong)?.map_err(|error| wrong(error.to_string()))?;
    // Errors are returned, too. `ort` reads the variable.
    if std::env::var_os("ORT_LOG").is_none() {
        environment.set_log_level(LogLevel::Fatal);
    }
    Ok(environment)
}

/// What is wrong with a library, without its path.
fn text(error: &ort::LoadDynamicError) -> String {
    match error {
        // The reason of the system is the source.
        ort::LoadDynamicError::Dlopen { error, .. } => {
            error.source().map_or_else(|| error.to_string(), ToString::to_string)
        }
        ort::LoadDynamicError::MissingApi { .. } => "it is another library".into(),
        ort::LoadDynamicError::InvalidVersionString => "it names no version".into(),
        ort::LoadDynamicError::BadVersion { version_str, .. } => format!("it has version {version_str}"),
    }
}

struct Onnxruntime {
    // `ort` has one pass of a session at a time: parts of onnxruntime are not safe for several. Each pass uses all threads.
    session: Mutex<ort::session::Session>,
    inputs: Vec<Slot>,
    outputs: Vec<Slot>,
    /// The dtypes of the inputs.
    dtypes: Vec<ValueType>,
}

pub(super) fn open(path: &Path) -> Result<Box<dyn Session>, String> {
    let session = builder()?.commit_from_file(path).map_err(|error| error.to_string())?;
    let slots = |outlets: &[ort::value::Outlet]| {
        outlets.iter().map(|outlet| slot(outlet.name(), outlet.dtype())).collect()
    };
    let (inputs, outputs) = (slots(session.inputs()), slots(session.outputs()));
    let dtypes = session.inputs().iter().map(|input| input.dtype().clone()).collect();
    Ok(Box::new(Onnxruntime { session: Mutex::new(session), inputs, outputs, dtypes }))
}

/// The builder of a session for the CPU.
fn builder() -> Result<SessionBuilder, String> {
    let environment = environment().map_err(|problem| problem.reason)?;
    SessionBuilder::new(&environment).map_err(|error| error.to_string())
}

pub(super) fn lacks_operator(bytes: &[u8]) -> bool {
    // For operators of other domains, and of ONNX's own.
    const LACKS: [&str; 2] = ["is not a registered function/op", "No Op registered for"];
    let Ok(mut builder) = builder() else { return false };
    let Err(error) = builder.commit_from_memory(bytes) else { return false };
    LACKS.iter().any(|words| error.to_string().contains(words))
}

impl Session for Onnxruntime {
    fn inputs(&self) -> &[Slot] {
        &self.inputs
    }

    fn outputs(&self) -> &[Slot] {
        &self.outputs
    }

    fn run(&self, inputs: Vec<(usize, Values)>, output: usize) -> Result<Option<Computed>, String> {
        caught(|| self.compute(inputs, output))?.map_err(|error| error.to_string())
    }
}

impl Onnxruntime {
    fn compute(&self, inputs: Vec<(usize, Values)>, output: usize) -> ort::Result<Option<Computed>> {
        let mut given = Vec::new();
        for (at, values) in inputs {
            given.push((self.inputs[at].name.as_str(), value(values, &self.dtypes[at])?));
        }
        let name = self.outputs[output].name.as_str();
        let options = RunOptions::new()?.with_outputs(OutputSelector::no_default().with(name));
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        let outputs = session.run_with_options(given, &options)?;
        let found = outputs.get(name).and_then(|value| value.try_extract_tensor::<f32>().ok());
        Ok(found.map(|(shape, values)| Computed {
            shape: shape.iter().map(|&side| side.max(0) as usize).collect(),
            values: values.to_vec(),
        }))
    }
}

/// The numbers of an input in its dtype.
fn value(values: Values, dtype: &ValueType) -> ort::Result<SessionInputValue<'static>> {
    Ok(match (values, element(dtype)) {
        (Values::F32(shape, values), _) => Tensor::from_array((shape, values))?.into(),
        (Values::Integers(shape, values), Some(TensorElementType::Int64)) => {
            Tensor::from_array((shape, values.into_iter().map(i64::from).collect::<Vec<_>>()))?.into()
        }
        (Values::Integers(shape, values), Some(TensorElementType::Bool)) => {
            Tensor::from_array((shape, values.into_iter().map(|value| value != 0).collect::<Vec<_>>()))?
                .into()
        }
        (Values::Integers(shape, values), _) => Tensor::from_array((shape, values))?.into(),
    })
}

fn element(dtype: &ValueType) -> Option<TensorElementType> {
    match dtype {
        ValueType::Tensor { ty, .. } => Some(*ty),
        _ => None,
    }
}

fn slot(name: &str, dtype: &ValueType) -> Slot {
    let shape = match dtype {
        ValueType::Tensor { shape, dimension_symbols, .. } => {
            let sides = shape.iter().enumerate().map(|(at, &side)| match usize::try_from(side) {
                Ok(side) => Side::Fixed(side),
                Err(_) => {
                    Side::Free(dimension_symbols.get(at).map_or(String::new(), |name| name.to_string()))
                }
            });
            // A tensor without a shape in the file has no sides here.
            Some(sides.collect::<Vec<_>>()).filter(|sides| !sides.is_empty())
        }
        _ => None,
    };
    let dtype = match element(dtype) {
        Some(TensorElementType::Float32) => Dtype::F32,
        Some(TensorElementType::Int32 | TensorElementType::Int64) => Dtype::Integer,
        _ => Dtype::Other,
    };
    Slot { name: name.to_owned(), dtype: Some(dtype), shape }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No test of this program loads a library: later ones would be ignored.
    #[test]
    fn a_library_that_cannot_be_used_is_an_error_with_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let of = |path: &str| load(Some(folder.path().join(path).into_os_string())).unwrap_err();
        for unset in [None, Some(OsString::new())] {
            let problem = load(unset).unwrap_err();
            assert!(problem.reason.contains("ORT_DYLIB_PATH"), "{problem:?}");
            assert!(problem.hint.contains("pip install onnxruntime"), "{problem:?}");
        }
        let problem = of("no.so");
        assert!(problem.reason.contains("no.so`: there is no such file"), "{problem:?}");
        assert!(problem.hint.contains("version 1.17 or newer"), "{problem:?}");
        std::fs::write(folder.path().join("bad.so"), b"not a library").unwrap();
        let problem = of("bad.so");
        assert!(problem.reason.contains("bad.so`: "), "{problem:?}");
    }
}
