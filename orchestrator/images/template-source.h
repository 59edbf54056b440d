// SPDX-License-Identifier: Apache-2.0
/*
 * A template's source files. Those of the default template are settings (rootfs, warmup); each
 * other template is a folder in templates_dir with at least one of NAME/rootfs.ext4, NAME/warmup.py
 * and NAME/template.conf, which holds `name = value` lines (description, vcpus, ram_mib, rootfs_gb)
 * and # comments. Without rootfs.ext4, the template has the default one's root file system.
 */
#ifndef RAMET_ORCHESTRATOR_IMAGES_TEMPLATE_SOURCE_H
#define RAMET_ORCHESTRATOR_IMAGES_TEMPLATE_SOURCE_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "base/err.h"
#include "base/file-id.h"
#include "orchestrator/config/config.h"
#include "orchestrator/config/sandbox-config.h"

#define TEMPLATE_DEFAULT     "default"
#define SOURCE_NAME_MAX	     SANDBOX_NAME_MAX
#define SOURCE_PATH_MAX	     (CONFIG_PATH_MAX + SOURCE_NAME_MAX + 16)
#define SOURCE_CONF_MAX	     4096u	/* bytes of a template.conf */
#define SOURCE_WARMUP_MAX    (1u << 20) /* bytes of a warmup.py */
#define SOURCE_ROOTFS_MAX_GB 1024

/* Identifies the source files of an image (rootfs, warm-up): the stamp changes when one is replaced
 * or written. */
struct source_stamp {
	struct file_id files[2]; /* zeros: there is none */
};

struct source {
	char name[SOURCE_NAME_MAX + 1];
	char description[256];
	char rootfs[SOURCE_PATH_MAX];
	char warmup[SOURCE_PATH_MAX]; /* empty: none */
	struct size size;	      /* defaults of its sandboxes */
	uint32_t least_gb;	      /* smallest disk that holds the root file system */
	struct source_stamp stamp;    /* when it was found */
};

/* Returns true for a valid name: lower-case letters, digits, and . _ - except at the start; up to
 * SOURCE_NAME_MAX bytes. */
bool source_name_ok(const char *name);

/* Finds the template `name` and its files. May block: don't call it on the loop. Returns 0, or
 * -errno with *e filled: -ENOENT when there is no such template; with any other error it exists but
 * is unusable (out->name is set). */
int source_find(const struct config *c, const char *name, struct source *out, struct err *e);

/* Returns the sorted names of all templates but the default one, NULL-terminated; free them with
 * source_names_free. */
char **source_names(const struct config *c);
void source_names_free(char **names);

/* Applies the text of a template.conf to *out. Returns 0, or a negative errno with *e filled. */
int source_conf(struct source *out, const char *text, size_t len, struct err *e);

/* Takes the stamp of the source files; reads their inodes, so don't call it on the loop. */
void source_stamp(const struct source *s, struct source_stamp *out);
bool source_stamp_equal(const struct source_stamp *a, const struct source_stamp *b);

#endif
