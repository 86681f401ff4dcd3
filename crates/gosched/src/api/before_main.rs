//! Setup that runs before the program's `main`. Never starts the runtime, and never makes a thread.

/// Installs the panic hook, and registers the functions that report goroutines when the process
/// must end. A panic hook that the program sets itself must replace this one, so this one comes
/// first.
#[used]
#[unsafe(link_section = ".init_array")]
static HOOK: extern "C" fn() = {
    extern "C" fn install() {
        crate::api::panic::install_hook();
        crate::observe::prepare();
    }
    install
};
