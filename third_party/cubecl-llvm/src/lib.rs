//! Stands in for `cubecl-llvm` 0.11.3, by `[patch.crates-io]` of the workspace.
//!
//! `cubecl-cuda` can turn its kernels into machine code by CUDA's own run-time compiler (NVRTC, the
//! feature `cuda-cpp`) or by LLVM, and links both whichever is asked for. The real `cubecl-llvm`
//! downloads a whole LLVM when it is built. We use NVRTC; here are the names that `cubecl-cuda`
//! mentions, and a compiler that answers every request with an error.
//!
//! When CubeCL makes its LLVM backend optional, this folder and the patch can go.

use core::fmt;

use cubecl_core::ir::nvidia::SmArch;
use cubecl_core::prelude::KernelDefinition;
use cubecl_runtime::compiler::{CompilationError, Compiler};
use cubecl_runtime::kernel::BufferIOAttr;

/// What code would be made for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LlvmTarget {
    /// The processor.
    #[default]
    Cpu,
    /// A GPU of NVIDIA.
    Nvptx,
}

/// The compiler that is not here.
#[derive(Clone, Debug, Default)]
pub struct PlironCompiler {
    /// What code would be made for.
    pub target: LlvmTarget,
}

/// Its options.
#[derive(Clone, Debug, Default)]
pub struct PlironOptions {
    /// A target of another GPU maker.
    pub arch: Option<()>,
    /// The GPU's generation.
    pub sm_arch: Option<SmArch>,
    /// The language version that the driver reads.
    pub ptx_version: Option<nvptx::ptx_version::PtxVersion>,
    /// Whether launch parameters are constants of the grid.
    pub grid_constants: bool,
    /// `cubecl-cuda` fills in the fields that it does not name.
    pub others: (),
}

/// A compiled kernel: none is ever made.
#[derive(Clone, Debug)]
pub struct NvptxModule {
    /// The machine code.
    pub ptx: Vec<core::ffi::c_char>,
    /// The name of the kernel's function.
    pub entrypoint: String,
    /// The code before it was compiled.
    pub ir: String,
    /// Bytes of shared memory.
    pub shared_memory_size: usize,
    /// How the buffers are used.
    pub io: Vec<BufferIOAttr>,
}

/// What the compiler gives.
#[derive(Clone, Debug)]
pub enum PlironArtifact {
    /// Code in memory.
    Jit,
    /// Code for a GPU of NVIDIA.
    NvptxCode(NvptxModule),
}

impl fmt::Display for PlironArtifact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no LLVM in this build")
    }
}

impl Compiler for PlironCompiler {
    type Representation = PlironArtifact;
    type CompilationOptions = PlironOptions;

    fn compile(
        &mut self,
        _: KernelDefinition,
        _: &PlironOptions,
    ) -> Result<PlironArtifact, CompilationError> {
        Err(CompilationError::Generic {
            reason: "this build has no LLVM: use cubecl's feature `cuda-cpp` (NVRTC)".into(),
            backtrace: cubecl_environment::backtrace::BackTrace::capture(),
        })
    }

    fn extension(&self) -> &'static str {
        "ll"
    }

    fn lang_tag(&self) -> &'static str {
        "llvm"
    }
}

/// GPUs of NVIDIA.
pub mod nvptx {
    /// Versions of PTX.
    pub mod ptx_version {
        use core::fmt;

        /// A version of PTX, by the driver that reads it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct PtxVersion(i32);

        impl PtxVersion {
            /// The version of a driver.
            pub fn for_driver(driver: i32) -> Option<Self> {
                Some(Self(driver))
            }
        }

        impl fmt::Display for PtxVersion {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "driver{}", self.0)
            }
        }
    }
}

/// What the LLVM backend cannot do.
pub mod shared {
    /// Taking it from a device's properties.
    pub mod lowered_features {
        use cubecl_core::ir::DeviceProperties;

        /// The GPU whose properties are narrowed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum GpuTarget {
            /// One of NVIDIA.
            Nvptx,
        }

        /// Only asked for where kernels are compiled by LLVM: here never.
        pub fn restrict_features(_: &mut DeviceProperties, _: GpuTarget) {}
    }
}
