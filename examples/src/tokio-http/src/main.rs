//! A small HTTP server on tokio: one task per connection on four worker threads, and a counter that they share.
//!
//!     tokio-http ADDRESS
//!
//! `GET /` answers at once, `GET /MILLISECONDS` after that time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// Answers the requests of one connection until its end.
async fn answer(mut stream: TcpStream, served: Arc<AtomicU64>) -> std::io::Result<()> {
    let (reader, mut writer) = stream.split();
    let mut lines = BufReader::new(reader).lines();
    while let Some(request) = lines.next_line().await? {
        // Headers end with an empty line; none of them matters here.
        while lines.next_line().await?.is_some_and(|header| !header.is_empty()) {}
        let path = request.split([' ', '?']).nth(1).unwrap_or("/");
        if let Ok(milliseconds) = path.trim_start_matches('/').parse() {
            tokio::time::sleep(Duration::from_millis(milliseconds)).await;
        }
        let body = format!("answer {} to {path}\n", served.fetch_add(1, Ordering::Relaxed) + 1);
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        writer.write_all((head + &body).as_bytes()).await?;
    }
    Ok(())
}

async fn serve(address: &str) -> std::io::Result<()> {
    let listener = TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    let served = Arc::new(AtomicU64::new(0));
    loop {
        let (stream, peer) = listener.accept().await?;
        let served = Arc::clone(&served);
        tokio::spawn(async move {
            if let Err(error) = answer(stream, served).await {
                eprintln!("{peer}: {error}");
            }
        });
    }
}

fn main() -> std::io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "0.0.0.0:8080".into());
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()?
        .block_on(serve(&address))
}
