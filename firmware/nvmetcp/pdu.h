/* SPDX-License-Identifier: Apache-2.0 */
/* PDUs of the NVMe/TCP Transport Specification 1.0a §3.6.2, on the wire. */
#ifndef VCACHE_NVMETCP_PDU_H
#define VCACHE_NVMETCP_PDU_H

#include <stdbool.h>
#include <stdint.h>

#include "bytes.h"
#include "nvme.h"

enum pdu_type {
	PDU_ICREQ = 0x00,
	PDU_ICRESP = 0x01,
	PDU_H2CTERMREQ = 0x02,
	PDU_C2HTERMREQ = 0x03,
	PDU_CAPSULECMD = 0x04,
	PDU_CAPSULERESP = 0x05,
	PDU_H2CDATA = 0x06,
	PDU_C2HDATA = 0x07,
	PDU_R2T = 0x09,
};

/* FLAGS of the common header */
#define PDU_HDGSTF 0x01
#define PDU_DDGSTF 0x02
#define PDU_LAST_PDU 0x04
#define PDU_SUCCESS 0x08

/* DGST of ICReq and ICResp */
#define PDU_HDGST_ENABLE 0x01
#define PDU_DDGST_ENABLE 0x02

#define PDU_DIGEST 4u
/* Largest HPDA, in dwords, 0's based. */
#define PDU_HPDA_MAX 31
/* Largest useful PDO: (PDU_HPDA_MAX + 1) dwords. */
#define PDU_PDO_MAX 128u
#define PDU_HEADER_MAX 128u

/* Fatal Error Status of a C2HTermReq (figure of §3.6.2.5) */
enum pdu_fes {
	FES_NONE = 0x00,
	FES_INVALID_PDU_HEADER_FIELD = 0x01,
	FES_PDU_SEQUENCE_ERROR = 0x02,
	FES_HEADER_DIGEST_ERROR = 0x03,
	FES_DATA_TRANSFER_OUT_OF_RANGE = 0x04,
	FES_DATA_TRANSFER_LIMIT_EXCEEDED = 0x05,
	FES_UNSUPPORTED_PARAMETER = 0x06,
};

struct pdu_ch {
	uint8_t type;
	uint8_t flags;
	uint8_t hlen;
	uint8_t pdo;
	struct le32 plen;
};

struct pdu_icreq {
	struct pdu_ch ch;
	struct le16 pfv;
	uint8_t hpda;
	uint8_t dgst;
	struct le32 maxr2t;
	uint8_t reserved[112];
};

struct pdu_icresp {
	struct pdu_ch ch;
	struct le16 pfv;
	uint8_t cpda;
	uint8_t dgst;
	struct le32 maxh2cdata;
	uint8_t reserved[112];
};

struct pdu_termreq {
	struct pdu_ch ch;
	struct le16 fes;
	struct le32 fei;
	uint8_t reserved[10];
};

struct pdu_capsulecmd {
	struct pdu_ch ch;
	struct sqe sqe;
};

struct pdu_capsuleresp {
	struct pdu_ch ch;
	struct cqe cqe;
};

struct pdu_h2cdata {
	struct pdu_ch ch;
	struct le16 cccid;
	struct le16 ttag;
	struct le32 datao;
	struct le32 datal;
	uint8_t reserved[4];
};

struct pdu_c2hdata {
	struct pdu_ch ch;
	struct le16 cccid;
	uint8_t reserved1[2];
	struct le32 datao;
	struct le32 datal;
	uint8_t reserved2[4];
};

struct pdu_r2t {
	struct pdu_ch ch;
	struct le16 cccid;
	struct le16 ttag;
	struct le32 r2to;
	struct le32 r2tl;
	uint8_t reserved[4];
};

_Static_assert(sizeof(struct pdu_icreq) == 128, "ICReq");
_Static_assert(sizeof(struct pdu_icresp) == 128, "ICResp");
_Static_assert(sizeof(struct pdu_termreq) == 24, "TermReq");
_Static_assert(sizeof(struct pdu_capsulecmd) == 72, "CapsuleCmd");
_Static_assert(sizeof(struct pdu_capsuleresp) == 24, "CapsuleResp");
_Static_assert(sizeof(struct pdu_h2cdata) == 24, "H2CData");
_Static_assert(sizeof(struct pdu_c2hdata) == 24, "C2HData");
_Static_assert(sizeof(struct pdu_r2t) == 24, "R2T");

#define PDU_TERMREQ_MAX (sizeof(struct pdu_termreq) + PDU_HEADER_MAX)

/**
 * struct pdu_session - the parameters negotiated by ICReq and ICResp
 * @initialised: ICReq and ICResp are complete
 * @hdgst: header digests are used
 * @ddgst: data digests are used
 */
struct pdu_session {
	bool initialised;
	bool hdgst;
	bool ddgst;
};

/**
 * struct pdu_layout - the parts of a PDU behind its common header
 * @header: bytes of header and header digest
 * @pad: bytes between header and data
 * @data: bytes of data
 * @ddgst: bytes of data digest
 */
struct pdu_layout {
	uint32_t header;
	uint32_t pad;
	uint32_t data;
	uint32_t ddgst;
};

/**
 * struct pdu_error - a fatal transport error
 * @fes: Fatal Error Status
 * @fei: Fatal Error Information
 */
struct pdu_error {
	enum pdu_fes fes;
	uint32_t fei;
};

bool pdu_check(const struct pdu_ch *ch, const struct pdu_session *session,
	       struct pdu_layout *layout, struct pdu_error *error);

#endif /* VCACHE_NVMETCP_PDU_H */
