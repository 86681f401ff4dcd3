//! A list from which any element can be removed in constant time. A value never changes its number;
//! the number of a removed value is reused.

/// Values, each with the number that [`Slots::add`] returned for it.
#[derive(Debug)]
pub(super) struct Slots<T> {
    slots: Vec<Slot<T>>,
    /// Index of the first free slot, or the length of `slots` if there is none.
    free: usize,
}

#[derive(Debug)]
enum Slot<T> {
    Used(T),
    /// Index of the next free slot.
    Free(usize),
}

impl<T> Default for Slots<T> {
    fn default() -> Slots<T> {
        Slots { slots: Vec::new(), free: 0 }
    }
}

impl<T> Slots<T> {
    /// Adds a value and returns its number.
    pub(super) fn add(&mut self, value: T) -> usize {
        let number = self.free;
        match self.slots.get_mut(number) {
            Some(slot) => {
                if let Slot::Free(next) = std::mem::replace(slot, Slot::Used(value)) {
                    self.free = next;
                }
            }
            None => {
                self.slots.push(Slot::Used(value));
                self.free = self.slots.len();
            }
        }
        number
    }

    /// Removes the value with this number, if there is one.
    pub(super) fn take(&mut self, number: usize) -> Option<T> {
        let slot = self.slots.get_mut(number).filter(|slot| matches!(slot, Slot::Used(_)))?;
        match std::mem::replace(slot, Slot::Free(self.free)) {
            Slot::Used(value) => {
                self.free = number;
                Some(value)
            }
            Slot::Free(_) => None,
        }
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| match slot {
            Slot::Used(value) => Some(value),
            Slot::Free(_) => None,
        })
    }

    pub(super) fn into_values(self) -> impl Iterator<Item = T> {
        self.slots.into_iter().filter_map(|slot| match slot {
            Slot::Used(value) => Some(value),
            Slot::Free(_) => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_removed_values_are_reused_and_other_values_keep_theirs() {
        let mut slots = Slots::default();
        let numbers: Vec<_> = (0..5).map(|value| slots.add(value)).collect();
        assert_eq!(numbers, [0, 1, 2, 3, 4]);
        assert_eq!((slots.take(1), slots.take(1), slots.take(3)), (Some(1), None, Some(3)));
        assert_eq!(slots.take(99), None);
        assert_eq!([slots.add(10), slots.add(11), slots.add(12)], [3, 1, 5]);
        assert!(slots.values().eq(&[0, 11, 2, 10, 4, 12]));
        assert_eq!(slots.into_values().collect::<Vec<_>>(), [0, 11, 2, 10, 4, 12]);
    }
}
