//! Reading what an ONNX file contains.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;

use gallerist_util::panics::caught;

use crate::cubic::Cubic;
use crate::cut::Cut;
use crate::departures::departures;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::inspection::{Inspection, MissingOperator, Port};
use crate::lengths;
use crate::session;

use rten_onnx::onnx::{
    DataLocation, DataType, Dimension, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
    StringStringEntryProto, TypeProto, TypeProtoTensor, ValueInfoProto,
};

impl Inspection {
    /// Opens a model with an engine, and forgets it. Some models lack no operator, and have a setting that the engine refuses.
    ///
    /// # Errors
    ///
    /// When it cannot be opened.
    pub fn check(path: &Path, engine: Engine) -> Result<()> {
        let Described { cut, .. } = described(path, engine)?;
        session::open(path, engine, cut).map(drop)
    }

    /// Reads the description of a model. `engine` says which operators it lacks.
    ///
    /// # Errors
    ///
    /// When the engine is not available, and when the file cannot be read or is no ONNX model.
    pub fn of_file(path: &Path, engine: Engine) -> Result<Self> {
        session::ready(path, engine)?;
        let model = parse(path)?;
        let graph = model.graph.unwrap_or_default();
        let opsets = opsets(&model.opset_import);
        let mut operators: BTreeMap<String, usize> = BTreeMap::new();
        let mut first: BTreeMap<String, &NodeProto> = BTreeMap::new();
        for node in &graph.node {
            let name = name_of(node);
            *operators.entry(name.clone()).or_default() += 1;
            if engine != Engine::Rten || Cubic::of(node).is_none() {
                first.entry(name).or_insert(node);
            }
        }
        let lacks = |(name, node): (&String, &&NodeProto)| {
            let missing = MissingOperator { name: name.clone(), uses: operators[name] };
            is_missing(node, &model.opset_import, model.ir_version, engine).then_some(missing)
        };
        let mut missing: Vec<MissingOperator> = first.iter().filter_map(lacks).collect();
        if !missing.is_empty() && session::defines_operators(path, engine) {
            missing.clear();
        }
        if engine == Engine::Rten {
            missing.extend(departures(&graph, version(&opsets)));
        }
        let weights: BTreeSet<&str> =
            graph.initializer.iter().filter_map(|tensor| tensor.name.as_deref()).collect();
        let given = |port: &&ValueInfoProto| !port.name.as_deref().is_some_and(|name| weights.contains(name));
        let external_files = external(&graph);
        let folder = path.parent().unwrap_or_else(|| Path::new("."));
        let size = |file: &Path| file.metadata().map_or(0, |metadata| metadata.len());
        let external_bytes = external_files.iter().map(|name| size(&folder.join(name))).sum::<u64>();
        let parameters = graph
            .initializer
            .iter()
            .map(|tensor| tensor.dims.iter().map(|&side| side.max(0) as u64).product::<u64>());
        Ok(Inspection {
            producer: model.producer_name.map(|name| match model.producer_version {
                Some(version) => format!("{name} {version}"),
                None => name,
            }),
            inputs: graph.input.iter().filter(given).map(port).collect(),
            outputs: graph.output.iter().map(port).collect(),
            parameters: parameters.sum(),
            bytes: size(path) + external_bytes,
            opsets,
            external_files,
            operators,
            missing,
            metadata: metadata(model.metadata_props),
        })
    }
}

/// What using a model needs of its file.
pub(crate) struct Described {
    /// The files of weights that it names.
    pub(crate) files: BTreeSet<String>,
    /// The entries of its metadata.
    pub(crate) metadata: BTreeMap<String, String>,
    /// Its operators.
    pub(crate) operators: BTreeSet<String>,
    /// What is left of the model where this program computes a part of it.
    pub(crate) cut: Option<Cut>,
}

/// What using a model with an engine needs of its file.
///
/// # Errors
///
/// When the engine would compute something else than the model says.
pub(crate) fn described(path: &Path, engine: Engine) -> Result<Described> {
    session::ready(path, engine)?;
    let mut model = parse(path)?;
    let metadata = metadata(std::mem::take(&mut model.metadata_props));
    let graph = model.graph.as_ref().expect("`parse` refuses a model without");
    let files = external(graph);
    let operators = graph.node.iter().map(name_of).collect();
    if engine == Engine::Rten {
        let found = departures(graph, version(&opsets(&model.opset_import)));
        if !found.is_empty() {
            let names: Vec<String> = found.iter().map(ToString::to_string).collect();
            return Err(Error {
                path: Some(path.into()),
                reason: format!("the engine rten does not compute these as ONNX defines them: {}", names.join(", ")),
                hint: Some("take the engine onnxruntime, or export the model with another opset, or without the part that uses \
                     them"
                        .into()),
            });
        }
    }
    let fail = |reason| Error { path: Some(path.into()), reason, hint: None };
    let cut = match engine {
        Engine::Rten => Cut::of(model, path).map_err(fail)?,
        Engine::Onnxruntime => None,
    };
    Ok(Described { files, metadata, operators, cut })
}

