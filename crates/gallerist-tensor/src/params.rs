//! Parameters by name: collecting them, loading them, changing them.
//!
//! A parameter's name is its dotted path in the module, the names of enum variants left out:
//! `blocks.0.conv.weight`, `head.weight`. Running statistics of batch norm are among them.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{DType, Tensor, TensorData};
use gallerist_kernels::finite_mark;
use gallerist_retrieval::file::write_atomically;
use safetensors::tensor::{Dtype, SafeTensors, TensorView, View};

use crate::pairwise::host;
use crate::{Error, Result};

/// The dotted path of the current position of a traversal.
#[derive(Debug, Default)]
pub struct Path(Vec<Option<String>>);

impl Path {
    /// Enters a field or an element of a module.
    pub fn enter(&mut self, name: &str, container: &str) {
        self.0.push((!container.starts_with("Enum:")).then(|| name.to_string()));
    }

    /// Leaves the field or element that was entered last.
    pub fn exit(&mut self) {
        self.0.pop();
    }

    /// The dotted name of the current position.
    pub fn name(&self) -> String {
        self.0.iter().flatten().map(String::as_str).collect::<Vec<_>>().join(".")
    }
}

/// All tensors of a module by name, in f32.
pub fn collect<M: Module>(module: &M) -> BTreeMap<String, TensorData> {
    struct Collect {
        path: Path,
        tensors: BTreeMap<String, TensorData>,
    }
    impl ModuleVisitor for Collect {
        fn enter_module(&mut self, name: &str, container: &str) {
            self.path.enter(name, container);
        }
        fn exit_module(&mut self, _name: &str, _container: &str) {
            self.path.exit();
        }
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let data = param.val().detach().into_data().convert_dtype(DType::F32);
            self.tensors.insert(self.path.name(), data);
        }
    }
    let mut visitor = Collect { path: Path::default(), tensors: BTreeMap::new() };
    module.visit(&mut visitor);
    visitor.tensors
}

/// Draws the parameters of a module that are drawn on first use, as those of Burn's layers are, in the order of
/// [`collect`]'s traversal. After it, they do not depend on what else draws from the engine's random generator.
///
/// ```
/// use burn::nn::LinearConfig;
/// use burn::tensor::Device;
/// use gallerist_tensor::params;
///
/// let device = Device::flex();
/// device.seed(1);
/// let layer = LinearConfig::new(2, 3).init(&device);
/// assert!(!layer.weight.is_initialized());
/// params::initialize(&layer);
/// assert!(layer.weight.is_initialized());
/// ```
pub fn initialize<M: Module>(module: &M) {
    struct Initialize;
    impl ModuleVisitor for Initialize {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            param.val();
        }
    }
    module.visit(&mut Initialize);
}

/// The first tensor of a module that has a number that is not finite, in the order of [`collect`]'s traversal.
///
/// ```
/// use burn::module::Param;
/// use burn::tensor::{Device, Tensor};
/// use gallerist_tensor::params;
///
/// #[derive(burn::module::Module, Debug)]
/// struct Layer {
///     weight: Param<Tensor<1>>,
///     bias: Param<Tensor<1>>,
/// }
///
/// let of = |values: [f32; 2]| Param::from_data(values, &Device::flex());
/// let layer = |bias| Layer { weight: of([0.0, 1.0]), bias: of([0.0, bias]) };
/// assert_eq!(params::first_nonfinite(&layer(1.0)), None);
/// assert_eq!(params::first_nonfinite(&layer(f32::NAN)).unwrap(), "bias");
/// ```
pub fn first_nonfinite<M: Module>(module: &M) -> Option<String> {
    struct Marks {
        path: Path,
        names: Vec<String>,
        marks: Vec<Tensor<1>>,
    }
    impl ModuleVisitor for Marks {
        fn enter_module(&mut self, name: &str, container: &str) {
            self.path.enter(name, container);
        }
        fn exit_module(&mut self, _name: &str, _container: &str) {
            self.path.exit();
        }
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.names.push(self.path.name());
            self.marks.push(finite_mark(param.val().without_autodiff()));
        }
    }
    let mut visitor = Marks { path: Path::default(), names: Vec::new(), marks: Vec::new() };
    module.visit(&mut visitor);
    let Marks { names, marks, .. } = visitor;
    if marks.is_empty() {
        return None;
    }
    // Read together, so that the program waits for a GPU once.
    let marks = host(&Tensor::cat(marks, 0));
    names.into_iter().zip(marks).find(|(_, mark)| mark.is_nan()).map(|(name, _)| name)
}

