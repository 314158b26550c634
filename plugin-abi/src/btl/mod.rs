// SPDX-License-Identifier: MIT OR Apache-2.0
//! The BTL: the component for ob1 and osc/rdma, by Open MPI's `opal/mca/btl/btl.h`. `component` (once per process)
//! makes the modules, `settings` checks the user's parameters; `module` is one per port, and `functions` its function
//! table; `procs` and `endpoint` are about peers. The data path is `two_sided` (messages) and `one_sided` (puts, gets,
//! atomics); `token` names their records for the engine. `progress` and `completion` process completions, `failures`
//! reports failures, `watch` raises events while a tool listens.

mod completion;
mod component;
mod endpoint;
mod failures;
mod functions;
mod module;
mod one_sided;
mod procs;
mod progress;
mod settings;
mod token;
mod two_sided;
mod watch;
