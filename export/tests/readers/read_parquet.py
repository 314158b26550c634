# SPDX-License-Identifier: MIT OR Apache-2.0
"""Reads the tables of an export with pandas and pyarrow: FOLDER MESSAGES BYTES DELAYS."""

import pathlib
import sys

import pandas
import pyarrow.parquet

folder, messages, bytes_, delays = pathlib.Path(sys.argv[1]), *map(int, sys.argv[2:])

for file in folder.iterdir():
    pyarrow.parquet.read_table(file).validate(full=True)

table = pandas.read_parquet(folder / "messages.parquet")
assert len(table) == messages, len(table)
assert table.bytes.sum() == bytes_, table.bytes.sum()
assert int(table.delay_ns.sum()) == delays, table.delay_ns.sum()
assert str(table.send_begun.dtype) == "datetime64[ns, UTC]", table.send_begun.dtype
seen = table.dropna(subset=["send_begun"])
left = seen.send_announced.fillna(seen.send_begun)
assert ((seen.receive_arrived - left).astype("int64") == seen.delay_ns).all()
assert (table.send_announced.notna() == (table.protocol == "read")).all()
assert table.protocol.isna().sum() == 1 and table.send_begun.isna().sum() == 1
assert set(table.protocol.dropna()) == {"inline", "copied", "read"}
for name in ["send_begun", "send_ended", "receive_arrived", "receive_begun", "receive_ended"]:
    clocks = table[f"{name}_clock"]
    assert set(clocks.dropna()) == {"adapter", "host"} and (clocks.notna() == table[name].notna()).all(), name
waits = pandas.read_parquet(folder / "waits.parquet")
late = waits.merge(table, on=["message", "sender", "receiver"])
assert (waits["to"] > waits["from"]).all() and len(late) == waits.message.notna().sum() > 0
ranks = pandas.read_parquet(folder / "ranks.parquet")
assert len(table.merge(ranks, left_on="sender", right_on="rank")) == messages
