//! Python's pickle, as far as PyTorch writes tensors with it, without executing anything.
//!
//! A pickle is a program for a stack machine that can call any function of Python. This machine knows
//! numbers, strings, containers and [`Known`] names: what makes tensors. A pickle that names anything else is
//! refused with that name.
//!
//! Containers are stored in an arena and referenced by index, so that neither deep nesting nor cycles cost stack or
//! memory.
//!
//! Hand-written because the crate for it, `pytorch-reader`, exists as a pre-release only (0.23.0-pre.1) at the time of
//! writing. It can replace this module once it is released and passes the tests of damaged and malicious files.

use std::collections::HashMap;
use std::rc::Rc;

/// A name that a pickle may refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    OrderedDict,
    RebuildTensor,
    RebuildParameter,
    Size,
    /// A class of storages, by its type of element.
    Storage(&'static str),
}

impl Known {
    fn find(module: &str, name: &str) -> Option<Self> {
        Some(match (module, name) {
            ("collections", "OrderedDict") => Known::OrderedDict,
            ("torch._utils", "_rebuild_tensor_v2" | "_rebuild_tensor") => Known::RebuildTensor,
            ("torch._utils", "_rebuild_parameter") => Known::RebuildParameter,
            ("torch", "Size") => Known::Size,
            ("torch", storage) => Known::Storage(match storage {
                "DoubleStorage" => "f64",
                "FloatStorage" => "f32",
                "HalfStorage" => "f16",
                "BFloat16Storage" => "bf16",
                "LongStorage" => "i64",
                "IntStorage" => "i32",
                "ShortStorage" => "i16",
                "CharStorage" => "i8",
                "ByteStorage" => "u8",
                "BoolStorage" => "bool",
                _ => return None,
            }),
            _ => return None,
        })
    }
}

/// A value on the stack. Containers are indices into the arena.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    None,
    Bool(bool),
    Int(i64),
    /// An integer of more than 64 bits, little endian.
    Long(Vec<u8>),
    Float(f64),
    /// Copies of it share it: a pickle can recall a long text any number of times.
    Text(Rc<str>),
    Bytes,
    Tuple(usize),
    List(usize),
    Dict(usize),
    Known(Known),
    /// A persistent id, by its index.
    Storage(usize),
    Tensor(usize),
}

/// A tensor that a pickle describes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TensorOf {
    /// Index among the persistent ids.
    pub(super) storage: usize,
    pub(super) offset: usize,
    pub(super) shape: Vec<usize>,
    pub(super) strides: Vec<usize>,
}

/// A storage that a pickle refers to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct StorageOf {
    /// Type of an element: `f32`, …
    pub(super) element: &'static str,
    /// Its name in the file.
    pub(super) key: Rc<str>,
    /// Number of elements.
    pub(super) count: usize,
}

/// What went wrong.
#[derive(Debug, PartialEq)]
pub(super) enum Fault {
    /// The pickle refers to a function or class that is not known here.
    Foreign(String),
    /// The pickle is cut short or damaged, or of a kind that PyTorch does not write.
    Damaged(String),
}

/// Values that calls may copy, for each byte of a pickle. PyTorch recalls small tuples only.
const COPIES_PER_BYTE: usize = 8;

/// Sides of a tensor. PyTorch computes with no more.
const MAX_SIDES: usize = 64;

type PickleResult<T> = Result<T, Fault>;

fn damaged<T>(reason: impl Into<String>) -> PickleResult<T> {
    Err(Fault::Damaged(reason.into()))
}

/// The machine.
pub(super) struct Pickle<'a> {
    bytes: &'a [u8],
    position: usize,
    stack: Vec<Value>,
    marks: Vec<usize>,
    memo: HashMap<u32, Value>,
    sequences: Vec<Vec<Value>>,
    dicts: Vec<Vec<(Value, Value)>>,
    pub(super) storages: Vec<StorageOf>,
    /// The place of each storage in `storages`.
    places: HashMap<StorageOf, usize>,
    pub(super) tensors: Vec<TensorOf>,
    /// Values that calls have copied.
    copies: usize,
}

