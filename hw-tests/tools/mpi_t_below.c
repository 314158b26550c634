// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Transfer events of the BTL under another PML: the transfer of each message begins and ends once at its sender; it
// arrives, begins and ends once at its receiver, with as many bytes. Its communicator is unknown. 2 ranks.
#include <ibex_mpi_t.h>

#include "../mpi/seen.h"
#include "../mpi/steps.h"

enum { MESSAGES = 200, LONGEST = 1 << 20, MOST_EVENTS = 1 << 14, MOST_OF_CARRIER = 256 };
static const int lengths[] = {0, 8, 3000, 60000, LONGEST};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

static struct tool all;
static int of_world;

// Messages and bytes that were sent to the other rank, or received from it, so far.
struct carried {
    long long messages, bytes;
};

static struct carried carried(uint32_t direction) {
    struct carried sum = {0};
    for (int i = 0; i < seen_count(&all); i++)
        if (all.all[i].kind == BEGIN && all.all[i].data.transfer.direction == direction) {
            sum.messages++;
            sum.bytes += (long long)all.all[i].data.transfer.bytes;
        }
    return sum;
}

static void exchange(void) {
    static char out[LONGEST], in[LONGEST];
    for (int i = 0; i < MESSAGES; i++)
        MPI_OK(MPI_Sendrecv(out, lengths[i % LENGTHS], MPI_BYTE, 1 - check.rank, i, in, LONGEST, MPI_BYTE, 1 - check.rank, i,
                            MPI_COMM_WORLD, MPI_STATUS_IGNORE));
}

// Rank `teller` sends its counts in one more message. Several ports deliver in any order, so the other rank waits until
// it has seen as many, less the events that came too late for their order and count as dropped.
static void compare(int teller) {
    struct carried sent;
    if (check.rank == teller) {
        sent = carried(0);
        MPI_OK(MPI_Send(&sent, sizeof sent, MPI_BYTE, 1 - teller, MESSAGES, MPI_COMM_WORLD));
        MPI_OK(MPI_Recv(NULL, 0, MPI_BYTE, 1 - teller, MESSAGES, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        return;
    }
    MPI_OK(MPI_Recv(&sent, sizeof sent, MPI_BYTE, teller, MESSAGES, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    while (carried(1).messages + seen_all_dropped() <= sent.messages)
        check_progress();
    struct carried came = carried(1);
    long long dropped = seen_all_dropped();
    check_true("no more messages", came.messages <= sent.messages + 1);
    check_true("no fewer messages but for what was dropped", came.messages + dropped > sent.messages);
    check_true("no fewer bytes", came.bytes > sent.bytes || dropped > 0);
    check_true("no more bytes", came.bytes < sent.bytes + MOST_OF_CARRIER);
    MPI_OK(MPI_Send(NULL, 0, MPI_BYTE, teller, MESSAGES, MPI_COMM_WORLD));
}

static void judge_message(const struct seen *begin, const struct seen *end, uint64_t last[COUNTER_VALUES]) {
    const struct transfer *first = &begin->data.transfer, *then = &end->data.transfer;
    check_int("an end behind each begin", END, end->kind);
    check_true("a number that none of its source had before", first->message > last[begin->source]);
    last[begin->source] = first->message;
    check_int("its number", (long long)first->message, (long long)then->message);
    check_true("all bytes in the begin", first->offset == 0 && first->bytes == first->total);
    check_true("none in the end", then->bytes == 0 && then->offset == first->total && then->total == first->total);
    check_true("no request and no communicator", first->request == 0 && first->context == UINT32_MAX);
    check_true("neither sender there nor tag", first->source == -1 && first->tag == -1);
    check_int("the other process", 1 - check.rank, first->peer);
    check_true("a port", first->port < 16 && then->port == first->port);
    check_true("a thread", first->thread < COUNTER_VALUES && seen_source((int)first->thread).is_host);
    check_int("one source", begin->source, end->source);
}

static void judge(void) {
    uint64_t last[COUNTER_VALUES] = {0};
    int arrived = 0, received = 0;
    for (int i = 0; i + 1 < seen_count(&all); i++) {
        const struct seen *seen = &all.all[i];
        if (seen->kind == ARRIVED) {
            arrived++;
            check_int("what arrives begins", BEGIN, all.all[i + 1].kind);
            check_int("the same message", (long long)seen->data.arrival.message, (long long)all.all[i + 1].data.transfer.message);
            check_int("all of it", (long long)seen->data.arrival.total, (long long)seen->data.arrival.bytes);
        } else if (seen->kind == BEGIN) {
            judge_message(seen, &all.all[i + 1], last);
            received += seen->data.transfer.direction == 1;
        }
    }
    check_int("arrivals", received, arrived);
}

int main(int argc, char **argv) {
    check_start(&argc, &argv, 2);
    listen_must(MPI_T_init_thread(MPI_THREAD_SINGLE, &(int){0}), "MPI_T");
    exchange();
    counter_open(&seen_dropped, "btl_ibex_events_dropped");
    steps_begin();
    // No message is in flight until both ranks listen.
    say();
    hear();
    unsigned kinds = 1u << BEGIN | 1u << CONTINUE | 1u << END | 1u << ARRIVED;
    MPI_Comm world = MPI_COMM_WORLD;
    seen_listen(&all, MOST_EVENTS, kinds, MPI_INFO_NULL);
    MPI_T_event_registration bound = listen_to(seen_names[ARRIVED], &world, count_event, &of_world);
    say();
    hear();
    check_case("each side has received the messages of the other");
    exchange();
    check_true("a message for each of MPI's", carried(0).messages >= MESSAGES);
    compare(0);
    compare(1);
    check_case("each message begins and ends once");
    judge();
    check_int("messages of a communicator", 0, of_world);
    listen_no_more(bound);
    seen_stop(&all);
    return check_finish();
}
