//! Identities on glibc, dynamic or static.
//!
//! [`Glibc`] is what was found out at start; it never changes, except for the image of first values,
//! which is replaced when a library with static thread-locals is loaded. [`BUILDING`] is held while
//! an identity is made or torn down and while such a library's values are written into all of them,
//! so that none is missed.

mod block;
mod fork;
mod interpose;
mod modules;
mod probe;
mod selftest;
mod setxid;
mod symbols;

pub(crate) use fork::forked;

use crate::arch;
use crate::lock::Lock;
use crate::stack::{DEPOT, Extent, Stack, StackError};
use crate::unsupported::Unsupported;
use block::Layout;
use modules::{Image, Modules};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use symbols::Symbols;

static GLIBC: OnceLock<Result<Glibc, Unsupported>> = OnceLock::new();

/// See the top of this file. Guards the bank: what libc kept for identities that were torn down.
static BUILDING: Lock<Bank> = Lock::new(Bank(Vec::new()));

/// libc's own thread-locals hold memory that only a dying thread could free (its malloc cache). An
/// identity that is torn down leaves them here, and the next one made takes them up.
#[derive(Debug)]
struct Bank(Vec<Box<[u8]>>);

/// What was found out of this process's libc.
#[derive(Debug)]
struct Glibc {
    symbols: Symbols,
    layout: Layout,
    /// First values of static thread-locals. Replaced, never freed: wipes read it without a lock.
    image: AtomicPtr<Image>,
    /// Place and size of libc's own thread-locals.
    kept: Vec<(usize, usize)>,
    rseq_readers: AtomicBool,
}

fn probed() -> &'static Result<Glibc, Unsupported> {
    GLIBC.get_or_init(|| {
        let glibc = Glibc::probe()?;
        crate::stack::init();
        selftest::run(&glibc)?;
        fork::install();
        setxid::install();
        interpose::keep();
        Ok(glibc)
    })
}

/// What [`probed`] found; for code that can only run after it succeeded.
#[inline]
fn glibc() -> &'static Glibc {
    match GLIBC.get() {
        Some(Ok(glibc)) => glibc,
        _ => unreachable!("an identity exists, so the probe succeeded"),
    }
}

pub(crate) fn extent() -> Result<Extent, &'static Unsupported> {
    probed().as_ref().map(|glibc| glibc.layout.extent)
}

impl Glibc {
    fn probe() -> Result<Glibc, Unsupported> {
        arch::init()
            .map_err(|found| Unsupported::new("a way to write the thread pointer", found))?;
        let symbols = symbols::load()?;
        let (mut room, mut align) = (0usize, 0usize);
        // SAFETY: glibc's own function; both places are valid for writes.
        unsafe { (symbols.static_info)(&mut room, &mut align) };
        let found = probe::probe(&symbols)?;
        let below = room.checked_sub(found.size).filter(|_| align.is_power_of_two());
        let below = below.ok_or_else(|| {
            let found = format!("{room} bytes aligned to {align}, {} of them block", found.size);
            Unsupported::new("thread-locals and block in one piece", found)
        })?;
        let modules = Modules::scan(&symbols, below);
        let layout = Layout::new(
            found,
            below.next_multiple_of(align),
            align,
            symbols.resolver_offset,
            symbols.rseq_offset,
        )?;
        Ok(Glibc {
            symbols,
            layout,
            kept: modules.kept(),
            rseq_readers: AtomicBool::new(modules.rseq_readers),
            image: AtomicPtr::new(Box::into_raw(Box::new(modules.image()))),
        })
    }

    #[inline]
    fn image(&self) -> &Image {
        // PAIR identity-image: the image is complete.
        let image = self.image.load(Ordering::Acquire);
        // SAFETY: never null, and images are never freed.
        unsafe { &*image }
    }

    /// See [`create`].
    ///
    /// # Safety
    /// As [`create`].
    unsafe fn create(&self, stack: &Stack) -> Result<(), StackError> {
        let tp = stack.thread_pointer();
        let mut bank = BUILDING.lock();
        let rseq_readers = self.rseq_readers.load(Ordering::Relaxed);
        // SAFETY: quiet — promised by the caller; a slot without identity is zero.
        unsafe { self.layout.create(tp, stack.number(), rseq_readers) };
        // SAFETY: glibc's own function; `tp` ends a zeroed block of the size it asked for.
        if unsafe { (self.symbols.allocate_tls)(tp as *mut libc::c_void) }.is_null() {
            return Err(StackError::Memory {
                doing: "allocating a goroutine's thread-locals",
                bytes: self.layout.extent.below,
                errno: libc::ENOMEM,
            });
        }
        if let Some(saved) = bank.0.pop() {
            // SAFETY: quiet — as above; saved by `destroy` from the same places.
            unsafe { self.restore_kept(tp, &saved) };
        }
        // SAFETY: quiet — as above.
        unsafe { self.layout.connect(tp) };
        stack.set_identity(true);
        Ok(())
    }

