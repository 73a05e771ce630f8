//! Replaces `cubecl-llvm` 0.11.3, by `[patch.crates-io]` of the workspace.
//!
//! `cubecl-cuda` can compile its kernels with CUDA's run-time compiler (NVRTC, the feature
//! `cuda-cpp`) or with LLVM, and always links both. The build script of the original `cubecl-llvm`
//! downloads LLVM. We use NVRTC; this crate has the types that `cubecl-cuda` refers to, and a
//! compiler that returns an error for every kernel.
//!
//! This crate and the patch can be removed when CubeCL makes its LLVM backend optional. Crates that depend on
//! gallerist need the same patch: see docs/gpu.md.

use core::fmt;

use cubecl_core::ir::nvidia::SmArch;
use cubecl_core::prelude::KernelDefinition;
use cubecl_runtime::compiler::{CompilationError, Compiler};
use cubecl_runtime::kernel::BufferIOAttr;

/// The target of the compiler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LlvmTarget {
    /// The CPU.
    #[default]
    Cpu,
    /// An NVIDIA GPU.
    Nvptx,
}

/// The missing compiler.
#[derive(Clone, Debug, Default)]
pub struct PlironCompiler {
    /// The target.
    pub target: LlvmTarget,
}

/// Its options.
#[derive(Clone, Debug, Default)]
pub struct PlironOptions {
    /// The architecture of other vendors' GPUs.
    pub arch: Option<()>,
    /// The compute capability of the GPU.
    pub sm_arch: Option<SmArch>,
    /// The PTX version that the driver supports.
    pub ptx_version: Option<nvptx::ptx_version::PtxVersion>,
    /// Whether launch parameters are grid constants.
    pub grid_constants: bool,
    /// `cubecl-cuda` fills the remaining fields with defaults.
    pub others: (),
}

/// A compiled kernel; never created.
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

/// The result of the compiler.
#[derive(Clone, Debug)]
pub enum PlironArtifact {
    /// Code in memory.
    Jit,
    /// Code for an NVIDIA GPU.
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

/// NVIDIA GPUs.
pub mod nvptx {
    /// Versions of PTX.
    pub mod ptx_version {
        use core::fmt;

        /// A version of PTX, identified by the driver version.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct PtxVersion(i32);

        impl PtxVersion {
            /// The PTX version of a driver.
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

/// Limits of the LLVM backend.
pub mod shared {
    /// Removes unsupported features from the properties of a device.
    pub mod lowered_features {
        use cubecl_core::ir::DeviceProperties;

        /// The kind of GPU.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum GpuTarget {
            /// NVIDIA.
            Nvptx,
        }

        /// Does nothing: it is called only if kernels are compiled by LLVM.
        pub fn restrict_features(_: &mut DeviceProperties, _: GpuTarget) {}
    }
}
