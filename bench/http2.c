// SPDX-License-Identifier: Apache-2.0
#include "bench/http2.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PREFACE	    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#define HEAD_BYTES  9
#define FRAME_MAX   16384 /* the initial SETTINGS_MAX_FRAME_SIZE */
#define WINDOW	    (1u << 30)
#define STATUS_200  0x88 /* of HPACK's static table (RFC 7541, appendix A) */
#define REQUEST_MAX 4096

enum { DATA = 0, HEADERS = 1, RESET = 3, SETTINGS = 4, PING = 6, GOAWAY = 7, WINDOW_UPDATE = 8 };
enum { ACK = 1, END_STREAM = 1, END_HEADERS = 4 };

static void die(const char *what)
{
	fprintf(stderr, "bench: HTTP/2: %s\n", what);
	exit(1);
}

static void write_all(int fd, const void *p, size_t len)
{
	if (write(fd, p, len) != (ssize_t)len)
		die("the service does not take a request");
}

static void read_all(int fd, void *to, size_t len)
{
	for (size_t done = 0; done < len;) {
		ssize_t n = read(fd, (uint8_t *)to + done, len - done);
		if (n <= 0)
			die("the service closed the connection");
		done += (size_t)n;
	}
}

/* Appends a frame's head. */
static uint8_t *put_head(uint8_t *p, size_t len, uint8_t type, uint8_t flags, uint32_t stream)
{
	const uint8_t head[HEAD_BYTES] = {(uint8_t)(len >> 16),
					  (uint8_t)(len >> 8),
					  (uint8_t)len,
					  type,
					  flags,
					  (uint8_t)(stream >> 24),
					  (uint8_t)(stream >> 16),
					  (uint8_t)(stream >> 8),
					  (uint8_t)stream};

	return (uint8_t *)memcpy(p, head, sizeof(head)) + sizeof(head);
}

/* Appends a short string as HPACK does, without Huffman coding. */
static uint8_t *put_text(uint8_t *p, const char *text)
{
	size_t len = strlen(text);

	if (len > 126)
		die("a path is too long");
	*p++ = (uint8_t)len;
	return (uint8_t *)memcpy(p, text, len) + len;
}

void http2_connect(struct http2 *h, uint16_t port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
	uint8_t start[128], *p = start;
	const uint32_t window = htonl(WINDOW);
	int one = 1;

	h->stream = 1;
	h->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (h->fd < 0 || connect(h->fd, (struct sockaddr *)&a, sizeof(a)) < 0)
		die("no connection");
	setsockopt(h->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	p = (uint8_t *)memcpy(p, PREFACE, strlen(PREFACE)) + strlen(PREFACE);
	p = put_head(p, 0, SETTINGS, 0, 0);
	p = put_head(p, sizeof(window), WINDOW_UPDATE, 0, 0);
	p = (uint8_t *)memcpy(p, &window, sizeof(window)) + sizeof(window);
	write_all(h->fd, start, (size_t)(p - start));
}

static void send_request(struct http2 *h, const char *path, const char *json)
{
	uint8_t request[REQUEST_MAX], block[512], *b = block, *p = request;
	size_t len = strlen(json);
	char length[16];

	if (len > REQUEST_MAX - sizeof(block) - 64)
		die("a body is too long");
	snprintf(length, sizeof(length), "%zu", len);
	*b++ = 0x83; /* :method POST */
	*b++ = 0x86; /* :scheme http */
	*b++ = 0x01; /* :authority */
	b = put_text(b, "localhost");
	*b++ = 0x04; /* :path */
	b = put_text(b, path);
	*b++ = 0x0f; /* index 31 of the static table of HPACK: content-type */
	*b++ = 31 - 15;
	b = put_text(b, "application/json");
	*b++ = 0x0f; /* content-length: 28 */
	*b++ = 28 - 15;
	b = put_text(b, length);
	p = put_head(p, (size_t)(b - block), HEADERS, END_HEADERS, h->stream);
	p = (uint8_t *)memcpy(p, block, (size_t)(b - block)) + (b - block);
	p = put_head(p, len, DATA, END_STREAM, h->stream);
	p = (uint8_t *)memcpy(p, json, len) + len;
	write_all(h->fd, request, (size_t)(p - request));
}

static void acknowledge(const struct http2 *h, uint8_t type, const uint8_t *payload, size_t len)
{
	uint8_t frame[HEAD_BYTES + 8], *p = put_head(frame, len, type, ACK, 0);

	memcpy(p, payload, len);
	write_all(h->fd, frame, HEAD_BYTES + len);
}

/* Takes one frame; returns true if it ends the answer. */
static bool take_frame(struct http2 *h)
{
	uint8_t head[HEAD_BYTES], payload[FRAME_MAX];

	read_all(h->fd, head, sizeof(head));
	size_t len = (size_t)head[0] << 16 | (size_t)head[1] << 8 | head[2];
	uint8_t type = head[3], flags = head[4];
	if (len > sizeof(payload))
		die("a frame is too long");
	read_all(h->fd, payload, len);
	if (type == SETTINGS && !(flags & ACK))
		acknowledge(h, SETTINGS, payload, 0);
	else if (type == PING && !(flags & ACK) && len == 8)
		acknowledge(h, PING, payload, len);
	else if (type == RESET || type == GOAWAY)
		die("the service refused a request");
	else if (type == HEADERS && (!len || payload[0] != STATUS_200))
		die("the status is not 200");
	if (type != DATA && type != HEADERS)
		return false;
	if (type == DATA) {
		if (len >= sizeof(h->body) - h->len)
			die("an answer is too long");
		memcpy(h->body + h->len, payload, len);
		h->len += len;
	}
	return flags & END_STREAM;
}

void http2_post(struct http2 *h, const char *path, const char *json)
{
	send_request(h, path, json);
	h->len = 0;
	while (!take_frame(h))
		;
	h->body[h->len] = '\0';
	h->stream += 2;
}
