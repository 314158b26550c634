// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Address vectors (fi_av(3)) and names (fi_cm(3)): indexes, insertion of several addresses and of bytes that are none,
// lookup, text, removal, and buffers that are too short. No arguments.
#include "endpoints.h"

static char names[MOST][FI_NAME_MAX];
static size_t length;

static void indexes(enum fi_av_type type) {
    check_case("addresses are inserted, looked up, removed and inserted again (%s)",
               type == FI_AV_MAP ? "FI_AV_MAP" : "FI_AV_TABLE");
    struct fid_av *av;
    struct fi_av_attr attributes = {.type = type, .count = 1};
    OK(fi_av_open(domains[0], &attributes, &av, NULL));
    char all[MOST * FI_NAME_MAX], found[FI_NAME_MAX];
    for (int i = 0; i < MOST; i++)
        memcpy(all + (size_t)i * length, names[i], length);
    fi_addr_t at[MOST];
    check_int("fi_av_insert of none", 0, fi_av_insert(av, all, 0, at, 0, NULL));
    check_int("fi_av_insert", MOST, fi_av_insert(av, all, MOST, at, FI_MORE, NULL));
    for (int i = 0; i < MOST; i++) {
        check_int("index", type == FI_AV_TABLE ? i : (long long)at[i], (long long)at[i]);
        size_t room = sizeof found;
        OK(fi_av_lookup(av, at[i], found, &room));
        check_int("length", (long long)length, (long long)room);
        check_int("address", 0, memcmp(found, names[i], length));
    }
    size_t room = 10;
    memset(found, 1, sizeof found);
    OK(fi_av_lookup(av, at[1], found, &room));
    check_int("the whole length", (long long)length, (long long)room);
    check_int("the beginning of the address", 0, memcmp(found, names[1], 10));
    check_int("the byte behind", 1, found[10]);

    OK(fi_av_remove(av, &at[1], 1, 0));
    check_int("lookup of a removed address", -FI_EINVAL, fi_av_lookup(av, at[1], found, &room));
    check_int("a second removal", -FI_EINVAL, fi_av_remove(av, &at[1], 1, 0));
    OK(fi_av_remove(av, &at[0], 1, 0));
    fi_addr_t beyond = 1000;
    check_int("removal of an index that is not there", -FI_EINVAL, fi_av_remove(av, &beyond, 1, 0));
    check_int("lookup of an index that is not there", -FI_EINVAL, fi_av_lookup(av, beyond, found, &room));
    // The lowest indexes that are free, without a place for them.
    check_int("fi_av_insert", 2, fi_av_insert(av, all, 2, type == FI_AV_TABLE ? NULL : at, 0, NULL));
    for (int i = 0; i < 2; i++) {
        room = sizeof found;
        OK(fi_av_lookup(av, type == FI_AV_TABLE ? (fi_addr_t)i : at[i], found, &room));
        check_int("address", 0, memcmp(found, names[i], length));
    }
    OK(fi_close(&av->fid));
}

static void garbage(void) {
    check_case("bytes that are no address are not inserted, and the others are");
    char all[MOST * FI_NAME_MAX];
    for (int i = 0; i < MOST; i++)
        memcpy(all + (size_t)i * length, names[i], length);
    memset(all + length, 0x5a, length);
    struct fid_av *av;
    struct fi_av_attr attributes = {.type = FI_AV_UNSPEC};
    OK(fi_av_open(domains[0], &attributes, &av, NULL));
    check_true("the type is told", attributes.type == FI_AV_MAP || attributes.type == FI_AV_TABLE);
    fi_addr_t at[MOST] = {7, 7, 7};
    int errors[MOST] = {7, 7, 7};
    check_int("fi_av_insert", 2, fi_av_insert(av, all, MOST, at, FI_SYNC_ERR, errors));
    check_int("the index of the garbage", (long long)FI_ADDR_NOTAVAIL, (long long)at[1]);
    check_true("the others have indexes", at[0] != FI_ADDR_NOTAVAIL && at[2] != FI_ADDR_NOTAVAIL && at[0] != at[2]);
    check_int("the error of the garbage", FI_EINVAL, errors[1]);
    check_int("errors of the others", 0, errors[0] | errors[2]);
    check_int("nothing but garbage", 0, fi_av_insert(av, all + length, 1, at, 0, NULL));
    check_int("FI_SYNC_ERR without a place", -FI_EINVAL, fi_av_insert(av, all, 1, at, FI_SYNC_ERR, NULL));
    check_int("an unknown flag", -FI_EBADFLAGS, fi_av_insert(av, all, 1, at, FI_FENCE, NULL));
    check_int("no addresses", -FI_EINVAL, fi_av_insert(av, NULL, 1, at, 0, NULL));
    OK(fi_close(&av->fid));
}

