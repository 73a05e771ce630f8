//! Optimisers and learning-rate schedules.
//!
//! The arithmetic of SGD and AdamW is that of `gallerist_kernels`. What is added here: state kept by the
//! parameter's name, so that a checkpoint can hold it and a resumed run takes the same step to the
//! last bit; learning-rate factors by parameter group; weight decay that can leave batch norm out;
//! gradient clipping by the global norm.

use std::collections::BTreeMap;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor, TensorData};
use gallerist_kernels::{AdamW, Sgd, square_sum};
use serde::{Deserialize, Serialize};

use crate::Result;
use gallerist_nn::Network;
use gallerist_tensor::pairwise::host;
use gallerist_tensor::params::Path;

/// `[optimizer]` of a run file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OptimizerConfig {
    /// Which optimiser.
    pub kind: OptimizerKind,
    /// Learning rate at its highest; the schedule scales it.
    pub learning_rate: f64,
    /// Factor on the learning rate of the embedding head (10 in the papers that fine-tune a
    /// pretrained network).
    pub head_factor: f64,
    /// Factor on the learning rate of parameters the loss learns (proxies, boundaries).
    pub loss_factor: f64,
    /// Factor on the learning rate from each block of a network to the one before it (Clark et al. 2020; BEiT): the
    /// layers after the last block have the whole rate. 1: the same rate everywhere.
    pub layer_decay: f64,
    /// L2 penalty in SGD, decoupled decay in AdamW.
    pub weight_decay: f64,
    /// Whether scales and shifts of norms, all biases, and learned tokens and positions decay too.
    pub decay_norm_and_bias: bool,
    /// SGD's momentum, without dampening (as PyTorch counts it).
    pub momentum: f64,
    /// SGD's momentum in Nesterov's form.
    pub nesterov: bool,
    /// AdamW's decay rates of the two moments.
    pub betas: [f64; 2],
    /// AdamW's constant in the denominator.
    pub epsilon: f64,
    /// Largest norm of the network's gradient; absent: no clipping. Gradients of parameters the loss learns are not clipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip_norm: Option<f64>,
}

/// The optimisers there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OptimizerKind {
    /// Stochastic gradient descent with momentum.
    #[default]
    Sgd,
    /// Adam with decoupled weight decay (Loshchilov & Hutter 2019).
    AdamW,
}

impl Default for OptimizerConfig {
    fn default() -> Self {
        OptimizerConfig {
            kind: OptimizerKind::Sgd,
            learning_rate: 0.1,
            head_factor: 1.0,
            loss_factor: 1.0,
            layer_decay: 1.0,
            weight_decay: 0.0,
            decay_norm_and_bias: true,
            momentum: 0.9,
            nesterov: false,
            betas: [0.9, 0.999],
            epsilon: 1e-8,
            clip_norm: None,
        }
    }
}

impl OptimizerConfig {
    /// Checks the ranges.
    ///
    /// # Errors
    ///
    /// [`Error::Value`](gallerist_tensor::Error::Value) where a number is not finite or out of its range.
    pub fn validate(&self) -> Result<()> {
        let check = |key: &str, value: f64, fits: bool, wanted: &str| {
            gallerist_tensor::Error::require(format!("optimizer.{key}"), value, fits, wanted)
        };
        check("learning_rate", self.learning_rate, self.learning_rate >= 0.0, "0 or more")?;
        check("head_factor", self.head_factor, self.head_factor >= 0.0, "0 or more")?;
        check("loss_factor", self.loss_factor, self.loss_factor >= 0.0, "0 or more")?;
        let decays = self.layer_decay > 0.0 && self.layer_decay <= 1.0;
        check("layer_decay", self.layer_decay, decays, "above 0 and at most 1")?;
        check("weight_decay", self.weight_decay, self.weight_decay >= 0.0, "0 or more")?;
        check("momentum", self.momentum, (0.0..1.0).contains(&self.momentum), "from 0 to below 1")?;
        for beta in self.betas {
            check("betas", beta, (0.0..1.0).contains(&beta), "two numbers from 0 to below 1")?;
        }
        check("epsilon", self.epsilon, self.epsilon > 0.0, "above 0")?;
        let clip = self.clip_norm.unwrap_or(1.0);
        check("clip_norm", clip, clip > 0.0, "above 0")?;
        Ok(())
    }
}

