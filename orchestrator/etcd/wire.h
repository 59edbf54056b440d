// SPDX-License-Identifier: Apache-2.0
/*
 * Requests to etcd and its answers, in the JSON of its gateway (etcd.io, "gRPC gateway"), which is
 * the same from etcd 3.4 on. Answers are input: another program may answer in etcd's place, and
 * whoever may write to etcd chooses its keys and values. All that is read is checked and bounded.
 */
#ifndef RAMET_ORCHESTRATOR_ETCD_WIRE_H
#define RAMET_ORCHESTRATOR_ETCD_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "orchestrator/json/text.h"

#define ETCD_KEY_MAX	256
#define ETCD_VALUE_MAX	4096
#define ETCD_PAGE	100	   /* keys in the answer to one request */
#define ETCD_ANSWER_MAX (8u << 20) /* bytes of an answer, or of a line of a stream */

/* --- requests -------------------------------------------------------------------------------- */

/* Asks for the keys in [from, to), at most ETCD_PAGE, as they were at `revision`; 0: as they are
 * now. */
void etcd_range_request(struct text *out, const char *from, const char *to, int64_t revision);
/* Sets the key if its last change has the revision `revision` (0: if it does not exist). Otherwise
 * asks for the present value. `lease`: 0 for none. */
void etcd_put_request(struct text *out, const char *key, const struct text *value, int64_t lease,
		      int64_t revision);
void etcd_grant_request(struct text *out, uint32_t ttl_s);
void etcd_keepalive_request(struct text *out, int64_t lease);
/* Asks for all changes of the keys in [from, to) from a revision on. */
void etcd_watch_request(struct text *out, const char *from, const char *to, int64_t revision);

/* --- answers --------------------------------------------------------------------------------- */

/* Valid during the callback only. */
struct etcd_pair {
	const char *key;
	const char *value; /* any bytes */
	size_t value_len;
	bool deleted;	  /* the key has no value any more */
	bool odd;	  /* no host writes such a pair: key or value is cut off */
	int64_t revision; /* of this change */
	int64_t lease;	  /* 0: none */
};
typedef void etcd_pair_fn(void *arg, const struct etcd_pair *pair);

/* Each of these returns 0, or -EPROTO with *e filled if etcd cannot have written the text. After an
 * error, nothing was passed to `fn`. */
struct etcd_range {
	int64_t revision; /* the answer shows the keys at this revision */
	bool more;	  /* further keys follow the last one */
};
int etcd_range_read(struct etcd_range *out, const char *text, size_t len, etcd_pair_fn *fn,
		    void *arg, struct err *e);
/* Sets *done to whether the key was set. If not, passes the present pair to `fn`, unless the key
 * does not exist. */
int etcd_put_read(bool *done, const char *text, size_t len, etcd_pair_fn *fn, void *arg,
		  struct err *e);
struct etcd_lease {
	int64_t id;
	int64_t ttl_s; /* 0: there is no such lease */
};
int etcd_grant_read(struct etcd_lease *out, const char *text, size_t len, struct err *e);
int etcd_keepalive_read(struct etcd_lease *out, const char *text, size_t len, struct err *e);
struct etcd_change {
	/* Newest revision when the watch began; 0: this line is about something else. */
	int64_t began;
	bool over;	/* nothing follows */
	bool compacted; /* the watch is over because etcd has dropped changes that it asked for */
};
int etcd_watch_read(struct etcd_change *out, const char *line, size_t len, etcd_pair_fn *fn,
		    void *arg, struct err *e);
#define ETCD_VERSION_MAX 31
int etcd_version_read(char out[static ETCD_VERSION_MAX + 1], const char *text, size_t len,
		      struct err *e);
/* Returns advice for operators about an etcd of this version; NULL: none. */
const char *etcd_version_advice(const char *version);
/* Reads the answer of a request that failed. Always returns an error: -ENOENT if what was asked for
 * does not exist, -EAGAIN if another member may do better, else -EIO. */
int etcd_failure_read(long status, const char *text, size_t len, struct err *e);

#endif
