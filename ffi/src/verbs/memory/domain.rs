// SPDX-License-Identifier: MIT OR Apache-2.0
//! Protection domains, registered memory, and the spans of memory that work requests name. Called by the engine (its
//! own buffers) and by the plugin (user memory, through Open MPI's registration cache). Setup grade, any thread; a span
//! is a plain value on the hot path. Tests: device tests in `hw-tests`.

use super::mapping::{Mapped, Mapping};
use super::pages::HugePages;
use super::registration::{self, Relaxation};
use crate::verbs::handle::Handle;
use crate::verbs::{Access, Context, sys};
use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

/// A protection domain (`ibv_alloc_pd(3)`): queues and memory of one domain may be used together.
#[derive(Debug)]
pub struct ProtectionDomain {
    /// Memory of ibex's own, released just before the domain: no queue, and so no work request, is left then (R3).
    mappings: Mutex<Vec<Mapping>>,
    handle: Handle<sys::ibv_pd>,
    relaxation: Relaxation,
    context: Arc<Context>,
}

impl ProtectionDomain {
    /// Allocates a protection domain of `context`.
    ///
    /// # Errors
    /// The errno of the verb, `ENOMEM` most often.
    pub fn new(context: &Arc<Context>) -> io::Result<Arc<Self>> {
        // SAFETY: the context is open and kept so by the `Arc` held below (R4).
        let handle = unsafe { Handle::new(sys::ibv_alloc_pd(context.raw()), ()) }?;
        let (mappings, relaxation) = (Mutex::default(), Relaxation::default());
        Ok(Arc::new(Self { mappings, handle, relaxation, context: Arc::clone(context) }))
    }

    pub(in crate::verbs) fn raw(&self) -> *mut sys::ibv_pd {
        self.handle.raw()
    }

    /// The device it belongs to.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Maps and registers `bytes` bytes for the life of the domain. `ENOMEM`: no memory, or too much is locked.
    pub(super) fn map(&self, bytes: usize, pages: HugePages, access: Access) -> io::Result<Mapped> {
        // SAFETY: the domain is live (R4); the mapping becomes its own, and goes before it.
        let mapping = unsafe { Mapping::new(self.raw(), (bytes, pages), access, &self.relaxation) }?;
        let mapped = mapping.mapped();
        self.mappings.lock().unwrap_or_else(PoisonError::into_inner).push(mapping);
        Ok(mapped)
    }

    /// Whether the adapter has refused relaxed ordering, so that memory is registered without it.
    pub fn refuses_relaxed_ordering(&self) -> bool {
        self.relaxation.is_refused()
    }

    /// Registers `len` bytes at `addr` (`ibv_reg_mr(3)`). Any thread; a system call.
    ///
    /// # Errors
    /// `ENOMEM`: the limit of locked memory is reached. `EFAULT`: the range is not mapped.
    ///
    /// # Safety
    /// While the registration lives, the adapter may read the range, and write it if `access` lets it: the range must
    /// stay mapped to the same pages, and no Rust reference to it may conflict with this access (R1).
    pub unsafe fn register(self: &Arc<Self>, addr: usize, len: usize, access: Access) -> io::Result<MemoryRegion> {
        // SAFETY: R4: `_domain` keeps the domain alive; the range is the caller's promise.
        let handle = unsafe { registration::register(self.raw(), addr as *mut _, len, access, &self.relaxation) }?;
        Ok(MemoryRegion { handle, _domain: Arc::clone(self) })
    }
}

/// A registration of memory (`struct ibv_mr`). Any thread may end or drop it (`ibv_dereg_mr(3)`). It has one owner, so
/// it cannot be ended twice:
///
/// ```compile_fail,E0382
/// # fn end(region: ibex_ffi::verbs::MemoryRegion) -> std::io::Result<()> {
/// region.deregister()?;
/// region.deregister()
/// # }
/// ```
///
/// ```
/// # fn end(region: ibex_ffi::verbs::MemoryRegion) -> std::io::Result<()> {
/// region.deregister()
/// # }
/// ```
#[derive(Debug)]
pub struct MemoryRegion {
    handle: Handle<sys::ibv_mr>,
    /// Domain of the registration; the second field, so that it is dropped after the handle.
    _domain: Arc<ProtectionDomain>,
}

impl MemoryRegion {
    /// The key by which this process' work requests name the memory.
    pub fn lkey(&self) -> u32 {
        // SAFETY: R4, the registration is live; the field is set once, at registration.
        unsafe { (*self.handle.raw()).lkey }
    }

