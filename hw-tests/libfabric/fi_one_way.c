// SPDX-License-Identifier: MIT OR Apache-2.0
//
// For tests of tools: one endpoint sends to another one of the same process, until the process is ended. No arguments.
#include "endpoints.h"

static char in[8], out[8];

int main(void) {
    open_endpoints((struct setup){.endpoints = 2});
    check_case("messages from the first endpoint to the second");
    for (;;) {
        OK(fi_trecv(ends[1].ep, in, sizeof in, NULL, FI_ADDR_UNSPEC, 1, 0, in));
        OK(fi_tinject(ends[0].ep, out, sizeof out, ends[0].to[1], 1));
        await_of(&ends[1], "the message", in);
    }
}
