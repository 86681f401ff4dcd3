//! Identities on glibc, dynamic or static.
//!
//! [`Glibc`] is what was found out at start; it never changes, except for the image of first values,
//! which is replaced when libraries with static thread-locals come and go (`loading`).
//!
//! A slot is marked as holding an identity *before* ld.so fills it. A library loaded meanwhile then
//! misses nothing: either ld.so knew it when it filled the block, or the block was marked when the
//! library's values were written into all of them; both happen under ld.so's own lock. The mark is
//! taken away under [`IDENTITY_WRITE_LOCK`], which those writes hold, before the slot's memory goes.

mod control_block;
mod fork;
#[cfg(interposed)]
mod interpose;
#[cfg(not(interposed))]
#[path = "interpose/none.rs"]
mod interpose;
#[cfg_attr(
    not(interposed),
    expect(dead_code, reason = "only a replaced dlopen tells of libraries that come and go")
)]
mod loading;
mod modules;
mod probe;
mod selftest;
mod setxid;
mod symbols;

use crate::arch;
use crate::base::unsupported::Unsupported;
use crate::lock::Lock;
use crate::stack::{Extent, Stack, StackError};
use control_block::{DynamicVector, Layout};
use modules::{Image, LibcTls, Modules};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use symbols::Symbols;

static GLIBC: OnceLock<Result<Glibc, Unsupported>> = OnceLock::new();

/// Held while the layout is found out. A fork waits for it: the child would never see it done.
static PROBE_LOCK: Lock<()> = Lock::new(());

/// Held while values are written into identities that others may use, and while one's mark is taken
/// away.
static IDENTITY_WRITE_LOCK: Lock<()> = Lock::new(());

/// libc's own thread-locals hold memory that only a dying thread could free (its malloc cache). An
/// identity that is torn down leaves them here, and the next one made takes them up.
static SAVED_LIBC_TLS: Lock<Vec<Box<[u8]>>> = Lock::new(Vec::new());

/// What was found out of this process's libc.
#[derive(Debug)]
struct Glibc {
    symbols: Symbols,
    layout: Layout,
    /// First values of static thread-locals. Replaced, never freed: wipes read it without a lock.
    image: AtomicPtr<Image>,
    /// libc's own thread-locals, where libc is a module: from the start, or brought by a library into a
    /// program with libc inside it. Set under [`IDENTITY_WRITE_LOCK`].
    libc_tls: OnceLock<LibcTls>,
    rseq_readers: AtomicBool,
}

fn probe_once() -> Result<&'static Glibc, &'static Unsupported> {
    if GLIBC.get().is_none() {
        let _one_at_a_time = PROBE_LOCK.lock_preemptible();
        if GLIBC.get().is_none() {
            let probe = fork::install().and_then(|()| Glibc::probe()).and_then(|glibc| {
                crate::stack::init();
                selftest::run(&glibc)?;
                setxid::install();
                Ok(glibc)
            });
            match probe {
                // No memory, no thread to be had: another time it may be there.
                Err(why) if why.is_transient() => return Err(Box::leak(Box::new(why))),
                probe => loading::publish(probe),
            }
        }
    }
    match GLIBC.get() {
        Some(Ok(glibc)) => Ok(glibc),
        Some(Err(why)) => Err(why),
        None => unreachable!("set above"),
    }
}

/// What [`probe_once`] found; for code that can only run after it succeeded.
#[inline]
fn glibc() -> &'static Glibc {
    match GLIBC.get() {
        Some(Ok(glibc)) => glibc,
        _ => unreachable!("an identity exists, so the probe succeeded"),
    }
}

pub(crate) fn extent() -> Result<Extent, &'static Unsupported> {
    probe_once().map(|glibc| glibc.layout.extent)
}

impl Glibc {
    fn probe() -> Result<Glibc, Unsupported> {
        interpose::check()?;
        arch::init()
            .map_err(|found| Unsupported::new("a way to write the thread pointer", found))?;
        let symbols = symbols::load()?;
        symbols::find_second_libc();
        let (mut room, mut align) = (0usize, 0usize);
        // SAFETY: glibc's own function; both places are valid for writes.
        unsafe { (symbols.static_info)(&mut room, &mut align) };
        let found = probe::probe(&symbols)?;
        let below = room.checked_sub(found.size).filter(|_| align.is_power_of_two());
        let below = below.ok_or_else(|| {
            let found = format!("{room} bytes aligned to {align}, {} of them block", found.size);
            Unsupported::new("thread-locals and block in one piece", found)
        })?;
        let layout = Layout::new(
            found,
            below.next_multiple_of(align),
            align,
            symbols.resolver_offset,
            symbols.rseq_offset,
        )?;
        let modules = Modules::scan(&symbols, &layout).ok_or_else(no_memory)?;
        Ok(Glibc {
            symbols,
            layout,
            libc_tls: modules.kept().map_or_else(OnceLock::new, OnceLock::from),
            rseq_readers: AtomicBool::new(modules.rseq_readers),
            image: AtomicPtr::new(Box::into_raw(Box::new(modules.image()))),
        })
    }

