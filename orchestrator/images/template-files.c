// SPDX-License-Identifier: Apache-2.0
/*
 * Template images on disk: STATE_DIR/templates/IMAGE/{state,memory,layer-0,manifest}. IMAGE is
 * NAME-KEY-SIZE. KEY is a hash of all inputs, so an image whose inputs changed is never found. A
 * directory is made as IMAGE.tmp and renamed once all of it is on disk.
 */
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/file-sum.h"
#include "base/file.h"
#include "base/log.h"
#include "base/num.h"
#include "orchestrator/images/disk-layer.h"
#include "orchestrator/images/image-dir.h"
#include "orchestrator/images/template-internal.h"
#include "orchestrator/io/disk-job.h"
#include "proto/agent.h"
#include "proto/ctl.h"

#define WHOLE_MAX   (8u << 20)	 /* bytes; files up to this size are hashed whole */
#define PART	    (1u << 20)	 /* bytes hashed at each end of a larger file */
#define ASKED_MAX   16		 /* most images of all templates, besides those prepared ahead */
#define ASKED_BYTES (4ull << 30) /* most bytes of these images on disk */

static const char *const files[] = {"state", "memory", "layer-0"};

/* --- key ------------------------------------------------------------------------------------ */

static int hash_part(EVP_MD_CTX *md, int fd, off_t from, size_t len)
{
	uint8_t *buf = must_alloc(PART);
	int ret = 0;

	while (len && ret == 0) {
		ssize_t got = pread(fd, buf, len < PART ? len : PART, from);

		if (got <= 0) {
			ret = got ? -errno : -EIO;
			break;
		}
		EVP_DigestUpdate(md, buf, (size_t)got);
		from += got;
		len -= (size_t)got;
	}
	free(buf);
	return ret;
}

/* Hashes a file. A large one is identified by its size, its mtime and its ends: reading it all
 * would take seconds. */
static int hash_file(EVP_MD_CTX *md, const char *what, const char *path, struct err *e)
{
	scoped_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_set(e, errno, "%s %s", what, path);
	if (!S_ISREG(st.st_mode) || !st.st_size)
		return err_say(e, EINVAL, "%s %s is empty or not a regular file", what, path);
	uint64_t about[2] = {(uint64_t)st.st_size, 0};
	int ret;
	if (st.st_size <= (off_t)WHOLE_MAX) {
		ret = hash_part(md, fd, 0, (size_t)st.st_size);
	} else {
		about[1] = (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec;
		ret = hash_part(md, fd, 0, PART);
		if (ret == 0)
			ret = hash_part(md, fd, st.st_size - (off_t)PART, PART);
	}
	EVP_DigestUpdate(md, about, sizeof(about));
	return ret < 0 ? err_set(e, -ret, "read %s %s", what, path) : 0;
}

static int hash_inputs(EVP_MD_CTX *md, const struct config *c, const struct source *s,
		       struct err *e)
{
	const uint32_t versions[] = {IMAGE_STATE_VERSION, IMAGE_LAYER_VERSION, CTL_VERSION,
				     AGENT_VERSION, IMAGE_MANIFEST_VERSION};
	char cmdline[CTL_CMDLINE_MAX];

	if (hash_file(md, "kernel", c->kernel, e) < 0)
		return e->code;
	template_cmdline(c, cmdline, sizeof(cmdline));
	EVP_DigestUpdate(md, cmdline, strlen(cmdline));
	EVP_DigestUpdate(md, versions, sizeof(versions));
	if ((c->initramfs[0] && hash_file(md, "initramfs", c->initramfs, e) < 0) ||
	    hash_file(md, "rootfs", s->rootfs, e) < 0 ||
	    (s->warmup[0] && hash_file(md, "warmup", s->warmup, e) < 0))
		return e->code;
	return hash_file(md, "vmm", c->vmm, e);
}

static int key_of(const struct template_job *job, char key[TEMPLATE_KEY_LEN + 1], struct err *e)
{
	EVP_MD_CTX *md = EVP_MD_CTX_new();
	uint8_t digest[EVP_MAX_MD_SIZE];
	int ret = md && EVP_DigestInit_ex(md, EVP_sha256(), NULL)
			  ? hash_inputs(md, &job->config, &job->source, e)
			  : err_say(e, ENOMEM, "no memory for a hash context");

	if (ret == 0)
		EVP_DigestFinal_ex(md, digest, NULL);
	EVP_MD_CTX_free(md);
	if (ret == 0)
		hex_write(key, digest, TEMPLATE_KEY_LEN / 2);
	return ret;
}

static int name_of(struct template_job *job)
{
	const struct size *size = &job->size;
	int ret = key_of(job, job->key, &job->job.err);

	if (ret == 0)
		snprintf(job->name, sizeof(job->name), "%s-%s-%uc-%um-%ug", job->source.name,
			 job->key, size->vcpus, size->ram_mib, size->rootfs_gb);
	return ret;
}

/* Parses the name of an image directory into its template's name and key. Returns false for any
 * other name. */
static bool owner_of(const char *entry, char name[SOURCE_NAME_MAX + 1],
		     char key[TEMPLATE_KEY_LEN + 1])
{
	size_t len = strlen(entry);

	/* Search from the end: three parts of the size, then the key. */
	for (int dashes = 0; len && dashes < 3;)
		dashes += entry[--len] == '-';
	if (len < TEMPLATE_KEY_LEN + 2 || entry[len - TEMPLATE_KEY_LEN - 1] != '-')
		return false;
	size_t name_len = len - TEMPLATE_KEY_LEN - 1;
	if (name_len > SOURCE_NAME_MAX)
		return false;
	snprintf(name, SOURCE_NAME_MAX + 1, "%.*s", (int)name_len, entry);
	snprintf(key, TEMPLATE_KEY_LEN + 1, "%s", entry + name_len + 1);
	return true;
}

/* --- check ---------------------------------------------------------------------------------- */

static int check_image(int dir, const struct template_job *job, struct err *e)
{
	scoped_free uint8_t *bytes = NULL;
	struct image_manifest m;
	struct wire extra;
	int ret = image_manifest_load(dir, job->name, &m, &bytes, &extra, e);

	if (ret < 0)
		return ret;
	if (m.n_files != ARRAY_LEN(files) ||
	    m.files[TEMPLATE_MEMORY].bytes != (uint64_t)job->size.ram_mib << 20)
		return err_say(e, EINVAL, "its manifest's list of files is malformed");
	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		scoped_fd int fd = image_file_open(dir, files[i], m.files[i].bytes, e);

		if (fd < 0)
			return fd;
	}
	return 0;
}

