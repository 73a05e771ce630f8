//! Modules whose type is not known: a boxed network, a boxed loss.
//!
//! Burn's [`Module`] has generic methods and cannot be a trait object. [`AnyModule`] holds any module in a box and is
//! a module itself, with the same parameters under the same names, so that optimiser, parameter files, gradient
//! accumulation, clipping, averaging and moves between devices work on it unchanged. It dereferences to a trait of
//! the caller's choice, through which the module is used.
//!
//! # Example
//!
//! ```
//! use burn::module::{Module, Param};
//! use burn::tensor::{Device, Tensor};
//! use gallerist_tensor::dynamic::AnyModule;
//!
//! trait Rows {
//!     fn forward(&self, x: Tensor<2>) -> Tensor<2>;
//! }
//!
//! #[derive(Module, Debug)]
//! struct Scale {
//!     factor: Param<Tensor<1>>,
//! }
//!
//! impl Rows for Scale {
//!     fn forward(&self, x: Tensor<2>) -> Tensor<2> {
//!         x * self.factor.val().unsqueeze()
//!     }
//! }
//!
//! let device = Device::flex();
//! let scale = Scale { factor: Param::from_data([2.0], &device) };
//! let any: AnyModule<dyn Rows> = AnyModule::new(scale, |scale| scale);
//! assert_eq!(any.num_params(), 1);
//! assert_eq!(any.forward(Tensor::ones([1, 1], &device)).into_scalar::<f32>(), 2.0);
//! assert!(any.downcast_ref::<Scale>().is_some());
//! ```

use std::any::{Any, type_name};
use std::fmt;
use std::ops::Deref;

use burn::module::{
    Content, Devices, Flag, Module, ModuleDisplay, ModuleDisplayDefault, ModuleMapper, ModuleVisitor, Param,
};
use burn::tensor::{Bool, Device, Int, Tensor};

/// Any module, used by the trait object `T`.
pub struct AnyModule<T: ?Sized + 'static>(Box<dyn Erased<T>>);

impl<T: ?Sized> AnyModule<T> {
    /// Puts a module in a box. `view` gives the module as the trait object; it is the closure `|module| module`.
    pub fn new<M: Module + Sync + 'static>(module: M, view: fn(&M) -> &T) -> Self {
        AnyModule(Box::new(Held { module, view }))
    }

    /// The module as a value of its own type; `None` if it is of another type.
    pub fn downcast_ref<M: 'static>(&self) -> Option<&M> {
        self.0.module().downcast_ref()
    }

    /// The module itself.
    ///
    /// # Errors
    ///
    /// The box as it was, if the module is of another type.
    pub fn downcast<M: 'static>(self) -> Result<M, Self> {
        match self.0.module().is::<M>() {
            true => Ok(*self.0.into_module().downcast().expect("the type is as it was looked up")),
            false => Err(self),
        }
    }
}

impl<T: ?Sized> Deref for AnyModule<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.view()
    }
}

impl<T: ?Sized> Clone for AnyModule<T> {
    fn clone(&self) -> Self {
        AnyModule(self.0.duplicate())
    }
}

impl<T: ?Sized> fmt::Debug for AnyModule<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.describe(f)
    }
}

impl<T: ?Sized> Module for AnyModule<T> {
    fn collect_devices(&self, devices: Devices) -> Devices {
        self.0.collect_devices(devices)
    }

    fn fork(self, device: &Device) -> Self {
        AnyModule(self.0.fork(device))
    }

    fn to_device(self, device: &Device) -> Self {
        AnyModule(self.0.to_device(device))
    }

    fn train(self) -> Self {
        AnyModule(self.0.train())
    }

    fn valid(&self) -> Self {
        AnyModule(self.0.valid())
    }

    fn materialize(self) -> Self {
        AnyModule(self.0.materialize())
    }

    fn visit<V: ModuleVisitor>(&self, visitor: &mut V) {
        self.0.visit(visitor);
    }

    fn map<M: ModuleMapper>(self, mapper: &mut M) -> Self {
        AnyModule(self.0.map(mapper))
    }
}

impl<T: ?Sized> ModuleDisplayDefault for AnyModule<T> {
    fn content(&self, content: Content) -> Option<Content> {
        content.set_top_level_type(self.0.type_name()).optional()
    }

