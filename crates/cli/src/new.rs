//! `gosched new`: makes a small project. This module never changes a file that was there before.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The program of the project.
const MAIN: &str = include_str!("../examples/new_project.rs");

/// The folder of the crate `gosched` of the sources that this command was built from.
const BUILT_FROM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../gosched");

/// Words that cannot name a program: keywords, crates that every program has, and folders of cargo.
const RESERVED: &str = "\
    abstract alloc as async await become box break build const continue core crate deps do dyn \
    else enum examples extern incremental false final fn for gen gosched if impl in let loop macro match mod move mut \
    override priv proc_macro pub ref return self static std struct super test trait true try \
    type typeof unsafe unsized use virtual where while yield";

/// Makes the project in `folder`. `path` is the folder of the crate `gosched`.
///
/// # Errors
/// The folder exists, its name is not that of a package, the crate is not there, or the folder
/// cannot be written.
pub(crate) fn new(folder: &Path, path: Option<PathBuf>) -> io::Result<()> {
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if let Some(why) = is_no_name(name) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let library = path.unwrap_or_else(|| PathBuf::from(BUILT_FROM));
    let is_library = |path: &PathBuf| {
        let manifest = fs::read_to_string(path.join("Cargo.toml")).unwrap_or_default();
        manifest.lines().any(|line| line.trim() == "name = \"gosched\"")
    };
    let Some(library) = library.canonicalize().ok().filter(is_library) else {
        let why = format!(
            "the crate gosched is not in {}: say where it is, with --path CLONE/crates/gosched",
            library.display()
        );
        return Err(io::Error::new(io::ErrorKind::NotFound, why));
    };
    if fs::symlink_metadata(folder).is_ok() {
        let why = format!("{} exists: choose another name", folder.display());
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
    }
    let files = [
        ("Cargo.toml", manifest(name, &library, is_in_workspace(folder))),
        ("src/main.rs", MAIN.to_owned()),
        (".gitignore", "/target\n".to_owned()),
    ];
    for (file, text) in files {
        let path = folder.join(file);
        let cannot = |why: io::Error| {
            io::Error::new(why.kind(), format!("cannot write {}: {why}", path.display()))
        };
        path.parent().map_or(Ok(()), fs::create_dir_all).map_err(cannot)?;
        fs::write(&path, text).map_err(cannot)?;
    }
    writeln!(
        io::stdout(),
        "{folder} is ready:\n  cd {folder}\n  cargo run\n  cargo test",
        folder = folder.display()
    )
}

/// Returns why `name` cannot name a package.
fn is_no_name(name: &str) -> Option<String> {
    let is_first = |c: char| c.is_ascii_alphabetic() || c == '_';
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.starts_with(is_first) || !name.chars().all(is_part) {
        return Some(format!(
            "`{name}` cannot name a package: use letters, digits, - and _, and begin with a letter"
        ));
    }
    let is_reserved = RESERVED.split_whitespace().any(|word| word == name.replace('-', "_"));
    is_reserved.then(|| format!("`{name}` cannot name a package: the word is reserved"))
}

/// Returns whether a folder above belongs to a workspace, which would claim the project.
fn is_in_workspace(folder: &Path) -> bool {
    let Ok(folder) = std::path::absolute(folder) else { return false };
    folder.ancestors().skip(1).any(|above| {
        let manifest = fs::read_to_string(above.join("Cargo.toml"));
        manifest.is_ok_and(|text| text.lines().any(|line| line.trim().starts_with("[workspace")))
    })
}

fn manifest(name: &str, library: &Path, is_in_workspace: bool) -> String {
    // A JSON string is a TOML string too.
    let library = serde_json::Value::from(library.to_string_lossy()).to_string();
    let workspace =
        if is_in_workspace { "\n# Not a part of the workspace above.\n[workspace]\n" } else { "" };
    format!(
        "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n\
         [dependencies]\ngosched = {{ path = {library} }}\n\n\
         # Stack dumps name lines.\n[profile.release]\ndebug = \"line-tables-only\"\n{workspace}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_cargo_s_rules() {
        for good in ["hello", "a", "_x", "my-app_2"] {
            assert_eq!(is_no_name(good), None);
        }
        for bad in
            ["", "2x", "-x", "ä", "a b", "a/b", "test", "proc-macro", "gosched", "fn", "deps"]
        {
            assert!(is_no_name(bad).is_some(), "{bad}");
        }
    }
}
