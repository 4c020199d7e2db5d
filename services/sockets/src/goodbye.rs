use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Writes the last words and closes. Reads what is on its way, because closing on unread bytes would take the words back.
pub async fn say_goodbye(stream: &mut TcpStream, words: &[u8]) -> std::io::Result<()> {
    stream.write_all(words).await?;
    stream.shutdown().await?;
    let mut unread = [0; 1024];
    while stream.read(&mut unread).await? > 0 {}
    Ok(())
}
