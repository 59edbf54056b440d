// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/etcd/certificate.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>

#include "base/address.h"

#define DAY_S	      (24 * 3600)
#define SERIAL_BITS   127
#define ADDRESSES_MAX 1024

/* The objects that are needed while a certificate is made. */
struct making {
	X509 *cert, *issuer;
	EVP_PKEY *key, *issuer_key;
};

static void free_all(struct making *m)
{
	X509_free(m->cert);
	X509_free(m->issuer);
	EVP_PKEY_free(m->key);
	EVP_PKEY_free(m->issuer_key);
}

static int refused(const char *what, struct err *e)
{
	char reason[120] = "";

	ERR_error_string_n(ERR_get_error(), reason, sizeof(reason));
	return err_say(e, EINVAL, "%s: %s", what, reason);
}

/* --- PEM -------------------------------------------------------------------------------------- */

static bool take_pem(char out[static PEM_MAX], BIO *bio)
{
	int len = BIO_read(bio, out, PEM_MAX - 1);

	out[len > 0 ? len : 0] = '\0';
	return len > 0 && len < PEM_MAX - 1;
}

static bool write_pem(struct certificate *out, const struct making *m)
{
	BIO *cert = BIO_new(BIO_s_mem()), *key = BIO_new(BIO_s_mem());
	unsigned len = sizeof(out->sha256);
	bool good = cert && key && PEM_write_bio_X509(cert, m->cert) &&
		    PEM_write_bio_PrivateKey(key, m->key, NULL, NULL, 0, NULL, NULL) &&
		    take_pem(out->cert, cert) && take_pem(out->key, key) &&
		    X509_digest(m->cert, EVP_sha256(), out->sha256, &len);

	BIO_free(cert);
	BIO_free(key);
	return good;
}

static bool read_issuer(struct making *m, const struct certificate *by)
{
	BIO *cert = BIO_new_mem_buf(by->cert, -1), *key = BIO_new_mem_buf(by->key, -1);

	m->issuer = cert ? PEM_read_bio_X509(cert, NULL, NULL, NULL) : NULL;
	m->issuer_key = key ? PEM_read_bio_PrivateKey(key, NULL, NULL, NULL) : NULL;
	BIO_free(cert);
	BIO_free(key);
	return m->issuer && m->issuer_key && X509_check_private_key(m->issuer, m->issuer_key);
}

/* --- the certificate -------------------------------------------------------------------------- */

static bool set_serial(X509 *cert)
{
	BIGNUM *n = BN_new();
	bool good = n && BN_rand(n, SERIAL_BITS, BN_RAND_TOP_ONE, BN_RAND_BOTTOM_ANY) &&
		    BN_to_ASN1_INTEGER(n, X509_get_serialNumber(cert));

	BN_free(n);
	return good;
}

static bool set_names(const struct making *m, const char *name)
{
	X509_NAME *subject = X509_get_subject_name(m->cert);

	return X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, (const uint8_t *)name, -1,
					  -1, 0) &&
	       X509_set_issuer_name(m->cert,
				    X509_get_subject_name(m->issuer ? m->issuer : m->cert));
}

/* The certificate is valid from an hour ago, so that hosts whose clocks are late accept it. */
static bool set_times(X509 *cert)
{
	return X509_gmtime_adj(X509_getm_notBefore(cert), -3600) &&
	       X509_gmtime_adj(X509_getm_notAfter(cert), (long)CERTIFICATE_DAYS * DAY_S);
}

static bool extend(const struct making *m, int nid, const char *value)
{
	X509V3_CTX ctx;

	X509V3_set_ctx(&ctx, m->issuer ? m->issuer : m->cert, m->cert, NULL, NULL, 0);
	X509_EXTENSION *x = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
	bool good = x && X509_add_ext(m->cert, x, -1);
	X509_EXTENSION_free(x);
	return good;
}

static bool write_addresses(char out[static ADDRESSES_MAX], const char *const *addresses)
{
	size_t len = 0;

	for (size_t i = 0; addresses[i]; i++) {
		int n = snprintf(out + len, ADDRESSES_MAX - len, "%s%s:%s", i ? "," : "",
				 is_address(addresses[i]) ? "IP" : "DNS", addresses[i]);

		len += n > 0 ? (size_t)n : 0;
		if (n < 0 || len >= ADDRESSES_MAX || strpbrk(addresses[i], ",;\n"))
			return false;
	}
	return len > 0;
}

static bool extend_all(const struct making *m, const char *const *addresses)
{
	char list[ADDRESSES_MAX];

	if (!extend(m, NID_subject_key_identifier, "hash") ||
	    !extend(m, NID_authority_key_identifier, "keyid"))
		return false;
	if (!m->issuer)
		return extend(m, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
		       extend(m, NID_key_usage, "critical,keyCertSign,cRLSign");
	/* The gateway of etcd connects to its own server with the server's certificate. */
	return extend(m, NID_basic_constraints, "critical,CA:FALSE") &&
	       extend(m, NID_key_usage, "critical,digitalSignature") &&
	       extend(m, NID_ext_key_usage, "serverAuth,clientAuth") &&
	       (!addresses ||
		(write_addresses(list, addresses) && extend(m, NID_subject_alt_name, list)));
}

static int make(struct certificate *out, struct making *m, const struct subject *subject,
		struct err *e)
{
	if (subject->by && !read_issuer(m, subject->by))
		return refused("the authority's certificate and key do not belong together", e);
	m->key = EVP_EC_gen("P-256");
	m->cert = X509_new();
	if (!m->key || !m->cert || !X509_set_version(m->cert, X509_VERSION_3) ||
	    !set_serial(m->cert) || !set_times(m->cert) || !X509_set_pubkey(m->cert, m->key))
		return refused("make a certificate", e);
	if (!set_names(m, subject->name))
		return refused("the name of the certificate", e);
	if (!extend_all(m, subject->addresses))
		return refused("the addresses of the certificate", e);
	if (!X509_sign(m->cert, m->issuer_key ? m->issuer_key : m->key, EVP_sha256()) ||
	    !write_pem(out, m))
		return refused("sign a certificate", e);
	return 0;
}

int certificate_make(struct certificate *out, const struct subject *subject, struct err *e)
{
	struct making m = {0};

	ERR_clear_error();
	*out = (struct certificate){0};
	int ret = make(out, &m, subject, e);
	free_all(&m);
	return ret;
}
