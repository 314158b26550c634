// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Reads every performance variable of a transport through MPI's tool interface, before and after known traffic: short,
// long and scattered messages around the ring, and one-sided puts, gets and atomics where a window can be made. Rank 0
// prints a line for each: `pvar NAME CLASS VALUE was VALUE`. Names given with a minimum must have grown by that much
// (counters, aggregates, timers) or be at least that (other classes) on every rank. Needs 2 or more ranks.
//
// usage: pvars [--prefix P] [--no-one-sided] [NAME=MINIMUM]...     (default prefix btl_ibex_; NAME with or without it)
#include "check.h"

enum { MOST = 256, NAME_BYTES = 160, LONG = 1 << 20, SHORTS = 200, LONGS = 5, ONE_SIDED = 20 };

static struct variable {
    char name[NAME_BYTES];
    int index, class, elements;
    MPI_Datatype type;
    MPI_T_pvar_handle handle;
    double before, after; // the sum of its elements
} variables[MOST];
static int count;
static MPI_T_pvar_session session;

static const char *class_name(int class) {
    switch (class) {
    case MPI_T_PVAR_CLASS_STATE:
        return "state";
    case MPI_T_PVAR_CLASS_LEVEL:
        return "level";
    case MPI_T_PVAR_CLASS_SIZE:
        return "size";
    case MPI_T_PVAR_CLASS_PERCENTAGE:
        return "percentage";
    case MPI_T_PVAR_CLASS_HIGHWATERMARK:
        return "highwatermark";
    case MPI_T_PVAR_CLASS_LOWWATERMARK:
        return "lowwatermark";
    case MPI_T_PVAR_CLASS_COUNTER:
        return "counter";
    case MPI_T_PVAR_CLASS_AGGREGATE:
        return "aggregate";
    case MPI_T_PVAR_CLASS_TIMER:
        return "timer";
    default:
        return "generic";
    }
}

// Of a variable that only grows, what it grew by counts.
static bool grows(int class) {
    return class == MPI_T_PVAR_CLASS_COUNTER || class == MPI_T_PVAR_CLASS_AGGREGATE || class == MPI_T_PVAR_CLASS_TIMER;
}

static bool known_type(MPI_Datatype type) {
    return type == MPI_INT || type == MPI_UNSIGNED || type == MPI_UNSIGNED_LONG || type == MPI_UNSIGNED_LONG_LONG ||
           type == MPI_COUNT || type == MPI_DOUBLE;
}

// Opens a handle on every variable whose name starts with the prefix.
static void find_variables(const char *prefix) {
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
        if (code != MPI_SUCCESS || strncmp(variable->name, prefix, strlen(prefix)) != 0)
            continue;
        check_true("variable has a description", text[0] != '\0');
        if ((bind != MPI_T_BIND_NO_OBJECT && bind != MPI_T_BIND_MPI_COMM) || !known_type(variable->type)) {
            if (check.rank == 0)
                printf("pvar %s %s not read: bound to an object or of a type this program does not know\n",
                       variable->name, class_name(variable->class));
            continue;
        }
        MPI_Comm world = MPI_COMM_WORLD;
        variable->index = i;
        MPI_OK(MPI_T_pvar_handle_alloc(session, i, bind == MPI_T_BIND_NO_OBJECT ? NULL : (void *)&world,
                                       &variable->handle, &variable->elements));
        if (!continuous)
            MPI_OK(MPI_T_pvar_start(session, variable->handle));
        count++;
    }
}

static double read_variable(struct variable *variable) {
    unsigned char *raw = calloc((size_t)variable->elements + 1, 16);
    double sum = 0;
    MPI_OK(MPI_T_pvar_read(session, variable->handle, raw));
    for (int i = 0; i < variable->elements; i++) {
        if (variable->type == MPI_INT)
            sum += ((int *)(void *)raw)[i];
        else if (variable->type == MPI_UNSIGNED)
            sum += ((unsigned *)(void *)raw)[i];
        else if (variable->type == MPI_UNSIGNED_LONG)
            sum += (double)((unsigned long *)(void *)raw)[i];
        else if (variable->type == MPI_UNSIGNED_LONG_LONG)
            sum += (double)((unsigned long long *)(void *)raw)[i];
        else if (variable->type == MPI_COUNT)
            sum += (double)((MPI_Count *)(void *)raw)[i];
        else
            sum += ((double *)(void *)raw)[i];
    }
    free(raw);
    return sum;
}

