// SPDX-License-Identifier: Apache-2.0
/*
 * TLS between hosts. Each side checks the other's certificate against the table at each handshake:
 * there are no sessions to resume, which would skip that. h2o does not compare the names of a TLS
 * 1.3 server, so this is the only check of them.
 */
#include <errno.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "orchestrator/fleet/load.h"
#include "orchestrator/fleet/member.h"
#include "orchestrator/peers/internal.h"

#define LOG_INTERVAL_MS 60000

/* Copies the one common name of the certificate. */
static bool common_name(const X509 *cert, char out[static FLEET_NAME_MAX + 1])
{
	const X509_NAME *subject = X509_get_subject_name(cert);
	int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);

	if (at < 0 || X509_NAME_get_index_by_NID(subject, NID_commonName, at) >= 0)
		return false;
	const ASN1_STRING *text = X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at));
	int len = ASN1_STRING_length(text);
	if (len <= 0 || len > FLEET_NAME_MAX || memchr(ASN1_STRING_get0_data(text), 0, (size_t)len))
		return false;
	memcpy(out, ASN1_STRING_get0_data(text), (size_t)len);
	out[len] = '\0';
	return true;
}

static bool has_other_certificate(const struct fleet_host *host, const X509 *cert)
{
	unsigned char hash[EVP_MAX_MD_SIZE];

	return host->has_cert && (X509_digest(cert, EVP_sha256(), hash, NULL) != 1 ||
				  memcmp(hash, host->cert, FLEET_CERT_BYTES) != 0);
}

/* Returns NULL if the certificate is that of a host of the table, else why it is not, and what to
 * do. "There" is the host that has the certificate. */
static const char *check(const struct peers *p, const SSL *ssl, const X509 *cert,
			 char name[static FLEET_NAME_MAX + 1])
{
	const char *wanted =
		SSL_is_server(ssl) ? NULL : SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);

	if (!common_name(cert, name)) {
		strcpy(name, "?");
		return "it must have one common name, that of a host in the table: set fleet_cert "
		       "there to such a certificate (`rametctl fleet ca`)";
	}
	const struct fleet_host *host = fleet_table_named(member_table(p->member), name);
	if (!host)
		return "no host of the table has that name (`rametctl host list`): it is not in "
		       "this cell, has not joined, or was forgotten";
	if (!SSL_is_server(ssl) && (!wanted || strcmp(wanted, name) != 0))
		return "another host is at that address: correct the address in the table, or "
		       "fleet_listen or fleet_cert there";
	if (has_other_certificate(host, cert))
		return "the table has another certificate for that host: if fleet_cert there is "
		       "new, `systemctl restart ramet-fleet` there";
	return NULL;
}

static uint64_t log_now_ms(void)
{
	return now_ns() / 1000000;
}

static bool was_logged(uint64_t logged_ms, uint64_t now_ms)
{
	return logged_ms && now_ms - logged_ms < LOG_INTERVAL_MS;
}

/* Logs one refusal a minute for all callers together, since anybody can connect. */
static void log_refused(struct peers *p, const char *name, const char *reason)
{
	const uint64_t now = log_now_ms();

	if (was_logged(p->refused_logged_ms, now))
		return;
	p->refused_logged_ms = now;
	log_warn("refusing a host's certificate for \"%s\": %s", name, reason);
}

/* Returns whether the log has not said this of the host in the last minute, and so must say it now.
 * A hostile host may invent many reasons, so only PEERS_LOGGED_MAX lines are remembered and allowed
 * per minute. */
static bool is_news(struct peers *p, uint32_t number, const char *reason)
{
	const uint64_t hash = load_hash(reason, strlen(reason)), now = log_now_ms();
	size_t at = 0;

	for (size_t i = 0; i < PEERS_LOGGED_MAX; i++) {
		if (p->logged[i].logged_ms && p->logged[i].number == number &&
		    p->logged[i].reason == hash) {
			at = i;
			break;
		}
		if (p->logged[i].logged_ms < p->logged[at].logged_ms)
			at = i;
	}
	if (was_logged(p->logged[at].logged_ms, now))
		return false;
	p->logged[at].number = number;
	p->logged[at].reason = hash;
	p->logged[at].logged_ms = now;
	return true;
}

void peer_tls_failed(struct peers *p, const struct fleet_host *host, const char *err)
{
	char reason[PEERS_REASON_MAX];

	if (p->refusal[0])
		snprintf(reason, sizeof(reason), "%s", p->refusal);
	else
		snprintf(reason, sizeof(reason),
			 "%s: the log of the service there may say why; another program may listen "
			 "at that address",
			 err);
	p->refusal[0] = '\0';
	if (is_news(p, host->number, reason))
		log_warn("no connection to host %s at %s: %s", host->name, host->address, reason);
}

