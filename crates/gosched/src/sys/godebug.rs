//! `GODEBUG=name=value,...`, as Go spells it.

/// What the environment says about `name`, if anything.
pub(crate) fn value(name: &str) -> Option<String> {
    find(&std::env::var("GODEBUG").ok()?, name)
}

fn find(text: &str, name: &str) -> Option<String> {
    let mut parts = text.split(',').filter_map(|part| part.trim().split_once('='));
    parts.find(|(found, _)| *found == name).map(|(_, value)| value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_by_its_whole_name() {
        let text = "schedtrace=100, asyncpreemptoff=1,empty=,flag";
        let found = |name| find(text, name);
        assert_eq!(found("schedtrace").as_deref(), Some("100"));
        assert_eq!(found("asyncpreemptoff").as_deref(), Some("1"));
        assert_eq!(found("empty").as_deref(), Some(""));
        assert_eq!(
            [found("sched"), found("trace"), found("flag"), find("", "x")],
            [const { None }; 4]
        );
    }
}
