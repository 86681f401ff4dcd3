//! The syntax.

/// Waits until one of several channels is ready, and goes on with that arm. An expression.
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
/// | `recv(rx) -> v => …` | `v` is a `Result<T, RecvError>` |
/// | `send(tx, x) -> r => …` | `x` is evaluated once, before it waits, and dropped if another arm is chosen; `r` is a `Result<(), SendError<T>>` |
/// | `send(tx, take slot) -> r => …` | `slot: Option<T>` is taken only if the arm is chosen; off while it is empty |
/// | `default => …` | if no other arm is ready |
/// | `default(duration) => …` | if none is ready within that time |
///
/// Channels may be values, references, temporaries, or an `Option` of these: `None` is an arm that is
/// off, as Go's nil channel. Where several are ready one is chosen at random. Where no arm can ever be
/// ready, and there is no default, it waits for ever. For more than 40 arms there is [`Select`](crate::Select). `?`, `break`, `continue` and `return` work in arms.
#[macro_export]
macro_rules! select {
    ($($tokens:tt)*) => {
        $crate::__select!(@read [] [] $($tokens)*)
    };
}

/// The inside of [`select!`]: reads arm by arm, then builds.
#[doc(hidden)]
#[macro_export]
macro_rules! __select {
    // Arms. Read: [how to make it; pattern; body], and [default's body].
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
    // A function of that name is called.
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
        ::core::compile_error!("`select!` has one `default` at most")
    };
    // All read.
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
