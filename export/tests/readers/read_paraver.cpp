// SPDX-License-Identifier: MIT OR Apache-2.0
// Reads OUT.prv, OUT.pcf and OUT.row with the parser of Paraver's own kernel, and prints what the parser has read.
// Built by xtask/src/readers.rs with the sources of the kernel, whose folder utils/traceparser is a library of
// templates; called by tests/paraver.rs, which compares the lines with the job. The parser reports refused records on
// standard error, which the test wants empty.

#include <cstdint>
#include <iostream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <unordered_set>
#include <vector>

using namespace std; // the parser's headers say `string` for `std::string`

#include "pcffileparser.h"
#include "processmodel.h"
#include "resourcemodel.h"
#include "rowfileparser.h"
#include "tracebodyio_v1.h"
#include "traceheader.h"

using Time = int64_t;
using Processes = ProcessModel<>;
using Resources = ResourceModel<>;

// Counts the records that the parser passes; Paraver keeps them in memory here.
struct Records {
  TRecordType kind = 0;
  Time begin = 0;
  size_t states = 0, events = 0, communications = 0;
  int64_t bytes = 0, tags = 0;
  Time in_states = 0;
  map<TEventType, size_t> events_of;
  map<TEventType, unordered_set<TEventValue>> values_of;

  void newRecord(TThreadOrder) {}
  void setRecordType(TRecordType type) { kind = type; }
  void setTime(Time time) { begin = time; }
  void setCPU(TCPUOrder) {}
  void setThread(TThreadOrder) {}
  void setState(TState) {}
  void setStateEndTime(Time end) {
    if (kind != STATE + BEGIN) return;
    ++states;
    in_states += end - begin;
  }
  void setEventType(TEventType type) {
    ++events;
    ++events_of[type];
    last = type;
  }
  void setEventValue(TEventValue value) { values_of[last].insert(value); }
  void newComm(TThreadOrder, TThreadOrder) { ++communications; }
  void setSenderCPU(TCPUOrder) {}
  void setSenderThread(TThreadOrder) {}
  void setReceiverCPU(TCPUOrder) {}
  void setReceiverThread(TThreadOrder) {}
  void setLogicalSend(Time) {}
  void setPhysicalSend(Time) {}
  void setLogicalReceive(Time) {}
  void setPhysicalReceive(Time) {}
  void setCommSize(TCommSize size) { bytes += size; }
  void setCommTag(TCommTag tag) { tags += tag; }

private:
  TEventType last = 0;
};

struct Comments {
  void NewMetadata(const string &) {}
};

// For the parser's writing half, which is not called.
struct Record {
  TRecordType getRecordType() const { return 0; }
  Time getTime() const { return 0; }
  TCPUOrder getCPU() const { return 0; }
  TThreadOrder getThread() const { return 0; }
  TState getState() const { return 0; }
  Time getStateEndTime() const { return 0; }
  TEventType getEventType() const { return 0; }
  TEventValue getEventValueAsIs() const { return 0; }
  Time getPhysicalSend() const { return 0; }
  Time getPhysicalReceive() const { return 0; }
  Time getLogicalReceive() const { return 0; }
  TCPUOrder getReceiverCPU() const { return 0; }
  TThreadOrder getReceiverThread() const { return 0; }
  TCommSize getCommSize() const { return 0; }
  TCommTag getCommTag() const { return 0; }
};

using Body = TraceBodyIO_v1<fstream, Records, Processes, Resources, TState, TEventType, Comments, Time, Record>;

static void names_of_rows(const RowFileParser<> &rows, const char *name, TTraceLevel level, size_t count) {
  size_t named = 0;
  while (named < count && !rows.getRowLabel(level, named).empty()) ++named;
  const bool has_more = !rows.getRowLabel(level, count).empty();
  cout << "rows " << name << ' ' << named << ' ' << has_more << '\n';
}

int main(int count, char **arguments) {
  if (count != 2) {
    cerr << "usage: " << arguments[0] << " FILE.prv\n";
    return 2;
  }
  const string name = arguments[1];
  fstream file(name, ios::in);
  if (!file) {
    cerr << name << " cannot be opened\n";
    return 1;
  }
  string date;
  TTimeUnit unit = DAY;
  Time end = 0;
  Resources resources;
  Processes processes;
  vector<string> communicators;
  parseTraceHeader(file, date, unit, end, resources, processes, communicators);
  cout << "header " << (unit == NS) << ' ' << end << ' ' << resources.totalNodes() << ' ' << resources.totalCPUs() << ' '
       << processes.totalTasks() << ' ' << processes.totalThreads() << ' ' << communicators.size() << '\n';

  Records records;
  unordered_set<TState> states;
  unordered_set<TEventType> events;
  Comments comments;
  const Body body;
  while (file.peek() != EOF) body.read(file, records, processes, resources, states, events, comments, end);
  cout << "states " << records.states << ' ' << records.in_states << '\n';
  cout << "communications " << records.communications << ' ' << records.bytes << ' ' << records.tags << '\n';
  for (const auto &[type, times] : records.events_of) cout << "events " << type << ' ' << times << '\n';

  PCFFileParser<> labels;
  PCFFileParser<>::openPCFFileParser(name, labels);
  for (const TState state : states) {
    const bool has_name = labels.getStates().count(state) == 1, has_colour = labels.getSemanticColors().count(state) == 1;
    if (!has_name || !has_colour) cerr << "state " << state << " has no name or no colour\n";
  }
  for (const TEventType type : events) {
    try {
      if (labels.getEventLabel(type).empty()) cerr << "events of type " << type << " have an empty name\n";
      const auto &values = labels.getEventValues(type);
      for (const TEventValue value : records.values_of[type]) {
        if (!values.empty() && values.count(value) == 0) cerr << "value " << value << " of " << type << " has no name\n";
      }
    } catch (const out_of_range &) {
      cerr << "events of type " << type << " have no name\n";
    }
  }
  cout << "labels " << labels.getStates().size() << ' ' << labels.getSemanticColors().size() << ' ' << labels.getUnits()
       << '\n';

  RowFileParser<> rows;
  RowFileParser<>::openRowFileParser(name, rows);
  names_of_rows(rows, "CPU", TTraceLevel::CPU, resources.totalCPUs());
  names_of_rows(rows, "NODE", TTraceLevel::NODE, resources.totalNodes());
  names_of_rows(rows, "TASK", TTraceLevel::TASK, processes.totalTasks());
  names_of_rows(rows, "THREAD", TTraceLevel::THREAD, processes.totalThreads());
  return 0;
}
