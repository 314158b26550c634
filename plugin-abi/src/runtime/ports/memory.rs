// SPDX-License-Identifier: MIT OR Apache-2.0
//! Registered memory, over Open MPI's `grdma` cache. Open MPI asks for a registration before it puts, gets or sends
//! without copying; the cache keeps it for later use. The handle that Open MPI sends to peers is 8 bytes of plain data,
//! `{rkey, lkey}`, and may be copied to any alignment. Called by both components. Grade: pending (a hit in the cache
//! makes no system call). Threads: any; nothing here enters the port. Tests: below. Why R3 holds: Open MPI deregisters
//! a handle when the operations that name it have completed (`btl.h`, `btl_put`), and a descriptor gives its
//! registration back when it is freed, after its completion.

use std::ffi::{CString, c_int, c_void};
use std::io;
use std::mem::{MaybeUninit, offset_of};
use std::ptr::NonNull;
use std::sync::Arc;

use engine::counters::{Counters, add_shared};
use engine::events;
use engine::flight::{self, Kind, NOBODY};
use engine::transport::{Atomics, Port};
use ibex_ffi::openmpi::cache::Cache;
use ibex_ffi::openmpi::{sys, unmapped};
use ibex_ffi::verbs::{Access, MemoryRegion, ProtectionDomain};

use crate::runtime::entry::{Argument, entry2, entry4};
use crate::runtime::guard::fence;
use crate::runtime::{messages, watch};

/// Keys of registered memory, as ob1's headers carry them, at any alignment: `rkey` for peers, `lkey` for this process.
#[repr(C, packed)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegistrationHandle {
    pub(crate) rkey: u32,
    pub(crate) lkey: u32,
}

pub(crate) const HANDLE_SIZE: usize = size_of::<RegistrationHandle>();

/// Record of the cache: Open MPI's part, then ibex's.
#[repr(C)]
pub(crate) struct Registration {
    base: sys::mca_rcache_base_registration_t,
    /// Present from [`register`] on.
    handle: MaybeUninit<RegistrationHandle>,
    /// Present from [`register`] to [`deregister`].
    region: MaybeUninit<MemoryRegion>,
}

// SAFETY: a pointer, to Open MPI's part of the record, which is the first field. Nobody else uses it during the call.
unsafe impl Argument<*mut sys::mca_rcache_base_registration_t> for &mut Registration {}

/// Context of the cache's callbacks; stays at one address as long as the cache exists.
struct Registrar {
    domain: Arc<ProtectionDomain>,
    counters: Arc<Counters>,
    rights: Rights,
    place: String,
    index: u8,
}

#[derive(Clone, Copy)]
struct Rights {
    atomics: bool,
    /// Whether registrations ask for relaxed ordering (`btl_ibex_relaxed_ordering`).
    relaxed: bool,
}

pub(crate) struct Memory {
    /// Declared first, so dropped before `registrar`, which its callbacks use.
    cache: Cache,
    registrar: Arc<Registrar>,
}

/// A registration in use; given back to the cache with [`Memory::put_back`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registered(NonNull<Registration>);

// SAFETY: a pointer, null or to a handle that some process has sent. Any bytes are a `RegistrationHandle`.
unsafe impl Argument<*mut sys::mca_btl_base_registration_handle_t> for Option<&RegistrationHandle> {}

impl Registered {
    /// Returns the registration to which a handle from [`Self::handle`] belongs; `None` for null.
    ///
    /// # Safety
    /// `handle` is null, or was returned by [`Self::handle`] of a registration that has not been put back.
    pub(crate) unsafe fn from_handle(handle: *mut RegistrationHandle) -> Option<Self> {
        let registration = handle.cast::<c_void>().wrapping_byte_sub(offset_of!(Registration, handle));
        NonNull::new(registration.cast()).filter(|_| !handle.is_null()).map(Registered)
    }

    pub(crate) fn handle(self) -> *mut RegistrationHandle {
        self.0.as_ptr().wrapping_byte_add(offset_of!(Registration, handle)).cast()
    }

    pub(crate) fn keys(&self) -> &RegistrationHandle {
        // SAFETY: a registration in use is filled and not moved, and nobody writes to its handle.
        unsafe { &*self.handle() }
    }

    pub(crate) fn lkey(self) -> u32 {
        self.keys().lkey
    }

    pub(crate) fn rkey(self) -> u32 {
        self.keys().rkey
    }
}

#[cfg(test)]
impl Registered {
    pub(super) fn without_cache(key: u32) -> Self {
        // SAFETY: a C structure of integers and (nullable) pointers, for which zero is a value.
        let base = unsafe { std::mem::zeroed() };
        let handle = MaybeUninit::new(RegistrationHandle { rkey: key, lkey: key });
        let registration = Registration { base, handle, region: MaybeUninit::uninit() };
        Registered(NonNull::from(Box::leak(Box::new(registration))))
    }

