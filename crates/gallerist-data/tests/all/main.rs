//! Tests through the public interface, in one program to link.

mod augment;
mod common;
mod decode;
mod inspect;
mod layout;
mod loader;
mod one_shot;
mod random;
mod source;
mod store;
mod transform;
