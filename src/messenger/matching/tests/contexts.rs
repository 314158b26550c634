// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of communicators.

use crate::messenger::matching::Contexts;

#[test]
fn the_table_finds_a_context_from_its_addition_to_its_removal_and_accepts_it_again() {
    let mut contexts = Contexts::<&str, ()>::new();
    assert_eq!(contexts.get(3), None);
    contexts.add(3, "first").unwrap();
    assert_eq!(contexts.get(3), Some(&"first"));
    assert_eq!(contexts.add(3, "second"), None);
    assert_eq!(contexts.remove(3), Some("first"));
    assert_eq!(contexts.get(3), None);
    assert_eq!((contexts.remove(3), contexts.remove(999)), (None, None));
    contexts.add(3, "second").unwrap();
    assert_eq!(contexts.get(3), Some(&"second"));
}

#[test]
#[cfg_attr(miri, ignore = "a million places take Miri minutes")]
fn contexts_go_beyond_16_bits_and_end_at_the_limit() {
    let mut contexts = Contexts::<u32, ()>::new();
    for context in [0, 1 << 16, Contexts::<u32, ()>::LIMIT - 1] {
        contexts.add(context, context).unwrap();
        assert_eq!(contexts.get(context), Some(&context));
    }
    for context in [Contexts::<u32, ()>::LIMIT, u32::MAX] {
        assert_eq!(contexts.add(context, 7), None);
        assert_eq!(contexts.get(context), None);
        assert_eq!(contexts.remove(context), None);
    }
}

#[test]
fn a_communicator_without_a_parent_has_a_large_context_beside_the_small_ones() {
    type Of = Contexts<&'static str, u32>;
    let (mut contexts, first, last) = (Of::new(), Of::EXTENDED, Of::EXTENDED * 2 - 1);
    contexts.keep(last, 1);
    contexts.add(0, "small").unwrap();
    contexts.add(first, "first").unwrap();
    assert_eq!(contexts.add(last, "last").unwrap(), [1]);
    assert_eq!(contexts.add(first, "again"), None);
    assert_eq!(
        [contexts.get(0), contexts.get(first), contexts.get(last)],
        [Some(&"small"), Some(&"first"), Some(&"last")]
    );
    assert_eq!([contexts.remove(first), contexts.remove(first)], [Some("first"), None]);
    assert_eq!(contexts.get(first), None);
    // Between the ranges, and beyond the end.
    for context in [Of::LIMIT, first - 1, last + 1] {
        assert_eq!(contexts.add(context, "lost"), None);
    }
}

#[test]
fn add_returns_the_messages_for_its_context_in_order() {
    let mut contexts = Contexts::<(), u32>::new();
    for (context, message) in [(5, 1), (6, 2), (5, 3), (u32::MAX, 4)] {
        contexts.keep(context, message);
    }
    assert_eq!(contexts.add(5, ()).unwrap(), [1, 3]);
    contexts.remove(5);
    assert_eq!(contexts.add(5, ()).unwrap(), [0; 0]);
    assert_eq!(contexts.add(6, ()).unwrap(), [2]);
    assert_eq!(contexts.kept.into_keys().collect::<Vec<_>>(), [u32::MAX]);
}
