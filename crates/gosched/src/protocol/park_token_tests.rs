use super::park_token::ParkToken;

#[test]
fn a_token_that_is_left_before_the_park_is_kept_once() {
    let token = ParkToken::new();
    token.begin(7);
    assert!(!token.unpark(7));
    assert!(!token.unpark(7), "a second unpark adds no second token");
    assert!(!token.park(7));
    assert!(token.take(7));
    assert!(!token.take(7));
}

#[test]
fn only_the_first_unpark_finds_a_goroutine_parked() {
    let token = ParkToken::new();
    token.begin(7);
    assert!(token.park(7));
    assert!(token.unpark(7));
    assert!(!token.unpark(7), "the goroutine is made ready once");
}

#[test]
fn a_time_limit_ends_a_park_and_prevents_a_park_that_comes_later() {
    let token = ParkToken::new();
    token.begin(7);
    assert!(token.park(7));
    assert!(token.expire(7));
    assert!(!token.expire(7));
    assert!(!token.park(7), "the second expire has set EXPIRED");
    token.unexpire(7);
    assert!(token.park(7));
    assert!(token.unpark(7));
    assert!(!token.expire(7) && !token.unpark(7));
    token.unexpire(7);
    assert!(token.take(7), "a token overwrites EXPIRED");
}

#[test]
fn an_unpark_for_an_earlier_goroutine_of_the_same_g_is_ignored() {
    let token = ParkToken::new();
    token.begin(8);
    assert!(!token.unpark(7));
    assert!(!token.take(8));
    assert!(token.park(8));
    assert!(!token.unpark(7));
}