    /// The key by which peers name the memory.
    pub fn rkey(&self) -> u32 {
        // SAFETY: R4, the registration is live; the field is set once, at registration.
        unsafe { (*self.handle.raw()).rkey }
    }

    /// Ends the registration. Its owner keeps R3: it does this only when no work request names the registration.
    ///
    /// # Errors
    /// The errno of `ibv_dereg_mr(3)`; the registration then stays until the process ends.
    pub fn deregister(self) -> io::Result<()> {
        self.handle.destroy()
    }
}

/// Registered memory of this process that a work request may name: an address, a length in bytes and a local key.
///
/// Only the promise of [`LocalSpan::new`] makes a span, so posting one is safe:
///
/// ```compile_fail,E0133
/// let bytes = [0; 8];
/// let span = ibex_ffi::verbs::LocalSpan::new(bytes.as_ptr() as u64, 8, 0x1234);
/// ```
///
/// ```
/// let span = ibex_ffi::verbs::LocalSpan::EMPTY;
/// assert_eq!(span.len(), 0);
/// ```
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct LocalSpan(pub(in crate::verbs) sys::ibv_sge);

impl LocalSpan {
    /// A span of no bytes, which needs no registration.
    pub const EMPTY: LocalSpan = LocalSpan(sys::ibv_sge { addr: 0, length: 0, lkey: 0 });

    /// Names `len` bytes at `addr`, registered under `lkey`.
    ///
    /// # Safety
    /// Until every work request that names the span has completed, the range stays registered under `lkey` (R3) and is
    /// the device's (R1, R2): not written while it is sent, not read by reference while it is received into.
    pub const unsafe fn new(addr: u64, len: u32, lkey: u32) -> Self {
        LocalSpan(sys::ibv_sge { addr, length: len, lkey })
    }

    /// Names invented memory of a simulated adapter. An adapter of libibverbs refuses to use it: no process has memory
    /// in the upper half of the address space, so no registration has this address.
    ///
    /// # Panics
    /// If the address is in the lower half of the address space.
    #[cfg(feature = "simulated")]
    pub const fn simulated(addr: u64, len: u32, lkey: u32) -> Self {
        assert!(addr >> 63 == 1, "memory of a process has such an address");
        LocalSpan(sys::ibv_sge { addr, length: len, lkey })
    }

    /// Its address.
    pub const fn addr(&self) -> u64 {
        self.0.addr
    }

    /// Its length in bytes.
    #[allow(clippy::len_without_is_empty, reason = "no caller needs it")]
    pub const fn len(&self) -> u32 {
        self.0.length
    }

    /// Its bytes.
    ///
    /// # Safety
    /// They are memory of this process (R1), and as long as the reference lives neither a device (R2) nor anybody else
    /// accesses them.
    #[inline(always)]
    #[must_use]
    pub unsafe fn bytes_mut<'a>(self) -> &'a mut [u8] {
        let start = std::ptr::with_exposed_provenance_mut(self.0.addr as usize);
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(start, self.0.length as usize) }
    }

    /// Local key of the span's registration.
    pub const fn lkey(&self) -> u32 {
        self.0.lkey
    }

    /// Its first `len` bytes, or all if it is shorter.
    #[must_use]
    pub const fn first(self, len: u32) -> Self {
        let length = if len < self.0.length { len } else { self.0.length };
        LocalSpan(sys::ibv_sge { length, ..self.0 })
    }
}

impl std::fmt::Debug for LocalSpan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes at 0x{:x}, lkey 0x{:x}", self.0.length, self.0.addr, self.0.lkey)
    }
}

/// Bytes that a post copies into the work request: neither registered nor the device's. They may be uninitialised.
#[derive(Clone, Copy, Debug)]
pub struct InlineSpan<'a> {
    start: *const MaybeUninit<u8>,
    len: usize,
    of: PhantomData<&'a [MaybeUninit<u8>]>,
    /// The bytes, if they are known to be initialised.
    #[cfg(feature = "simulated")]
    initialised: Option<&'a [u8]>,
}

// SAFETY: like a shared slice of bytes, whose lifetime it has.
unsafe impl Send for InlineSpan<'_> {}