    /// # Safety
    /// R3: [`Self::without_cache`] made it, no work request names it, and it is freed once.
    pub(super) unsafe fn free(self) {
        // SAFETY: R3: `without_cache` leaked the box, and nothing uses it any more, as this function requires.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl Memory {
    /// Creates the cache of the port with this index; `None` if Open MPI has no `grdma`.
    pub(crate) fn new(port: &Port, index: u8, relaxed: bool) -> Option<Self> {
        let attributes = port.attributes();
        let (place, rights) = (attributes.place(), Rights { atomics: attributes.atomics != Atomics::None, relaxed });
        let name = CString::new(format!("ibex.{place}")).unwrap_or_default();
        let registrar = Registrar { domain: port.domain(), counters: port.counters(), rights, place, index };
        let registrar = Arc::new(registrar);
        let (context, size) = (Arc::as_ptr(&registrar).cast_mut().cast(), size_of::<Registration>());
        // SAFETY: the callbacks write only within a `Registration`; `Memory` drops the registrar after the cache.
        let cache = unsafe { Cache::create(&name, context, size, entry4(register), entry2(deregister)) }?;
        Some(Memory { cache, registrar })
    }

    /// Registers `size` bytes at `base` with `access` (`MCA_BTL_REG_FLAG_*`). `None`: not now; the caller copies.
    ///
    /// # Safety
    /// M3: the bytes are the user's, and mapped until the registration is put back.
    #[cfg_attr(test, allow(dead_code, reason = "unit tests have the fabric's"))]
    pub(crate) unsafe fn register(&self, base: *mut c_void, size: usize, access: u32) -> Option<Registered> {
        // SAFETY: M3: the caller says that the bytes are mapped until the registration is put back.
        match unsafe { self.cache.register(base, size, 0, access) } {
            Ok(registration) => Some(Registered(registration.cast())),
            Err(code) => {
                self.refused(code, size);
                None
            }
        }
    }

    #[cold]
    fn refused(&self, code: c_int, size: usize) {
        if code == sys::OPAL_ERR_OUT_OF_RESOURCE {
            messages::cannot_register(size, &self.registrar.place);
        }
    }

    /// # Safety
    /// R3: no posted work request names the registration. It is put back once.
    #[cfg_attr(test, allow(dead_code, reason = "unit tests have the fabric's"))]
    pub(crate) unsafe fn put_back(&self, registered: Registered) -> c_int {
        // SAFETY: R3, and the caller says that it is put back once.
        unsafe { self.cache.put_back(registered.0.cast()) }
    }
}

/// Callback of the cache: registers memory with the adapter.
///
/// # Safety
/// M3: the memory is mapped, and the registration is taken back when it is unmapped (the cache's memory hooks) or put
/// back.
unsafe extern "C" fn register(
    registrar: &Registrar,
    base: *mut c_void,
    size: usize,
    registration: &mut Registration,
) -> c_int {
    fence("registering memory", sys::OPAL_ERROR, || {
        unmapped::listen();
        let access = registrar.rights.of(registration.base.access_flags as u32);
        // SAFETY: M3: the cache registers whole pages that its caller says are mapped, as the caller of this says.
        match unsafe { registrar.domain.register(base.addr(), size, access) } {
            Ok(region) => {
                registration.handle.write(RegistrationHandle { rkey: region.rkey(), lkey: region.lkey() });
                // `deregister` has moved out the former region of a record that is used again.
                registration.region.write(region);
                add_shared(&registrar.counters.registrations, 1);
                if events::has_interest() {
                    watch::registered(base.expose_provenance() as u64, size as u64, registrar.index);
                }
                sys::OPAL_SUCCESS
            }
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or_default() as u64;
                let numbers = [base.addr() as u64, size as u64, errno, 0];
                flight::record((Kind::RegistrationFailed, 0), registrar.index, NOBODY, numbers);
                refusal(&error)
            }
        }
    })
}

/// Returns the code of a failed registration. After "out of resource" the cache evicts an unused one and tries again.
#[cold]
fn refusal(error: &io::Error) -> c_int {
    match error.raw_os_error() {
        Some(libc::ENOMEM | libc::ENOSPC | libc::EAGAIN) => sys::OPAL_ERR_OUT_OF_RESOURCE,
        _ => sys::OPAL_ERROR,
    }
}

