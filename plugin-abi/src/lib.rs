//! What calls ibex.
