// SPDX-License-Identifier: Apache-2.0
/*
 * What a template is made from: the settings for the default one, a folder in templates_dir for
 * each other: NAME/rootfs.ext4 and, as it likes, NAME/warmup.py and NAME/template.conf, which holds
 * `name = value` lines (description, vcpus, ram_mib, rootfs_gb) and # comments.
 */
#ifndef RAMET_ORCHESTRATOR_TEMPLATE_TEMPLATE_SOURCE_H
#define RAMET_ORCHESTRATOR_TEMPLATE_TEMPLATE_SOURCE_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "base/err.h"
#include "orchestrator/config/config.h"

#define TEMPLATE_DEFAULT     "default"
#define SOURCE_NAME_MAX	     63
#define SOURCE_PATH_MAX	     (CONFIG_PATH_MAX + SOURCE_NAME_MAX + 16)
#define SOURCE_CONF_MAX	     4096u	/* bytes of a template.conf */
#define SOURCE_WARMUP_MAX    (1u << 20) /* bytes of a warmup.py */
#define SOURCE_ROOTFS_MAX_GB 1024

/* Which files those are that an image was made from: what is replaced has another. */
struct source_stamp {
	uint64_t inode[2], bytes[2];
	struct timespec changed[2];
};

struct source {
	char name[SOURCE_NAME_MAX + 1];
	char description[256];
	char rootfs[SOURCE_PATH_MAX];
	char warmup[SOURCE_PATH_MAX];	    /* empty: none */
	uint32_t vcpus, ram_mib, rootfs_gb; /* of a sandbox that asks for nothing else */
	uint32_t least_gb;		    /* the least disk that holds its root file system */
	struct source_stamp stamp;	    /* as it was found */
};

/* Lower case letters, digits, and . _ - but not first; up to SOURCE_NAME_MAX. */
bool source_name_ok(const char *name);

/* Finds the template of this name, and looks at its files: not on the loop. -errno with *e filled:
 * -ENOENT when there is none, else it is there but can't be used (*out then has its name). */
int source_find(const struct config *c, const char *name, struct source *out, struct err *e);

/* The names of all but the default one, sorted: NULL-terminated, to be freed with
 * source_names_free; NULL when there is no memory. */
char **source_names(const struct config *c);
void source_names_free(char **names);

/* Applies the text of a template.conf. */
int source_conf(struct source *out, const char *text, size_t len, struct err *e);

/* Looks at its files. */
void source_stamp(const struct source *s, struct source_stamp *out);
bool source_stamp_equal(const struct source_stamp *a, const struct source_stamp *b);

#endif