/// `[schedule]` of a run file: the factor on the learning rate over the steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScheduleConfig {
    /// The curve after the warm-up.
    pub kind: ScheduleKind,
    /// Steps over which the learning rate rises linearly to its highest.
    pub warmup_steps: usize,
    /// Factor at the last step of `cosine`.
    pub end_factor: f64,
    /// `step`: every so many steps the rate is multiplied by `gamma`.
    pub step_size: usize,
    /// `multi_step`: at these steps the rate is multiplied by `gamma`.
    pub milestones: Vec<usize>,
    /// Factor of `step` and `multi_step`.
    pub gamma: f64,
}

/// The schedules there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleKind {
    /// The learning rate stays.
    Constant,
    /// Half a cosine from 1 to `end_factor` (Loshchilov & Hutter 2017).
    #[default]
    Cosine,
    /// Times `gamma` every `step_size` steps.
    Step,
    /// Times `gamma` at each of `milestones`.
    MultiStep,
}

impl Default for ScheduleConfig {
    fn default() -> Self {
        ScheduleConfig {
            kind: ScheduleKind::Cosine,
            warmup_steps: 0,
            end_factor: 0.0,
            step_size: 1000,
            milestones: Vec::new(),
            gamma: 0.1,
        }
    }
}

impl ScheduleConfig {
    /// Factor on the learning rate at `step` (from 0) of `steps`.
    ///
    /// ```
    /// use gallerist_train::optim::ScheduleConfig;
    /// let schedule = ScheduleConfig { warmup_steps: 4, ..Default::default() };
    /// assert_eq!(schedule.factor(0, 100), 0.25);
    /// assert_eq!(schedule.factor(4, 100), 1.0);
    /// assert!(schedule.factor(99, 100) < 0.001);
    /// ```
    pub fn factor(&self, step: usize, steps: usize) -> f64 {
        if step < self.warmup_steps {
            return (step + 1) as f64 / self.warmup_steps as f64;
        }
        match self.kind {
            ScheduleKind::Constant => 1.0,
            ScheduleKind::Cosine => {
                let whole = steps.saturating_sub(self.warmup_steps).max(1) as f64;
                let done = ((step - self.warmup_steps) as f64 / whole).min(1.0);
                self.end_factor + (1.0 - self.end_factor) * 0.5 * (1.0 + (std::f64::consts::PI * done).cos())
            }
            ScheduleKind::Step => self.gamma.powi((step / self.step_size.max(1)) as i32),
            ScheduleKind::MultiStep => {
                self.gamma.powi(self.milestones.iter().filter(|&&milestone| step >= milestone).count() as i32)
            }
        }
    }

    /// Checks the ranges.
    ///
    /// # Errors
    ///
    /// [`Error::Value`](gallerist_tensor::Error::Value) for a factor or step size out of its range.
    pub fn validate(&self) -> Result<()> {
        let error = |key: &str, wanted: &str, found: String| {
            Err(gallerist_tensor::Error::Value {
                key: format!("schedule.{key}"),
                wanted: wanted.into(),
                found,
            }
            .into())
        };
        if !(0.0..=1.0).contains(&self.end_factor) {
            return error("end_factor", "from 0 to 1", self.end_factor.to_string());
        }
        if !(self.gamma > 0.0 && self.gamma <= 1.0) {
            return error("gamma", "above 0 and at most 1", self.gamma.to_string());
        }
        if self.step_size == 0 {
            return error("step_size", "1 or more", "0".into());
        }
        Ok(())
    }
}

