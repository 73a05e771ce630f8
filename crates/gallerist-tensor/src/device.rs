//! Devices: the CPU or a GPU, chosen at run time.
//!
//! GPUs require the features `cuda` (NVIDIA, with the driver and CUDA's run-time
//! compiler) or `wgpu` (GPUs with Vulkan, Metal or Direct3D 12). A program can have both.
//!
//! Bit-identical results (of repeated runs, resumed runs, any number of threads) are guaranteed on the CPU only.

use std::fmt;
use std::str::FromStr;

use burn::tensor::{Device, Tensor, TensorData};
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// A device to compute on, as `--device` and `train.device` name it.
///
/// # Example
///
/// ```
/// use gallerist_tensor::device::DeviceChoice;
///
/// let choice: DeviceChoice = "cuda:1".parse().unwrap();
/// assert_eq!(choice, DeviceChoice::Cuda(1));
/// assert_eq!(choice.to_string(), "cuda:1");
/// assert_eq!(DeviceChoice::Cpu.open().unwrap().kind(), "cpu");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum DeviceChoice {
    /// The first NVIDIA GPU, else a hardware GPU found by wgpu, else the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// An NVIDIA GPU by its number.
    Cuda(usize),
    /// A GPU by Vulkan, Metal or Direct3D: the fastest one, or a discrete GPU by its number.
    Wgpu(Option<usize>),
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (kind, number) = match text.split_once(':') {
            Some((kind, number)) => (kind, Some(number)),
            None => (text, None),
        };
        let number = number.map(str::parse::<usize>).transpose();
        match (kind, number) {
            ("auto", Ok(None)) => Ok(DeviceChoice::Auto),
            ("cpu", Ok(None)) => Ok(DeviceChoice::Cpu),
            ("cuda", Ok(number)) => Ok(DeviceChoice::Cuda(number.unwrap_or(0))),
            ("wgpu", Ok(number)) => Ok(DeviceChoice::Wgpu(number)),
            _ => Err(format!("a device is auto, cpu, cuda, cuda:N, wgpu or wgpu:N, not `{text}`")),
        }
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceChoice::Auto => f.write_str("auto"),
            DeviceChoice::Cpu => f.write_str("cpu"),
            DeviceChoice::Cuda(number) => write!(f, "cuda:{number}"),
            DeviceChoice::Wgpu(None) => f.write_str("wgpu"),
            DeviceChoice::Wgpu(Some(number)) => write!(f, "wgpu:{number}"),
        }
    }
}

impl TryFrom<String> for DeviceChoice {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<Self, String> {
        text.parse()
    }
}

impl From<DeviceChoice> for String {
    fn from(choice: DeviceChoice) -> Self {
        choice.to_string()
    }
}

/// An opened device.
#[derive(Clone, Debug)]
pub struct OpenDevice {
    device: Device,
    choice: DeviceChoice,
    name: String,
    passed_over: Vec<String>,
}

impl OpenDevice {
    fn new(device: Device, choice: DeviceChoice, name: String) -> Self {
        OpenDevice { device, choice, name, passed_over: Vec::new() }
    }

    /// The engine's device, without gradients.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The choice that was opened: never [`DeviceChoice::Auto`].
    pub fn choice(&self) -> DeviceChoice {
        self.choice
    }

    /// `cpu`, `cuda` or `wgpu`.
    pub fn kind(&self) -> &'static str {
        match self.choice {
            DeviceChoice::Cuda(_) => "cuda",
            DeviceChoice::Wgpu(_) => "wgpu",
            DeviceChoice::Cpu | DeviceChoice::Auto => "cpu",
        }
    }

    /// Whether it is the CPU.
    pub fn is_cpu(&self) -> bool {
        self.choice == DeviceChoice::Cpu
    }

    /// The reason why [`DeviceChoice::Auto`] did not select a GPU although the program supports one.
    pub fn passed_over(&self) -> &[String] {
        &self.passed_over
    }
}