/// Callback of the cache: undoes [`register`].
///
/// # Safety
/// [`register`] has succeeded for it, and this is called once.
unsafe extern "C" fn deregister(registrar: &Registrar, registration: &mut Registration) -> c_int {
    fence("deregistering memory", sys::OPAL_ERROR, || {
        // SAFETY: `register` wrote it, and it is moved out once, as the caller says.
        let region = unsafe { registration.region.assume_init_read() };
        add_shared(&registrar.counters.deregistrations, 1);
        if events::has_interest() {
            let (first, last) = (registration.base.base.addr(), registration.base.bound.addr());
            watch::evicted(first as u64, (last - first + 1) as u64, registrar.index);
        }
        // If this fails, the memory stays registered until the process ends; the cache may reuse its own record.
        let _ = region.deregister();
        sys::OPAL_SUCCESS
    })
}

impl Rights {
    /// Translates Open MPI's `access` flags. Remote write access needs local write access (`ibv_reg_mr`). Local reading
    /// is always permitted, so read-only memory can be sent.
    fn of(self, asked: u32) -> Access {
        let mut access = Access::empty();
        if asked & sys::MCA_RCACHE_ACCESS_LOCAL_WRITE != 0 {
            access |= Access::LOCAL_WRITE;
        }
        if asked & sys::MCA_RCACHE_ACCESS_REMOTE_READ != 0 {
            access |= Access::REMOTE_READ;
        }
        if asked & sys::MCA_RCACHE_ACCESS_REMOTE_WRITE != 0 {
            access |= Access::REMOTE_WRITE | Access::LOCAL_WRITE;
        }
        let is_for_atomics = asked & sys::MCA_RCACHE_ACCESS_REMOTE_ATOMIC != 0;
        // "Any access" includes atomics, and an adapter without atomics would refuse the registration.
        if is_for_atomics && self.atomics {
            access |= Access::REMOTE_ATOMIC | Access::LOCAL_WRITE;
        }
        // Relaxed ordering is safe for ob1: it looks at data that it reads only after the read has completed, and at
        // data that a peer writes only after a later message by the same adapter has completed. It is not safe for
        // osc/rdma, which asks for any access to windows and to its counters, and polls them; also, an atomic must not
        // become visible before earlier writes. The cache asks for all rights of both if both use a registration.
        if self.relaxed && !is_for_atomics {
            access |= Access::RELAXED_ORDERING;
        }
        access
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRICT: Rights = Rights { atomics: true, relaxed: false };

    #[test]
    fn remote_write_access_implies_local_write_access() {
        assert_eq!(STRICT.of(sys::MCA_RCACHE_ACCESS_REMOTE_WRITE), Access::REMOTE_WRITE | Access::LOCAL_WRITE);
        assert_eq!(STRICT.of(sys::MCA_RCACHE_ACCESS_REMOTE_ATOMIC), Access::REMOTE_ATOMIC | Access::LOCAL_WRITE);
        assert_eq!(STRICT.of(sys::MCA_RCACHE_ACCESS_REMOTE_READ), Access::REMOTE_READ);
        assert_eq!(STRICT.of(0), Access::empty());
    }

    #[test]
    fn no_registration_asks_an_adapter_without_atomics_for_them() {
        let any = Rights { atomics: false, relaxed: true }.of(sys::MCA_RCACHE_ACCESS_ANY);
        assert_eq!(any, Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE);
    }

    #[test]
    fn only_registrations_for_messages_alone_ask_for_relaxed_ordering() {
        let messages = [
            0,
            sys::MCA_RCACHE_ACCESS_LOCAL_WRITE,
            sys::MCA_RCACHE_ACCESS_REMOTE_READ,
            sys::MCA_RCACHE_ACCESS_LOCAL_WRITE | sys::MCA_RCACHE_ACCESS_REMOTE_WRITE,
        ];
        for atomics in [false, true] {
            let rights = Rights { atomics, relaxed: true };
            for asked in messages {
                assert_eq!(rights.of(asked), STRICT.of(asked) | Access::RELAXED_ORDERING, "0x{asked:x}");
                let windows_too = rights.of(asked | sys::MCA_RCACHE_ACCESS_REMOTE_ATOMIC);
                assert!(!windows_too.contains(Access::RELAXED_ORDERING), "0x{asked:x}");
            }
            assert!(!rights.of(sys::MCA_RCACHE_ACCESS_ANY).contains(Access::RELAXED_ORDERING));
        }
    }

    #[test]
    fn exhaustion_makes_the_cache_try_again_and_other_errors_do_not() {
        assert_eq!(refusal(&io::Error::from_raw_os_error(libc::ENOMEM)), sys::OPAL_ERR_OUT_OF_RESOURCE);
        assert_eq!(refusal(&io::Error::from_raw_os_error(libc::EFAULT)), sys::OPAL_ERROR);
    }
}
