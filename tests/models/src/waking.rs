//! Submission against Ms that go to sleep: no G stays in a queue while a P is idle and no M looks
//! for work.
//!
//! A forgotten G leaves every M asleep, which loom reports as a deadlock. A submitter that holds a
//! P stays busy after it has submitted, so another M must take its G.

use super::item::{Item, assert_all_taken};
use super::waking_fixture::{LeftOut, World};
use crate::explore::{every_order, exactly_these_orders, leak, most_orders};
use crate::sys::weakness::{Weakness, weaken};
use loom::thread;

/// Runs one M that is about to sleep against a submission from outside.
fn outside_against_one(left_out: LeftOut) {
    let world = leak(World::new(1, 1, 1, left_out));
    let m = world.begin_spinning(0, 0);
    let g = Item::new(0);
    world.submit(g);
    m.join().unwrap();
    assert_all_taken(&[g]);
}

/// Like [`outside_against_one`], but a G submits and then continues to run. `next`: to `run_next`
/// instead of the ring.
fn inside_against_one(left_out: LeftOut, next: bool) {
    let world = leak(World::new(2, 1, 1, left_out));
    let m = world.begin_spinning(0, 1);
    let g = Item::new(0);
    world.submit_to(0, g, next);
    m.join().unwrap();
    assert_all_taken(&[g]);
}

/// Submits two Gs that need two Ms, while one M spins and a second M is about to sleep.
fn inside_against_two(left_out: LeftOut) {
    let world = leak(World::new(3, 2, 2, left_out).run_together());
    let ms = [world.begin_spinning(0, 1), world.begin_asleep(1, 2)];
    let gs = [Item::new(0), Item::new(1)];
    gs.iter().for_each(|g| world.submit_to(0, g, true));
    ms.into_iter().for_each(|m| m.join().unwrap());
    assert_all_taken(&gs);
}

/// Like [`inside_against_two`], but one G is submitted from outside.
fn both_against_two(left_out: LeftOut) {
    let world = leak(World::new(3, 2, 2, left_out).run_together());
    let ms = [world.begin_spinning(0, 1), world.begin_asleep(1, 2)];
    let gs = [Item::new(0), Item::new(1)];
    let [first, second] = gs;
    let outside = thread::spawn(move || world.submit(first));
    world.submit_to(0, second, false);
    outside.join().unwrap();
    ms.into_iter().for_each(|m| m.join().unwrap());
    assert_all_taken(&gs);
}

/// Runs two spinners: one finds the queued G, the second finds nothing, and one more G is
/// submitted.
fn inside_against_two_spinners(left_out: LeftOut) {
    let world = leak(World::new(3, 2, 2, left_out).run_together());
    let gs = [Item::new(0), Item::new(1)];
    world.submit_to(0, gs[0], false);
    let ms = [world.begin_spinning(0, 1), world.begin_spinning(1, 2)];
    world.submit_to(0, gs[1], false);
    ms.into_iter().for_each(|m| m.join().unwrap());
    assert_all_taken(&gs);
}

/// Hands off a P without work while a G with another P submits and then continues to run. The only
/// M that could take the submitted G sleeps.
fn inside_against_a_hand_off(left_out: LeftOut) {
    let world = leak(World::new(2, 1, 1, left_out));
    let m = world.begin_without_p(0);
    let g = Item::new(0);
    let hand_off = thread::spawn(move || world.hand_off(1));
    world.submit_to(0, g, false);
    hand_off.join().unwrap();
    m.join().unwrap();
    assert_all_taken(&[g]);
}

/// Parks a G that can run again by the time its P has moved on to the next G. `is_told`: the G is
/// submitted again, which wakes an M; otherwise it is only pushed.
fn parks_although_runnable_again(is_told: bool) {
    let world = leak(World::new(2, 1, 2, LeftOut::Nothing));
    let gs @ [next, g] = [Item::new(0), Item::new(1)];
    world.submit_to(0, next, false);
    let m = world.begin_spinning(0, 1);
    match world.take(0) {
        Some(next) if is_told => {
            world.submit_to(0, g, true);
            world.run(next);
        }
        Some(next) => {
            world.push_to(0, g, true);
            world.run(next);
        }
        None => world.run(g),
    }
    m.join().unwrap();
    assert_all_taken(&gs);
}

#[test]
fn a_g_that_is_runnable_again_when_it_has_parked_is_found() {
    most_orders(3, || parks_although_runnable_again(true));
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_by_a_push_that_wakes_no_m() {
    every_order(|| parks_although_runnable_again(false));
}

#[test]
fn the_last_spinner_finds_a_g_that_is_submitted_meanwhile() {
    most_orders(3, || inside_against_two_spinners(LeftOut::Nothing));
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_by_a_count_of_spinners_without_order() {
    let _weak = weaken(Weakness::Add);
    exactly_these_orders(3, || inside_against_two_spinners(LeftOut::Nothing));
}

#[test]
fn a_g_from_outside_is_found() {
    every_order(|| outside_against_one(LeftOut::Nothing));
}

#[test]
fn a_g_in_a_ring_is_found() {
    every_order(|| inside_against_one(LeftOut::Nothing, false));
}

#[test]
fn a_g_in_run_next_is_found() {
    every_order(|| inside_against_one(LeftOut::Nothing, true));
}

#[test]
fn two_gs_find_two_ms() {
    most_orders(2, || inside_against_two(LeftOut::Nothing));
}

#[test]
fn two_gs_of_two_submitters_find_two_ms() {
    most_orders(2, || both_against_two(LeftOut::Nothing));
}

#[test]
fn a_g_that_is_submitted_while_a_p_is_handed_off_is_found() {
    most_orders(4, || inside_against_a_hand_off(LeftOut::Nothing));
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_by_a_hand_off_that_does_not_check_again() {
    every_order(|| inside_against_a_hand_off(LeftOut::CheckAfterHandOff));
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_by_a_hand_off_without_a_barrier() {
    let _weak = weaken(Weakness::Heavy);
    every_order(|| inside_against_a_hand_off(LeftOut::Nothing));
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_by_a_submitter_that_passes_no_barrier_during_a_hand_off() {
    let _weak = weaken(Weakness::Light);
    every_order(|| inside_against_a_hand_off(LeftOut::Nothing));
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_by_a_submitter_without_a_barrier() {
    let _weak = weaken(Weakness::Light);
    every_order(|| inside_against_one(LeftOut::Nothing, false));
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_by_an_m_without_a_barrier() {
    let _weak = weaken(Weakness::Heavy);
    every_order(|| inside_against_one(LeftOut::Nothing, false));
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_by_an_m_that_does_not_check_again() {
    every_order(|| inside_against_one(LeftOut::CheckAgain, false));
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_by_a_spinner_that_wakes_no_other_m() {
    most_orders(2, || inside_against_two(LeftOut::WakeAnotherM));
}
