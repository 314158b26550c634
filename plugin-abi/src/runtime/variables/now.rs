// SPDX-License-Identifier: MIT OR Apache-2.0
//! Current values of the parameters that tools may write while MPI runs. Open MPI does not notify ibex when a tool
//! writes a control variable. So each use reads the variable's storage; it replaces a value out of bounds by the
//! nearest one in bounds, with a message. Grade: setup, except [`eager_limit_as_written`]: hot. Threads: any. Tests:
//! below, `tests/tool/parameters.c` and `hw-tests/tools/mpi_t_parameters.c`.

use std::fmt::Display;
use std::sync::atomic::Ordering;

use engine::tunables::TABLE;

use super::{PLACES, Places};
use crate::runtime::messages;

const VERBOSE: usize = place_of("verbose");
const EVENT_BUFFER: usize = place_of("event_buffer");
const EVENT_BUFFERED: usize = place_of("event_buffered");
const EAGER_LIMIT: usize = place_of("eager_limit");

const fn place_of(name: &str) -> usize {
    let mut index = 0;
    while !is_same(TABLE[index].name.as_bytes(), name.as_bytes()) {
        index += 1;
    }
    index
}

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    let mut index = 0;
    while index < one.len() && index < other.len() && one[index] == other[index] {
        index += 1;
    }
    index == one.len() && index == other.len()
}

pub(crate) fn verbosity() -> u64 {
    PLACES.permitted(VERBOSE, u64::MAX, messages::written_parameter)
}

/// Returns whether events are buffered for a registration that does not specify it.
pub(crate) fn default_buffered() -> bool {
    PLACES.flag(EVENT_BUFFERED)
}

/// Returns the number of events in the buffer of a registration that does not specify it.
pub(crate) fn default_room() -> usize {
    PLACES.permitted(EVENT_BUFFER, u64::MAX, messages::written_parameter) as usize
}

/// Returns the size in bytes, header included, of the longest message that the PML sends eagerly; at most `most`.
pub(crate) fn eager_limit(most: usize) -> usize {
    PLACES.permitted(EAGER_LIMIT, most as u64, messages::written_parameter) as usize
}

/// Returns the stored eager limit, which a tool may have set to a value out of bounds. Hot.
#[inline(always)]
pub(crate) fn eager_limit_as_written() -> usize {
    PLACES.counts[EAGER_LIMIT].load(Ordering::Relaxed) as usize
}

/// Stores the eager limit with which the PML starts: a receive slot may be smaller than the user requested.
pub(crate) fn begin_eager_limit(limit: usize) {
    PLACES.counts[EAGER_LIMIT].store(limit as u64, Ordering::Relaxed);
}

impl Places {
    /// Returns a count, or the nearest value in bounds, which is then stored and passed to `say`. Until a component has
    /// read the parameters, it is neither stored nor passed to `say`: the component will refuse the value.
    fn permitted(&self, index: usize, most: u64, say: impl FnOnce(&dyn Display, u64)) -> u64 {
        let count = self.count(index);
        let Some((nearest, refusal)) = TABLE[index].nearest(count, most) else { return count };
        self.correct(index, count, nearest, |nearest| say(&refusal, nearest));
        nearest
    }

    #[cold]
    fn correct(&self, index: usize, count: u64, nearest: u64, say: impl FnOnce(u64)) {
        let place = &self.counts[index];
        // If a tool has written it again meanwhile, the next read checks that value.
        if self.is_read.load(Ordering::Relaxed)
            && place.compare_exchange(count, nearest, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            say(nearest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::tunables::Writable;

    #[test]
    fn this_module_reads_every_variable_that_tools_may_write_while_mpi_runs() {
        let mut here = [VERBOSE, EVENT_BUFFER, EVENT_BUFFERED, EAGER_LIMIT];
        here.sort_unstable();
        let writable =
            |(index, row): (usize, &engine::tunables::Row)| (row.writable == Writable::Always).then_some(index);
        assert_eq!(TABLE.iter().enumerate().filter_map(writable).collect::<Vec<_>>(), here);
    }

    #[test]
    fn permitted_moves_a_value_that_a_tool_wrote_into_its_bounds_with_one_message() {
        let places = Places::new();
        places.is_read.store(true, Ordering::Relaxed);
        let mut said = Vec::new();
        let mut read = |written: Option<u64>| {
            if let Some(written) = written {
                places.counts[EAGER_LIMIT].store(written, Ordering::Relaxed);
            }
            places.permitted(EAGER_LIMIT, 4096, |refusal, used| said.push(format!("{refusal}; {used}")))
        };
        assert_eq!((read(Some(64)), read(Some(4096))), (64, 4096));
        assert_eq!((read(Some(10)), read(None), read(Some(1 << 20)), read(None)), (64, 64, 4096, 4096));
        assert_eq!(places.count(EAGER_LIMIT), 4096);
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[0].contains("pml_ibex_eager_limit is 10, but may be 64 to 4096") && said[0].ends_with("; 64"));
    }

    #[test]
    fn before_mpi_init_a_value_out_of_bounds_stays_for_mpi_init_to_refuse() {
        let places = Places::new();
        places.counts[EVENT_BUFFER].store(0, Ordering::Relaxed);
        assert_eq!(places.permitted(EVENT_BUFFER, u64::MAX, |_, _| panic!("it is refused later")), 1);
        assert_eq!(places.count(EVENT_BUFFER), 0);
    }
}
