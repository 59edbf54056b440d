// SPDX-License-Identifier: Apache-2.0
/* Shared by the files of this room: struct templates, struct template, and their functions. */
#ifndef RAMET_ORCHESTRATOR_IMAGES_TEMPLATE_INTERNAL_H
#define RAMET_ORCHESTRATOR_IMAGES_TEMPLATE_INTERNAL_H

#include "base/alloc.h"
#include "base/log.h"
#include "orchestrator/agent/agent.h"
#include "orchestrator/images/sources.h"
#include "orchestrator/images/templates.h"
#include "orchestrator/io/step-job.h"

#define TEMPLATE_NAME_LEN 128
#define TEMPLATE_KEY_LEN  16   /* hexadecimal digits: a hash of all inputs */
#define TEMPLATE_WHY_MAX  2048 /* bytes; a longer traceback keeps its end */
#define TEMPLATE_KEEP_MAX 32   /* images that are never evicted */

enum template_state {
	TPL_NEW,      /* its image is neither there nor being looked for or made */
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
	TPL_UNWANTED, /* nobody holds it when its turn comes */
	TPL_YIELD,    /* its build was cancelled in favor of other work */
	TPL_CLEANED,
	TPL_SAVED,
	TPL_PUBLISHED,
	TPL_FAIL,
	TPL_SPOILT, /* its image does not work or is gone */
	TPL_NEVENTS,
};

/* The input and output of a job for a template on a worker thread. */
struct template_job {
	struct step_job job;
	struct config config;
	struct source source;
	struct size size;
	bool discard;			/* ignore and replace the image on disk */
	struct vmproc_image *image;	/* the snapshot to publish; NULL in other jobs */
	char dir[CONFIG_PATH_MAX + 16]; /* STATE_DIR/templates */
	char name[TEMPLATE_NAME_LEN];	/* name of the image in `dir` */
	char key[TEMPLATE_KEY_LEN + 1];
	char keep[TEMPLATE_KEEP_MAX][TEMPLATE_NAME_LEN]; /* images that must not be evicted */
	size_t n_keep;
	bool found;
	uint64_t bytes;		   /* size of its image on disk */
	char remark[ERR_TEXT_MAX]; /* warning for the log; or empty */
};

struct template
{
	struct templates *templates;
	struct list link;	/* on templates->all, least recently requested first */
	struct list queue_link; /* on templates->builds */
	struct source source;	/* its stamp: of the files that its image was looked for with */
	struct disk_job *disk_check; /* checks whether restores fail because the disk is full */
	struct size size;
	enum template_state state;
	unsigned uses;		      /* references from template_get and template_hold */
	struct list waits;	      /* struct template_wait */
	char name[TEMPLATE_NAME_LEN]; /* of its image */
	struct template_job *job;
	struct build *build;
	struct failure failure; /* valid in TPL_FAILED */
	char *reason;		/* full text when failure can't hold it; may be NULL */
	struct loop_timer retry;
	uint32_t backoff_ms;
	bool ahead;	     /* prepared ahead, whether requested or not */
	uint64_t bytes;	     /* size of its image on disk, while it is ready */
	bool discard;	     /* the next check ignores the image on disk */
	bool built_here;     /* built by this process: rebuilding at once would not help */
	unsigned bad_in_row; /* failed restores since the last good one */
};

/* template.c */
void template_fail(struct template *t, const char *text);
/* Returns the template, or NULL when there is none. */
struct template *template_find(struct templates *ts, const char *name, const struct size *size);
/* Discards a template whose image does not work or is gone, and prepares it anew. */
void template_spoil(struct template *t);
/* Gives up a build in progress, and answers everybody who waits with `f`. */
void template_close(struct template *t, const struct failure *f);
/* Frees the template, whoever holds it. */
void template_free(struct template *t);
/* Takes over `image`, the snapshot that the build has made. Writes it to the directory t->name.tmp,
 * which contains its disk layer already, and publishes the directory. */
void template_built(struct template *t, struct vmproc_image *image);
void template_next_build(struct templates *ts);
/* Pauses the current build if it is background work and the service is not calm; otherwise lets it
 * continue. */
void templates_hold(struct templates *ts);

/* template-build.c */
void build_start(struct template *t);
/* Returns true when the build has a VM; before that, it can't be cancelled. */
bool build_has_vm(const struct build *b);
/* Pauses or continues the build. While it is held, the guest is paused and its time limit does not
 * advance. */
void build_hold(struct build *b, bool hold);
void build_free(struct build *b);
/* Sets the scheduling priority of the current build: background unless a request waits for it. */
void build_set_priority(struct templates *ts);
/* Formats the guest kernel's command line. */
void template_cmdline(const struct config *config, char *out, size_t size);

/* template-files.c; the steps of a struct template_job. */
int template_files_check(void *job);
int template_files_publish(void *job);
int template_files_clean(void *job);

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
/* Descriptors: up to four for the boot, then the disk layer that the VM writes to after its
 * snapshot. */
#define NEXT_LAYER_FD 4
#define BUILD_FDS     (NEXT_LAYER_FD + 1)
struct disk_job;
/* Work of a disk_job: makes the image's directory (`name` with .tmp) and its disk layer in it, and
 * opens all files. Returns 0 or -errno. */
int build_files_open(struct disk_job *job);

/* --- all templates --------------------------------------------------------------------------- */

/* The templates that one scan of the disk has found (sources.c). */
struct known_sources {
	size_t n;
	struct known_source {
		struct source source;
		int ret; /* negative: `reason` says why the template can't be used */
		char reason[ERR_TEXT_MAX];
	} all[]; /* the default template first */
};

struct templates {
	const struct template_env *env;
	struct list all;    /* struct template, least recently requested first */
	struct list builds; /* templates that wait for their turn to boot */
	struct template *building;
	struct template *def; /* the default template */
	struct template_wait def_wait;
	struct template *ahead; /* being prepared ahead of need */
	struct template_wait ahead_wait;
	struct known_sources *sources; /* the result of the last scan */
	struct disk_job *sources_job;  /* the scan in progress */
	struct list looks;	       /* struct waiter: for that scan */
	struct list next_looks;	       /* struct waiter: for the next scan */
	uint64_t busy_ms;	       /* when a request last began or ended, on the loop's clock */
	uint64_t boots;		       /* number of images that this instance has made */
	uint64_t unlisted;	       /* of those, images of sizes that are not prepared ahead */
};

static inline bool templates_closing(const struct templates *ts)
{
	return ts->env->ops->is_closing(ts->env->arg);
}

/* Counts and logs an image that was made, if it is of a size that is not prepared ahead. */
void templates_note_unlisted(struct templates *ts, const struct template *t);

/* sources.c */
/* Scans the disk for templates on the calling thread. */
void sources_load(struct templates *ts);
/* Scans the disk again, on a worker. */
void sources_refresh(struct templates *ts);
void sources_free(struct templates *ts);

/* template-files.c; on the calling thread, when the service starts. */
/* Removes incomplete images that a previous instance left, and images of removed templates. */
void templates_sweep(const struct config *config);

#endif
