// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes elements of a memory region. An atomic instruction changes an aligned element of up to 8 bytes, so a program
//! may use atomics of its own on the same memory. A lock protects larger elements, and those that are not aligned,
//! against the other endpoints of this process only.
//!
//! Called by `target`. Grade: pending. Threads: any. Tests: below, and `hw-tests/libfabric/atomics.c`.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::arithmetic::LARGEST;

/// Held while an element is changed for which there is no instruction.
static TURN: Mutex<()> = Mutex::new(());

/// Gives an element the value that `change` makes of its old one (first argument, second argument). It may be called
/// several times. `old` has the size of the element, and gets its old value. A value that stays is not written.
///
/// # Safety
/// The element is in mapped memory, which is writable if the value changes.
pub(super) unsafe fn change(address: usize, old: &mut [u8], change: impl Fn(&[u8], &mut [u8])) {
    macro_rules! changed {
        ($atomic:ident, $value:ident) => {{
            // SAFETY: mapped and aligned; others change it by atomic instructions, or not at all (`fi_atomic(3)`).
            let element = unsafe { $atomic::from_ptr(std::ptr::with_exposed_provenance_mut(address)) };
            let mut value = element.load(Ordering::SeqCst);
            loop {
                old.copy_from_slice(&value.to_ne_bytes());
                let mut changed = value.to_ne_bytes();
                change(old, &mut changed);
                if changed == *old {
                    return;
                }
                let new = $value::from_ne_bytes(changed);
                match element.compare_exchange_weak(value, new, Ordering::SeqCst, Ordering::SeqCst) {
                    Ok(_) => return,
                    Err(other) => value = other,
                }
            }
        }};
    }
    match old.len() {
        1 => changed!(AtomicU8, u8),
        2 if address.is_multiple_of(2) => changed!(AtomicU16, u16),
        4 if address.is_multiple_of(4) => changed!(AtomicU32, u32),
        8 if address.is_multiple_of(8) => changed!(AtomicU64, u64),
        size => {
            let place: *mut u8 = std::ptr::with_exposed_provenance_mut(address);
            let _turn = TURN.lock();
            // SAFETY: mapped, for all of its bytes.
            unsafe { std::ptr::copy(place, old.as_mut_ptr(), size) };
            let changed = &mut [0; LARGEST][..size];
            change(old, changed);
            if changed != old {
                // SAFETY: as above, and writable.
                unsafe { std::ptr::copy(changed.as_ptr(), place, size) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_element_changes_alone_and_its_old_value_is_returned() {
        for size in [1, 2, 4, 8, 16, 32] {
            for offset in 0..40 {
                let mut memory: [u8; 80] = std::array::from_fn(|index| index as u8);
                let mut old = vec![0; size];
                let add = |old: &[u8], new: &mut [u8]| {
                    new.iter_mut().zip(old).for_each(|(new, old)| *new = old + 100);
                };
                let start = memory.as_mut_ptr().expose_provenance();
                // SAFETY: inside `memory`.
                unsafe { change(start + offset, &mut old, add) };
                let inside = offset..offset + size;
                for (index, byte) in memory.iter().enumerate() {
                    assert_eq!(*byte, index as u8 + if inside.contains(&index) { 100 } else { 0 }, "size {size}");
                }
                assert_eq!(old, inside.map(|index| index as u8).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn threads_lose_no_change() {
        for (size, offset) in [(8, 0), (8, 3), (16, 0)] {
            let mut memory = [0_u64; 4];
            let address = memory.as_mut_ptr().expose_provenance() + offset;
            let increment = |old: &[u8], new: &mut [u8]| {
                new.copy_from_slice(old);
                let (low, _) = new.split_at_mut(8);
                let value = u64::from_ne_bytes(old[..8].try_into().expect("8 bytes")) + 1;
                low.copy_from_slice(&value.to_ne_bytes());
            };
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        for _ in 0..1000 {
                            // SAFETY: inside `memory`.
                            unsafe { change(address, &mut vec![0; size], increment) };
                        }
                    });
                }
            });
            let mut old = vec![0; size];
            // SAFETY: inside `memory`.
            unsafe { change(address, &mut old, |old, new| new.copy_from_slice(old)) };
            assert_eq!(u64::from_ne_bytes(old[..8].try_into().expect("8 bytes")), 3000, "size {size}, offset {offset}");
        }
    }
}
