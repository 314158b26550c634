//! What ibex calls, made safe.
