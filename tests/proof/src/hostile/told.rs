//! Check that a person can read a refusal.

/// A mistake is told in words. What the doors tell is one line besides.
pub fn told(message: &str) -> Result<bool, String> {
    match message {
        nothing if nothing.trim().is_empty() => Err("the error has no words".to_owned()),
        broken if broken.contains("panic: ") => Err(format!("the error is a panic's: {broken}")),
        _ => Ok(false),
    }
}
