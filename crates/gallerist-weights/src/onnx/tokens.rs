//! The steps of vision transformers in ONNX.

use std::sync::Arc;

use gallerist_nn::graph::{FixedKind, Op, Step};
use gallerist_nn::token_layers::{AttentionPool, SelfAttention, Tokens};
use gallerist_nn::{Gelu, Rotary};

use super::graph::{Attribute, Graph};
use crate::tensors::values;

/// The length of the tokens that a step gives, from that of its first input; `None`: it gives no tokens.
pub(super) fn token_width(step: &Step, input: Option<usize>) -> Option<usize> {
    match &step.op {
        Op::Tokens(tokens) => Some(tokens.width),
        Op::SelfAttention(_) => input.map(|width| width / 3),
        Op::Linear(linear) => input.map(|_| linear.weight.dims()[1]),
        Op::LayerNorm(_) | Op::LayerScale(_) => input,
        Op::Fixed(fixed) => match fixed.kind {
            FixedKind::Gelu(_) | FixedKind::DropPath { .. } | FixedKind::Add | FixedKind::Activation(_) => {
                input
            }
            FixedKind::GatedSilu => input.map(|width| width / 2),
            _ => None,
        },
        _ => None,
    }
}

impl Graph {
    /// The nodes of a step of a transformer whose input is `x`; `width` is the length of its tokens, if it is tokens.
    /// `None` for another step.
    pub(super) fn token_step(
        &mut self,
        step: &Step,
        name: &str,
        x: &str,
        width: Option<usize>,
    ) -> Option<String> {
        Some(match (&step.op, width) {
            (Op::Linear(linear), Some(_)) => {
                let weight = self.parameter(&step.name, "weight");
                let bias = linear.bias.as_ref().map(|_| self.parameter(&step.name, "bias"));
                self.linear_tokens(x, &weight, bias.as_deref(), name)
            }
            (Op::Tokens(tokens), _) => self.tokens(tokens, x, name),
            (Op::LayerNorm(norm), _) => {
                let [weight, bias] = ["weight", "bias"].map(|field| self.parameter(&step.name, field));
                self.layer_norm(x, &weight, &bias, norm.epsilon, name)
            }
            (Op::LayerScale(_), _) => {
                let gamma = self.parameter(&step.name, "gamma");
                self.node("Mul", &[x, &gamma], name, vec![])
            }
            (Op::SelfAttention(attention), Some(width)) => self.self_attention(attention, width / 3, x, name),
            (Op::AttentionPool(pool), _) => self.attention_pool(pool, step, x, name),
            (Op::Fixed(fixed), _) => match (fixed.kind, width) {
                (FixedKind::Gelu(kind), _) => self.gelu(kind, x, name),
                (FixedKind::GatedSilu, Some(width)) => self.gated_silu(width, x, name),
                // In training only.
                (FixedKind::DropPath { .. }, _) => x.to_string(),
                (FixedKind::ClassToken, _) => {
                    let first = self.integers(&format!("{name}.first"), &[], &[0]);
                    self.node("Gather", &[x, &first], name, vec![Attribute::Int("axis", 1)])
                }
                (FixedKind::MeanOfPatches { prefix }, _) => {
                    let from = self.integers(&format!("{name}.from"), &[1], &[prefix as i64]);
                    let to = self.integers(&format!("{name}.to"), &[1], &[i64::MAX]);
                    let axis = self.integers(&format!("{name}.axis"), &[1], &[1]);
                    let y = self.node("Slice", &[x, &from, &to, &axis], &format!("{name}.patches"), vec![]);
                    let axes = vec![Attribute::Ints("axes", vec![1]), Attribute::Int("keepdims", 0)];
                    self.node("ReduceMean", &[&y], name, axes)
                }
                _ => return None,
            },
            _ => return None,
        })
    }

