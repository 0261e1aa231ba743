/* SPDX-License-Identifier: Apache-2.0 */
/* PDUs to the host, queued on a connection. */
#ifndef VCACHE_NVMETCP_TX_H
#define VCACHE_NVMETCP_TX_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "pdu.h"

struct conn;
struct request;

/**
 * struct tx - a PDU to send
 * @header: header, digest and padding
 * @header_length: length of @header
 * @data: data, in the buffer of the request
 * @data_length: length of @data
 * @ddgst: data digest
 * @ddgst_length: length of @ddgst
 * @ends: request whose slot is freed after this PDU, or NULL
 * @link: entry in conn->tx
 */
struct tx {
	uint8_t header[PDU_TERMREQ_MAX];
	uint32_t header_length;
	const uint8_t *data;
	uint32_t data_length;
	uint8_t ddgst[PDU_DIGEST];
	uint32_t ddgst_length;
	struct request *ends;
	STAILQ_ENTRY(tx) link;
};

void tx_icresp(struct conn *c, uint8_t dgst);
void tx_termreq(struct conn *c, const struct pdu_error *error,
		const void *header, uint32_t length);
void tx_r2t(struct request *r);
void tx_answer(struct request *r);

#endif /* VCACHE_NVMETCP_TX_H */
