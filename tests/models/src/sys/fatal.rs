//! What ends the process in the product ends the model.

/// Fails the model with a message.
macro_rules! fatal {
    ($($message:tt)*) => {
        panic!($($message)*)
    };
}
pub(crate) use fatal;
