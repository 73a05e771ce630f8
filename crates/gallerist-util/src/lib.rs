//! What several crates need and no published crate has: files that are replaced atomically ([`files`]), huge pages and
//! prefetch ([`memory`]), code compiled for the CPU's widest instruction set ([`simd`]), the end of long computations
//! ([`interrupt`]), digests in hexadecimal ([`hex`]), groups of linked numbers ([`disjoint`]), protocol buffers
//! ([`protobuf`]), parts chosen by name ([`registry`]), equal parts of a long list ([`shard`]), values chosen by name ([`named_values`](mod@named_values)),
//! suggestions for misspelt names ([`text`]), locks and threads that a model can control ([`sync`]).

pub mod disjoint;
pub mod files;
pub mod hex;
pub mod interrupt;
pub mod memory;
pub mod named_values;
pub mod panics;
pub mod protobuf;
pub mod random;
pub mod registry;
pub mod shard;
pub mod simd;
pub mod sync;
pub mod text;