    /// # Safety
    /// - **quiet**: `tp` is an identity's, and nothing runs with it.
    unsafe fn restore_kept(&self, tp: usize, saved: &[u8]) {
        let mut rest = saved;
        for &(below, len) in &self.kept {
            let (part, behind) = rest.split_at(len.min(rest.len()));
            rest = behind;
            let to = (tp - below) as *mut u8;
            // SAFETY: quiet — promised by the caller.
            unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), to, part.len()) };
        }
    }

    /// # Safety
    /// - **quiet**: `tp` is an identity's, and nothing runs with it.
    unsafe fn save_kept(&self, tp: usize) -> Box<[u8]> {
        let mut saved = Vec::with_capacity(self.kept.iter().map(|kept| kept.1).sum());
        for &(below, len) in &self.kept {
            // SAFETY: quiet — promised by the caller.
            saved.extend_from_slice(unsafe {
                std::slice::from_raw_parts((tp - below) as *const u8, len)
            });
        }
        saved.into()
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
        let run = |key: usize, value| {
            // SAFETY: libc's table of keys is as long as the keys there are.
            let record = unsafe { self.symbols.keys.add(key) };
            // SAFETY: as above. Volatile: libc writes it.
            let destructor = unsafe { std::ptr::read_volatile(record) }.destructor;
            if let Some(destructor) = destructor {
                // SAFETY: what libc itself does when a thread ends.
                unsafe { destructor(value) };
            }
        };
        // As libc: C++ and Rust destructors, then keys, whose destructors may set keys again. They
        // may register more of the first kind: none may be left for the slot's next owner.
        for _ in 0..DESTRUCTOR_ROUNDS {
            // SAFETY: own — the caller runs with the identity at `tp`.
            unsafe { (self.symbols.call_tls_dtors)() };
            // SAFETY: own — as above.
            if !unsafe { self.layout.take_keys(tp, run) } {
                break;
            }
        }
        // SAFETY: own — as above.
        unsafe { (self.symbols.call_tls_dtors)() };
        // SAFETY: the global locale always exists.
        unsafe { libc::uselocale(GLOBAL_LOCALE) };
        // SAFETY: own — as above.
        unsafe { block::free_dynamic(tp) };
        if let Some(free) = self.symbols.thread_freeres {
            // SAFETY: own — the last call into libc before this identity's thread-locals start over.
            unsafe { free() };
        }
        // SAFETY: errno has an address, always.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: this identity's own.
        unsafe { *errno = 0 };
    }

    /// See [`wipe`].
    ///
    /// # Safety
    /// As [`wipe`].
    #[inline]
    unsafe fn wipe(&self, stack: &Stack) {
        let tp = stack.thread_pointer();
        // SAFETY: quiet — promised by the caller.
        unsafe { self.image().write(tp) };
        // SAFETY: quiet — promised by the caller.
        unsafe { self.layout.wipe(tp, stack.number()) };
        if !symbols::LIBC_IS_A_MODULE {
            // SAFETY: quiet — promised by the caller; libc's thread-locals started over too.
            unsafe { self.layout.connect(tp) };
        }
    }

    /// See [`destroy`].
    fn destroy(&self, stack: &Stack) {
        if !stack.has_identity() {
            return;
        }
        let tp = stack.thread_pointer();
        let mut bank = BUILDING.lock();
        if symbols::LIBC_IS_A_MODULE {
            // SAFETY: quiet — the stack rests, so nothing runs with its identity.
            bank.0.push(unsafe { self.save_kept(tp) });
        }
        // SAFETY: quiet — as above.
        unsafe { self.layout.free_key_tables(tp) };
        // SAFETY: quiet — as above; `false`: the block is part of the slot.
        unsafe { (self.symbols.deallocate_tls)(tp as *mut libc::c_void, false) };
        stack.set_identity(false);
    }

    /// After a library was loaded: its static thread-locals get their first values in every
    /// identity, as libc gives them to every thread it knows.
    fn modules_changed(&self) {
        let _building = BUILDING.lock();
        let modules = Modules::scan(&self.symbols, self.layout.extent.below);
        let image = modules.image();
        let new = image.newer_than(self.image());
        if !new.is_empty() {
            for tp in DEPOT.identities() {
                // SAFETY: quiet — the library was just loaded: no goroutine can know its variables.
                unsafe { new.write(tp) };
            }
            // PAIR identity-image: publishes the image. The old one stays: a wipe may read it.
            self.image.store(Box::into_raw(Box::new(image)), Ordering::Release);
        }
        if modules.rseq_readers && !self.rseq_readers.swap(true, Ordering::Relaxed) {
            for tp in DEPOT.identities() {
                // SAFETY: mapped — these identities exist while `BUILDING` is held.
                unsafe { self.layout.disown_rseq(tp) };
            }
        }
    }
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
    let glibc = probed().as_ref().map_err(StackError::Unsupported)?;
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
    if let Ok(glibc) = probed() {
        glibc.destroy(stack);
    }
}
