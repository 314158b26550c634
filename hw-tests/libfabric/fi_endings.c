// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Operations that do not end as asked: cancelled receives (fi_cancel of fi_endpoint(3)), messages that are longer than
// their receive, and how a queue reports failures (fi_cq(3)). No arguments.
#include "endpoints.h"

enum { LONG = 1 << 18 };
static char in[LONG], out[LONG], contexts[4];

static struct fi_cq_err_entry failed(const char *what, int error, const void *context) {
    struct fi_cq_err_entry entry = await_error(&ends[1]);
    check_int(what, error, entry.err);
    check_pointer("context", context, entry.op_context);
    char text[100] = "";
    const char *copy = fi_cq_strerror(ends[1].cq, entry.prov_errno, entry.err_data, text, sizeof text);
    check_pointer("the text is in the buffer", text, copy);
    check_true("fi_cq_strerror has a text", strlen(text) > 10);
    check_int("the text without a buffer", 0,
              strcmp(text, fi_cq_strerror(ends[1].cq, entry.prov_errno, entry.err_data, NULL, 0)));
    check_true("a short buffer has the beginning",
               strncmp(text, fi_cq_strerror(ends[1].cq, entry.prov_errno, NULL, (char[5]){0}, 5), 4) == 0);
    return entry;
}

static void receive(size_t room, uint64_t tag, void *context) {
    OK(fi_trecv(ends[1].ep, in, room, NULL, FI_ADDR_UNSPEC, tag, 0, context));
}

// Sends `length` bytes to endpoint 1, from endpoint `from`, into a receive with less room, posted before or after.
static void truncates(int from, size_t length, size_t room, bool is_late) {
    fill(out, length, (unsigned)length);
    memset(in, 1, sizeof in);
    if (!is_late)
        receive(room, 3, contexts);
    OK(fi_tsenddata(ends[from].ep, out, length, NULL, 77, ends[from].to[1], 3, out));
    if (is_late) {
        for (int i = 0; i < 100; i++)
            progress();
        receive(room, 3, contexts);
    }
    bool is_sent = false;
    if (from == 1) { // both operations end in one queue, in any order
        ssize_t code;
        while ((code = fi_cq_read(ends[1].cq, &(entry){0}, 1)) == -FI_EAGAIN)
            progress();
        is_sent = code == 1;
    }
    struct fi_cq_err_entry entry = failed("err", FI_ETRUNC, contexts);
    check_int("flags", FI_TAGGED | FI_RECV | FI_REMOTE_CQ_DATA, (long long)entry.flags);
    check_int("length", (long long)room, (long long)entry.len);
    check_int("overflow", (long long)(length - room), (long long)entry.olen);
    check_int("tag", 3, (long long)entry.tag);
    check_int("remote CQ data", 77, (long long)entry.data);
    check_filled("data", in, room, (unsigned)length);
    check_int("the byte behind", 1, in[room]);
    if (!is_sent)
        await_of(&ends[from], "the sender knows nothing of it", out);
}

static void reports_in_order(void) {
    check_case("failures come in their order among completions, and block the queue until they are read");
    for (int i = 0; i < 4; i++)
        receive(i % 2 ? 2 : 8, (uint64_t)i, &contexts[i]);
    for (uint64_t tag = 0; tag < 4; tag++)
        OK(fi_tinject(ends[0].ep, out, 8, ends[0].to[1], tag));
    for (int i = 0; i < 2000; i++)
        progress();
    entry got[4];
    ssize_t code;
    while ((code = fi_cq_read(ends[1].cq, got, 4)) == -FI_EAGAIN)
        progress();
    check_int("entries before the failure", 1, code);
    check_pointer("the first", &contexts[0], got[0].op_context);
    failed("err", FI_ETRUNC, &contexts[1]);
    await_of(&ends[1], "the third", &contexts[2]);
    failed("err", FI_ETRUNC, &contexts[3]);
    check_int("a further error", -FI_EAGAIN, fi_cq_readerr(ends[1].cq, &(struct fi_cq_err_entry){0}, 0));
    check_nothing(&ends[1]);
}

int main(void) {
    open_endpoints((struct setup){.endpoints = 2});

    check_case("a posted receive is cancelled once");
    receive(8, 1, &contexts[0]);
    OK(fi_cancel(&ends[1].ep->fid, &contexts[0]));
    struct fi_cq_err_entry entry = failed("err", FI_ECANCELED, &contexts[0]);
    check_int("flags", FI_TAGGED | FI_RECV, (long long)entry.flags);
    check_int("a second cancel", -FI_ENOENT, fi_cancel(&ends[1].ep->fid, &contexts[0]));
    check_nothing(&ends[1]);

    check_case("of several receives with one context one is cancelled, and the other receives");
    receive(8, 1, &contexts[0]);
    receive(8, 1, &contexts[0]);
    receive(8, 1, &contexts[1]);
    OK(fi_cancel(&ends[1].ep->fid, &contexts[0]));
    failed("err", FI_ECANCELED, &contexts[0]);
    for (int i = 0; i < 2; i++)
        OK(fi_tinject(ends[0].ep, out, 8, ends[0].to[1], 1));
    await_of(&ends[1], "the other receive", &contexts[0]);
    await_of(&ends[1], "the receive behind it", &contexts[1]);

    check_case("an untagged receive is cancelled, and a receive that has got its message is not");
    OK(fi_recv(ends[1].ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
    OK(fi_cancel(&ends[1].ep->fid, &contexts[0]));
    entry = failed("err", FI_ECANCELED, &contexts[0]);
    check_int("flags", FI_MSG | FI_RECV, (long long)entry.flags);
    receive(8, 1, &contexts[0]);
    OK(fi_tinject(ends[0].ep, out, 8, ends[0].to[1], 1));
    await_of(&ends[1], "the receive", &contexts[0]);
    check_int("cancel", -FI_ENOENT, fi_cancel(&ends[1].ep->fid, &contexts[0]));
    check_nothing(&ends[1]);

    static const size_t lengths[][2] = {{10, 9},      {10, 0},           {5000, 4999},
                                        {20000, 100}, {LONG - 1, LONG - 2}, {LONG - 1, 0}};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        size_t length = lengths[i][0], room = lengths[i][1];
        check_case("a message of %zu bytes fills a receive of %zu, and says what is missing", length, room);
        truncates(0, length, room, false);
        truncates(1, length, room, true);
        truncates(0, length, room, true);
    }

    check_case("a message that is too long is cut in a receive of several pieces");
    memset(in, 1, sizeof in);
    struct iovec pieces[] = {{in, 3}, {in + 10, 4}};
    OK(fi_trecvv(ends[1].ep, pieces, NULL, 2, FI_ADDR_UNSPEC, 4, 0, contexts));
    fill(out, 20, 1);
    OK(fi_tinject(ends[0].ep, out, 20, ends[0].to[1], 4));
    entry = failed("err", FI_ETRUNC, contexts);
    check_int("overflow", 13, (long long)entry.olen);
    check_int("data", 0, memcmp(in, out, 3) | memcmp(in + 10, out + 3, 4));
    check_int("bytes between and behind", 2, in[3] + in[14]);

    reports_in_order();
    close_endpoints();
    return check_finish();
}
