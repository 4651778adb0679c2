//! The client's end of a connection.

use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use crate::ControlError;
use crate::frame::{Decoder, Frame, FrameError, Stream};
use crate::message::{Hello, PROTOCOL, Reply, Request};

/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;

/// Something the run sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromRun {
    /// A message.
    Reply(Reply),
    /// Output of the program.
    Output(Stream, Vec<u8>),
}

/// A connection to a live run.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    socket: PathBuf,
    decoder: Decoder,
    hello: Hello,
}

impl Connection {
    /// Connects, and hears which run it is.
    ///
    /// # Errors
    /// When nobody answers, or speaks another version.
    pub fn open(socket: &Path) -> Result<Self, ControlError> {
        let stream = UnixStream::connect(socket).map_err(|source| ControlError::Socket {
            action: "connect to",
            path: socket.to_owned(),
            source,
        })?;
        let mut connection = Self {
            stream,
            socket: socket.to_owned(),
            decoder: Decoder::default(),
            hello: Hello {
                protocol: 0,
                version: String::new(),
                scenario: String::new(),
                out: PathBuf::new(),
                pid: 0,
                nodes: Vec::new(),
            },
        };
        match connection.receive()? {
            Some(FromRun::Reply(Reply::Hello(hello))) if hello.protocol == PROTOCOL => connection.hello = hello,
            Some(FromRun::Reply(Reply::Hello(hello))) => return Err(ControlError::Version { theirs: hello.protocol }),
            Some(other) => return Err(FrameError::Message(format!("{other:?} is no greeting")).into()),
            None => return Err(ControlError::Closed),
        }
        Ok(connection)
    }

    /// Which run it is.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Sends a request.
    ///
    /// # Errors
    /// When the run is gone.
    pub fn send(&mut self, request: &Request) -> Result<(), ControlError> {
        self.write(&Frame::message(request))
    }

    /// Sends input for the program.
    ///
    /// # Errors
    /// When the run is gone.
    pub fn send_input(&mut self, bytes: Vec<u8>) -> Result<(), ControlError> {
        self.write(&Frame::Input(bytes))
    }

    fn write(&mut self, frame: &Frame) -> Result<(), ControlError> {
        self.stream
            .write_all(&frame.to_bytes())
            .map_err(|source| self.failed("write to", source))
    }

    /// Waits for what comes next; none: the run closed the connection.
    ///
    /// # Errors
    /// When the connection breaks, or what comes is not understood.
    pub fn receive(&mut self) -> Result<Option<FromRun>, ControlError> {
        loop {
            if let Some(next) = self.next_received()? {
                return Ok(Some(next));
            }
            if !self.read_more()? {
                return Ok(None);
            }
        }
    }

    /// What came already.
    ///
    /// # Errors
    /// When it is not understood.
    pub fn next_received(&mut self) -> Result<Option<FromRun>, ControlError> {
        Ok(match self.decoder.next_frame()? {
            None => None,
            Some(Frame::Output(stream, bytes)) => Some(FromRun::Output(stream, bytes)),
            Some(Frame::Message(json)) => {
                let reply = serde_json::from_slice(&json).map_err(|error| FrameError::Message(error.to_string()))?;
                Some(FromRun::Reply(reply))
            }
            Some(Frame::Input(_)) => return Err(FrameError::Kind(b'i').into()),
            // Only of a driver's programs, which this is not.
            Some(Frame::InputFor(..) | Frame::OutputOf(..)) => return Err(FrameError::Kind(b'O').into()),
        })
    }

    /// Waits for more bytes; false: the run closed the connection.
    ///
    /// # Errors
    /// When the connection breaks.
    pub fn read_more(&mut self) -> Result<bool, ControlError> {
        let mut bytes = vec![0; READ_BYTES];
        let length = loop {
            match self.stream.read(&mut bytes) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break 0,
                Err(error) => return Err(self.failed("read from", error)),
                Ok(length) => break length,
            }
        };
        self.decoder.push(&bytes[..length]);
        Ok(length > 0)
    }

    fn failed(&self, action: &'static str, source: std::io::Error) -> ControlError {
        ControlError::Socket {
            action,
            path: self.socket.clone(),
            source,
        }
    }
}

impl AsFd for Connection {
    /// For poll(2).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
