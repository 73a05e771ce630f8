//! The builder of networks.

use std::ops::Range;
use std::sync::Arc;

use burn::module::Module;
use gallerist_tensor::{Error, Result};

use super::network::{Fixed, FixedKind, Network, Op, Shape, Step};
use crate::extractor::Extractor;
use crate::layers::{Activation, BatchNorm, Conv, Gate, Gem, Init, Linear, Pool};
use crate::limits::{MAX_PARAMETERS, numbers_in_words};
use crate::setting::{FreezeBatchNorm, InputShape, Setting, value};

/// The result of a step in a description.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node(usize);

/// The zeros around the maps of a convolution.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Padding {
    /// So many rows and columns on every side.
    Each(usize),
    /// As many as `ceil(side / stride)` windows need, an odd one after the last row or column (`SAME` in TensorFlow).
    Same,
}

impl Padding {
    /// Zeros before and after the `side` rows or columns, for windows of `size` and `stride`.
    fn of_side(self, side: usize, size: usize, stride: usize) -> (usize, usize) {
        match self {
            Padding::Each(zeros) => (zeros, zeros),
            Padding::Same => {
                let zeros = ((side.div_ceil(stride) - 1) * stride + size).saturating_sub(side);
                (zeros / 2, zeros.div_ceil(2))
            }
        }
    }
}

/// Sizes of a convolution.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel {
    pub(crate) size: usize,
    pub(crate) stride: usize,
    pub(crate) padding: Padding,
    pub(crate) groups: usize,
    pub(crate) bias: bool,
}

impl Kernel {
    /// Stride 1, padded to keep the size, without bias.
    pub(crate) fn new(size: usize) -> Self {
        Kernel { size, stride: 1, padding: Padding::Each(size / 2), groups: 1, bias: false }
    }

    pub(crate) fn stride(self, stride: usize) -> Self {
        Kernel { stride, ..self }
    }

    pub(crate) fn padding(self, padding: Padding) -> Self {
        Kernel { padding, ..self }
    }

    pub(crate) fn groups(self, groups: usize) -> Self {
        Kernel { groups, ..self }
    }

    pub(crate) fn with_bias(self) -> Self {
        Kernel { bias: true, ..self }
    }
}

/// Builds a network, layer by layer.
pub(crate) struct Builder<'a> {
    init: Init<'a>,
    steps: Vec<Step>,
    shapes: Vec<Shape>,
    /// Share of the new batch in the running statistics of batch norm.
    momentum: f64,
    /// Epsilon of batch norm.
    epsilon: f64,
    freeze: FreezeBatchNorm,
    /// Whether the layers that follow are not trained.
    frozen: bool,
    /// Tokens before those of the patches.
    prefix: usize,
    /// The reason why the size of the images does not fit.
    misfit: Option<String>,
    /// Parameters so far. Above the limit no memory is allocated for further ones, and `finish` returns an error.
    parameters: u128,
    /// The layer that exceeded the limit, and the number of its parameters.
    too_large: Option<(String, u128)>,
}

impl<'a> Builder<'a> {
    pub(crate) fn new(init: Init<'a>, input: InputShape) -> (Self, Node) {
        let mut builder = Builder {
            init,
            steps: Vec::new(),
            shapes: Vec::new(),
            momentum: 0.1,
            epsilon: 1e-5,
            freeze: FreezeBatchNorm::None,
            frozen: false,
            prefix: 0,
            misfit: None,
            parameters: 0,
            too_large: None,
        };
        let shape = Shape::Maps([input.channels, input.height, input.width]);
        let images = builder.fixed("images", FixedKind::Input, &[], shape);
        (builder, images)
    }

    /// Sets the parameters of the batch norms that follow.
    pub(crate) fn batch_norm(&mut self, momentum: f64, epsilon: f64, freeze: FreezeBatchNorm) {
        (self.momentum, self.epsilon, self.freeze) = (momentum, epsilon, freeze);
    }

    /// Whether the layers that follow keep their weights in training.
    pub(crate) fn freeze(&mut self, frozen: bool) {
        self.frozen = frozen;
    }

