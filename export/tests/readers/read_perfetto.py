# SPDX-License-Identifier: MIT OR Apache-2.0
"""Decodes a trace with Perfetto's own definitions and follows its slices: FILE MESSAGES BYTES SLICES CALLS."""

import collections
import sys

from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as definitions

messages, bytes_, slices, calls = map(int, sys.argv[2:])
trace = definitions.Trace()
with open(sys.argv[1], "rb") as file:
    trace.ParseFromString(file.read())

EVENT = definitions.TrackEvent
names, annotations, texts, tracks = {}, {}, {}, {}
open_slices, protocol_of = collections.defaultdict(list), {}
begun = ended = last = total = 0
flows, ended_flows, counters, begun_of = {}, {}, collections.Counter(), collections.Counter()
for packet in trace.packet:
    assert len(UnknownFieldSet(packet)) == len(UnknownFieldSet(packet.track_event)) == 0
    if packet.HasField("interned_data"):
        names = {name.iid: name.name for name in packet.interned_data.event_names}
        annotations = {name.iid: name.name for name in packet.interned_data.debug_annotation_names}
        texts = {text.iid: text.str.decode() for text in packet.interned_data.debug_annotation_string_values}
    if packet.HasField("track_descriptor"):
        track = packet.track_descriptor
        assert not track.parent_uuid or track.parent_uuid in tracks, "a parent comes first"
        tracks[track.uuid] = track
    if not packet.HasField("track_event"):
        continue
    event = packet.track_event
    assert event.track_uuid in tracks and packet.timestamp >= last
    last = packet.timestamp
    if event.type == EVENT.TYPE_SLICE_BEGIN:
        begun += 1
        open_slices[event.track_uuid].append(names[event.name_iid])
        begun_of[names[event.name_iid]] += 1
        is_of_thread = tracks[event.track_uuid].HasField("thread")
        assert is_of_thread == names[event.name_iid].startswith(("MPI_", "search ")), names[event.name_iid]
        values = {annotations[each.name_iid]: each for each in event.debug_annotations}
        if names[event.name_iid] == "send":
            total += values["bytes"].int_value
            protocol_of[event.track_uuid] = values["protocol"].string_value_iid
            assert texts[values["protocol"].string_value_iid] in {"inline", "copied", "read"}
            assert texts[values["reason"].string_value_iid] == "size"
        elif names[event.name_iid] == "search posted queue":
            assert (values["peer"].int_value, values["tag"].int_value, values["queue length"].int_value) == (-1, 3, 5)
            assert open_slices[event.track_uuid][-2].startswith("MPI_")
        elif names[event.name_iid] == "not recorded":
            assert tracks[event.track_uuid].process.pid == 4
        for flow in event.flow_ids:
            is_announced = texts[protocol_of[event.track_uuid]] == "read"
            assert names[event.name_iid] == ("send announced" if is_announced else "send goes")
            flows[flow] = packet.timestamp
        for flow in event.terminating_flow_ids:
            ended_flows[flow] = packet.timestamp
    elif event.type == EVENT.TYPE_SLICE_END:
        ended += 1
        open_slices[event.track_uuid].pop()
    elif event.type == EVENT.TYPE_COUNTER:
        counters[tracks[event.track_uuid].name] += 1
        assert event.counter_value >= 0
    else:
        assert event.type == EVENT.TYPE_INSTANT and names[event.name_iid] == "request queued"
        assert event.debug_annotations[0].int_value == 9

assert begun == ended == slices, (begun, ended, slices)
assert total == bytes_, (total, bytes_)
assert begun_of["MPI_Send"] + begun_of["MPI_Recv"] == calls, begun_of
assert begun_of["search posted queue"] == begun_of["not recorded"] == 1, begun_of
assert not any(open_slices.values())
assert len(flows) == messages and flows.keys() == ended_flows.keys()
assert all(flows[flow] <= ended_flows[flow] for flow in flows)
assert {"posted receives", "bytes in flight", "requests that wait for a queue"} <= counters.keys(), counters
processes = [track for track in tracks.values() if track.HasField("process")]
assert processes[0].process.process_name == "rank 0 (node0, pid 1000)", processes[0]
