//! Ordinary threads that wait for goroutines: they may be part of a deadlock. A thread that waits
//! for anything else is never shown.

use super::text::Printer;
use crate::sched::inspector::{Frames, Inspector, WaitingThread, waiting_threads};
use std::io::{self, Write};

/// Writes each of these threads in the format of a goroutine, after a blank line.
///
/// # Errors
/// `out` fails.
pub(super) fn write_waiting(inspector: &mut Inspector, out: &mut dyn Write) -> io::Result<()> {
    let mut printer = Printer::new();
    let mut frames = Frames::default();
    for thread in waiting_threads() {
        let WaitingThread { id, reason, .. } = &thread;
        let mut text = Vec::new();
        writeln!(text, "\nthread {id} [{}] {{name: {}}}:", reason.words(), name(*id))?;
        inspector.inspect_thread(&thread, &mut frames);
        printer.print_frames(&mut text, inspector, &frames)?;
        out.write_all(&text)?;
    }
    Ok(())
}

/// Returns the name of a thread of this process: `main` for the main thread, `?` if the system does
/// not provide the name.
fn name(id: i32) -> String {
    if id.cast_unsigned() == std::process::id() {
        return "main".to_owned();
    }
    let name = std::fs::read_to_string(format!("/proc/self/task/{id}/comm"));
    name.map_or("?".to_owned(), |name| name.trim_end().to_owned())
}
