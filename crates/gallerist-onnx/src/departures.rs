//! What the engine rten computes otherwise than ONNX defines it, without an error.

use std::collections::BTreeMap;

use rten_onnx::onnx::{AttributeProto, GraphProto, NodeProto, ValueInfoProto};

use crate::cubic::Cubic;
use crate::inspection::MissingOperator;

/// The operators of a graph whose results in rten 0.27 are others than ONNX defines, or that it refuses only when it computes
/// them, with the setting that does it. `opset` is the version of ONNX's operators.
pub(crate) fn departures(graph: &GraphProto, opset: i64) -> Vec<MissingOperator> {
    let rank = |value: &ValueInfoProto| {
        let shape = value.r#type.as_ref()?.tensor_type.as_ref()?.shape.as_ref()?;
        Some((value.name.clone()?, shape.dim.len()))
    };
    let values = graph.input.iter().chain(&graph.output).chain(&graph.value_info);
    let ranks: BTreeMap<String, usize> = values.filter_map(rank).collect();
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    for node in &graph.node {
        if Cubic::of(node).is_none()
            && let Some(name) = departure(node, opset, &ranks)
        {
            *found.entry(name).or_default() += 1;
        }
        for name in within(node, opset, &ranks) {
            *found.entry(name).or_default() += 1;
        }
    }
    found.into_iter().map(|(name, uses)| MissingOperator { name, uses }).collect()
}

/// Those in the graphs of a node, such as the branches of `If`, of which nothing is computed elsewhere.
fn within(node: &NodeProto, opset: i64, ranks: &BTreeMap<String, usize>) -> Vec<String> {
    let inner = node.attribute.iter().filter_map(|of| of.g.as_ref()).flat_map(|graph| &graph.node);
    inner
        .flat_map(|node| departure(node, opset, ranks).into_iter().chain(within(node, opset, ranks)))
        .collect()
}

