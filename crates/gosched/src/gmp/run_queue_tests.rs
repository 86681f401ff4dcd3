use super::*;

fn gs(count: usize) -> &'static [usize] {
    Box::leak((0..count).collect())
}
