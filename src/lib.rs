//! The engine of ibex.
#![forbid(unsafe_code)]