    fn num_params(&self) -> usize {
        Module::num_params(self)
    }
}

impl<T: ?Sized> ModuleDisplay for AnyModule<T> {}

/// A module of type `M` and its conversion to a `T`.
struct Held<M, T: ?Sized> {
    module: M,
    view: fn(&M) -> &T,
}

/// [`Module`] without its generic methods.
trait Erased<T: ?Sized>: Send + Sync {
    fn view(&self) -> &T;
    fn module(&self) -> &dyn Any;
    fn into_module(self: Box<Self>) -> Box<dyn Any>;
    fn type_name(&self) -> &'static str;
    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
    fn duplicate(&self) -> Box<dyn Erased<T>>;
    fn collect_devices(&self, devices: Devices) -> Devices;
    fn fork(self: Box<Self>, device: &Device) -> Box<dyn Erased<T>>;
    fn to_device(self: Box<Self>, device: &Device) -> Box<dyn Erased<T>>;
    fn train(self: Box<Self>) -> Box<dyn Erased<T>>;
    fn valid(&self) -> Box<dyn Erased<T>>;
    fn materialize(self: Box<Self>) -> Box<dyn Erased<T>>;
    fn visit(&self, visitor: &mut dyn AnyVisitor);
    fn map(self: Box<Self>, mapper: &mut dyn AnyMapper) -> Box<dyn Erased<T>>;
}

impl<M, T: ?Sized + 'static> Held<M, T> {
    fn boxed(module: M, view: fn(&M) -> &T) -> Box<dyn Erased<T>>
    where
        M: Module + Sync + 'static,
    {
        Box::new(Held { module, view })
    }
}

impl<M: Module + Sync + 'static, T: ?Sized + 'static> Erased<T> for Held<M, T> {
    fn view(&self) -> &T {
        (self.view)(&self.module)
    }

    fn module(&self) -> &dyn Any {
        &self.module
    }

    fn into_module(self: Box<Self>) -> Box<dyn Any> {
        Box::new(self.module)
    }

    fn type_name(&self) -> &'static str {
        type_name::<M>()
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.module.fmt(f)
    }

    fn duplicate(&self) -> Box<dyn Erased<T>> {
        Held::boxed(self.module.clone(), self.view)
    }

    fn collect_devices(&self, devices: Devices) -> Devices {
        self.module.collect_devices(devices)
    }

    fn fork(self: Box<Self>, device: &Device) -> Box<dyn Erased<T>> {
        Held::boxed(self.module.fork(device), self.view)
    }

    fn to_device(self: Box<Self>, device: &Device) -> Box<dyn Erased<T>> {
        Held::boxed(self.module.to_device(device), self.view)
    }

    fn train(self: Box<Self>) -> Box<dyn Erased<T>> {
        Held::boxed(self.module.train(), self.view)
    }

    fn valid(&self) -> Box<dyn Erased<T>> {
        Held::boxed(self.module.valid(), self.view)
    }

    fn materialize(self: Box<Self>) -> Box<dyn Erased<T>> {
        Held::boxed(self.module.materialize(), self.view)
    }

    fn visit(&self, visitor: &mut dyn AnyVisitor) {
        self.module.visit(&mut Bridge(visitor));
    }

    fn map(self: Box<Self>, mapper: &mut dyn AnyMapper) -> Box<dyn Erased<T>> {
        Held::boxed(self.module.map(&mut Bridge(mapper)), self.view)
    }
}

/// [`ModuleVisitor`] without its generic methods: parameters as `Any`, with their rank.
trait AnyVisitor {
    fn float(&mut self, rank: usize, param: &dyn Any);
    fn int(&mut self, rank: usize, param: &dyn Any);
    fn bool(&mut self, rank: usize, param: &dyn Any);
    fn flag(&mut self, flag: &Param<Flag>);
    fn enter(&mut self, name: &str, container: &str);
    fn exit(&mut self, name: &str, container: &str);
}

