//! Tests through the public interface, in one program to link.

mod augment;
mod common;
mod decode;
mod fifo;
mod inspect;
mod layout;
mod loader;
mod one_shot;
mod own;
mod random;
mod shards;
mod source;
mod splits;
mod store;
mod tar;
mod transform;
