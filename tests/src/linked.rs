//! The linked C code, as functions that are safe to call.

use std::ffi::CString;

/// Declares C functions of `c/linked.c` and safe functions around them.
macro_rules! c {
    ($($(#[$doc:meta])* $name:ident = $c:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?;)*) => {$(
        $(#[$doc])*
        pub fn $name($($arg: $type),*) $(-> $result)? {
            unsafe extern "C" {
                fn $c($($arg: $type),*) $(-> $result)?;
            }
            // SAFETY: the C function has no precondition.
            unsafe { $c($($arg),*) }
        }
    )*};
}

c! {
    /// Counts up a `__thread` variable that starts at 5.
    count = linked_count() -> i32;
    /// Gives the caller a locale of its own; 0 if it cannot.
    use_locale = linked_use_locale() -> i32;
    /// 1 if the caller has one.
    has_locale = linked_has_locale() -> i32;
    /// Whether the caller's locale takes a character for a letter.
    is_alpha = linked_isalpha(c: i32) -> i32;
    /// Whether the caller's locale is a UTF-8 one.
    is_utf8 = linked_is_utf8() -> i32;
    /// Sets errno.
    set_errno = linked_set_errno(value: i32);
    /// errno.
    errno = linked_errno() -> i32;
    /// Creates the pthread key; its destructor adds up what it gets, and sets it again, less one.
    make_key = linked_make_key();
    /// The key's value.
    key = linked_key() -> i64;
    /// Sets it.
    set_key = linked_set_key(value: i64);
    /// What destructors added up.
    destroyed = linked_destroyed() -> i32;
    /// Locks a recursive mutex; 1 if it was free or the caller's.
    try_lock = linked_try_lock() -> i32;
    /// Unlocks it.
    unlock = linked_unlock() -> i32;
    /// Sets the rounding mode: 0 nearest, 1 down, 2 up, 3 to zero.
    round = linked_round(mode: i32);
    /// One third, in SSE, as the rounding mode has it.
    third = linked_third() -> f64;
    /// Whether the x87 unit rounds one third down.
    x87_rounds_down = linked_x87_rounds_down() -> i32;
    /// Whether an operation was inexact since the flag was cleared.
    inexact = linked_inexact() -> i32;
    /// Clears that flag.
    clear_inexact = linked_clear_inexact();
    /// Whether libc knows the caller's stack.
    stack_is_known = linked_stack_is_known() -> i32;
    /// Whether libc knows the caller's affinity.
    affinity_is_known = linked_affinity_is_known() -> i32;
    /// Whether libc knows a clock of the caller's CPU time.
    cpu_clock_is_known = linked_cpu_clock_is_known() -> i32;
    /// The CPU the caller is on.
    cpu = linked_cpu() -> i32;
    /// A frame of 40 KB at each depth.
    big_frame = linked_big_frame(depth: i32) -> i32;
    /// A frame of 130 KB at each depth, touched in its middle.
    huge_frame = linked_huge_frame(depth: i32) -> i32;
    /// Turns cancellation off; 1 if it was on.
    disable_cancel = linked_disable_cancel() -> i32;
    /// Whether the caller's resolver state is its own.
    resolver_is_own = linked_resolver_is_own() -> i32;
    /// A setting of the resolver, which is then changed to 7.
    resolver_ndots = linked_resolver_ndots() -> i32;
    /// Registers a function that says "at exit" when the process ends.
    at_exit = linked_at_exit() -> i32;
    /// Sets a key, deletes it, and creates another, which gets its number.
    outlive_key = linked_outlive_key();
    /// How often the second key's destructor was called.
    second_calls = linked_second_calls() -> i32;
    /// Makes 60 keys that their destructors set again.
    make_stubborn = linked_make_stubborn();
    /// Sets them; returns how many were set.
    set_stubborn = linked_set_stubborn() -> i32;
}

/// `strtod`.
///
/// # Panics
/// The text has a null in it.
pub fn parse(text: &str) -> f64 {
    unsafe extern "C" {
        fn linked_parse(text: *const std::ffi::c_char) -> f64;
    }
    let text = CString::new(text).expect("no null");
    // SAFETY: a C string that outlives the call.
    unsafe { linked_parse(text.as_ptr()) }
}
