// SPDX-License-Identifier: MIT OR Apache-2.0
//! What C calls of an address vector.
//!
//! Grade: setup. Threads: any. Tests: `tests/`.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use ibex::select::address::compact::CompactAddress;

use super::AddressVector;
use crate::cq;
use crate::domain::Domain;
use crate::entry::{call, done, table};
use crate::eq::EventQueue;
use crate::fid::{self, give, head, object, object_if, pointer};
use crate::{log, sys};

static OPERATIONS: sys::fi_ops = table!(fi_ops {
    close: fid::close::<AddressVector>, bind: bind;
    absent: control, ops_open, tostr, ops_set,
});

static FUNCTIONS: sys::fi_ops_av = table!(fi_ops_av {
    insert: insert, remove: remove, lookup: lookup, straddr: straddr;
    absent: insertsvc, insertsym, av_set,
});

/// `fi_av_open`. Insertion is synchronous (not `FI_EVENT`), and no vector is shared by name.
///
/// # Safety
/// F1, F2.
pub(crate) unsafe extern "C" fn open(
    domain: *mut sys::fid_domain,
    attributes: *mut sys::fi_av_attr,
    place: *mut *mut sys::fid_av,
    context: *mut c_void,
) -> c_int {
    done("fi_av_open", || {
        // SAFETY: F1, F2.
        let (domain, attributes) = unsafe { (object::<Domain>(domain), attributes.as_mut()) };
        let attributes = attributes.ok_or(sys::FI_EINVAL)?;
        if attributes.flags & sys::FI_EVENT != 0 || attributes.rx_ctx_bits > 0 {
            return Err(sys::FI_ENOSYS);
        }
        // A hint: the same number of endpoints on each node.
        if attributes.flags & !sys::FI_SYMMETRIC != 0 {
            return Err(sys::FI_EBADFLAGS);
        }
        if !attributes.name.is_null() {
            log::refused(sys::FI_LOG_AV, "address vectors cannot be shared between processes (fi_av_attr.name)");
            return Err(sys::FI_ENOSYS);
        }
        match attributes.type_ {
            sys::FI_AV_UNSPEC => attributes.type_ = sys::FI_AV_TABLE,
            sys::FI_AV_MAP | sys::FI_AV_TABLE => {}
            _ => return Err(sys::FI_EINVAL),
        }
        let vector = Arc::new(AddressVector::new(Arc::clone(domain)));
        let fid = head::<AddressVector>(context, &OPERATIONS);
        // SAFETY: F2.
        unsafe { give(sys::fid_av { fid, ops: pointer(&FUNCTIONS) }, vector, place) }
    })
}

/// `fi_av_bind`: an event queue, which gets no event because insertion is synchronous.
unsafe extern "C" fn bind(_: *mut sys::fid, other: *mut sys::fid, _: u64) -> c_int {
    // SAFETY: F1.
    done("fi_av_bind", || unsafe { object_if::<EventQueue>(other) }.map(|_| ()).ok_or(sys::FI_EINVAL))
}