    /// `x W + b` of tokens.
    fn linear_tokens(&mut self, x: &str, weight: &str, bias: Option<&str>, name: &str) -> String {
        match bias {
            Some(bias) => {
                let y = self.node("MatMul", &[x, weight], &format!("{name}.product"), vec![]);
                self.node("Add", &[&y, bias], name, vec![])
            }
            None => self.node("MatMul", &[x, weight], name, vec![]),
        }
    }

    fn transpose(&mut self, x: &str, order: &[i64], name: &str) -> String {
        self.node("Transpose", &[x], name, vec![Attribute::Ints("perm", order.to_vec())])
    }

    /// With other sides; 0 keeps a side, -1 is what is left.
    fn reshape(&mut self, x: &str, sides: &[i64], name: &str) -> String {
        let shape = self.integers(&format!("{name}.sides"), &[sides.len()], sides);
        self.node("Reshape", &[x, &shape], name, vec![])
    }

    /// Class token, register tokens, and patches with their positions.
    fn tokens(&mut self, tokens: &Tokens, x: &str, name: &str) -> String {
        let x = self.reshape(x, &[0, 0, -1], &format!("{name}.columns"));
        let mut x = self.transpose(&x, &[0, 2, 1], &format!("{name}.patches"));
        let positions = tokens.pos_embed.as_ref().map(|_| self.parameter("", "pos_embed"));
        if let Some(positions) = positions.as_ref().filter(|_| !tokens.has_class_position()) {
            x = self.node("Add", &[&x, positions], &format!("{name}.placed"), vec![]);
        }
        let width = tokens.width;
        let mut first: Vec<f32> = Vec::new();
        for token in ["cls_token", "reg_token"] {
            first.extend(self.tensors.remove(token).iter().flat_map(|data| values(data).iter().copied()));
        }
        if !first.is_empty() {
            let count = first.len() / width;
            let first = self.constant(&format!("{name}.first"), &[1, count, width], &first);
            let zero = self.integers(&format!("{name}.zero"), &[1], &[0]);
            let rest = self.integers(&format!("{name}.rest"), &[2], &[count as i64, width as i64]);
            let shape = self.node("Shape", &[&x], &format!("{name}.shape"), vec![]);
            let batch = self.node(
                "Gather",
                &[&shape, &zero],
                &format!("{name}.batch"),
                vec![Attribute::Int("axis", 0)],
            );
            let axis = |axis| vec![Attribute::Int("axis", axis)];
            let wanted = self.node("Concat", &[&batch, &rest], &format!("{name}.wanted"), axis(0));
            let first = self.node("Expand", &[&first, &wanted], &format!("{name}.expanded"), vec![]);
            x = self.node("Concat", &[&first, &x], &format!("{name}.all"), axis(1));
        }
        if let Some(positions) = positions.filter(|_| tokens.has_class_position()) {
            x = self.node("Add", &[&x, &positions], &format!("{name}.placed"), vec![]);
        }
        x
    }

    fn layer_norm(&mut self, x: &str, weight: &str, bias: &str, epsilon: f64, name: &str) -> String {
        let part = |part: &str| format!("{name}.{part}");
        let last = || vec![Attribute::Ints("axes", vec![-1]), Attribute::Int("keepdims", 1)];
        let mean = self.node("ReduceMean", &[x], &part("mean"), last());
        let x = self.node("Sub", &[x, &mean], &part("centred"), vec![]);
        let squares = self.node("Mul", &[&x, &x], &part("squares"), vec![]);
        let variance = self.node("ReduceMean", &[&squares], &part("variance"), last());
        let epsilon = self.constant(&part("epsilon"), &[], &[epsilon as f32]);
        let sum = self.node("Add", &[&variance, &epsilon], &part("sum"), vec![]);
        let deviation = self.node("Sqrt", &[&sum], &part("deviation"), vec![]);
        let x = self.node("Div", &[&x, &deviation], &part("normalized"), vec![]);
        let x = self.node("Mul", &[&x, weight], &part("scaled"), vec![]);
        self.node("Add", &[&x, bias], name, vec![])
    }

