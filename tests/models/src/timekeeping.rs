//! Adding timers against Ms that sleep, fire timers and hand off their Ps: no timer is earlier than
//! every planned wake-up.
//!
//! The words and their transitions are the product's (`protocol::timekeeping`). The rule is checked
//! at the end, when every M sleeps or runs a G: see `timekeeping_fixture`. If a P is idle and there
//! is a timer, some M must sleep no longer than until the first timer is due. If no P is idle, an M
//! that sleeps until a timer must still not sleep too long, because a P may become idle.

use super::timekeeping_fixture::{Broken, NOW, World};
use crate::explore::{every_order, exactly_these_orders, leak, most_orders};
use crate::sys::weakness::{Weakness, weaken};
use loom::thread;

/// A timer that is due.
const DUE: u64 = NOW - 5;
/// Times of timers that are not due, in their order.
const SOON: u64 = NOW + 10;
const LATER: u64 = NOW + 20;
const LAST: u64 = NOW + 30;

/// Adds a timer while an M is about to sleep until a later timer is due.
fn adder_against_m_that_sleeps(idle_ps: u32, broken: Broken) {
    let world = leak(World::new(idle_ps, broken));
    world.begin_with_timer(0, LATER);
    let m = thread::spawn(move || world.run_without_p(0));
    world.add(1, SOON);
    m.join().unwrap();
    world.assert_time_is_kept();
}

/// Adds two timers while the timekeeper sleeps until a later timer is due.
fn two_adders_against_timekeeper(idle_ps: u32, second: u64, broken: Broken) {
    let world = leak(World::new(idle_ps, broken));
    world.begin_with_timer(0, LAST);
    world.run_without_p(0);
    let adder = thread::spawn(move || world.add(1, LATER));
    world.add(2, second);
    adder.join().unwrap();
    world.assert_time_is_kept();
}

/// Adds a timer while an M with a P fires another timer and runs a G until the end.
fn adder_against_firing(broken: Broken) {
    let world = leak(World::new(0, broken));
    world.begin_with_timer(0, DUE);
    let m = thread::spawn(move || world.fire_due());
    world.add(1, SOON);
    m.join().unwrap();
    world.assert_time_is_kept();
}

/// Like [`adder_against_firing`], while another M is about to sleep until a later timer is due.
fn adder_and_firing_against_m_that_sleeps(idle_ps: u32, broken: Broken) {
    let world = leak(World::new(idle_ps, broken));
    world.begin_with_timer(0, DUE);
    world.begin_with_timer(2, LATER);
    let firing = thread::spawn(move || world.fire_due());
    let m = thread::spawn(move || world.run_without_p(0));
    world.add(1, SOON);
    firing.join().unwrap();
    m.join().unwrap();
    world.assert_time_is_kept();
}

/// Adds a timer while a P is handed off and no M keeps the time.
fn adder_against_hand_off(broken: Broken) {
    let world = leak(World::new(0, broken));
    world.run_without_p(0);
    let other = thread::spawn(move || world.hand_off());
    world.add(0, SOON);
    other.join().unwrap();
    world.assert_time_is_kept();
}

/// Like [`adder_against_hand_off`], while an M with a P fires another timer and runs a G until the
/// end.
fn adder_and_firing_against_hand_off(broken: Broken) {
    let world = leak(World::new(0, broken));
    world.begin_with_timer(0, DUE);
    let firing = thread::spawn(move || world.fire_due());
    let other = thread::spawn(move || world.hand_off());
    world.add(1, SOON);
    firing.join().unwrap();
    other.join().unwrap();
    world.assert_time_is_kept();
}

#[test]
fn an_m_that_is_about_to_sleep_learns_of_an_earlier_timer() {
    every_order(|| adder_against_m_that_sleeps(0, Broken::Nothing));
}

#[test]
fn an_m_that_is_about_to_sleep_beside_an_idle_p_learns_of_an_earlier_timer() {
    most_orders(6, || adder_against_m_that_sleeps(1, Broken::Nothing));
}

#[test]
fn a_timekeeper_learns_of_two_earlier_timers() {
    most_orders(5, || two_adders_against_timekeeper(0, SOON, Broken::Nothing));
}

#[test]
fn a_timekeeper_beside_an_idle_p_learns_of_two_earlier_timers() {
    most_orders(5, || two_adders_against_timekeeper(1, SOON, Broken::Nothing));
}

