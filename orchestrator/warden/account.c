// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/warden/account.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <pwd.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proto/warden.h"

static int account_number(struct account *out, const char *text, struct err *e)
{
	char *end;

	errno = 0;
	unsigned long n = strtoul(text, &end, 10);
	if (errno || *end || n == 0 || n >= UINT32_MAX)
		return err_say(e, EINVAL, "user %s is not a uid from 1 to %u", text,
			       UINT32_MAX - 1);
	out->uid = (uid_t)n;
	out->gid = (gid_t)n;
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

/* Drops the bounding set. Called before the uid changes, because this needs CAP_SETPCAP, which the
 * change of uid drops. */
static int bound_capabilities(struct err *e)
{
	const unsigned long bits = SECBIT_NOROOT | SECBIT_NOROOT_LOCKED |
				   SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_KEEP_CAPS_LOCKED |
				   SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED;

	for (unsigned long cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
			return err_set(e, errno, "drop capability %lu", cap);
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
		return err_set(e, errno, "clear the ambient capabilities");
	if (prctl(PR_SET_SECUREBITS, bits, 0, 0, 0) < 0)
		return err_set(e, errno, "lock the secure bits");
	return 0;
}

int account_become(uid_t uid, gid_t gid, struct err *e)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[2] = {{0}};

	int r = bound_capabilities(e);
	if (r < 0)
		return r;
	if (setgroups(0, NULL) < 0)
		return err_set(e, errno, "leave all groups");
	if (setresgid(gid, gid, gid) < 0)
		return err_set(e, errno, "become gid %u", gid);
	if (setresuid(uid, uid, uid) < 0)
		return err_set(e, errno, "become uid %u", uid);
	/* The change of uid does not clear the inheritable set. */
	if (syscall(SYS_capset, &header, none) < 0)
		return err_set(e, errno, "empty the capability sets");
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return err_set(e, errno, "set no_new_privs");
	return 0;
}
