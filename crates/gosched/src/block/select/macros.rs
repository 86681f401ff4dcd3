//! The syntax of `select!`. The macros never choose an arm: they build the list of arms, and a
//! function of `select` chooses.

/// Waits until one of several channel operations is ready, performs it, and evaluates the body of
/// its arm. `select!` is an expression.
///
/// ```
/// use gosched::{chan, go, select};
///
/// let (numbers_tx, numbers) = chan::<u32>(0);
/// let (words_tx, words) = chan::<&str>(1);
/// go(move || numbers_tx.send(7).unwrap());
/// let said = select! {
///     recv(numbers) -> number => format!("{}", number.unwrap()),
///     send(words_tx, "hello") -> sent => {
///         sent.unwrap();
///         words.recv().unwrap().to_string()
///     }
/// };
/// assert!(said == "7" || said == "hello");
/// ```
///
/// | arm | |
/// |---|---|
/// | `recv(rx) -> v => …` | receives; `v` is a `Result<T, RecvError>` |
/// | `send(tx, x) -> r => …` | sends `x`; `r` is a `Result<(), SendError<T>>` |
/// | `send(tx, take slot) -> r => …` | sends the value in `slot: Option<T>`; disabled if `None` |
/// | `default => …` | is chosen if no other arm is ready |
/// | `default(duration) => …` | is chosen if no other arm becomes ready within `duration` |
///
/// An arm is ready if its operation does not block. On a closed channel no operation blocks: a
/// receive returns the values in the buffer and then an error, and a send returns an error.
///
/// The value `x` is evaluated once, before the wait, and is dropped if another arm is chosen. The
/// value in `slot` is taken only if its arm is chosen.
///
/// `rx` and `tx` may be an end of the channel, a pointer to an end (`&`, `Box`, `Rc`, `Arc`), or an
/// `Option` of these. `None` disables the
/// arm, like Go's nil channel. If several arms are ready, one of them is chosen at random. If no
/// arm can ever become ready and there is no default, `select!` blocks forever. `?`, `break`,
/// `continue` and `return` work in the bodies of arms. For more than 40 arms use
/// [`Select`](crate::Select).
#[macro_export]
macro_rules! select {
    ($($tokens:tt)*) => {
        $crate::__select!(@read [] [] $($tokens)*)
    };
}

