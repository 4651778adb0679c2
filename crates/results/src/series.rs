//! Series: tables in virtual time, as CSV. The names of their columns hold the units.

use crate::error::{Result, ResultsError};
use serde::Serialize;
use std::fs::File;
use std::io;
use std::path::PathBuf;

/// A line of a series.
pub trait Line: Serialize {
    /// The names of the columns, in the order of its fields.
    const COLUMNS: &'static [&'static str];
}

/// Declares lines of series: structs whose fields are the columns.
macro_rules! lines {
    ($($(#[$about:meta])* pub struct $name:ident<$life:lifetime> { $($(#[$what:meta])* pub $field:ident: $type:ty,)* })*) => {$(
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
        pub struct $name<$life> {
            $($(#[$what])* pub $field: $type,)*
        }

        impl crate::series::Line for $name<'_> {
            const COLUMNS: &'static [&'static str] = &[$(stringify!($field)),*];
        }
    )*};
}
pub(crate) use lines;

/// Writes a series.
#[derive(Debug)]
pub struct Series {
    writer: csv::Writer<File>,
    path: PathBuf,
}

impl Series {
    /// Begins a file with the names of the columns.
    pub(crate) fn new<L: Line>(file: File, path: PathBuf) -> Result<Self> {
        let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(file);
        let written = writer.write_record(L::COLUMNS);
        let series = Self { writer, path };
        series.check(written)?;
        Ok(series)
    }

    /// Adds a line, of the type that the series began with.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn add<L: Line>(&mut self, line: &L) -> Result<()> {
        let written = self.writer.serialize(line);
        self.check(written)
    }

    /// Hands what there is to the host.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn flush(&mut self) -> Result<()> {
        let flushed = self.writer.flush();
        flushed.map_err(|error| ResultsError::from_io("write to", &self.path, error))
    }

    /// As [`Self::flush`]; how long the file is then, bytes.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn flushed_bytes(&mut self) -> Result<u64> {
        self.flush()?;
        let metadata = self.writer.get_ref().metadata();
        metadata.map_or_else(
            |error| Err(ResultsError::from_io("look at", &self.path, error)),
            |metadata| Ok(metadata.len()),
        )
    }

    fn check(&self, written: csv::Result<()>) -> Result<()> {
        written.map_err(|error| {
            let error = match error.into_kind() {
                csv::ErrorKind::Io(error) => error,
                other => io::Error::other(format!("{other:?}")),
            };
            ResultsError::from_io("write to", &self.path, error)
        })
    }
}