impl InlineSpan<'_> {
    /// A span of no bytes.
    pub const EMPTY: InlineSpan<'static> = InlineSpan {
        start: ptr::dangling(),
        len: 0,
        of: PhantomData,
        #[cfg(feature = "simulated")]
        initialised: Some(&[]),
    };

    /// Names `len` bytes from `start` on.
    ///
    /// # Safety
    /// While the span lives the bytes may be read, and nobody writes them.
    #[inline]
    pub const unsafe fn new(start: *const u8, len: usize) -> Self {
        InlineSpan {
            start: start.cast(),
            len,
            of: PhantomData,
            #[cfg(feature = "simulated")]
            initialised: None,
        }
    }

    /// Its length in bytes.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its address.
    #[inline]
    pub const fn as_ptr(&self) -> *const u8 {
        self.start.cast()
    }

    /// Copies the bytes for a later post.
    pub fn copied(&self) -> Box<[MaybeUninit<u8>]> {
        let mut copy = Box::new_uninit_slice(self.len);
        // SAFETY: the bytes may be read (`new`; an empty span has none), and the new box is as long.
        unsafe { self.start.copy_to_nonoverlapping(copy.as_mut_ptr().cast(), self.len) };
        // SAFETY: every byte is a `MaybeUninit`, for which anything is a value.
        unsafe { copy.assume_init() }
    }

    /// Its entry in the gather list of a work request with `IBV_SEND_INLINE`.
    #[inline]
    pub(in crate::verbs) fn sge(self) -> sys::ibv_sge {
        sys::ibv_sge { addr: self.start as u64, length: self.len as u32, lkey: 0 }
    }
}

#[cfg(feature = "simulated")]
impl<'a> InlineSpan<'a> {
    /// Returns the bytes of a span that was made of initialised bytes, for a simulated adapter; `None` for any other.
    pub const fn initialised(&self) -> Option<&'a [u8]> {
        self.initialised
    }
}

impl<'a> From<&'a [u8]> for InlineSpan<'a> {
    #[inline]
    fn from(bytes: &'a [u8]) -> Self {
        InlineSpan {
            start: bytes.as_ptr().cast(),
            len: bytes.len(),
            of: PhantomData,
            #[cfg(feature = "simulated")]
            initialised: Some(bytes),
        }
    }
}

impl<'a> From<&'a [MaybeUninit<u8>]> for InlineSpan<'a> {
    #[inline]
    fn from(bytes: &'a [MaybeUninit<u8>]) -> Self {
        InlineSpan {
            start: bytes.as_ptr(),
            len: bytes.len(),
            of: PhantomData,
            #[cfg(feature = "simulated")]
            initialised: None,
        }
    }
}

/// Memory of a peer: an address and the remote key of its registration. Safe to make: the peer's adapter checks both.
#[derive(Debug, Clone, Copy)]
pub struct RemoteSpan {
    /// Address at the peer.
    pub addr: u64,
    /// Remote key.
    pub rkey: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_of_an_inline_span_has_its_bytes() {
        let bytes = [1, 2, 3];
        let copied = InlineSpan::from(&bytes[..]).copied();
        // SAFETY: copied from bytes that were all written.
        assert_eq!(copied.iter().map(|byte| unsafe { byte.assume_init() }).collect::<Vec<u8>>(), bytes);
        assert!(InlineSpan::EMPTY.is_empty() && InlineSpan::EMPTY.copied().is_empty());
    }

    #[test]
    fn an_inline_span_may_name_and_copy_uninitialised_bytes() {
        let bytes = [MaybeUninit::<u8>::uninit(); 24];
        let span = InlineSpan::from(&bytes[..]);
        assert_eq!((span.copied().len(), span.sge().length, span.sge().addr), (24, 24, bytes.as_ptr() as u64));
    }

    #[cfg(feature = "simulated")]
    #[test]
    fn a_simulated_adapter_gets_initialised_bytes_alone_and_invented_addresses_alone() {
        let bytes = [1, 2, 3];
        assert_eq!(InlineSpan::from(&bytes[..]).initialised(), Some(&bytes[..]));
        assert_eq!(InlineSpan::EMPTY.initialised(), Some(&[][..]));
        let uninitialised = [MaybeUninit::<u8>::uninit(); 2];
        assert!(InlineSpan::from(&uninitialised[..]).initialised().is_none());
        assert_eq!(LocalSpan::simulated(1 << 63, 8, 5).first(4).len(), 4);
        assert!(std::panic::catch_unwind(|| LocalSpan::simulated(bytes.as_ptr() as u64, 3, 5)).is_err());
    }
}
