// SPDX-License-Identifier: Apache-2.0
/*
 * Arbitrary bytes from hosts, which the controller must handle. An input is digests (u8),
 * then steps: {u8 kind, u8 connection, u16 n} and n bytes. Kinds: bytes as they are;
 * a PDU with corrected common header and digests; a valid connection set-up, with
 * the discovery subsystem if n is odd; sending; passing of time; end of the
 * connection.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "../../firmware/nvmetcp/backend.h"
#include "../../firmware/nvmetcp/conn.h"
#include "../../firmware/nvmetcp/crc32c.h"
#include "../../firmware/nvmetcp/ctrl.h"
#include "../../firmware/nvmetcp/subsys.h"

#define CONNS 4
#define NQN "nqn.2026-01.org.example:fuzz"
#define MS 1000000ull

enum step { RAW, PDU, CONNECT, SEND, TIME, CLOSE, STEPS };

struct run {
	struct subsys subsys;
	struct conn *conn[CONNS];
	uint8_t digests;
};

static void output(struct conn *c, size_t most)
{
	while (most && c->state != CONN_CLOSED) {
		struct iovec iov[3];
		int i, n = conn_output(c, iov, 3);
		size_t bytes = 0;

		if (!n)
			return;
		for (i = 0; i < n; i++) {
			/* Access every byte, so that the sanitizer checks it. */
			crc32c(iov[i].iov_base, iov[i].iov_len);
			bytes += iov[i].iov_len;
		}
		if (bytes > most)
			bytes = most;
		most -= bytes;
		conn_sent(c, bytes);
	}
}

static struct conn *get(struct run *r, unsigned int i)
{
	if (!r->conn[i])
		r->conn[i] = conn_new(&r->subsys);
	assert(r->conn[i]);
	return r->conn[i];
}

static void reap(struct run *r)
{
	unsigned int i;

	for (i = 0; i < CONNS; i++) {
		if (r->conn[i] && r->conn[i]->state == CONN_CLOSED) {
			conn_free(r->conn[i]);
			r->conn[i] = NULL;
		}
	}
	assert(!r->subsys.closed);
}

static void put_digest(uint8_t *at, const uint8_t *from, size_t n)
{
	struct le32 crc = cpu_to_le32(crc32c(from, n));

	memcpy(at, &crc, sizeof(crc));
}

/* The bytes are type, flags and what is behind the common header. */
static void send_pdu(struct conn *c, const uint8_t *bytes, size_t n)
{
	static uint8_t pdu[1 << 17];
	struct pdu_ch *ch = (struct pdu_ch *)pdu;
	uint32_t hlen, at;

	if (n < 2)
		return;
	ch->type = bytes[0];
	ch->flags = bytes[1] & PDU_LAST_PDU;
	hlen = ch->type == PDU_CAPSULECMD ? sizeof(struct pdu_capsulecmd) :
	       ch->type == PDU_ICREQ ? sizeof(struct pdu_icreq) :
	       sizeof(struct pdu_h2cdata);
	bytes += 2;
	n -= 2;
	memset(pdu + sizeof(*ch), 0, hlen);
	at = n < hlen - sizeof(*ch) ? n : hlen - sizeof(*ch);
	memcpy(pdu + sizeof(*ch), bytes, at);
	bytes += at;
	n -= at;
	at = hlen;
	ch->hlen = (uint8_t)hlen;
	ch->pdo = 0;
	if (c->session.hdgst) {
		ch->flags |= PDU_HDGSTF;
		at += PDU_DIGEST;
	}
	if (n) {
		ch->pdo = (uint8_t)at;
		memcpy(pdu + at, bytes, n);
		if (c->session.ddgst) {
			ch->flags |= PDU_DDGSTF;
			put_digest(pdu + at + n, pdu + at, n);
			at += PDU_DIGEST;
		}
		at += n;
	}
	ch->plen = cpu_to_le32(at);
	if (c->session.hdgst)
		put_digest(pdu + hlen, pdu, hlen);
	conn_input(c, pdu, at);
}

