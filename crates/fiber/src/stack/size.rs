//! Stack sizes: the bytes that frames may use, and the slot of address space around them.
//!
//! Layout of a slot, from its low end:
//!
//! ```text
//! GUARD        no access: an overflow faults here
//! usable       frames, growing down from `top`
//! top          -- the goroutine's thread-locals start here
//! below        thread-locals (the static ones, and room for libraries loaded later)
//! thread pointer
//! hot          the used front of the thread control block; ends at a page boundary
//! cold         its rarely used rest, a page that most goroutines never touch
//! ```
//!
//! The first frames, the thread-locals and the hot part share one page, so a parked goroutine costs
//! one page. Slots come in size classes, four per doubling. The bytes that rounding adds are usable
//! too; they cost only address space.
//!
//! A [`Size`] never owns memory: `slab` reserves it, and `depot` hands out stacks.

use super::error::StackError;
use crate::base::environment;

/// Page size in bytes. (A port to a system with another page size needs its own copy of this file.)
pub(crate) const PAGE: usize = 4096;

/// Size of the inaccessible part of every slot, in bytes. One page is not enough: C code has no
/// stack probes, and a frame of 40 KB would step over the guard into the neighboring stack.
pub const GUARD: usize = 64 << 10;

const _: () = assert!(GUARD.is_multiple_of(PAGE));

/// Smallest usable size in bytes: enough for a panic with a backtrace in a debug build.
pub const MIN_USABLE: usize = 48 << 10;

/// Largest usable size in bytes.
pub const MAX_USABLE: usize = 64 << 30;

/// Distance in bytes between two stacks of the default size. Page tables cost 513 bytes per stack
/// at 256 KiB. Debug builds use 1 MiB, because their frames are several times larger.
pub const DEFAULT_SPACING: usize = if cfg!(debug_assertions) { 1 << 20 } else { 256 << 10 } + PAGE;

/// Spacing of the smallest class, without the page that [`spacing_of`] adds. The other classes
/// follow in quarters of a doubling.
const SMALLEST: usize = 128 << 10;

/// Number of size classes. The largest class holds [`MAX_USABLE`] bytes, guard and identity.
pub(crate) const CLASSES: usize = 80;

/// Sizes of the parts of a slot that the identity takes, in bytes; see the layout above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) below: usize,
    pub(crate) hot: usize,
    /// A multiple of the page size.
    pub(crate) cold: usize,
}

impl Extent {
    const fn overhead(&self) -> usize {
        GUARD + self.below + self.hot + self.cold
    }
}

/// A valid stack size; see [`Size::new`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    class: u8,
    extent: Extent,
}

impl Size {
    /// Returns the size of a stack with at least `usable` bytes for frames. The size is rounded up
    /// to whole pages, to [`MIN_USABLE`], and to the next size class.
    ///
    /// # Errors
    /// `usable` is 0 or greater than [`MAX_USABLE`], or [`support`](crate::support) returns an
    /// error.
    pub fn new(usable: usize) -> Result<Size, StackError> {
        let extent = crate::identity::extent().map_err(StackError::Unsupported)?;
        Size::with_extent(usable, extent)
    }

    /// Returns the size of a stack without space for an identity, for code that runs with the
    /// identity of its thread. Use this only in a process whose goroutines have no identities,
    /// because all stacks of a class have the same layout.
    ///
    /// # Errors
    /// `usable` is 0 or greater than [`MAX_USABLE`].
    pub fn without_identity(usable: usize) -> Result<Size, StackError> {
        Size::with_extent(usable, Extent { below: 0, hot: 0, cold: 0 })
    }

    /// Returns the default stack size of goroutines: the environment variable `GOSCHED_STACK`
    /// (bytes, `512k`, `1m`) or, if that is not set, [`Size::standard`].
    ///
    /// # Errors
    /// `GOSCHED_STACK` is not a size, or [`Size::new`] or [`Size::standard`] fails.
    pub fn from_environment() -> Result<Size, StackError> {
        match environment::STACK.read() {
            None => Size::standard(),
            Some(text) => {
                let text = text.to_string_lossy();
                let bytes = parse(&text)
                    .ok_or_else(|| StackError::Environment { text: text.clone().into_owned() })?;
                Size::new(bytes)
            }
        }
    }

    /// Returns the built-in default size: [`DEFAULT_SPACING`] minus guard and identity.
    ///
    /// # Errors
    /// [`support`](crate::support) returns an error.
    pub fn standard() -> Result<Size, StackError> {
        Size::of_spacing(DEFAULT_SPACING)
    }

