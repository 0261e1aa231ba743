// SPDX-License-Identifier: Apache-2.0
/*
 * Check the common header of a PDU from the host, before more bytes are
 * received. So a PDU with a wrong length costs no more than eight bytes.
 */
#include "pdu.h"

#include <stddef.h>

#include "limits.h"

static bool refuse(struct pdu_error *error, enum pdu_fes fes, size_t offset)
{
	error->fes = fes;
	error->fei = (uint32_t)offset;
	return false;
}

static bool invalid(struct pdu_error *error, size_t offset)
{
	return refuse(error, FES_INVALID_PDU_HEADER_FIELD, offset);
}

/* Header length of a PDU from a host; 0: a host must not send this type. */
static uint32_t header_length(uint8_t type)
{
	switch (type) {
	case PDU_ICREQ:
		return sizeof(struct pdu_icreq);
	case PDU_H2CTERMREQ:
		return sizeof(struct pdu_termreq);
	case PDU_CAPSULECMD:
		return sizeof(struct pdu_capsulecmd);
	case PDU_H2CDATA:
		return sizeof(struct pdu_h2cdata);
	default:
		return 0;
	}
}

/* ICReq and H2CTermReq have no digests and no data. */
static bool check_plain(const struct pdu_ch *ch, struct pdu_layout *layout,
			struct pdu_error *error)
{
	uint32_t plen = le32_to_cpu(ch->plen);
	uint32_t most = ch->hlen;

	if (ch->type == PDU_H2CTERMREQ)
		most = PDU_TERMREQ_MAX;
	if (plen < ch->hlen || plen > most)
		return invalid(error, offsetof(struct pdu_ch, plen));
	*layout = (struct pdu_layout){
		.header = ch->hlen,
		.pad = plen - ch->hlen,
	};
	return true;
}

static bool check_data(const struct pdu_ch *ch,
		       const struct pdu_session *session,
		       struct pdu_layout *layout, struct pdu_error *error)
{
	uint32_t plen = le32_to_cpu(ch->plen);
	uint32_t ddgst = session->ddgst ? PDU_DIGEST : 0;
	uint32_t data;

	if (!!(ch->flags & PDU_DDGSTF) != session->ddgst)
		return invalid(error, offsetof(struct pdu_ch, flags));
	/* CPDA is 0, so data is aligned to dwords. */
	if (ch->pdo < layout->header || ch->pdo % 4 || ch->pdo > PDU_PDO_MAX)
		return invalid(error, offsetof(struct pdu_ch, pdo));
	if (plen <= ch->pdo + ddgst)
		return invalid(error, offsetof(struct pdu_ch, plen));
	data = plen - ch->pdo - ddgst;
	if (ch->type == PDU_H2CDATA && data > MAXH2CDATA)
		return refuse(error, FES_DATA_TRANSFER_LIMIT_EXCEEDED, 0);
	if (ch->type == PDU_CAPSULECMD && data > IN_CAPSULE_DATA)
		return invalid(error, offsetof(struct pdu_ch, plen));
	layout->pad = ch->pdo - layout->header;
	layout->data = data;
	layout->ddgst = ddgst;
	return true;
}

/**
 * pdu_check - check the common header of a PDU from the host
 * @ch: the header
 * @session: the state of the connection
 * @layout: the parts of the PDU, if the header is valid
 * @error: the error, if it is invalid
 *
 * Return: true if the header is valid.
 */
bool pdu_check(const struct pdu_ch *ch, const struct pdu_session *session,
	       struct pdu_layout *layout, struct pdu_error *error)
{
	uint32_t hlen = header_length(ch->type);
	bool icreq = ch->type == PDU_ICREQ;

	/* ICReq must be first, and must not occur again (§3.4.1). */
	if (icreq == session->initialised)
		return refuse(error, FES_PDU_SEQUENCE_ERROR, 0);
	if (!hlen)
		return invalid(error, offsetof(struct pdu_ch, type));
	if (ch->hlen != hlen)
		return invalid(error, offsetof(struct pdu_ch, hlen));
	if (icreq || ch->type == PDU_H2CTERMREQ)
		return check_plain(ch, layout, error);
	if (!!(ch->flags & PDU_HDGSTF) != session->hdgst)
		return invalid(error, offsetof(struct pdu_ch, flags));
	*layout = (struct pdu_layout){
		.header = hlen + (session->hdgst ? PDU_DIGEST : 0),
	};
	/* A PDU without data has no data digest. */
	if (ch->type == PDU_CAPSULECMD &&
	    le32_to_cpu(ch->plen) == layout->header)
		return true;
	return check_data(ch, session, layout, error);
}
