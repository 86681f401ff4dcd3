//! Work that may take so long and no longer.

use crate::block::context::{self, Context};
use crate::block::goroutine;
use std::fmt;
use std::panic::resume_unwind;
use std::time::Duration;

/// The time was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the time is over")
    }
}

impl std::error::Error for Elapsed {}

/// Runs `f` in a goroutine of its own, and waits for its result for `duration` at most. When the time is
/// over its context is, and it goes on by itself: it should look.
///
/// ```
/// use gosched::{select, time};
/// use std::time::Duration;
///
/// assert_eq!(time::timeout(Duration::from_secs(60), |_ctx| 6 * 7), Ok(42));
///
/// let slow = time::timeout(Duration::from_millis(5), |ctx| {
///     let _ = ctx.done().recv(); // what it waits for does not come
/// });
/// assert_eq!(slow, Err(time::Elapsed));
/// ```
///
/// # Errors
/// The time was over.
///
/// # Panics
/// With the panic of `f`. Or `f` called [`goexit`](crate::goexit): there is no result.
#[track_caller]
pub fn timeout<F, T>(duration: Duration, f: F) -> Result<T, Elapsed>
where
    F: FnOnce(Context) -> T + Send + 'static,
    T: Send + 'static,
{
    // Not by a timer: what ends because its context is over has not ended in time.
    let (ctx, guard) = context::background().with_guard_timeout(duration);
    match goroutine::go(move || f(ctx)).join_timeout(duration) {
        Ok(Ok(result)) => Ok(result),
        Ok(Err(error)) => match error.try_into_panic() {
            Ok(payload) => resume_unwind(payload),
            Err(_) => panic!("`timeout`: the closure called `goexit`, so there is no result"),
        },
        Err(_goes_on) => {
            guard.expire();
            Err(Elapsed)
        }
    }
}
