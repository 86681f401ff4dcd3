//! What must be done before the program's own `main`.

/// The panic hook: a program that sets its own replaces it, so it has to be there first.
#[used]
#[unsafe(link_section = ".init_array")]
static HOOK: extern "C" fn() = {
    extern "C" fn install() {
        crate::api::panic::install_hook();
    }
    install
};
