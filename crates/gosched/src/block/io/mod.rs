//! Input and output beside files and the network.

pub(crate) mod polled;

#[cfg(feature = "hyper")]
pub(crate) mod async_wait;
