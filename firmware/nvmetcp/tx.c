// SPDX-License-Identifier: Apache-2.0
/* PDUs to the host (TCP Transport 1.0a §3.6.2). */
#include "tx.h"

#include <string.h>

#include "command.h"
#include "conn.h"
#include "crc32c.h"
#include "ctrl.h"

static struct le32 digest(const void *data, size_t n)
{
	return cpu_to_le32(crc32c(data, n));
}

/* Add the header digest, if enabled, and the padding up to @pdo. */
static void header_done(struct conn *c, struct tx *tx, uint32_t length,
			uint32_t pdo)
{
	struct pdu_ch *ch = (struct pdu_ch *)tx->header;

	ch->hlen = (uint8_t)length;
	ch->pdo = (uint8_t)pdo;
	tx->header_length = length;
	if (c->session.hdgst) {
		struct le32 crc;

		ch->flags |= PDU_HDGSTF;
		crc = digest(tx->header, length);
		memcpy(tx->header + length, &crc, sizeof(crc));
		tx->header_length += PDU_DIGEST;
	}
	if (pdo)
		tx->header_length = pdo;
}

static uint32_t digest_length(const struct conn *c)
{
	return c->session.hdgst ? PDU_DIGEST : 0;
}

/* Start a PDU that has only a header so far. */
static void *begin(struct tx *tx, enum pdu_type type, uint32_t plen)
{
	struct pdu_ch *ch = (struct pdu_ch *)tx->header;

	memset(tx, 0, sizeof(*tx));
	ch->type = type;
	ch->plen = cpu_to_le32(plen);
	return tx->header;
}

/**
 * tx_icresp - accept the connection
 * @c: the connection
 * @dgst: the digests that the host requested
 */
void tx_icresp(struct conn *c, uint8_t dgst)
{
	struct pdu_icresp *pdu = begin(&c->icresp, PDU_ICRESP, sizeof(*pdu));

	pdu->ch.hlen = sizeof(*pdu);
	pdu->dgst = dgst;
	pdu->maxh2cdata = cpu_to_le32(MAXH2CDATA);
	c->icresp.header_length = sizeof(*pdu);
	conn_send(c, &c->icresp);
}

/**
 * tx_termreq - send the reason for the termination (§3.6.2.5)
 * @c: the connection
 * @error: the reason
 * @header: header of the PDU with the error
 * @length: bytes of @header, at most PDU_HEADER_MAX
 */
void tx_termreq(struct conn *c, const struct pdu_error *error,
		const void *header, uint32_t length)
{
	struct pdu_termreq *pdu = begin(&c->termreq, PDU_C2HTERMREQ,
					sizeof(*pdu) + length);

	pdu->ch.hlen = sizeof(*pdu);
	pdu->fes = cpu_to_le16(error->fes);
	pdu->fei = cpu_to_le32(error->fei);
	memcpy(c->termreq.header + sizeof(*pdu), header, length);
	c->termreq.header_length = sizeof(*pdu) + length;
	conn_send(c, &c->termreq);
}

/**
 * tx_r2t - request all data of a command, with a single R2T
 * @r: the command
 */
void tx_r2t(struct request *r)
{
	struct conn *c = r->conn;
	struct pdu_r2t *pdu = begin(&r->r2t, PDU_R2T,
				    sizeof(*pdu) + digest_length(c));

	pdu->cccid = r->sqe.cid;
	pdu->ttag = cpu_to_le16((uint16_t)(r - c->slots));
	pdu->r2tl = cpu_to_le32(r->length);
	header_done(c, &r->r2t, sizeof(*pdu), 0);
	conn_send(c, &r->r2t);
}

/* Send all data of a command in one PDU. */
static void tx_c2hdata(struct request *r, uint8_t flags)
{
	struct conn *c = r->conn;
	uint32_t ddgst = c->session.ddgst ? PDU_DIGEST : 0;
	uint32_t pdo = sizeof(struct pdu_c2hdata) + digest_length(c);
	struct pdu_c2hdata *pdu;

	pdo += (c->data_alignment - pdo % c->data_alignment) %
	       c->data_alignment;
	pdu = begin(&r->c2hdata, PDU_C2HDATA, pdo + r->length + ddgst);
	pdu->ch.flags = flags | (ddgst ? PDU_DDGSTF : 0);
	pdu->cccid = r->sqe.cid;
	pdu->datal = cpu_to_le32(r->length);
	header_done(c, &r->c2hdata, sizeof(*pdu), pdo);
	r->c2hdata.data = r->data;
	r->c2hdata.data_length = r->length;
	if (ddgst) {
		struct le32 crc = digest(r->data, r->length);

		memcpy(r->c2hdata.ddgst, &crc, sizeof(crc));
		r->c2hdata.ddgst_length = ddgst;
	}
}

static void tx_capsuleresp(struct request *r)
{
	struct conn *c = r->conn;
	struct pdu_capsuleresp *pdu;

	pdu = begin(&r->response, PDU_CAPSULERESP,
		    sizeof(*pdu) + digest_length(c));
	if (!r->parked)
		c->sqhd = (uint16_t)((c->sqhd + 1) % c->entries);
	pdu->cqe = (struct cqe){
		.dw0 = cpu_to_le32(r->dw0),
		.dw1 = cpu_to_le32(r->dw1),
		.sqhd = cpu_to_le16(c->sq_flow ? c->sqhd : SQHD_DISABLED),
		.sqid = cpu_to_le16(c->qid),
		/* All 16 bits: Linux uses the upper ones for a generation. */
		.cid = r->sqe.cid,
		/* Bit 0 is the phase tag, which fabrics do not use. */
		.status = cpu_to_le16((uint16_t)(r->status << 1)),
	};
	header_done(c, &r->response, sizeof(*pdu), 0);
	r->response.ends = r;
	conn_send(c, &r->response);
}

/**
 * tx_answer - send the data and the completion of a command
 * @r: the command
 */
void tx_answer(struct request *r)
{
	struct conn *c = r->conn;
	bool data = !r->status && r->length &&
		    command_transfer(r->command) == TRANSFER_TO_HOST;

	if (!data) {
		tx_capsuleresp(r);
		return;
	}
	/*
	 * The data PDU can also report success (§3.3.2.1), but only if the host
	 * does not need the SQHD of a response.
	 */
	if (c->sq_flow || r->dw0 || r->dw1) {
		tx_c2hdata(r, PDU_LAST_PDU);
		conn_send(c, &r->c2hdata);
		tx_capsuleresp(r);
	} else {
		tx_c2hdata(r, PDU_LAST_PDU | PDU_SUCCESS);
		r->c2hdata.ends = r;
		conn_send(c, &r->c2hdata);
	}
}
