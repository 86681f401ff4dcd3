//! Sysmon: a thread without a P that monitors all Ps. Sysmon never runs a G: it hands Ps to Ms that
//! do.

pub(crate) mod in_flight;
pub(crate) mod poll_watch;
pub(crate) mod retake;
pub(crate) mod sysmon;
