//! Where device tests run.
