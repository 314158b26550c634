# SPDX-License-Identifier: MIT OR Apache-2.0
"""Reads the tables of an export as CSV with pandas, and compares them with the same as Parquet: CSV PARQUET MESSAGES."""

import pathlib
import sys

import pandas

csv, parquet, messages = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3])

names = {file.stem for file in csv.iterdir()}
assert names == {file.stem for file in parquet.iterdir()}, names
for name in sorted(names):
    # Only an empty value is unknown: a host may be called "nan".
    text = pandas.read_csv(csv / f"{name}.csv", keep_default_na=False, na_values=[""], dtype=str)
    table = pandas.read_parquet(parquet / f"{name}.parquet", dtype_backend="pyarrow")
    assert list(text.columns) == list(table.columns), (name, list(text.columns))
    assert len(text) == len(table), (name, len(text), len(table))
    for column in table.columns:
        values = table[column]
        if str(values.dtype).startswith("timestamp"):
            values = values.astype("int64[pyarrow]")
        for left, right in zip(text[column], values):
            # Empty and unknown texts are both empty in CSV.
            left, right = ("" if pandas.isna(each) else str(each) for each in (left, right))
            assert left.lower() == right.lower(), (name, column, left, right)

assert len(pandas.read_csv(csv / "messages.csv")) == messages
