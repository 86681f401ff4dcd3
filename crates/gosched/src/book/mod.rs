//! The design, one chapter per question a new contributor asks.
