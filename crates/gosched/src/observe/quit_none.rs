//! The version of `quit` for systems without a port: the runtime leaves SIGQUIT alone. This version
//! never installs a handler.

pub(crate) fn install_quit_handler() {}

pub(super) fn note_inherited() {}

pub(super) fn write_header_once() {}