static void command(struct conn *c, const void *sqe, const void *data,
		    size_t n)
{
	uint8_t bytes[2 + 64 + 1024] = { PDU_CAPSULECMD };

	memcpy(bytes + 2, sqe, 64);
	if (n)
		memcpy(bytes + 66, data, n);
	send_pdu(c, bytes, 66 + n);
}

/* ICReq, Connect, and for an admin queue CC.EN. */
static void set_up(struct run *r, struct conn *c, uint16_t qid,
		   bool discovery)
{
	struct pdu_icreq icreq = {
		.ch = { .type = PDU_ICREQ, .hlen = 128,
			.plen = cpu_to_le32(128) },
		.dgst = r->digests & 3,
		.hpda = r->digests >> 3,
	};
	struct connect_sqe sqe = {
		.opcode = OPCODE_FABRICS, .flags = SQE_FLAGS_SGL,
		.fctype = FCTYPE_CONNECT,
		.sgl = { .length = cpu_to_le32(1024),
			 .identifier = SGL_DATA_BLOCK_OFFSET },
		.qid = cpu_to_le16(qid), .sqsize = cpu_to_le16(15),
		.cattr = r->digests & CATTR_NO_SQ_FLOW,
		.kato = cpu_to_le32(qid ? 0 : 1000),
	};
	struct property_sqe cc = {
		.opcode = OPCODE_FABRICS, .flags = SQE_FLAGS_SGL,
		.ofst = cpu_to_le32(PROPERTY_CC),
		.value = cpu_to_le64(CC_ENTRY_SIZES | CC_EN),
	};
	const struct ctrl *k = LIST_FIRST(&r->subsys.ctrls);
	struct connect_data data = {
		.cntlid = cpu_to_le16(qid && k ? k->cntlid : CNTLID_DYNAMIC),
		.hostnqn = "nqn.host",
	};

	strcpy(data.subnqn, discovery ? DISCOVERY_NQN : NQN);
	conn_input(c, (const uint8_t *)&icreq, sizeof(icreq));
	command(c, &sqe, &data, sizeof(data));
	output(c, SIZE_MAX);
	if (!qid)
		command(c, &cc, NULL, 0);
	output(c, SIZE_MAX);
}

static void pass_time(struct run *r, uint16_t ms)
{
	r->subsys.now += ms * MS;
	subsys_complete_due(&r->subsys);
	subsys_tick(&r->subsys);
}

static void step(struct run *r, const uint8_t head[4], const uint8_t *bytes,
		 uint16_t n)
{
	struct conn *c = get(r, head[1] % CONNS);

	switch (head[0] % STEPS) {
	case RAW:
		conn_input(c, bytes, n);
		break;
	case PDU:
		send_pdu(c, bytes, n);
		break;
	case CONNECT:
		set_up(r, c, head[1] % CONNS, n & 1);
		break;
	case SEND:
		output(c, n);
		break;
	case TIME:
		pass_time(r, n);
		break;
	case CLOSE:
		conn_close(c);
		break;
	}
	assert(c->bytes <= CONNECTION_BYTES + QUEUE_ENTRIES * IN_CAPSULE_DATA);
	reap(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	const struct backend_options ram = { .size = 64 << 10 };
	char error[BACKEND_ERROR_SIZE];
	struct subsys_config config = {
		.nqn = NQN, .namespaces = 2, .timing = true,
		.peer_timeout = 500 * MS,
	};
	static struct run r;

	if (!len)
		return 0;
	assert(!backend_open(&config.device, &ram, error));
	config.device.max_tag = 255;
	config.lba_shift = data[0] & 0x80 ? 9 : 12;
	memset(&r, 0, sizeof(r));
	assert(subsys_init(&r.subsys, &config, MS));
	r.digests = data[0] & 0x7f;
	data++;
	len--;
	while (len >= 4) {
		uint16_t n = (uint16_t)(data[2] | data[3] << 8);
		bool has = data[0] % STEPS == RAW || data[0] % STEPS == PDU;
		const uint8_t *head = data;

		data += 4;
		len -= 4;
		if (has && n > len)
			n = (uint16_t)len;
		step(&r, head, data, n);
		if (has) {
			data += n;
			len -= n;
		}
	}
	subsys_destroy(&r.subsys);
	assert(!r.subsys.ctrl_count);
	backend_close(&config.device);
	return 0;
}
