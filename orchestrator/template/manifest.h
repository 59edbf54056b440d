// SPDX-License-Identifier: Apache-2.0
/* The manifest of an image directory: lines of `name value`; the last line is `end`. */
#ifndef RAMET_ORCHESTRATOR_TEMPLATE_MANIFEST_H
#define RAMET_ORCHESTRATOR_TEMPLATE_MANIFEST_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define MANIFEST_MAX	  4096 /* bytes */
#define MANIFEST_NAME_MAX 63   /* bytes of a template's name */
#define MANIFEST_KEY_LEN  16   /* hexadecimal digits */

struct manifest {
	uint64_t version;
	char template[MANIFEST_NAME_MAX + 1];
	char key[MANIFEST_KEY_LEN + 1]; /* hash of all the image's inputs */
	uint64_t vcpus, ram_mib, rootfs_gb;
	uint64_t state_bytes, memory_bytes, layer_bytes; /* file sizes */
};

/* Writes the manifest, at most `size` bytes with the NUL. Returns its length without the NUL. */
size_t manifest_write(const struct manifest *m, char *out, size_t size);
/* Parses an untrusted manifest: every field once, in order, and nothing else up to the end. Returns
 * 0, or a negative errno with *e filled. */
int manifest_parse(const char *text, size_t len, struct manifest *out, struct err *e);

#endif
