//! Addresses of servers as they may be shown.

/// Hides a name and password in an address: errors and settings tell it to clients.
pub fn without_password(value: &str) -> String {
    let Some(begin) = value.find("://").map(|at| at + "://".len()) else { return value.to_owned() };
    let host = value[begin..].split(['/', '"']).next().unwrap_or_default();
    match host.rfind('@') {
        Some(at) => format!("{}…{}", &value[..begin], &value[begin + at..]),
        None => value.to_owned(),
    }
}