/// [`ModuleMapper`] without its generic methods.
trait AnyMapper {
    fn float(&mut self, rank: usize, param: Box<dyn Any>) -> Box<dyn Any>;
    fn int(&mut self, rank: usize, param: Box<dyn Any>) -> Box<dyn Any>;
    fn bool(&mut self, rank: usize, param: Box<dyn Any>) -> Box<dyn Any>;
    fn flag(&mut self, flag: Param<Flag>) -> Param<Flag>;
    fn enter(&mut self, name: &str, container: &str);
    fn exit(&mut self, name: &str, container: &str);
}

/// From the generic methods to those of the trait object.
struct Bridge<'a, V: ?Sized>(&'a mut V);

const MATCHED: &str = "a parameter has the rank that it was given with";

/// Calls a generic method with the rank as a constant; an engine that has no tensors above rank 6 calls no other.
macro_rules! by_rank {
    ($rank:ident, |$d:ident| $call:expr) => {
        match $rank {
            1 => by_rank!(@1, $d, $call),
            2 => by_rank!(@2, $d, $call),
            3 => by_rank!(@3, $d, $call),
            4 => by_rank!(@4, $d, $call),
            5 => by_rank!(@5, $d, $call),
            6 => by_rank!(@6, $d, $call),
            7 => by_rank!(@7, $d, $call),
            8 => by_rank!(@8, $d, $call),
            _ => panic!("a parameter of rank {}; a boxed module has parameters of rank 1 to 8", $rank),
        }
    };
    (@$rank:literal, $d:ident, $call:expr) => {{
        const $d: usize = $rank;
        $call
    }};
}

impl<V: ModuleVisitor> AnyVisitor for V {
    fn float(&mut self, rank: usize, param: &dyn Any) {
        by_rank!(rank, |D| self.visit_float(param.downcast_ref::<Param<Tensor<D>>>().expect(MATCHED)))
    }

    fn int(&mut self, rank: usize, param: &dyn Any) {
        by_rank!(rank, |D| self.visit_int(param.downcast_ref::<Param<Tensor<D, Int>>>().expect(MATCHED)))
    }

    fn bool(&mut self, rank: usize, param: &dyn Any) {
        by_rank!(rank, |D| self.visit_bool(param.downcast_ref::<Param<Tensor<D, Bool>>>().expect(MATCHED)))
    }

    fn flag(&mut self, flag: &Param<Flag>) {
        self.visit_flag(flag);
    }

    fn enter(&mut self, name: &str, container: &str) {
        self.enter_module(name, container);
    }

    fn exit(&mut self, name: &str, container: &str) {
        self.exit_module(name, container);
    }
}

impl ModuleVisitor for Bridge<'_, dyn AnyVisitor + '_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.0.float(D, param);
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<D, Int>>) {
        self.0.int(D, param);
    }

    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<D, Bool>>) {
        self.0.bool(D, param);
    }

    fn visit_flag(&mut self, flag: &Param<Flag>) {
        self.0.flag(flag);
    }

    fn enter_module(&mut self, name: &str, container: &str) {
        self.0.enter(name, container);
    }

    fn exit_module(&mut self, name: &str, container: &str) {
        self.0.exit(name, container);
    }
}

impl<M: ModuleMapper> AnyMapper for M {
    fn float(&mut self, rank: usize, param: Box<dyn Any>) -> Box<dyn Any> {
        by_rank!(rank, |D| Box::new(self.map_float(*param.downcast::<Param<Tensor<D>>>().expect(MATCHED))))
    }

    fn int(&mut self, rank: usize, param: Box<dyn Any>) -> Box<dyn Any> {
        by_rank!(rank, |D| Box::new(self.map_int(*param.downcast::<Param<Tensor<D, Int>>>().expect(MATCHED))))
    }

    fn bool(&mut self, rank: usize, param: Box<dyn Any>) -> Box<dyn Any> {
        by_rank!(rank, |D| Box::new(
            self.map_bool(*param.downcast::<Param<Tensor<D, Bool>>>().expect(MATCHED))
        ))
    }

    fn flag(&mut self, flag: Param<Flag>) -> Param<Flag> {
        self.map_flag(flag)
    }

    fn enter(&mut self, name: &str, container: &str) {
        self.enter_module(name, container);
    }

    fn exit(&mut self, name: &str, container: &str) {
        self.exit_module(name, container);
    }
}