/// Which group a parameter belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Parameters of the network.
    Network,
    /// Parameters of the loss.
    Loss,
}

/// The prefix of the state of a loss's parameters.
const LOSS: &str = "loss.";

/// An optimiser with its state, kept by parameter name.
#[derive(Clone)]
pub struct Optimizer {
    config: OptimizerConfig,
    /// Blocks of the network, for the decay of the learning rate with the depth.
    blocks: usize,
    states: BTreeMap<String, State>,
}

/// The state of a parameter.
#[derive(Clone)]
struct State {
    kept: Kept,
    /// The parameter's.
    shape: Vec<usize>,
}

/// Every tensor is the parameter's, as one row.
#[allow(clippy::large_enum_variant, reason = "one per parameter; their tensors are far larger")]
#[derive(Clone)]
enum Kept {
    /// SGD's velocity.
    Velocity(Tensor<1>),
    /// AdamW's two moments, and the number of steps.
    Moments([Tensor<1>; 2], u32),
}

/// Names of the tensors of a state: suffixes to the name of the parameter in a checkpoint.
const VELOCITY: &str = "momentum.velocity";
const MOMENTS: [&str; 2] = ["momentum.moment_1", "momentum.moment_2"];
const TIME: &str = "momentum.time";

impl std::fmt::Debug for Optimizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Optimizer").field("config", &self.config).field("states", &self.states.len()).finish()
    }
}

/// The optimiser's state as a checkpoint holds it.
#[derive(Debug, Default)]
pub struct OptimizerState {
    /// Tensors by name (`blocks.0.conv.weight.momentum.velocity`).
    pub tensors: BTreeMap<String, TensorData>,
    /// Counters by name (`blocks.0.conv.weight.momentum.time`).
    pub counters: BTreeMap<String, i64>,
    /// Rank of each parameter that has a state.
    pub ranks: BTreeMap<String, usize>,
}

impl Optimizer {
    /// An optimiser without state.
    pub fn new(config: &OptimizerConfig) -> Self {
        Optimizer { config: config.clone(), blocks: 0, states: BTreeMap::new() }
    }

    /// With the number of blocks of the network, which [`OptimizerConfig::layer_decay`] needs.
    pub fn with_blocks(self, blocks: usize) -> Self {
        Optimizer { blocks, ..self }
    }

    /// One step: returns `module` with updated parameters.
    ///
    /// `rate` is the schedule's factor times the learning rate. A parameter without gradient is unchanged.
    pub fn step<M: Module>(&mut self, rate: f64, part: Part, module: M, gradients: GradientsParams) -> M {
        let mut mapper = Step { optimizer: self, path: Path::default(), part, rate, gradients };
        module.map(&mut mapper)
    }

    /// Drops the state of the network's parameters: velocities and moments of gradients of another size are of no use.
    pub fn forget_network(&mut self) {
        self.states.retain(|name, _| name.starts_with(LOSS));
    }

    fn factor(&self, part: Part, name: &str) -> f64 {
        match part {
            Part::Loss => self.config.loss_factor,
            Part::Network if Network::is_head(name) => self.config.head_factor,
            Part::Network if self.config.layer_decay == 1.0 => 1.0,
            Part::Network => {
                let above = self.blocks + 1 - Network::depth_group(name, self.blocks).min(self.blocks + 1);
                self.config.layer_decay.powi(above as i32)
            }
        }
    }

    /// The state for a checkpoint.
    pub fn state(&self) -> OptimizerState {
        let mut out = OptimizerState::default();
        for (name, State { kept, shape }) in &self.states {
            let mut add = |suffix: &str, tensor: &Tensor<1>| {
                out.tensors.insert(format!("{name}.{suffix}"), of_shape(tensor.to_data(), shape));
            };
            match kept {
                Kept::Velocity(velocity) => add(VELOCITY, velocity),
                Kept::Moments(moments, time) => {
                    MOMENTS.iter().zip(moments).for_each(|(suffix, moment)| add(suffix, moment));
                    out.counters.insert(format!("{name}.{TIME}"), i64::from(*time));
                }
            }
            out.ranks.insert(name.clone(), shape.len());
        }
        out
    }