    fn gelu(&mut self, kind: Gelu, x: &str, name: &str) -> String {
        let part = |part: &str| format!("{name}.{part}");
        let constant = |graph: &mut Graph, of: &str, value: f64| {
            graph.constant(&format!("{name}.{of}"), &[], &[value as f32])
        };
        if kind == Gelu::QuickGelu {
            let factor = constant(self, "factor", Gelu::QUICK);
            let y = self.node("Mul", &[x, &factor], &part("stretched"), vec![]);
            let y = self.node("Sigmoid", &[&y], &part("gate"), vec![]);
            return self.node("Mul", &[x, &y], name, vec![]);
        }
        let y = match kind {
            Gelu::GeluTanh => {
                let cube = constant(self, "cube", 0.044715);
                let factor = constant(self, "factor", (2.0 / std::f64::consts::PI).sqrt());
                let y = self.node("Mul", &[x, x], &part("square"), vec![]);
                let y = self.node("Mul", &[&y, x], &part("third"), vec![]);
                let y = self.node("Mul", &[&y, &cube], &part("term"), vec![]);
                let y = self.node("Add", &[&y, x], &part("sum"), vec![]);
                let y = self.node("Mul", &[&y, &factor], &part("stretched"), vec![]);
                self.node("Tanh", &[&y], &part("gate"), vec![])
            }
            _ => {
                let factor = constant(self, "factor", std::f64::consts::FRAC_1_SQRT_2);
                let y = self.node("Mul", &[x, &factor], &part("stretched"), vec![]);
                self.node("Erf", &[&y], &part("gate"), vec![])
            }
        };
        let one = constant(self, "one", 1.0);
        let half = constant(self, "half", 0.5);
        let y = self.node("Add", &[&y, &one], &part("shifted"), vec![]);
        let y = self.node("Mul", &[&y, x], &part("product"), vec![]);
        self.node("Mul", &[&y, &half], name, vec![])
    }

    /// The channels from `from` to `to` of `x`.
    fn channels(&mut self, x: &str, [from, to]: [usize; 2], name: &str) -> String {
        let axis = self.integers(&format!("{name}.axis"), &[1], &[-1]);
        let [from, to] = [("from", from), ("to", to)]
            .map(|(of, place)| self.integers(&format!("{name}.{of}"), &[1], &[place as i64]));
        self.node("Slice", &[x, &from, &to, &axis], name, vec![])
    }

    /// `silu(a) b` of the halves of `width` channels.
    fn gated_silu(&mut self, width: usize, x: &str, name: &str) -> String {
        let part = |part: &str| format!("{name}.{part}");
        let a = self.channels(x, [0, width / 2], &part("first"));
        let b = self.channels(x, [width / 2, width], &part("second"));
        let sigmoid = self.node("Sigmoid", &[&a], &part("sigmoid"), vec![]);
        let gate = self.node("Mul", &[&a, &sigmoid], &part("gate"), vec![]);
        self.node("Mul", &[&gate, &b], name, vec![])
    }

    /// Part `place` of the first side of `parts`.
    fn pick(&mut self, parts: &str, place: i64, name: &str) -> String {
        let place = self.integers(&format!("{name}.place"), &[], &[place]);
        self.node("Gather", &[parts, &place], name, vec![Attribute::Int("axis", 0)])
    }

    /// `softmax(q k^T / sqrt(d)) v` of `[n, heads, queries, d]` and `[n, heads, count, d]`: `[n, queries, heads, d]`.
    fn attend(&mut self, [query, key, value]: [&str; 3], d: usize, name: &str) -> String {
        let part = |part: &str| format!("{name}.{part}");
        let key = self.transpose(key, &[0, 1, 3, 2], &part("columns"));
        let scale = self.constant(&part("scale"), &[], &[1.0 / (d as f32).sqrt()]);
        let query = self.node("Mul", &[query, &scale], &part("scaled"), vec![]);
        let scores = self.node("MatMul", &[&query, &key], &part("scores"), vec![]);
        let shares = self.node("Softmax", &[&scores], &part("shares"), vec![Attribute::Int("axis", -1)]);
        let y = self.node("MatMul", &[&shares, value], &part("heads"), vec![]);
        self.transpose(&y, &[0, 2, 1, 3], &part("tokens"))
    }