    pub(super) fn init(&self) -> &Init<'a> {
        &self.init
    }

    pub(super) fn set_prefix(&mut self, prefix: usize) {
        self.prefix = prefix;
    }

    pub(super) fn prefix(&self) -> usize {
        self.prefix
    }

    /// Shape of a result.
    pub(super) fn shape(&self, x: Node) -> Shape {
        self.shapes[x.0]
    }

    /// Whether a layer with so many parameters is within the limit.
    pub(super) fn admits(&mut self, name: &str, parameters: &[usize]) -> bool {
        let own = parameters.iter().fold(1u128, |product, &side| product.saturating_mul(side as u128));
        self.parameters = self.parameters.saturating_add(own);
        let admitted = self.parameters <= MAX_PARAMETERS as u128;
        if !admitted {
            self.too_large.get_or_insert_with(|| (name.into(), own));
        }
        admitted
    }

    pub(super) fn push(&mut self, name: &str, op: Op, inputs: &[Node], shape: Shape) -> Node {
        let op = if self.frozen { op.no_grad() } else { op };
        self.steps.push(Step { name: name.into(), op, inputs: inputs.iter().map(|node| node.0).collect() });
        self.shapes.push(shape);
        Node(self.steps.len() - 1)
    }

    pub(super) fn fixed(&mut self, name: &str, kind: FixedKind, inputs: &[Node], shape: Shape) -> Node {
        self.push(name, Op::Fixed(Fixed { kind }), inputs, shape)
    }

    pub(super) fn maps(&self, x: Node) -> [usize; 3] {
        match self.shapes[x.0] {
            Shape::Maps(shape) => shape,
            other => panic!("feature maps are wanted, {other:?} is found"),
        }
    }

    fn row(&self, x: Node) -> usize {
        match self.shapes[x.0] {
            Shape::Row(length) => length,
            other => panic!("rows are wanted, {other:?} is found"),
        }
    }

    /// Channels of feature maps.
    pub(crate) fn channels(&self, x: Node) -> usize {
        self.maps(x)[0]
    }

    /// Height and width of feature maps.
    pub(crate) fn area(&self, x: Node) -> [usize; 2] {
        let [_, height, width] = self.maps(x);
        [height, width]
    }

    /// One side after windows of `size` and `stride`, with zeros before and after it; 1 and a note where no window fits.
    fn side(
        &mut self,
        name: &str,
        side: usize,
        [size, stride]: [usize; 2],
        (before, after): (usize, usize),
        ceil: bool,
    ) -> usize {
        let Some(room) = (side + before + after).checked_sub(size) else {
            self.misfit.get_or_insert_with(|| {
                format!("large enough: {side} pixels are left before the {size} of {name}")
            });
            return 1;
        };
        match ceil {
            false => room / stride + 1,
            // A window that would start in the padding after the map is omitted.
            true => {
                let count = room.div_ceil(stride) + 1;
                count - usize::from((count - 1) * stride >= side + before)
            }
        }
    }

    /// Convolution to `out` channels.
    pub(crate) fn conv(&mut self, name: &str, x: Node, out: usize, kernel: Kernel) -> Node {
        let [channels, height, width] = self.maps(x);
        let Kernel { size, stride, .. } = kernel;
        let padding = [height, width].map(|side| kernel.padding.of_side(side, size, stride));
        let sides = [(height, padding[0]), (width, padding[1])]
            .map(|(side, padding)| self.side(name, side, [size, stride], padding, false));
        // After an error the description continues with a layer of one channel.
        let (sides_of, groups) = match self.admits(name, &[channels / kernel.groups.max(1), out, size, size])
        {
            true => ([channels, out], kernel.groups),
            false => ([1, 1], 1),
        };
        let conv =
            Conv::new(&self.init, name, sides_of, size, groups).with_stride(stride).with_padding(padding);
        let conv = if kernel.bias { conv.with_bias(&self.init) } else { conv };
        self.push(name, Op::Conv(conv), &[x], Shape::Maps([out, sides[0], sides[1]]))
    }

    /// Batch norm, then an activation.
    pub(crate) fn norm(&mut self, name: &str, x: Node, then: Activation) -> Node {
        let shape = self.shapes[x.0];
        let channels = match shape {
            Shape::Maps([channels, ..]) => channels,
            Shape::Row(length) => length,
            Shape::Tokens(_) => panic!("batch norm is of feature maps or rows, tokens are found"),
        };
        // New layers have no statistics yet that could be kept.
        let freeze = if Network::may_be_new(name) { FreezeBatchNorm::None } else { self.freeze };
        let made = if self.admits(name, &[4, channels]) { channels } else { 1 };
        let norm = BatchNorm::new(&self.init, made, self.momentum)
            .with_epsilon(self.epsilon)
            .with_activation(then)
            .frozen(freeze);
        self.push(name, Op::Norm(norm), &[x], shape)
    }

    /// A convolution, batch norm and an activation; the names are those of the first two.
    pub(crate) fn conv_norm(
        &mut self,
        [conv, norm]: [impl AsRef<str>; 2],
        x: Node,
        out: usize,
        kernel: Kernel,
        then: Activation,
    ) -> Node {
        let y = self.conv(conv.as_ref(), x, out, kernel);
        self.norm(norm.as_ref(), y, then)
    }

    /// An activation on its own.
    pub(crate) fn activation(&mut self, x: Node, kind: Activation) -> Node {
        self.fixed("", FixedKind::Activation(kind), &[x], self.shapes[x.0])
    }

    /// Mean over all positions, as maps of one position.
    pub(crate) fn squeeze(&mut self, x: Node) -> Node {
        let shape = Shape::Maps([self.channels(x), 1, 1]);
        self.fixed("", FixedKind::Squeeze, &[x], shape)
    }

    /// `x gate(by)` with maps `by` of one position.
    pub(crate) fn excite(&mut self, x: Node, by: Node, gate: Gate) -> Node {
        let [channels, ..] = self.maps(x);
        assert_eq!(self.maps(by), [channels, 1, 1], "values of the gates");
        self.fixed("", FixedKind::Excite(gate), &[x, by], self.shapes[x.0])
    }

    fn windows(&mut self, name: &str, x: Node, pool: Pool) -> Shape {
        let [channels, height, width] = self.maps(x);
        let Pool { size, stride, padding, ceil } = pool;
        let sides =
            [height, width].map(|side| self.side(name, side, [size, stride], (padding, padding), ceil));
        Shape::Maps([channels, sides[0], sides[1]])
    }

    /// Maximum over windows. Directly after batch norm with ReLU, 2 x 2 windows become part of its pass.
    pub(crate) fn max_pool(&mut self, x: Node, pool: Pool) -> Node {
        let shape = self.windows("a max pool", x, pool);
        let last = x.0 + 1 == self.steps.len();
        if let Op::Norm(norm) = &mut self.steps[x.0].op
            && last
            && pool == Pool::new(2, 2)
            && norm.fuse_max_pool2()
        {
            self.shapes[x.0] = shape;
            return x;
        }
        self.fixed("", FixedKind::MaxPool(pool), &[x], shape)
    }

    /// Mean over windows, zeros of the padding included.
    pub(crate) fn average_pool(&mut self, x: Node, pool: Pool) -> Node {
        let shape = self.windows("an average pool", x, pool);
        self.fixed("", FixedKind::AveragePool(pool), &[x], shape)
    }

    /// Mean over all positions.
    pub(crate) fn global_average(&mut self, x: Node) -> Node {
        self.fixed("", FixedKind::GlobalAverage, &[x], Shape::Row(self.channels(x)))
    }

    /// Maximum over all positions.
    pub(crate) fn global_max(&mut self, x: Node) -> Node {
        self.fixed("", FixedKind::GlobalMax, &[x], Shape::Row(self.channels(x)))
    }

    /// Generalised mean over all positions.
    pub(crate) fn gem(&mut self, name: &str, x: Node) -> Node {
        let gem = Gem::new(&self.init);
        self.push(name, Op::Gem(gem), &[x], Shape::Row(self.channels(x)))
    }

    /// Sum of two results of the same shape.
    pub(crate) fn add(&mut self, x: Node, y: Node) -> Node {
        let shapes = [self.shapes[x.0], self.shapes[y.0]];
        assert_eq!(shapes[0], shapes[1], "shapes of the two terms of a sum");
        self.fixed("", FixedKind::Add, &[x, y], shapes[0])
    }

    /// Feature maps one after the other along the channels.
    pub(crate) fn concat(&mut self, parts: &[Node]) -> Node {
        let shapes: Vec<[usize; 3]> = parts.iter().map(|&part| self.maps(part)).collect();
        let [_, height, width] = shapes[0];
        if let Some([_, h, w]) = shapes.iter().find(|s| s[1..] != [height, width]) {
            self.misfit.get_or_insert_with(|| {
                format!(
                    "one that all branches of a block halve alike, such as 224 or 227: there are {height} x {width} \
                     and {h} x {w}"
                )
            });
        }
        let channels = shapes.iter().map(|s| s[0]).sum();
        self.fixed("", FixedKind::Concat, parts, Shape::Maps([channels, height, width]))
    }

    /// Rows of features of a frozen model.
    pub(crate) fn extractor(
        &mut self,
        images: Node,
        model: Arc<gallerist_onnx::Model>,
        features: usize,
    ) -> Node {
        let extractor = Extractor { model, features };
        self.push("", Op::Extractor(extractor), &[images], Shape::Row(features))
    }

    /// Feature maps as rows.
    pub(crate) fn flatten(&mut self, x: Node) -> Node {
        let length = self.maps(x).iter().fold(1usize, |product, &side| product.saturating_mul(side));
        self.fixed("", FixedKind::Flatten, &[x], Shape::Row(length))
    }

    /// Linear layer of rows or tokens.
    pub(crate) fn linear(&mut self, name: &str, x: Node, outputs: usize, bias: bool) -> Node {
        let inputs = self.width(x);
        let shape = match self.shapes[x.0] {
            Shape::Tokens([count, _]) => Shape::Tokens([count, outputs]),
            _ => Shape::Row(outputs),
        };
        let made = if self.admits(name, &[inputs, outputs]) { [inputs, outputs] } else { [1, 1] };
        let linear = Linear::new(&self.init, name, made[0], made[1], bias);
        self.push(name, Op::Linear(linear), &[x], shape)
    }

    /// The bias of some outputs of a linear layer stays 0.
    pub(crate) fn keep_bias_at_zero(&mut self, x: Node, outputs: Range<usize>) {
        if let Op::Linear(linear) = &mut self.steps[x.0].op
            && outputs.end <= linear.weight.dims()[1]
        {
            linear.without_bias = outputs;
        }
    }

    /// The network whose embeddings are `heads`.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] where the images are too small for the network, or it has too many parameters.
    pub(crate) fn finish(self, heads: &[Node], input: InputShape) -> Result<Network> {
        if let Some((name, own)) = self.too_large {
            return Err(Error::Value {
                key: "network".into(),
                wanted: format!("of at most {} parameters", numbers_in_words(MAX_PARAMETERS as u128)),
                found: format!(
                    "of {}: `{name}` alone has {}",
                    numbers_in_words(self.parameters),
                    numbers_in_words(own)
                ),
            });
        }
        if let Some(wanted) = self.misfit {
            return Err(Error::Value {
                key: "image.size".into(),
                wanted,
                found: format!("{} x {}", input.height, input.width),
            });
        }
        let mut last_use = vec![0; self.steps.len()];
        for (i, step) in self.steps.iter().enumerate() {
            step.inputs.iter().for_each(|&j| last_use[j] = i);
        }
        let dimensions = heads.iter().map(|&head| self.row(head)).collect();
        let heads: Vec<usize> = heads.iter().map(|node| node.0).collect();
        heads.iter().for_each(|&i| last_use[i] = usize::MAX);
        let deferred = deferred(&self.steps);
        let values_at_once = values_at_once(&self.steps, &self.shapes, &last_use, &deferred);
        let numbers = |(step, shape): (&Step, &Shape)| shape.numbers().max(scores(step, *shape));
        let largest_maps = self.steps.iter().zip(&self.shapes).map(numbers).max().unwrap_or(0);
        Ok(Network { steps: self.steps, heads, dimensions, last_use, deferred, values_at_once, largest_maps })
    }
}