// ---- traffic --------------------------------------------------------------------------------------------------------

static void ring(int bytes, int number, unsigned char *out, unsigned char *in) {
    int left = (check.rank + check.size - 1) % check.size, right = (check.rank + 1) % check.size;
    pattern_fill(out, (size_t)bytes, (uint64_t)(check.rank * 1000 + number));
    MPI_OK(MPI_Sendrecv(out, bytes, MPI_BYTE, right, 1, in, bytes, MPI_BYTE, left, 1, MPI_COMM_WORLD,
                        MPI_STATUS_IGNORE));
    pattern_check("message", in, (size_t)bytes, (uint64_t)(left * 1000 + number));
}

static void messages(void) {
    unsigned char *out = check_alloc(2 * LONG), *in = check_alloc(2 * LONG);
    MPI_Datatype scattered;
    for (int i = 0; i < SHORTS; i++) {
        ring(8, i, out, in);
        ring(1000 + 17 * i, i, out, in);
    }
    for (int i = 0; i < LONGS; i++)
        ring(LONG, i, out, in);
    MPI_OK(MPI_Type_vector(LONG / 64, 32, 64, MPI_BYTE, &scattered));
    MPI_OK(MPI_Type_commit(&scattered));
    MPI_OK(MPI_Sendrecv(out, 1, scattered, (check.rank + 1) % check.size, 2, in, 1, scattered,
                        (check.rank + check.size - 1) % check.size, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    MPI_OK(MPI_Type_free(&scattered));
    free(out);
    free(in);
}

static void one_sided(void) {
    int right = (check.rank + 1) % check.size;
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

// ---- what must have grown -------------------------------------------------------------------------------------------

static void check_minimum(const char *argument, const char *prefix) {
    const char *equals = strchr(argument, '=');
    int length = (int)(equals - argument);
    double least = atof(equals + 1);
    check_case("%.*s_is_at_least_%s", length, argument, equals + 1);
    struct variable *found = NULL;
    for (int i = 0; i < count && !found; i++) {
        const char *name = variables[i].name, *tail = name + strlen(prefix);
        if (((int)strlen(name) == length && strncmp(name, argument, (size_t)length) == 0) ||
            ((int)strlen(tail) == length && strncmp(tail, argument, (size_t)length) == 0))
            found = &variables[i];
    }
    if (!found) {
        check_fail("performance variable: expected %.*s to exist, got none of that name", length, argument);
    } else {
        double value = grows(found->class) ? found->after - found->before : found->after;
        if (!(value >= least))
            check_fail("%s (%s): expected at least %.0f, got %.0f", found->name, class_name(found->class), least,
                       value);
    }
    check_end_case();
}

int main(int argc, char **argv) {
    const char *prefix = "btl_ibex_";
    bool windows = true, usage = false;
    int provided, at = 1;
    check_start(&argc, &argv, 2);
    for (; at < argc && argv[at][0] == '-'; at++)
        if (strcmp(argv[at], "--no-one-sided") == 0)
            windows = false;
        else if (strcmp(argv[at], "--prefix") == 0 && at + 1 < argc)
            prefix = argv[++at];
        else
            usage = true;
    for (int i = at; i < argc; i++)
        usage |= strchr(argv[i], '=') == NULL;
    if (usage) {
        if (check.rank == 0)
            fprintf(stderr, "usage: pvars [--prefix P] [--no-one-sided] [NAME=MINIMUM]...\n");
        MPI_Finalize();
        return CHECK_USAGE_EXIT;
    }
    check_case("every_variable_named_%s_is_read_before_and_after_traffic", prefix);
    MPI_OK(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
    find_variables(prefix);
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
            printf("pvar %s %s %.0f was %.0f\n", variable->name, class_name(variable->class), variable->after,
                   variable->before);
        if (grows(variable->class) && variable->after < variable->before)
            check_fail("%s (%s): expected at least %.0f, got %.0f", variable->name, class_name(variable->class),
                       variable->before, variable->after);
    }
    check_end_case();
    for (int i = at; i < argc; i++)
        check_minimum(argv[i], prefix);
    for (int i = 0; i < count; i++)
        MPI_OK(MPI_T_pvar_handle_free(session, &variables[i].handle));
    MPI_OK(MPI_T_pvar_session_free(&session));
    MPI_OK(MPI_T_finalize()); // before MPI_Finalize: the other order crashes in Open MPI 4.1
    return check_finish();
}
