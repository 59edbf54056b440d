// SPDX-License-Identifier: Apache-2.0
/* Shared by template.c (life cycle), template-build.c (boot, image), template-files.c (disk). */
#ifndef RAMET_ORCHESTRATOR_TEMPLATE_TEMPLATE_INTERNAL_H
#define RAMET_ORCHESTRATOR_TEMPLATE_TEMPLATE_INTERNAL_H

#include "orchestrator/core/internal.h"
#include "orchestrator/template/manifest.h"

#define TEMPLATE_NAME_LEN 128
#define TEMPLATE_WHY_MAX  2048 /* bytes; a longer traceback keeps its end */
#define TEMPLATE_KEEP_MAX 32   /* images that are never evicted */

enum template_state {
	TPL_NEW,      /* its image was not looked for yet */
	TPL_CHECKING, /* a worker looks for its image on disk, or removes the remains of a build */
	TPL_QUEUED,   /* waits to boot; one template boots at a time */
	TPL_BUILDING,
	TPL_PUBLISHING, /* a worker moves its image into place */
	TPL_READY,
	TPL_FAILED,
	TPL_NSTATES,
};

enum template_event {
	TPL_WANTED,
	TPL_FOUND,
	TPL_MISSING,
	TPL_TURN,     /* it is next to boot */
	TPL_UNWANTED, /* no request waits for it when its turn comes */
	TPL_YIELD,    /* its build was cancelled in favor of another */
	TPL_CLEANED,
	TPL_SAVED,
	TPL_PUBLISHED,
	TPL_FAIL,
	TPL_SPOILT, /* its image does not work or is gone */
	TPL_NEVENTS,
};

/* A worker's job for a template. The worker owns it, so it may outlive the core. */
struct template_job {
	struct template *t; /* NULL: the result is not wanted any more */
	struct config config;
	struct source source;
	struct size size;
	bool discard;			/* ignore and replace the image on disk */
	char dir[CONFIG_PATH_MAX + 16]; /* STATE_DIR/templates */
	char name[TEMPLATE_NAME_LEN];	/* of the image, in `dir` */
	char key[MANIFEST_KEY_LEN + 1];
	char keep[TEMPLATE_KEEP_MAX][TEMPLATE_NAME_LEN]; /* images that must not be evicted */
	size_t n_keep;
	bool found;
	uint64_t bytes;		   /* size of its image on disk */
	char remark[ERR_TEXT_MAX]; /* warning for the log; or empty */
	int ret;
	struct err err;
};

struct template
{
	struct core *core;
	struct list link;	/* on core->templates, least recently requested first */
	struct list queue_link; /* on core->builds */
	struct source source;
	struct source_stamp stamp; /* of the source files of its image */
	struct disk_job *judging;  /* checks whether restores fail because the disk is full */
	struct size size;
	enum template_state state;
	unsigned uses;		      /* references from template_get and template_hold */
	struct list waits;	      /* struct template_wait */
	char name[TEMPLATE_NAME_LEN]; /* of its image */
	char key[MANIFEST_KEY_LEN + 1];
	struct template_job *job;
	struct build *build;
	struct failure error_text; /* valid in TPL_FAILED */
	char *reason;		   /* full text when error_text can't hold it; may be NULL */
	struct loop_timer retry;
	uint32_t backoff_ms;
	bool ahead;	     /* prepared ahead, whether requested or not */
	uint64_t bytes;	     /* size of its image on disk, while it is ready */
	bool discard;	     /* the next check ignores the image on disk */
	bool built_here;     /* built by this process: rebuilding at once would not help */
	unsigned bad_in_row; /* failed restores since the last good one */
};

bool template_step(struct template *t, enum template_event event);
void template_fail(struct template *t, const char *text);
/* Returns the template, or NULL when there is none. */
struct template *template_find(struct core *c, const char *name, const struct size *size);
/* The build saved the image into the directory t->name.tmp: publish it. */
void template_built(struct template *t);
void template_next_build(struct core *c);
/* Pauses the current build while it is background work and the core is not calm; else lets it
 * continue. */
void templates_hold(struct core *c);

/* template-build.c */
void build_start(struct template *t);
/* Returns true when the build has a VM; before that, it can't be cancelled. */
bool build_has_vm(const struct build *b);
/* Pauses or continues the build. While it is held, the guest is paused and its time limit does not
 * advance. */
void build_hold(struct build *b, bool hold);
void build_free(struct build *b);
/* Sets the scheduling priority of the current build: background unless a request waits for it. */
void build_set_priority(struct core *c);
/* Formats the guest kernel's command line. */
void template_cmdline(const struct config *config, char *out, size_t size);

/* template-files.c; these run on a worker thread. */
void template_files_check(void *job);
void template_files_publish(void *job);
void template_files_clean(void *job);

/* The input files of a build. */
struct build_files {
	char kernel[CONFIG_PATH_MAX], initramfs[CONFIG_PATH_MAX], state_dir[CONFIG_PATH_MAX];
	char name[TEMPLATE_NAME_LEN]; /* of the image */
	struct source source;
	unsigned n_boot; /* number of descriptors for the boot, in the order of CTL_FILL */
	uint64_t rootfs_bytes;
	size_t warmup_len;
	char warmup[SOURCE_WARMUP_MAX + 1];
};
/* Descriptors: up to four for the boot, then the image's in the order of CTL_SAVE. */
#define IMAGE_FDS 4
#define BUILD_FDS (IMAGE_FDS + 3)
struct disk_job;
/* Work of a disk_job: makes the directory t->name.tmp with the image's files and opens all files.
 * Returns 0 or -errno. */
int build_files_open(struct disk_job *job);

#endif
