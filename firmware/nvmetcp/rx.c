// SPDX-License-Identifier: Apache-2.0
/*
 * Assemble PDUs from bytes. Lengths are checked before the bytes that they cover
 * are received, and offsets before the first byte is stored.
 */
#include "rx.h"

#include <string.h>

#include "conn.h"
#include "crc32c.h"
#include "ctrl.h"

static void fatal(struct conn *c, enum pdu_fes fes, uint32_t fei)
{
	const struct pdu_ch *ch = (const struct pdu_ch *)c->rx.header;
	struct pdu_error error = { fes, fei };

	conn_fatal(c, &error, ch, ch->hlen);
}

static void invalid(struct conn *c, size_t offset)
{
	fatal(c, FES_INVALID_PDU_HEADER_FIELD, (uint32_t)offset);
}

static void icreq(struct conn *c)
{
	const struct pdu_icreq *pdu = (const void *)c->rx.header;

	if (le16_to_cpu(pdu->pfv)) {
		fatal(c, FES_UNSUPPORTED_PARAMETER,
		      offsetof(struct pdu_icreq, pfv));
		return;
	}
	if (pdu->hpda > PDU_HPDA_MAX) {
		invalid(c, offsetof(struct pdu_icreq, hpda));
		return;
	}
	tx_icresp(c, pdu->dgst & (PDU_HDGST_ENABLE | PDU_DDGST_ENABLE));
	c->data_alignment = (pdu->hpda + 1) * 4;
	c->session.hdgst = pdu->dgst & PDU_HDGST_ENABLE;
	c->session.ddgst = pdu->dgst & PDU_DDGST_ENABLE;
	c->session.initialised = true;
}

static void capsule(struct conn *c)
{
	const struct pdu_capsulecmd *pdu = (const void *)c->rx.header;
	struct request *r = conn_take_slot(c);

	if (!r) {
		/* More commands than the queue has entries. */
		fatal(c, FES_PDU_SEQUENCE_ERROR, 0);
		return;
	}
	r->sqe = pdu->sqe;
	c->rx.request = r;
	if (!c->rx.layout.data)
		return;
	if (!conn_hold_data(r, c->rx.layout.data)) {
		conn_close(c);
		return;
	}
	c->rx.data = r->data;
}

/* Data for an R2T, which must be complete and in order (§3.3.2.2). */
static void h2cdata(struct conn *c)
{
	const struct pdu_h2cdata *pdu = (const void *)c->rx.header;
	uint32_t datal = le32_to_cpu(pdu->datal);
	uint16_t ttag = le16_to_cpu(pdu->ttag);
	bool last = pdu->ch.flags & PDU_LAST_PDU;
	struct request *r;

	if (ttag >= CONN_SLOTS ||
	    c->slots[ttag].state != REQUEST_TRANSFER) {
		invalid(c, offsetof(struct pdu_h2cdata, ttag));
		return;
	}
	r = &c->slots[ttag];
	if (le16_to_cpu(pdu->cccid) != request_cid(r)) {
		invalid(c, offsetof(struct pdu_h2cdata, cccid));
		return;
	}
	if (datal != c->rx.layout.data) {
		invalid(c, offsetof(struct pdu_h2cdata, datal));
		return;
	}
	if (le32_to_cpu(pdu->datao) != r->received ||
	    datal > r->length - r->received) {
		fatal(c, FES_DATA_TRANSFER_OUT_OF_RANGE, 0);
		return;
	}
	if (last != (datal == r->length - r->received)) {
		invalid(c, offsetof(struct pdu_ch, flags));
		return;
	}
	c->rx.request = r;
	c->rx.data = r->data + r->received;
}

static bool header_digest_right(const struct rx *rx)
{
	const struct pdu_ch *ch = (const struct pdu_ch *)rx->header;
	struct le32 sent;

	if (rx->layout.header == ch->hlen)
		return true;
	memcpy(&sent, rx->header + ch->hlen, sizeof(sent));
	return le32_to_cpu(sent) == crc32c(rx->header, ch->hlen);
}