    fn of_spacing(spacing: usize) -> Result<Size, StackError> {
        let extent = crate::identity::extent().map_err(StackError::Unsupported)?;
        let usable = spacing.saturating_sub(extent.overhead()).max(MIN_USABLE);
        Size::with_extent(usable, extent)
    }

    pub(crate) fn with_extent(usable: usize, extent: Extent) -> Result<Size, StackError> {
        if usable == 0 || usable > MAX_USABLE {
            return Err(StackError::Size { asked: usable });
        }
        let need = usable.max(MIN_USABLE) + extent.overhead();
        let class = (0..CLASSES).find(|&class| spacing_of(class) >= need);
        let class = class.ok_or(StackError::Size { asked: usable })?;
        Ok(Size { class: class as u8, extent })
    }

    /// Returns the number of bytes for frames.
    pub fn usable(&self) -> usize {
        self.spacing() - self.extent.overhead()
    }

    /// Returns the number of bytes of address space, guard and identity included.
    pub fn spacing(&self) -> usize {
        spacing_of(self.class())
    }

    pub(crate) fn class(&self) -> usize {
        usize::from(self.class)
    }

    /// Returns the offset of the thread pointer in a slot.
    pub(crate) fn identity_offset(&self) -> usize {
        self.spacing() - self.extent.cold - self.extent.hot
    }

    /// Returns the offset of the top in a slot, where the first frame starts.
    pub(crate) fn top_offset(&self) -> usize {
        (self.identity_offset() - self.extent.below) & !15
    }
}

/// Returns the spacing of a class: 128, 160, 192, 224, 256, 320, ... KiB, plus one page. Without
/// the extra page, the first pages of all stacks would compete for a few sets of the TLB (a yield
/// among 1000 goroutines took 90 ns instead of 64 ns).
pub(crate) const fn spacing_of(class: usize) -> usize {
    let doubling = SMALLEST << (class / 4);
    doubling + doubling / 4 * (class % 4) + PAGE
}

/// Parses `262144`, `256k`, `1m` or `1g`; also in capitals, and with a final `b` or `ib` as in
/// `64KiB`.
fn parse(text: &str) -> Option<usize> {
    let text = text.trim().to_ascii_lowercase();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim_start() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => return None,
    };
    let number: usize = number.parse().ok()?;
    number.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXTENT: Extent = Extent { below: 1856, hot: 832, cold: PAGE };

    #[test]
    fn a_size_has_at_least_the_requested_usable_bytes() {
        for asked in [1, 4096, 100_000, 256 << 10, (1 << 20) + 1, 8 << 20, 1 << 30, MAX_USABLE] {
            let size = Size::with_extent(asked, EXTENT).unwrap();
            assert!(size.usable() >= asked.max(MIN_USABLE), "{asked}: {size:?}");
            assert_eq!(size.spacing() % PAGE, 0);
            assert!(size.spacing() < 2 * (asked + (256 << 10)), "{asked}: {size:?}");
        }
    }

    #[test]
    fn a_size_out_of_range_is_refused_with_an_error_that_names_it() {
        for asked in [0, MAX_USABLE + 1, 1 << 60, usize::MAX] {
            let error = Size::with_extent(asked, EXTENT).unwrap_err();
            assert!(error.to_string().contains(&asked.to_string()), "{error}");
        }
    }

    #[test]
    fn classes_grow_and_are_whole_pages() {
        for class in 1..CLASSES {
            assert!(spacing_of(class) > spacing_of(class - 1));
            assert_eq!(spacing_of(class) % PAGE, 0);
        }
        assert!(spacing_of(CLASSES - 1) > MAX_USABLE + (1 << 20));
    }

    #[test]
    fn the_default_spacing_is_256_kib_and_a_page_or_1_mib_and_a_page_in_debug_builds() {
        let size = Size::of_spacing(DEFAULT_SPACING).unwrap();
        let spacing = if cfg!(debug_assertions) { 1 << 20 } else { 256 << 10 };
        assert_eq!(size.spacing(), spacing + PAGE);
    }

    #[test]
    fn the_environment_takes_bytes_and_units() {
        for (text, bytes) in [
            ("262144", 262144),
            ("512k", 512 << 10),
            (" 1m ", 1 << 20),
            ("64KiB", 64 << 10),
            ("2 MB", 2 << 20),
            ("1g", 1 << 30),
        ] {
            assert_eq!(parse(text), Some(bytes), "{text}");
        }
        for text in ["", "k", "-1", "1.5m", "1x", "99999999999999999999", "99999999999999999g"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
