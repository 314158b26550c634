// SPDX-License-Identifier: MIT OR Apache-2.0
// Needs Open MPI: it reads performance variables of ibex' components.
//
// Reads every performance variable of the BTL ibex before and after known traffic: short, long and scattered messages
// around the ring, and one-sided operations if a window can be made. Rank 0 prints `pvar NAME VALUE was VALUE` for
// each. Variables given with a minimum must have grown by that much (counters, aggregates, timers) or be at least that
// (other classes) on every rank. Needs 2 or more ranks.
//
// usage: pvars [--no-one-sided] [NAME=MINIMUM]...     (NAME without btl_ibex_)
#include "check.h"

static const char prefix[] = "btl_ibex_";
enum { PREFIX = sizeof prefix - 1, MOST = 256, NAME_BYTES = 160, LONG = 1 << 20, SHORTS = 200, LONGS = 5, ONE_SIDED = 20 };

static struct variable {
    char name[NAME_BYTES];
    int class, elements;
    MPI_Datatype type;
    MPI_T_pvar_handle handle;
    double before, after; // the sum of its elements
} variables[MOST];
static int count;
static MPI_T_pvar_session session;

static bool grows(int class) {
    return class == MPI_T_PVAR_CLASS_COUNTER || class == MPI_T_PVAR_CLASS_AGGREGATE || class == MPI_T_PVAR_CLASS_TIMER;
}

static void find_variables(void) {
    int number;
    MPI_OK(MPI_T_pvar_session_create(&session));
    MPI_OK(MPI_T_pvar_get_num(&number));
    for (int i = 0; i < number && count < MOST; i++) {
        struct variable *variable = &variables[count];
        char text[1024];
        int name_bytes = NAME_BYTES, text_bytes = sizeof text, verbosity, bind, readonly, continuous, atomic;
        MPI_T_enum enumeration;
        int code = MPI_T_pvar_get_info(i, variable->name, &name_bytes, &verbosity, &variable->class, &variable->type,
                                       &enumeration, text, &text_bytes, &bind, &readonly, &continuous, &atomic);
        if (code != MPI_SUCCESS || strncmp(variable->name, prefix, PREFIX) != 0)
            continue;
        check_true("variable has a description", text[0] != '\0');
        check_true(variable->name, bind == MPI_T_BIND_NO_OBJECT);
        check_true(variable->name, variable->type == MPI_UNSIGNED || variable->type == MPI_UNSIGNED_LONG_LONG);
        MPI_OK(MPI_T_pvar_handle_alloc(session, i, NULL, &variable->handle, &variable->elements));
        if (!continuous)
            MPI_OK(MPI_T_pvar_start(session, variable->handle));
        count++;
    }
}

static double read_variable(struct variable *variable) {
    unsigned long long *values = calloc((size_t)variable->elements + 1, sizeof *values);
    double sum = 0;
    MPI_OK(MPI_T_pvar_read(session, variable->handle, values));
    for (int i = 0; i < variable->elements; i++)
        sum += variable->type == MPI_UNSIGNED ? (double)((unsigned *)(void *)values)[i] : (double)values[i];
    free(values);
    return sum;
}