/// Numbers of the maps inside a frozen model, for one image.
const MAPS_OF_EXTRACTOR: usize = 2 << 20;

/// Numbers of the attention matrices of a step for one image, or of the maps inside a frozen model.
fn scores(step: &Step, shape: Shape) -> usize {
    match (&step.op, shape) {
        (Op::SelfAttention(attention), Shape::Tokens([count, _])) => {
            attention.heads.saturating_mul(count).saturating_mul(count)
        }
        // The maps of the model are not known; those of ResNet-50 need as many for 224 x 224 pixels.
        (Op::Extractor(_), _) => MAPS_OF_EXTRACTOR,
        _ => 0,
    }
}

/// The memory of a step's result.
#[derive(Clone)]
enum Held {
    /// Its own maps or rows.
    Own,
    /// The inputs of a chain that has not run: the steps whose maps it reads, and the sizes of its convolutions.
    Chain { reads: Vec<usize>, convolutions: Vec<usize> },
}

/// The most values that an image needs at one time without gradients: the results that are used later, and the inputs and
/// outputs of a step. Of a chain, the maps of one convolution and of the one before it exist at the same time, then
/// those of the last one and the result.
fn values_at_once(steps: &[Step], shapes: &[Shape], last_use: &[usize], deferred: &[bool]) -> usize {
    let size = |i: usize| shapes[i].numbers();
    let mut held: Vec<Held> = Vec::with_capacity(steps.len());
    let mut most = 0;
    for (i, step) in steps.iter().enumerate() {
        // The images stay to the end.
        let mut alive = vec![false; i];
        for j in (0..i).filter(|&j| j == 0 || last_use[j] >= i) {
            match &held[j] {
                Held::Own => alive[j] = true,
                Held::Chain { reads, .. } => reads.iter().for_each(|&read| alive[read] = true),
            }
        }
        let before: usize = (0..i).filter(|&j| alive[j]).map(size).sum();
        let chain = step.inputs.iter().find_map(|&j| match &held[j] {
            Held::Chain { reads, convolutions } => Some((j, reads.clone(), convolutions.clone())),
            Held::Own => None,
        });
        let others = |of: Option<usize>| step.inputs.iter().copied().filter(move |&j| Some(j) != of);
        let (mut reads, mut convolutions) = match chain {
            Some((of, mut reads, convolutions)) => {
                reads.extend(others(Some(of)).filter(|&j| matches!(held[j], Held::Own)));
                (reads, convolutions)
            }
            None => (others(None).collect(), Vec::new()),
        };
        if deferred[i] {
            if matches!(step.op, Op::Conv(_)) {
                convolutions.push(size(i));
            }
            reads.sort_unstable();
            reads.dedup();
            held.push(Held::Chain { reads, convolutions });
        } else {
            convolutions.push(size(i));
            let of_step = convolutions.windows(2).map(|pair| pair[0] + pair[1]).max();
            most = most.max(before + of_step.unwrap_or(size(i)) + 2 * scores(step, shapes[i]));
            held.push(Held::Own);
        }
    }
    most
}

