//! The twin of `quit` on systems without a port: SIGQUIT does what it always did.

pub(crate) fn watch_for_quit() {}

pub(super) fn note_inherited() {}

pub(super) fn begin_if_silent() {}
