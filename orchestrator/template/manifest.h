// SPDX-License-Identifier: Apache-2.0
/* The manifest of an image directory: lines of `name value`, the last is `end`. */
#ifndef RAMET_ORCHESTRATOR_TEMPLATE_MANIFEST_H
#define RAMET_ORCHESTRATOR_TEMPLATE_MANIFEST_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define MANIFEST_VERSION  2
#define MANIFEST_MAX	  4096 /* bytes */
#define MANIFEST_NAME_MAX 63   /* of a template */
#define MANIFEST_KEY_LEN  16   /* hexadecimal digits */

struct manifest {
	uint64_t version;
	char template[MANIFEST_NAME_MAX + 1];
	char key[MANIFEST_KEY_LEN + 1]; /* a hash of all that the image was made from */
	uint64_t vcpus, ram_mib, rootfs_gb;
	uint64_t state_bytes, memory_bytes, layer_bytes; /* sizes of the files */
};

/* Writes at most `size` bytes with the NUL; returns the length. */
size_t manifest_write(const struct manifest *m, char *out, size_t size);
/* Every field once, nothing else, up to the end; the file is not trusted. */
int manifest_parse(const char *text, size_t len, struct manifest *out, struct err *e);

#endif
