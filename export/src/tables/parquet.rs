// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables as Apache Parquet: a folder with a file for each, for pandas, Polars, `DuckDB` and Spark. Source: the Parquet
//! format's documentation (parquet.apache.org), by the crate `parquet` of the Arrow project without Arrow itself.
//! Columns are optional: unknown values are null. Times are timestamps of nanoseconds in UTC; texts are UTF-8 with
//! dictionaries; pages are compressed by zstd. Memory: one column of [`ROWS`] rows, and the pages of a row group.
//! Called by `lib.rs`. Tests: tests/tables.rs, with pyarrow and pandas if Python has them.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use anyhow::anyhow;
use ibex_messages::Job;
use parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as Physical, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{Type, TypePtr};

use super::{Cell, Column, Kind, Table, Tabled, write_folder};
use crate::file;

/// Number of rows of a group; one group at a time is in memory.
const ROWS: usize = 1 << 16;

pub(crate) fn write(job: &Job, out: &Path) -> anyhow::Result<()> {
    write_folder(job, out, "parquet", |job, table, path| {
        let written = write_table(job, table, file::create(path)?);
        written.map_err(|error| anyhow!("{} cannot be written as Parquet: {error}", path.display()))
    })
}

fn write_table(job: &Tabled<'_>, table: &Table, file: File) -> Result<(), ParquetError> {
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
        .set_created_by(format!("ibex {}", env!("CARGO_PKG_VERSION")))
        .build();
    let mut writer = SerializedFileWriter::new(file, schema(table)?, Arc::new(properties))?;
    let rows = (table.rows)(job);
    for first in (0..rows).step_by(ROWS) {
        let mut group = writer.next_row_group()?;
        for column in table.columns {
            let Some(mut to) = group.next_column()? else { break };
            write_column(job, column, first..rows.min(first + ROWS), &mut to)?;
            to.close()?;
        }
        group.close()?;
    }
    writer.close()?;
    Ok(())
}

fn schema(table: &Table) -> Result<TypePtr, ParquetError> {
    let mut fields = Vec::with_capacity(table.columns.len());
    for column in table.columns {
        let (physical, logical) = match column.kind {
            Kind::Number => (Physical::INT64, None),
            Kind::Time => (Physical::INT64, Some(LogicalType::timestamp(true, TimeUnit::NANOS))),
            Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Kind::Truth => (Physical::BOOLEAN, None),
        };
        let field = Type::primitive_type_builder(column.name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(logical)
            .build()?;
        fields.push(Arc::new(field));
    }
    Ok(Arc::new(Type::group_type_builder(table.name).with_fields(fields).build()?))
}

/// Writes the known values one after the other, and for each row whether it has one.
fn write_column(
    job: &Tabled<'_>,
    column: &Column,
    rows: std::ops::Range<usize>,
    to: &mut SerializedColumnWriter<'_>,
) -> Result<(), ParquetError> {
    let (mut numbers, mut texts, mut truths) = (Vec::new(), Vec::new(), Vec::new());
    let mut is_known = Vec::with_capacity(rows.len());
    for row in rows {
        let cell = (column.cell)(job, row);
        is_known.push(i16::from(!matches!(cell, Cell::None)));
        match cell {
            Cell::None => {}
            Cell::Number(number) => numbers.push(number),
            Cell::Text(text) => texts.push(ByteArray::from(text)),
            Cell::Truth(truth) => truths.push(truth),
        }
    }
    let levels = Some(is_known.as_slice());
    match column.kind {
        Kind::Number | Kind::Time => to.typed::<Int64Type>().write_batch(&numbers, levels, None)?,
        Kind::Text => to.typed::<ByteArrayType>().write_batch(&texts, levels, None)?,
        Kind::Truth => to.typed::<BoolType>().write_batch(&truths, levels, None)?,
    };
    Ok(())
}