/// Whether all numbers of a tensor of f32 are finite.
pub fn is_finite(data: &TensorData) -> bool {
    gallerist_kernels::is_finite(data.as_slice::<f32>().expect("a tensor of f32"))
}

/// The norm of a tensor of f32, without its numbers that are not finite, and how many these are.
pub fn norm_and_nonfinite(data: &TensorData) -> (f64, usize) {
    let values = data.as_slice::<f32>().expect("a tensor of f32");
    let finite = values.iter().filter(|value| value.is_finite());
    let squares: f64 = finite.map(|&value| f64::from(value) * f64::from(value)).sum();
    (squares.sqrt(), values.iter().filter(|value| !value.is_finite()).count())
}

/// The differences that [`load`] found.
#[derive(Debug, Default)]
pub struct Mismatch {
    /// Names of the module that the tensors lack.
    pub missing: Vec<String>,
    /// Names of the tensors that the module lacks.
    pub unexpected: Vec<String>,
    /// Name, shape in the module, shape among the tensors.
    pub shapes: Vec<(String, Vec<usize>, Vec<usize>)>,
}

impl Mismatch {
    /// Whether there is no difference.
    pub fn is_empty(&self) -> bool {
        self.missing.is_empty() && self.unexpected.is_empty() && self.shapes.is_empty()
    }
}

impl std::fmt::Display for Mismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut lines = Vec::new();
        if let Some(name) = self.missing.first() {
            lines.push(format!("{} parameters are missing, the first is `{name}`", self.missing.len()));
        }
        if let Some(name) = self.unexpected.first() {
            lines.push(format!("{} tensors have no place, the first is `{name}`", self.unexpected.len()));
        }
        if let Some((name, wanted, found)) = self.shapes.first() {
            lines.push(format!(
                "{} shapes differ: `{name}` is {wanted:?} here and {found:?} in the file",
                self.shapes.len()
            ));
        }
        f.write_str(&lines.join("; "))
    }
}

/// The module with its tensors replaced by those of the same name.
pub fn load<M: Module>(module: M, tensors: BTreeMap<String, TensorData>) -> (M, Mismatch) {
    struct Load {
        path: Path,
        tensors: BTreeMap<String, TensorData>,
        mismatch: Mismatch,
    }
    impl ModuleMapper for Load {
        fn enter_module(&mut self, name: &str, container: &str) {
            self.path.enter(name, container);
        }
        fn exit_module(&mut self, _name: &str, _container: &str) {
            self.path.exit();
        }
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            let name = self.path.name();
            let Some(data) = self.tensors.remove(&name) else {
                self.mismatch.missing.push(name);
                return param;
            };
            let (wanted, found) = (param.val().dims().to_vec(), data.shape().to_vec());
            if wanted != found {
                self.mismatch.shapes.push((name, wanted, found));
                return param;
            }
            let requires_grad = param.is_require_grad();
            param.map(|old| Tensor::from_data(data, &old.device()).set_require_grad(requires_grad))
        }
    }
    let mut mapper = Load { path: Path::default(), tensors, mismatch: Mismatch::default() };
    let module = module.map(&mut mapper);
    mapper.mismatch.unexpected = mapper.tensors.into_keys().collect();
    (module, mapper.mismatch)
}

/// A tensor in the form of safetensors: f32, little endian.
pub struct Raw<'a>(&'a TensorData, Cow<'a, [u8]>);

impl<'a> Raw<'a> {
    /// The bytes of a tensor of f32.
    pub fn new(data: &'a TensorData) -> Self {
        let bytes = if cfg!(target_endian = "little") {
            Cow::Borrowed(data.as_bytes())
        } else {
            Cow::Owned(data.as_slice::<f32>().expect("f32").iter().flat_map(|v| v.to_le_bytes()).collect())
        };
        Raw(data, bytes)
    }
}

impl View for Raw<'_> {
    fn dtype(&self) -> Dtype {
        Dtype::F32
    }
    fn shape(&self) -> &[usize] {
        self.0.shape()
    }
    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.1)
    }
    fn data_len(&self) -> usize {
        self.1.len()
    }
}

/// The values of a tensor in a safetensors file; the reason if they are not f32.
pub fn values(name: &str, view: &TensorView<'_>) -> Result<TensorData, String> {
    if view.dtype() != Dtype::F32 {
        return Err(format!("tensor `{name}` is {:?}, not F32", view.dtype()));
    }
    let values: Vec<f32> = view.data().as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
    Ok(TensorData::new(values, view.shape().to_vec()))
}

