// SPDX-License-Identifier: Apache-2.0
/* The fleet's certificates, as OpenSSL judges them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "orchestrator/etcd/certificate.h"

static struct certificate authority, other, host;

static X509 *read_cert(const struct certificate *c)
{
	BIO *bio = BIO_new_mem_buf(c->cert, -1);
	X509 *x = PEM_read_bio_X509(bio, NULL, NULL, NULL);

	BIO_free(bio);
	assert_non_null(x);
	return x;
}

/* Returns whether the authority's certificate is that of the other's issuer, for this purpose. */
static bool verify(const struct certificate *by, const struct certificate *c, int purpose)
{
	X509_STORE *store = X509_STORE_new();
	X509_STORE_CTX *ctx = X509_STORE_CTX_new();
	X509 *issuer = read_cert(by), *cert = read_cert(c);

	X509_STORE_add_cert(store, issuer);
	X509_STORE_CTX_init(ctx, store, cert, NULL);
	X509_STORE_CTX_set_purpose(ctx, purpose);
	X509_STORE_CTX_set_flags(ctx, X509_V_FLAG_X509_STRICT);
	int good = X509_verify_cert(ctx);
	X509_STORE_CTX_free(ctx);
	X509_STORE_free(store);
	X509_free(issuer);
	X509_free(cert);
	return good == 1;
}

static int set_up(void **state)
{
	const struct subject ca = {.name = "the fleet"};
	static const char *const addresses[] = {"10.0.0.1", "fd00::1", "etcd.example", NULL};
	const struct subject of_host = {.name = "h17", .addresses = addresses, .by = &authority};
	struct err e;

	return certificate_make(&authority, &ca, &e) < 0 || certificate_make(&other, &ca, &e) < 0 ||
	       certificate_make(&host, &of_host, &e) < 0;
}

static void host_may_serve_and_be_a_client(void **state)
{
	assert_true(verify(&authority, &host, X509_PURPOSE_SSL_SERVER));
	assert_true(verify(&authority, &host, X509_PURPOSE_SSL_CLIENT));
	/* An authority of the same name is another one. */
	assert_false(verify(&other, &host, X509_PURPOSE_SSL_SERVER));
}

static void host_certifies_nobody(void **state)
{
	const struct subject subject = {.name = "h18", .by = &host};
	struct certificate fake;
	struct err e;

	assert_int_equal(certificate_make(&fake, &subject, &e), 0);
	assert_false(verify(&host, &fake, X509_PURPOSE_SSL_SERVER));
}

static void names_and_addresses_are_in_it(void **state)
{
	X509 *x = read_cert(&host);
	unsigned char sha256[32];
	char name[64];

	X509_NAME_get_text_by_NID(X509_get_subject_name(x), NID_commonName, name, sizeof(name));
	assert_string_equal(name, "h17");
	assert_int_equal(X509_check_ip_asc(x, "10.0.0.1", 0), 1);
	assert_int_equal(X509_check_ip_asc(x, "fd00::1", 0), 1);
	assert_int_equal(X509_check_host(x, "etcd.example", 0, 0, NULL), 1);
	assert_int_not_equal(X509_check_ip_asc(x, "10.0.0.2", 0), 1);
	assert_true(X509_digest(x, EVP_sha256(), sha256, NULL));
	assert_memory_equal(sha256, host.sha256, sizeof(sha256));
	X509_free(x);
}

static void wrong_authorities_and_addresses_are_refused(void **state)
{
	static const char *const bad[] = {"a,DNS:b", NULL};
	struct certificate mixed = authority, out;
	struct subject subject = {.name = "h17", .by = &mixed};
	struct err e;

	memcpy(mixed.key, other.key, sizeof(mixed.key));
	assert_true(certificate_make(&out, &subject, &e) < 0);
	assert_non_null(strstr(e.text, "do not belong together"));
	subject = (struct subject){.name = "h17", .addresses = bad, .by = &authority};
	assert_true(certificate_make(&out, &subject, &e) < 0);
	assert_non_null(strstr(e.text, "addresses"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(host_may_serve_and_be_a_client),
		cmocka_unit_test(host_certifies_nobody),
		cmocka_unit_test(names_and_addresses_are_in_it),
		cmocka_unit_test(wrong_authorities_and_addresses_are_refused),
	};

	return cmocka_run_group_tests(tests, set_up, NULL);
}