fn departure(node: &NodeProto, opset: i64, ranks: &BTreeMap<String, usize>) -> Option<String> {
    if !matches!(node.domain.as_deref(), None | Some("" | "ai.onnx")) {
        return None;
    }
    let attribute = |name: &str| node.attribute.iter().find(|of| of.name.as_deref() == Some(name));
    let text = |name: &str| attribute(name).and_then(|of: &AttributeProto| of.s.as_deref());
    let kind = node.op_type.as_deref()?;
    match kind {
        // Linear instead. What is left is not what `Cubic` computes in its place.
        "Resize" if text("mode") == Some("cubic") => {
            let settings = [
                "antialias",
                "exclude_outside",
                "coordinate_transformation_mode",
                "keep_aspect_ratio_policy",
            ];
            let given = settings.iter().filter_map(|name| {
                let of = attribute(name)?;
                Some(format!(", {name} = {}", of.s.clone().unwrap_or_else(|| of.i.unwrap_or(0).to_string())))
            });
            Some(format!("Resize with mode = cubic{}", given.collect::<String>()))
        }
        // As SAME_UPPER.
        "Conv" | "ConvTranspose" | "AveragePool" | "MaxPool" if text("auto_pad") == Some("SAME_LOWER") => {
            Some(format!("{kind} with auto_pad = SAME_LOWER"))
        }
        // The number of sides is not taken from the weight.
        "Conv" | "ConvTranspose"
            if attribute("kernel_shape").is_none()
                && (attribute("strides").is_none() || attribute("dilations").is_none()) =>
        {
            Some(format!("{kind} without kernel_shape"))
        }
        // Before opset 13 the sum is over all axes from this one on, by default the second; rten's is over one, by default
        // the last.
        "Softmax" | "LogSoftmax" if opset < 13 => {
            let given = attribute("axis").map(|of| of.i.unwrap_or(0));
            let rank = node.input.iter().chain(&node.output).find_map(|name| ranks.get(name));
            let is_last = match rank {
                Some(&rank) => matches!(given.unwrap_or(1), axis if axis == -1 || axis + 1 == rank as i64),
                // Most exporters give the last axis.
                None => given.is_some(),
            };
            (!is_last).then(|| format!("{kind} over several axes (opset {opset})"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rten_onnx::onnx::{Dimension, TensorShapeProto, TypeProto, TypeProtoTensor};

    fn node(kind: &str, attributes: &[(&str, AttributeProto)]) -> NodeProto {
        let named = |(name, value): &(&str, AttributeProto)| AttributeProto {
            name: Some((*name).into()),
            ..value.clone()
        };
        NodeProto {
            op_type: Some(kind.into()),
            input: vec!["x".into()],
            output: vec!["y".into()],
            attribute: attributes.iter().map(named).collect(),
            ..Default::default()
        }
    }

    fn found(node: NodeProto, opset: i64, rank: Option<usize>) -> Vec<String> {
        let shape = rank.map(|rank| TensorShapeProto { dim: vec![Dimension::default(); rank] });
        let tensor = TypeProtoTensor { shape, ..Default::default() };
        let r#type = Some(TypeProto { tensor_type: Some(tensor), ..Default::default() });
        let value = ValueInfoProto { name: Some("x".into()), r#type };
        let graph = GraphProto { node: vec![node], value_info: vec![value], ..Default::default() };
        departures(&graph, opset).into_iter().map(|of| of.to_string()).collect()
    }

    #[test]
    fn settings_that_change_results_are_named() {
        let text = |value: &str| AttributeProto { s: Some(value.into()), ..Default::default() };
        let axis = |i: i64| ("axis", AttributeProto { i: Some(i), ..Default::default() });
        let sides = || AttributeProto { ints: vec![3, 3], ..Default::default() };
        let none: [String; 0] = [];
        assert_eq!(
            found(node("Resize", &[("mode", text("cubic"))]), 17, None),
            ["Resize with mode = cubic (1 x)"]
        );
        assert_eq!(found(node("Resize", &[("mode", text("linear"))]), 17, None), none);
        // What this program computes instead, but not within a graph.
        let mut resize = node("Resize", &[("mode", text("cubic"))]);
        resize.input.extend(["".into(), "scales".into()]);
        assert_eq!(found(resize.clone(), 17, None), none);
        let graph = GraphProto { node: vec![resize.clone()], ..Default::default() };
        let branch = AttributeProto { g: Some(graph), ..Default::default() };
        assert_eq!(
            found(node("If", &[("then_branch", branch)]), 17, None),
            ["Resize with mode = cubic (1 x)"]
        );
        resize.attribute.push(AttributeProto {
            name: Some("antialias".into()),
            i: Some(1),
            ..Default::default()
        });
        assert_eq!(found(resize, 18, None), ["Resize with mode = cubic, antialias = 1 (1 x)"]);
        for kind in ["Conv", "AveragePool", "MaxPool"] {
            let lower = node(kind, &[("auto_pad", text("SAME_LOWER")), ("kernel_shape", sides())]);
            assert_eq!(found(lower, 17, None), [format!("{kind} with auto_pad = SAME_LOWER (1 x)")]);
            let upper = node(kind, &[("auto_pad", text("SAME_UPPER")), ("kernel_shape", sides())]);
            assert_eq!(found(upper, 17, None), none);
        }
        assert_eq!(
            found(node("Conv", &[("strides", sides())]), 17, None),
            ["Conv without kernel_shape (1 x)"]
        );
        assert_eq!(found(node("Conv", &[("strides", sides()), ("dilations", sides())]), 17, None), none);

        let several = ["Softmax over several axes (opset 11)"].map(|name| format!("{name} (1 x)"));
        assert_eq!(found(node("Softmax", &[]), 11, Some(4)), several);
        assert_eq!(found(node("Softmax", &[]), 11, None), several);
        assert_eq!(found(node("Softmax", &[axis(1)]), 11, Some(4)), several);
        assert_eq!(found(node("Softmax", &[]), 11, Some(2)), none);
        assert_eq!(found(node("Softmax", &[axis(3)]), 11, Some(4)), none);
        assert_eq!(found(node("Softmax", &[axis(-1)]), 11, None), none);
        assert_eq!(found(node("Softmax", &[]), 13, Some(4)), none);
    }
}
