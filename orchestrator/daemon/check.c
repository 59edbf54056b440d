// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/daemon/check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/fd.h"
#include "orchestrator/http/server.h"
#include "orchestrator/peers/peers.h"
#include "orchestrator/service/service.h"
#include "orchestrator/warden/account.h"
#include "orchestrator/warden/directory.h"
#include "orchestrator/warden/warden.h"

struct checking {
	const struct config *config;
	struct account account; /* of the service */
	bool is_new;		/* state_dir has nothing yet */
	unsigned *unread;
	void (*notify)(void *arg, const char *sentence);
	void *arg;
};

/* Returns 0 instead of -EACCES if this process is not the service's account: then nothing is known
 * about whatever could not be read. */
static int judge(struct checking *c, int ret, struct err *e)
{
	char sentence[ERR_TEXT_MAX + 64];

	if (ret != -EACCES || geteuid() == c->account.uid)
		return ret;
	snprintf(sentence, sizeof(sentence), "not checked, as uid %u cannot read it: %s", geteuid(),
		 e->text);
	c->notify(c->arg, sentence);
	++*c->unread;
	return 0;
}

static int check_directories(struct checking *c, struct err *e)
{
	const char *run = c->config->run_dir, *state = c->config->state_dir;
	int ret = directory_look_for_root(run, c->account.gid, e);

	ret = judge(c, ret < 0 ? err_context(e, "run_dir") : 0, e);
	if (ret < 0)
		return ret;
	ret = directory_look_for_account(state, c->account, e);
	c->is_new = ret == 0;
	return judge(c, ret < 0 ? err_context(e, "state_dir") : 0, e);
}

/* Opens each file that OpenSSL will read, to say which setting and account it is about. */
static int open_secrets(const struct checking *c, struct err *e)
{
	const struct config *config = c->config;
	const char *const files[][2] = {
		{"tls_cert", config->tls_cert},	  {"tls_key", config->tls_key},
		{"fleet_ca", config->fleet_ca},	  {"fleet_cert", config->fleet_cert},
		{"fleet_key", config->fleet_key}, {"fleet_id_key", config->fleet_id_key},
	};

	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		const char *path = files[i][1];

		if (!path[0])
			continue;
		scoped_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
		if (fd < 0)
			return err_set(e, errno, "%s %s, which the account %s must be able to read",
				       files[i][0], path, config->user);
	}
	return 0;
}

static int check_secrets(const struct checking *c, struct err *e)
{
	if (open_secrets(c, e) < 0 || http_check_tls(c->config, e) < 0)
		return e->code;
	return c->config->fleet_dir[0] ? peers_check(c->config, e) : 0;
}

static int check_page(const struct checking *c, struct err *e)
{
	const char *path = c->config->ui_dir;
	scoped_fd int fd = path[0] ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

	return path[0] && fd < 0 && errno != ENOENT
		       ? err_set(e, errno, "open the folder %s (ui_dir)", path)
		       : 0;
}

/* A start makes folders that are missing; those above them must let the account through. */
static int check_way(const struct checking *c, const char *setting, const char *path, struct err *e)
{
	if (access(path, F_OK) == 0 || errno != EACCES)
		return 0;
	return err_say(e, EACCES,
		       "%s %s: the account %s must be able to search the folders above it (chmod "
		       "a+x)",
		       setting, path, c->config->user);
}

static int check_ways(const struct checking *c, struct err *e)
{
	if (check_way(c, "state_dir", c->config->state_dir, e) < 0 ||
	    check_way(c, "run_dir", c->config->run_dir, e) < 0)
		return e->code;
	return 0;
}

/* Checks what a start does as the service's account. */
static int check_service(struct checking *c, struct err *e)
{
	bool any_key;

	if (judge(c, check_ways(c, e), e) < 0 || judge(c, check_secrets(c, e), e) < 0 ||
	    judge(c, check_page(c, e), e) < 0)
		return e->code;
	const unsigned before = *c->unread;
	int ret = judge(c, service_check(c->config, c->is_new, &any_key, e), e);
	if (ret < 0)
		return ret;
	/* Whether there is a key is unknown if the catalogue could not be read. */
	return http_check_exposure(c->config, any_key || *c->unread > before, e);
}

int check_start(const struct config *config, unsigned *unread,
		void (*notify)(void *arg, const char *sentence), void *arg, struct err *e)
{
	struct checking c = {.config = config, .unread = unread, .notify = notify, .arg = arg};

	*unread = 0;
	if (warden_account(&c.account, config, e) < 0 || check_directories(&c, e) < 0)
		return e->code;
	if (geteuid() == 0 && account_become(c.account.uid, c.account.gid, e) < 0)
		return e->code;
	return check_service(&c, e);
}
