//! Identities on glibc, linked dynamically or statically.
//!
//! [`Glibc`] holds the result of the probe at start. Later, only libraries that are loaded or
//! unloaded change it (`loading`): they replace the image of initial values, and may set `libc_tls`
//! and `rseq_readers`.
//!
//! A slot is marked as holding an identity *before* ld.so fills it, so that it misses no library
//! that is loaded at the same time. ld.so registers a library and fills a block under the same
//! lock. If the library was registered first, ld.so writes its values into the block. Otherwise the
//! slot was already marked when the library was registered, so `loading`, which writes the
//! library's values into all marked slots afterwards, reaches the block. The mark is cleared before
//! the slot's memory is released, under [`IDENTITY_WRITE_LOCK`], which `loading` holds while it
//! writes.
//!
//! An image of initial values is never freed: wipes read it without a lock.

mod control_block;
mod fork;
#[cfg(interposed)]
mod interpose;
#[cfg(not(interposed))]
#[path = "interpose/none.rs"]
mod interpose;
#[cfg_attr(
    not(interposed),
    expect(dead_code, reason = "only the replaced `dlopen` and `dlclose` call it")
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

/// Held during the probe. A fork waits for it: in the child, a probe of another thread would never
/// finish.
static PROBE_LOCK: Lock<()> = Lock::new(());

/// Held while values are written into identities that may be in use, and while a slot's mark is
/// cleared.
static IDENTITY_WRITE_LOCK: Lock<()> = Lock::new(());

/// Contents of libc's own thread-locals from destroyed identities; the next identity that is
/// created takes one over. They refer to memory that only an exiting thread can free (libc's malloc
/// cache).
static SAVED_LIBC_TLS: Lock<Vec<Box<[u8]>>> = Lock::new(Vec::new());

/// The result of the probe: what is known about this process's libc.
#[derive(Debug)]
struct Glibc {
    symbols: Symbols,
    layout: Layout,
    /// Initial values of static thread-locals. Images are replaced but never freed: wipes read them
    /// without a lock.
    image: AtomicPtr<Image>,
    /// libc's own thread-locals, if libc is a module: libc.so of a dynamic program, or a libc.so
    /// that a library brought into a static program. After the probe, set only under
    /// [`IDENTITY_WRITE_LOCK`].
    libc_tls: OnceLock<LibcTls>,
    /// Whether a module other than libc reads the restartable-sequence area.
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
                // Memory or a thread was missing: the next call probes again.
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

/// Returns the result of [`probe_once`]. For code that can only run after the probe succeeded.
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
        // SAFETY: glibc's own function; both pointers are valid for writes.
        unsafe { (symbols.static_info)(&mut room, &mut align) };
        let found = probe::probe(&symbols)?;
        let below = room.checked_sub(found.size).filter(|_| align.is_power_of_two());
        let below = below.ok_or_else(|| {
            let found = format!(
                "{room} bytes aligned to {align}, with a control block of {} bytes",
                found.size
            );
            Unsupported::new("thread-locals and control block in one allocation", found)
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
    /// As for [`create`].
    unsafe fn create(&self, stack: &Stack) -> Result<(), StackError> {
        let tp = stack.thread_pointer();
        stack.set_has_identity(true);
        let rseq_readers = self.rseq_readers.load(Ordering::Relaxed);
        // SAFETY: quiet — promised by the caller; a slot without an identity is all zero.
        unsafe { self.layout.create(tp, stack.number(), rseq_readers) };
        // SAFETY: glibc's own function; the area below `tp` is zero and has the size that
        // `static_info` returned.
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
            // SAFETY: quiet — as above; `destroy` saved the values from the same variables.
            unsafe { kept.write(tp, saved.as_deref()) };
        }
        // SAFETY: quiet — as above.
        unsafe { self.layout.set_resolver_pointer(tp) };
        Ok(())
    }

    /// Returns the thread-locals of libc that are kept from owner to owner, for an identity whose
    /// slot is already marked. If a library brings libc.so at the same time, then either this
    /// function returns libc.so's thread-locals or the load writes them into the identity: both
    /// take [`IDENTITY_WRITE_LOCK`].
    fn current_libc_tls(&self) -> Option<&LibcTls> {
        let _writing = (!symbols::LIBC_IS_A_MODULE).then(|| IDENTITY_WRITE_LOCK.lock_preemptible());
        self.libc_tls.get()
    }

    /// Clears the slot's mark: from here on, no load writes into the slot. Returns the
    /// thread-locals of libc that a destroyed identity must save.
    fn unmark(&self, stack: &Stack) -> Option<&LibcTls> {
        let _writing = IDENTITY_WRITE_LOCK.lock_preemptible();
        stack.set_has_identity(false);
        self.libc_tls.get()
    }

    /// See [`begin`].
    ///
    /// # Safety
    /// As for [`begin`].
    unsafe fn begin(&self) {
        // SAFETY: sets this identity's own pointers.
        unsafe { (self.symbols.ctype_init)() };
    }

    /// See [`retire`].
    ///
    /// # Safety
    /// As for [`retire`].
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
        // An allocator that keeps its state under a pthread key sets the key again if it is called
        // after its destructor, as `free` did above. A second run of the destructors frees that
        // state too.
        // SAFETY: own — as above.
        if unsafe { self.layout.has_keys(tp) } {
            // SAFETY: own — as above.
            unsafe { self.run_destructors(tp) };
            // SAFETY: own — as above; the destructors may have used dynamic thread-locals.
            unsafe { DynamicVector::of(tp) }.free();
        }
        // Values that are still set are dropped, as libc does.
        // SAFETY: own — as above.
        unsafe { self.layout.take_keys(tp, |_, _, _| ()) };
        if let Some(free) = self.symbols.thread_freeres {
            // SAFETY: own — as above; no later code of this owner uses what is freed.
            unsafe { free() };
        }
        // SAFETY: __errno_location has no precondition.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: own — this identity's errno.
        unsafe { *errno = 0 };
    }