    /// See [`create`].
    ///
    /// # Safety
    /// As [`create`].
    unsafe fn create(&self, stack: &Stack) -> Result<(), StackError> {
        let tp = stack.thread_pointer();
        stack.set_has_identity(true);
        let rseq_readers = self.rseq_readers.load(Ordering::Relaxed);
        // SAFETY: quiet — promised by the caller; a slot without identity is zero.
        unsafe { self.layout.create(tp, stack.number(), rseq_readers) };
        // SAFETY: glibc's own function; `tp` ends a zeroed block of the size it asked for.
        if unsafe { (self.symbols.allocate_tls)(tp as *mut libc::c_void) }.is_null() {
            self.unmark(stack);
            return Err(StackError::Memory {
                doing: "allocating a goroutine's thread-locals",
                bytes: self.layout.extent.below,
                errno: libc::ENOMEM,
            });
        }
        if let Some(kept) = self.current_libc_tls() {
            let saved = SAVED_LIBC_TLS.lock_preemptible().pop();
            // SAFETY: quiet — as above; saved by `destroy` from the same places.
            unsafe { kept.write(tp, saved.as_deref()) };
        }
        // SAFETY: quiet — as above.
        unsafe { self.layout.set_resolver_pointer(tp) };
        Ok(())
    }

    /// What is kept, for an identity that is marked. A library that brings libc.so right now either
    /// writes into it, or is known here.
    fn current_libc_tls(&self) -> Option<&LibcTls> {
        let _writing = (!symbols::LIBC_IS_A_MODULE).then(|| IDENTITY_WRITE_LOCK.lock_preemptible());
        self.libc_tls.get()
    }

    /// From here on nobody writes into the slot's identity: there is none. Returns what it leaves to be
    /// kept.
    fn unmark(&self, stack: &Stack) -> Option<&LibcTls> {
        let _writing = IDENTITY_WRITE_LOCK.lock_preemptible();
        stack.set_has_identity(false);
        self.libc_tls.get()
    }

    /// See [`begin`].
    ///
    /// # Safety
    /// As [`begin`].
    unsafe fn begin(&self) {
        // SAFETY: sets this identity's own pointers.
        unsafe { (self.symbols.ctype_init)() };
    }

    /// See [`retire`].
    ///
    /// # Safety
    /// As [`retire`].
    unsafe fn retire(&self) {
        let tp = arch::thread_pointer();
        // SAFETY: own — promised by the caller.
        unsafe { self.run_destructors(tp) };
        // SAFETY: own — as above.
        unsafe { self.layout.close_resolver(tp) };
        // SAFETY: the global locale always exists.
        unsafe { libc::uselocale(GLOBAL_LOCALE) };
        if let Some(kept) = self.libc_tls.get() {
            // SAFETY: own — as above.
            unsafe { kept.retire() };
        }
        // SAFETY: own — as above.
        unsafe { DynamicVector::of(tp) }.free();
        // An allocator that keeps its state under a key sets the key again when it is called after
        // its destructor, as it was just now: the destructor frees that state too.
        // SAFETY: own — as above.
        if unsafe { self.layout.has_keys(tp) } {
            // SAFETY: own — as above.
            unsafe { self.run_destructors(tp) };
            // SAFETY: own — as above; the destructors may have used dynamic thread-locals.
            unsafe { DynamicVector::of(tp) }.free();
        }
        // As libc: what is still set after that is forgotten.
        // SAFETY: own — as above.
        unsafe { self.layout.take_keys(tp, |_, _, _| ()) };
        if let Some(free) = self.symbols.thread_freeres {
            // SAFETY: own — the last call into libc before this identity's thread-locals start over.
            unsafe { free() };
        }
        // SAFETY: errno has an address, always.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: this identity's own.
        unsafe { *errno = 0 };
    }

    /// Runs destructors as libc does: those of C++ and Rust, then those of keys, which may set keys
    /// again and register more of the first kind. None of these may be left for the slot's next
    /// owner.
    ///
    /// # Safety
    /// - **own**: the caller runs with the identity at `tp`.
    unsafe fn run_destructors(&self, tp: usize) {
        let run = |key: usize, sequence: usize, value| {
            // SAFETY: libc's table of keys is as long as the keys there are.
            let record = unsafe { self.symbols.keys.add(key) };
            // SAFETY: as above. Volatile: libc writes it.
            let record = unsafe { std::ptr::read_volatile(record) };
            // A value that outlived its key has no destructor: the number may be another key's now.
            if let Some(destructor) = record.destructor.filter(|_| record.sequence == sequence) {
                // SAFETY: what libc itself does when a thread ends.
                unsafe { destructor(value) };
            }
        };
        for _ in 0..DESTRUCTOR_ROUNDS {
            // SAFETY: own — promised by the caller.
            unsafe { (self.symbols.call_tls_dtors)() };
            // SAFETY: own — as above.
            if !unsafe { self.layout.take_keys(tp, run) } {
                break;
            }
        }
        // SAFETY: own — as above.
        unsafe { (self.symbols.call_tls_dtors)() };
    }

