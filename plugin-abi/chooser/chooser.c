// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The component that an installation shows to every Open MPI: it hands each the libibex.so that was built for it.
//
// All Open MPIs of a user look for components in the same folder of his home, and the name of a file there is the name of
// the component. So one file can be there, and a libibex.so belongs to one release of Open MPI. This is that file:
//
//     lib/ibex/ibex-chooser.so            to which mca_btl_ibex.so and mca_pml_ibex.so are links
//     lib/ibex/openmpi-4.1.4/libibex.so   one folder for each Open MPI that ibex was installed for
//     lib/ibex/openmpi-4.1.4/openmpi      a link to the libopen-pal.so of that Open MPI
//
// Open MPI asks a file for the symbol mca_btl_ibex_component. Here these symbols are indirect functions: the linker calls
// `btl` or `pml` and takes what is returned for the symbol's address, which is the component in the libibex.so itself.
// Nothing else of this file is ever called, and no instruction of it is on the way of a message.
//
// Why a constructor loads the library, and not the indirect function: what is loaded while this file is still being loaded
// finds its own symbols before those of this file, which the linker makes known to others only afterwards.
//
// An Open MPI that ibex was not installed for gets a component that declines: without a word, as it is loaded there only
// because another Open MPI of the same user has it; or in one line where ibex was asked for by name. It needs no header of
// Open MPI, as it must fit each; component.h is version 2.1 of the component interface, which is checked against the headers
// (layout.c), and which Open MPI checks as well.
//
// Compiled and installed by xtask. Grade: setup. Threads: one, as Open MPI loads components in one.

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

// What was found; null where no installed libibex.so is for this Open MPI.
static void *btl_component, *pml_component;
// Of this Open MPI, and of those that ibex is installed for.
static char running[RELEASE], installed[256];

static int decline_unless_asked_for(void);
static void *no_module(int *count_or_priority);

#define DECLINES(project, type)                                                                                        \
    {.mca = {2, 1, 0}, .project_name = project, .type_name = type, .name = "ibex",                                     \
     .register_parameters = decline_unless_asked_for, .initialize = no_module}

static struct component declining_btl = DECLINES("opal", "btl"), declining_pml = DECLINES("ompi", "pml");

// ---- What Open MPI sees.

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

// Open MPI takes this answer for "leave me out", and says nothing of its own. A component that was named and left itself out
// would end the job; it gets as far as being asked for its modules.
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

// ---- Which Open MPI this is.

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

// `opal_version_string`, a text, wherever it is: an MPI that Python loaded is not known to everyone.
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

// `4.1.4` of `v4.1.4rc2`.
static void note_release(const char *text) {
    text += *text == 'v';
    size_t length = strspn(text, "0123456789.");
    snprintf(running, sizeof running, "%.*s", (int)length, text);
}

static int is_same_file(const char *a, const char *b) {
    struct stat first, second;
    return !stat(a, &first) && !stat(b, &second) && first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

// ---- The library for it.

// Whether a folder is called `openmpi-RELEASE`, or that with a further word that tells two of one release apart.
static int is_for_release(const char *folder) {
    size_t length = strlen(running);
    const char *rest = folder + strlen("openmpi-") + length;
    return length && !strncmp(folder + strlen("openmpi-"), running, length) && (*rest == '\0' || *rest == '-');
}

static void note_installed(const char *folder) {
    size_t used = strlen(installed);
    snprintf(installed + used, sizeof installed - used, "%s%s", used ? ", " : "Open MPI ", folder + strlen("openmpi-"));
}

// The folder of this Open MPI's library beside this file; of several of one release the one of this very installation.
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
            // As Open MPI itself loads components. It stays: libibex.so says so of itself.
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
