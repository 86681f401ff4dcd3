//! Running a function with a time limit. `timeout` never stops the function: it ends the context
//! that the function was given.

use crate::block::context::{self, Context};
use crate::block::goroutine;
use std::fmt;
use std::panic::resume_unwind;
use std::time::Duration;

/// An error returned by [`timeout`]: the time limit was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the time limit was reached")
    }
}

impl std::error::Error for Elapsed {}

/// Runs `f` in a new goroutine, and waits at most `duration` for its result.
///
/// When the time limit is reached, `timeout` returns and the context that `f` was given is done.
/// The goroutine is not stopped: `f` should check its context and return.
///
/// ```
/// use gosched::time;
/// use std::time::Duration;
///
/// assert_eq!(time::timeout(Duration::from_secs(60), |_ctx| 6 * 7), Ok(42));
///
/// let slow = time::timeout(Duration::from_millis(5), |ctx| {
///     let _ = ctx.done().recv(); // stands for work that takes too long
/// });
/// assert_eq!(slow, Err(time::Elapsed));
/// ```
///
/// # Errors
/// The time limit was reached.
///
/// # Panics
/// `f` panics: then `timeout` panics with the same payload. Or `f` calls [`goexit`](crate::goexit),
/// so that there is no result.
#[track_caller]
pub fn timeout<F, T>(duration: Duration, f: F) -> Result<T, Elapsed>
where
    F: FnOnce(Context) -> T + Send + 'static,
    T: Send + 'static,
{
    // The context has no timer: if `f` ends because its context is done, it has not ended in time.
    let (ctx, guard) = context::background().with_guard_timeout(duration);
    match goroutine::go(move || f(ctx)).join_timeout(duration) {
        Ok(Ok(result)) => Ok(result),
        Ok(Err(error)) => match error.try_into_panic() {
            Ok(payload) => resume_unwind(payload),
            Err(_) => panic!(
                "`timeout`: the closure called `goexit`, so there is no result: return from the closure instead"
            ),
        },
        Err(_goes_on) => {
            guard.expire();
            Err(Elapsed)
        }
    }
}
