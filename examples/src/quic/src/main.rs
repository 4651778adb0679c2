//! A download over QUIC, by quinn.
//!
//!     quic serve ADDRESS CERTIFICATE KEY           answers each stream's `NUMBER` with so many bytes
//!     quic fetch ADDRESS CERTIFICATE NUMBER STREAMS  fetches so many bytes on each of so many streams at once
//!
//! Certificate and key are PEM files; the client trusts that one certificate, for the name `server.test`.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use quinn::{ClientConfig, Connection, Endpoint, ServerConfig};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

type Failure = Box<dyn Error + Send + Sync>;

/// What a stream is sent in one go.
const CHUNK: [u8; 16 * 1024] = [b'x'; 16 * 1024];

/// Answers the streams of one connection until its end.
async fn answer(connection: Connection) -> Result<(), Failure> {
    loop {
        let (mut reply, mut request) = match connection.accept_bi().await {
            Ok(stream) => stream,
            Err(quinn::ConnectionError::ApplicationClosed(_)) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        tokio::spawn(async move {
            let mut left: usize = String::from_utf8(request.read_to_end(20).await?)?.parse()?;
            while left > 0 {
                let part = left.min(CHUNK.len());
                reply.write_all(&CHUNK[..part]).await?;
                left -= part;
            }
            reply.finish()?;
            Ok::<(), Failure>(())
        });
    }
}

async fn serve(address: SocketAddr, certificate: &str, key: &str) -> Result<(), Failure> {
    let chain = vec![CertificateDer::from_pem_file(certificate)?];
    let config = ServerConfig::with_single_cert(chain, PrivateKeyDer::from_pem_file(key)?)?;
    let endpoint = Endpoint::server(config, address)?;
    println!("listening on {address}");
    while let Some(incoming) = endpoint.accept().await {
        tokio::spawn(async move {
            let outcome = match incoming.await {
                Ok(connection) => answer(connection).await,
                Err(error) => Err(error.into()),
            };
            if let Err(error) = outcome {
                eprintln!("{error}");
            }
        });
    }
    Ok(())
}

/// Bytes of one stream's answer.
async fn fetch_one(connection: Connection, bytes: usize) -> Result<usize, Failure> {
    let (mut request, mut reply) = connection.open_bi().await?;
    request.write_all(bytes.to_string().as_bytes()).await?;
    request.finish()?;
    Ok(reply.read_to_end(bytes).await?.len())
}

async fn fetch(address: SocketAddr, certificate: &str, bytes: usize, streams: usize) -> Result<(), Failure> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificate)?)?;
    let mut endpoint = Endpoint::client("0.0.0.0:0".parse()?)?;
    endpoint.set_default_client_config(ClientConfig::with_root_certificates(Arc::new(roots))?);

    let start = Instant::now();
    let connection = endpoint.connect(address, "server.test")?.await?;
    println!("connected after {} ms", start.elapsed().as_millis());
    let tasks: Vec<_> = (0..streams)
        .map(|_| tokio::spawn(fetch_one(connection.clone(), bytes)))
        .collect();
    let mut total = 0;
    for task in tasks {
        total += task.await??;
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{total} bytes on {streams} streams, {:.1} Mb/s",
        total as f64 * 8e-6 / seconds
    );
    let lost = connection.stats().path.lost_packets;
    println!(
        "round trip {} ms, {lost} packets of ours lost",
        connection.rtt().as_millis()
    );
    connection.close(0u32.into(), b"done");
    endpoint.wait_idle().await;
    Ok(())
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match arguments[..] {
        ["serve", address, certificate, key] => runtime.block_on(serve(address.parse()?, certificate, key)),
        ["fetch", address, certificate, bytes, streams] => {
            runtime.block_on(fetch(address.parse()?, certificate, bytes.parse()?, streams.parse()?))
        }
        _ => Err("usage: quic serve ADDRESS CERTIFICATE KEY | quic fetch ADDRESS CERTIFICATE BYTES STREAMS".into()),
    }
}
