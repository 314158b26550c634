// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which objects events may be about. The engine names an object in an event by the number given when it was made; by
//! the time a program reads the event, the object may be gone. Here numbers are looked up, and events counted until
//! they are acknowledged, since destroying an object waits for that (`ibv_get_cq_event(3)`, `ibv_get_async_event(3)`).
//! Grade: pending; not on the way of a message. Threads: any, one lock.

use std::collections::HashMap;
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};

struct Entry {
    object: usize,
    unacknowledged: u64,
}

#[derive(Default)]
struct Table {
    last: u64,
    entries: HashMap<u64, Entry>,
}

static TABLE: LazyLock<Mutex<Table>> = LazyLock::new(Mutex::default);
static ACKNOWLEDGED: Condvar = Condvar::new();

fn table() -> MutexGuard<'static, Table> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A number for an object that is about to be made; no object ever had it.
pub(crate) fn reserve() -> u64 {
    let mut table = table();
    table.last += 1;
    table.last
}

/// From now on events may name `object` by `number`.
pub(crate) fn enter<T>(number: u64, object: *mut T) {
    table().entries.insert(number, Entry { object: object as usize, unacknowledged: 0 });
}

/// The object an event is about, which is not freed until the event is acknowledged; `None` if it is gone.
pub(crate) fn deliver<T>(number: u64) -> Option<*mut T> {
    let mut table = table();
    let entry = table.entries.get_mut(&number)?;
    entry.unacknowledged += 1;
    Some(entry.object as *mut T)
}

/// The program has acknowledged `count` events of this object.
pub(crate) fn acknowledge(number: u64, count: u64) {
    if let Some(entry) = table().entries.get_mut(&number) {
        entry.unacknowledged = entry.unacknowledged.saturating_sub(count);
    }
    ACKNOWLEDGED.notify_all();
}

/// No event will name this object any more: waits until all that did are acknowledged.
pub(crate) fn retire(number: u64) {
    let mut table = table();
    while table.entries.get(&number).is_some_and(|entry| entry.unacknowledged > 0) {
        table = ACKNOWLEDGED.wait(table).unwrap_or_else(PoisonError::into_inner);
    }
    table.entries.remove(&number);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_retired_when_its_last_event_is_acknowledged() {
        let mut object = 7_u32;
        let number = reserve();
        assert!(deliver::<u32>(number).is_none());
        enter(number, &raw mut object);
        assert_eq!(deliver::<u32>(number), Some(&raw mut object));
        deliver::<u32>(number);
        let waiter = std::thread::spawn(move || retire(number));
        acknowledge(number, 1);
        acknowledge(number, 1);
        waiter.join().unwrap();
        assert!(deliver::<u32>(number).is_none());
    }
}