/// The implementation of [`select!`]: reads the arms one by one, then builds the call.
#[doc(hidden)]
#[macro_export]
macro_rules! __select {
    // The arms: each becomes `[(constructor) (pattern) body]`. The default becomes
    // `[[limit] body]`.
    (@read [$($arms:tt)*] [$($default:tt)*] recv($rx:expr $(,)?) -> $result:pat => $body:block, $($rest:tt)*) => {
        $crate::__select!(@read [$($arms)* [($crate::__arms::ReceiveArm::new(&$rx)) ($result) $body]] [$($default)*] $($rest)*)
    };
    (@read [$($arms:tt)*] [$($default:tt)*] recv($rx:expr $(,)?) -> $result:pat => $body:block $($rest:tt)*) => {
        $crate::__select!(@read [$($arms)* [($crate::__arms::ReceiveArm::new(&$rx)) ($result) $body]] [$($default)*] $($rest)*)
    };
    (@read [$($arms:tt)*] [$($default:tt)*] recv($rx:expr $(,)?) -> $result:pat => $body:expr, $($rest:tt)*) => {
        $crate::__select!(@read [$($arms)* [($crate::__arms::ReceiveArm::new(&$rx)) ($result) $body]] [$($default)*] $($rest)*)
    };
    (@read [$($arms:tt)*] [$($default:tt)*] recv($rx:expr $(,)?) -> $result:pat => $body:expr) => {
        $crate::__select!(@read [$($arms)* [($crate::__arms::ReceiveArm::new(&$rx)) ($result) $body]] [$($default)*])
    };
    // `take(…)` is a call of a function named `take`, not the keyword of `send(tx, take slot)`.
    (@read [$($arms:tt)*] [$($default:tt)*] send($tx:expr, take($($call:tt)*) $(,)?) -> $result:pat => $body:block, $($rest:tt)*) => {
        $crate::__select!(@read [$($arms)* [($crate::__arms::SendArm::new(&$tx, take($($call)*))) ($result) $body]] [$($default)*] $($rest)*)
    };
    (@read [$($arms:tt)*] [$($default:tt)*] send($tx:expr, take($($call:tt)*) $(,)?) -> $result:pat => $body:block $($rest:tt)*) => {
        $crate::__select!(@read [$($arms)* [($crate::__arms::SendArm::new(&$tx, take($($call)*))) ($result) $body]] [$($default)*] $($rest)*)
    };
    (@read [$($arms:tt)*] [$($default:tt)*] send($tx:expr, take($($call:tt)*) $(,)?) -> $result:pat => $body:expr, $($rest:tt)*) => {
        $crate::__select!(@read [$($arms)* [($crate::__arms::SendArm::new(&$tx, take($($call)*))) ($result) $body]] [$($default)*] $($rest)*)
    };
    (@read [$($arms:tt)*] [$($default:tt)*] send($tx:expr, take($($call:tt)*) $(,)?) -> $result:pat => $body:expr) => {
        $crate::__select!(@read [$($arms)* [($crate::__arms::SendArm::new(&$tx, take($($call)*))) ($result) $body]] [$($default)*])
    };
    (@read [$($arms:tt)*] [$($default:tt)*] send($tx:expr, take $slot:expr $(,)?) -> $result:pat => $body:block, $($rest:tt)*) => {
        $crate::__select!(@read [$($arms)* [($crate::__arms::TakeArm::new(&$tx, &mut $slot)) ($result) $body]] [$($default)*] $($rest)*)
    };
    (@read [$($arms:tt)*] [$($default:tt)*] send($tx:expr, take $slot:expr $(,)?) -> $result:pat => $body:block $($rest:tt)*) => {
        $crate::__select!(@read [$($arms)* [($crate::__arms::TakeArm::new(&$tx, &mut $slot)) ($result) $body]] [$($default)*] $($rest)*)
    };
    (@read [$($arms:tt)*] [$($default:tt)*] send($tx:expr, take $slot:expr $(,)?) -> $result:pat => $body:expr, $($rest:tt)*) => {
        $crate::__select!(@read [$($arms)* [($crate::__arms::TakeArm::new(&$tx, &mut $slot)) ($result) $body]] [$($default)*] $($rest)*)
    };
    (@read [$($arms:tt)*] [$($default:tt)*] send($tx:expr, take $slot:expr $(,)?) -> $result:pat => $body:expr) => {
        $crate::__select!(@read [$($arms)* [($crate::__arms::TakeArm::new(&$tx, &mut $slot)) ($result) $body]] [$($default)*])
    };
    (@read [$($arms:tt)*] [$($default:tt)*] send($tx:expr, $value:expr $(,)?) -> $result:pat => $body:block, $($rest:tt)*) => {
        $crate::__select!(@read [$($arms)* [($crate::__arms::SendArm::new(&$tx, $value)) ($result) $body]] [$($default)*] $($rest)*)
    };
    (@read [$($arms:tt)*] [$($default:tt)*] send($tx:expr, $value:expr $(,)?) -> $result:pat => $body:block $($rest:tt)*) => {
        $crate::__select!(@read [$($arms)* [($crate::__arms::SendArm::new(&$tx, $value)) ($result) $body]] [$($default)*] $($rest)*)
    };
    (@read [$($arms:tt)*] [$($default:tt)*] send($tx:expr, $value:expr $(,)?) -> $result:pat => $body:expr, $($rest:tt)*) => {
        $crate::__select!(@read [$($arms)* [($crate::__arms::SendArm::new(&$tx, $value)) ($result) $body]] [$($default)*] $($rest)*)
    };
    (@read [$($arms:tt)*] [$($default:tt)*] send($tx:expr, $value:expr $(,)?) -> $result:pat => $body:expr) => {
        $crate::__select!(@read [$($arms)* [($crate::__arms::SendArm::new(&$tx, $value)) ($result) $body]] [$($default)*])
    };
    // The default: at most one.
    (@read [$($arms:tt)*] [] default => $body:block, $($rest:tt)*) => {
        $crate::__select!(@read [$($arms)*] [[] $body] $($rest)*)
    };
    (@read [$($arms:tt)*] [] default => $body:block $($rest:tt)*) => {
        $crate::__select!(@read [$($arms)*] [[] $body] $($rest)*)
    };
    (@read [$($arms:tt)*] [] default => $body:expr, $($rest:tt)*) => {
        $crate::__select!(@read [$($arms)*] [[] $body] $($rest)*)
    };
    (@read [$($arms:tt)*] [] default => $body:expr) => {
        $crate::__select!(@read [$($arms)*] [[] $body])
    };
    (@read [$($arms:tt)*] [] default($limit:expr $(,)?) => $body:block, $($rest:tt)*) => {
        $crate::__select!(@read [$($arms)*] [[$limit] $body] $($rest)*)
    };
    (@read [$($arms:tt)*] [] default($limit:expr $(,)?) => $body:block $($rest:tt)*) => {
        $crate::__select!(@read [$($arms)*] [[$limit] $body] $($rest)*)
    };
    (@read [$($arms:tt)*] [] default($limit:expr $(,)?) => $body:expr, $($rest:tt)*) => {
        $crate::__select!(@read [$($arms)*] [[$limit] $body] $($rest)*)
    };
    (@read [$($arms:tt)*] [] default($limit:expr $(,)?) => $body:expr) => {
        $crate::__select!(@read [$($arms)*] [[$limit] $body])
    };
    (@read [$($arms:tt)*] [$($default:tt)+] default $($rest:tt)*) => {
        ::core::compile_error!("`select!` supports at most one `default` arm")
    };
    // All arms have been read.
    (@read [$($arms:tt)*] []) => {{
        let chosen = $crate::__arms::select($crate::__select!(@list $($arms)*));
        $crate::__select!(@match chosen; $($arms)*)
    }};
    (@read [$($arms:tt)*] [[] $default:expr]) => {{
        let chosen = $crate::__arms::select_or_default($crate::__select!(@list $($arms)*));
        match chosen {
            ::core::option::Option::Some(chosen) => $crate::__select!(@match chosen; $($arms)*),
            ::core::option::Option::None => $default,
        }
    }};
    (@read [$($arms:tt)*] [[$limit:expr] $default:expr]) => {{
        let limit: ::std::time::Duration = $limit;
        let chosen = $crate::__arms::select_for($crate::__select!(@list $($arms)*), limit);
        match chosen {
            ::core::option::Option::Some(chosen) => $crate::__select!(@match chosen; $($arms)*),
            ::core::option::Option::None => $default,
        }
    }};
    (@read [$($arms:tt)*] [$($default:tt)*] $($rest:tt)+) => {
        ::core::compile_error!(::core::concat!(
            "`select!` cannot read `",
            ::core::stringify!($($rest)+),
            "`: arms are `recv(rx) -> v => …,`, `send(tx, x) -> r => …,`, `send(tx, take slot) -> r => …,`, `default => …,` and `default(duration) => …,`",
        ))
    };
    (@list) => { () };
    (@list [($arm:expr) ($result:pat) $body:expr] $($rest:tt)*) => {
        ($arm, $crate::__select!(@list $($rest)*))
    };
    (@match $chosen:ident;) => { match $chosen {} };
    (@match $chosen:ident; [($arm:expr) ($result:pat) $body:expr] $($rest:tt)*) => {
        match $chosen {
            $crate::__arms::Either::First($result) => $body,
            $crate::__arms::Either::Rest(rest) => $crate::__select!(@match rest; $($rest)*),
        }
    };
}
