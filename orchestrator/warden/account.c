// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/warden/account.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "base/num.h"
#include "base/privileges.h"
#include "proto/warden.h"

static int account_number(struct account *out, const char *text, struct err *e)
{
	if (!number_parse(text, 1, UINT32_MAX - 1, &out->uid))
		return err_say(e, EINVAL, "user %s is not a uid from 1 to %u", text,
			       UINT32_MAX - 1);
	out->gid = out->uid;
	return 0;
}

int account_find(struct account *out, const char *name, struct err *e)
{
	if (name[0] >= '0' && name[0] <= '9')
		return account_number(out, name, e);
	errno = 0;
	const struct passwd *pw = getpwnam(name);
	if (!pw && errno && errno != ENOENT)
		return err_set(e, errno, "look up the account %s", name);
	if (!pw)
		return err_say(
			e, ENOENT,
			"there is no account %s: create it with `useradd --system --user-group"
			" --no-create-home --shell /usr/sbin/nologin %s`, or set `user` to an "
			"existing account",
			name, name);
	if (pw->pw_uid == 0 || pw->pw_gid == 0)
		return err_say(e, EPERM, "user %s is root; rametd must drop to another account",
			       name);
	out->uid = pw->pw_uid;
	out->gid = pw->pw_gid;
	return 0;
}

struct account account_of_notify(uint32_t vm_uid_base)
{
	uint32_t id = vm_uid_base + WARDEN_SLOTS_MAX;

	return (struct account){id, id};
}

int account_become(uid_t uid, gid_t gid, struct err *e)
{
	/* Before the uid changes, which drops CAP_SETPCAP. */
	int r = privileges_bound(&privileges_none, e);
	if (r < 0)
		return r;
	if (setgroups(0, NULL) < 0)
		return err_set(e, errno, "leave all groups");
	if (setresgid(gid, gid, gid) < 0)
		return err_set(e, errno, "become gid %u", gid);
	if (setresuid(uid, uid, uid) < 0)
		return err_set(e, errno, "become uid %u", uid);
	/* The change of uid does not clear the inheritable set. */
	return privileges_keep(&privileges_none, e);
}