#[test]
fn a_timer_that_is_added_while_another_fires_is_not_lost() {
    every_order(|| adder_against_firing(Broken::Nothing));
}

#[test]
fn an_m_that_sleeps_while_another_m_fires_learns_of_an_earlier_timer() {
    most_orders(3, || adder_and_firing_against_m_that_sleeps(0, Broken::Nothing));
}

#[test]
fn an_m_that_sleeps_beside_an_idle_p_while_another_m_fires_learns_of_an_earlier_timer() {
    most_orders(2, || adder_and_firing_against_m_that_sleeps(1, Broken::Nothing));
}

#[test]
fn a_hand_off_leaves_no_timer_without_a_timekeeper() {
    most_orders(5, || adder_against_hand_off(Broken::Nothing));
}

#[test]
fn a_hand_off_while_another_m_fires_leaves_no_timer_without_a_timekeeper() {
    most_orders(2, || adder_and_firing_against_hand_off(Broken::Nothing));
}

#[test]
#[should_panic(expected = "the timekeeper sleeps too long")]
fn broken_by_a_timekeeper_that_does_not_read_again() {
    every_order(|| adder_against_m_that_sleeps(0, Broken::TimekeeperReadsOnce));
}

#[test]
#[should_panic(expected = "the timekeeper sleeps too long")]
fn broken_by_a_wake_time_that_is_read_before_the_timer_shows() {
    exactly_these_orders(3, || adder_against_m_that_sleeps(0, Broken::WakeTimeReadFirst));
}

#[test]
#[should_panic(expected = "the timekeeper sleeps too long")]
fn broken_by_a_wake_time_that_is_announced_without_order() {
    let _weak = weaken(Weakness::TotalOrderOfStores);
    every_order(|| adder_against_m_that_sleeps(0, Broken::Nothing));
}

#[test]
#[should_panic(expected = "the timekeeper sleeps too long")]
fn broken_by_a_timer_that_is_added_without_order() {
    let _weak = weaken(Weakness::TotalOrderOfAdds);
    every_order(|| adder_against_m_that_sleeps(0, Broken::Nothing));
}

#[test]
#[should_panic(expected = "`earliest` stays too late")]
fn broken_by_a_timer_that_is_not_counted() {
    every_order(|| adder_against_firing(Broken::AddsUncounted));
}

#[test]
#[should_panic(expected = "`earliest` stays too late")]
fn broken_by_a_timer_that_is_counted_after_it_shows() {
    every_order(|| adder_against_firing(Broken::CountsLast));
}

#[test]
#[should_panic(expected = "`earliest` stays too late")]
fn broken_by_a_timer_that_is_counted_before_it_is_in_a_heap() {
    every_order(|| adder_against_firing(Broken::CountsFirst));
}

#[test]
#[should_panic(expected = "`earliest` stays too late")]
fn broken_by_a_refresh_that_does_not_start_over() {
    every_order(|| adder_against_firing(Broken::RefreshesOnce));
}

#[test]
#[should_panic(expected = "`earliest` stays too late")]
fn broken_by_a_refresh_without_order() {
    let _weak = weaken(Weakness::Swap);
    every_order(|| adder_against_firing(Broken::Nothing));
}

#[test]
#[should_panic(expected = "the timekeeper sleeps too long")]
fn broken_by_a_firing_thread_that_does_not_check_the_timekeeper() {
    exactly_these_orders(3, || {
        adder_and_firing_against_m_that_sleeps(0, Broken::FiresWithoutCheck);
    });
}

#[test]
#[should_panic(expected = "no M keeps the time")]
fn broken_by_a_firing_thread_that_wakes_only_the_timekeeper() {
    exactly_these_orders(2, || {
        adder_and_firing_against_hand_off(Broken::FiresAndWakesOnlyTimekeeper);
    });
}

#[test]
#[should_panic(expected = "no M keeps the time")]
fn broken_by_a_hand_off_without_a_check() {
    every_order(|| adder_against_hand_off(Broken::HandsOffWithoutCheck));
}

#[test]
#[should_panic(expected = "no M keeps the time")]
fn broken_by_a_hand_off_without_a_barrier() {
    let _weak = weaken(Weakness::Heavy);
    every_order(|| adder_against_hand_off(Broken::Nothing));
}
