//! Says `ported` where there is a port, and `interposed` where libc functions are replaced: one name
//! for one condition each.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(ported)");
    println!("cargo::rustc-check-cfg=cfg(interposed)");
    let target = |what: &str| env::var(format!("CARGO_CFG_TARGET_{what}")).unwrap_or_default();
    let ported = target("OS") == "linux" && target("ARCH") == "x86_64" && target("ENV") == "gnu";
    // `--cfg gosched_no_port` shows on a system with a port what others see.
    if !ported || env::var_os("CARGO_CFG_GOSCHED_NO_PORT").is_some() {
        return;
    }
    println!("cargo::rustc-cfg=ported");
    if env::var_os("CARGO_FEATURE_THREADS").is_none() && !has_sanitizer() {
        println!("cargo::rustc-cfg=interposed");
    }
}

/// Whether this build has a sanitizer that keeps records of each thread's stack. It would take a
/// goroutine's frames for errors; and ThreadSanitizer calls the functions that we would replace
/// before it can run code that it has instrumented, which ours is, so that the program would crash
/// before `main`.
fn has_sanitizer() -> bool {
    let sanitizers = env::var("CARGO_CFG_SANITIZE").unwrap_or_default();
    sanitizers.split(',').any(|name| !["", "cfi", "kcfi"].contains(&name))
}