    /// Takes the state of a checkpoint; the parameters of the two parts may live on different devices.
    ///
    /// # Errors
    ///
    /// The name of the first parameter whose state is incomplete.
    pub fn restore(
        &mut self,
        mut state: OptimizerState,
        network: &Device,
        loss: &Device,
    ) -> std::result::Result<(), String> {
        self.states.clear();
        if self.config.kind == OptimizerKind::Sgd && self.config.momentum == 0.0 {
            return Ok(());
        }
        for name in std::mem::take(&mut state.ranks).into_keys() {
            let device = if name.starts_with(LOSS) { loss } else { network };
            let restored = self.restored(&name, &mut state, device);
            self.states.insert(name.clone(), restored.ok_or(name)?);
        }
        Ok(())
    }

    /// The first parameter of `module` whose restored state has another shape. [`step`](Self::step) panics on it.
    pub fn unfit<M: Module>(&self, part: Part, module: &M) -> Option<String> {
        let mut visitor = Unfit { optimizer: self, path: Path::default(), part, found: None };
        module.visit(&mut visitor);
        visitor.found
    }

    fn restored(&self, name: &str, state: &mut OptimizerState, device: &Device) -> Option<State> {
        let mut shape = Vec::new();
        let mut take = |suffix: &str| {
            let data = state.tensors.remove(&format!("{name}.{suffix}"))?;
            shape = data.shape().to_vec();
            let row = [data.num_elements()];
            Some(Tensor::<1>::from_data(of_shape(data, &row), &device.clone().inner()))
        };
        let kept = match self.config.kind {
            OptimizerKind::Sgd => Kept::Velocity(take(VELOCITY)?),
            OptimizerKind::AdamW => {
                let moments = [take(MOMENTS[0])?, take(MOMENTS[1])?];
                if moments[0].dims() != moments[1].dims() {
                    return None;
                }
                let time = state.counters.remove(&format!("{name}.{TIME}"))?;
                Kept::Moments(moments, u32::try_from(time).ok()?)
            }
        };
        Some(State { kept, shape })
    }
}

/// The states of a parameter among the tensors of a checkpoint's optimiser.
pub(super) fn states_of<'a>(
    tensors: &'a mut BTreeMap<String, TensorData>,
    part: Part,
    name: &str,
) -> impl Iterator<Item = &'a mut TensorData> {
    let prefix = part.key(format!("{name}."));
    tensors.iter_mut().filter(move |(key, _)| key.starts_with(&prefix)).map(|(_, tensor)| tensor)
}

/// The same values in another shape.
fn of_shape(data: TensorData, shape: &[usize]) -> TensorData {
    let dtype = data.dtype();
    TensorData::from_bytes(data.into_bytes(), shape.to_vec(), dtype)
}

impl Part {
    /// The name under which the state of a parameter is kept.
    fn key(self, name: String) -> String {
        match self {
            Part::Network => name,
            Part::Loss => format!("{LOSS}{name}"),
        }
    }
}

struct Unfit<'a> {
    optimizer: &'a Optimizer,
    path: Path,
    part: Part,
    found: Option<String>,
}

impl ModuleVisitor for Unfit<'_> {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let key = self.part.key(self.path.name());
        let fits = self.optimizer.states.get(&key).is_none_or(|state| state.shape == param.val().dims());
        if !fits && self.found.is_none() {
            self.found = Some(key);
        }
    }
}

struct Step<'a> {
    optimizer: &'a mut Optimizer,
    path: Path,
    part: Part,
    rate: f64,
    gradients: GradientsParams,
}