static void header_done(struct conn *c)
{
	const struct pdu_ch *ch = (const struct pdu_ch *)c->rx.header;

	if (!header_digest_right(&c->rx)) {
		struct le32 sent;

		memcpy(&sent, c->rx.header + ch->hlen, sizeof(sent));
		fatal(c, FES_HEADER_DIGEST_ERROR, le32_to_cpu(sent));
		return;
	}
	switch (ch->type) {
	case PDU_ICREQ:
		icreq(c);
		break;
	case PDU_CAPSULECMD:
		capsule(c);
		break;
	case PDU_H2CDATA:
		h2cdata(c);
		break;
	default:
		/* H2CTermReq: the host terminates the connection. */
		conn_close(c);
	}
}

static void pdu_done(struct conn *c)
{
	const struct pdu_ch *ch = (const struct pdu_ch *)c->rx.header;
	struct rx *rx = &c->rx;
	struct request *r = rx->request;

	c->pdu_deadline = 0;
	if (!r)
		return;
	if (rx->layout.ddgst) {
		struct le32 sent;

		memcpy(&sent, rx->ddgst, sizeof(sent));
		if (le32_to_cpu(sent) != ~rx->crc)
			r->data_bad = true;
	}
	r->received += rx->layout.data;
	if (ch->type == PDU_CAPSULECMD)
		request_received(r);
	else if (r->received == r->length)
		request_transferred(r);
}

static uint32_t part_length(const struct rx *rx)
{
	switch (rx->state) {
	case RX_CH:
		return sizeof(struct pdu_ch);
	case RX_HEADER:
		return rx->layout.header - sizeof(struct pdu_ch);
	case RX_PAD:
		return rx->layout.pad;
	case RX_DATA:
		return rx->layout.data;
	default:
		return rx->layout.ddgst;
	}
}

/* A part is complete; continue with the next part that is not empty. */
static void part_done(struct conn *c)
{
	struct rx *rx = &c->rx;
	struct pdu_error error;

	if (rx->state == RX_CH) {
		rx->request = NULL;
		rx->data = NULL;
		rx->crc = CRC32C_SEED;
		if (!pdu_check((const struct pdu_ch *)rx->header, &c->session,
			       &rx->layout, &error)) {
			conn_fatal(c, &error, rx->header,
				   sizeof(struct pdu_ch));
			return;
		}
	} else if (rx->state == RX_HEADER) {
		header_done(c);
		if (c->state != CONN_OPEN)
			return;
	}
	rx->have = 0;
	do {
		if (rx->state == RX_DDGST) {
			rx->state = RX_CH;
			pdu_done(c);
			return;
		}
		rx->state++;
	} while (!part_length(rx));
}

/**
 * rx_bytes - process bytes of the current part of a PDU
 * @c: the open connection
 * @bytes: the bytes
 * @n: number of bytes, not 0
 *
 * Return: number of bytes that belonged to this part.
 */
size_t rx_bytes(struct conn *c, const uint8_t *bytes, size_t n)
{
	struct rx *rx = &c->rx;
	uint32_t left = part_length(rx) - rx->have;

	if (n > left)
		n = left;
	if (!c->pdu_deadline)
		c->pdu_deadline = c->subsys->now +
				  c->subsys->config.peer_timeout;
	switch (rx->state) {
	case RX_CH:
		memcpy(rx->header + rx->have, bytes, n);
		break;
	case RX_HEADER:
		memcpy(rx->header + sizeof(struct pdu_ch) + rx->have, bytes,
		       n);
		break;
	case RX_PAD:
		break;
	case RX_DATA:
		memcpy(rx->data + rx->have, bytes, n);
		if (rx->layout.ddgst)
			rx->crc = crc32c_update(rx->crc, bytes, n);
		break;
	case RX_DDGST:
		memcpy(rx->ddgst + rx->have, bytes, n);
		break;
	}
	rx->have += (uint32_t)n;
	if (rx->have == part_length(rx))
		part_done(c);
	return n;
}
