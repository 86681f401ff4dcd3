//! How large a stack is: what the caller may use, what the slot around it takes.
//!
//! A slot, from its low end:
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
//! Frames, thread-locals and the hot part share one page, so a parked goroutine costs one page.
//! Slots come in classes, four to a doubling; what rounding adds is usable too, and costs address
//! space only.

use super::error::StackError;

/// Size of a page. (A port to a system with other pages gives this file a twin.)
pub(crate) const PAGE: usize = 4096;

/// The part of every slot that faults. C code has no stack probes: a frame of 40 KB steps over a
/// one-page guard into the neighbour's stack.
pub const GUARD: usize = 64 << 10;

const _: () = assert!(GUARD.is_multiple_of(PAGE));

/// Enough for a panic with a backtrace in a debug build: the smallest stack there is.
pub const MIN_USABLE: usize = 48 << 10;

/// More cannot be asked for.
pub const MAX_USABLE: usize = 64 << 30;

/// Distance between two default stacks. Page tables cost 513 bytes per stack at 256 KiB; frames of
/// debug builds are several times larger.
pub const DEFAULT_SPACING: usize = if cfg!(debug_assertions) { 1 << 20 } else { 256 << 10 } + PAGE;

/// Spacing of the smallest class; the others follow in quarters of a doubling.
const SMALLEST: usize = 128 << 10;

/// Number of classes: up to [`MAX_USABLE`] and what is around it.
pub(crate) const CLASSES: usize = 80;

/// How much of a slot the identity takes: see the picture above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) below: usize,
    pub(crate) hot: usize,
    /// Whole pages.
    pub(crate) cold: usize,
}

impl Extent {
    const fn overhead(&self) -> usize {
        GUARD + self.below + self.hot + self.cold
    }
}

/// A stack size that can be had: see [`Size::new`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    class: u8,
    extent: Extent,
}

impl Size {
    /// A stack with at least `usable` bytes for frames: rounded up to whole pages, to
    /// [`MIN_USABLE`], and to the next size class.
    ///
    /// # Errors
    /// 0 and more than [`MAX_USABLE`] cannot be had; nor can anything where
    /// [`support`](crate::support) says so.
    pub fn new(usable: usize) -> Result<Size, StackError> {
        let extent = crate::identity::extent().map_err(StackError::Unsupported)?;
        Size::with_extent(usable, extent)
    }

    /// As [`Size::new`], without room for an identity: for code that keeps its thread's. Only in a process in which
    /// goroutines have no identities, since all stacks of a class are alike.
    ///
    /// # Errors
    /// As [`Size::new`], but for support.
    pub fn without_identity(usable: usize) -> Result<Size, StackError> {
        Size::with_extent(usable, Extent { below: 0, hot: 0, cold: 0 })
    }

    /// The size of a goroutine nobody gave one: `GOSCHED_STACK` (bytes, `512k`, `1m`) or
    /// [`DEFAULT_SPACING`] less guard and identity.
    ///
    /// # Errors
    /// `GOSCHED_STACK` is no size, or [`Size::new`] refuses it.
    pub fn from_environment() -> Result<Size, StackError> {
        match std::env::var_os("GOSCHED_STACK") {
            None => Size::standard(),
            Some(text) => {
                let text = text.to_string_lossy();
                let bytes = parse(&text)
                    .ok_or_else(|| StackError::Environment { text: text.clone().into_owned() })?;
                Size::new(bytes)
            }
        }
    }

    /// The size of a goroutine where nobody asked for another.
    ///
    /// # Errors
    /// Goroutines cannot be had here.
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

    /// Bytes for frames.
    pub fn usable(&self) -> usize {
        self.spacing() - self.extent.overhead()
    }

    /// Bytes of address space: guard and identity included.
    pub fn spacing(&self) -> usize {
        spacing_of(self.class())
    }

    pub(crate) fn class(&self) -> usize {
        usize::from(self.class)
    }

    /// Where, in a slot, the thread pointer points.
    pub(crate) fn identity_offset(&self) -> usize {
        self.spacing() - self.extent.cold - self.extent.hot
    }

    /// Where, in a slot, the first frame ends.
    pub(crate) fn top_offset(&self) -> usize {
        (self.identity_offset() - self.extent.below) & !15
    }
}

/// 128, 160, 192, 224, 256, 320, ... KiB, and one page: at round distances the first pages of all
/// stacks would fight for a few places of the address cache (a yield among 1000 goroutines took 90 ns
/// instead of 64).
pub(crate) const fn spacing_of(class: usize) -> usize {
    let doubling = SMALLEST << (class / 4);
    doubling + doubling / 4 * (class % 4) + PAGE
}

/// `262144`, `256k`, `1m`, `1g`; also in capitals, and with a final `b` or `ib` as in `64KiB`.
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
    fn a_size_holds_at_least_what_was_asked() {
        for asked in [1, 4096, 100_000, 256 << 10, (1 << 20) + 1, 8 << 20, 1 << 30, MAX_USABLE] {
            let size = Size::with_extent(asked, EXTENT).unwrap();
            assert!(size.usable() >= asked.max(MIN_USABLE), "{asked}: {size:?}");
            assert_eq!(size.spacing() % PAGE, 0);
            assert!(size.spacing() < 2 * (asked + (256 << 10)), "{asked}: {size:?}");
        }
    }

    #[test]
    fn absurd_sizes_are_refused_with_a_sentence() {
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
    fn the_default_is_256_kib_and_a_page_apart_or_1_mib_in_debug() {
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