static void messages(void) {
    unsigned char *out = check_alloc(2 * LONG), *in = check_alloc(2 * LONG);
    MPI_Datatype scattered = check_vector(LONG / 64, 32, 64, MPI_BYTE);
    for (int i = 0; i < SHORTS; i++) {
        check_ring(MPI_COMM_WORLD, 1, out, in, 8, i);
        check_ring(MPI_COMM_WORLD, 1, out, in, 1000 + 17 * i, i);
    }
    for (int i = 0; i < LONGS; i++)
        check_ring(MPI_COMM_WORLD, 1, out, in, LONG, i);
    MPI_OK(MPI_Sendrecv(out, 1, scattered, right, 2, in, 1, scattered, left, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    MPI_OK(MPI_Type_free(&scattered));
    free(out);
    free(in);
}

static void one_sided(void) {
    unsigned char *memory = calloc(1, LONG), *local = check_alloc(LONG);
    long long one = 1, zero = 0, before;
    MPI_Win window;
    if (MPI_Win_create(memory, LONG, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window) != MPI_SUCCESS) {
        check_skip("one_sided_traffic", "no one-sided component makes a window here");
        free(memory);
        free(local);
        return;
    }
    MPI_OK(MPI_Win_lock_all(0, window));
    for (int i = 0; i < ONE_SIDED; i++) {
        int bytes = i % 2 ? LONG / 2 : 8;
        pattern_fill(local, (size_t)bytes, (uint64_t)i);
        MPI_OK(MPI_Put(local, bytes, MPI_BYTE, right, 64, bytes, MPI_BYTE, window));
        MPI_OK(MPI_Win_flush(right, window));
        memset(local, 0, (size_t)bytes);
        MPI_OK(MPI_Get(local, bytes, MPI_BYTE, right, 64, bytes, MPI_BYTE, window));
        MPI_OK(MPI_Win_flush(right, window));
        pattern_check("bytes put and got", local, (size_t)bytes, (uint64_t)i);
        MPI_OK(MPI_Fetch_and_op(&one, &before, MPI_LONG_LONG, right, 0, MPI_SUM, window));
        MPI_OK(MPI_Win_flush(right, window));
        check_int("counter fetched", i, before);
    }
    MPI_OK(MPI_Fetch_and_op(&zero, &before, MPI_LONG_LONG, right, 0, MPI_NO_OP, window));
    MPI_OK(MPI_Win_unlock_all(window));
    check_int("counter in the end", ONE_SIDED, before);
    MPI_OK(MPI_Win_free(&window));
    free(memory);
    free(local);
}

static void check_minimum(const char *argument) {
    const char *equals = strchr(argument, '=');
    int length = (int)(equals - argument);
    double least = atof(equals + 1);
    check_case("%.*s_is_at_least_%s", length, argument, equals + 1);
    struct variable *found = NULL;
    for (int i = 0; i < count && !found; i++) {
        const char *name = variables[i].name + PREFIX;
        if ((int)strlen(name) == length && strncmp(name, argument, (size_t)length) == 0)
            found = &variables[i];
    }
    if (!found) {
        check_fail("performance variable: expected %.*s to exist, got none of that name", length, argument);
    } else {
        double value = grows(found->class) ? found->after - found->before : found->after;
        if (!(value >= least))
            check_fail("%s: expected at least %.0f, got %.0f", found->name, least, value);
    }
}

int main(int argc, char **argv) {
    check_start(&argc, &argv, 2);
    bool windows = !check_flag(argc, argv, "--no-one-sided");
    for (int i = 1; i < argc; i++)
        check.arguments += strchr(argv[i], '=') != NULL;
    check_no_more(argc);
    check_case("every_variable_named_%s_is_read_before_and_after_traffic", prefix);
    MPI_OK(MPI_T_init_thread(MPI_THREAD_SINGLE, &(int){0}));
    int index;
    find_variables();
    check_int("a timer", MPI_SUCCESS, MPI_T_pvar_get_index("btl_ibex_held_back_time", MPI_T_PVAR_CLASS_TIMER, &index));
    check_int("a size", MPI_SUCCESS, MPI_T_pvar_get_index("btl_ibex_send_memory", MPI_T_PVAR_CLASS_SIZE, &index));
    if (count == 0)
        check_fail("performance variables named %s...: expected some, got none", prefix);
    for (int i = 0; i < count; i++)
        variables[i].before = read_variable(&variables[i]);
    messages();
    if (windows)
        one_sided();
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    for (int i = 0; i < count; i++) {
        struct variable *variable = &variables[i];
        variable->after = read_variable(variable);
        if (check.rank == 0)
            printf("pvar %s %.0f was %.0f\n", variable->name, variable->after, variable->before);
        if (grows(variable->class) && variable->after < variable->before)
            check_fail("%s: expected at least %.0f, got %.0f", variable->name, variable->before, variable->after);
    }
    for (int i = 1; i < argc; i++)
        if (strchr(argv[i], '='))
            check_minimum(argv[i]);
    for (int i = 0; i < count; i++)
        MPI_OK(MPI_T_pvar_handle_free(session, &variables[i].handle));
    MPI_OK(MPI_T_pvar_session_free(&session));
    MPI_OK(MPI_T_finalize()); // before MPI_Finalize: the other order crashes in Open MPI 4.1
    return check_finish();
}
