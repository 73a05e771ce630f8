//! The sizes of a convolution.

use burn::tensor::ops::ConvOptions;

use crate::maps::Maps;

/// Sizes of a convolution.
#[derive(Clone, Debug)]
pub(crate) struct Geometry {
    pub(crate) input: Maps,
    pub(crate) output: Maps,
    pub(crate) kernel: [usize; 2],
    pub(crate) stride: [usize; 2],
    /// Zeros before the first row and column.
    pub(crate) padding: [usize; 2],
    pub(crate) dilation: [usize; 2],
    pub(crate) groups: usize,
    /// Whether the weight is `[channels in, channels out]`, as that of a linear layer.
    pub(crate) weight_by_input: bool,
}

impl Geometry {
    /// The sizes of the convolution of `x` with a weight `[channels out, channels in / groups, height, width]`. `None` if
    /// they do not fit together or the result is empty.
    pub(crate) fn new(input: Maps, weight: [usize; 4], options: &ConvOptions<2>) -> Option<Self> {
        let [channels_out, channels, height, width] = weight;
        let groups = options.groups;
        let fits = channels * groups == input.channels && channels_out.is_multiple_of(groups);
        let [height_out, width_out] = [0, 1].map(|axis| {
            let reach = options.dilation[axis] * ([height, width][axis].max(1) - 1) + 1;
            let (before, after) = options.padding[axis];
            let size = [input.height, input.width][axis] + before + after;
            (size >= reach).then(|| (size - reach) / options.stride[axis] + 1)
        });
        let output =
            Maps { images: input.images, height: height_out?, width: width_out?, channels: channels_out };
        (fits && input.len() > 0 && output.len() > 0 && height * width > 0).then(|| Self {
            input,
            output,
            kernel: [height, width],
            stride: options.stride,
            padding: options.padding_begin(),
            dilation: options.dilation,
            groups,
            weight_by_input: false,
        })
    }

    /// The sizes of a linear layer with a weight `[channels in, outputs]`, of every position of `x`. `None` if one of them is 0.
    pub(crate) fn linear(input: Maps, outputs: usize) -> Option<Self> {
        let options = ConvOptions::new([1, 1], [0, 0], [1, 1], 1);
        let sizes = Self::new(input, [outputs, input.channels, 1, 1], &options)?;
        Some(Self { weight_by_input: true, ..sizes })
    }

    /// Whether the result is a row for each image: of a single position.
    pub(crate) fn is_of_rows(&self) -> bool {
        self.output.height * self.output.width == 1
    }

    /// Whether every channel is convolved on its own, with one kernel.
    pub(crate) fn is_depthwise(&self) -> bool {
        self.groups > 1 && self.channels_in_group() == 1 && self.channels_out_group() == 1
    }

    /// Whether the stride is 1 and the result has as many positions as the input.
    pub(crate) fn keeps_size(&self) -> bool {
        self.stride == [1, 1]
            && self.input.height == self.output.height
            && self.input.width == self.output.width
    }

    /// Whether it is a product of every position with one matrix. Padding at the end only would make further positions.
    pub(crate) fn is_pointwise(&self) -> bool {
        self.groups == 1 && self.taps() == 1 && self.padding == [0, 0] && self.keeps_size()
    }

    pub(crate) fn channels_in_group(&self) -> usize {
        self.input.channels / self.groups
    }

    pub(crate) fn channels_out_group(&self) -> usize {
        self.output.channels / self.groups
    }

    pub(crate) fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    /// Elements of a window of one group.
    pub(crate) fn window(&self) -> usize {
        self.taps() * self.channels_in_group()
    }
}