/* Describes an error that OpenSSL found. */
static void describe_error(char out[static PEERS_REASON_MAX], X509_STORE_CTX *store)
{
	snprintf(out, PEERS_REASON_MAX,
		 "%s: fleet_cert there must be valid now, and of the authority in fleet_ca, which "
		 "is the same on all hosts (`rametctl fleet ca`, `rametctl fleet join`)",
		 X509_verify_cert_error_string(X509_STORE_CTX_get_error(store)));
}

static void note_refused(struct peers *p, const SSL *ssl, const char *name, const char *reason)
{
	if (SSL_is_server(ssl))
		log_refused(p, name, reason);
	else /* peer_tls_failed is called next, and knows the host */
		snprintf(p->refusal, sizeof(p->refusal),
			 "this host refuses its certificate, for \"%s\": %.290s", name, reason);
}

static int on_verify(int good, X509_STORE_CTX *store)
{
	const SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
	struct peers *p = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
	const X509 *cert = X509_STORE_CTX_get0_cert(store);
	char name[FLEET_NAME_MAX + 1] = "?", error[PEERS_REASON_MAX];
	const char *reason = NULL;

	if (!good) {
		describe_error(error, store);
		reason = error;
	} else if (X509_STORE_CTX_get_error_depth(store) == 0) {
		reason = check(p, ssl, cert, name);
	}
	if (!reason)
		return 1;
	if (!good && cert && !common_name(cert, name))
		strcpy(name, "?");
	note_refused(p, ssl, name, reason);
	if (good)
		X509_STORE_CTX_set_error(store, X509_V_ERR_APPLICATION_VERIFICATION);
	return 0;
}

/* --- contexts ------------------------------------------------------------------------------- */

static int make(SSL_CTX **out, struct peers *p, const SSL_METHOD *method,
		const struct config *config, struct err *e)
{
	SSL_CTX *ctx = *out = SSL_CTX_new(method);

	if (!ctx)
		return http_tls_failed(e, "set up", "TLS");
	SSL_CTX_set_app_data(ctx, p);
	SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION);
	SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET);
	SSL_CTX_set_num_tickets(ctx, 0);
	SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, on_verify);
	if (SSL_CTX_load_verify_locations(ctx, config->fleet_ca, NULL) != 1)
		return http_tls_failed(e, "read the certificates in fleet_ca", config->fleet_ca);
	if (SSL_CTX_use_certificate_chain_file(ctx, config->fleet_cert) != 1)
		return http_tls_failed(e, "read the certificates in fleet_cert",
				       config->fleet_cert);
	if (SSL_CTX_use_PrivateKey_file(ctx, config->fleet_key, SSL_FILETYPE_PEM) != 1)
		return http_tls_failed(e, "read the key in fleet_key", config->fleet_key);
	if (SSL_CTX_check_private_key(ctx) != 1)
		return http_tls_failed(e, "the key does not belong to the certificate: fleet_key",
				       config->fleet_key);
	return 0;
}

/* Checks that other hosts accept this host's certificate: operators should learn from its own log
 * that they don't. The table may get a new certificate later. */
static int check_own(const struct peers *p, const struct fleet_host *self, struct err *e)
{
	const X509 *cert = SSL_CTX_get0_certificate(p->server);
	const char *own = self->name;
	char name[FLEET_NAME_MAX + 1] = "?";

	if (has_other_certificate(self, cert))
		log_warn("the table has another certificate for this host than fleet_cert, so "
			 "others refuse it: `systemctl restart ramet-fleet` tells them of a new "
			 "one");
	if (common_name(cert, name) && strcmp(name, own) == 0)
		return 0;
	return err_say(e, EINVAL,
		       "fleet_cert is the certificate of \"%s\", and the table says that this host "
		       "is %s",
		       name, own);
}

int peer_tls_new(struct peers *p, const struct config *config, struct err *e)
{
	if (make(&p->server, p, TLS_server_method(), config, e) < 0 ||
	    make(&p->client, p, TLS_client_method(), config, e) < 0)
		return e->code;
	return check_own(p, member_table(p->member)->self, e);
}

int peers_check(const struct config *config, struct err *e)
{
	scoped_free struct fleet_table *table = NULL;
	struct peers p = {0};
	int ret = member_check(&table, config, e);

	if (ret == 0)
		ret = make(&p.server, &p, TLS_server_method(), config, e);
	if (ret == 0)
		ret = check_own(&p, table->self, e);
	peer_tls_free(&p);
	return ret;
}

void peer_tls_free(struct peers *p)
{
	SSL_CTX_free(p->server);
	SSL_CTX_free(p->client);
}
