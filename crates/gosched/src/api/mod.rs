//! What a program calls: turns closures into Gs and hands back handles.

pub mod alloc;
pub mod attributes;
pub(crate) mod blocking;
pub(crate) mod builder;
pub(crate) mod goroutine;
#[cfg(feature = "hyper")]
pub mod hyper;
pub(crate) mod join;
pub(crate) mod packet;
pub(crate) mod panic;
pub mod rules;
pub(crate) mod run;
pub mod runtime;
pub(crate) mod scope;
pub(crate) mod stack;
pub(crate) mod thread;
pub(crate) mod virtual_time;