    /// Runs the destructors in libc's order: first those of C++ and Rust thread-locals, then those
    /// of pthread keys, which may set keys again and register more destructors of the first kind.
    /// No destructor may be left for the slot's next owner.
    ///
    /// # Safety
    /// - **own**: the caller runs with the identity at `tp`.
    unsafe fn run_destructors(&self, tp: usize) {
        let run = |key: usize, sequence: usize, value| {
            // SAFETY: `key` is smaller than the number of entries in libc's table.
            let record = unsafe { self.symbols.keys.add(key) };
            // SAFETY: as above. Volatile, because libc writes the entry.
            let record = unsafe { std::ptr::read_volatile(record) };
            // The key of a value may have been deleted, and its number may belong to another key.
            // Such a value has no destructor.
            if let Some(destructor) = record.destructor.filter(|_| record.sequence == sequence) {
                // SAFETY: the same call that libc makes when a thread ends.
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
    /// As for [`wipe`].
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
            // SAFETY: quiet — as above; the image has reset libc's thread-locals too.
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
            // SAFETY: quiet — the stack is unused, so no code runs with its identity.
            let saved = unsafe { kept.save(tp) };
            SAVED_LIBC_TLS.lock_preemptible().push(saved);
        }
        // SAFETY: quiet — as above.
        unsafe { self.layout.free_key_tables(tp) };
        // SAFETY: quiet — as above; `false`, because the block is part of the slot.
        unsafe { (self.symbols.deallocate_tls)(tp as *mut libc::c_void, false) };
    }
}

/// The error for a scan of the modules that ran out of memory.
fn no_memory() -> Unsupported {
    Unsupported::transient("memory to scan the modules' thread-locals", "none")
}

/// `LC_GLOBAL_LOCALE`: the thread uses the locale of `setlocale`, as a new thread does.
const GLOBAL_LOCALE: libc::locale_t = usize::MAX as libc::locale_t;

/// How many times libc runs the destructors of keys that destructors set again.
const DESTRUCTOR_ROUNDS: usize = 4;

/// Builds an identity in a stack that has none.
///
/// Allocates with libc's allocator, so the caller must run with a thread's own thread pointer and
/// with preemption on.
///
/// # Errors
/// There is no memory, or goroutines cannot have an identity on this system. The stack is
/// unchanged.
///
/// # Safety
/// - **quiet**: the stack has no identity, and no code uses the memory where the identity will be.
pub unsafe fn create(stack: &Stack) -> Result<(), StackError> {
    let glibc = probe_once().map_err(StackError::Unsupported)?;
    // SAFETY: quiet — promised by the caller.
    unsafe { glibc.create(stack) }
}

/// Prepares the identity for its owner. Must be the first code that runs with the identity.
///
/// # Safety
/// - **own**: the caller runs with an identity that [`create`] built and that was wiped since its
///   last owner.
pub unsafe fn begin() {
    // SAFETY: own — promised by the caller.
    unsafe { glibc().begin() };
}

/// Ends the owner's use of the identity: runs the destructors of its thread-locals and keys, frees
/// the memory of dynamic modules, and resets the locale and errno. Must be the last code that runs
/// with the identity, except for code that touches no thread-local.
///
/// # Safety
/// - **own**: the caller runs with an identity that its owner no longer needs.
pub unsafe fn retire() {
    // SAFETY: own — promised by the caller.
    unsafe { glibc().retire() };
}

/// Resets the thread-locals of a retired identity to their initial values. This function only
/// writes to the identity's memory, so it may be called in any context.
///
/// # Safety
/// - **quiet**: the identity was retired, and no code runs with it.
pub unsafe fn wipe(stack: &Stack) {
    // SAFETY: quiet — promised by the caller.
    unsafe { glibc().wipe(stack) };
}

/// Destroys the identity of an unused stack, if there is one. Frees memory, so the caller must meet
/// the same conditions as for [`create`].
pub(crate) fn destroy(stack: &Stack) {
    if let Ok(glibc) = probe_once() {
        glibc.destroy(stack);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_selftest_reports_what_it_expected() {
        super::probe_once().unwrap();
        let mut glibc = Glibc::probe().unwrap();
        selftest::run(&glibc).unwrap();
        // Without an image, no thread-local is reset: the second trial sees the values of the
        // first.
        glibc.image = AtomicPtr::new(Box::into_raw(Box::new(Image::empty())));
        let why = selftest::run(&glibc).unwrap_err().to_string();
        assert!(why.contains("wanted initial values in thread-locals"), "{why}");
    }
}