static void texts(void) {
    check_case("an address has a text, which is cut where the buffer ends");
    char whole[200] = "", part[6];
    size_t room = sizeof whole;
    check_pointer("fi_av_straddr", whole, fi_av_straddr(ends[0].av, names[0], whole, &room));
    check_true("the text begins with the provider", strncmp(whole, "ibex://", 7) == 0);
    check_int("room for the text", (long long)strlen(whole) + 1, (long long)room);
    room = sizeof part;
    check_pointer("fi_av_straddr", part, fi_av_straddr(ends[0].av, names[0], part, &room));
    check_int("the cut text", 0, strcmp(part, "ibex:"));
    check_int("room for the text", (long long)strlen(whole) + 1, (long long)room);
    char other[200];
    room = sizeof other;
    fi_av_straddr(ends[0].av, names[1], other, &room);
    check_true("two endpoints have two texts", strcmp(whole, other) != 0);
    memset(other, 0x5a, sizeof other);
    room = sizeof whole;
    check_pointer("the text of no address", whole, fi_av_straddr(ends[0].av, other, whole, &room));
}

static void endpoint_names(void) {
    check_case("the name of an endpoint is cut where the buffer ends, and its length is told");
    char found[FI_NAME_MAX];
    size_t room = 0;
    check_int("no buffer", -FI_ETOOSMALL, fi_getname(&ends[0].ep->fid, NULL, &room));
    check_int("its length", (long long)length, (long long)room);
    room = length - 1;
    memset(found, 1, sizeof found);
    check_int("a short buffer", -FI_ETOOSMALL, fi_getname(&ends[0].ep->fid, found, &room));
    check_int("its length", (long long)length, (long long)room);
    check_int("the beginning", 0, memcmp(found, names[0], length - 1));
    check_int("the byte behind", 1, found[length - 1]);
    check_int("a buffer that is not there", -FI_ETOOSMALL, fi_getname(&ends[0].ep->fid, NULL, &room));
    check_int("a length that is not there", -FI_EINVAL, fi_getname(&ends[0].ep->fid, found, NULL));
}

// A removed address may be inserted again, elsewhere, and works as before; so does the one that took its index.
static void reinserts(void) {
    check_case("an index is for another endpoint once its address was removed and another inserted");
    static char in, out = 5;
    OK(fi_av_remove(ends[0].av, &ends[0].to[1], 1, 0));
    check_int("a send to a removed address", -FI_EINVAL, fi_tsend(ends[0].ep, &out, 1, NULL, ends[0].to[1], 0, NULL));
    OK(fi_av_remove(ends[0].av, &ends[0].to[2], 1, 0));
    check_int("fi_av_insert", 1, fi_av_insert(ends[0].av, names[2], 1, &ends[0].to[2], 0, NULL));
    check_int("fi_av_insert", 1, fi_av_insert(ends[0].av, names[1], 1, &ends[0].to[1], 0, NULL));
    check_int("the index of the third", 1, (long long)ends[0].to[2]);
    for (int to = 2; to >= 1; to--) {
        OK(fi_trecv(ends[to].ep, &in, 1, NULL, FI_ADDR_UNSPEC, 0, 0, &in));
        OK(fi_tinject(ends[0].ep, &out, 1, ends[0].to[to], 0));
        await_of(&ends[to], "the receive", &in);
        OK(fi_trecv(ends[0].ep, &in, 1, NULL, ends[0].to[to], 0, 0, &in));
        OK(fi_tinject(ends[to].ep, &out, 1, ends[to].to[0], 0));
        fi_addr_t source;
        await_from(&ends[0], &source);
        check_int("source", (long long)ends[0].to[to], (long long)source);
    }
}

int main(void) {
    open_endpoints((struct setup){.endpoints = MOST});
    for (int i = 0; i < MOST; i++)
        length = name_of(&ends[i], names[i]);
    check_true("a name fits FI_NAME_MAX", length <= FI_NAME_MAX);
    indexes(FI_AV_TABLE);
    indexes(FI_AV_MAP);
    garbage();
    texts();
    endpoint_names();
    // Messages first, so that the endpoint knows the peers by their indexes.
    for (int to = 1; to < MOST; to++)
        flush(&ends[0], &ends[to]);
    reinserts();
    close_endpoints();
    return check_finish();
}