impl ModuleMapper for Bridge<'_, dyn AnyMapper + '_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        *self.0.float(D, Box::new(param)).downcast().expect(MATCHED)
    }

    fn map_int<const D: usize>(&mut self, param: Param<Tensor<D, Int>>) -> Param<Tensor<D, Int>> {
        *self.0.int(D, Box::new(param)).downcast().expect(MATCHED)
    }

    fn map_bool<const D: usize>(&mut self, param: Param<Tensor<D, Bool>>) -> Param<Tensor<D, Bool>> {
        *self.0.bool(D, Box::new(param)).downcast().expect(MATCHED)
    }

    fn map_flag(&mut self, flag: Param<Flag>) -> Param<Flag> {
        self.0.flag(flag)
    }

    fn enter_module(&mut self, name: &str, container: &str) {
        self.0.enter(name, container);
    }

    fn exit_module(&mut self, name: &str, container: &str) {
        self.0.exit(name, container);
    }
}

#[cfg(test)]
mod tests {
    use burn::optim::{GradientsAccumulator, GradientsParams};
    use burn::tensor::TensorData;

    use super::*;
    use crate::params;

    trait Rows {
        fn forward(&self, x: Tensor<2>) -> Tensor<1>;
    }

    /// A parameter of every kind, and a module inside.
    #[derive(Module, Debug)]
    struct Derived {
        weight: Param<Tensor<2>>,
        bias: Option<Param<Tensor<1>>>,
        inner: Vec<Inner>,
        steps: Param<Tensor<3, Int>>,
        mask: Param<Tensor<1, Bool>>,
        training: Param<Flag>,
    }

    #[derive(Module, Debug)]
    enum Inner {
        Scale(Param<Tensor<4>>),
    }

    /// A module with a box inside, as a list of losses has.
    #[derive(Module, Debug)]
    struct Outer {
        parts: Vec<AnyModule<dyn Rows>>,
    }

    impl Rows for Derived {
        fn forward(&self, x: Tensor<2>) -> Tensor<1> {
            let Inner::Scale(scale) = &self.inner[0];
            let y = x.matmul(self.weight.val()) + self.bias.as_ref().unwrap().val().unsqueeze();
            (y * scale.val().reshape([1, 2])).powi_scalar(2).sum()
        }
    }

    fn derived(device: &Device) -> Derived {
        Derived {
            weight: Param::from_data([[0.5, -1.0], [2.0, 0.25]], device),
            bias: Some(Param::from_data([0.125, 3.0], device)),
            inner: vec![Inner::Scale(Param::from_data([[[[1.5]]], [[[-0.5]]]], device))],
            steps: Param::initialized(burn::module::ParamId::new(), Tensor::from_data([[[7]]], device)),
            mask: Param::initialized(burn::module::ParamId::new(), Tensor::from_data([true, false], device)),
            training: Param::from_bool(true),
        }
    }

    fn boxed(module: Derived) -> AnyModule<dyn Rows> {
        AnyModule::new(module, |module| module)
    }

    fn autodiff() -> Device {
        Device::flex().autodiff()
    }

    fn x(device: &Device) -> Tensor<2> {
        Tensor::from_floats([[1.0, -2.0], [0.5, 4.0], [3.0, 0.0]], device)
    }

