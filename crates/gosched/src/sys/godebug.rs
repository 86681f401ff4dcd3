//! `GODEBUG=name=value,...`, as Go spells it.

/// What the environment says about `name`, if anything. All values are numbers.
pub(crate) fn value(name: &str) -> Option<i32> {
    find(&std::env::var("GODEBUG").ok()?, name)
}

/// The last one counts that is a number, and spaces are part of what they stand in. (All that is Go's.)
fn find(text: &str, name: &str) -> Option<i32> {
    let parts = text.rsplit(',').filter_map(|part| part.split_once('='));
    parts.filter(|(found, _)| *found == name).find_map(|(_, value)| value.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_by_its_whole_name() {
        let text = "schedtrace=100,asyncpreemptoff=1,empty=,flag";
        let found = |name| find(text, name);
        assert_eq!(found("schedtrace"), Some(100));
        assert_eq!(found("asyncpreemptoff"), Some(1));
        for nothing in ["sched", "trace", "empty", "flag", ""] {
            assert_eq!(found(nothing), None, "{nothing}");
        }
        assert_eq!(find("", "x"), None);
    }

    /// Each was given to a program of Go's.
    #[test]
    fn the_last_number_counts_and_spaces_do() {
        for (text, wanted) in [
            ("schedtrace=0,schedtrace=20", Some(20)),
            ("schedtrace=20,schedtrace=0", Some(0)),
            ("schedtrace=20,schedtrace=x", Some(20)),
            ("schedtrace=20,schedtrace", Some(20)),
            ("schedtrace=+020", Some(20)),
            ("x=1, schedtrace=20", None),
            ("schedtrace =20", None),
            ("schedtrace=20 ,x=1", None),
            ("schedtrace=4294967316", None),
        ] {
            assert_eq!(find(text, "schedtrace"), wanted, "{text:?}");
        }
    }
}