    /// See [`wipe`].
    ///
    /// # Safety
    /// As [`wipe`].
    #[inline]
    unsafe fn wipe(&self, stack: &Stack) {
        let tp = stack.thread_pointer();
        loading::with_current_image(&self.image, |image| {
            // SAFETY: quiet — promised by the caller.
            unsafe { image.write(tp) };
        });
        // SAFETY: quiet — promised by the caller.
        unsafe { self.layout.wipe(tp, stack.number()) };
        if !symbols::LIBC_IS_A_MODULE {
            // SAFETY: quiet — promised by the caller; libc's thread-locals started over too.
            unsafe { self.layout.set_resolver_pointer(tp) };
        }
    }

    /// See [`destroy`].
    fn destroy(&self, stack: &Stack) {
        if !stack.has_identity() {
            return;
        }
        let tp = stack.thread_pointer();
        if let Some(kept) = self.unmark(stack) {
            // SAFETY: quiet — the stack rests, so nothing runs with its identity.
            let saved = unsafe { kept.save(tp) };
            SAVED_LIBC_TLS.lock_preemptible().push(saved);
        }
        // SAFETY: quiet — as above.
        unsafe { self.layout.free_key_tables(tp) };
        // SAFETY: quiet — as above; `false`: the block is part of the slot.
        unsafe { (self.symbols.deallocate_tls)(tp as *mut libc::c_void, false) };
    }
}

/// No memory to look at the modules.
fn no_memory() -> Unsupported {
    Unsupported::transient("memory to look at thread-locals", "none")
}

/// `LC_GLOBAL_LOCALE`: follow `setlocale`, as a fresh thread does.
const GLOBAL_LOCALE: libc::locale_t = usize::MAX as libc::locale_t;

/// How often libc runs the destructors of keys that destructors set again.
const DESTRUCTOR_ROUNDS: usize = 4;

/// Builds an identity in a stack that has none.
///
/// Allocates with the system's allocator: it runs on a thread's own thread pointer, with preemption
/// on.
///
/// # Errors
/// No memory. The stack is as before.
///
/// # Safety
/// - **quiet**: the stack has no identity, and nothing runs with the place where it will be.
pub unsafe fn create(stack: &Stack) -> Result<(), StackError> {
    let glibc = probe_once().map_err(StackError::Unsupported)?;
    // SAFETY: quiet — promised by the caller.
    unsafe { glibc.create(stack) }
}

/// Makes the identity ready for its owner: the first thing that runs with it.
///
/// # Safety
/// - **own**: the caller runs with an identity that [`create`] built, wiped since its last owner.
pub unsafe fn begin() {
    // SAFETY: own — promised by the caller.
    unsafe { glibc().begin() };
}

/// Ends the owner's use of the identity: runs the destructors of its thread-locals and keys, frees
/// what dynamic modules allocated, takes back locale and errno. The last thing that runs with it,
/// except for code that touches no thread-local.
///
/// # Safety
/// - **own**: the caller runs with an identity of which nothing is needed any more.
pub unsafe fn retire() {
    // SAFETY: own — promised by the caller.
    unsafe { glibc().retire() };
}

/// Gives the thread-locals of a retired identity their first values again. Copies memory, nothing
/// else: it may run anywhere.
///
/// # Safety
/// - **quiet**: the identity was retired, and nothing runs with it.
pub unsafe fn wipe(stack: &Stack) {
    // SAFETY: quiet — promised by the caller.
    unsafe { glibc().wipe(stack) };
}

/// Tears a resting stack's identity down, if it has one. Frees memory: as [`create`].
pub(crate) fn destroy(stack: &Stack) {
    if let Ok(glibc) = probe_once() {
        glibc.destroy(stack);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_that_goes_wrong_is_told_with_what_was_wanted() {
        super::probe_once().unwrap();
        let mut glibc = Glibc::probe().unwrap();
        selftest::run(&glibc).unwrap();
        // Without an image nothing gets its first values again: the second trial sees the first's.
        glibc.image = AtomicPtr::new(Box::into_raw(Box::new(Image::empty())));
        let why = selftest::run(&glibc).unwrap_err().to_string();
        assert!(why.contains("wanted first values in thread-locals"), "{why}");
    }
}
