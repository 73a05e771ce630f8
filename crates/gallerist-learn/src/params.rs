//! Parameters by name: collecting them, loading them, changing them.
//!
//! A parameter's name is its dotted path in the module, the names of enum variants left out:
//! `blocks.0.conv.weight`, `head.weight`. Running statistics of batch norm are among them.

use std::collections::BTreeMap;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{DType, Tensor, TensorData};

/// The dotted path of where a traversal stands.
#[derive(Debug, Default)]
pub(crate) struct Path(Vec<Option<String>>);

impl Path {
    pub(crate) fn enter(&mut self, name: &str, container: &str) {
        self.0.push((!container.starts_with("Enum:")).then(|| name.to_string()));
    }

    pub(crate) fn exit(&mut self) {
        self.0.pop();
    }

    pub(crate) fn name(&self) -> String {
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

/// What [`load`] did not find in its place.
#[derive(Debug, Default)]
pub struct Mismatch {
    /// Names the module has and the tensors lack.
    pub missing: Vec<String>,
    /// Names the tensors have and the module lacks.
    pub unexpected: Vec<String>,
    /// Name, shape in the module, shape among the tensors.
    pub shapes: Vec<(String, Vec<usize>, Vec<usize>)>,
}

impl Mismatch {
    /// Whether everything was in its place.
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