    /// Everything a visitor sees, as text.
    fn visited(module: &impl Module) -> Vec<String> {
        #[derive(Default)]
        struct Seen(Vec<String>);
        impl ModuleVisitor for Seen {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                self.0.push(format!("float {D} {:?} {:?}", param.id, param.val().dims()));
            }
            fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<D, Int>>) {
                self.0.push(format!("int {D} {:?} {:?}", param.id, param.val().dims()));
            }
            fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<D, Bool>>) {
                self.0.push(format!("bool {D} {:?} {:?}", param.id, param.val().dims()));
            }
            fn visit_flag(&mut self, flag: &Param<Flag>) {
                self.0.push(format!("flag {:?} {}", flag.id, flag.is_enabled()));
            }
            fn enter_module(&mut self, name: &str, container: &str) {
                self.0.push(format!("enter {name} {container}"));
            }
            fn exit_module(&mut self, name: &str, container: &str) {
                self.0.push(format!("exit {name} {container}"));
            }
        }
        let mut seen = Seen::default();
        module.visit(&mut seen);
        seen.0
    }

    #[test]
    fn a_boxed_module_shows_a_visitor_what_the_module_itself_shows() {
        let module = derived(&autodiff());
        let any = boxed(module.clone());
        assert_eq!(visited(&any), visited(&module));
        assert_eq!(params::collect(&any), params::collect(&module));
        let names: Vec<String> = params::collect(&any).into_keys().collect();
        assert_eq!(names, ["bias", "inner.0", "weight"]);
        assert_eq!(Module::num_params(&any), Module::num_params(&module));
        assert_eq!(any.devices(), module.devices());
        assert_eq!(format!("{any:?}"), format!("{module:?}"));
        assert_eq!(visited(&any.clone()), visited(&module));
    }

    #[test]
    fn gradients_reach_a_boxed_module_under_the_same_parameters() {
        let device = autodiff();
        let module = derived(&device);
        let any = boxed(module.clone());
        let gradients = |of: Tensor<1>, module: &Derived| {
            let gradients = GradientsParams::from_grads(of.backward(), module);
            gradients.get::<2>(module.weight.id).unwrap().into_data()
        };
        let expected = gradients(module.forward(x(&device)), &module);
        assert_eq!(gradients(any.forward(x(&device)), &module), expected);
        let of_any = GradientsParams::from_grads(any.forward(x(&device)).backward(), &any);
        assert_eq!(of_any.len(), 3);
        let mut accumulator = GradientsAccumulator::new();
        accumulator.accumulate(&any, of_any);
        let accumulated = accumulator.grads();
        assert_eq!(accumulated.get::<2>(module.weight.id).unwrap().into_data(), expected);
    }

    #[test]
    fn mapping_loading_and_moving_keep_the_box() {
        struct Double;
        impl ModuleMapper for Double {
            fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
                param.map(|value| Tensor::from_inner(value.inner() * 2.0).require_grad())
            }
            fn map_int<const D: usize>(&mut self, param: Param<Tensor<D, Int>>) -> Param<Tensor<D, Int>> {
                param.map(|value| value + 1)
            }
            fn map_bool<const D: usize>(&mut self, param: Param<Tensor<D, Bool>>) -> Param<Tensor<D, Bool>> {
                param.map(|value| value.bool_not())
            }
            fn map_flag(&mut self, flag: Param<Flag>) -> Param<Flag> {
                flag.with_value(false)
            }
        }
        let device = autodiff();
        let module = derived(&device);
        let any = boxed(module.clone()).map(&mut Double);
        let plain = module.clone().map(&mut Double);
        assert_eq!(params::collect(&any), params::collect(&plain));
        assert_eq!(visited(&any), visited(&plain));
        let inside = any.downcast_ref::<Derived>().unwrap();
        assert_eq!(inside.steps.val().into_scalar::<i64>(), 8);
        assert_eq!(inside.mask.val().into_data(), TensorData::from([false, true]));

        let (loaded, mismatch) = params::load(any, params::collect(&module));
        assert!(mismatch.is_empty());
        assert_eq!(params::collect(&loaded), params::collect(&module));
        assert!(!loaded.valid().forward(x(&Device::flex())).is_autodiff());
        assert!(loaded.valid().train().forward(x(&device)).is_autodiff());
        let moved = loaded.valid().to_device(&Device::flex()).fork(&Device::flex()).materialize();
        assert_eq!(params::collect(&moved), params::collect(&module));
        let back = moved.downcast::<Derived>().unwrap();
        assert_eq!(back.weight.id, module.weight.id);
    }

    #[test]
    fn a_box_in_a_list_has_the_name_of_its_place() {
        let outer = Outer { parts: vec![boxed(derived(&autodiff()))] };
        let names: Vec<String> = params::collect(&outer).into_keys().collect();
        assert_eq!(names, ["parts.0.bias", "parts.0.inner.0", "parts.0.weight"]);
        assert!(outer.to_string().contains("Derived"), "{outer}");
        assert!(outer.parts[0].downcast_ref::<Outer>().is_none());
        assert!(outer.parts[0].clone().downcast::<Outer>().is_err());
    }
}