/// Runs a pass of many operations on `device`; on the CPU it runs on a compute thread, which saves the hand-over per
/// operation.
pub fn on_device<R: Send>(device: &Device, pass: impl FnOnce() -> R + Send) -> R {
    if *device == Device::flex() { gallerist_kernels::on_worker(pass) } else { pass() }
}

/// These values as a tensor on a device, in f32.
///
/// Many values take the fast way to an NVIDIA GPU (`gallerist_kernels::cuda::upload`), others go to a GPU in one piece: a tensor of
/// several dimensions is copied row by row, because the engine pads its rows on the device.
///
/// # Example
///
/// ```
/// use burn::tensor::Device;
/// use gallerist_tensor::device::uploaded;
///
/// let x = uploaded(vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3], &Device::flex());
/// assert_eq!(x.dims(), [2, 3]);
/// ```
pub fn uploaded<const D: usize>(values: Vec<f32>, shape: [usize; D], device: &Device) -> Tensor<D> {
    #[cfg(feature = "cuda")]
    if let Some(uploaded) = gallerist_kernels::cuda::upload(&values, device) {
        // Giving so much memory back takes milliseconds.
        rayon::spawn(move || drop(values));
        return uploaded.reshape(shape);
    }
    let length = values.len();
    Tensor::<1>::from_data(TensorData::new(values, [length]), device).reshape(shape)
}

impl fmt::Display for OpenDevice {
    /// `cpu (2 threads)`, `cuda:0 (NVIDIA H200)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.choice, self.name)
    }
}

impl DeviceChoice {
    /// The device, after a small computation on it.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] where this program was built without the device's kind, or the device, its driver or its
    /// compiler is not there.
    pub fn open(self) -> Result<OpenDevice> {
        match self {
            DeviceChoice::Auto => Ok(auto()),
            DeviceChoice::Cpu => {
                let threads = rayon::current_num_threads();
                let plural = if threads == 1 { "" } else { "s" };
                Ok(OpenDevice::new(Device::flex(), self, format!("{threads} thread{plural}")))
            }
            DeviceChoice::Cuda(number) => cuda::open(number).map_err(|e| self.unavailable(e)),
            DeviceChoice::Wgpu(number) => wgpu::open(number).map_err(|e| self.unavailable(e)),
        }
    }

    fn unavailable(self, Unavailable { reason, hint }: Unavailable) -> Error {
        Error::Device { wanted: self.to_string(), reason, hint: Some(hint) }
    }
}

/// Why a device cannot be used.
struct Unavailable {
    reason: String,
    hint: String,
}

impl Unavailable {
    fn new(reason: impl Into<String>, hint: impl Into<String>) -> Self {
        Unavailable { reason: reason.into(), hint: hint.into() }
    }
}

/// The first available GPU, else the CPU.
fn auto() -> OpenDevice {
    let mut passed_over = Vec::new();
    #[cfg(feature = "cuda")]
    match cuda::open(0) {
        Ok(device) => return device,
        Err(e) => passed_over.push(format!("cuda: {}", e.reason)),
    }
    #[cfg(feature = "wgpu")]
    match wgpu::open_hardware() {
        Ok(device) => return device,
        Err(e) => passed_over.push(format!("wgpu: {}", e.reason)),
    }
    let mut cpu = DeviceChoice::Cpu.open().expect("the processor is always there");
    cpu.passed_over.append(&mut passed_over);
    cpu
}

/// The error of a program without this kind of device.
#[cfg(not(all(feature = "cuda", feature = "wgpu")))]
fn not_built(feature: &str) -> Unavailable {
    Unavailable::new(
        format!("this program was built without the feature `{feature}`"),
        format!("build it with: cargo build --release --features {feature} (docs/gpu.md)"),
    )
}

