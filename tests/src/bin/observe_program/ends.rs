//! Programs that end in various ways, each beside a waiting goroutine: the counterpart of
//! `tests/go/ends.go`.

use crate::quit::until_one_receives;
use gosched::runtime::{PanicPolicy, set_panic_policy};
use gosched::sync::{Condvar, Mutex, RwLock, WaitGroup};
use gosched::{Select, chan, go, lock_os_thread, select};
use std::hint::black_box;

#[inline(never)]
fn bystander() {
    let (_sender, receiver) = chan::<u64>(0);
    black_box(receiver.recv()).unwrap();
}

#[inline(never)]
fn deadlock_receive() {
    let (_sender, receiver) = chan::<u64>(0);
    black_box(receiver.recv()).unwrap();
}

#[inline(never)]
fn deadlock_send() {
    let (sender, _receiver) = chan::<u64>(0);
    black_box(sender.send(1)).unwrap();
}

#[inline(never)]
fn deadlock_nil_receive() {
    black_box(chan::never::<u64>().recv()).unwrap();
}

#[inline(never)]
fn deadlock_select() {
    let (sender, receiver) = chan::<u64>(0);
    let (other, _kept) = chan::<u64>(0);
    black_box(select! { recv(receiver) -> _ => 1, send(other, 1) -> _ => 2 });
    drop(sender);
}

#[inline(never)]
fn deadlock_select_nothing() {
    black_box(Select::<u64>::new().wait());
}

#[inline(never)]
fn deadlock_mutex() {
    let lock = Mutex::new(0);
    let held = lock.lock();
    *black_box(lock.lock()) += *held;
}

#[inline(never)]
fn deadlock_read() {
    let lock = RwLock::new(0);
    let held = lock.write();
    black_box(*lock.read() + *held);
}

#[inline(never)]
fn deadlock_write() {
    let lock = RwLock::new(0);
    let held = lock.read();
    *black_box(lock.write()) += *held;
}

#[inline(never)]
fn deadlock_group() {
    let group = WaitGroup::new();
    group.add(1);
    group.wait();
    black_box(&group);
}

#[inline(never)]
fn deadlock_cond() {
    let (lock, condition) = (Mutex::new(0), Condvar::new());
    let guard = lock.lock();
    drop(black_box(condition.wait(guard)));
}

#[inline(never)]
fn deadlock_locked() {
    lock_os_thread();
    deadlock_receive();
    black_box(());
}

#[inline(never)]
#[expect(unconditional_recursion, reason = "it is what overflows")]
fn overflows(depth: u64) -> u64 {
    let room = black_box([depth; 32]);
    overflows(depth + 1) + room[3]
}

#[inline(never)]
fn panics() {
    panic!("as asked");
}

fn panics_in_goroutine() {
    go(panics);
    deadlock_receive();
}

/// A panic ends the process, as in Go.
#[gosched::main(alloc = off)]
pub(crate) fn program() {
    set_panic_policy(PanicPolicy::Abort);
    go(bystander);
    until_one_receives();
    match std::env::args().nth(2).as_deref() {
        Some("receive") => deadlock_receive(),
        Some("send") => deadlock_send(),
        Some("nil receive") => deadlock_nil_receive(),
        Some("select") => deadlock_select(),
        Some("select nothing") => deadlock_select_nothing(),
        Some("mutex") => deadlock_mutex(),
        Some("read") => deadlock_read(),
        Some("write") => deadlock_write(),
        Some("group") => deadlock_group(),
        Some("cond") => deadlock_cond(),
        Some("locked") => deadlock_locked(),
        Some("goexit") => gosched::goexit(),
        Some("panic in goroutine") => panics_in_goroutine(),
        Some("overflow") => drop(black_box(overflows(0))),
        end => panic!("no such end: {end:?}"),
    }
}
