//! Tests through the public interface, in one program to link.

mod common;
mod decode;
mod loader;
mod random;
mod source;
mod transform;