impl<'a> Pickle<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Pickle {
            bytes,
            position: 0,
            stack: Vec::new(),
            marks: Vec::new(),
            memo: HashMap::new(),
            sequences: Vec::new(),
            dicts: Vec::new(),
            storages: Vec::new(),
            places: HashMap::new(),
            tensors: Vec::new(),
            copies: 0,
        }
    }

    /// Bytes read so far: where the pickle ends that was just loaded.
    pub(super) fn position(&self) -> usize {
        self.position
    }

    pub(super) fn sequence(&self, value: &Value) -> Option<&[Value]> {
        match value {
            Value::Tuple(i) | Value::List(i) => Some(&self.sequences[*i]),
            _ => None,
        }
    }

    pub(super) fn dict(&self, value: &Value) -> Option<&[(Value, Value)]> {
        match value {
            Value::Dict(i) => Some(&self.dicts[*i]),
            _ => None,
        }
    }

    /// Reads one pickle from where the last one ended.
    pub(super) fn load(&mut self) -> PickleResult<Value> {
        self.stack.clear();
        self.marks.clear();
        self.memo.clear();
        loop {
            let code = self.take(1)?[0];
            if code == b'.' {
                return self.pop();
            }
            self.execute(code)?;
        }
    }

    fn execute(&mut self, code: u8) -> PickleResult<()> {
        match code {
            0x80 => drop(self.take(1)?), // PROTO
            0x95 => drop(self.take(8)?), // FRAME
            b'(' => self.marks.push(self.stack.len()),
            b'0' => drop(self.pop()?),
            b'1' => drop(self.pop_mark()?),
            b'2' => self.push(self.top()?.clone()),
            b'N' => self.push(Value::None),
            0x88 => self.push(Value::Bool(true)),
            0x89 => self.push(Value::Bool(false)),
            b'J' => {
                let value = i32::from_le_bytes(self.array()?);
                self.push(Value::Int(value.into()));
            }
            b'K' => {
                let value = self.take(1)?[0];
                self.push(Value::Int(value.into()));
            }
            b'M' => {
                let value = u16::from_le_bytes(self.array()?);
                self.push(Value::Int(value.into()));
            }
            0x8a => {
                let count = self.take(1)?[0];
                self.long(count.into())?;
            }
            b'G' => {
                let value = f64::from_be_bytes(self.array()?);
                self.push(Value::Float(value));
            }
            b'X' => {
                let count = self.length4()?;
                self.text(count)?;
            }
            0x8c => {
                let count = self.take(1)?[0];
                self.text(count.into())?;
            }
            // Strings of Python 2 are texts in the files in circulation.
            b'U' => {
                let count = self.take(1)?[0];
                self.text(count.into())?;
            }
            b'T' => {
                let count = self.length4()?;
                self.text(count)?;
            }
            b'B' => {
                let count = self.length4()?;
                self.take(count)?;
                self.push(Value::Bytes);
            }
            b'C' => {
                let count = self.take(1)?[0];
                self.take(count.into())?;
                self.push(Value::Bytes);
            }
            b'}' => {
                self.dicts.push(Vec::new());
                self.push(Value::Dict(self.dicts.len() - 1));
            }
            b']' => self.list(Vec::new()),
            b')' => self.tuple(Vec::new()),
            0x85..=0x87 => {
                let at = self.stack.len().checked_sub(usize::from(code - 0x84));
                let Some(at) = at else { return damaged("a tuple of more values than there are") };
                let values = self.stack.split_off(at);
                self.tuple(values);
            }
            b't' => {
                let values = self.pop_mark()?;
                self.tuple(values);
            }
            b'l' => {
                let values = self.pop_mark()?;
                self.list(values);
            }
            b'd' => {
                let pairs = pairs(self.pop_mark()?)?;
                self.dicts.push(pairs);
                self.push(Value::Dict(self.dicts.len() - 1));
            }
            b'a' => {
                let value = self.pop()?;
                self.append(vec![value])?;
            }
            b'e' => {
                let values = self.pop_mark()?;
                self.append(values)?;
            }
            b's' => {
                let value = self.pop()?;
                let key = self.pop()?;
                self.set(vec![(key, value)])?;
            }
            b'u' => {
                let pairs = pairs(self.pop_mark()?)?;
                self.set(pairs)?;
            }
            b'c' => {
                let module = self.line()?;
                let name = self.line()?;
                self.global(&module, &name)?;
            }
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                let (Value::Text(module), Value::Text(name)) = (module, name) else {
                    return damaged("a name that is no text");
                };
                self.global(&module, &name)?;
            }
            b'R' => {
                let (arguments, function) = (self.pop()?, self.pop()?);
                let made = self.call(&function, &arguments)?;
                self.push(made);
            }
            // The state of an object, e.g. `_metadata` of an OrderedDict: nothing that tensors need.
            b'b' => drop(self.pop()?),
            b'q' => {
                let index = self.take(1)?[0];
                self.memo.insert(index.into(), self.top()?.clone());
            }
            b'r' => {
                let index = u32::from_le_bytes(self.array()?);
                self.memo.insert(index, self.top()?.clone());
            }
            0x94 => {
                let index = self.memo.len() as u32;
                self.memo.insert(index, self.top()?.clone());
            }
            b'h' => {
                let index = self.take(1)?[0];
                self.recall(index.into())?;
            }
            b'j' => {
                let index = u32::from_le_bytes(self.array()?);
                self.recall(index)?;
            }
            b'Q' => {
                let id = self.pop()?;
                let storage = self.storage(&id)?;
                self.push(storage);
            }
            other => return damaged(format!("the operation {other:#04x} is none that PyTorch writes")),
        }
        Ok(())
    }

    fn take(&mut self, count: usize) -> PickleResult<&'a [u8]> {
        let Some(taken) = self.bytes[self.position..].get(..count) else {
            return damaged("it is cut short");
        };
        self.position += count;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> PickleResult<[u8; N]> {
        Ok(self.take(N)?.try_into().expect("taken to measure"))
    }

    fn length4(&mut self) -> PickleResult<usize> {
        Ok(u32::from_le_bytes(self.array()?) as usize)
    }

    fn line(&mut self) -> PickleResult<String> {
        let rest = &self.bytes[self.position..];
        let Some(length) = rest.iter().position(|&byte| byte == b'\n') else {
            return damaged("it is cut short");
        };
        let line = String::from_utf8_lossy(self.take(length + 1)?);
        Ok(line.trim_end_matches('\n').to_string())
    }

    fn push(&mut self, value: Value) {
        self.stack.push(value);
    }

    fn top(&self) -> PickleResult<&Value> {
        self.stack.last().map_or_else(|| damaged("the stack is empty"), Ok)
    }

    fn pop(&mut self) -> PickleResult<Value> {
        self.stack.pop().map_or_else(|| damaged("the stack is empty"), Ok)
    }

    fn pop_mark(&mut self) -> PickleResult<Vec<Value>> {
        match self.marks.pop() {
            Some(mark) if mark <= self.stack.len() => Ok(self.stack.split_off(mark)),
            _ => damaged("a mark is missing"),
        }
    }

    fn text(&mut self, count: usize) -> PickleResult<()> {
        let text = String::from_utf8_lossy(self.take(count)?).into_owned();
        self.push(Value::Text(text.into()));
        Ok(())
    }

    fn long(&mut self, count: usize) -> PickleResult<()> {
        let bytes = self.take(count)?;
        self.push(if count > 8 {
            Value::Long(bytes.to_vec())
        } else {
            let sign = if bytes.last().is_some_and(|byte| byte & 0x80 != 0) { 0xff } else { 0 };
            let mut wide = [sign; 8];
            wide[..count].copy_from_slice(bytes);
            Value::Int(i64::from_le_bytes(wide))
        });
        Ok(())
    }

    fn tuple(&mut self, values: Vec<Value>) {
        self.sequences.push(values);
        self.push(Value::Tuple(self.sequences.len() - 1));
    }

    fn list(&mut self, values: Vec<Value>) {
        self.sequences.push(values);
        self.push(Value::List(self.sequences.len() - 1));
    }

    fn append(&mut self, values: Vec<Value>) -> PickleResult<()> {
        let Value::List(list) = *self.top()? else { return damaged("something is appended to no list") };
        self.sequences[list].extend(values);
        Ok(())
    }

    fn set(&mut self, pairs: Vec<(Value, Value)>) -> PickleResult<()> {
        let Value::Dict(dict) = *self.top()? else { return damaged("an entry is set in no dictionary") };
        self.dicts[dict].extend(pairs);
        Ok(())
    }

    fn recall(&mut self, index: u32) -> PickleResult<()> {
        let Some(value) = self.memo.get(&index) else {
            return damaged("it refers to a value that it has not stored");
        };
        self.push(value.clone());
        Ok(())
    }

    fn global(&mut self, module: &str, name: &str) -> PickleResult<()> {
        let Some(known) = Known::find(module, name) else {
            return Err(Fault::Foreign(format!("{module}.{name}")));
        };
        self.push(Value::Known(known));
        Ok(())
    }

    /// What a call of a known name gives.
    fn call(&mut self, function: &Value, arguments: &Value) -> PickleResult<Value> {
        let Some(arguments) = self.sequence(arguments).map(<[Value]>::to_vec) else {
            return damaged("arguments that are no tuple");
        };
        self.copy(arguments.len())?;
        match function {
            Value::Known(Known::OrderedDict) => {
                // Empty, or from a list of pairs.
                let given = arguments.first().and_then(|given| self.sequence(given)).unwrap_or(&[]).to_vec();
                let pair = |value: &Value| match self.sequence(value) {
                    Some([key, value]) => Ok((key.clone(), value.clone())),
                    _ => damaged("an entry of a dictionary that is no pair"),
                };
                let pairs = given.iter().map(pair).collect::<PickleResult<Vec<_>>>()?;
                self.copy(pairs.len())?;
                self.dicts.push(pairs);
                Ok(Value::Dict(self.dicts.len() - 1))
            }
            Value::Known(Known::Size) => {
                arguments.into_iter().next().map_or_else(|| damaged("a size without numbers"), Ok)
            }
            Value::Known(Known::RebuildParameter) => match arguments.into_iter().next() {
                Some(tensor @ Value::Tensor(_)) => Ok(tensor),
                _ => damaged("a parameter that is no tensor"),
            },
            Value::Known(Known::RebuildTensor) => {
                let [Value::Storage(storage), Value::Int(offset), shape, strides, ..] = &arguments[..] else {
                    return damaged("a tensor whose description is incomplete");
                };
                let (shape, strides) = (self.sizes(shape)?, self.sizes(strides)?);
                self.copy(shape.len() + strides.len())?;
                if shape.len() > MAX_SIDES {
                    return damaged(format!("a tensor of {} sides", shape.len()));
                }
                if shape.len() != strides.len() {
                    return damaged("a tensor of as many sides as it has strides is wanted");
                }
                let tensor = TensorOf { storage: *storage, offset: size(*offset)?, shape, strides };
                self.tensors.push(tensor);
                Ok(Value::Tensor(self.tensors.len() - 1))
            }
            _ => damaged("something is called that is no function"),
        }
    }

    /// Counts values that a call copies: a tuple or list can be recalled for any number of calls.
    fn copy(&mut self, count: usize) -> PickleResult<()> {
        self.copies += count;
        match self.copies > COPIES_PER_BYTE * self.bytes.len() {
            true => damaged("its calls copy many times as many values as it has"),
            false => Ok(()),
        }
    }

    fn sizes(&self, value: &Value) -> PickleResult<Vec<usize>> {
        let Some(values) = self.sequence(value) else { return damaged("a shape that is no tuple") };
        values
            .iter()
            .map(|value| match value {
                Value::Int(side) => size(*side),
                _ => damaged("a side that is no integer"),
            })
            .collect()
    }

    /// `("storage", class, key, location, count, …)`.
    fn storage(&mut self, id: &Value) -> PickleResult<Value> {
        let Some(
            [Value::Text(kind), Value::Known(Known::Storage(element)), key, _, Value::Int(count), view @ ..],
        ) = self.sequence(id)
        else {
            return damaged("a persistent id that is no storage");
        };
        let key = match key {
            Value::Text(key) => key.clone(),
            Value::Int(key) => key.to_string().into(),
            _ => return damaged("a storage without a name"),
        };
        if &**kind != "storage" || !matches!(view, [] | [Value::None]) {
            return damaged("a storage that is a part of another");
        }
        let storage = StorageOf { element, key, count: size(*count)? };
        let at = *self.places.entry(storage).or_insert_with_key(|storage| {
            self.storages.push(storage.clone());
            self.storages.len() - 1
        });
        Ok(Value::Storage(at))
    }
}

fn size(value: i64) -> PickleResult<usize> {
    usize::try_from(value).or_else(|_| damaged(format!("a size of {value}")))
}

fn pairs(values: Vec<Value>) -> PickleResult<Vec<(Value, Value)>> {
    if values.len() % 2 == 1 {
        return damaged("a key without a value");
    }
    let mut values = values.into_iter();
    Ok(std::iter::from_fn(|| Some((values.next()?, values.next()?))).collect())
}
