// SPDX-License-Identifier: MIT OR Apache-2.0
// The component that an installation shows to every Open MPI: it presents the components of the libibex.so that was
// built for the running Open MPI as its own.
//
// All Open MPIs of a user look for components in one folder of his home, where the name of a file is the name of its
// component; but a libibex.so belongs to one release. So this file stands in that folder:
//
//     lib/ibex/ibex-chooser.so               to which mca_btl_ibex.so and mca_pml_ibex.so are links
//     lib/ibex/openmpi-4.1.4/libibex.so      one folder for each Open MPI that ibex was installed for
//     lib/ibex/openmpi-4.1.4/openmpi         a link to the libopen-pal.so of that Open MPI
//
// The symbols that Open MPI looks up, such as mca_btl_ibex_component, are indirect functions here: the dynamic linker
// calls `btl` or `pml` and takes the returned address, of the component in libibex.so, for that of the symbol. No
// message runs code of this file. A constructor loads libibex.so, because the linker makes the symbols of this file
// known to other libraries only after it: so libibex.so finds its own symbols first.
//
// An Open MPI that ibex was not installed for gets a component that declines: silently, because ibex is there only for
// another Open MPI of the user; or with one line, if the user has named ibex. This file fits each Open MPI, so it
// includes no header of any: component.h has version 2.1 of the component interface, which layout.c compares with the
// headers. Compiled and installed by xtask. Grade: setup. Threads: one, as Open MPI loads components in one.

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "component.h"

enum { NOT_AVAILABLE = -16, PATH = 4096, RELEASE = 32, LIBRARIES = 4096 };

// Components of the libibex.so; null if none is installed for this Open MPI.
static void *btl_component, *pml_component;
// Release of the running Open MPI, and those that ibex is installed for.
static char running[RELEASE], installed[256];

static int decline_unless_asked_for(void);
static void *no_module(int *count_or_priority);

#define DECLINES(project, type)                                                                                        \
    {.mca = {2, 1, 0}, .project_name = project, .type_name = type, .name = "ibex",                                     \
     .register_parameters = decline_unless_asked_for, .initialize = no_module}

static struct component declining_btl = DECLINES("opal", "btl"), declining_pml = DECLINES("ompi", "pml");

// ---- Symbols for Open MPI.

typedef void symbol(void);

static symbol *btl(void) {
    return (symbol *)(btl_component ? btl_component : &declining_btl);
}

static symbol *pml(void) {
    return (symbol *)(pml_component ? pml_component : &declining_pml);
}

__attribute__((visibility("default"))) symbol mca_btl_ibex_component __attribute__((ifunc("btl")));
__attribute__((visibility("default"))) symbol mca_pml_ibex_component __attribute__((ifunc("pml")));

static int names_ibex(const char *variable) {
    const char *value = getenv(variable);
    return value && value[0] != '^' && strstr(value, "ibex");
}

// With this answer Open MPI leaves the component out, silently. But it ends the job if the user has named the
// component; so a named one declines only when Open MPI asks for its modules (`no_module`).
static int decline_unless_asked_for(void) {
    return names_ibex("OMPI_MCA_pml") || names_ibex("OMPI_MCA_btl") ? 0 : NOT_AVAILABLE;
}

static void *no_module(int *count_or_priority) {
    static int said;
    if (!said) {
        said = 1;
        fprintf(stderr,
                "ibex takes no part in this job: this is Open MPI %s, and ibex is installed for %s; `cargo xtask install` with the "
                "mpicc of this Open MPI installs it for this one, too.\n",
                running[0] ? running : "of unknown release", installed[0] ? installed : "none");
    }
    *count_or_priority = 0;
    return NULL;
}

// ---- The running Open MPI.

struct libraries {
    const char *names[LIBRARIES];
    int count;
};