/// The results that are computed by the step that uses them: those inside a chain of [convolution, batch norm with
/// activation] and, after its last batch norm, a sum and an activation.
fn deferred(steps: &[Step]) -> Vec<bool> {
    let mut users = vec![Vec::new(); steps.len()];
    for (i, step) in steps.iter().enumerate() {
        step.inputs.iter().for_each(|&j| users[j].push(i));
    }
    let only_user = |i: usize| if let [user] = users[i][..] { Some(user) } else { None };
    let conv_before_norm = |i: usize| {
        let norm = |j: usize| matches!(&steps[j].op, Op::Norm(norm) if !norm.max_pool2);
        matches!(&steps[i].op, Op::Conv(conv) if conv.bias.is_none()) && only_user(i).is_some_and(norm)
    };
    let norm_behind_conv = |i: usize| {
        let norm = matches!(&steps[i].op, Op::Norm(norm) if !norm.max_pool2);
        norm && conv_before_norm(steps[i].inputs[0])
    };
    let fixed = |i: usize, wanted: fn(&FixedKind) -> bool| matches!(&steps[i].op, Op::Fixed(fixed) if wanted(&fixed.kind));
    let term_of_sum = |i: usize| {
        let plain = matches!(&steps[i].op, Op::Norm(norm) if norm.then == Activation::None);
        let sum = |j: usize| fixed(j, |kind| *kind == FixedKind::Add);
        plain && norm_behind_conv(i) && only_user(i).is_some_and(sum)
    };
    let sum_of_chain = |i: usize| {
        let activation = |j: usize| fixed(j, |kind| matches!(kind, FixedKind::Activation(_)));
        fixed(i, |kind| *kind == FixedKind::Add)
            && steps[i].inputs.iter().any(|&j| term_of_sum(j))
            && only_user(i).is_some_and(activation)
    };
    let costly = |i: usize| matches!(&steps[i].op, Op::Norm(norm) if norm.then.is_costly());
    let inside = |i: usize| norm_behind_conv(i) && !costly(i) && only_user(i).is_some_and(conv_before_norm);
    (0..steps.len()).map(|i| conv_before_norm(i) || inside(i) || term_of_sum(i) || sum_of_chain(i)).collect()
}

impl<'a> Setting<'a> {
    /// A builder whose batch norms have these parameters, and the images.
    pub(crate) fn builder(self, momentum: f64, epsilon: f64) -> Result<(Builder<'a>, Node)> {
        if !(momentum > 0.0 && momentum <= 1.0) {
            return Err(value("batch_norm_momentum", "above 0 and at most 1", momentum.to_string()));
        }
        let (mut builder, images) = Builder::new(Init::new(self.seed, self.device), self.input);
        builder.batch_norm(momentum, epsilon, self.freeze);
        Ok((builder, images))
    }
}
