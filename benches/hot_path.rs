// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cost of the pieces of the hot path without a device; `cargo bench -p ibex`. Compare commits on one machine only.

use criterion::{Criterion, criterion_group, criterion_main};
use ibex::connect::Identity;
use ibex::connect::hello::{Hello, QpInfo};
use ibex::peer::PeerName;
use ibex::select::address::PortAddress;
use ibex::select::key::Key;
use ibex::transport::posted::{List, Posted};
use ibex::transport::{Batch, Completion, EndpointId, Immediate, Token, WrId};
use std::hint::black_box;

/// The immediate data in place of a header: made by the sender, read by the receiver.
fn immediate(c: &mut Criterion) {
    c.bench_function("immediate: encode and check", |b| {
        b.iter(|| {
            let word = Immediate::new(black_box(0x41), black_box(77)).0;
            let read = Immediate(black_box(word));
            (read.tag(), read.endpoint())
        });
    });
}

/// The handshake's message; setup grade, but its check guards a listening port.
fn hello(c: &mut Criterion) {
    let address = PortAddress {
        link_layer: 2,
        gid_type: 2,
        mtu: 5,
        lid: 0,
        gid: [1; 16],
        subnet_length: 64,
        subnet_prefix: 0,
        ud_qpn: 17,
        tcp_port: 4711,
        tcp_addresses: [[0; 16]; 4],
        instance: 99,
        host: 98,
    };
    let hello = Hello {
        source: Identity { name: PeerName { job: 1, rank: 2 }, port: 0, address },
        destination_instance: 5,
        destination_port: 0,
        qp: QpInfo { qpn: 18, psn: 19, epoch: 1, initiator_depth: 16, responder_resources: 16, endpoint: 3 },
        heard_qpn: 0,
        heard_epoch: 0,
        confirmed: false,
        declined: None,
    };
    let key = Key::from_bytes([7; Key::SIZE]);
    let bytes = hello.encode(&key);
    c.bench_function("hello: encode", |b| b.iter(|| black_box(&hello).encode(&key)));
    c.bench_function("hello: decode and check", |b| b.iter(|| Hello::decode(black_box(&bytes), &key)));
}

fn posted(c: &mut Criterion) {
    let mut slab = Posted::with_capacity(64);
    let mut list = List::default();
    let mut sequence = 0_u32;
    c.bench_function("posted requests: push and pop", |b| {
        b.iter(|| {
            sequence = sequence.wrapping_add(1);
            slab.push(&mut list, sequence, Token(black_box(7)));
            slab.pop_through(&mut list, black_box(sequence))
        });
    });
}

/// Sixteen completions become sixteen events of a batch.
fn dispatch(c: &mut Criterion) {
    let mut slab = Posted::with_capacity(64);
    let mut list = List::default();
    let mut sequence = 0_u32;
    c.bench_function("completion dispatch: 16 sends to a batch", |b| {
        b.iter(|| {
            let mut batch = Batch::new();
            for token in 1..=16 {
                slab.push(&mut list, sequence.wrapping_add(token), Token(u64::from(token)));
            }
            for _ in 0..16 {
                sequence = sequence.wrapping_add(1);
                let id = WrId(black_box(WrId::send(EndpointId::from_index(3), sequence).0));
                while let Some((_, token)) = slab.pop_through(&mut list, id.low()) {
                    let _ = batch.push(Completion::Request { token, to: id.endpoint(), outcome: Ok(()) });
                }
            }
            batch.completions().len()
        });
    });
}

criterion_group!(benches, immediate, hello, posted, dispatch);
criterion_main!(benches);
