//! Steps on tokens in the description of a network.

use std::sync::Arc;

use gallerist_kernels::Rotary;

use super::builder::{Builder, Node};
use super::network::{FixedKind, Op, Shape};
use crate::token_layers::{AttentionPool, Gelu, LayerNorm, LayerScale, Prefix, SelfAttention, Tokens};

impl Builder<'_> {
    /// Count and width of tokens.
    fn token_sides(&self, x: Node) -> [usize; 2] {
        match self.shape(x) {
            Shape::Tokens(sides) => sides,
            other => panic!("tokens are wanted, {other:?} is found"),
        }
    }

    /// Length of a row or of a token.
    pub(crate) fn width(&self, x: Node) -> usize {
        match self.shape(x) {
            Shape::Row(width) | Shape::Tokens([_, width]) => width,
            Shape::Maps(shape) => panic!("rows or tokens are wanted, feature maps {shape:?} are found"),
        }
    }

    /// Feature maps as tokens, after those of `prefix`, with learned positions or without.
    pub(crate) fn tokens(&mut self, x: Node, prefix: Prefix, positions: bool) -> Node {
        let [width, area @ ..] = self.maps(x);
        let patches = area[0].saturating_mul(area[1]);
        let count = prefix.tokens().saturating_add(patches);
        let made = self.admits("pos_embed", &[count, width]);
        // After an error the description continues with one small token.
        let (grid, registers, width_made) =
            if made { (area, prefix.registers, width) } else { ([1, 1], prefix.registers.min(1), 1) };
        let tokens = Tokens::new(self.init(), width_made, grid, Prefix { registers, ..prefix }, positions);
        self.set_prefix(prefix.tokens());
        self.push("", Op::Tokens(tokens), &[x], Shape::Tokens([count, width]))
    }

    /// Rotary positions of feature maps as tokens after those of `prefix`, for heads of `channels`.
    pub(crate) fn rotary(&mut self, x: Node, prefix: Prefix, channels: usize, base: f64) -> Arc<Rotary> {
        let area = self.area(x);
        let made = self.admits("rotary positions", &[area[0], area[1], channels]);
        Arc::new(Rotary::of_grid(prefix.tokens(), if made { area } else { [1, 1] }, channels, base))
    }

    /// Layer norm of rows or tokens.
    pub(crate) fn layer_norm(&mut self, name: &str, x: Node, epsilon: f64) -> Node {
        let width = self.width(x);
        let made = if self.admits(name, &[2, width]) { width } else { 1 };
        let norm = LayerNorm::new(self.init(), made, epsilon);
        self.push(name, Op::LayerNorm(norm), &[x], self.shape(x))
    }

    /// A learned factor for each channel of tokens.
    pub(crate) fn layer_scale(&mut self, name: &str, x: Node) -> Node {
        let [_, width] = self.token_sides(x);
        let made = if self.admits(name, &[width]) { width } else { 1 };
        let scale = LayerScale::new(self.init(), made);
        self.push(name, Op::LayerScale(scale), &[x], self.shape(x))
    }

    /// Self-attention of tokens `[count, 3 width]`.
    pub(crate) fn self_attention(&mut self, x: Node, attention: SelfAttention) -> Node {
        let [count, triple] = self.token_sides(x);
        self.push("", Op::SelfAttention(attention), &[x], Shape::Tokens([count, triple / 3]))
    }

    /// The activation in an MLP.
    pub(crate) fn gelu(&mut self, x: Node, kind: Gelu) -> Node {
        self.fixed("", FixedKind::Gelu(kind), &[x], self.shape(x))
    }

    /// The gate of an MLP on tokens `[count, 2 width]`.
    pub(crate) fn gated_silu(&mut self, x: Node) -> Node {
        let [count, double] = self.token_sides(x);
        self.fixed("", FixedKind::GatedSilu, &[x], Shape::Tokens([count, double / 2]))
    }

    /// Drop path; the name seeds its random decisions.
    pub(crate) fn drop_path(&mut self, name: &str, x: Node, rate: f64) -> Node {
        self.fixed(name, FixedKind::DropPath { rate }, &[x], self.shape(x))
    }

    /// The class token as a row.
    pub(crate) fn class_token(&mut self, x: Node) -> Node {
        let [_, width] = self.token_sides(x);
        self.fixed("", FixedKind::ClassToken, &[x], Shape::Row(width))
    }

    /// The mean of the patches as a row.
    pub(crate) fn mean_of_patches(&mut self, x: Node) -> Node {
        let [_, width] = self.token_sides(x);
        let prefix = self.prefix();
        self.fixed("", FixedKind::MeanOfPatches { prefix }, &[x], Shape::Row(width))
    }

    /// A row by the attention of a learned query.
    pub(crate) fn attention_pool(&mut self, name: &str, x: Node, heads: usize) -> Node {
        let [_, width] = self.token_sides(x);
        let made = self.admits(name, &[4, width, width]);
        let (width_made, heads_made) = if made { (width, heads) } else { (1, 1) };
        let pool = AttentionPool::new(self.init(), name, width_made, heads_made);
        self.push(name, Op::AttentionPool(pool), &[x], Shape::Row(width))
    }

    /// Rows one after the other.
    pub(crate) fn concat_rows(&mut self, parts: &[Node]) -> Node {
        let length = parts.iter().map(|&part| self.width(part)).sum();
        self.fixed("", FixedKind::Concat, parts, Shape::Row(length))
    }
}
