//! Descriptors of cuDNN's graph API, in which a plan is made once and executed often; the older calls make one at every call.

use std::ffi::c_void;
use std::ptr;

use cudarc::cudnn::sys as dnn;
use dnn::cudnnBackendAttributeName_t as Name;
use dnn::cudnnBackendAttributeType_t as Type;
use dnn::cudnnBackendDescriptorType_t as Kind;

use super::library::{Outcome, checked};

/// A descriptor, which is destroyed when it is dropped.
pub(super) struct Descriptor(dnn::cudnnBackendDescriptor_t);

/// Values of attributes, with cuDNN's name of their type.
pub(super) trait Value: Copy {
    const TYPE: Type;
}

impl Value for i64 {
    const TYPE: Type = Type::CUDNN_TYPE_INT64;
}

impl Value for f32 {
    const TYPE: Type = Type::CUDNN_TYPE_FLOAT;
}

impl Value for dnn::cudnnDataType_t {
    const TYPE: Type = Type::CUDNN_TYPE_DATA_TYPE;
}

impl Value for dnn::cudnnConvolutionMode_t {
    const TYPE: Type = Type::CUDNN_TYPE_CONVOLUTION_MODE;
}

impl Value for dnn::cudnnBackendHeurMode_t {
    const TYPE: Type = Type::CUDNN_TYPE_HEUR_MODE;
}

impl Value for dnn::cudnnHandle_t {
    const TYPE: Type = Type::CUDNN_TYPE_HANDLE;
}

impl Value for *mut c_void {
    const TYPE: Type = Type::CUDNN_TYPE_VOID_PTR;
}

/// A behaviour note of an engine, as a number: a newer cuDNN has more of them than the enum.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Note(u32);

impl Note {
    /// Kernels are compiled when a plan is made, which takes seconds.
    pub(super) const RUNTIME_COMPILATION: Note =
        Note(dnn::cudnnBackendBehaviorNote_t::CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION as u32);
}

impl Value for Note {
    const TYPE: Type = Type::CUDNN_TYPE_BEHAVIOR_NOTE;
}

impl Descriptor {
    pub(super) fn new(kind: Kind) -> Outcome<Self> {
        let mut descriptor = ptr::null_mut();
        // SAFETY: `descriptor` is a place for a descriptor.
        let status = unsafe { dnn::cudnnBackendCreateDescriptor(kind, &mut descriptor) };
        checked("cudnnBackendCreateDescriptor", status)?;
        Ok(Descriptor(descriptor))
    }

    pub(super) fn with<T: Value>(self, name: Name, values: &[T]) -> Outcome<Self> {
        self.set(name, T::TYPE, values)?;
        Ok(self)
    }

    /// Refers to other descriptors, which must be finished.
    pub(super) fn with_parts(self, name: Name, parts: &[&Descriptor]) -> Outcome<Self> {
        let parts: Vec<dnn::cudnnBackendDescriptor_t> = parts.iter().map(|part| part.0).collect();
        self.set(name, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, &parts)?;
        Ok(self)
    }

    fn set<T>(&self, name: Name, of: Type, values: &[T]) -> Outcome<()> {
        let (count, values) = (values.len() as i64, values.as_ptr().cast());
        // SAFETY: cuDNN reads `count` values of the type `of`, which is that of `T`, and refuses an attribute of another type.
        let status = unsafe { dnn::cudnnBackendSetAttribute(self.0, name, of, count, values) };
        checked(&format!("cudnnBackendSetAttribute of {name:?}"), status)
    }

    /// Checks the attributes; they cannot be changed any more.
    pub(super) fn finished(self) -> Outcome<Self> {
        // SAFETY: the descriptor exists.
        checked("cudnnBackendFinalize", unsafe { dnn::cudnnBackendFinalize(self.0) })?;
        Ok(self)
    }

    /// The first `most` values of an attribute.
    pub(super) fn values<T: Value + Default>(&self, name: Name, most: usize) -> Outcome<Vec<T>> {
        let mut values = vec![T::default(); most];
        let found = self.read(name, T::TYPE, &mut values)?;
        values.truncate(found);
        Ok(values)
    }

    /// The first `most` descriptors of the kind `kind` that an attribute refers to.
    pub(super) fn parts(&self, name: Name, kind: Kind, most: usize) -> Outcome<Vec<Descriptor>> {
        let mut parts: Vec<Descriptor> = (0..most).map(|_| Descriptor::new(kind)).collect::<Outcome<_>>()?;
        let mut places: Vec<dnn::cudnnBackendDescriptor_t> = parts.iter().map(|part| part.0).collect();
        let found = self.read(name, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, &mut places)?;
        parts.truncate(found);
        Ok(parts)
    }

    fn read<T>(&self, name: Name, of: Type, values: &mut [T]) -> Outcome<usize> {
        let mut found = 0;
        let (most, values_at) = (values.len() as i64, values.as_mut_ptr().cast());
        // SAFETY: cuDNN writes at most `most` values of the type `of`, which is that of `T`; descriptors are filled in place.
        let status = unsafe { dnn::cudnnBackendGetAttribute(self.0, name, of, most, &mut found, values_at) };
        checked(&format!("cudnnBackendGetAttribute of {name:?}"), status)?;
        Ok(usize::try_from(found).unwrap_or(0).min(values.len()))
    }

    /// Starts a plan on the stream of `handle`.
    ///
    /// # Safety
    ///
    /// The variant pack `operands` has the addresses of memory of the sizes that the plan's tensors describe, and scratch memory of the
    /// size that the plan asks for.
    pub(super) unsafe fn execute(&self, handle: dnn::cudnnHandle_t, operands: &Descriptor) -> Outcome<()> {
        // SAFETY: plan and pack are finished; their memory is the caller's promise.
        checked("cudnnBackendExecute", unsafe { dnn::cudnnBackendExecute(handle, self.0, operands.0) })
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: the descriptor exists and is destroyed once. There is nothing to do about a failure.
        let _ = unsafe { dnn::cudnnBackendDestroyDescriptor(self.0) };
    }
}
