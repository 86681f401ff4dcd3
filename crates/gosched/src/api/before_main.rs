//! What must be done before the program's own `main`.

/// The panic hook: a program that sets its own replaces it, so it has to be there first. And what the scheduler
/// shows when the process must end.
#[used]
#[unsafe(link_section = ".init_array")]
static HOOK: extern "C" fn() = {
    extern "C" fn install() {
        crate::api::panic::install_hook();
        crate::observe::prepare();
    }
    install
};