/// The device, if it can add: kernels are compiled and run, and their result comes back.
///
/// The engine panics if a driver fails. This function turns the panic into an error, before there is work to lose.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
fn that_computes(device: Device) -> std::result::Result<Device, String> {
    use burn::tensor::Tensor;
    let probe = device.clone();
    // Nothing of the device is used again after a panic.
    let sum = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        let x = Tensor::<1>::from_floats([1.0, 2.0], &probe);
        x.add_scalar(0.5).sum().into_scalar::<f32>()
    }));
    match sum {
        Ok(4.0) => Ok(device),
        Ok(sum) => Err(format!("it adds 1.5 and 2.5 up to {sum}")),
        Err(_) => Err("the engine could not start on it; its message is printed above".into()),
    }
}

#[cfg(not(feature = "cuda"))]
mod cuda {
    pub(super) fn open(_: usize) -> Result<super::OpenDevice, super::Unavailable> {
        Err(super::not_built("cuda"))
    }
}

#[cfg(feature = "cuda")]
mod cuda {
    use burn::tensor::Device;
    use cudarc::driver::result;

    use super::{DeviceChoice, OpenDevice, Unavailable, that_computes};

    const DOCS: &str = "docs/gpu.md lists what must be installed; --device cpu needs nothing";

    pub(super) fn open(number: usize) -> Result<OpenDevice, Unavailable> {
        // SAFETY: opening the vendor's libraries runs their initialisers, which is what using CUDA means.
        let [driver, compiler] =
            unsafe { [cudarc::driver::sys::is_culib_present(), cudarc::nvrtc::sys::is_culib_present()] };
        if !driver {
            return Err(Unavailable::new("the driver of CUDA (libcuda) is not found", DOCS));
        }
        if !compiler {
            return Err(Unavailable::new("CUDA's run-time compiler (libnvrtc) is not found", DOCS));
        }
        // The paths in which the engine looks for them.
        let named = std::env::var("CUDA_PATH").ok().map(std::path::PathBuf::from);
        let usual = ["/usr/local/cuda", "/opt/cuda", "/usr"].map(std::path::PathBuf::from);
        let found = match &named {
            Some(path) => has_headers(path),
            None => usual.iter().any(|path| has_headers(path)),
        };
        if cfg!(unix) && !found {
            let reason = match named {
                Some(path) => {
                    format!("CUDA's headers (include/cuda_runtime.h) are not in `{}`", path.display())
                }
                None => "CUDA's headers are in none of /usr/local/cuda, /opt/cuda, /usr".into(),
            };
            return Err(Unavailable::new(
                reason,
                "set CUDA_PATH to the folder that has include/cuda_runtime.h",
            ));
        }
        let refused = |e: result::DriverError| {
            let why = e.error_string().map_or("no reason given".into(), |text| text.to_string_lossy());
            Unavailable::new(format!("the driver of CUDA refuses: {why}"), DOCS)
        };
        result::init().map_err(refused)?;
        let count = result::device::get_count().map_err(refused)?;
        if i32::try_from(number).is_ok_and(|number| number >= count) || i32::try_from(number).is_err() {
            let plural = if count == 1 { "" } else { "s" };
            let hint = "devices are counted from 0; CUDA_VISIBLE_DEVICES hides some";
            return Err(Unavailable::new(format!("the driver shows {count} GPU{plural}"), hint));
        }
        let name = result::device::get(number as i32).and_then(result::device::get_name).map_err(refused)?;
        let device = that_computes(Device::cuda(number)).map_err(|reason| Unavailable::new(reason, DOCS))?;
        let name = match gallerist_kernels::cuda::unavailable(number) {
            None => name,
            Some(reason) => format!("{name}; slow: {reason}"),
        };
        Ok(OpenDevice::new(device, DeviceChoice::Cuda(number), name))
    }

    fn has_headers(path: &std::path::Path) -> bool {
        path.join("include/cuda_runtime.h").exists()
    }
}

#[cfg(not(feature = "wgpu"))]
mod wgpu {
    pub(super) fn open(_: Option<usize>) -> Result<super::OpenDevice, super::Unavailable> {
        Err(super::not_built("wgpu"))
    }
}

#[cfg(feature = "wgpu")]
mod wgpu {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use burn::tensor::wgpu::WgpuInitError;
    use burn::tensor::wgpu::wgpu::DeviceType;
    use burn::tensor::{Device, DeviceKind};

