// SPDX-License-Identifier: MIT OR Apache-2.0
//! Open MPI's registration cache (`grdma`). It keeps registrations after their last use, until the memory is unmapped
//! or freed, or the adapter runs out. `unmapped` reports unmapped memory that Open MPI's hooks miss. Called by
//! plugin-abi's `memory`, whose callbacks register with the adapter. Grade: pending (a hit is a tree search). Threads:
//! any, the cache has its own lock.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use super::{sys, unmapped};

/// Called by the cache to register bytes. Arguments: context, address, size, the registration, whose fields after the
/// base type it sets.
pub type Register =
    unsafe extern "C" fn(*mut c_void, *mut c_void, usize, *mut sys::mca_rcache_base_registration_t) -> c_int;
/// Called by the cache to undo a registration.
pub type Deregister = unsafe extern "C" fn(*mut c_void, *mut sys::mca_rcache_base_registration_t) -> c_int;

/// A `grdma` cache of one adapter port.
#[derive(Debug)]
pub struct Cache(NonNull<sys::mca_rcache_base_module_t>);

// SAFETY: the cache's functions take its own lock; Open MPI calls them from any thread.
unsafe impl Send for Cache {}
// SAFETY: the cache's functions take its own lock; Open MPI calls them from any thread.
unsafe impl Sync for Cache {}

impl Cache {
    /// Makes a cache of registrations of `size` bytes each, which begin with the base type.
    ///
    /// # Errors
    /// `None` if Open MPI has no `grdma` component, or lacks memory hooks that the user requires.
    ///
    /// # Safety
    /// The callbacks write only within `size` bytes of a registration, and `context` outlives the cache.
    pub unsafe fn create(
        name: &std::ffi::CStr,
        context: *mut c_void,
        size: usize,
        register: Register,
        deregister: Deregister,
    ) -> Option<Self> {
        let mut resources = sys::mca_rcache_base_resources_t {
            cache_name: name.as_ptr().cast_mut(),
            reg_data: context,
            sizeof_reg: size,
            register_mem: Some(register),
            deregister_mem: Some(deregister),
        };
        // SAFETY: the component copies the resources and the name (rcache_grdma_component.c, grdma_init).
        let module = unsafe { sys::mca_rcache_base_module_create(c"grdma".as_ptr(), context, &raw mut resources) };
        NonNull::new(module).map(Cache).inspect(|_| unmapped::cache_made())
    }

    /// Returns a registration that covers `size` bytes at `base` with at least `access`, from the cache or a new one.
    ///
    /// # Errors
    /// The OPAL code of the callback, or `OPAL_ERR_OUT_OF_RESOURCE`.
    ///
    /// # Safety
    /// The bytes are mapped, and stay mapped until the registration is given back with [`Self::put_back`].
    pub unsafe fn register(
        &self,
        base: *mut c_void,
        size: usize,
        flags: u32,
        access: u32,
    ) -> Result<NonNull<sys::mca_rcache_base_registration_t>, i32> {
        let mut registration = std::ptr::null_mut();
        // SAFETY: a live cache module; its function pointers are set when it is made.
        let register = unsafe { (*self.0.as_ptr()).rcache_register }.ok_or(sys::OPAL_ERR_NOT_SUPPORTED)?;
        // SAFETY: a live module, bytes that the caller says stay mapped, and a live local for the answer.
        let code = unsafe { register(self.0.as_ptr(), base, size, flags, access as i32, &raw mut registration) };
        NonNull::new(registration).filter(|_| code == sys::OPAL_SUCCESS).ok_or(code)
    }

    /// Gives a registration back; the cache may keep it.
    ///
    /// # Safety
    /// `registration` is from [`Self::register`] of this cache, given back once, and in no posted work request (R3).
    #[must_use]
    pub unsafe fn put_back(&self, registration: NonNull<sys::mca_rcache_base_registration_t>) -> i32 {
        // SAFETY: a live cache module.
        let deregister = unsafe { (*self.0.as_ptr()).rcache_deregister };
        let Some(deregister) = deregister else { return sys::OPAL_ERR_NOT_SUPPORTED };
        // SAFETY: R3; the caller says that the registration came from this cache and is given back once.
        unsafe { deregister(self.0.as_ptr(), registration.as_ptr()) }
    }
}

impl Drop for Cache {
    /// Deregisters all memory, and removes the memory hooks. Open MPI does not call the callbacks afterwards.
    fn drop(&mut self) {
        // SAFETY: `create` made the module, and `drop` runs once.
        unsafe { sys::mca_rcache_base_module_destroy(self.0.as_ptr()) };
        unmapped::cache_gone();
    }
}
