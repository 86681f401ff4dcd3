//! The twin of `moving` on systems without a port: an honest no. Goroutines are threads there.

use super::Order;
use crate::gmp::frame::Registers;
use crate::gmp::g::G;
use crate::gmp::reason::WaitReason;

/// There is none.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Size {}

pub(crate) fn start() -> Result<(), String> {
    Err("there is no port to this system".into())
}

#[inline]
pub(crate) fn is_here() -> bool {
    false
}

pub(crate) fn size(_bytes: usize) -> std::io::Result<Size> {
    unreachable!("{NEVER}")
}

pub(crate) fn spawn(_order: Order<'_>) -> (&'static G, u64) {
    unreachable!("{NEVER}")
}

/// # Safety
/// - **commit**: as the other backend's.
pub(crate) unsafe fn park(
    _g: &'static G,
    _reason: WaitReason,
    _commit: unsafe fn(&'static G, *const ()) -> bool,
    _data: *const (),
) {
    unreachable!("{NEVER}")
}

pub(crate) fn ready(_g: &'static G) {
    unreachable!("{NEVER}")
}

/// # Safety
/// - **commit**: as the other backend's.
pub(crate) unsafe fn park_inside(
    _g: &'static G,
    _reason: WaitReason,
    _commit: unsafe fn(&'static G, *const ()) -> bool,
    _data: *const (),
) {
    unreachable!("{NEVER}")
}

pub(crate) fn ready_inside(_g: &'static G) {
    unreachable!("{NEVER}")
}

/// # Safety
/// - **alive**: as the other backend's.
pub(crate) unsafe fn start_timer(_timer: &crate::gmp::timer::Timer, _when: u64) {
    unreachable!("{NEVER}")
}

pub(crate) fn is_spinning_worth_it() -> bool {
    unreachable!("{NEVER}")
}

pub(crate) fn p_number() -> usize {
    unreachable!("{NEVER}")
}

pub(crate) fn go_inside() {
    unreachable!("{NEVER}")
}

pub(crate) fn go_outside() {
    unreachable!("{NEVER}")
}

pub(crate) fn yield_locally(_g: &'static G) {
    unreachable!("{NEVER}")
}

pub(crate) fn yield_now(_g: &'static G) {
    unreachable!("{NEVER}")
}

pub(crate) fn lock_os_thread(_g: &'static G) {
    unreachable!("{NEVER}")
}

pub(crate) fn unlock_os_thread(_g: &'static G) {
    unreachable!("{NEVER}")
}

pub(crate) fn prepare(_order: Order<'_>) -> &'static G {
    unreachable!("{NEVER}")
}

pub(crate) fn discard(_g: &'static G) {
    unreachable!("{NEVER}")
}

pub(crate) fn live(_g: &'static G) {
    unreachable!("{NEVER}")
}

pub(crate) fn procs() -> usize {
    unreachable!("{NEVER}")
}

pub(crate) fn set_procs(_procs: usize) -> usize {
    unreachable!("{NEVER}")
}

pub(crate) fn num_goroutines() -> usize {
    unreachable!("{NEVER}")
}

pub(crate) fn head() -> super::inspect::types::Head {
    unreachable!("{NEVER}")
}

pub(crate) fn count(_numbers: &mut super::numbers::Numbers) {
    unreachable!("{NEVER}")
}

pub(crate) fn cpu_time() -> u64 {
    unreachable!("{NEVER}")
}

pub(crate) fn write_ps(_out: &mut dyn std::fmt::Write) -> std::fmt::Result {
    Ok(())
}

pub(crate) fn write_ms(_out: &mut dyn std::fmt::Write) -> std::fmt::Result {
    Ok(())
}

pub(crate) fn length_and_tick(_index: usize) -> (usize, u32) {
    (0, 0)
}

pub(crate) fn m_of(_g: &'static G) -> Option<u64> {
    None
}

pub(crate) fn locked_m_of(_g: &'static G) -> Option<u64> {
    None
}

pub(crate) fn set_max_threads(_most: u32) -> u32 {
    unreachable!("{NEVER}")
}

pub(crate) fn begin_call(_g: &'static G, _long: bool, _registers: *const Registers) {
    unreachable!("{NEVER}")
}

pub(crate) fn num_threads() -> usize {
    unreachable!("{NEVER}")
}

pub(crate) fn become_main_m() -> ! {
    unreachable!("{NEVER}")
}

pub(crate) fn main_has_exited() {}

pub(crate) fn hand_offs() -> (u64, u64) {
    (0, 0)
}

pub(crate) fn preemptions() -> [u64; 4] {
    [0; 4]
}

pub(crate) fn without_preemption<R>(_g: &'static G, f: impl FnOnce() -> R) -> R {
    f()
}

pub(crate) fn get_polled() {}

pub(crate) fn look_for_deadlock() {}

pub(crate) fn set_deadlock_ends(_ends: bool) {}

pub(crate) fn refuse_in_child(_what: &str) {}

/// Not used for anything here.
pub(crate) const PATIENCE: std::time::Duration = std::time::Duration::from_millis(10);

pub(crate) fn check_panic() {}

pub(crate) fn with_preemption_off<R>(f: impl FnOnce() -> R) -> R {
    f()
}

pub(crate) fn with_world_stopped<R>(f: impl FnOnce() -> R) -> R {
    f()
}

/// Runs `f` where it is: there is no way to another stack.
pub(crate) fn with_stack(_bytes: usize, f: &mut dyn FnMut()) -> std::io::Result<()> {
    f();
    Ok(())
}

const NEVER: &str = "`start` refused, so nothing is asked of this backend";

/// Not asked of every system.
pub(crate) fn thread_id() -> i32 {
    0
}

pub(crate) fn registers_here(_to: &mut std::mem::MaybeUninit<Registers>) {}

pub(crate) fn call_from_spawner(_f: fn()) -> bool {
    false
}

pub(crate) fn list_goroutines() {}

pub(crate) fn look_at_timers() {}

pub(crate) fn set_overflow_report(_report: fn()) {}
