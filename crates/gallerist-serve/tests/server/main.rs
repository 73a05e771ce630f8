//! The server from outside: real connections to a small gallery.

mod access;
mod attacks;
mod audit;
mod changes;
mod clients;
mod columns;
mod common;
mod database;
mod galleries;
mod histogram;
mod operation;
mod queries;
mod refusals;
mod regions;
mod reload;
mod requests;
mod saved;
mod search;
mod texts;
mod tls;
mod together;
mod views;