impl ModuleMapper for Step<'_> {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.exit();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(gradient) = self.gradients.remove::<D>(param.id) else {
            return param;
        };
        let name = self.path.name();
        let optimizer = &mut *self.optimizer;
        let rate = self.rate * optimizer.factor(self.part, &name);
        let token = self.part == Part::Network && Network::is_token(&name);
        let key = self.part.key(name);
        let decays = optimizer.config.decay_norm_and_bias || (D > 1 && !token);
        let weight_decay = if decays { optimizer.config.weight_decay } else { 0.0 };
        let old = optimizer.states.remove(&key);
        let mut new = None;
        let param = param.map(|value| {
            let shape = value.dims();
            let row = |x: Tensor<D>| x.reshape([shape.iter().product::<usize>()]);
            let (value, kept) = optimizer.config.step(
                rate,
                weight_decay,
                row(value.inner()),
                row(gradient),
                old.map(|old| old.kept),
            );
            new = kept.map(|kept| State { kept, shape: shape.to_vec() });
            Tensor::from_inner(value.reshape(shape)).require_grad()
        });
        if let Some(state) = new {
            optimizer.states.insert(key, state);
        }
        param
    }
}

impl OptimizerConfig {
    /// The values and the state of a parameter after a step.
    fn step(
        &self,
        rate: f64,
        weight_decay: f64,
        value: Tensor<1>,
        gradient: Tensor<1>,
        kept: Option<Kept>,
    ) -> (Tensor<1>, Option<Kept>) {
        match self.kind {
            OptimizerKind::Sgd => {
                let rule = Sgd { rate, momentum: self.momentum, nesterov: self.nesterov, weight_decay };
                let velocity = match kept {
                    Some(Kept::Velocity(velocity)) => Some(velocity),
                    _ => None,
                };
                let (value, velocity) = rule.step(value, gradient, velocity);
                (value, velocity.map(Kept::Velocity))
            }
            OptimizerKind::AdamW => {
                let rule = AdamW { rate, betas: self.betas, epsilon: self.epsilon, weight_decay };
                let (moments, time) = match kept {
                    Some(Kept::Moments(moments, time)) => (Some(moments), time + 1),
                    _ => (None, 1),
                };
                let (value, moments) = rule.step(value, gradient, moments, time);
                (value, Some(Kept::Moments(moments, time)))
            }
        }
    }
}

/// Multiplies all gradients of a module.
pub fn multiply<M: Module>(gradients: &mut GradientsParams, module: &M, factor: f64) {
    module.visit(&mut Norm { gradients, squares: Vec::new(), scale: Some(factor) });
}

/// Global norm of all gradients of a module, and the gradients scaled down where it exceeds `limit`.
///
/// Returns the norm before clipping. Gradients whose norm is not finite are unchanged.
pub fn clip_by_global_norm<M: Module>(
    gradients: &mut GradientsParams,
    module: &M,
    limit: Option<f64>,
) -> f64 {
    let mut visitor = Norm { gradients, squares: Vec::new(), scale: None };
    module.visit(&mut visitor);
    let squares = std::mem::take(&mut visitor.squares);
    let norm = match squares.is_empty() {
        true => 0.0,
        false => host(&Tensor::cat(squares, 0)).iter().sum::<f64>().sqrt(),
    };
    if let Some(limit) = limit
        && norm > limit
        && norm.is_finite()
    {
        visitor.scale = Some(limit / norm);
        module.visit(&mut visitor);
    }
    norm
}

struct Norm<'a> {
    gradients: &'a mut GradientsParams,
    /// Read together at the end, so that the program waits for a GPU once.
    squares: Vec<Tensor<1>>,
    scale: Option<f64>,
}

impl ModuleVisitor for Norm<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        match self.scale {
            None => {
                if let Some(gradient) = self.gradients.get::<D>(param.id) {
                    self.squares.push(square_sum(gradient));
                }
            }
            Some(scale) => {
                if let Some(gradient) = self.gradients.remove::<D>(param.id) {
                    self.gradients.register(param.id, gradient.mul_scalar(scale));
                }
            }
        }
    }
}
