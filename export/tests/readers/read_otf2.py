# SPDX-License-Identifier: MIT OR Apache-2.0
"""Reads an archive with OTF2's own Python module and matches its messages: ANCHOR MESSAGES BYTES PHASES CALLS."""

import collections
import sys

import otf2
from otf2.enums import GroupType, LocationType, Paradigm, RegionRole
from otf2.events import Enter, Leave, Metric, MpiIrecv, MpiIrecvRequest, MpiIsend, MpiIsendComplete

messages, bytes_, phases, calls = map(int, sys.argv[2:])

with otf2.reader.open(sys.argv[1]) as trace:
    definitions = trace.definitions
    # The group of all MPI locations; other groups have indexes in it.
    everyone = next(group for group in definitions.groups if group.group_type == GroupType.COMM_LOCATIONS)
    open_regions, last, counts = collections.defaultdict(list), {}, collections.Counter()
    sent, received = collections.defaultdict(list), collections.defaultdict(list)
    pending_sends, pending_receives, entered = set(), set(), collections.Counter()
    clock = definitions.clock_properties
    for location, event in trace.events:
        assert location.type == LocationType.CPU_THREAD
        assert last.get(location, 0) <= event.time <= clock.global_offset + clock.trace_length, event
        last[location] = event.time
        counts[type(event)] += 1
        if isinstance(event, Enter):
            open_regions[location].append(event.region)
            entered[event.region.name] += 1
            assert event.region.paradigm == Paradigm.MPI
            is_call = event.region.region_role == RegionRole.POINT2POINT
            # Calls are on threads, all of which are MPI locations here; phases are on lanes.
            assert is_call == event.region.name.startswith("MPI_") == (location in everyone.members), event
        elif isinstance(event, Leave):
            assert open_regions[location].pop() == event.region, event
        elif isinstance(event, Metric):
            assert all(value >= 0 for value in event.values), event
        elif isinstance(event, (MpiIsend, MpiIrecv)):
            own = everyone.members.index(location)
            is_send = isinstance(event, MpiIsend)
            peer = event.receiver if is_send else event.sender
            group = event.communicator.group
            # A rank is an index in the communicator's group, whose members are indexes in the group of locations.
            peer = group.members[peer] if group.group_type == GroupType.COMM_GROUP else peer
            peer = everyone.members.index(peer) if not isinstance(peer, int) else peer
            ends, table = ((own, peer), sent) if is_send else ((peer, own), received)
            table[ends + (event.msg_tag,)].append(event.msg_length)
            attributes = {attribute.name: value for attribute, value in event.attributes.items()}
            assert attributes["ibex protocol"] in {"inline", "copied", "read"}, attributes
            assert attributes["ibex reason"] == "size" and attributes["ibex queue pair"] >= 0, attributes
            if is_send:
                assert event.request_id not in pending_sends
                pending_sends.add(event.request_id)
            else:
                pending_receives.remove(event.request_id)
        elif isinstance(event, MpiIsendComplete):
            pending_sends.remove(event.request_id)
        else:
            assert isinstance(event, MpiIrecvRequest), event
            pending_receives.add(event.request_id)
    assert not pending_sends and not pending_receives and not any(open_regions.values())
    assert counts[MpiIsend] == counts[MpiIrecv] == messages, counts
    assert counts[Enter] == counts[Leave] == phases + calls, counts
    assert entered["MPI_Send"] + entered["MPI_Recv"] == calls, entered
    assert sum(map(sum, sent.values())) == bytes_
    # Sends and receives between each two ranks are equal, tag by tag.
    assert {ends: sorted(sizes) for ends, sizes in sent.items()} == {
        ends: sorted(sizes) for ends, sizes in received.items()
    }
    total = sum(location.number_of_events for location in definitions.locations)
    assert total == sum(counts.values()), (total, counts)
