//! The kernels of this crate for GPUs: compiled when they are first used, for one type of values.

use std::collections::HashMap;
use std::ffi::{CString, c_void};

use burn::tensor::DType;
use cudarc::driver::{result, sys};

use super::library::{Declined, Library, Outcome};

/// Threads of a block.
pub(super) const THREADS: usize = 256;

/// A file of kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Source {
    Norm,
    Tokens,
    /// In f32 only.
    Update,
}

impl Source {
    fn text(self) -> &'static str {
        match self {
            Source::Norm => concat!(include_str!("values.cu"), include_str!("norm.cu")),
            Source::Tokens => concat!(include_str!("values.cu"), include_str!("tokens.cu")),
            Source::Update => concat!(include_str!("values.cu"), include_str!("update.cu")),
        }
    }
}

/// The name of a type of values in the names of kernels.
pub(super) fn values_of(dtype: DType) -> Outcome<&'static str> {
    match dtype {
        DType::F32 => Ok("f32"),
        DType::BF16 => Ok("bf16"),
        DType::F16 => Ok("f16"),
        other => Err(Declined(format!("kernels of {other:?}"))),
    }
}

/// The compiled files of kernels.
#[derive(Default)]
struct Programs(HashMap<(Source, &'static str), Program>);

struct Program {
    module: sys::CUmodule,
    functions: HashMap<String, sys::CUfunction>,
}

/// A kernel and how it is started.
pub(super) struct Launch {
    pub(super) source: Source,
    /// The type for which the source is compiled.
    pub(super) values: &'static str,
    pub(super) kernel: String,
    /// Blocks across and down.
    pub(super) grid: (usize, usize),
    /// Bytes of shared memory of a block.
    pub(super) shared: usize,
}

/// Blocks of a kernel that visits `count` values, `vector` at once.
pub(super) fn blocks_of(count: usize, vector: usize) -> usize {
    // Sixteen for each multiprocessor of a large GPU; a thread visits more values if these are not enough.
    count.div_ceil(THREADS * vector).min(132 * 16)
}

/// Starts a kernel on the library's stream. Kernels take their arguments by address.
macro_rules! launch {
    ($library:expr, $launch:expr, [$($argument:expr),+ $(,)?]) => {{
        let addresses = &mut [$(::std::ptr::from_ref(&$argument).cast_mut().cast::<::std::ffi::c_void>()),+];
        $crate::cuda::kernels::start($library, $launch, addresses)?;
    }};
}
pub(super) use launch;

/// The compiled kernel `name` of the type `values`.
fn function(
    library: &mut Library,
    source: Source,
    values: &'static str,
    name: String,
) -> Outcome<sys::CUfunction> {
    if !library.kept::<Programs>().0.contains_key(&(source, values)) {
        let program = Program::new(library, source, values)?;
        library.kept::<Programs>().0.insert((source, values), program);
    }
    let program = library.kept::<Programs>().0.get_mut(&(source, values)).expect("inserted above");
    if let Some(&function) = program.functions.get(&name) {
        return Ok(function);
    }
    let c_name = CString::new(name.as_str()).expect("names of kernels have no zeros");
    // SAFETY: the module is loaded and never unloaded.
    let function = unsafe { result::module::get_function(program.module, c_name)? };
    program.functions.insert(name, function);
    Ok(function)
}

impl Program {
    fn new(library: &Library, source: Source, values: &str) -> Outcome<Self> {
        let binary = compiled(source.text(), &options(library.capability()?, values))?;
        // SAFETY: the image is a whole cubin, which the driver copies.
        let module = unsafe { result::module::load_data(binary.as_ptr().cast())? };
        Ok(Program { module, functions: HashMap::new() })
    }
}

/// The options by which a source is compiled for a type of values.
fn options(capability: i32, values: &str) -> [String; 2] {
    [format!("--gpu-architecture=sm_{capability}"), format!("-DOF_{}", values.to_uppercase())]
}

/// Starts a kernel; see [`launch`].
pub(super) fn start(library: &mut Library, launch: Launch, arguments: &mut [*mut c_void]) -> Outcome<()> {
    let Launch { source, values, kernel, grid: (across, down), shared } = launch;
    let function = function(library, source, values, kernel)?;
    let (grid, block) = ((across as u32, down as u32, 1), (THREADS as u32, 1, 1));
    // SAFETY: the callers pass the arguments that the kernel of this name declares; the memory behind the addresses is held by their
    // callers and has the sizes that the arguments give.
    unsafe {
        result::launch_kernel(function, grid, block, shared as u32, library.stream(), arguments)?;
    }
    Ok(())
}

/// A source compiled by NVRTC.
fn compiled(source: &str, options: &[String]) -> Outcome<Vec<u8>> {
    use cudarc::nvrtc::{result as nvrtc, sys};
    let failed = |what: &str, error: nvrtc::NvrtcError| Declined(format!("{what}: {error:?}"));
    let source = CString::new(source).map_err(|_| Declined("a zero in a source".into()))?;
    let program = nvrtc::create_program(&source, None).map_err(|e| failed("nvrtcCreateProgram", e))?;
    // SAFETY: the program was created above and is destroyed once, at the end.
    let built = unsafe {
        match nvrtc::compile_program(program, options) {
            Ok(()) => {
                let mut size = 0;
                sys::nvrtcGetCUBINSize(program, &mut size)
                    .result()
                    .and_then(|()| {
                        let mut binary = vec![0u8; size];
                        sys::nvrtcGetCUBIN(program, binary.as_mut_ptr().cast()).result()?;
                        Ok(binary)
                    })
                    .map_err(|e| failed("nvrtcGetCUBIN", e))
            }
            Err(error) => {
                let log = nvrtc::get_program_log(program).unwrap_or_default();
                let log: Vec<u8> = log.into_iter().map(|c| c as u8).collect();
                Err(Declined(format!("{error:?}: {}", String::from_utf8_lossy(&log))))
            }
        }
    };
    // SAFETY: as above.
    let _ = unsafe { nvrtc::destroy_program(program) };
    built
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where CUDA's compiler is; it needs no GPU.
    #[test]
    fn sources_are_compiled_for_every_type() {
        // SAFETY: opening the vendor's library runs its initialisers.
        if !unsafe { cudarc::nvrtc::sys::is_culib_present() } {
            eprintln!("not tested: libnvrtc is not here");
            return;
        }
        for source in [Source::Norm, Source::Tokens, Source::Update] {
            for values in [DType::F32, DType::BF16, DType::F16].map(|dtype| values_of(dtype).unwrap()) {
                let binary = compiled(source.text(), &options(90, values)).unwrap();
                assert!(binary.starts_with(b"\x7fELF"), "{source:?} of {values}");
            }
        }
    }
}