static int note(struct dl_phdr_info *library, size_t size, void *to) {
    (void)size;
    struct libraries *libraries = to;
    if (library->dlpi_name && strchr(library->dlpi_name, '/') && libraries->count < LIBRARIES) {
        libraries->names[libraries->count++] = library->dlpi_name;
    }
    return 0;
}

// Returns `opal_version_string`. Libraries that Python loaded are not in the global scope, so it searches all.
static const char *version(void) {
    const char *found = dlsym(RTLD_DEFAULT, "opal_version_string");
    static struct libraries libraries;
    if (!found) {
        dl_iterate_phdr(note, &libraries);
    }
    for (int i = 0; !found && i < libraries.count; i++) {
        if (strstr(libraries.names[i], "/libopen-pal") || strstr(libraries.names[i], "/libmpi")) {
            void *handle = dlopen(libraries.names[i], RTLD_LAZY | RTLD_NOLOAD);
            found = handle ? dlsym(handle, "opal_version_string") : NULL;
            if (handle) {
                dlclose(handle);
            }
        }
    }
    return found;
}

// Notes `4.1.4` of `v4.1.4rc2`.
static void note_release(const char *text) {
    text += *text == 'v';
    size_t length = strspn(text, "0123456789.");
    snprintf(running, sizeof running, "%.*s", (int)length, text);
}

static int is_same_file(const char *a, const char *b) {
    struct stat first, second;
    return !stat(a, &first) && !stat(b, &second) && first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

// ---- The libibex.so for it.

// Whether a folder is named `openmpi-RELEASE`, perhaps with a suffix that distinguishes installations of one release.
static int is_for_release(const char *folder) {
    size_t length = strlen(running);
    const char *rest = folder + strlen("openmpi-") + length;
    return length && !strncmp(folder + strlen("openmpi-"), running, length) && (*rest == '\0' || *rest == '-');
}

static void note_installed(const char *folder) {
    size_t used = strlen(installed);
    snprintf(installed + used, sizeof installed - used, "%s%s", used ? ", " : "Open MPI ", folder + strlen("openmpi-"));
}

// Finds the folder of this Open MPI's library beside this file; if its release has several, that of this installation.
static int choose(const char *beside, const char *open_pal, char chosen[PATH]) {
    DIR *folder = opendir(beside);
    int found = 0;
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        if (strncmp(entry->d_name, "openmpi-", strlen("openmpi-"))) {
            continue;
        }
        note_installed(entry->d_name);
        char link[PATH];
        int fits = snprintf(link, sizeof link, "%s/%s/openmpi", beside, entry->d_name) < PATH;
        int is_this = fits && open_pal && is_same_file(link, open_pal);
        if (is_for_release(entry->d_name) && fits && (is_this || !found)) {
            found = 1;
            snprintf(chosen, PATH, "%s/%s/libibex.so", beside, entry->d_name);
            if (is_this) {
                break;
            }
        }
    }
    if (folder) {
        closedir(folder);
    }
    return found;
}

__attribute__((constructor)) static void load(void) {
    const char *text = version();
    Dl_info this, open_pal = {0};
    char *file = dladdr(&running, &this) ? realpath(this.dli_fname, NULL) : NULL;
    char *end = file ? strrchr(file, '/') : NULL;
    char chosen[PATH];
    if (text && end) {
        *end = '\0';
        note_release(text);
        int known = dladdr(text, &open_pal);
        if (choose(file, known ? open_pal.dli_fname : NULL, chosen)) {
            // With the flags of Open MPI. libibex.so is linked so that it stays mapped.
            void *handle = dlopen(chosen, RTLD_LAZY | RTLD_GLOBAL);
            btl_component = handle ? dlsym(handle, "mca_btl_ibex_component") : NULL;
            pml_component = handle ? dlsym(handle, "mca_pml_ibex_component") : NULL;
            if (!handle) {
                fprintf(stderr, "ibex takes no part in this job: %s\n", dlerror());
            }
        }
    }
    free(file);
}