    /// Cosines and sines of rotary positions, `[tokens, channels]`.
    fn turns(&mut self, rotary: &Arc<Rotary>, name: &str) -> [String; 2] {
        if let Some((of, names)) = &self.turns
            && Arc::ptr_eq(of, rotary)
        {
            return names.clone();
        }
        let shape = [rotary.tokens(), rotary.channels()];
        let [cos, sin] = rotary.tables();
        let names = [("cos", cos), ("sin", sin)]
            .map(|(of, table)| self.constant(&format!("{name}.{of}"), &shape, &table));
        self.turns = Some((rotary.clone(), names.clone()));
        names
    }

    /// `[n, heads, tokens, d]` turned by rotary positions.
    fn turned(&mut self, rotary: &Arc<Rotary>, x: &str, name: &str) -> String {
        let part = |part: &str| format!("{name}.{part}");
        let [cos, sin] = self.turns(rotary, name);
        let channels = rotary.channels();
        let left = self.channels(x, [0, channels / 2], &part("left"));
        let right = self.channels(x, [channels / 2, channels], &part("right"));
        let right = self.node("Neg", &[&right], &part("negative"), vec![]);
        let other = self.node("Concat", &[&right, &left], &part("other"), vec![Attribute::Int("axis", -1)]);
        let x = self.node("Mul", &[x, &cos], &part("along"), vec![]);
        let y = self.node("Mul", &[&other, &sin], &part("across"), vec![]);
        self.node("Add", &[&x, &y], name, vec![])
    }

    fn self_attention(&mut self, attention: &SelfAttention, width: usize, x: &str, name: &str) -> String {
        let heads = attention.heads;
        let d = width / heads;
        let parts = self.reshape(x, &[0, 0, 3, heads as i64, d as i64], &format!("{name}.parts"));
        let parts = self.transpose(&parts, &[2, 0, 3, 1, 4], &format!("{name}.qkv"));
        let mut picked = [("query", 0), ("key", 1), ("value", 2)]
            .map(|(of, place)| self.pick(&parts, place, &format!("{name}.{of}")));
        if let Some(rotary) = &attention.rotary {
            for (of, x) in ["query", "key"].into_iter().zip(&mut picked) {
                *x = self.turned(rotary, x, &format!("{name}.{of}.turned"));
            }
        }
        let y = self.attend(picked.each_ref().map(String::as_str), d, name);
        self.reshape(&y, &[0, 0, width as i64], name)
    }

    fn attention_pool(&mut self, pool: &AttentionPool, step: &Step, x: &str, name: &str) -> String {
        let width = pool.latent.dims()[2];
        let (heads, d) = (pool.heads as i64, width / pool.heads);
        let part = |part: &str| format!("{name}.{part}");
        let [latent, q, q_bias, kv, kv_bias, proj, proj_bias] =
            ["latent", "q.weight", "q.bias", "kv.weight", "kv.bias", "proj.weight", "proj.bias"]
                .map(|field| self.parameter(&step.name, field));
        let query = self.linear_tokens(&latent, &q, Some(&q_bias), &part("q"));
        let query = self.reshape(&query, &[1, 1, heads, d as i64], &part("q.heads"));
        let query = self.transpose(&query, &[0, 2, 1, 3], &part("query"));
        let parts = self.linear_tokens(x, &kv, Some(&kv_bias), &part("kv"));
        let parts = self.reshape(&parts, &[0, 0, 2, heads, d as i64], &part("parts"));
        let parts = self.transpose(&parts, &[2, 0, 3, 1, 4], &part("pairs"));
        let [key, value] = [("key", 0), ("value", 1)].map(|(of, place)| self.pick(&parts, place, &part(of)));
        let y = self.attend([&query, &key, &value], d, name);
        let y = self.reshape(&y, &[0, width as i64], &part("row"));
        self.linear_tokens(&y, &proj, Some(&proj_bias), name)
    }
}