fn metadata(entries: Vec<StringStringEntryProto>) -> BTreeMap<String, String> {
    entries.into_iter().filter_map(|entry| Some((entry.key?, entry.value.unwrap_or_default()))).collect()
}

fn parse(path: &Path) -> Result<ModelProto> {
    let fail = |reason: String| Error { path: Some(path.into()), reason, hint: None };
    let open = || File::open(path).map_err(|error| fail(format!("cannot read it: {error}")));
    lengths::check(open()?).map_err(|problem| fail(format!("it is no ONNX model: {problem}")))?;
    let file = open()?;
    let found = caught(|| ModelProto::parse_file(file)).map_err(&fail)?;
    let model = found.map_err(|error| fail(format!("it is no ONNX model: {error}")))?;
    match model.graph {
        Some(_) => Ok(model),
        None => Err(fail("it is no ONNX model: it has no graph".into())),
    }
}

fn external(graph: &GraphProto) -> BTreeSet<String> {
    let outside =
        graph.initializer.iter().filter(|tensor| tensor.data_location == Some(DataLocation::EXTERNAL));
    let location = outside
        .flat_map(|tensor| &tensor.external_data)
        .filter(|entry| entry.key.as_deref() == Some("location"));
    location.filter_map(|entry| entry.value.clone()).collect()
}

fn opsets(imports: &[OperatorSetIdProto]) -> BTreeMap<String, i64> {
    let name = |domain: &Option<String>| match domain.as_deref() {
        None | Some("") => "ai.onnx".to_owned(),
        Some(domain) => domain.to_owned(),
    };
    imports.iter().map(|import| (name(&import.domain), import.version.unwrap_or(0))).collect()
}

/// The version of ONNX's own operators.
fn version(opsets: &BTreeMap<String, i64>) -> i64 {
    opsets.get("ai.onnx").copied().unwrap_or(1)
}

fn name_of(node: &NodeProto) -> String {
    let kind = node.op_type.as_deref().unwrap_or("?");
    match node.domain.as_deref() {
        None | Some("" | "ai.onnx") => kind.to_owned(),
        Some(domain) => format!("{domain}.{kind}"),
    }
}

/// Whether the engine refuses a model of this node alone because of its operator.
fn is_missing(
    node: &NodeProto,
    opsets: &[OperatorSetIdProto],
    ir_version: Option<i64>,
    engine: Engine,
) -> bool {
    let value = |name: &String| ValueInfoProto { name: Some(name.clone()), ..Default::default() };
    // onnxruntime does not look at the operator of a node whose inputs have no type; whether the type is right does not matter.
    let tensor = TypeProtoTensor { elem_type: Some(DataType::FLOAT), ..Default::default() };
    let of_f32 = TypeProto { tensor_type: Some(tensor), ..Default::default() };
    let input = |name: &String| ValueInfoProto { r#type: Some(of_f32.clone()), ..value(name) };
    let used = node.input.iter().filter(|name| !name.is_empty()).collect::<BTreeSet<_>>();
    let model = ModelProto {
        ir_version,
        opset_import: opsets.to_vec(),
        graph: Some(GraphProto {
            node: vec![node.clone()],
            input: used.into_iter().map(input).collect(),
            output: node.output.iter().filter(|name| !name.is_empty()).map(value).collect(),
            ..Default::default()
        }),
        ..Default::default()
    };
    model.write_buf().is_ok_and(|bytes| session::lacks_operator(engine, bytes))
}

fn port(value: &ValueInfoProto) -> Port {
    let tensor = value.r#type.as_ref().and_then(|of| of.tensor_type.as_ref());
    let shape = tensor.and_then(|tensor| tensor.shape.as_ref()).map_or(&[][..], |shape| &shape.dim[..]);
    let side = |dimension: &Dimension| match (dimension.dim_value, &dimension.dim_param) {
        (Some(side), _) => side.to_string(),
        (None, Some(name)) => name.clone(),
        (None, None) => "?".to_owned(),
    };
    Port {
        name: value.name.clone().unwrap_or_default(),
        dtype: tensor.and_then(|tensor| tensor.elem_type).map_or("?".to_owned(), |of| of.to_string()),
        shape: shape.iter().map(side).collect(),
    }
}
