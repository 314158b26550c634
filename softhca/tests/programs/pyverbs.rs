// SPDX-License-Identifier: MIT OR Apache-2.0
//! rdma-core's own test suite, which Debian ships with its Python binding as documentation, packed.

use std::time::Duration;

use super::case::{Case, Judge};

/// Unpacks and runs the suite. That of rdma-core 56 asks the kernel for network interfaces of the adapters by `rdma link
/// show`, which fails where the kernel has no RDMA, and by `cat` for a partition key. It knows of no emulated adapter: two programs
/// of that name answer for it.
pub(crate) fn pyverbs() -> Case {
    let script = "packed=/usr/share/doc/rdma-core/tests; \
         [ -d $packed ] || { echo \"$packed is not there: is python3-pyverbs installed, with its documentation?\"; exit 1; }; \
         suite=$(mktemp -d) && cp -r $packed $suite/ && cd $suite/tests && \
         mkdir $suite/bin && export PATH=$suite/bin:$PATH && \
         printf '#!/bin/sh\\necho \"[]\"\\n' >$suite/bin/rdma && \
         printf '#!/bin/sh\\ncase $1 in */pkeys/0) echo 0xffff ;; *) exec /bin/cat \"$@\" ;; esac\\n' >$suite/bin/cat && \
         chmod +x $suite/bin/* && \
         find . -name '*.gz' -exec gunzip {} + && /usr/bin/python3 run_tests.py -v --dev softhca0; \
         status=$?; rm -rf $suite; exit $status";
    let (name, script) = ("pyverbs".to_owned(), script.to_owned());
    Case { name, script, judge: Judge::Suite, config: None, limit: Duration::from_mins(20) }
}
