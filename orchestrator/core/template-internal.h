// SPDX-License-Identifier: Apache-2.0
/* Shared by template.c (life), template-build.c (boot and image) and template-files.c (disk). */
#ifndef RAMET_ORCHESTRATOR_CORE_TEMPLATE_INTERNAL_H
#define RAMET_ORCHESTRATOR_CORE_TEMPLATE_INTERNAL_H

#include "orchestrator/core/internal.h"
#include "orchestrator/template/manifest.h"

#define TEMPLATE_NAME_LEN 128
#define TEMPLATE_WHY_MAX  2048 /* of a traceback: its end */
#define TEMPLATE_KEEP_MAX 32   /* images that others are never removed for */

enum template_state {
	TPL_NEW,      /* nothing is known of it */
	TPL_CHECKING, /* a worker looks for its image on disk, or clears what was left of it */
	TPL_QUEUED,   /* waits for its turn to boot */
	TPL_BUILDING,
	TPL_PUBLISHING, /* a worker puts its image in place */
	TPL_READY,
	TPL_FAILED,
	TPL_NSTATES,
};

enum template_event {
	TPL_WANTED,
	TPL_FOUND,
	TPL_MISSING,
	TPL_TURN,     /* it may boot */
	TPL_UNWANTED, /* its turn came, and nobody waits any more */
	TPL_YIELD,    /* its build was given up for another */
	TPL_CLEANED,
	TPL_SAVED,
	TPL_PUBLISHED,
	TPL_FAIL,
	TPL_SPOILT, /* its image does not work or is gone */
	TPL_NEVENTS,
};

/* What a worker does for a template; owned by the work, so that it outlives the core. */
struct template_job {
	struct template *t; /* NULL: nobody waits any more */
	struct config config;
	struct source source;
	struct size size;
	bool discard;			/* the image on disk is not to be used */
	char dir[CONFIG_PATH_MAX + 16]; /* STATE_DIR/templates */
	char name[TEMPLATE_NAME_LEN];	/* in it */
	char key[MANIFEST_KEY_LEN + 1];
	char keep[TEMPLATE_KEEP_MAX][TEMPLATE_NAME_LEN]; /* images that are not to be removed */
	size_t n_keep;
	bool found;
	uint64_t bytes;		   /* of its image on the disk */
	char remark[ERR_TEXT_MAX]; /* for the log */
	int ret;
	struct err err;
};

struct template
{
	struct core *core;
	struct list link;	/* on core->templates, least recently asked for first */
	struct list queue_link; /* on core->builds */
	struct source source;
	struct source_stamp stamp; /* of the files its image was made from */
	struct disk_job *judging;  /* whether restores fail because the disk is full */
	struct size size;
	enum template_state state;
	unsigned uses;		      /* who has it from template_get */
	struct list waits;	      /* struct template_wait */
	char name[TEMPLATE_NAME_LEN]; /* of its image */
	char key[MANIFEST_KEY_LEN + 1];
	struct template_job *job;
	struct build *build;
	struct failure error_text; /* in TPL_FAILED */
	char *reason;		   /* more of it than fits there; may be NULL */
	struct loop_timer retry;
	uint32_t backoff_ms;
	bool ahead;	     /* prepared whether it is asked for or not */
	uint64_t bytes;	     /* of its image on the disk, while it is ready */
	bool discard;	     /* the next check is not to use what is on disk */
	bool built_here;     /* by this process: no use in doing it again at once */
	unsigned bad_in_row; /* restores that failed, one after the other */
};

bool template_step(struct template *t, enum template_event event);
void template_fail(struct template *t, const char *text);
/* NULL when it is not known. */
struct template *template_find(struct core *c, const char *name, const struct size *size);
/* The image is in the directory t->name.tmp. */
void template_built(struct template *t);
void template_next_build(struct core *c);
/* Holds the build that is under way, or lets it go on. */
void templates_hold(struct core *c);

/* template-build.c */
void build_start(struct template *t);
/* False: it can't be given up yet. */
bool build_has_vm(const struct build *b);
/* Its guest stands still, and no time passes for it, until it is released. */
void build_hold(struct build *b, bool hold);
void build_free(struct build *b);
/* The build that runs gives way to all else unless a request waits for it. */
void build_set_priority(struct core *c);
/* The guest kernel's command line. */
void template_cmdline(const struct config *config, char *out, size_t size);

/* template-files.c; on a worker thread. */
void template_files_check(void *job);
void template_files_publish(void *job);
void template_files_clean(void *job);

/* The files that a build needs. */
struct build_files {
	char kernel[CONFIG_PATH_MAX], initramfs[CONFIG_PATH_MAX], state_dir[CONFIG_PATH_MAX];
	char name[TEMPLATE_NAME_LEN]; /* of the image */
	struct source source;
	unsigned n_boot; /* of the descriptors, as CTL_FILL wants them */
	uint64_t rootfs_bytes;
	size_t warmup_len;
	char warmup[SOURCE_WARMUP_MAX + 1];
};
/* Descriptors: up to four for the boot, and those of the image as CTL_SAVE wants them. */
#define IMAGE_FDS 4
#define BUILD_FDS (IMAGE_FDS + 3)
struct disk_job;
/* The work of a disk_job: makes the directory t->name.tmp with the image's files, and opens all. */
int build_files_open(struct disk_job *job);

#endif
