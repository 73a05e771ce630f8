//! The weight of a convolution in the order in which the products read it.

use rayon::prelude::*;

use super::order::Order;
use super::winograd::{self, Transformed};
use crate::buffer::Buffer;
use crate::geometry::Geometry;
use crate::product::{Choice, MAX_PANEL, Precision, Right, Tiles, panel_width};
use gallerist_util::vectorized;

/// The weight as an operand of [`correlate`](super::correlate::correlate).
pub(super) enum Weights {
    Packed(Packed),
    /// For Winograd's algorithm.
    Transformed(Transformed),
}

/// The weight itself, in another order.
pub(super) enum Packed {
    Panels(Panels),
    /// Depthwise: one row of all channels per tap.
    Rows(Buffer),
}

impl Weights {
    /// A weight for a convolution of a training step, or for its input gradient.
    pub(super) fn of_step(weight: &[f32], order: &Order, sizes: &Geometry) -> Self {
        match winograd::pays(sizes) {
            true => Self::Transformed(Transformed::new(weight, order)),
            false => Self::Packed(Packed::pack(weight, order, Choice::current().precision)),
        }
    }
}

impl Packed {
    pub(super) fn pack(weight: &[f32], order: &Order, precision: Precision) -> Self {
        let Order { groups, channels, columns, .. } = *order;
        if !(channels == 1 && columns == 1 && groups > 1) {
            return Self::Panels(Panels::pack(weight, order, precision));
        }
        Self::Rows(rows_of_taps(weight, order))
    }
}

/// The weight of a depthwise convolution, a row of all channels per tap.
pub(super) fn rows_of_taps(weight: &[f32], order: &Order) -> Buffer {
    let mut rows = Buffer::new(order.taps.len() * order.groups);
    for (row, tap) in rows.chunks_exact_mut(order.groups).zip(&order.taps) {
        for (group, value) in row.iter_mut().enumerate() {
            *value = weight[group * order.group_step + tap];
        }
    }
    rows
}

/// The weight as the right operand of a product.
pub(super) struct Panels {
    values: PanelValues,
    /// Columns of a panel.
    pub(super) width: usize,
    pub(super) precision: Precision,
}

enum PanelValues {
    /// For every group panels of [`panel_width`] columns, with zeros after the last column, each with one row per window
    /// element.
    Rows { values: Buffer, group: usize, panel: usize },
    /// Rounded to bf16, for every group.
    Tiles(Vec<Tiles>),
}

impl Panels {
    pub(super) fn pack(weight: &[f32], order: &Order, precision: Precision) -> Self {
        let Order { groups, channels, columns, column_step, group_step, .. } = *order;
        let width = match precision {
            Precision::F32 => panel_width(),
            Precision::Bf16(_) => MAX_PANEL,
        };
        let panels = columns.div_ceil(width);
        let panel = order.taps.len() * channels * width;
        let mut values = Buffer::new(groups * panels * panel);
        if panel > 0 {
            values.par_chunks_mut(panel).enumerate().for_each(|(index, panel)| {
                let (group, first) = (index / panels, index % panels * width);
                let count = width.min(columns - first);
                let weight = &weight[group * group_step + first * column_step..];
                order.pack_panel(weight, [count, width], panel);
                for row in panel.chunks_exact_mut(width) {
                    row[count..].fill(0.0);
                }
            });
        }
        let group = panels * panel;
        let values = match precision {
            Precision::F32 => PanelValues::Rows { values, group, panel },
            Precision::Bf16(unit) => {
                let sizes = [order.taps.len() * channels, columns, width];
                let of_group =
                    |index: usize| Tiles::of_panels(&values[index * group..][..group], sizes, panel, unit);
                PanelValues::Tiles((0..groups).map(of_group).collect())
            }
        };
        Self { values, width, precision }
    }

    /// The weight that gives for maps what this one gives for the maps with each channel times its factor; of a 1 x 1
    /// convolution in `f32`.
    ///
    /// # Panics
    ///
    /// If there is not a factor for every row, or the weight is rounded.
    pub(super) fn times_factors(&self, factors: &[f32]) -> Self {
        let PanelValues::Rows { values, group, panel } = &self.values else { panic!("a rounded weight") };
        let (group, panel, width) = (*group, *panel, self.width);
        assert_eq!([panel, group], [factors.len() * width, values.len()], "rows of one group, and factors");
        let mut scaled = Buffer::new(values.len());
        rows_times_factors(values, factors, width, &mut scaled);
        Self { values: PanelValues::Rows { values: scaled, group, panel }, width, precision: self.precision }
    }

    /// The columns of a group from `first` on, which is the first of a panel.
    pub(super) fn right(&self, group: usize, first: usize) -> Right<'_> {
        match &self.values {
            PanelValues::Rows { values, group: of_group, panel } => Right::Rows {
                values: &values[group * of_group + first / self.width * panel..],
                stride: self.width,
                panel_stride: *panel,
            },
            PanelValues::Tiles(groups) => Right::Tiles(groups[group].columns_from(first)),
        }
    }
}

vectorized! {
    /// Rows of `width` values, each times its factor, for as many rows as there are factors, and again.
    fn rows_times_factors<'a>(rows: &'a [f32], factors: &'a [f32], width: usize, to: &'a mut [f32]) -> () {
        let rows = rows.chunks_exact(width).zip(factors.iter().cycle());
        for (to, (row, factor)) in to.chunks_exact_mut(width).zip(rows) {
            for (to, value) in to.iter_mut().zip(row) {
                *to = value * factor;
            }
        }
    }
}
