//! Input and output beside files and the network.

pub(crate) mod polled;
