//! Compiles the C code that suites link against.

fn main() {
    for name in ["linked", "waits"] {
        let file = format!("c/{name}.c");
        println!("cargo::rerun-if-changed={file}");
        cc::Build::new().file(file).compile(&format!("gosched_tests_{name}"));
    }
}