/// Writes tensors by name (of f32, as [`collect`] gives them) to a safetensors file.
///
/// # Errors
///
/// When the file cannot be written; an older one is then untouched.
///
/// # Example
///
/// ```
/// use burn::tensor::Device;
/// use burn::module::Param;
/// use gallerist_tensor::params;
///
/// #[derive(burn::module::Module, Debug)]
/// struct Layer {
///     weight: Param<burn::tensor::Tensor<2>>,
/// }
///
/// let layer = Layer { weight: Param::from_data([[1.0, 2.0]], &Device::flex()) };
/// let file = std::env::temp_dir().join("gallerist-doc-layer.safetensors");
/// params::write(&file, &params::collect(&layer))?;
/// let (layer, mismatch) = params::load(layer, params::read(&file)?);
/// assert!(mismatch.is_empty());
/// # std::fs::remove_file(file).unwrap();
/// # Ok::<(), gallerist_tensor::Error>(())
/// ```
pub fn write(path: &std::path::Path, tensors: &BTreeMap<String, TensorData>) -> Result<()> {
    write_with(path, tensors, None)
}

/// [`write()`] with metadata in the file's header.
pub fn write_with(
    path: &std::path::Path,
    tensors: &BTreeMap<String, TensorData>,
    metadata: Option<HashMap<String, String>>,
) -> Result<()> {
    let views = tensors.iter().map(|(name, data)| (name, Raw::new(data)));
    let bytes = safetensors::serialize(views, metadata)
        .map_err(|e| bad(path, format!("they cannot be put together: {e}")))?;
    write_atomically(path, |file| std::io::Write::write_all(file, &bytes))?;
    Ok(())
}

/// Moves every tensor of `average` by `share` of the way to the one of the same name in `now`.
///
/// # Panics
///
/// If a tensor is missing in `now`, or one is not f32.
pub fn approach(average: &mut BTreeMap<String, TensorData>, now: &BTreeMap<String, TensorData>, share: f32) {
    for (name, average) in average {
        let average = average.as_mut_slice::<f32>().expect("a tensor of f32");
        let now = now[name].as_slice::<f32>().expect("a tensor of f32");
        average.iter_mut().zip(now).for_each(|(average, now)| *average += share * (now - *average));
    }
}

/// Reads the tensors of a safetensors file by name.
///
/// # Errors
///
/// When the file is missing, cut short, not safetensors, or holds anything but f32.
pub fn read(path: &std::path::Path) -> Result<BTreeMap<String, TensorData>> {
    let bytes = gallerist_retrieval::file::read_regular(path).map_err(|source| Error::Io {
        action: "read",
        path: path.into(),
        source,
    })?;
    let file = SafeTensors::deserialize(&bytes)
        .map_err(|e| bad(path, format!("it is no whole safetensors file: {e}")))?;
    file.iter()
        .map(|(name, view)| Ok((name.to_string(), values(name, &view).map_err(|e| bad(path, e))?)))
        .collect()
}

fn bad(path: &std::path::Path, reason: String) -> Error {
    Error::Parameters { path: path.into(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_come_back_from_a_file_and_a_damaged_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("p.safetensors");
        let tensors = BTreeMap::from([
            ("a.b".to_string(), TensorData::new(vec![1.5f32, -0.0, f32::MIN_POSITIVE], [3, 1])),
            ("c".to_string(), TensorData::new(Vec::<f32>::new(), [0])),
        ]);
        write(&file, &tensors).unwrap();
        assert_eq!(read(&file).unwrap(), tensors);
        let whole = std::fs::read(&file).unwrap();
        for length in 0..whole.len() {
            std::fs::write(&file, &whole[..length]).unwrap();
            let error = read(&file).unwrap_err().to_string();
            assert!(error.contains("no whole safetensors file"), "{length}: {error}");
        }
        assert!(read(&folder.path().join("none")).unwrap_err().to_string().starts_with("cannot read"));
    }

    #[test]
    fn tensors_that_are_not_f32_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("p.safetensors");
        let view = TensorView::new(Dtype::F64, vec![1], &[0; 8]).unwrap();
        std::fs::write(&file, safetensors::serialize([("p", view)], None).unwrap()).unwrap();
        assert!(read(&file).unwrap_err().to_string().contains("`p` is F64, not F32"));
    }
}
