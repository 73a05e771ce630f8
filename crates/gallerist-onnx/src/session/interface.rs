//! What differs between the engines: the inputs and outputs of a model, and one pass.

use std::fmt;

/// A model that an engine has read.
pub(crate) trait Session: Send + Sync {
    /// The inputs that the user gives, in the order of the model.
    fn inputs(&self) -> &[Slot];

    /// The outputs, in the order of the model.
    fn outputs(&self) -> &[Slot];

    /// One output for inputs, which are named by their places in [`inputs`](Self::inputs), as is the output in
    /// [`outputs`](Self::outputs). `Ok(None)` if the output is not f32.
    ///
    /// # Errors
    ///
    /// The reason why the engine cannot compute it.
    fn run(&self, inputs: Vec<(usize, Values)>, output: usize) -> Result<Option<Computed>, String>;

    /// As [`run`](Self::run), with errors in words for users.
    ///
    /// # Errors
    ///
    /// Also when the output is not f32.
    fn compute(&self, inputs: Vec<(usize, Values)>, output: usize) -> Result<Computed, String> {
        let found =
            self.run(inputs, output).map_err(|problem| format!("it cannot be computed: {problem}"))?;
        found.ok_or_else(|| format!("its output `{}` is not f32", self.outputs()[output].name))
    }
}

/// An input or output.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub(crate) name: String,
    /// `None`: the file does not say.
    pub(crate) dtype: Option<Dtype>,
    /// `None`: the file does not say.
    pub(crate) shape: Option<Vec<Side>>,
}

/// The numbers of an input or output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dtype {
    F32,
    /// Signed integers of 32 or 64 bits.
    Integer,
    Other,
}

/// A side of a shape.
#[derive(Clone, Debug)]
pub(crate) enum Side {
    Fixed(usize),
    /// Any length, with the name in the file.
    Free(String),
}

impl Side {
    pub(crate) fn fixed(&self) -> Option<usize> {
        match *self {
            Self::Fixed(side) => Some(side),
            Self::Free(_) => None,
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(side) => write!(f, "{side}"),
            Self::Free(name) if name.is_empty() => f.write_str("?"),
            Self::Free(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        let Some(shape) = &self.shape else { return Ok(()) };
        let sides: Vec<String> = shape.iter().map(ToString::to_string).collect();
        write!(f, " [{}]", sides.join(", "))
    }
}

/// The numbers of an input, with their shape.
pub(crate) enum Values {
    F32(Vec<usize>, Vec<f32>),
    /// Tokens and masks. An engine converts them to the dtype of the input.
    Integers(Vec<usize>, Vec<i32>),
}

/// The numbers of an output.
pub(crate) struct Computed {
    pub(crate) shape: Vec<usize>,
    pub(crate) values: Vec<f32>,
}