    use super::{DeviceChoice, OpenDevice, Unavailable, that_computes};

    /// An adapter is initialised once in a program.
    static OPEN: Mutex<BTreeMap<Option<usize>, (OpenDevice, bool)>> = Mutex::new(BTreeMap::new());

    const DOCS: &str =
        "a driver for Vulkan, Metal or Direct3D 12 is needed (docs/gpu.md); --device cpu needs nothing";

    pub(super) fn open(number: Option<usize>) -> Result<OpenDevice, Unavailable> {
        Ok(opened(number)?.0)
    }

    /// The fastest adapter, if it is not a software renderer.
    pub(super) fn open_hardware() -> Result<OpenDevice, Unavailable> {
        match opened(None)? {
            (device, true) => Ok(device),
            (device, false) => Err(Unavailable::new(format!("{device} is made of software"), DOCS)),
        }
    }

    fn opened(number: Option<usize>) -> Result<(OpenDevice, bool), Unavailable> {
        let mut open = OPEN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(found) = open.get(&number) {
            return Ok(found.clone());
        }
        let kind = number.map_or(DeviceKind::DefaultDevice, DeviceKind::DiscreteGpu);
        let (device, setup) =
            Device::wgpu_options().device_kind(kind).init_with_setup().map_err(|e| unavailable(e, number))?;
        let about = setup.adapter.get_info();
        let name = format!("{}, {:?}", about.name, about.backend);
        let device = that_computes(device).map_err(|reason| Unavailable::new(reason, DOCS))?;
        let found = OpenDevice::new(device, DeviceChoice::Wgpu(number), name);
        let hardware = about.device_type != DeviceType::Cpu;
        open.insert(number, (found.clone(), hardware));
        Ok((found, hardware))
    }

    fn unavailable(error: WgpuInitError, number: Option<usize>) -> Unavailable {
        match (error, number) {
            (WgpuInitError::AdapterUnavailable { .. }, Some(number)) => Unavailable::new(
                format!("wgpu finds no separate GPU with the number {number}"),
                "separate GPUs are counted from 0; `wgpu` without a number takes built-in ones too",
            ),
            (WgpuInitError::AdapterUnavailable { .. }, None) => Unavailable::new("wgpu finds no GPU", DOCS),
            (error, _) => Unavailable::new(error.to_string(), DOCS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_comes_back_from_its_text() {
        for text in ["auto", "cpu", "cuda:0", "cuda:3", "wgpu", "wgpu:1"] {
            assert_eq!(text.parse::<DeviceChoice>().unwrap().to_string(), text);
        }
        assert_eq!("cuda".parse::<DeviceChoice>().unwrap(), DeviceChoice::Cuda(0));
    }

    #[test]
    fn what_is_no_device_is_refused_by_name() {
        for text in ["", "gpu", "cpu:1", "auto:0", "cuda:", "cuda:-1", "cuda:x", "cuda:1:2", "CUDA"] {
            let error = text.parse::<DeviceChoice>().unwrap_err();
            assert!(error.ends_with(&format!("not `{text}`")), "{error}");
        }
    }

    #[test]
    fn the_processor_is_always_there_and_says_how_many_threads_it_has() {
        let device = DeviceChoice::Cpu.open().unwrap();
        assert!(device.is_cpu() && device.to_string().starts_with("cpu ("), "{device}");
    }

    #[test]
    fn a_gpu_that_is_not_there_is_an_error_with_a_hint() {
        // No machine has so many.
        for choice in [DeviceChoice::Cuda(4321), DeviceChoice::Wgpu(Some(4321))] {
            let error = choice.open().unwrap_err();
            assert!(error.to_string().starts_with(&format!("cannot compute on `{choice}`\n")), "{error}");
            assert!(error.hint().is_some(), "{error}");
            assert!(!error.to_string().contains(['{', '(']), "names of types and fields: {error}");
        }
    }
}
