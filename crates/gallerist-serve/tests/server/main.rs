//! The server from outside: real connections to a small gallery.

mod common;
mod refusals;
mod search;
mod views;
