// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading an event writes its elements, and nothing behind the last one, into buffers at the end of mapped memory.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use engine::events::{
    AtomicComplete, AtomicStarted, CommunicatorCreated, CommunicatorFreed, ConnectionBegin, ConnectionEstablished,
    ConnectionFailed, DeviceAsync, FlushComplete, FlushStarted, GetComplete, GetStarted, MATCHING_TYPES, MatchingEvent,
    MsgArrived, Payload, PutComplete, PutStarted, QueuedBegin, QueuedEnd, ReceiverNotReady, RegistrationEvict,
    RegistrationMiss, TABLE, TypeId, XferBegin, XferContinue,
};

use super::*;
use crate::tool::mpi_t::MPI_T_event_get_info;

/// A writable page before an inaccessible one: writing past a buffer at its end is a fault.
struct Edge {
    start: NonNull<u8>,
    page: usize,
}

impl Edge {
    fn new() -> Edge {
        // SAFETY: `sysconf` takes no pointers.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).expect("there is a size");
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let start = unsafe { libc::mmap(null_mut(), 2 * page, access, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        let start = NonNull::new(start.cast::<u8>()).expect("not at 0");
        // SAFETY: the second page of that mapping, which nothing uses.
        assert_eq!(unsafe { libc::mprotect(start.as_ptr().wrapping_add(page).cast(), page, libc::PROT_NONE) }, 0);
        Edge { start, page }
    }

    fn last(&self, bytes: usize) -> *mut u8 {
        self.start.as_ptr().wrapping_add(self.page - bytes)
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`, which nothing uses any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), 2 * self.page) };
    }
}

/// Returns the size of the buffer that a tool needs by the displacements of `MPI_T_event_get_info`: up to the end of
/// the last element; and each element's displacement and size.
fn room(kind: TypeId) -> (usize, Vec<(usize, usize)>) {
    let elements = kind.row().elements;
    let (mut at, mut count) = (vec![0_isize; elements.len()], elements.len() as c_int);
    // SAFETY: the arrays have as many elements as `num_elements` says; other pointers are null.
    let code = unsafe {
        MPI_T_event_get_info(
            kind.index() as c_int,
            null_mut(),
            Out::NULL,
            Out::NULL,
            null_mut(),
            at.as_mut_ptr(),
            Out::to(&mut count),
            Out::NULL,
            Out::NULL,
            null_mut(),
            Out::NULL,
            Out::NULL,
        )
    };
    assert_eq!((code, count), (0, elements.len() as c_int));
    let elements: Vec<_> =
        at.iter().zip(elements).map(|(at, element)| (at.cast_unsigned(), element.element_type.size())).collect();
    (elements.iter().map(|(at, size)| at + size).max().expect("there are elements"), elements)
}

struct Wanted {
    edge: Edge,
    room: usize,
    elements: Vec<(usize, usize)>,
    copied: AtomicUsize,
}

/// First copies into a buffer with room behind it, because a failed comparison says more than a fault.
extern "C" fn copies(instance: InstancePointer, _: RegistrationHandle, _: c_int, wanted: &Wanted) {
    let mut whole = [0xee_u8; 128];
    // SAFETY: the instance belongs to this callback, and the buffers have the size that the tool interface reports.
    unsafe {
        assert_eq!(MPI_T_event_copy(instance, whole.as_mut_ptr().cast()), 0);
        assert_eq!(whole[wanted.room..], [0xee; 128][wanted.room..], "nothing behind the last element");
        assert!(!whole[..wanted.room].contains(&0xee), "all of the elements");
        assert_eq!(MPI_T_event_copy(instance, wanted.edge.last(wanted.room).cast()), 0);
        for (index, &(at, size)) in wanted.elements.iter().enumerate() {
            let buffer = wanted.edge.last(size);
            assert_eq!(MPI_T_event_read(instance, index as c_int, buffer.cast()), 0);
            assert_eq!(std::slice::from_raw_parts(buffer, size), &whole[at..at + size]);
        }
    }
    wanted.copied.fetch_add(1, Ordering::Relaxed);
}

fn is_copied(copied: &mut Vec<TypeId>, kind: TypeId, raise: impl FnOnce()) {
    let name = std::ffi::CString::new(format!("ibex_{}", kind.row().name)).expect("a name");
    let (room, elements) = room(kind);
    let wanted = Wanted { edge: Edge::new(), room, elements, copied: AtomicUsize::new(0) };
    let registration = registered(&name, 2, &wanted, copies);
    raise();
    free(registration);
    assert_eq!(wanted.copied.into_inner(), 1, "{name:?}");
    copied.push(kind);
}

fn raised_by_the_engine<P: Payload + Default>(copied: &mut Vec<TypeId>) {
    is_copied(copied, P::TYPE, || events::raise(Safety::MpiRestricted, P::default));
}

fn kept_for_later(copied: &mut Vec<TypeId>, kind: TypeId) {
    let instance = MatchingEvent::default().instance(kind, events::matching_source(), events::stamp());
    is_copied(copied, kind, || events::keep(&events::all().pop().expect("just made"), &instance));
}

#[test]
fn a_copy_of_an_event_of_any_type_fits_a_buffer_that_ends_with_its_last_element() {
    let _alone = alone();
    let mut copied = Vec::new();
    macro_rules! are_copied {
        ($($type:ident)*) => { $( raised_by_the_engine::<$type>(&mut copied); )* };
    }
    are_copied! {
        XferBegin XferContinue XferEnd MsgArrived PutStarted PutComplete GetStarted GetComplete AtomicStarted AtomicComplete
        FlushStarted FlushComplete
        ConnectionBegin ConnectionEstablished ConnectionFailed QueuedBegin QueuedEnd ReceiverNotReady
        RegistrationMiss RegistrationEvict DeviceAsync PortAsync CommunicatorCreated CommunicatorFreed
    }
    (0..MATCHING_TYPES).filter_map(TypeId::of_matching).for_each(|kind| kept_for_later(&mut copied, kind));
    for (index, row) in TABLE.iter().enumerate() {
        assert!(TypeId::from_index(index).is_some_and(|kind| copied.contains(&kind)), "add {} to this test", row.name);
    }
}