/* Returns true for an incomplete image, and for one whose template is gone. */
static bool is_litter(const struct config *config, const char *entry)
{
	char name[SOURCE_NAME_MAX + 1], key[TEMPLATE_KEY_LEN + 1];
	struct source source;
	struct err e;

	return strstr(entry, IMAGE_TMP) || !owner_of(entry, name, key) ||
	       source_find(config, name, &source, &e) == -ENOENT;
}

void templates_sweep(const struct config *config)
{
	struct image_names names = {0};
	scoped_fd int parent = state_dir_open(config->state_dir, "templates", NULL);

	if (parent >= 0)
		image_names_read(parent, &names, NULL);
	for (size_t i = 0; i < names.n; i++)
		if (is_litter(config, names.all[i]))
			image_dir_remove(parent, names.all[i]);
	image_names_free(&names);
}

/* Returns the size of an image on disk, in bytes. */
static uint64_t image_bytes(int parent, const char *name)
{
	scoped_fd int dir = image_dir_open(parent, name, NULL);
	uint64_t bytes = 0;
	struct stat st;

	for (size_t i = 0; dir >= 0 && i < ARRAY_LEN(files); i++)
		if (fstatat(dir, files[i], &st, AT_SYMLINK_NOFOLLOW) == 0)
			bytes += (uint64_t)st.st_blocks * 512;
	return bytes;
}

/* Removes the images of the template that were made from other inputs, such as an older rootfs. */
static void sweep_others(int parent, const struct template_job *job)
{
	char name[SOURCE_NAME_MAX + 1], key[TEMPLATE_KEY_LEN + 1];
	struct image_names names;

	image_names_read(parent, &names, NULL);
	for (size_t i = 0; i < names.n; i++)
		if (owner_of(names.all[i], name, key) && strcmp(name, job->source.name) == 0 &&
		    strcmp(key, job->key) != 0)
			image_dir_remove(parent, names.all[i]);
	image_names_free(&names);
}

/* The evictable images: their number and size, and the least recently used one. */
struct asked {
	size_t n;
	uint64_t bytes;
	char oldest[IMAGE_NAME_ROOM];
	struct timespec used;
};

