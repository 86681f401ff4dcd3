//! Compiles the C code that suites link against.

fn main() {
    println!("cargo::rerun-if-changed=c/linked.c");
    cc::Build::new().file("c/linked.c").compile("gosched_tests_linked");
}