/// `fi_av_insert`. Returns the number of addresses that are inserted. With `FI_SYNC_ERR` the context is an array of
/// error numbers.
unsafe extern "C" fn insert(
    vector: *mut sys::fid_av,
    addresses: *const c_void,
    count: usize,
    places: *mut sys::fi_addr_t,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    call("fi_av_insert", || {
        if flags & !(sys::FI_MORE | sys::FI_SYNC_ERR) != 0 {
            return Err(sys::FI_EBADFLAGS);
        }
        let reports_errors = flags & sys::FI_SYNC_ERR != 0;
        if count > 0 && (addresses.is_null() || reports_errors && context.is_null()) {
            return Err(sys::FI_EINVAL);
        }
        // SAFETY: F1.
        let vector = unsafe { object::<AddressVector>(vector) };
        let errors = if reports_errors { context.cast::<c_int>() } else { std::ptr::null_mut() };
        let mut successes = 0;
        for index in 0..count {
            // SAFETY: F2: the program passes `count` addresses as `fi_getname` gives them.
            let bytes = unsafe { addresses.cast::<[u8; CompactAddress::SIZE]>().add(index).read() };
            let (place, error) = match CompactAddress::decode(&bytes) {
                Ok(address) => (vector.insert(address), 0),
                Err(error) => {
                    log::line(sys::FI_LOG_WARN, sys::FI_LOG_AV, &format!("address {index} of {count}: {error}"));
                    (sys::FI_ADDR_NOTAVAIL, sys::FI_EINVAL as c_int)
                }
            };
            successes += c_int::from(error == 0);
            // SAFETY: F2: both arrays have `count` elements, or are not there.
            unsafe {
                if !places.is_null() {
                    places.add(index).write(place);
                }
                if !errors.is_null() {
                    errors.add(index).write(error);
                }
            }
        }
        Ok(successes)
    })
}

/// `fi_av_remove`.
unsafe extern "C" fn remove(vector: *mut sys::fid_av, places: *mut sys::fi_addr_t, count: usize, _: u64) -> c_int {
    done("fi_av_remove", || {
        // SAFETY: F1.
        let vector = unsafe { object::<AddressVector>(vector) };
        // SAFETY: F2: `places` has `count` elements. The first error is returned, and the others are removed.
        let removed = (0..count).map(|index| vector.remove(unsafe { places.add(index).read() }));
        removed.collect::<Vec<_>>().into_iter().collect()
    })
}

/// `fi_av_lookup`.
unsafe extern "C" fn lookup(
    vector: *mut sys::fid_av,
    place: sys::fi_addr_t,
    buffer: *mut c_void,
    length: *mut usize,
) -> c_int {
    done("fi_av_lookup", || {
        // SAFETY: F1, F2.
        let (vector, length) = unsafe { (object::<AddressVector>(vector), length.as_mut()) };
        let (length, address) = (length.ok_or(sys::FI_EINVAL)?, vector.get(place).ok_or(sys::FI_EINVAL)?);
        // SAFETY: F2: the buffer has `length` bytes.
        unsafe { put(&address.encode(), buffer, length) };
        Ok(())
    })
}

/// Copies as much of an address as fits, and stores its length. Returns whether it fits.
///
/// # Safety
/// F2: `buffer` is null or has `length` bytes.
pub(crate) unsafe fn put(address: &[u8], buffer: *mut c_void, length: &mut usize) -> bool {
    let fits = if buffer.is_null() { 0 } else { address.len().min(*length) };
    if fits > 0 {
        // SAFETY: F2.
        unsafe { std::ptr::copy_nonoverlapping(address.as_ptr(), buffer.cast(), fits) };
    }
    *length = address.len();
    fits == address.len()
}

/// `fi_av_straddr`.
unsafe extern "C" fn straddr(
    _: *mut sys::fid_av,
    address: *const c_void,
    buffer: *mut c_char,
    length: *mut usize,
) -> *const c_char {
    call("fi_av_straddr", || {
        // SAFETY: F2.
        let length = unsafe { length.as_mut() }.ok_or(sys::FI_EINVAL)?;
        // SAFETY: F2: an address as `fi_getname` gives it.
        let bytes = unsafe { address.cast::<[u8; CompactAddress::SIZE]>().as_ref() }.ok_or(sys::FI_EINVAL)?;
        let text = match CompactAddress::decode(bytes) {
            Ok(address) => format!("ibex://{} instance {:x}", address.entry.address, address.entry.address.instance),
            Err(error) => error.to_string(),
        };
        // SAFETY: F2: the buffer has `length` bytes.
        let copied = unsafe { cq::copy(text.as_bytes(), buffer, *length) };
        *length = text.len() + 1;
        Ok(copied.unwrap_or(buffer))
    })
}
