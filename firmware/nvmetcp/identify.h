/* SPDX-License-Identifier: Apache-2.0 */
/* Identify data structures (NVMe Base 1.4 §5.15.2), with the fields used here. */
#ifndef VCACHE_NVMETCP_IDENTIFY_H
#define VCACHE_NVMETCP_IDENTIFY_H

#include <stddef.h>

#include "bytes.h"

#define IDENTIFY_BYTES 4096u

enum cns {
	CNS_NAMESPACE = 0x00,
	CNS_CONTROLLER = 0x01,
	CNS_ACTIVE_NAMESPACES = 0x02,
	CNS_NAMESPACE_DESCRIPTORS = 0x03,
	CNS_COMMAND_SET_CONTROLLER = 0x06,
	CNS_ENDURANCE_GROUPS = 0x19,
};

#define CSI_NVM 0

#define CNTRLTYPE_IO 1
#define CNTRLTYPE_DISCOVERY 2
#define CMIC_MULTIPLE_CONTROLLERS 0x02
#define OAES_NAMESPACE_ATTRIBUTE (1u << 8)
#define CTRATT_HOSTID_128 (1u << 0)
/* Endurance groups, Flexible Data Placement */
#define CTRATT_FDP (1u << 4 | 1u << 19)
#define FRMW_ONE_SLOT_READ_ONLY 0x03
#define LPA_EFFECTS 0x02
#define LPA_EXTENDED 0x04
#define SQES_64 0x66
#define CQES_16 0x44
#define ONCS_COMPARE 0x01
#define ONCS_DSM 0x04
#define ONCS_WRITE_ZEROES 0x08
/* A cache is present, and Flush supports NSID FFFFFFFFh. */
#define VWC_PRESENT_BROADCAST 0x07
#define SGLS_SUPPORTED 0x01
/* SGL Data Block descriptors may have an offset into the capsule. */
#define SGLS_OFFSET (1u << 20)

struct identify_controller {
	struct le16 vid;
	struct le16 ssvid;
	char sn[20];
	char mn[40];
	char fr[8];
	uint8_t rab;
	uint8_t ieee[3];
	uint8_t cmic;
	uint8_t mdts;
	struct le16 cntlid;
	struct le32 ver;
	struct le32 rtd3r;
	struct le32 rtd3e;
	struct le32 oaes;
	struct le32 ctratt;
	uint8_t reserved100[11];
	uint8_t cntrltype;
	uint8_t reserved112[144];
	struct le16 oacs;
	uint8_t acl;
	uint8_t aerl;
	uint8_t frmw;
	uint8_t lpa;
	uint8_t elpe;
	uint8_t npss;
	uint8_t reserved264[56];
	struct le16 kas;
	uint8_t reserved322[18];
	struct le16 endgidmax;
	uint8_t reserved342[170];
	uint8_t sqes;
	uint8_t cqes;
	struct le16 maxcmd;
	struct le32 nn;
	struct le16 oncs;
	struct le16 fuses;
	uint8_t fna;
	uint8_t vwc;
	struct le16 awun;
	struct le16 awupf;
	uint8_t reserved530[6];
	struct le32 sgls;
	struct le32 mnan;
	uint8_t reserved544[224];
	char subnqn[256];
	uint8_t reserved1024[768];
	/* NVMe over Fabrics */
	struct le32 ioccsz;
	struct le32 iorcsz;
	struct le16 icdoff;
	uint8_t fcatt;
	uint8_t msdbd;
	struct le16 ofcs;
	uint8_t reserved1806[2290];
};

_Static_assert(sizeof(struct identify_controller) == IDENTIFY_BYTES, "size");
_Static_assert(offsetof(struct identify_controller, oacs) == 256, "oacs");
_Static_assert(offsetof(struct identify_controller, kas) == 320, "kas");
_Static_assert(offsetof(struct identify_controller, endgidmax) == 340, "group");
_Static_assert(offsetof(struct identify_controller, sqes) == 512, "sqes");
_Static_assert(offsetof(struct identify_controller, sgls) == 536, "sgls");
_Static_assert(offsetof(struct identify_controller, subnqn) == 768, "subnqn");
_Static_assert(offsetof(struct identify_controller, ioccsz) == 1792, "ioccsz");

#define NSFEAT_ATOMICS 0x02
#define NSFEAT_OPTIMAL_SIZES 0x10
/* Deallocated blocks read as zeroes; Write Zeroes may deallocate. */
#define DLFEAT_ZEROES_DEAC 0x09
#define NMIC_SHARED 0x01
#define NSATTR_WRITE_PROTECTED 0x01

struct identify_namespace {
	struct le64 nsze;
	struct le64 ncap;
	struct le64 nuse;
	uint8_t nsfeat;
	uint8_t nlbaf;
	uint8_t flbas;
	uint8_t mc;
	uint8_t dpc;
	uint8_t dps;
	uint8_t nmic;
	uint8_t rescap;
	uint8_t fpi;
	uint8_t dlfeat;
	struct le16 nawun;
	struct le16 nawupf;
	struct le16 nacwu;
	struct le16 nabsn;
	struct le16 nabo;
	struct le16 nabspf;
	struct le16 noiob;
	uint8_t nvmcap[16];
	struct le16 npwg;
	struct le16 npwa;
	struct le16 npdg;
	struct le16 npda;
	struct le16 nows;
	uint8_t reserved74[25];
	uint8_t nsattr;
	struct le16 nvmsetid;
	struct le16 endgid;
	uint8_t nguid[16];
	uint8_t eui64[8];
	struct {
		struct le16 ms;
		uint8_t lbads;
		uint8_t rp;
	} lbaf[16];
	uint8_t reserved192[3904];
};

_Static_assert(sizeof(struct identify_namespace) == IDENTIFY_BYTES, "size");
_Static_assert(offsetof(struct identify_namespace, npwg) == 64, "npwg");
_Static_assert(offsetof(struct identify_namespace, endgid) == 102, "group");
_Static_assert(offsetof(struct identify_namespace, nguid) == 104, "nguid");
_Static_assert(offsetof(struct identify_namespace, lbaf) == 128, "lbaf");

enum nidt {
	NIDT_NGUID = 2,
	NIDT_UUID = 3,
};

struct namespace_descriptor {
	uint8_t nidt;
	uint8_t nidl;
	uint8_t reserved[2];
	uint8_t nid[16];
};

/* CNS 06h, CSI 0: additional fields of the NVM command set (NVM 1.0 §4.1.5) */
struct identify_nvm_controller {
	uint8_t vsl;
	uint8_t wzsl;
	uint8_t wusl;
	uint8_t dmrl;
	struct le32 dmrsl;
	struct le64 dmsl;
	uint8_t reserved16[4080];
};

_Static_assert(sizeof(struct identify_nvm_controller) == IDENTIFY_BYTES, "size");

#endif /* VCACHE_NVMETCP_IDENTIFY_H */