static bool is_kept(const struct template_job *job, const char *name)
{
	for (size_t i = 0; i < job->n_keep; i++)
		if (strcmp(job->keep[i], name) == 0)
			return true;
	return strstr(name, IMAGE_TMP);
}

static bool is_image(int parent, const char *name)
{
	char path[IMAGE_NAME_ROOM + sizeof("/manifest")];

	snprintf(path, sizeof(path), "%s/manifest", name);
	return faccessat(parent, path, F_OK, 0) == 0;
}

static void add_asked(struct asked *a, int parent, const char *name)
{
	struct stat st;

	if (!is_image(parent, name) || fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return;
	if (!a->n || st.st_mtim.tv_sec < a->used.tv_sec ||
	    (st.st_mtim.tv_sec == a->used.tv_sec && st.st_mtim.tv_nsec < a->used.tv_nsec)) {
		snprintf(a->oldest, sizeof(a->oldest), "%s", name);
		a->used = st.st_mtim;
	}
	a->n++;
	a->bytes += image_bytes(parent, name);
}

static struct asked find_asked(int parent, const struct template_job *job)
{
	struct asked out = {0};
	struct image_names names;

	image_names_read(parent, &names, NULL);
	for (size_t i = 0; i < names.n; i++)
		if (!is_kept(job, names.all[i]))
			add_asked(&out, parent, names.all[i]);
	image_names_free(&names);
	return out;
}

/* Evicts the least recently used images after a new one was added. */
static void evict(int parent, const struct template_job *job)
{
	struct asked a = find_asked(parent, job);

	while (a.n > 1 && (a.n > ASKED_MAX || a.bytes > ASKED_BYTES)) {
		image_dir_remove(parent, a.oldest);
		if (is_image(parent, a.oldest)) {
			log_warn("the image %s/%s can't be removed", job->dir, a.oldest);
			return;
		}
		a = find_asked(parent, job);
	}
}

int template_files_check(void *arg)
{
	struct template_job *job = arg;
	struct err reason;
	char tmp[IMAGE_NAME_ROOM];

	/* Take the stamp before the files are read, so that a later change is noticed. */
	source_stamp(&job->source, &job->source.stamp);
	int ret = name_of(job);
	if (ret < 0)
		return ret;
	scoped_fd int parent = directory_open(job->dir, &job->job.err);
	if (parent < 0)
		return parent;
	image_tmp_name(job->name, tmp);
	image_dir_remove(parent, tmp);
	sweep_others(parent, job);
	scoped_fd int dir = image_dir_open(parent, job->name, NULL);
	if (dir < 0)
		return 1;
	if (!job->discard && check_image(dir, job, &reason) == 0) {
		futimens(dir, NULL); /* mark as used now */
		job->bytes = image_bytes(parent, job->name);
		job->found = true;
		return 1;
	}
	snprintf(job->remark, sizeof(job->remark), "%s",
		 job->discard ? "restores from it failed" : reason.text);
	image_dir_remove(parent, job->name);
	return 1;
}

/* --- make ----------------------------------------------------------------------------------- */

/* Copies a file of the snapshot; zeros become holes. */
static int write_file(int dir, const char *name, int from, struct err *e)
{
	scoped_fd int to = openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	struct file_walk walk;
	uint64_t done = 0;
	struct stat st;

	if (to < 0 || fstat(from, &st) < 0)
		return err_set(e, errno, "create the image's %s file", name);
	int ret = file_walk_begin(&walk, from, to, (uint64_t)st.st_size, e);
	if (ret == 0)
		ret = file_walk_step(&walk, UINT64_MAX, &done, e);
	file_walk_end(&walk);
	return ret < 0 ? err_context(e, "the image's %s file", name) : 0;
}

/* Writes the state and the memory; the disk layer is in the directory already. Flushes them all,
 * and notes their sizes in *m. */
static int write_files(int dir, const struct template_job *job, struct image_manifest *m,
		       struct err *e)
{
	int ret = 0;

	for (size_t i = 0; i < ARRAY_LEN(files) && ret == 0; i++) {
		struct stat st;

		if (i < 2)
			ret = write_file(dir, files[i], job->image->fds[i], e);
		scoped_fd int fd = openat(dir, files[i], O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
		/* A Space recognizes a template's files by this mode. */
		if (ret == 0 && (fd < 0 || fstat(fd, &st) < 0 ||
				 fchmod(fd, TEMPLATE_FILE_MODE) < 0 || fsync(fd) < 0))
			ret = err_set(e, errno, "write %s to disk", files[i]);
		if (ret == 0)
			m->files[i].bytes = (uint64_t)st.st_size;
	}
	return ret;
}

static int write_image(int parent, int dir, const struct template_job *job, struct err *e)
{
	struct image_manifest m = {.n_files = ARRAY_LEN(files)};
	uint8_t bytes[IMAGE_MANIFEST_OVERHEAD];
	int ret = write_files(dir, job, &m, e);

	if (ret < 0)
		return ret;
	if (m.files[TEMPLATE_MEMORY].bytes != (uint64_t)job->size.ram_mib << 20 ||
	    !m.files[0].bytes)
		return err_say(e, EIO, "the VM process saved an image of the wrong size");
	memcpy(m.name, job->name, sizeof(job->name));
	size_t len = image_manifest_write(&m, NULL, 0, bytes);
	return image_dir_publish(parent, dir, job->name, bytes, len, e);
}

int template_files_publish(void *arg)
{
	struct template_job *job = arg;
	struct err *e = &job->job.err;
	char tmp[IMAGE_NAME_ROOM];

	image_tmp_name(job->name, tmp);
	scoped_fd int parent = directory_open(job->dir, e);
	if (parent < 0)
		return parent;
	scoped_fd int dir = image_dir_open(parent, tmp, e);
	int ret = dir < 0 ? dir : write_image(parent, dir, job, e);
	if (ret < 0) {
		image_dir_remove(parent, tmp);
		image_dir_remove(parent, job->name);
		return ret;
	}
	job->bytes = image_bytes(parent, job->name);
	evict(parent, job);
	return 1;
}

int template_files_clean(void *arg)
{
	struct template_job *job = arg;
	char tmp[IMAGE_NAME_ROOM];
	scoped_fd int parent = directory_open(job->dir, &job->job.err);

	image_tmp_name(job->name, tmp);
	if (parent >= 0)
		image_dir_remove(parent, tmp);
	return 1;
}

/* --- what a build needs ---------------------------------------------------------------------- */

static int make_directory(const struct build_files *b, struct err *e)
{
	scoped_fd int parent = state_dir_open(b->state_dir, "templates", e);

	return parent < 0 ? parent : image_dir_new(parent, b->name, e);
}

static int open_boot(struct build_files *b, int dir, int *fds, struct err *e)
{
	const char *const paths[] = {b->kernel, b->initramfs, b->source.rootfs};
	struct stat st;

	for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
		if (!paths[i][0])
			continue;
		int fd = fds[b->n_boot++] = open(paths[i], O_RDONLY | O_CLOEXEC);
		if (fd < 0 || fstat(fd, &st) < 0)
			return err_set(e, errno, "open %s", paths[i]);
		b->rootfs_bytes =
			(uint64_t)st.st_size; /* ends as the size of the last file, the rootfs */
	}
	int layer = openat(dir, "layer-0", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (layer < 0)
		return err_set(e, errno, "create the template's disk layer");
	fds[b->n_boot++] = layer;
	return 0;
}

static int read_warmup(struct build_files *b, struct err *e)
{
	const char *path = b->source.warmup;
	ssize_t got = 1;

	if (!path[0])
		return 0;
	scoped_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return err_set(e, errno, "read %s", path);
	for (; b->warmup_len <= SOURCE_WARMUP_MAX; b->warmup_len += (size_t)got) {
		got = read(fd, b->warmup + b->warmup_len, sizeof(b->warmup) - b->warmup_len);
		if (got <= 0)
			break;
	}
	if (got == 0)
		return 0;
	if (got < 0)
		return err_set(e, errno, "read %s", path);
	return err_say(e, EFBIG, "%s is larger than %u bytes", path, SOURCE_WARMUP_MAX);
}

int build_files_open(struct disk_job *job)
{
	struct build_files *b = job->what;
	scoped_fd int dir = make_directory(b, &job->job.err);

	if (dir < 0)
		return dir;
	int ret = open_boot(b, dir, job->fds, &job->job.err);
	if (ret == 0)
		ret = job->fds[NEXT_LAYER_FD] = disk_layer_new(b->state_dir, &job->job.err);
	return ret >= 0 ? read_warmup(b, &job->job.err) : ret;
}
